//! What a disk is divided into.

use std::fmt;

use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceError};
use vlinder_format::superblock::{MAGIC, SuperblockMirror};

use crate::bytes::{read, u64_at};
use crate::gpt::{self, GuidRead};
use crate::mbr::SectorTable;
use crate::partition::{Partition, PartitionFault, RawPartition};

/// Partitions that a message names one by one; of further ones it tells the number.
const NAMED: usize = 16;

/// Which kind of table it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableFormat {
    /// A GUID partition table.
    Gpt {
        /// Bytes of a sector: 512 or 4096.
        sector_bytes: u64,
        /// It is the copy at the disk's end, since the first one is damaged.
        is_backup: bool,
    },
    /// An MBR.
    Mbr,
}

/// A disk's partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionTable {
    /// Which kind of table it is.
    pub format: TableFormat,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
    /// What is wrong with a part of it; partitions may be missing then.
    pub broken: Option<&'static str>,
}

/// What reading the partition table of a disk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableRead {
    /// It has none.
    Absent,
    /// It has one that can't be used, and why.
    Damaged(&'static str),
    /// It has this one.
    Sound(PartitionTable),
}

impl PartitionTable {
    /// Reads the table of a disk. At most a mebibyte is held, whatever lies there.
    ///
    /// As Linux does, an MBR is believed that has another entry than the one that protects a GPT; where there
    /// is no MBR at all, a GPT is believed without one.
    ///
    /// # Errors
    /// The device's.
    pub fn read(device: &dyn Device) -> Result<TableRead, DeviceError> {
        let sector_table = SectorTable::find(device)?;
        let is_protective = sector_table.as_ref().is_some_and(SectorTable::is_protective);
        let (format, raw, reserved, broken) = match sector_table {
            Some(table) if !is_protective => {
                let found = table.partitions(device)?;
                (TableFormat::Mbr, found.partitions, found.reserved, found.broken)
            }
            _ => match gpt::find(device)? {
                GuidRead::Sound(found) => {
                    let format =
                        TableFormat::Gpt { sector_bytes: found.sector_bytes, is_backup: found.is_backup };
                    (format, found.partitions, found.reserved, None)
                }
                GuidRead::Damaged(why) => return Ok(TableRead::Damaged(why)),
                GuidRead::Absent if is_protective => {
                    return Ok(TableRead::Damaged("its MBR says that there is one, and there is none"));
                }
                GuidRead::Absent => return Ok(TableRead::Absent),
            },
        };
        let mut partitions: Vec<Partition> =
            raw.iter().map(|raw| judged(raw, &reserved, device.length())).collect();
        find_overlaps(&mut partitions);
        find_filesystems(device, &mut partitions);
        Ok(TableRead::Sound(Self { format, partitions, broken }))
    }

    /// The partition with this number.
    #[must_use]
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.number == number)
    }

    /// Those that hold a Btrfs and can be used.
    pub(crate) fn with_btrfs(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|partition| partition.has_btrfs && partition.fault.is_none())
    }
}

fn judged(raw: &RawPartition, reserved: &[(u64, u64)], disk_bytes: u64) -> Partition {
    let is_in_table = reserved.iter().any(|(start, end)| raw.start < *end && *start < raw.end);
    let fault = if raw.end <= raw.start {
        Some(PartitionFault::Empty)
    } else if raw.kind.is_extended() {
        // Of GPTs none is, and the tables of logical partitions lie in it.
        Some(PartitionFault::Extended)
    } else if raw.end > disk_bytes {
        Some(PartitionFault::OutsideOfDisk { end: raw.end, disk_bytes })
    } else if is_in_table {
        Some(PartitionFault::InTable)
    } else {
        None
    };
    Partition {
        number: raw.number,
        start: raw.start,
        length_bytes: raw.end.saturating_sub(raw.start),
        kind: raw.kind,
        has_btrfs: false,
        fault,
    }
}

