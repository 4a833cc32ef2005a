//! A device in this process's memory.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, RwLock};
use vlinder_base::units::Physical;

use crate::{
    Completion, Description, Device, DeviceError, DeviceExt, DeviceKind, Operation, Request, Ticket,
};

/// Bytes per chunk; a chunk that was never written costs nothing and reads as zeros.
const CHUNK_BYTES: u64 = 64 * 1024;

/// A sparse image in memory. [`MemoryDevice::snapshot`] (and `clone`) give an independent copy that shares
/// unchanged chunks, so thousands of copies of one image are cheap.
#[derive(Debug)]
pub struct MemoryDevice {
    name: Arc<str>,
    image: RwLock<Image>,
}

#[derive(Debug, Clone)]
struct Image {
    length: u64,
    chunks: BTreeMap<u64, Arc<[u8]>>,
}

/// One piece of a range: chunk number, first byte inside it, number of bytes.
struct Piece {
    chunk: u64,
    start: usize,
    length: usize,
}

/// Cuts a range into pieces of single chunks.
fn pieces(offset: u64, length_bytes: u64) -> impl Iterator<Item = Piece> {
    let end = offset + length_bytes;
    let mut position = offset;
    std::iter::from_fn(move || {
        (position < end).then(|| {
            let start = position % CHUNK_BYTES;
            let length = (CHUNK_BYTES - start).min(end - position);
            let piece =
                Piece { chunk: position / CHUNK_BYTES, start: start as usize, length: length as usize };
            position += length;
            piece
        })
    })
}

impl Image {
    fn read(&self, offset: u64, mut buffer: &mut [u8]) {
        for piece in pieces(offset, buffer.len() as u64) {
            let (head, rest) = buffer.split_at_mut(piece.length);
            match self.chunks.get(&piece.chunk) {
                Some(chunk) => head.copy_from_slice(&chunk[piece.start..piece.start + piece.length]),
                None => head.fill(0),
            }
            buffer = rest;
        }
    }

    fn write(&mut self, offset: u64, mut data: &[u8]) {
        for piece in pieces(offset, data.len() as u64) {
            let (head, rest) = data.split_at(piece.length);
            let chunk =
                self.chunks.entry(piece.chunk).or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
            Arc::make_mut(chunk)[piece.start..piece.start + piece.length].copy_from_slice(head);
            data = rest;
        }
    }

    /// Visits only chunks that exist, so that giving back a huge range of a sparse image is cheap.
    fn zero(&mut self, offset: u64, length_bytes: u64) {
        let end = offset + length_bytes;
        let touched: Vec<u64> = self
            .chunks
            .range(offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES))
            .map(|(number, _)| *number)
            .collect();
        for number in touched {
            let first = number * CHUNK_BYTES;
            let (start, stop) = (offset.max(first) - first, end.min(first + CHUNK_BYTES) - first);
            if stop - start == CHUNK_BYTES {
                self.chunks.remove(&number);
            } else if let Some(chunk) = self.chunks.get_mut(&number) {
                Arc::make_mut(chunk)[start as usize..stop as usize].fill(0);
            }
        }
    }
}

impl MemoryDevice {
    /// A device of `length_bytes` zeros.
    pub fn new(length_bytes: u64) -> Self {
        Self::named("memory", length_bytes)
    }

    /// A device of `length_bytes` zeros with a name for errors.
    pub fn named(name: &str, length_bytes: u64) -> Self {
        let image = Image { length: length_bytes, chunks: BTreeMap::new() };
        MemoryDevice { name: name.into(), image: RwLock::new(image) }
    }

    /// A device with this content.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        {
            let mut image = device.image.write();
            for (number, chunk) in bytes.chunks(CHUNK_BYTES as usize).enumerate() {
                if chunk.iter().any(|byte| *byte != 0) {
                    image.write(number as u64 * CHUNK_BYTES, chunk);
                }
            }
        }
        device
    }

    /// An independent copy of the device as it is now.
    pub fn snapshot(&self) -> Self {
        MemoryDevice { name: self.name.clone(), image: RwLock::new(self.image.read().clone()) }
    }

    /// Changes the length; new bytes are zeros, bytes past the end are gone.
    pub fn resize(&self, length_bytes: u64) {
        let mut image = self.image.write();
        if length_bytes < image.length {
            // To the end of the last chunk: what lies past the device's end is zeros already.
            let end = image.length.div_ceil(CHUNK_BYTES).saturating_mul(CHUNK_BYTES);
            image.zero(length_bytes, end - length_bytes);
        }
        image.length = length_bytes;
    }

    /// The chunks that were ever written and not given back, in order: first byte, content (64 KiB, the last
    /// one possibly past the device's end). What is not listed is zeros.
    pub fn written_chunks(&self) -> Vec<(Physical, Arc<[u8]>)> {
        let image = self.image.read();
        image.chunks.iter().map(|(number, chunk)| (Physical(number * CHUNK_BYTES), chunk.clone())).collect()
    }

    fn run(&self, mut request: Request) -> Completion {
        let checked = self.check_range(request.operation(), request.offset(), request.length_bytes());
        if checked.is_ok() {
            match &mut request {
                Request::Read { offset, buffer } => self.image.read().read(offset.0, buffer),
                Request::Write { offset, data, .. } => self.image.write().write(offset.0, data.as_slice()),
            }
        }
        request.complete(checked)
    }
}

impl Clone for MemoryDevice {
    fn clone(&self) -> Self {
        self.snapshot()
    }
}

impl Device for MemoryDevice {
    fn describe(&self) -> Description {
        Description { name: self.name.clone(), read_only: false, kind: DeviceKind::Memory }
    }

    fn length(&self) -> u64 {
        self.image.read().length
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::ready(batch.into_iter().map(|request| self.run(request)).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.check_range(Operation::Discard, offset, length_bytes)?;
        self.image.write().zero(offset.0, length_bytes);
        Ok(())
    }
}
