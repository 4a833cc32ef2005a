//! LZO as Btrfs frames it: a 4-byte length of everything, itself included, then for each sector of input a
//! segment of a 4-byte length and an LZO1X stream. Lengths are little-endian. A segment's length does not
//! cross a sector boundary of the compressed bytes: where fewer than 4 bytes are left in a sector, they are
//! zero and the segment starts behind them.

mod compressor;
mod decompressor;

use super::algorithm::Compression;
use super::error::{CodecError, Damage, damaged};
use compressor::Table;

const LENGTH_BYTES: usize = 4;

#[derive(Default)]
pub(super) struct LzoWorkspace {
    table: Table,
    /// For segments of which only the head fits the output.
    segment: Vec<u8>,
}

/// The most that an LZO1X stream of `bytes` may have: a format's constant, Linux refuses longer segments.
const fn worst_segment_bytes(bytes: usize) -> usize {
    bytes + bytes / 16 + 64 + 3 + 2
}

/// How many zeros stand before a length that would start at `offset`.
fn padding(offset: usize, sector_bytes: usize) -> usize {
    let left = sector_bytes - offset % sector_bytes;
    if left < LENGTH_BYTES { left } else { 0 }
}

impl LzoWorkspace {
    pub(super) fn compress(
        &mut self,
        input: &[u8],
        sector_bytes: usize,
        limit_bytes: usize,
        output: &mut Vec<u8>,
    ) -> bool {
        let start = output.len();
        let worst = worst_segment_bytes(sector_bytes.min(input.len()));
        // Room for one segment past the limit, so that only whole segments are weighed.
        output.resize(start + LENGTH_BYTES + limit_bytes + 2 * LENGTH_BYTES + worst, 0);
        let stream = &mut output[start..];
        let mut length = LENGTH_BYTES;
        for sector in input.chunks(sector_bytes) {
            let zeros = padding(length, sector_bytes);
            stream[length..length + zeros].fill(0);
            length += zeros;
            let data = length + LENGTH_BYTES;
            let segment_bytes = compressor::compress(sector, &mut self.table, &mut stream[data..]);
            stream[length..data].copy_from_slice(&length_field(segment_bytes));
            length = data + segment_bytes;
            if length > limit_bytes {
                output.truncate(start);
                return false;
            }
        }
        stream[..LENGTH_BYTES].copy_from_slice(&length_field(length));
        let worth_it = length <= limit_bytes;
        output.truncate(start + if worth_it { length } else { 0 });
        worth_it
    }

    pub(super) fn decompress(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        sector_bytes: usize,
    ) -> Result<usize, CodecError> {
        let total_bytes = read_length(input, 0)?;
        if total_bytes < LENGTH_BYTES || total_bytes > input.len() {
            return Err(damaged(Compression::Lzo, 0, Damage::TotalLength));
        }
        let input = &input[..total_bytes];
        let (mut offset, mut decoded) = (LENGTH_BYTES, 0);
        while decoded < output.len() {
            offset += padding(offset, sector_bytes);
            if offset >= input.len() {
                break;
            }
            let segment_bytes = read_length(input, offset)?;
            let data = offset + LENGTH_BYTES;
            if segment_bytes > worst_segment_bytes(sector_bytes) || segment_bytes > input.len() - data {
                return Err(damaged(Compression::Lzo, offset, Damage::SegmentLength));
            }
            let segment = &input[data..data + segment_bytes];
            decoded += self
                .decompress_segment(segment, &mut output[decoded..], sector_bytes)
                .map_err(|fault| damaged(Compression::Lzo, data + fault.offset, fault.damage))?;
            offset = data + segment_bytes;
        }
        Ok(decoded)
    }

    fn decompress_segment(
        &mut self,
        segment: &[u8],
        output: &mut [u8],
        sector_bytes: usize,
    ) -> Result<usize, decompressor::Fault> {
        if output.len() >= sector_bytes {
            return decompressor::decompress(segment, &mut output[..sector_bytes]);
        }
        self.segment.resize(sector_bytes, 0);
        let length = decompressor::decompress(segment, &mut self.segment)?.min(output.len());
        output[..length].copy_from_slice(&self.segment[..length]);
        Ok(length)
    }
}

fn length_field(length: usize) -> [u8; LENGTH_BYTES] {
    // Extents have at most 128 KiB, so the length always fits.
    (length as u32).to_le_bytes()
}

fn read_length(input: &[u8], offset: usize) -> Result<usize, CodecError> {
    let field = input.get(offset..).and_then(<[u8]>::first_chunk::<LENGTH_BYTES>);
    let field = field.ok_or_else(|| damaged(Compression::Lzo, offset, Damage::Truncated))?;
    Ok(u32::from_le_bytes(*field) as usize)
}

#[cfg(test)]
mod tests;
