//! Which bytes of an open disk a name means.

use std::ops::Range;

use vlinder_device::{Device, DeviceError};
use vlinder_format::superblock::SuperblockMirror;

use crate::error::PartitionErrorKind;
use crate::name::NamedPart;
use crate::partition::Partition;
use crate::table::{PartitionTable, TableRead, has_superblock};

/// Linux knows no smaller unit of a block device.
const SECTOR: u64 = 512;

/// A range of a disk, and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub range: Range<u64>,
    pub part: NamedPart,
}

/// Why nothing was chosen.
#[derive(Debug)]
pub(crate) enum ChoiceError {
    Device(DeviceError),
    Part(PartitionErrorKind),
}

impl From<DeviceError> for ChoiceError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<PartitionErrorKind> for ChoiceError {
    fn from(kind: PartitionErrorKind) -> Self {
        Self::Part(kind)
    }
}

/// The range that is meant; none for the whole.
///
/// Where no part is named, the whole is meant, unless a partition holds a Btrfs and the whole does not: a
/// superblock at byte 65,536 speaks for the whole, for it comes before every other one, and so do copies of a
/// superblock where neither has its first.
pub(crate) fn choose(device: &dyn Device, part: NamedPart) -> Result<Option<Chosen>, ChoiceError> {
    match part {
        NamedPart::Bytes { start, length_bytes } => bytes(device, start, length_bytes).map(Some),
        NamedPart::Partition(number) => partition(device, number).map(Some),
        NamedPart::Unsaid => unsaid(device),
    }
}

fn bytes(device: &dyn Device, start: u64, length_bytes: Option<u64>) -> Result<Chosen, ChoiceError> {
    let disk_bytes = device.length();
    let length = match length_bytes {
        Some(length) => length,
        None => {
            let rest = disk_bytes.saturating_sub(start);
            rest.saturating_sub(rest.checked_rem(SECTOR).unwrap_or(0))
        }
    };
    let outside = || PartitionErrorKind::OutsideOfDisk {
        start,
        length_bytes: length_bytes.unwrap_or(SECTOR),
        disk_bytes,
    };
    if length_bytes.is_none() && length == 0 {
        return Err(outside().into());
    }
    if !start.is_multiple_of(SECTOR) || !length.is_multiple_of(SECTOR) || length == 0 {
        return Err(PartitionErrorKind::OddRange { start, length_bytes: length }.into());
    }
    let end = start.checked_add(length).filter(|end| *end <= disk_bytes).ok_or_else(outside)?;
    Ok(Chosen { range: start..end, part: NamedPart::Bytes { start, length_bytes } })
}

fn partition(device: &dyn Device, number: u32) -> Result<Chosen, ChoiceError> {
    let table = match PartitionTable::read(device)? {
        TableRead::Absent => return Err(PartitionErrorKind::NoTable { number }.into()),
        TableRead::Damaged(why) => return Err(PartitionErrorKind::DamagedTable { why }.into()),
        TableRead::Sound(table) => table,
    };
    let found = table.partition(number).ok_or_else(|| {
        let table = table.to_string();
        PartitionErrorKind::NoSuchPartition { number, table }
    })?;
    if let Some(fault) = found.fault {
        let table = table.to_string();
        return Err(PartitionErrorKind::Unusable { number, fault, table }.into());
    }
    Ok(chosen(found))
}

fn unsaid(device: &dyn Device) -> Result<Option<Chosen>, ChoiceError> {
    let is_whole = |mirrors: &[SuperblockMirror]| has_superblock(device, 0, device.length(), mirrors);
    let [primary, others @ ..] = SuperblockMirror::ALL;
    if is_whole(&[primary]) {
        return Ok(None);
    }
    let table = match PartitionTable::read(device) {
        Ok(TableRead::Sound(table)) => table,
        Ok(TableRead::Damaged(why)) if !is_whole(&others) => {
            return Err(PartitionErrorKind::DamagedTable { why }.into());
        }
        // Reading the superblock will tell what can't be read.
        Ok(_) | Err(_) => return Ok(None),
    };
    let mut found = table.with_btrfs();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(Some(chosen(only))),
        (Some(first), Some(_)) => {
            let table = table.to_string();
            Err(PartitionErrorKind::SeveralBtrfs { first: first.number, table }.into())
        }
        (None, _) if is_whole(&others) => Ok(None),
        (None, _) => Err(PartitionErrorKind::NoBtrfs { table: table.to_string() }.into()),
    }
}

fn chosen(partition: &Partition) -> Chosen {
    Chosen { range: partition.start..partition.end(), part: NamedPart::Partition(partition.number) }
}
