//! The value of the property `btrfs.compression`, and the inode flags that go with it.

use vlinder_codec::compress::Compression;
use vlinder_format::inode::InodeFlags;

/// The attribute that names a file's compression.
pub const COMPRESSION_NAME: &[u8] = b"btrfs.compression";

/// The compression that a file's property names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionProperty {
    /// There is none: flags and mount options decide.
    None,
    /// New data are not compressed.
    Never,
    /// New data are compressed so.
    Algorithm(Compression),
}

impl CompressionProperty {
    /// Reads the property's value; none if Linux would refuse it. A level after a colon is allowed and not
    /// kept.
    pub fn parse(value: &[u8]) -> Option<Self> {
        if value.is_empty() {
            return Some(Self::None);
        }
        if value == b"no" || value == b"none" {
            return Some(Self::Never);
        }
        let found = Compression::ALL.into_iter().find(|kind| value.starts_with(kind.name().as_bytes()));
        found.map(Self::Algorithm)
    }

    /// An inode's flags with those that go with the property, as Linux has them.
    pub fn flags(self, flags: InodeFlags) -> InodeFlags {
        let flags = flags.without(InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS);
        match self {
            Self::None => flags,
            Self::Never => flags.with(InodeFlags::NOCOMPRESS),
            Self::Algorithm(_) => flags.with(InodeFlags::COMPRESS),
        }
    }
}
