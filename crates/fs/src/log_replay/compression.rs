//! Which compression a log brings: the superblock that names it is that of the commit before, so an algorithm
//! may be new.

use vlinder_codec::compress::Compression;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::{Key, directory};

use super::ReplayError;
use super::target::Target;
use crate::compression_property::{COMPRESSION_NAME, CompressionProperty};
use crate::data::note_feature;

impl Target<'_, '_> {
    /// Attributes take the place of what there is, one item at a time.
    pub(super) fn replay_attributes(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        let property =
            directory::find(data, COMPRESSION_NAME).map_err(|fault| self.log_damage(key, fault))?;
        let value = property.and_then(|property| CompressionProperty::parse(property.data));
        if let Some(CompressionProperty::Algorithm(algorithm)) = value {
            note_feature(self.engine, self.handle, algorithm);
        }
        self.put(key, data)
    }

    /// Notes the algorithm of an extent.
    pub(super) fn note_compression(&self, compression: CompressionId) {
        let algorithm = match compression {
            CompressionId::LZO => Compression::Lzo,
            CompressionId::ZSTD => Compression::Zstd,
            _ => return,
        };
        note_feature(self.engine, self.handle, algorithm);
    }
}