/// Marks partitions that have bytes in common with another one. (Extended ones hold others by nature.)
fn find_overlaps(partitions: &mut [Partition]) {
    let is_room = |partition: &Partition| {
        !matches!(partition.fault, Some(PartitionFault::Empty | PartitionFault::Extended))
    };
    let mut ordered: Vec<&mut Partition> = partitions.iter_mut().filter(|one| is_room(one)).collect();
    ordered.sort_by_key(|partition| partition.start);
    // The one that reaches furthest of those before, and its number.
    let mut furthest: Option<(u64, u32)> = None;
    for partition in &mut ordered {
        if let Some((end, number)) = furthest
            && partition.start < end
        {
            partition.fault.get_or_insert(PartitionFault::Overlaps { with: number });
        }
        if furthest.is_none_or(|(end, _)| partition.end() > end) {
            furthest = Some((partition.end(), partition.number));
        }
    }
    // The same from the other end, for those before.
    let mut nearest: Option<(u64, u32)> = None;
    for partition in ordered.iter_mut().rev() {
        if let Some((start, number)) = nearest
            && start < partition.end()
        {
            partition.fault.get_or_insert(PartitionFault::Overlaps { with: number });
        }
        nearest = Some((partition.start, partition.number));
    }
}

/// Marks partitions that hold a Btrfs: by the first copy of the superblock, and, where no partition has that,
/// by the others.
fn find_filesystems(device: &dyn Device, partitions: &mut [Partition]) {
    let [primary, others @ ..] = SuperblockMirror::ALL;
    for mirrors in [[primary].as_slice(), others.as_slice()] {
        for partition in partitions.iter_mut().filter(|partition| partition.fault.is_none()) {
            partition.has_btrfs = has_superblock(device, partition.start, partition.end(), mirrors);
        }
        if partitions.iter().any(|partition| partition.has_btrfs) {
            break;
        }
    }
}

/// Whether one of these superblock copies lies in a range of the device: its magic number, and its own place.
/// One that can't be read is none.
pub(crate) fn has_superblock(
    device: &dyn Device,
    start: u64,
    end: u64,
    mirrors: &[SuperblockMirror],
) -> bool {
    const OWN_PLACE: usize = 48;
    const MAGIC_PLACE: usize = 64;
    for mirror in mirrors {
        let Physical(offset) = mirror.offset();
        let Some(place) = start.checked_add(offset) else { continue };
        if place.checked_add(4096).is_none_or(|behind| behind > end) {
            continue;
        }
        let Ok(Some(head)) = read(device, place, 72) else { continue };
        if u64_at(&head, MAGIC_PLACE) == MAGIC && u64_at(&head, OWN_PLACE) == offset {
            return true;
        }
    }
    false
}

impl fmt::Display for PartitionTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            TableFormat::Gpt { sector_bytes, is_backup } => {
                formatter.write_str("a GPT")?;
                if sector_bytes != 512 {
                    write!(formatter, " (sectors of {sector_bytes} bytes)")?;
                }
                if is_backup {
                    formatter.write_str(" (the copy at its end: the first one is damaged)")?;
                }
            }
            TableFormat::Mbr => formatter.write_str("an MBR")?,
        }
        match self.partitions.len() {
            0 => formatter.write_str(" without partitions")?,
            1 => formatter.write_str(" with 1 partition")?,
            count => write!(formatter, " with {count} partitions")?,
        }
        for (index, partition) in self.partitions.iter().take(NAMED).enumerate() {
            formatter.write_str(if index == 0 { ": " } else { "; " })?;
            partition.fmt(formatter)?;
        }
        match self.partitions.len().checked_sub(NAMED) {
            Some(more) if more > 0 => write!(formatter, "; and {more} more")?,
            _ => {}
        }
        match self.broken {
            Some(broken) => write!(formatter, " ({broken})"),
            None => Ok(()),
        }
    }
}
