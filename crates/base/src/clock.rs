//! Time, injected: the system's, or one that a test or `SOURCE_DATE_EPOCH` sets.

use crate::sync::Mutex;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment in UTC: seconds since 1970-01-01 (negative before it, past 2^32 and 2^63 − 1 as the disk format
/// allows) and nanoseconds after that second, below 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, 0 to 999,999,999.
    pub nanoseconds: u32,
}

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

impl Timestamp {
    /// 1970-01-01 00:00:00.
    pub const EPOCH: Self = Self { seconds: 0, nanoseconds: 0 };

    /// A moment from seconds and nanoseconds.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds, nanoseconds }
    }

    /// This moment `duration` later; stays at the last representable second instead of wrapping.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanoseconds = self.nanoseconds.saturating_add(duration.subsec_nanos());
        let carry = u64::from(nanoseconds / NANOSECONDS_PER_SECOND);
        let seconds = self.seconds.saturating_add_unsigned(duration.as_secs().saturating_add(carry));
        Self { seconds, nanoseconds: nanoseconds % NANOSECONDS_PER_SECOND }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::EPOCH.saturating_add(after),
            Err(error) => {
                let before = error.duration();
                let seconds = 0_i64.saturating_sub_unsigned(before.as_secs());
                match before.subsec_nanos() {
                    0 => Self::new(seconds, 0),
                    // Seconds are rounded down, nanoseconds count upwards from there.
                    part => Self::new(seconds.saturating_sub(1), NANOSECONDS_PER_SECOND - part),
                }
            }
        }
    }
}

/// `seconds.nanoseconds`, as `stat -c %.9Y` prints it; not a calendar date.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds < 0 && self.nanoseconds > 0 {
            let seconds = (self.seconds + 1).unsigned_abs();
            let nanoseconds = NANOSECONDS_PER_SECOND.saturating_sub(self.nanoseconds);
            return write!(formatter, "-{seconds}.{nanoseconds:09}");
        }
        write!(formatter, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// The time of day, as people set it: it may jump.
    fn now(&self) -> Timestamp;
    /// The time of day, at most a tick of the kernel before [`now`](Self::now), and cheaper: to judge ages
    /// by, never to be kept.
    fn recently(&self) -> Timestamp {
        self.now()
    }
    /// Time since some fixed moment; it never goes back.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The system's clocks; monotonic time counts from here.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct FixedClock {
    time: Mutex<(Timestamp, Duration)>,
}

impl FixedClock {
    /// A clock that stands at `now`, monotonic time at zero.
    pub fn new(now: Timestamp) -> Self {
        Self { time: Mutex::new((now, Duration::ZERO)) }
    }

    /// Sets the time of day; monotonic time stays.
    pub fn set(&self, now: Timestamp) {
        self.time.lock().0 = now;
    }

    /// Lets both times pass.
    pub fn advance(&self, duration: Duration) {
        let mut time = self.time.lock();
        *time = (time.0.saturating_add(duration), time.1.saturating_add(duration));
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.time.lock().0
    }

    fn monotonic(&self) -> Duration {
        self.time.lock().1
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn moments_before_1970_and_past_2_to_the_32_are_exact() {
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(Timestamp::from(half_before), Timestamp::new(-1, 500_000_000));
        assert_eq!(Timestamp::from(half_before).to_string(), "-0.500000000");
        let whole_before = UNIX_EPOCH - Duration::from_secs(2);
        assert_eq!(Timestamp::from(whole_before), Timestamp::new(-2, 0));
        let late = UNIX_EPOCH + Duration::new(1 << 33, 7);
        assert_eq!(Timestamp::from(late), Timestamp::new(1 << 33, 7));
        assert_eq!(Timestamp::from(late).to_string(), "8589934592.000000007");
        assert!(Timestamp::from(half_before) < Timestamp::EPOCH);
    }

    #[test]
    fn adding_carries_and_saturates() {
        let before = Timestamp::new(-1, 999_999_999);
        assert_eq!(before.saturating_add(Duration::from_nanos(2)), Timestamp::new(0, 1));
        let end = Timestamp::new(i64::MAX, 0).saturating_add(Duration::from_secs(5));
        assert_eq!(end.seconds, i64::MAX);
    }

    #[test]
    fn a_fixed_clock_moves_only_when_told() {
        let clock = FixedClock::new(Timestamp::new(-5, 1));
        assert_eq!(clock.now(), Timestamp::new(-5, 1));
        clock.advance(Duration::from_secs(6));
        assert_eq!(clock.now(), Timestamp::new(1, 1));
        clock.set(Timestamp::EPOCH);
        assert_eq!((clock.now(), clock.monotonic()), (Timestamp::EPOCH, Duration::from_secs(6)));
    }

    #[test]
    fn the_system_clock_is_past_2020_and_does_not_go_back() {
        let clock = SystemClock::new();
        let first = clock.monotonic();
        assert!(clock.now().seconds > 1_577_836_800);
        assert!(clock.monotonic() >= first);
    }
}
