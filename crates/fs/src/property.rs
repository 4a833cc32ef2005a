//! Properties that Btrfs keeps as extended attributes: `btrfs.compression`.

use vlinder_codec::compress::Compression;

use crate::compression_property::CompressionProperty;
use crate::data::begin;
use crate::data::{compression_property, has_feature, note_feature};
use crate::inode::Inode;
use crate::{Filesystem, Result};
use vlinder_transaction::Reservation;

impl Filesystem {
    /// The `btrfs.compression` of a file or directory, from memory or its attribute.
    ///
    /// # Errors
    /// What reading met.
    pub fn compression_property(&self, inode: &Inode) -> Result<CompressionProperty> {
        compression_property(self.store(), inode.node())
    }

    /// Notes in the superblock that data of an algorithm may be there (zlib needs no note).
    ///
    /// # Errors
    /// What beginning a transaction met.
    pub fn require_compression_feature(&self, algorithm: Compression) -> Result<()> {
        if has_feature(self.engine(), algorithm) {
            return Ok(());
        }
        let handle = begin(self.store(), Reservation::items(0))?;
        note_feature(self.engine(), &handle, algorithm);
        Ok(())
    }
}
