//! The ordered map behind the state map: disjoint records, ascending, none empty, none without bits, and no two that
//! touch with equal bits.

use crate::{ByteRange, StateBits};
use std::cell::Cell;
use std::collections::BTreeMap;

/// A record's first byte, as key. A cell, so that a record can be rewritten where it is: records are disjoint, so moving
/// an end of one between its neighbours never changes their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start(Cell<u64>);

impl Start {
    fn new(offset: u64) -> Self {
        Self(Cell::new(offset))
    }
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    end: u64,
    bits: StateBits,
}

/// A range and the bits that all its bytes have.
pub(crate) type Record = (ByteRange, StateBits);

#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    map: BTreeMap<Start, Rest>,
}

/// What a change of the map cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub allocated: u64,
    pub removed: u64,
}

fn record((start, rest): (&Start, &Rest)) -> Record {
    // Disordered records show as empty ones here; the state map reports them.
    (ByteRange::new(start.0.get(), rest.end).unwrap_or_default(), rest.bits)
}

#[allow(clippy::mutable_key_type, reason = "keys change only where their order stays, see `Start`")]
impl Records {
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// The records that end behind `offset`, ascending.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = Record> + '_ {
        let before = self.map.range(..Start::new(offset)).next_back().filter(|(_, rest)| rest.end > offset);
        before.into_iter().chain(self.map.range(Start::new(offset)..)).map(record)
    }

    /// The records that overlap or touch `range`, ascending.
    pub fn around(&self, range: ByteRange) -> impl Iterator<Item = Record> + '_ {
        self.map.range(self.reach(range)).map(record)
    }

    /// The keys of the records that overlap or touch `range`.
    fn reach(&self, range: ByteRange) -> std::ops::RangeInclusive<Start> {
        let before = self.map.range(..Start::new(range.start())).next_back();
        let first = before.filter(|(_, rest)| rest.end >= range.start()).map(|(start, _)| start.0.get());
        Start::new(first.unwrap_or(range.start()))..=Start::new(range.end())
    }

    /// Puts `wanted` in place of the `present` records that overlap or touch `range`. Both must cover the same bytes
    /// outside of `range`.
    pub fn replace(&mut self, range: ByteRange, present: usize, wanted: &[Record]) -> Cost {
        let mut cost = Cost::default();
        let reach = self.reach(range);
        // Surplus records go first and new ones come last, so that the order holds whenever the map searches.
        for _ in wanted.len()..present {
            let last = self.map.range(reach.clone()).next_back().map(|(start, _)| start.clone());
            if let Some(last) = last {
                self.map.remove(&last);
                cost.removed += 1;
            }
        }
        let mut wanted = wanted.iter();
        for ((start, rest), (range, bits)) in self.map.range_mut(reach).zip(wanted.by_ref().take(present)) {
            start.0.set(range.start());
            *rest = Rest { end: range.end(), bits: *bits };
        }
        for (range, bits) in wanted {
            self.map.insert(Start::new(range.start()), Rest { end: range.end(), bits: *bits });
            cost.allocated += 1;
        }
        cost
    }

    /// Cuts the record that has bytes on both sides of `offset` in two, which breaks the rule that equal neighbours are
    /// one: the next change around there must restore it.
    pub fn split(&mut self, offset: u64) -> Cost {
        let Some((_, rest)) = self.map.range_mut(..Start::new(offset)).next_back() else {
            return Cost::default();
        };
        if rest.end <= offset {
            return Cost::default();
        }
        let second = *rest;
        rest.end = offset;
        self.map.insert(Start::new(offset), second);
        Cost { allocated: 1, removed: 0 }
    }
}
