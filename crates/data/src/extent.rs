//! One EXTENT_DATA item, owned: a run of a file and where its bytes lie.

use vlinder_base::units::align_up;
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::{
    CompressionId, ExtentRange, FileExtent, FileExtentContent, FileExtentFault,
};
use vlinder_format::{Generation, Logical};

/// An extent on disk as a whole, which references count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredExtent {
    /// Where it begins.
    pub address: Logical,
    /// Its bytes on disk.
    pub bytes: u64,
}

/// What a run consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The bytes lie in the item, compressed or not.
    Inline(Vec<u8>),
    /// The bytes lie on disk; a hole where the address is 0.
    Regular(ExtentRange),
    /// Space on disk that reads as zeros.
    Preallocated(ExtentRange),
}

/// An EXTENT_DATA item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where the run begins in the file.
    pub offset: u64,
    /// The transaction that made the extent.
    pub generation: Generation,
    /// Bytes of the whole extent, uncompressed.
    pub ram_bytes: u64,
    /// How it is compressed.
    pub compression: CompressionId,
    /// What it consists of.
    pub content: Content,
    encryption: u8,
    other_encoding: u16,
}

impl Extent {
    /// Reads the item of a key's offset.
    ///
    /// # Errors
    /// What [`FileExtent::decode`] refuses, and a run that does not lie inside of its extent.
    pub fn decode(offset: u64, data: &[u8]) -> Result<Self, FileExtentFault> {
        let item = FileExtent::decode(data)?;
        let content = match item.content {
            FileExtentContent::Inline(bytes) => Content::Inline(bytes.to_vec()),
            FileExtentContent::Regular(range) => Content::Regular(range),
            FileExtentContent::Preallocated(range) => Content::Preallocated(range),
        };
        let extent = Self::of(offset, &item, content);
        extent.check()?;
        Ok(extent)
    }

    /// A new item as the format's constructors make it, at an offset.
    pub(crate) fn new(offset: u64, item: &FileExtent<'_>) -> Self {
        let content = match item.content {
            FileExtentContent::Inline(bytes) => Content::Inline(bytes.to_vec()),
            FileExtentContent::Regular(range) => Content::Regular(range),
            FileExtentContent::Preallocated(range) => Content::Preallocated(range),
        };
        Self::of(offset, item, content)
    }

    fn of(offset: u64, item: &FileExtent<'_>, content: Content) -> Self {
        Self {
            offset,
            generation: item.generation,
            ram_bytes: item.ram_bytes,
            compression: item.compression,
            content,
            encryption: item.encryption,
            other_encoding: item.other_encoding,
        }
    }

    /// A hole, as file systems without feature no_holes record it.
    pub(crate) fn hole(range: ByteRange, generation: Generation) -> Self {
        Self::new(range.start(), &FileExtent::hole(range.length_bytes(), generation))
    }

    /// A run that ends past the last offset, or reaches past the extent it is part of, is damage that no loop
    /// below may stumble over. (An uncompressed extent's uncompressed length is no bound: Linux let it
    /// differ.)
    fn check(&self) -> Result<(), FileExtentFault> {
        let Some(range) = self.range() else { return Ok(()) };
        if self.offset.checked_add(range.file_bytes).is_none() || range.file_bytes == 0 {
            return Err(FileExtentFault::EndOfFile { offset: self.offset, bytes: range.file_bytes });
        }
        let whole = if self.compression == CompressionId::NONE { range.disk_bytes } else { self.ram_bytes };
        let inside = range.offset_bytes.checked_add(range.file_bytes).is_some_and(|end| end <= whole);
        if range.is_hole() || (inside && range.address.checked_add(range.disk_bytes).is_some()) {
            return Ok(());
        }
        Err(FileExtentFault::EndOfExtent {
            address: range.address,
            disk_bytes: range.disk_bytes,
            offset_bytes: range.offset_bytes,
            file_bytes: range.file_bytes,
        })
    }

