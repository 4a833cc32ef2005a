//! What a file holds, sparsely.

use std::collections::BTreeMap;
use vlinder_base::sync::Arc;

/// The unit in which content is kept; the smallest sector.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes that can be made again from a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Not compressible.
    Random(u64),
    /// Compressible: a few words in changing order.
    Words(u64),
    /// One byte.
    Same(u8),
    /// Compressible for the first half of each 128 KiB, then not.
    Mixed(u64),
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

impl Pattern {
    /// The bytes from `offset` of the file on.
    pub fn bytes(self, offset: u64, length: u64) -> Vec<u8> {
        (offset..offset + length).map(|at| self.byte(at)).collect()
    }

    fn byte(self, at: u64) -> u8 {
        match self {
            Self::Same(byte) => byte,
            Self::Random(seed) => mix(seed ^ (at / 8)).to_le_bytes()[(at % 8) as usize],
            Self::Words(seed) => {
                const WORDS: [&[u8; 8]; 4] = [b"papillon", b"vlinders", b"mariposa", b"sommerfu"];
                WORDS[(mix(seed ^ (at / 8)) % 4) as usize][(at % 8) as usize]
            }
            Self::Mixed(seed) if at % (128 << 10) < 64 << 10 => Self::Words(seed).byte(at),
            Self::Mixed(seed) => Self::Random(seed).byte(at),
        }
    }
}

/// The bytes of a file; pages that were never written are zeros. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8]>>,
}

impl Content {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in memory.
    pub fn stored_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Starts of the pages that hold something, in order.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().map(|page| page * PAGE_BYTES)
    }

    /// Puts bytes; the size grows with them.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.put(offset, bytes);
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES) as usize;
            let length = (PAGE_BYTES as usize - start).min(bytes.len() - done);
            let part = &bytes[done..done + length];
            let page = self.pages.entry(at / PAGE_BYTES);
            match page {
                std::collections::btree_map::Entry::Vacant(vacant) if length == PAGE_BYTES as usize => {
                    vacant.insert(part.into());
                }
                entry => {
                    let page = entry.or_insert_with(|| vec![0; PAGE_BYTES as usize].into());
                    let mut changed = page.to_vec();
                    changed[start..start + length].copy_from_slice(part);
                    *page = changed.into();
                }
            }
            done += length;
        }
    }

    /// Zeros, without a change of size.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return;
        }
        let (first, last) = (offset.div_ceil(PAGE_BYTES), end / PAGE_BYTES);
        if first <= last {
            self.pages.retain(|page, _| !(first..last).contains(page));
        }
        let edges: Vec<u64> = [offset / PAGE_BYTES, end / PAGE_BYTES]
            .into_iter()
            .filter(|page| self.pages.contains_key(page))
            .collect();
        for page in edges {
            let start = offset.max(page * PAGE_BYTES);
            let stop = end.min((page + 1) * PAGE_BYTES);
            if start < stop {
                self.put(start, &vec![0; (stop - start) as usize]);
            }
        }
    }

    /// A new size; what is cut off is gone, what is added is zeros.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.pages.retain(|page, _| page * PAGE_BYTES < size);
        }
        self.size = size;
    }

    /// The bytes of a range, zeros past the end.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        let end = offset + length;
        for (page, stored) in self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)) {
            let page_start = page * PAGE_BYTES;
            let (start, stop) = (offset.max(page_start), end.min(page_start + PAGE_BYTES));
            let from = (start - page_start) as usize..(stop - page_start) as usize;
            bytes[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(&stored[from]);
        }
        bytes
    }

    /// Whether a range holds only zeros.
    pub fn is_zero(&self, offset: u64, end: u64) -> bool {
        self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).all(|(page, stored)| {
            let page_start = page * PAGE_BYTES;
            let (start, stop) = (offset.max(page_start), end.min(page_start + PAGE_BYTES));
            start >= stop
                || stored[(start - page_start) as usize..(stop - page_start) as usize]
                    .iter()
                    .all(|byte| *byte == 0)
        })
    }

    /// The first 20 hexadecimal digits of the SHA-256 of all bytes, as a walk shows it.
    pub fn hash(&self) -> String {
        use sha2::{Digest, Sha256};
        let mut digest = Sha256::new();
        let mut at = 0;
        while at < self.size {
            let length = (self.size - at).min(1 << 20);
            digest.update(self.read(at, length));
            at += length;
        }
        crate::walk::shorten(&digest.finalize())
    }
}
