//! RAID5 and RAID6: rows of stripes with one or two stripes of parity, which move on by one device with each
//! row.
//!
//! A row of `n` devices has `n − 1` (RAID5) or `n − 2` (RAID6) stripes of data, then P, their sum, then with
//! RAID6 Q, the sum of the stripes times 2 to their numbers. What cannot be read directly is worked out: from
//! the others and P; from the others and Q; or, where one of the others is bad too, from the rest with P and
//! Q.

use vlinder_format::Logical;
use vlinder_format::chunk::STRIPE_LENGTH;

use super::galois::{add_multiple, inverse, multiply, power};
use super::stripes::{StripeRange, stripes_of};
use crate::mapped_chunk::MappedChunk;

/// A stripe of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Data, by number.
    Data(usize),
    /// The sum of the data.
    P,
    /// The sum of the data times powers of 2.
    Q,
}

/// Part of a request that is worked out from other stripes of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// First byte in the request.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// The number of the data stripe that is wanted.
    pub wanted: usize,
    /// What is read: the same bytes of other stripes.
    pub sources: Vec<(Column, StripeRange)>,
}

/// Stripes of data in a row of this chunk; none where there are too few devices.
fn data_columns(chunk: &MappedChunk) -> Option<u64> {
    let columns = u64::from(chunk.profile.facts().data_stripes(chunk.chunk.stripe_count())?);
    (columns > 0).then_some(columns)
}

/// In how many ways each byte can be had: directly, or worked out.
pub(super) fn reconstructions(chunk: &MappedChunk) -> u8 {
    let others = data_columns(chunk).unwrap_or(1).saturating_sub(1);
    match chunk.profile.facts().parities {
        2 => u8::try_from(others.saturating_add(3)).unwrap_or(u8::MAX),
        _ => 2,
    }
}

/// Where a stripe of a row lies.
fn stripe_at(
    chunk: &MappedChunk,
    row: u64,
    column: u64,
    inside: u64,
    reconstruction: u8,
    part: (u64, u64),
) -> Option<StripeRange> {
    let count = u64::try_from(chunk.chunk.stripes.len()).ok()?;
    let index = column.checked_add(row)?.checked_rem(count)?;
    let stripe = chunk.chunk.stripes.get(usize::try_from(index).ok()?)?;
    let behind = row.checked_mul(STRIPE_LENGTH)?.checked_add(inside)?;
    let physical = stripe.physical.checked_add(behind)?;
    Some(StripeRange {
        mirror: reconstruction,
        device: stripe.device,
        physical,
        start: part.0,
        length: part.1,
    })
}

/// Where a range is read directly, a part for each stripe.
pub(super) fn places(chunk: &MappedChunk, logical: Logical, length: u64) -> Option<Vec<StripeRange>> {
    if length == 0 || !chunk.contains(logical, length) {
        return None;
    }
    let columns = data_columns(chunk)?;
    let distance = logical.0.checked_sub(chunk.logical.0)?;
    stripes_of(distance, length)
        .map(|part| {
            let (row, column) = (part.number.checked_div(columns)?, part.number.checked_rem(columns)?);
            stripe_at(chunk, row, column, part.inside, 0, (part.start, part.length))
        })
        .collect()
}

/// What is read to work a range out in one of the ways after the first.
pub(super) fn rebuilds(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    reconstruction: u8,
) -> Option<Vec<Rebuild>> {
    if length == 0
        || !chunk.contains(logical, length)
        || reconstruction == 0
        || reconstruction >= reconstructions(chunk)
    {
        return None;
    }
    let columns = data_columns(chunk)?;
    let distance = logical.0.checked_sub(chunk.logical.0)?;
    stripes_of(distance, length)
        .map(|part| {
            let (row, wanted) = (part.number.checked_div(columns)?, part.number.checked_rem(columns)?);
            let others: Vec<u64> = (0..columns).filter(|column| *column != wanted).collect();
            // In the ways after P and Q each of the others in turn is taken for bad.
            let left_out =
                usize::from(reconstruction).checked_sub(3).and_then(|number| others.get(number).copied());
            let (with_p, with_q) = (reconstruction != 2, reconstruction >= 2);
            let mut sources = Vec::with_capacity(chunk.chunk.stripes.len());
            let at = |column| {
                stripe_at(chunk, row, column, part.inside, reconstruction, (part.start, part.length))
            };
            for column in others.into_iter().filter(|column| Some(*column) != left_out) {
                sources.push((Column::Data(usize::try_from(column).ok()?), at(column)?));
            }
            if with_p {
                sources.push((Column::P, at(columns)?));
            }
            if with_q {
                sources.push((Column::Q, at(columns.checked_add(1)?)?));
            }
            let wanted = usize::try_from(wanted).ok()?;
            Some(Rebuild { start: part.start, length: part.length, wanted, sources })
        })
        .collect()
}

impl Rebuild {
    /// Works the wanted bytes out of what the sources gave, in their order.
    pub fn solve(&self, found: &[Vec<u8>]) -> Vec<u8> {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        let (mut has_p, mut has_q) = (false, false);
        let mut present = Vec::new();
        for ((column, _), bytes) in self.sources.iter().zip(found) {
            match column {
                Column::Data(number) => {
                    add_multiple(&mut p, bytes, 1);
                    add_multiple(&mut q, bytes, power(*number));
                    present.push(*number);
                }
                Column::P => {
                    add_multiple(&mut p, bytes, 1);
                    has_p = true;
                }
                Column::Q => {
                    add_multiple(&mut q, bytes, 1);
                    has_q = true;
                }
            }
        }
        match (has_p, has_q) {
            (true, false) => p,
            (false, _) => scaled(&q, inverse(power(self.wanted))),
            (true, true) => self.solve_two(&p, &q, &present),
        }
    }

    /// Two stripes are unknown, x (wanted) and y: P = x + y, Q = 2^a x + 2^b y, so x = (Q + 2^b P) / (2^a +
    /// 2^b).
    fn solve_two(&self, p: &[u8], q: &[u8], present: &[usize]) -> Vec<u8> {
        let known = present.len().saturating_add(2);
        let other = (0..known).find(|number| *number != self.wanted && !present.contains(number));
        let (a, b) = (power(self.wanted), power(other.unwrap_or_default()));
        let factor = inverse(a ^ b);
        let mut sum = q.to_vec();
        add_multiple(&mut sum, p, b);
        scaled(&sum, factor)
    }
}

fn scaled(bytes: &[u8], factor: u8) -> Vec<u8> {
    bytes.iter().map(|byte| multiply(*byte, factor)).collect()
}
