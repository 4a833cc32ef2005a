//! Whether an extent looks as if compressing it would pay, from a sample: Linux's order of tests and
//! thresholds (`btrfs_compress_heuristic` in fs/btrfs/compression.c), so that the same files end up
//! compressed.

use crate::compress::MAX_EXTENT_BYTES;

/// 16 bytes of every 256 are looked at, so at most 8 KiB of an extent.
const SAMPLE_BYTES: usize = 16;
const SAMPLE_INTERVAL: usize = 256;
const MAX_SAMPLE_BYTES: usize = MAX_EXTENT_BYTES / SAMPLE_INTERVAL * SAMPLE_BYTES;
/// With fewer different bytes the data is text or the like.
const BYTE_SET: usize = 64;
/// How many different bytes make up nine tenths of the sample: up to here it compresses …
const CORE_SET_LOW: usize = 64;
/// … and from here on it is evenly spread, so it does not.
const CORE_SET_HIGH: usize = 200;
/// Shannon entropy in per cent of 8 bits a byte, from which on compressing does not pay.
const HIGH_ENTROPY: u32 = 80;

/// Whether compressing `extent` is worth a try. Looks at its first 128 KiB.
pub fn looks_compressible(extent: &[u8]) -> bool {
    let extent = &extent[..extent.len().min(MAX_EXTENT_BYTES)];
    let mut sample = [0; MAX_SAMPLE_BYTES];
    let mut length = 0;
    for part in extent.chunks(SAMPLE_INTERVAL).filter_map(<[u8]>::first_chunk::<SAMPLE_BYTES>) {
        sample[length..length + SAMPLE_BYTES].copy_from_slice(part);
        length += SAMPLE_BYTES;
    }
    let sample = &sample[..length];
    let (first, second) = sample.split_at(length / 2);
    if first == second {
        return true;
    }
    let mut counts = [0_u32; 256];
    sample.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let different = counts.iter().filter(|count| **count > 0).count();
    if different < BYTE_SET {
        return true;
    }
    let core = core_set(&counts, length);
    if core <= CORE_SET_LOW {
        return true;
    }
    // Between 65 and 80 per cent Linux cannot tell and compresses, so one threshold is enough.
    core < CORE_SET_HIGH && entropy_percent(&counts, length) < HIGH_ENTROPY
}

/// The index, in counts sorted from the most frequent byte, at which their sum passes nine tenths of the
/// sample.
fn core_set(counts: &[u32; 256], sample_bytes: usize) -> usize {
    let threshold = sample_bytes * 90 / 100;
    let mut sum = counts[..CORE_SET_LOW].iter().map(|count| *count as usize).sum::<usize>();
    if sum > threshold {
        return CORE_SET_LOW;
    }
    for (index, count) in counts.iter().enumerate().take(CORE_SET_HIGH).skip(CORE_SET_LOW) {
        sum += *count as usize;
        if *count == 0 || sum > threshold {
            return index;
        }
    }
    CORE_SET_HIGH
}

/// Shannon entropy in per cent of the maximum, with the logarithms rounded down to quarters of a bit as Linux
/// has them.
fn entropy_percent(counts: &[u32; 256], sample_bytes: usize) -> u32 {
    // Four times the logarithm: 13 bits of sample size to the fourth power stay inside 64.
    let quarters = |value: u64| value.pow(4).ilog2();
    let whole = quarters(sample_bytes as u64);
    let sum: u32 = counts
        .iter()
        .take_while(|count| **count > 0)
        .map(|count| count * (whole - quarters(u64::from(*count))))
        .sum();
    let maximum = 8 * quarters(2);
    sum / sample_bytes as u32 * 100 / maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize, distinct: u64) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % distinct) as u8
            })
            .collect()
    }

    #[test]
    fn each_test_decides_what_it_is_for() {
        let all = MAX_EXTENT_BYTES;
        assert!(looks_compressible(&vec![7; all]), "repeated");
        let half = noise(all / 2, 256);
        assert!(looks_compressible(&[&half[..], &half].concat()), "noise, but twice");
        assert!(looks_compressible(&noise(all, 63)), "few different bytes");
        assert!(!looks_compressible(&noise(all, 256)), "noise");
        // A hundred values, evenly: 100 × 4 × 6.6 bits / 32 is over 80 per cent.
        assert!(!looks_compressible(&noise(all, 128)), "too much entropy");
        // Many different bytes, but nine tenths of the data are ten of them.
        let (few, many) = (noise(all, 10), noise(all, 256));
        let mixed: Vec<u8> =
            (0..all).map(|index| if index % 16 == 0 { many[index] } else { few[index] }).collect();
        assert!(looks_compressible(&mixed), "a small core");
    }

    #[test]
    fn the_entropy_of_even_bytes_is_their_logarithm() {
        let mut counts = [0; 256];
        counts[..64].fill(128);
        assert_eq!(entropy_percent(&counts, 8192), 75);
        counts.fill(32);
        assert_eq!(entropy_percent(&counts, 8192), 100);
    }

    #[test]
    fn any_length_has_an_answer() {
        for length in 0..600 {
            looks_compressible(&noise(length, 256));
        }
        assert!(looks_compressible(&[]));
        // Only the first 128 KiB are looked at.
        let mut long = vec![0; MAX_EXTENT_BYTES];
        long.extend(noise(MAX_EXTENT_BYTES, 256));
        assert!(looks_compressible(&long));
    }
}
