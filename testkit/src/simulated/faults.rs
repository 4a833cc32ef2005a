//! What can go wrong, when, and how often.

use std::ops::Range;
use std::time::Duration;

use vlinder_base::units::Physical;
use vlinder_device::{DeviceErrorKind, Operation};

use super::sector::SECTOR_BYTES;

/// A fault of a range of sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectorFault {
    /// Reads fail with EIO.
    ReadError,
    /// Reads of the range's first sector see this bit of this byte (below 512) flipped.
    FlippedBit {
        /// Byte in the sector.
        byte: u16,
        /// Bit in the byte, 0 to 7.
        bit: u8,
    },
    /// Writes that touch the range are acknowledged and lost.
    LostWrites,
    /// Writes that touch the range are acknowledged and go to this place instead.
    MisplacedWrites {
        /// Where they go.
        to: Physical,
    },
    /// Reads that touch the range bring what lies at this place.
    MisplacedReads {
        /// Whence they read.
        from: Physical,
    },
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// For the first request that meets it.
    Once,
    /// Until a write covers any of its sectors, as the weak spot of a disk that a rewrite heals. For failing
    /// operations the same as [`Repeat::Sticky`].
    UntilWritten,
    /// For ever.
    Sticky,
}

/// How much virtual time operations take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// Each read.
    pub read: Duration,
    /// Each cached write.
    pub write: Duration,
    /// Each durable write.
    pub durable_write: Duration,
    /// Each flush.
    pub flush: Duration,
    /// Each discard.
    pub discard: Duration,
    /// Each MiB read or written, on top.
    pub per_mebibyte: Duration,
}

impl Delay {
    pub(super) fn transfer(&self, length_bytes: u64) -> Duration {
        Duration::from_nanos((self.per_mebibyte.as_nanos() * u128::from(length_bytes) / (1 << 20)) as u64)
    }
}

/// What the faults make of a write.
pub(super) enum WriteFate {
    Stored,
    Lost,
    Misplaced(Physical),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    sectors: Vec<Injection>,
    failures: Vec<InjectedFailure>,
    /// Reads, writes, flushes, discards so far.
    counts: [u64; 4],
}

#[derive(Debug, Clone)]
struct Injection {
    /// Bytes, whole sectors.
    range: Range<u64>,
    fault: SectorFault,
    repeat: Repeat,
}

#[derive(Debug, Clone)]
struct InjectedFailure {
    operation: Option<Operation>,
    /// How many more such operations succeed first.
    countdown: u64,
    repeat: Repeat,
    kind: DeviceErrorKind,
}

fn position(operation: Operation) -> Option<usize> {
    match operation {
        Operation::Read => Some(0),
        Operation::Write => Some(1),
        Operation::Flush => Some(2),
        Operation::Discard => Some(3),
        Operation::Open | Operation::Resize => None,
    }
}

impl Injection {
    fn meets(&self, offset: Physical, length_bytes: u64) -> bool {
        offset.0 < self.range.end && self.range.start < offset.0 + length_bytes
    }
}

impl Faults {
    pub(super) fn inject(&mut self, offset: Physical, length_bytes: u64, fault: SectorFault, repeat: Repeat) {
        let start = offset.0 / SECTOR_BYTES * SECTOR_BYTES;
        let end = (offset.0 + length_bytes).next_multiple_of(SECTOR_BYTES);
        self.sectors.push(Injection { range: start..end, fault, repeat });
    }

    pub(super) fn fail_at(
        &mut self,
        operation: Option<Operation>,
        number: u64,
        repeat: Repeat,
        kind: DeviceErrorKind,
    ) {
        self.failures.push(InjectedFailure { operation, countdown: number, repeat, kind });
    }

    pub(super) fn clear(&mut self) {
        self.sectors.clear();
        self.failures.clear();
    }

    pub(super) fn count(&self, operation: Operation) -> u64 {
        position(operation).map_or(0, |position| self.counts[position])
    }

    /// Counts an operation, and fails it if its turn has come.
    pub(super) fn next(&mut self, operation: Operation) -> Result<(), DeviceErrorKind> {
        if let Some(position) = position(operation) {
            self.counts[position] += 1;
        }
        let mut result = Ok(());
        self.failures.retain_mut(|failure| {
            if failure.operation.is_some_and(|wanted| wanted != operation) {
                return true;
            }
            if failure.countdown > 0 {
                failure.countdown -= 1;
                return true;
            }
            result = Err(failure.kind.clone());
            failure.repeat != Repeat::Once
        });
        result
    }

    /// Whence a read really comes.
    pub(super) fn misplaced_read(&mut self, offset: Physical, length_bytes: u64) -> Option<Physical> {
        self.take(offset, length_bytes, |fault| match fault {
            SectorFault::MisplacedReads { from } => Some(from),
            _ => None,
        })
    }

    /// Damages what was read, or fails it.
    pub(super) fn on_read(&mut self, offset: Physical, buffer: &mut [u8]) -> Result<(), DeviceErrorKind> {
        let length_bytes = buffer.len() as u64;
        let failed = self.take(offset, length_bytes, |fault| (fault == SectorFault::ReadError).then_some(()));
        if failed.is_some() {
            return Err(DeviceErrorKind::Io { errno: rustix::io::Errno::IO.raw_os_error() });
        }
        self.sectors.retain(|injection| {
            let SectorFault::FlippedBit { byte, bit } = injection.fault else { return true };
            let place = (injection.range.start + u64::from(byte)).checked_sub(offset.0);
            match place.and_then(|place| buffer.get_mut(place as usize)) {
                Some(byte) => {
                    *byte ^= 1 << bit;
                    injection.repeat != Repeat::Once
                }
                None => true,
            }
        });
        Ok(())
    }

    /// Decides where a write goes, and heals what a write heals.
    pub(super) fn on_write(&mut self, offset: Physical, length_bytes: u64) -> WriteFate {
        let fate = self.take(offset, length_bytes, |fault| match fault {
            SectorFault::LostWrites => Some(WriteFate::Lost),
            SectorFault::MisplacedWrites { to } => Some(WriteFate::Misplaced(to)),
            _ => None,
        });
        let fate = fate.unwrap_or(WriteFate::Stored);
        if matches!(fate, WriteFate::Stored) {
            self.sectors.retain(|injection| {
                injection.repeat != Repeat::UntilWritten || !injection.meets(offset, length_bytes)
            });
        }
        fate
    }

    /// The first fault of the wanted sort that the range meets; used up if it was for one request.
    fn take<T>(
        &mut self,
        offset: Physical,
        length_bytes: u64,
        wanted: impl Fn(SectorFault) -> Option<T>,
    ) -> Option<T> {
        let found = self.sectors.iter().enumerate().find_map(|(number, injection)| {
            let found = wanted(injection.fault).filter(|_| injection.meets(offset, length_bytes));
            found.map(|found| (number, found))
        });
        let (number, found) = found?;
        let injection = &self.sectors[number];
        // A lost or misplaced write can't heal its own fault: "until written" means that one write.
        let is_write =
            matches!(injection.fault, SectorFault::LostWrites | SectorFault::MisplacedWrites { .. });
        if injection.repeat == Repeat::Once || (is_write && injection.repeat == Repeat::UntilWritten) {
            self.sectors.remove(number);
        }
        Some(found)
    }
}
