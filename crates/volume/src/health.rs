//! Error counters of each device: what DEV_STATS keeps.

use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_format::device_statistics::DeviceStatistics;

/// What went wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthEvent {
    /// A write failed.
    Write,
    /// A read failed.
    Read,
    /// A flush failed.
    Flush,
    /// A block or sector was read whose content is not what belongs there.
    Corruption,
    /// A block of another generation than expected was read.
    Generation,
}

/// What was healed on a device and by it since it was opened: of every read that met a bad copy and found a
/// good one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// Copies on this device that were not good.
    pub healed: u64,
    /// Of these, those that were rewritten.
    pub rewritten: u64,
    /// Reads in which this device's bytes stood in for a bad copy: as another copy, or as a stripe that it
    /// was worked out of.
    pub stood_in: u64,
}

/// The counters of one device.
#[derive(Debug, Default)]
pub(crate) struct Health {
    healed: AtomicU64,
    rewritten: AtomicU64,
    stood_in: AtomicU64,
    write: AtomicU64,
    read: AtomicU64,
    flush: AtomicU64,
    corruption: AtomicU64,
    generation: AtomicU64,
    changed: AtomicBool,
}

impl Health {
    pub(crate) fn record(&self, event: HealthEvent) {
        let counter = match event {
            HealthEvent::Write => &self.write,
            HealthEvent::Read => &self.read,
            HealthEvent::Flush => &self.flush,
            HealthEvent::Corruption => &self.corruption,
            HealthEvent::Generation => &self.generation,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.changed.store(true, Ordering::Release);
    }

    pub(crate) fn statistics(&self) -> DeviceStatistics {
        DeviceStatistics {
            write_errors: self.write.load(Ordering::Relaxed),
            read_errors: self.read.load(Ordering::Relaxed),
            flush_errors: self.flush.load(Ordering::Relaxed),
            corruption_errors: self.corruption.load(Ordering::Relaxed),
            generation_errors: self.generation.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn count_healed(&self, was_rewritten: bool) {
        self.healed.fetch_add(1, Ordering::Relaxed);
        self.rewritten.fetch_add(u64::from(was_rewritten), Ordering::Relaxed);
    }

    pub(crate) fn count_stood_in(&self) {
        self.stood_in.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn healing(&self) -> Healing {
        Healing {
            healed: self.healed.load(Ordering::Relaxed),
            rewritten: self.rewritten.load(Ordering::Relaxed),
            stood_in: self.stood_in.load(Ordering::Relaxed),
        }
    }

    /// Adds what was counted before this opening.
    pub(crate) fn load(&self, stored: &DeviceStatistics) {
        self.write.fetch_add(stored.write_errors, Ordering::Relaxed);
        self.read.fetch_add(stored.read_errors, Ordering::Relaxed);
        self.flush.fetch_add(stored.flush_errors, Ordering::Relaxed);
        self.corruption.fetch_add(stored.corruption_errors, Ordering::Relaxed);
        self.generation.fetch_add(stored.generation_errors, Ordering::Relaxed);
    }

    /// Whether anything was counted since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }
}
