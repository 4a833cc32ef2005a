//! The records behind the state map: disjoint, ascending, none empty, none without bits, and no two that
//! touch with equal bits. They lie in sorted blocks, so that a search looks at two short arrays, and a record
//! that comes or goes moves part of one of them; memory is asked for only where a block is split in two.

use crate::{ByteRange, StateBits};

/// A range and the bits that all its bytes have.
pub(crate) type Record = (ByteRange, StateBits);

/// Records of a block at most: moving half of them costs no more than looking for one (docs/decisions/0009).
const BLOCK_RECORDS: usize = 64;
/// Neighbours that have no more together become one block; less than a block, so that not every record that
/// comes splits it again.
const MERGED_RECORDS: usize = BLOCK_RECORDS / 2;

#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// Where the first record of each block begins.
    firsts: Vec<u64>,
    /// None of them empty.
    blocks: Vec<Vec<Record>>,
    len: usize,
}

/// Which record of which block; behind the last record of a block is the next block's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    block: usize,
    index: usize,
}

/// What a change of the records cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub allocated: u64,
    pub removed: u64,
}

impl Records {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first record that begins at or behind `offset`.
    fn first_from(&self, offset: u64) -> Place {
        let block = self.firsts.partition_point(|first| *first < offset).saturating_sub(1);
        let records = self.blocks.get(block).map_or(&[][..], Vec::as_slice);
        Place { block, index: records.partition_point(|(range, _)| range.start() < offset) }
    }

    /// The record before the place that [`Self::first_from`] gave: always in the same block, if there is one.
    fn before(&self, place: Place) -> Option<(Place, Record)> {
        let index = place.index.checked_sub(1)?;
        let record = *self.blocks.get(place.block)?.get(index)?;
        Some((Place { index, ..place }, record))
    }

    /// The first record that overlaps or touches a range that begins at `offset`, or lies behind.
    pub fn reach(&self, offset: u64) -> Place {
        let place = self.first_from(offset);
        self.before(place).filter(|(_, (range, _))| range.end() >= offset).map_or(place, |(before, _)| before)
    }

