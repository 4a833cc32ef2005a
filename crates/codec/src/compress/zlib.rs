//! zlib: one stream, decoded by libdeflate at once.

use super::algorithm::Compression;
use super::error::{CodecError, Damage, damaged};
use flate2::{Decompress, FlushDecompress};
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

#[derive(Default)]
pub(super) struct ZlibWorkspace {
    compressor: Option<(i32, Compressor)>,
    decompressor: Option<Decompressor>,
}

impl ZlibWorkspace {
    pub(super) fn compress(
        &mut self,
        level: i32,
        input: &[u8],
        limit_bytes: usize,
        output: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        let compressor = match &mut self.compressor {
            Some((made_for, compressor)) if *made_for == level => compressor,
            other => {
                let checked = CompressionLvl::new(level)
                    .map_err(|_| CodecError::Level { compression: Compression::Zlib, level })?;
                &mut other.insert((level, Compressor::new(checked))).1
            }
        };
        let start = output.len();
        output.resize(start + limit_bytes, 0);
        let compressed = compressor.zlib_compress(input, &mut output[start..]).ok();
        output.truncate(start + compressed.unwrap_or(0));
        Ok(compressed.is_some())
    }

    pub(super) fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
        let decompressor = self.decompressor.get_or_insert_with(Decompressor::new);
        match decompressor.zlib_decompress(input, output) {
            Ok(length) => Ok(length),
            Err(DecompressionError::BadData) => Err(damaged(Compression::Zlib, 0, Damage::Stream)),
            Err(DecompressionError::InsufficientSpace) => decompress_part(input, output),
        }
    }
}

/// Decodes the head of a stream that holds more than `output`: libdeflate does all or nothing, Linux stops
/// where it has what it needs.
fn decompress_part(input: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(input, output, FlushDecompress::None);
    let offset = usize::try_from(stream.total_in()).unwrap_or(0);
    if status.is_err() {
        return Err(damaged(Compression::Zlib, offset, Damage::Stream));
    }
    if usize::try_from(stream.total_out()) != Ok(output.len()) {
        return Err(damaged(Compression::Zlib, offset, Damage::Truncated));
    }
    Ok(output.len())
}
