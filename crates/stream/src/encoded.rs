//! Compressed extents as streams carry them.

use vlinder_codec::compress::{CodecError, Compression, MAX_EXTENT_BYTES, decompress};

use crate::wire::EncodedWrite;

/// What an encoded write claims to be, once that was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncodedForm {
    pub compression: Compression,
    /// What LZO is divided by.
    pub sector_bytes: usize,
    /// Bytes that it has when it is decompressed.
    pub unencoded_bytes: u32,
    /// Where those of the file begin.
    start: u32,
    /// How many are of the file.
    bytes: u32,
}

impl EncodedForm {
    /// Judges what a command claims; the error says what is wrong with it.
    pub fn of(write: &EncodedWrite<'_>) -> Result<Self, &'static str> {
        if write.encryption != 0 {
            return Err("it is encrypted");
        }
        let (compression, sector_bytes) = match write.compression {
            1 => (Compression::Zlib, 4096),
            2 => (Compression::Zstd, 4096),
            // LZO is divided as the sender's sectors were: 4 to 64 KiB.
            number @ 3..=7 => (Compression::Lzo, 4096 << (number - 3)),
            _ => return Err("its compression is unknown"),
        };
        let end = write.unencoded_offset.saturating_add(write.file_length);
        if write.unencoded_length > MAX_EXTENT_BYTES as u64 || end > write.unencoded_length {
            return Err("it claims more bytes than a compressed extent has");
        }
        // All are below 128 KiB.
        let [unencoded_bytes, start, bytes] =
            [write.unencoded_length, write.unencoded_offset, write.file_length].map(|number| number as u32);
        Ok(Self { compression, sector_bytes, unencoded_bytes, start, bytes })
    }

    /// The bytes of the file.
    pub fn decode(&self, data: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut bytes = vec![0; self.unencoded_bytes as usize];
        self.decompress_to(data, &mut bytes)?;
        bytes.truncate((self.start + self.bytes) as usize);
        Ok(bytes.split_off(self.start as usize))
    }

    /// Decompresses all of it; gives how many bytes there were.
    pub fn decompress_to(&self, data: &[u8], bytes: &mut [u8]) -> Result<usize, CodecError> {
        decompress(self.compression, data, bytes, self.sector_bytes)
    }
}
