//! The LZO1X encoder: greedy, one candidate for each hash of four bytes, from the public description of the
//! format (Linux's `Documentation/staging/lzo.rst`).

const TABLE_BITS: u32 = 12;
/// Four bytes to hash, and eight to compare without running past the end.
const TAIL_BYTES: usize = 12;
const STEP: usize = 16;

/// The match forms' reaches: M2 takes 3 to 8 bytes at up to 2 KiB, M3 any length at up to 16 KiB, M4 up to 48
/// KiB.
const M2_MAX_LENGTH: usize = 8;
const M2_MAX_DISTANCE: usize = 0x800;
const M3_MAX_DISTANCE: usize = 0x4000;
const M4_MAX_DISTANCE: usize = 0xbfff;

/// Where four bytes of each hash were seen last. Zero is a position like any other: its four bytes are
/// compared.
pub(super) struct Table(Box<[u16; 1 << TABLE_BITS]>);

impl Default for Table {
    fn default() -> Self {
        Self(Box::new([0; 1 << TABLE_BITS]))
    }
}

struct Encoder<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    written: usize,
}

/// Compresses `input` (at most 64 KiB, one sector) into one stream and gives its length.
///
/// # Panics
/// If `output` has less room than the format's worst case, or `input` more than 64 KiB: mistakes of the
/// caller.
pub(super) fn compress(input: &[u8], table: &mut Table, output: &mut [u8]) -> usize {
    assert!(input.len() <= 1 << 16, "a segment of {} bytes is more than a sector", input.len());
    table.0.fill(0);
    let mut encoder = Encoder { input, output, written: 0 };
    let mut anchor = 0;
    let mut position = 1;
    while position + TAIL_BYTES <= input.len() {
        let word = word_at(input, position);
        let slot = &mut table.0[(word.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize];
        let candidate = usize::from(*slot);
        *slot = position as u16;
        if word_at(input, candidate) != word || position - candidate > M4_MAX_DISTANCE {
            // The longer nothing was found, the less it is worth looking at every byte.
            position += 1 + ((position - anchor) >> 5);
            continue;
        }
        let length = 4 + common_length(input, candidate + 4, position + 4);
        encoder.literals(anchor, position);
        encoder.encode_match(position - candidate, length);
        position += length;
        anchor = position;
    }
    encoder.literals(anchor, input.len());
    encoder.put([0x11, 0, 0]);
    encoder.written
}

#[inline]
fn word_at(input: &[u8], position: usize) -> u32 {
    u32::from_le_bytes(*input[position..].first_chunk().expect("the search ends before the last word"))
}

/// How many bytes from `earlier` on are those from `later` on.
#[inline]
fn common_length(input: &[u8], earlier: usize, later: usize) -> usize {
    let mut length = 0;
    while let (Some(first), Some(second)) =
        (input[earlier + length..].first_chunk::<8>(), input[later + length..].first_chunk::<8>())
    {
        let difference = u64::from_le_bytes(*first) ^ u64::from_le_bytes(*second);
        if difference != 0 {
            return length + (difference.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let rest = input[earlier + length..].iter().zip(&input[later + length..]);
    length + rest.take_while(|(first, second)| first == second).count()
}

impl Encoder<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.output[self.written..self.written + N].copy_from_slice(&bytes);
        self.written += N;
    }

    /// The part of a length that its instruction has no room for: a zero for each 255, then the rest, 1 to
    /// 255.
    #[inline]
    fn put_length(&mut self, mut rest: usize) {
        while rest > 255 {
            self.put([0]);
            rest -= 255;
        }
        self.put([rest as u8]);
    }

    fn literals(&mut self, start: usize, end: usize) {
        let count = end - start;
        if count == 0 {
            return;
        }
        if self.written == 0 && count <= 238 {
            self.put([17 + count as u8]);
        } else if count <= 3 {
            // Every match keeps two bits for this in the last byte but one.
            self.output[self.written - 2] |= count as u8;
        } else if count <= 18 {
            self.put([count as u8 - 3]);
        } else {
            self.put([0]);
            self.put_length(count - 18);
        }
        let (source, target) = (&self.input[start..], &mut self.output[self.written..]);
        match (source.first_chunk::<STEP>(), target.first_chunk_mut::<STEP>()) {
            (Some(source), Some(target)) if count <= STEP => *target = *source,
            _ => target[..count].copy_from_slice(&source[..count]),
        }
        self.written += count;
    }

    #[inline]
    fn encode_match(&mut self, distance: usize, length: usize) {
        if length <= M2_MAX_LENGTH && distance <= M2_MAX_DISTANCE {
            let reach = distance - 1;
            self.put([(((length - 1) << 5) | ((reach & 7) << 2)) as u8, (reach >> 3) as u8]);
        } else if distance <= M3_MAX_DISTANCE {
            self.put_long(32, 33, length);
            self.put((((distance - 1) << 2) as u16).to_le_bytes());
        } else {
            let reach = distance - 0x4000;
            self.put_long(16 | ((reach >> 11) & 8) as u8, 9, length);
            self.put((((reach & 0x3fff) << 2) as u16).to_le_bytes());
        }
    }

    /// The head of a match whose own bits hold lengths from 3 to `longest`.
    #[inline]
    fn put_long(&mut self, code: u8, longest: usize, length: usize) {
        if length <= longest {
            self.put([code | (length - 2) as u8]);
        } else {
            self.put([code]);
            self.put_length(length - longest);
        }
    }
}
