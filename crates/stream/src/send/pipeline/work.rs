//! A batch becomes bytes of the stream.

use vlinder_codec::compress::{Compression, decompress};
use vlinder_data::{ContentSource, StoredBytes};
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;

use super::batch::{Batch, BatchItem};
use super::piece::{Form, Piece, RawBytes};
use crate::send::SendError;
use crate::wire::{Command, EncodedWrite, Protocol, WireError, encode};

/// No compressed extent has more bytes, on disk or decompressed; what claims more is damaged.
pub(crate) const MAX_COMPRESSED_BYTES: u64 = 128 << 10;

/// Bytes of one write: as many as Linux sends.
pub(crate) fn max_write_bytes(protocol: Protocol) -> u64 {
    match protocol {
        Protocol::V1 => 48 << 10,
        Protocol::V2 | Protocol::V3 => 128 << 10,
    }
}

/// Reads what a batch needs and encodes its commands.
///
/// # Errors
/// What reading, decompressing or encoding met.
pub(super) fn carry_out(
    source: &ContentSource<'_>,
    protocol: Protocol,
    batch: Batch,
) -> Result<Vec<u8>, SendError> {
    if batch.is_ready() {
        return Ok(batch.commands);
    }
    let stored = StoredBytes::read(source, batch.stored_runs())?;
    let capacity = batch.commands.len().saturating_add(usize::try_from(batch.data_bytes).unwrap_or(0));
    let mut output = Vec::with_capacity(capacity.saturating_add(capacity / 64));
    let (mut written, mut number) = (0, 0);
    let mut decoder = Decoder { last: None, bytes: Vec::new(), sector_bytes: source.sector_bytes };
    for item in &batch.items {
        match item {
            BatchItem::Commands(end) => {
                output.extend_from_slice(batch.commands.get(written..*end).unwrap_or_default());
                written = *end;
            }
            BatchItem::Piece(piece) => {
                let raw = match &piece.raw {
                    RawBytes::Item(bytes) => &bytes[..],
                    RawBytes::Disk { length, .. } => {
                        number += 1;
                        stored.of(number - 1, *length)
                    }
                };
                encode_piece(piece, raw, protocol, &mut decoder, &mut output)?;
            }
        }
    }
    Ok(output)
}

fn encode_piece(
    piece: &Piece,
    raw: &[u8],
    protocol: Protocol,
    decoder: &mut Decoder,
    output: &mut Vec<u8>,
) -> Result<(), SendError> {
    let (bytes, skip) = match piece.form {
        Form::Plain { skip } => (raw, skip),
        Form::Compressed { compression, decompressed_bytes, skip } => {
            let address = match piece.raw {
                RawBytes::Disk { start, .. } => Some(start),
                RawBytes::Item(_) => None,
            };
            (decoder.decompressed(address, raw, compression, decompressed_bytes)?, skip)
        }
        Form::Encoded { compression, decompressed_bytes, skip } => {
            let write = EncodedWrite {
                path: &piece.path,
                offset: piece.offset,
                file_length: piece.length,
                unencoded_length: decompressed_bytes,
                unencoded_offset: skip,
                compression,
                encryption: 0,
                data: raw,
            };
            return Ok(encode(&Command::EncodedWrite(write), protocol, output)?);
        }
    };
    let start = to_length(skip).min(bytes.len());
    let shown = bytes.get(start..).unwrap_or_default();
    let shown = shown.get(..to_length(piece.length)).unwrap_or(shown);
    put_bytes(piece, shown, protocol, output)?;
    Ok(())
}

/// Puts the bytes of a piece, and zeros behind their end, into as many commands as they take.
fn put_bytes(piece: &Piece, shown: &[u8], protocol: Protocol, output: &mut Vec<u8>) -> Result<(), WireError> {
    let most = to_length(max_write_bytes(protocol));
    let missing = to_length(piece.length).saturating_sub(shown.len());
    let mut offset = piece.offset;
    let padded;
    let bytes = if missing == 0 {
        shown
    } else {
        padded = [shown, &vec![0; missing]].concat();
        &padded
    };
    for data in bytes.chunks(most) {
        encode(&Command::Write { path: &piece.path, offset, data }, protocol, output)?;
        offset = offset.saturating_add(data.len() as u64);
    }
    Ok(())
}

/// Decompresses extents; several pieces often show one.
struct Decoder {
    /// The extent whose bytes are there.
    last: Option<Logical>,
    bytes: Vec<u8>,
    sector_bytes: u32,
}

impl Decoder {
    fn decompressed(
        &mut self,
        address: Option<Logical>,
        stored: &[u8],
        compression: CompressionId,
        length: u64,
    ) -> Result<&[u8], SendError> {
        if address.is_none() || self.last != address {
            let unknown = SendError::UnknownCompression { number: compression.0 };
            let compression = Compression::from_disk(compression.0).ok_or(unknown)?;
            self.last = None;
            self.bytes.clear();
            self.bytes.resize(to_length(length.min(MAX_COMPRESSED_BYTES)), 0);
            decompress(compression, stored, &mut self.bytes, to_length(u64::from(self.sector_bytes)))?;
            self.last = address;
        }
        Ok(&self.bytes)
    }
}

fn to_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