    /// The records from a place on, ascending.
    pub fn at(&self, place: Place) -> impl Iterator<Item = Record> + '_ {
        let first = self.blocks.get(place.block).and_then(|block| block.get(place.index..));
        let rest = self.blocks.get(place.block + 1..).unwrap_or_default();
        first.unwrap_or_default().iter().chain(rest.iter().flatten()).copied()
    }

    /// The records that end behind `offset`, ascending.
    pub fn from(&self, offset: u64) -> impl Iterator<Item = Record> + '_ {
        let place = self.first_from(offset);
        let before = self.before(place).filter(|(_, (range, _))| range.end() > offset);
        self.at(before.map_or(place, |(before, _)| before))
    }

    /// Puts `wanted` in place of `present` records from `place` on. Both must lie between the same
    /// neighbours.
    pub fn replace(&mut self, mut place: Place, present: usize, wanted: &[Record]) -> Cost {
        let kept = present.min(wanted.len());
        let (rewritten, new) = wanted.split_at(kept);
        for record in rewritten {
            place = self.normalized(place);
            self.blocks[place.block][place.index] = *record;
            if place.index == 0 {
                self.firsts[place.block] = record.0.start();
            }
            place.index += 1;
        }
        for record in new {
            place = self.insert(place, *record);
        }
        let surplus = present - kept;
        if surplus > 0 {
            self.remove(self.normalized(place), surplus);
        }
        self.len = self.len + new.len() - surplus;
        Cost { allocated: new.len() as u64, removed: surplus as u64 }
    }

    /// The same place, in the block that has its record.
    fn normalized(&self, place: Place) -> Place {
        match self.blocks.get(place.block) {
            Some(block) if place.index >= block.len() => Place { block: place.block + 1, index: 0 },
            _ => place,
        }
    }

    /// Inserts before a place, and gives the place behind.
    fn insert(&mut self, mut place: Place, record: Record) -> Place {
        if self.blocks.is_empty() {
            self.blocks.push(Vec::new());
            self.firsts.push(record.0.start());
        }
        if self.blocks[place.block].len() == BLOCK_RECORDS {
            place = self.split_block(place);
        }
        if place.index == 0 {
            self.firsts[place.block] = record.0.start();
        }
        self.blocks[place.block].insert(place.index, record);
        Place { index: place.index + 1, ..place }
    }

    /// Splits a full block, and gives where the place is then.
    fn split_block(&mut self, place: Place) -> Place {
        // A file that is written from its start to its end leaves full blocks behind.
        let is_last = place.block + 1 == self.blocks.len() && place.index == BLOCK_RECORDS;
        let middle = if is_last { BLOCK_RECORDS - 1 } else { BLOCK_RECORDS / 2 };
        let mut second = Vec::with_capacity(BLOCK_RECORDS);
        second.extend(self.blocks[place.block].drain(middle..));
        self.firsts.insert(place.block + 1, second[0].0.start());
        self.blocks.insert(place.block + 1, second);
        match place.index.checked_sub(middle) {
            Some(index) if index > 0 => Place { block: place.block + 1, index },
            _ => place,
        }
    }

    /// Removes so many records from a place on.
    fn remove(&mut self, place: Place, count: usize) {
        let mut left = count;
        let mut end = place.block;
        let mut index = place.index;
        // Whole blocks behind the first go in one step.
        let mut whole = 0;
        while left > 0 {
            let block = &mut self.blocks[end];
            let here = left.min(block.len() - index);
            if here == block.len() {
                whole += 1;
            } else {
                block.drain(index..index + here);
                if index == 0 {
                    self.firsts[end] = block[0].0.start();
                }
            }
            left -= here;
            index = 0;
            end += 1;
        }
        let first_whole = if place.index == 0 { place.block } else { place.block + 1 };
        if whole > 0 {
            self.blocks.drain(first_whole..first_whole + whole);
            self.firsts.drain(first_whole..first_whole + whole);
        }
        // What was shortened lies at most one block behind the place, and most blocks are too large to be
        // joined.
        let is_small = |block: usize| self.blocks.get(block).is_none_or(|block| block.len() < MERGED_RECORDS);
        if is_small(place.block) || is_small(place.block + 1) {
            self.merge_blocks(place.block + 1);
            self.merge_blocks(place.block);
            self.merge_blocks(place.block.saturating_sub(1));
        }
    }

    /// Joins a block and the next if both together are small.
    fn merge_blocks(&mut self, block: usize) {
        let Some([first, second]) = self.blocks.get_mut(block..block + 2) else { return };
        if first.len() + second.len() <= MERGED_RECORDS {
            first.append(second);
            self.blocks.remove(block + 1);
            self.firsts.remove(block + 1);
        }
    }

    /// Cuts the record that has bytes on both sides of `offset` in two, which breaks the rule that equal
    /// neighbours are one: the next change around there must restore it.
    pub fn split(&mut self, offset: u64) -> Cost {
        let Some((place, (range, bits))) = self.before(self.first_from(offset)) else {
            return Cost::default();
        };
        let parts = ByteRange::new(range.start(), offset).zip(ByteRange::new(offset, range.end()));
        let Some((first, second)) = parts.filter(|(_, second)| !second.is_empty()) else {
            return Cost::default();
        };
        self.replace(place, 1, &[(first, bits), (second, bits)])
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use vlinder_base::random::{Random, SeededRandom};

    impl Records {
        fn verify(&self) {
            assert_eq!(self.firsts.len(), self.blocks.len());
            assert_eq!(self.len, self.blocks.iter().map(Vec::len).sum::<usize>());
            for (first, block) in self.firsts.iter().zip(&self.blocks) {
                assert_eq!(block.first().map(|(range, _)| range.start()), Some(*first));
                assert!(block.len() <= BLOCK_RECORDS);
            }
            for pair in self.blocks.windows(2) {
                assert!(pair.iter().map(Vec::len).sum::<usize>() > MERGED_RECORDS, "small neighbours");
            }
        }
    }

    fn record(number: u64) -> Record {
        (ByteRange::with_length(number * 10, 5).unwrap(), StateBits(1))
    }

    /// The records of sorted numbers, changed at random places by replacing a few with a few others, and now
    /// and then very many, against a plain array.
    #[test]
    fn blocks_split_and_join_and_equal_a_plain_array() {
        let random = SeededRandom::new(7);
        let roll = |below: u64| random.next_u64() % below;
        let (mut records, mut model) = (Records::default(), Vec::<Record>::new());
        let mut most = 0;
        for step in 0..20_000 {
            let at = roll(model.len() as u64 + 1) as usize;
            let grows = step / 2000 % 2 == 0;
            let most_present = if roll(500) == 0 { 1000 } else { 4 };
            let present = (roll(most_present) as usize).min(model.len() - at);
            let low = at.checked_sub(1).map_or(0, |before| model[before].0.start() / 10 + 1);
            let high = model.get(at + present).map_or(1 << 40, |(after, _)| after.start() / 10);
            let new = if grows { 6 } else { 2 };
            let mut numbers: Vec<u64> =
                (0..roll(new)).filter(|_| high > low).map(|_| low + roll(high - low)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let wanted: Vec<Record> = numbers.into_iter().map(record).collect();
            let place = match model.get(at) {
                Some((range, _)) => records.first_from(range.start()),
                None => records.first_from(u64::MAX),
            };
            let cost = records.replace(place, present, &wanted);
            assert_eq!(cost.allocated, wanted.len().saturating_sub(present) as u64);
            assert_eq!(cost.removed, present.saturating_sub(wanted.len()) as u64);
            model.splice(at..at + present, wanted);
            records.verify();
            most = most.max(model.len());
            if step % 50 == 0 {
                assert!(records.from(0).eq(model.iter().copied()));
                let offset = roll(high * 10 + 20);
                assert!(
                    records.from(offset).eq(model.iter().copied().filter(|(range, _)| range.end() > offset))
                );
                let touching = records.at(records.reach(offset));
                assert!(touching.eq(model.iter().copied().filter(|(range, _)| range.end() >= offset)));
            }
        }
        assert!(most > 10 * BLOCK_RECORDS, "{most}");
    }
}
