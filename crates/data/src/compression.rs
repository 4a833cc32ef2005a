//! How a file says that its data are to be compressed, and how the file system says that some may be.

use vlinder_codec::compress::Compression;
use vlinder_format::features::IncompatFeatures;
use vlinder_transaction::{Charge, Engine, Handle};

use crate::Result;
use crate::attribute_value::attribute_value;
use crate::compression_property::{COMPRESSION_NAME, CompressionProperty};
use crate::file_node::FileNode;
use crate::file_store::FileStore;

/// The `btrfs.compression` of a file or directory, from memory or its attribute.
///
/// # Errors
/// What reading met.
pub fn compression_property(store: &FileStore, node: &FileNode) -> Result<CompressionProperty> {
    if let Some(known) = node.state().compression {
        return Ok(known);
    }
    let value = attribute_value(store.engine(), node.tree(), node.number(), COMPRESSION_NAME)?;
    let read =
        value.and_then(|value| CompressionProperty::parse(&value)).unwrap_or(CompressionProperty::None);
    Ok(*node.state().compression.get_or_insert(read))
}

/// Notes in the superblock that data of an algorithm may be there (zlib needs no note), which are about to be
/// flushed.
///
/// # Errors
/// What beginning a transaction met.
pub(crate) fn require_feature(store: &FileStore, algorithm: Compression) -> Result<()> {
    if has_feature(store.engine(), algorithm) {
        return Ok(());
    }
    let handle = store.begin_flush(Charge::default())?;
    store.background().note_change();
    note_feature(store.engine(), &handle, algorithm);
    Ok(())
}

/// The feature that says that data of an algorithm may be there; zlib has none.
fn feature(algorithm: Compression) -> Option<IncompatFeatures> {
    match algorithm {
        Compression::Zlib => None,
        Compression::Lzo => Some(IncompatFeatures::COMPRESS_LZO),
        Compression::Zstd => Some(IncompatFeatures::COMPRESS_ZSTD),
    }
}

/// Whether the superblock says that data of an algorithm may be there.
pub fn has_feature(engine: &Engine, algorithm: Compression) -> bool {
    feature(algorithm).is_none_or(|feature| engine.superblock().incompat.has(feature))
}

/// Notes an algorithm in the superblock, within a transaction.
pub fn note_feature(engine: &Engine, _handle: &Handle<'_>, algorithm: Compression) {
    if let Some(feature) = feature(algorithm).filter(|_| !has_feature(engine, algorithm)) {
        engine.change_superblock(|superblock| superblock.incompat = superblock.incompat.with(feature));
    }
}
