//! Zstandard: one frame whose window fits what Linux allows.

use super::algorithm::Compression;
use super::error::{CodecError, Damage, damaged};
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound,
    find_frame_compressed_size,
};

/// Linux decodes windows of up to 2^17 bytes (`ZSTD_BTRFS_MAX_WINDOWLOG`).
const MAX_WINDOW_LOG: u32 = 17;

#[derive(Default)]
pub(super) struct ZstdWorkspace {
    compressor: Option<(i32, CCtx<'static>)>,
    decompressor: Option<DCtx<'static>>,
}

const OUT_OF_MEMORY: CodecError = CodecError::OutOfMemory { compression: Compression::Zstd };

fn new_compressor(level: i32) -> Result<CCtx<'static>, CodecError> {
    let mut context = CCtx::try_create().ok_or(OUT_OF_MEMORY)?;
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(MAX_WINDOW_LOG),
        CParameter::ContentSizeFlag(true),
        CParameter::ChecksumFlag(false),
    ] {
        context
            .set_parameter(parameter)
            .map_err(|_| CodecError::Level { compression: Compression::Zstd, level })?;
    }
    Ok(context)
}

impl ZstdWorkspace {
    pub(super) fn compress(
        &mut self,
        level: i32,
        input: &[u8],
        limit_bytes: usize,
        output: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        let context = match &mut self.compressor {
            Some((made_for, context)) if *made_for == level => context,
            other => &mut other.insert((level, new_compressor(level)?)).1,
        };
        let start = output.len();
        // The library wants room past the frame's end, and in less room it may choose another encoding.
        output.resize(start + compress_bound(input.len()), 0);
        let compressed = context.compress2(&mut output[start..], input);
        let length = compressed.ok().filter(|length| *length <= limit_bytes);
        output.truncate(start + length.unwrap_or(0));
        if compressed.is_err() {
            // The context is in the middle of a frame; the next one must not continue it.
            self.compressor = None;
            return Err(OUT_OF_MEMORY);
        }
        Ok(length.is_some())
    }

    pub(super) fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
        if window_bytes(input).is_none_or(|window| window > 1 << MAX_WINDOW_LOG) {
            return Err(damaged(Compression::Zstd, 0, Damage::Frame));
        }
        let context = match &mut self.decompressor {
            Some(context) => context,
            none => {
                let mut context = DCtx::try_create().ok_or(OUT_OF_MEMORY)?;
                context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(|_| OUT_OF_MEMORY)?;
                none.insert(context)
            }
        };
        // Padding follows the frame, which the one-shot decoder would take for another one.
        let frame_bytes = find_frame_compressed_size(input)
            .map_err(|_| damaged(Compression::Zstd, input.len(), Damage::Truncated))?;
        match context.decompress(output, &input[..frame_bytes]) {
            Ok(length) => Ok(length),
            Err(code) if is_too_small(code) => decompress_part(context, input, output),
            Err(_) => Err(damaged(Compression::Zstd, 0, Damage::Stream)),
        }
    }
}

/// Decodes the head of a frame that holds more than `output`, as Linux does.
fn decompress_part(
    context: &mut DCtx<'static>,
    input: &[u8],
    output: &mut [u8],
) -> Result<usize, CodecError> {
    context.reset(ResetDirective::SessionOnly).map_err(|_| OUT_OF_MEMORY)?;
    let mut source = InBuffer::around(input);
    let mut target = OutBuffer::around(output);
    loop {
        let before = (source.pos(), target.pos());
        let hint = context
            .decompress_stream(&mut target, &mut source)
            .map_err(|_| damaged(Compression::Zstd, before.0, Damage::Stream))?;
        if hint == 0 || target.pos() == target.capacity() {
            return Ok(target.pos());
        }
        if before == (source.pos(), target.pos()) {
            return Err(damaged(Compression::Zstd, before.0, Damage::Truncated));
        }
    }
}

/// Whether an error code of the library says that the output has no room (`ZSTD_error_dstSize_tooSmall`).
fn is_too_small(code: usize) -> bool {
    const DESTINATION_TOO_SMALL: usize = 70;
    code == DESTINATION_TOO_SMALL.wrapping_neg()
}

/// The window that a frame's header asks for (RFC 8878, 3.1.1.1); none where there is no frame header.
fn window_bytes(input: &[u8]) -> Option<u64> {
    let rest = input.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let window = rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The window is the content itself, whose size stands behind the dictionary's id.
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let (size_bytes, bias) = [(1, 0), (2, 256), (4, 0), (8, 0)][usize::from(descriptor >> 6)];
    let field = rest.get(dictionary_bytes..)?.get(..size_bytes)?;
    let mut size = [0; 8];
    size[..size_bytes].copy_from_slice(field);
    Some(u64::from_le_bytes(size).saturating_add(bias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_read_from_both_forms_of_the_header() {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        let window = |rest: &[u8]| window_bytes(&[&magic[..], rest].concat());
        assert_eq!(window(&[0x00, 0x00]), Some(1024));
        assert_eq!(window(&[0x00, (7 << 3) | 1]), Some((128 << 10) + (16 << 10)));
        assert_eq!(window(&[0x20, 200]), Some(200));
        assert_eq!(window(&[0x60, 0, 1]), Some(512));
        assert_eq!(window(&[0xa1, 9, 0, 0, 2, 0]), Some(131_072));
        assert_eq!(window(&[0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), Some(u64::MAX));
        assert_eq!(window(&[0x60, 0]), None);
        assert_eq!(window_bytes(b"\x28\xb5\x2f"), None);
    }

    #[test]
    fn frames_with_larger_windows_are_refused_before_the_library() {
        let input = vec![7; 300 << 10];
        let frame = zstd::bulk::compress(&input, 3).unwrap();
        let mut output = vec![0; 300 << 10];
        let error = ZstdWorkspace::default().decompress(&frame, &mut output).unwrap_err();
        assert_eq!(error, damaged(Compression::Zstd, 0, Damage::Frame));
    }
}
