//! Properties that Btrfs keeps as extended attributes: `btrfs.compression`.

use vlinder_codec::compress::Compression;
use vlinder_data::{FileStore, begin, has_feature, note_feature};
use vlinder_transaction::Reservation;

use crate::Result;

/// Notes in the superblock that data of an algorithm may be there (zlib needs no note).
///
/// # Errors
/// What beginning a transaction met.
pub(crate) fn require_compression_feature(store: &FileStore, algorithm: Compression) -> Result<()> {
    if has_feature(store.engine(), algorithm) {
        return Ok(());
    }
    let handle = begin(store, Reservation::items(0))?;
    note_feature(store.engine(), &handle, algorithm);
    Ok(())
}
