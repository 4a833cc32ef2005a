//! The file extent item: a run of a file's bytes, or where they lie.

use super::compression_id::CompressionId;
use super::fault::FileExtentFault;
use super::raw::{ExtentHeader, ExtentLocation, INLINE_HEADER_SIZE, REGULAR_SIZE};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::types::{FileOffset, Generation, Logical, ObjectId};

/// The part of an extent on disk that a run of a file shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtentRange {
    /// Where the extent begins; 0 for a hole.
    pub address: Logical,
    /// Bytes of the extent on disk, as compressed; 0 for a hole.
    pub disk_bytes: u64,
    /// Where the run begins in the uncompressed extent, in bytes.
    pub offset_bytes: u64,
    /// Bytes of the run.
    pub file_bytes: u64,
}

impl ExtentRange {
    /// Whether the run is a hole: it reads as zeros and has no extent.
    #[must_use]
    pub const fn is_hole(&self) -> bool {
        self.address.0 == 0
    }
}

/// What a run of a file consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileExtentContent<'a> {
    /// The bytes lie in the item, compressed or not.
    Inline(&'a [u8]),
    /// The bytes lie on disk, or there is a hole.
    Regular(ExtentRange),
    /// Space on disk that was never written and reads as zeros.
    Preallocated(ExtentRange),
}

/// A run of a file's bytes. Inline data are borrowed from the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent<'a> {
    /// The transaction that made the extent.
    pub generation: Generation,
    /// Bytes of the whole extent, uncompressed; an upper bound where Linux split it.
    pub ram_bytes: u64,
    /// How it is compressed.
    pub compression: CompressionId,
    /// Always 0.
    pub encryption: u8,
    /// Always 0.
    pub other_encoding: u16,
    /// The bytes, or where they are.
    pub content: FileExtentContent<'a>,
}

/// The stored number of each kind of content.
const INLINE: u8 = 0;
const REGULAR: u8 = 1;
const PREALLOCATED: u8 = 2;

impl<'a> FileExtent<'a> {
    /// The key of the run at an offset in a file.
    #[must_use]
    pub const fn key(inode: ObjectId, offset: FileOffset) -> Key {
        Key::new(inode, ItemType::EXTENT_DATA, offset.0)
    }

    /// A regular, uncompressed extent of which all is shown.
    #[must_use]
    pub const fn whole(address: Logical, bytes: u64, generation: Generation) -> Self {
        let range = ExtentRange { address, disk_bytes: bytes, offset_bytes: 0, file_bytes: bytes };
        Self::plain(generation, bytes, FileExtentContent::Regular(range))
    }

    /// Preallocated space of which all is shown.
    #[must_use]
    pub const fn preallocated(address: Logical, bytes: u64, generation: Generation) -> Self {
        let range = ExtentRange { address, disk_bytes: bytes, offset_bytes: 0, file_bytes: bytes };
        Self::plain(generation, bytes, FileExtentContent::Preallocated(range))
    }

    /// A hole, as file systems without feature no_holes record it.
    #[must_use]
    pub const fn hole(bytes: u64, generation: Generation) -> Self {
        let range = ExtentRange { address: Logical(0), disk_bytes: 0, offset_bytes: 0, file_bytes: bytes };
        Self::plain(generation, bytes, FileExtentContent::Regular(range))
    }

    /// Uncompressed bytes in the item.
    #[must_use]
    pub fn inline(data: &'a [u8], generation: Generation) -> Self {
        Self::plain(generation, length_of(data), FileExtentContent::Inline(data))
    }

    const fn plain(generation: Generation, ram_bytes: u64, content: FileExtentContent<'a>) -> Self {
        Self {
            generation,
            ram_bytes,
            compression: CompressionId::NONE,
            encryption: 0,
            other_encoding: 0,
            content,
        }
    }

