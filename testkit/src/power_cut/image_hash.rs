//! The hash of an image that differs from a known one in a few places.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};

use crate::simulated::DeviceChange;

/// The grain of the hash; an image's hash is the sum of the hashes of its chunks, so that a few can be
/// exchanged.
const CHUNK_BYTES: u64 = 64 * 1024;

/// An image with the hash of each chunk that is not zeros.
pub(super) struct HashedBase {
    chunks: BTreeMap<u64, u128>,
    sum: u128,
}

impl HashedBase {
    pub(super) fn new(image: &MemoryDevice) -> Self {
        let written = image.written_chunks();
        let chunks: BTreeMap<u64, u128> = written
            .iter()
            .map(|(offset, _)| offset.0 / CHUNK_BYTES)
            .map(|number| (number, hash_chunk(image, number)))
            .collect();
        let sum = chunks.values().fold(0_u128, |sum, hash| sum.wrapping_add(*hash));
        HashedBase { chunks, sum }
    }

    /// The hash of an image that may differ from the base where the changes lie.
    pub(super) fn hash_of(&self, image: &MemoryDevice, changes: &[DeviceChange]) -> u128 {
        let touched: BTreeSet<u64> = changes
            .iter()
            .flat_map(|change| {
                let end = change.offset.0 + change.content.length_bytes();
                change.offset.0 / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)
            })
            .collect();
        touched.iter().fold(self.sum, |sum, number| {
            let before = self.chunks.get(number).copied().unwrap_or(0);
            sum.wrapping_sub(before).wrapping_add(hash_chunk(image, *number))
        })
    }
}

/// 0 for zeros, so that it does not matter whether they were ever written.
fn hash_chunk(image: &MemoryDevice, number: u64) -> u128 {
    let start = number * CHUNK_BYTES;
    let length = CHUNK_BYTES.min(image.length().saturating_sub(start));
    let bytes = match image.read_at(Physical(start), length as usize) {
        Ok(bytes) => bytes,
        Err(error) => unreachable!("the range was cut to the device: {error}"),
    };
    if bytes.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let digest = Sha256::new().chain_update(number.to_le_bytes()).chain_update(&bytes).finalize();
    digest.iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte))
}
