//! CRC-32C, by the processor where that works, else by tables.

use crc_fast::{CrcAlgorithm, Digest};
use vlinder_base::sync::ProcessOnce;

/// Below this, choosing and starting the vector code costs more than the tables.
const SHORT_BYTES: usize = 64;

/// The raw CRC-32C that Linux's `crc32c(seed, …)` computes: the seed is the register's state as it is, and
/// the result is not inverted. `crc32c(crc32c(seed, a), b)` is that of `a` and `b` joined.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= SHORT_BYTES && accelerated_is_right() {
        accelerated(seed, bytes)
    } else {
        portable(seed, bytes)
    }
}

/// The CRC-32C as published (RFC 3720) and as Btrfs stores it: all-ones seed, inverted result.
pub fn checksum(bytes: &[u8]) -> u32 {
    if bytes.len() >= SHORT_BYTES && accelerated_is_right() {
        crc_fast::crc32_iscsi(bytes)
    } else {
        !portable(!0, bytes)
    }
}

fn accelerated(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    // The state of a 32-bit CRC is in the low half.
    digest.get_state() as u32
}

/// Whether the vector code agrees with the tables on this processor: tested once, because it picks its
/// instructions by what it finds, and a wrong checksum would condemn good data or bless bad.
pub fn accelerated_is_right() -> bool {
    static RIGHT: ProcessOnce<bool> = ProcessOnce::new();
    *RIGHT.get_or_init(|| {
        let bytes: Vec<u8> =
            (0..4096_u32 + 200).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // Lengths on both sides of each size at which vector code changes its path, at odd addresses too.
        let lengths = [64, 65, 127, 128, 129, 255, 256, 257, 511, 1024, 2047, 4096, 4101];
        lengths.iter().all(|length| {
            [0, 1, 7, 16].iter().all(|start| {
                let part = &bytes[*start..start + length];
                let raw = portable(!0, part);
                crc_fast::crc32_iscsi(part) == !raw
                    && accelerated(!0, part) == raw
                    && accelerated(0x1234_5678, part) == portable(0x1234_5678, part)
            })
        })
    })
}

/// 0x1EDC6F41 with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][b]`: what byte `b` contributes when `n` more bytes follow it in a group of eight.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL & (value & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

fn portable(seed: u32, bytes: &[u8]) -> u32 {
    let (groups, rest) = bytes.as_chunks::<8>();
    let mut state = seed;
    for group in groups {
        let word = u64::from_le_bytes(*group) ^ u64::from(state);
        state = word
            .to_le_bytes()
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in rest {
        state = (state >> 8) ^ TABLES[0][usize::from(state as u8 ^ byte)];
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_accelerated_code_is_right_here() {
        assert!(accelerated_is_right());
    }

    #[test]
    fn the_tables_give_the_published_vectors() {
        assert_eq!(!portable(!0, b"123456789"), 0xe306_9283);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(!portable(!0, &ascending), 0x46dd_794e);
        assert_eq!(!portable(!0, &[0; 32]), 0x8a91_36aa);
    }

    proptest! {
        #[test]
        fn all_ways_agree_with_each_other_and_with_another_crate(
            bytes in proptest::collection::vec(any::<u8>(), 0..9000),
            cut in any::<prop::sample::Index>(),
            seed: u32,
        ) {
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(checksum(&bytes), ::crc32c::crc32c(&bytes));
            prop_assert_eq!(crc32c(crc32c(seed, first), second), portable(seed, &bytes));
            prop_assert_eq!(accelerated(seed, &bytes), portable(seed, &bytes));
            prop_assert_eq!(!crc32c(!seed, &bytes), ::crc32c::crc32c_append(seed, &bytes));
        }
    }
}