    /// The item's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let content = match &self.content {
            Content::Inline(bytes) => FileExtentContent::Inline(bytes),
            Content::Regular(range) => FileExtentContent::Regular(*range),
            Content::Preallocated(range) => FileExtentContent::Preallocated(*range),
        };
        let item = FileExtent {
            generation: self.generation,
            ram_bytes: self.ram_bytes,
            compression: self.compression,
            encryption: self.encryption,
            other_encoding: self.other_encoding,
            content,
        };
        item.encode()
    }

    /// The range on disk, unless the extent is inline.
    pub fn range(&self) -> Option<&ExtentRange> {
        match &self.content {
            Content::Inline(_) => None,
            Content::Regular(range) | Content::Preallocated(range) => Some(range),
        }
    }

    /// The bytes of the file that the item speaks for; an inline extent's up to the end of their sector.
    pub fn file_range(&self, sector_size: u64) -> ByteRange {
        let length = match self.range() {
            Some(range) => range.file_bytes,
            None => align_up(self.ram_bytes, sector_size).unwrap_or(self.ram_bytes),
        };
        ByteRange::with_length(self.offset, length).unwrap_or_default()
    }

    /// What an inode's allocated bytes count for it.
    pub fn counted_bytes(&self) -> u64 {
        match self.range() {
            None => self.ram_bytes,
            Some(range) if range.is_hole() => 0,
            Some(range) => range.file_bytes,
        }
    }

    /// Whether the run is a hole that has an item.
    pub fn is_hole(&self) -> bool {
        matches!(&self.content, Content::Regular(range) if range.is_hole())
    }

    /// Whether the run is preallocated.
    pub fn is_preallocated(&self) -> bool {
        matches!(self.content, Content::Preallocated(_))
    }

    /// The extent on disk that a reference is held for, and the offset that names the reference: the file
    /// offset that the extent's first byte would have. It can lie before the file's start and then wraps.
    pub fn reference(&self) -> Option<(StoredExtent, u64)> {
        let range = self.range().filter(|range| !range.is_hole())?;
        let stored = StoredExtent { address: range.address, bytes: range.disk_bytes };
        Some((stored, self.offset.wrapping_sub(range.offset_bytes)))
    }

    /// Whether both runs show the same bytes wherever both are: parts of one extent, at one place of the
    /// file, or holes.
    pub(crate) fn shows_the_same(&self, other: &Self) -> bool {
        if self.range().is_none() || other.range().is_none() {
            return false;
        }
        self.is_preallocated() == other.is_preallocated()
            && self.is_hole() == other.is_hole()
            && self.compression == other.compression
            && self.reference() == other.reference()
    }

    /// The part of the run that lies in a range, which it must overlap. None for an inline extent, which has
    /// no parts.
    pub fn part(&self, range: ByteRange) -> Option<Self> {
        let whole = self.range()?;
        let part = ByteRange::with_length(self.offset, whole.file_bytes)?.intersection(range)?;
        let skipped = part.start() - self.offset;
        let offset_bytes = if whole.is_hole() { 0 } else { whole.offset_bytes + skipped };
        let cut = ExtentRange { offset_bytes, file_bytes: part.length_bytes(), ..*whole };
        let mut extent = self.clone();
        extent.offset = part.start();
        extent.content = match self.content {
            Content::Preallocated(_) => Content::Preallocated(cut),
            _ => Content::Regular(cut),
        };
        if whole.is_hole() {
            extent.ram_bytes = cut.file_bytes;
        }
        Some(extent)
    }

    /// Both runs as one, if the other goes on where this one ends, in the file and in the same extent (or
    /// both are holes).
    pub(crate) fn joined(&self, next: &Self) -> Option<Self> {
        let (one, other) = (self.range()?, next.range()?);
        let same_kind =
            self.is_preallocated() == next.is_preallocated() && self.compression == next.compression;
        let goes_on = self.offset.checked_add(one.file_bytes) == Some(next.offset);
        let both_holes = self.is_hole() && next.is_hole();
        let same_extent = (one.address, one.disk_bytes) == (other.address, other.disk_bytes)
            && one.offset_bytes.checked_add(one.file_bytes) == Some(other.offset_bytes)
            && self.ram_bytes == next.ram_bytes;
        if !same_kind
            || !goes_on
            || self.encryption_of() != next.encryption_of()
            || !(both_holes || same_extent)
        {
            return None;
        }
        let file_bytes = one.file_bytes.checked_add(other.file_bytes)?;
        let range = ExtentRange { file_bytes, ..*one };
        let mut whole = self.clone();
        whole.generation = self.generation.max(next.generation);
        whole.content = match self.content {
            Content::Preallocated(_) => Content::Preallocated(range),
            _ => Content::Regular(range),
        };
        if both_holes {
            whole.ram_bytes = file_bytes;
        }
        Some(whole)
    }

    /// The same run at another offset in a file.
    pub(crate) fn moved_to(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    fn encryption_of(&self) -> (u8, u16) {
        (self.encryption, self.other_encoding)
    }

    /// A preallocated run that has been written in place.
    pub(crate) fn written(mut self, generation: Generation) -> Self {
        if let Content::Preallocated(range) = self.content {
            self.content = Content::Regular(range);
            self.generation = generation;
        }
        self
    }
}
