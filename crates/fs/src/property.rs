//! Properties that Btrfs keeps as extended attributes: `btrfs.compression`.

use vlinder_codec::compress::Compression;
use vlinder_format::features::IncompatFeatures;
use vlinder_transaction::{Engine, Handle};

use crate::compression_property::CompressionProperty;
use crate::inode::Inode;
use crate::{Filesystem, Result};

/// The attribute that names a file's compression.
pub(crate) const COMPRESSION_NAME: &[u8] = b"btrfs.compression";

impl Filesystem {
    /// The `btrfs.compression` of a file or directory, from memory or its attribute.
    ///
    /// # Errors
    /// What reading met.
    pub fn compression_property(&self, inode: &Inode) -> Result<CompressionProperty> {
        if let Some(known) = inode.state.lock().compression {
            return Ok(known);
        }
        let value = self.read_attribute(inode, COMPRESSION_NAME)?;
        let read =
            value.and_then(|value| CompressionProperty::parse(&value)).unwrap_or(CompressionProperty::None);
        Ok(*inode.state.lock().compression.get_or_insert(read))
    }

    /// Notes in the superblock that data of an algorithm may be there (zlib needs no note).
    ///
    /// # Errors
    /// What beginning a transaction met.
    pub fn require_compression_feature(&self, algorithm: Compression) -> Result<()> {
        if has_feature(self.engine(), algorithm) {
            return Ok(());
        }
        let handle = self.begin(0)?;
        require_feature(self.engine(), &handle, algorithm);
        Ok(())
    }
}

/// The feature that says that data of an algorithm may be there; zlib has none.
fn feature(algorithm: Compression) -> Option<IncompatFeatures> {
    match algorithm {
        Compression::Zlib => None,
        Compression::Lzo => Some(IncompatFeatures::COMPRESS_LZO),
        Compression::Zstd => Some(IncompatFeatures::COMPRESS_ZSTD),
    }
}

fn has_feature(engine: &Engine, algorithm: Compression) -> bool {
    feature(algorithm).is_none_or(|feature| engine.superblock().incompat.has(feature))
}

/// Notes an algorithm in the superblock, within a transaction.
pub(crate) fn require_feature(engine: &Engine, _handle: &Handle<'_>, algorithm: Compression) {
    if let Some(feature) = feature(algorithm).filter(|_| !has_feature(engine, algorithm)) {
        engine.change_superblock(|superblock| superblock.incompat = superblock.incompat.with(feature));
    }
}
