//! The time of day with which Linux stamps inodes, so that what vlinder and the kernel stamp keeps its order.
//!
//! The kernel stamps with the time of its last tick, at most ten milliseconds ago, and since Linux 6.13 never
//! before the latest fine-grained time that it gave to a file of any file system (`current_time` in
//! fs/inode.c, `ktime_get_coarse_real_ts64_mg` in kernel/time/timekeeping.c). No clock that programs can read
//! has that floor. A file in memory has: its access time is set to the kernel's "now" and read back. Only the
//! access time is asked for, because asking for the others would raise the floor.

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, MemfdFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::time::{ClockId, clock_gettime};

use crate::clock::{Clock, SystemClock, Timestamp};

/// Of a kernel with 100 ticks a second, the fewest that are in use.
const LONGEST_TICK: Duration = Duration::from_millis(10);

/// What Linux's `current_time` gives.
#[derive(Debug)]
pub struct InodeClock {
    monotonic: SystemClock,
    /// The kernel's time when this clock was made.
    floor: Timestamp,
    /// A file in memory that is asked each time; none where no kernel stamps beside, or where it gives no
    /// such file.
    asked: Option<OwnedFd>,
}

impl InodeClock {
    /// For who changes an image alone: never before what the kernel stamped until now, and costs no system
    /// call.
    pub fn new() -> Self {
        Self { asked: None, ..Self::beside_the_kernel() }
    }

    /// For a mount, of which the kernel stamps files itself: exact at each moment, for two system calls.
    pub fn beside_the_kernel() -> Self {
        let asked = rustix::fs::memfd_create(c"vlinder-clock", MemfdFlags::CLOEXEC).ok();
        let floor = asked.as_ref().and_then(ask).unwrap_or_else(last_tick);
        Self { monotonic: SystemClock::new(), floor, asked }
    }
}

impl Default for InodeClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for InodeClock {
    fn now(&self) -> Timestamp {
        if let Some(now) = self.asked.as_ref().and_then(ask) {
            return now;
        }
        let tick = last_tick();
        // Ahead by more, and somebody has set the clock back: the kernel follows, and so does this clock.
        let is_floor = self.floor > tick && self.floor <= tick.saturating_add(LONGEST_TICK);
        if is_floor { self.floor } else { tick }
    }

    fn recently(&self) -> Timestamp {
        last_tick()
    }

    fn monotonic(&self) -> Duration {
        self.monotonic.monotonic()
    }
}

/// Has the kernel stamp a file in memory, and reads the stamp. Nothing where the kernel refuses.
fn ask(file: &OwnedFd) -> Option<Timestamp> {
    let kernels_now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: kernels_now, last_modification: untouched };
    rustix::fs::futimens(file, &times).ok()?;
    let shown = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::ATIME).ok()?;
    Some(Timestamp::new(shown.stx_atime.tv_sec, shown.stx_atime.tv_nsec))
}

/// The time of the kernel's last tick.
fn last_tick() -> Timestamp {
    let tick = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp::new(tick.tv_sec, u32::try_from(tick.tv_nsec).unwrap_or_default())
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags};

    use super::*;

    /// The change time of a file, read in a way that raises the kernel's floor.
    fn changed(file: &OwnedFd) -> Timestamp {
        rustix::fs::futimens(
            file,
            &Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            },
        )
        .unwrap();
        let shown = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::CTIME).unwrap();
        Timestamp::new(shown.stx_ctime.tv_sec, shown.stx_ctime.tv_nsec)
    }

    fn scratch_file() -> OwnedFd {
        rustix::fs::openat(CWD, "/dev/shm", OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap()
    }

    #[test]
    fn nothing_is_older_than_what_the_kernel_stamped_before() {
        let (clock, file) = (InodeClock::beside_the_kernel(), scratch_file());
        for _ in 0..10_000 {
            let before = clock.now();
            let stamped = changed(&file);
            assert!(before <= stamped && stamped <= clock.now());
        }
    }

    #[test]
    fn a_new_clock_is_not_behind_what_was_stamped_before_it() {
        let file = scratch_file();
        for _ in 0..1_000 {
            let stamped = changed(&file);
            assert!(stamped <= InodeClock::new().now());
        }
    }

    #[test]
    fn a_floor_that_is_far_ahead_is_none() {
        let far = last_tick().saturating_add(Duration::from_secs(1));
        let clock = InodeClock { floor: far, ..InodeClock::new() };
        assert!(clock.now() < far);
        let near = last_tick().saturating_add(LONGEST_TICK);
        let clock = InodeClock { floor: near, ..InodeClock::new() };
        assert!(clock.now() >= near);
    }
}
