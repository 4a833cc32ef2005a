//! Compression and checksums.

use vlinder_codec::checksum::{ChecksumKind, checksum, checksum_many, crc32c};
use vlinder_codec::compress::{Compression, MAX_EXTENT_BYTES, compress, decompress, extent_limit_bytes};
use vlinder_codec::heuristic::looks_compressible;

use crate::input::Input;

const SECTORS: [usize; 3] = [4096, 16384, 65536];

/// Any bytes as a stream: how many bytes are wanted, the sector size, the stream.
fn read(kind: Compression, input: &[u8]) {
    let mut input = Input(input);
    let wanted = usize::from(input.u16()) % 20_000;
    let sector = input.of(&SECTORS);
    let stream = input.rest();
    let mut output = vec![0xaa; wanted];
    let first = decompress(kind, stream, &mut output, sector);
    let Ok(length) = first else { return };
    assert!(length <= wanted && output[length..].iter().all(|byte| *byte == 0));
    // What lies behind a stream's end, on disk zeros up to the end of the sector, changes nothing. (Where
    // less is wanted than a stream holds, nobody looks whether it has an end.)
    if length < wanted {
        let mut padded = stream.to_vec();
        padded.resize(stream.len() + 100, 0);
        let mut again = vec![0x55; wanted];
        assert_eq!(decompress(kind, &padded, &mut again, sector), Ok(length), "with bytes behind");
        assert_eq!(again, output, "with bytes behind");
    }
    // Fewer bytes wanted are the first of those.
    let mut fewer = vec![0x33; wanted / 2];
    let less = decompress(kind, stream, &mut fewer, sector);
    // The library takes blocks larger than the frame's window at once, and refuses them piece by piece, as
    // Linux does.
    if kind == Compression::Zstd && less.is_err() {
        return;
    }
    assert_eq!(less, Ok(length.min(wanted / 2)), "half as many");
    assert_eq!(fewer[..length.min(wanted / 2)], output[..length.min(wanted / 2)]);
}

/// Bytes as the content of an extent: level, sector size, how often they come again, the bytes.
fn write(kind: Compression, input: &[u8]) {
    let mut input = Input(input);
    let levels: Vec<i32> = kind.levels().collect();
    let level = input.of(&levels);
    let sector = input.of(&SECTORS);
    let repeat = usize::from(input.u8());
    let mut content = Vec::new();
    while !input.is_empty() && content.len() < MAX_EXTENT_BYTES {
        let run = usize::from(input.u8());
        let part = input.take(run);
        for _ in 0..=repeat {
            content.extend_from_slice(part);
        }
        content.resize(content.len() + run / 4, part.first().copied().unwrap_or(0));
    }
    content.truncate(MAX_EXTENT_BYTES);
    let _ = looks_compressible(&content);
    // With room for what does not get smaller, and with as much as an extent may have.
    let room = 2 * content.len() + 1000;
    for limit in [room, extent_limit_bytes(content.len(), sector)] {
        let mut stream = vec![1, 2, 3];
        match compress(kind, level, &content, sector, limit, &mut stream) {
            Ok(true) => {
                let stream = &stream[3..];
                assert!(stream.len() <= limit);
                let mut output = vec![0; content.len()];
                assert_eq!(decompress(kind, stream, &mut output, sector), Ok(content.len()));
                assert_eq!(output, content);
            }
            Ok(false) => assert!(limit < room && stream == [1, 2, 3]),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Any bytes as a zlib stream.
///
/// # Panics
/// Where a law is broken.
pub fn zlib_read(input: &[u8]) {
    read(Compression::Zlib, input);
}

/// Any bytes as LZO segments.
///
/// # Panics
/// Where a law is broken.
pub fn lzo_read(input: &[u8]) {
    read(Compression::Lzo, input);
}

/// Any bytes as a zstd frame.
///
/// # Panics
/// Where a law is broken.
pub fn zstd_read(input: &[u8]) {
    read(Compression::Zstd, input);
}

/// Any content through zlib and back.
///
/// # Panics
/// Where it is not the same.
pub fn zlib_write(input: &[u8]) {
    write(Compression::Zlib, input);
}

/// Any content through LZO and back.
///
/// # Panics
/// Where it is not the same.
pub fn lzo_write(input: &[u8]) {
    write(Compression::Lzo, input);
}

/// Any content through zstd and back.
///
/// # Panics
/// Where it is not the same.
pub fn zstd_write(input: &[u8]) {
    write(Compression::Zstd, input);
}

/// Checksums of many sectors are those of each, and CRC-32C is what its polynomial says.
///
/// # Panics
/// Where they differ.
pub fn checksums(input: &[u8]) {
    let mut input = Input(input);
    let kind = input.of(&ChecksumKind::ALL);
    let seed = u32::from(input.u16());
    let size = usize::from(input.u8()).max(1);
    let bytes = input.rest();
    assert_eq!(crc32c(seed, bytes), crc32c_by_bits(seed, bytes));
    let whole = &bytes[..bytes.len() / size * size];
    let mut many = Vec::new();
    checksum_many(kind, whole, size, &mut many);
    let each: Vec<u8> =
        whole.chunks(size).flat_map(|sector| checksum(kind, sector).as_bytes(kind).to_vec()).collect();
    assert_eq!(many, each);
}

fn crc32c_by_bits(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 })
    })
}
