//! Parts of a file whose bytes are on the devices, or in an item to come, while no item refers to them.

use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_transaction::{DataExtent, Engine, Reservation};

/// A piece of a file whose bytes are on the devices, or in the item to come.
#[derive(Debug)]
pub(crate) struct WrittenExtent {
    pub(crate) job: usize,
    pub(crate) range: ByteRange,
    pub(crate) place: Place,
    /// Where checksums have to be entered, and which.
    pub(crate) checksums: Option<(Logical, Vec<u8>)>,
}

impl WrittenExtent {
    /// Bytes that go into the file's item.
    pub(crate) fn inline_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline { bytes, .. } => bytes.len() as u64,
            Place::New { .. } | Place::Present => 0,
        }
    }

    /// Whether it was written to space that the file had.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self.place, Place::Present)
    }

    /// Bytes of its checksums.
    pub(crate) fn checksum_bytes(&self) -> u64 {
        self.checksums.as_ref().map_or(0, |(_, checksums)| checksums.len() as u64)
    }

    /// Bytes of its new extent; 0 if it has none.
    pub(crate) fn new_bytes(&self) -> u64 {
        match self.place {
            Place::New { extent, .. } => extent.length,
            Place::Inline { .. } | Place::Present => 0,
        }
    }
}

/// Where bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the item.
    Inline { bytes: Vec<u8>, compression: CompressionId, ram_bytes: u64 },
    /// In a new extent.
    New { extent: DataExtent, compression: CompressionId },
    /// Where the file had space already.
    Present,
}

/// Gives back the space of pieces that no item refers to.
pub(crate) fn release(engine: &Engine, stored: &[WrittenExtent]) {
    let taken: Vec<DataExtent> = stored
        .iter()
        .filter_map(|stored| match stored.place {
            Place::New { extent, .. } => Some(extent),
            Place::Inline { .. } | Place::Present => None,
        })
        .collect();
    if taken.is_empty() {
        return;
    }
    engine.reservations().displace_data(taken.iter().map(|extent| extent.length).sum());
    match engine.begin(Reservation::accepted(0)) {
        Ok(mut handle) => taken.into_iter().for_each(|extent| handle.release_data(extent)),
        // The file system is read-only then; the space is free again when it is opened the next time.
        Err(error) => tracing::debug!(%error, "space of data that could not be written stays taken"),
    }
}