    /// Reads an extent from an item's data, without a copy.
    ///
    /// # Errors
    /// [`FileExtentFault::Header`], [`FileExtentFault::Size`] or [`FileExtentFault::Type`].
    pub fn decode(data: &'a [u8]) -> Result<Self, FileExtentFault> {
        let (header, rest) =
            ExtentHeader::split_from(data).ok_or(FileExtentFault::Header { found: data.len() })?;
        let content = match header.extent_type {
            INLINE => FileExtentContent::Inline(rest),
            REGULAR | PREALLOCATED => {
                let location =
                    ExtentLocation::read_whole(rest).ok_or(FileExtentFault::Size { found: data.len() })?;
                let range = ExtentRange {
                    address: location.disk_bytenr,
                    disk_bytes: location.disk_num_bytes,
                    offset_bytes: location.offset,
                    file_bytes: location.num_bytes,
                };
                if header.extent_type == REGULAR {
                    FileExtentContent::Regular(range)
                } else {
                    FileExtentContent::Preallocated(range)
                }
            }
            found => return Err(FileExtentFault::Type { found }),
        };
        Ok(Self {
            generation: header.generation,
            ram_bytes: header.ram_bytes,
            compression: header.compression,
            encryption: header.encryption,
            other_encoding: header.other_encoding,
            content,
        })
    }

    /// The item's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (extent_type, range) = match self.content {
            FileExtentContent::Inline(data) => {
                let mut item = Vec::with_capacity(INLINE_HEADER_SIZE.saturating_add(data.len()));
                item.extend_from_slice(&self.header(INLINE).to_array());
                item.extend_from_slice(data);
                return item;
            }
            FileExtentContent::Regular(range) => (REGULAR, range),
            FileExtentContent::Preallocated(range) => (PREALLOCATED, range),
        };
        let location = ExtentLocation {
            disk_bytenr: range.address,
            disk_num_bytes: range.disk_bytes,
            offset: range.offset_bytes,
            num_bytes: range.file_bytes,
        };
        let mut item = Vec::with_capacity(REGULAR_SIZE);
        item.extend_from_slice(&self.header(extent_type).to_array());
        item.extend_from_slice(&location.to_array());
        item
    }

    /// The range on disk, unless the extent is inline.
    #[must_use]
    pub const fn range(&self) -> Option<ExtentRange> {
        match self.content {
            FileExtentContent::Inline(_) => None,
            FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range) => Some(range),
        }
    }

    /// The same extent with another range; inline extents have none and stay.
    #[must_use]
    pub const fn with_range(self, range: ExtentRange) -> Self {
        let content = match self.content {
            FileExtentContent::Inline(_) => self.content,
            FileExtentContent::Regular(_) => FileExtentContent::Regular(range),
            FileExtentContent::Preallocated(_) => FileExtentContent::Preallocated(range),
        };
        Self { content, ..self }
    }

    /// Bytes of the file that the item speaks for. An inline extent's are not rounded up to a sector.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        match self.range() {
            Some(range) => range.file_bytes,
            None => self.ram_bytes,
        }
    }

    /// Whether the run reads as zeros and has no extent on disk.
    #[must_use]
    pub const fn is_hole(&self) -> bool {
        match self.content {
            FileExtentContent::Regular(range) => range.is_hole(),
            FileExtentContent::Inline(_) | FileExtentContent::Preallocated(_) => false,
        }
    }

    const fn header(&self, extent_type: u8) -> ExtentHeader {
        ExtentHeader {
            generation: self.generation,
            ram_bytes: self.ram_bytes,
            compression: self.compression,
            encryption: self.encryption,
            other_encoding: self.other_encoding,
            extent_type,
        }
    }
}

/// Bytes of inline data.
pub(super) fn length_of(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

/// The fields of a file extent.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    let Some(header) = layout.record::<ExtentHeader>() else { return };
    if header.extent_type == INLINE {
        layout.rest("ExtentHeader", "inline data");
    } else {
        layout.record::<ExtentLocation>();
    }
}
