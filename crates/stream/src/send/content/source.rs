//! The bytes of extents.

use vlinder_codec::compress::{Compression, decompress};
use vlinder_data::{Content, Extent};
use vlinder_extent_state::ByteRange;
use vlinder_forest::ChecksumLookup;
use vlinder_format::Logical;
use vlinder_format::file_extent::{CompressionId, ExtentRange};
use vlinder_volume::{ReadRequest, Volume};

use crate::send::SendError;

/// No compressed extent has more bytes, on disk or decompressed; what claims more is damaged.
const MAX_COMPRESSED_BYTES: u64 = 128 << 10;

/// Where the bytes of files are read, each sector compared with its checksum.
pub struct ContentSource<'a> {
    /// The devices.
    pub volume: &'a Volume,
    /// The checksums of the state that is sent.
    pub checksums: ChecksumLookup<'a>,
    /// Bytes of a sector.
    pub sector_bytes: u32,
}

impl ContentSource<'_> {
    /// The bytes of a file in a range, which lies in the extent's. What the extent does not have is zeros. A
    /// file without checksums is read unverified.
    ///
    /// # Errors
    /// No copy has the bytes; they can't be decompressed.
    pub(super) fn read(
        &self,
        extent: &Extent,
        range: ByteRange,
        has_checksums: bool,
    ) -> Result<Vec<u8>, SendError> {
        let skip = range.start().saturating_sub(extent.offset);
        match &extent.content {
            Content::Preallocated(_) => Ok(vec![0; to_length(range.length_bytes())]),
            Content::Inline(stored) if extent.compression == CompressionId::NONE => {
                Ok(part(stored, skip, range.length_bytes()))
            }
            Content::Inline(stored) => {
                Ok(part(&self.decompressed(extent, stored)?, skip, range.length_bytes()))
            }
            Content::Regular(on_disk) if on_disk.is_hole() => Ok(vec![0; to_length(range.length_bytes())]),
            Content::Regular(on_disk) if extent.compression == CompressionId::NONE => {
                let start = on_disk.address.0.saturating_add(on_disk.offset_bytes).saturating_add(skip);
                self.read_plain(Logical(start), range.length_bytes(), has_checksums)
            }
            Content::Regular(on_disk) => {
                let stored = self.read_stored(on_disk, has_checksums)?;
                let skip = on_disk.offset_bytes.saturating_add(skip);
                Ok(part(&self.decompressed(extent, &stored)?, skip, range.length_bytes()))
            }
        }
    }

    /// A compressed extent as it lies on disk.
    fn read_stored(&self, on_disk: &ExtentRange, has_checksums: bool) -> Result<Vec<u8>, SendError> {
        if on_disk.disk_bytes > MAX_COMPRESSED_BYTES {
            return Err(SendError::CompressedTooLong { start: on_disk.address, bytes: on_disk.disk_bytes });
        }
        self.read_plain(on_disk.address, on_disk.disk_bytes, has_checksums)
    }

    /// Bytes from an address that begins a sector on. Whole sectors are read, for their checksums.
    fn read_plain(&self, start: Logical, length: u64, has_checksums: bool) -> Result<Vec<u8>, SendError> {
        let whole = length.next_multiple_of(u64::from(self.sector_bytes));
        let request = ReadRequest { logical: start, length: to_length(whole) };
        let expected = match has_checksums {
            true => Some(self.checksums.expected(start, whole)?.map_err(SendError::MissingChecksum)?),
            false => None,
        };
        let mut is_good =
            |sector: usize, bytes: &[u8]| expected.as_ref().is_none_or(|all| all.is_good(sector, bytes));
        let mut bytes = self.volume.read_data(request, &mut is_good)?.value;
        bytes.truncate(to_length(length));
        Ok(bytes)
    }

    fn decompressed(&self, extent: &Extent, stored: &[u8]) -> Result<Vec<u8>, SendError> {
        let unknown = SendError::UnknownCompression { number: extent.compression.0 };
        let compression = Compression::from_disk(extent.compression.0).ok_or(unknown)?;
        let mut bytes = vec![0; to_length(extent.ram_bytes.min(MAX_COMPRESSED_BYTES))];
        decompress(compression, stored, &mut bytes, self.sector_bytes as usize)?;
        Ok(bytes)
    }
}

/// A part of some bytes, with zeros behind their end.
fn part(bytes: &[u8], skip: u64, length: u64) -> Vec<u8> {
    let start = to_length(skip).min(bytes.len());
    let end = start.saturating_add(to_length(length)).min(bytes.len());
    let mut part = bytes[start..end].to_vec();
    part.resize(to_length(length), 0);
    part
}

fn to_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
