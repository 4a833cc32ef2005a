//! Times of files: the system's type here, seconds and nanoseconds below.

use std::time::{Duration, SystemTime};

use vlinder_fs::Timestamp;

/// A time that the system's type can't hold becomes the epoch.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let whole = whole.unwrap_or(SystemTime::UNIX_EPOCH);
    whole.checked_add(Duration::from_nanos(time.nanoseconds.into())).unwrap_or(whole)
}

/// Seconds are counted down before the epoch, nanoseconds always up.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: seconds(after), nanoseconds: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => Timestamp { seconds: -seconds(before), nanoseconds: 0 },
                part => Timestamp { seconds: -seconds(before) - 1, nanoseconds: 1_000_000_000 - part },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_on_both_sides_of_the_epoch_come_back() {
        for (seconds, nanoseconds) in [(0, 0), (0, 1), (-1, 0), (-1, 999_999_999), (-5, 3), (1 << 33, 7)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
