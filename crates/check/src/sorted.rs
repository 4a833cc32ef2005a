//! Lists in order that may be larger than memory: sorted part by part, written to temporary space, and
//! merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vlinder_base::sync::{Arc, Mutex};

use crate::store::Store;

/// Bytes that are read at once: a look-up wants one record of them, a pass all.
const BLOCK_BYTES: usize = 16 << 10;
/// Blocks of a list that are kept in memory once they were read.
const KEPT_BLOCKS: usize = 64;

/// What lists are of: of fixed size, and in an order.
pub(crate) trait Record: Copy + Ord {
    /// Its size in temporary space.
    const BYTES: usize;

    /// Appends its bytes.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// From its bytes, of which there are as many as it has.
    fn decode(bytes: &[u8]) -> Self;

    /// Takes in a record that is not below this one, if the two are one.
    fn absorb(&mut self, next: &Self) -> bool;
}

/// Plain numbers: each row of them stands once.
impl<const COUNT: usize> Record for [u64; COUNT] {
    const BYTES: usize = size_of::<Self>();

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut numbers = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        core::array::from_fn(|_| numbers.next().unwrap_or(0))
    }

    fn absorb(&mut self, next: &Self) -> bool {
        self == next
    }
}

fn records_of_a_block<R: Record>() -> usize {
    BLOCK_BYTES.checked_div(R::BYTES).unwrap_or(1).max(1)
}

/// A list that is being made. Records may come in any order; those that come in order are written once.
pub(crate) struct Sorter<R> {
    store: Store,
    /// Records that are held in memory.
    most: usize,
    held: Vec<R>,
    held_in_order: bool,
    written: Vec<Vec<Block<R>>>,
    /// Each part that was written lies behind the one before.
    parts_in_order: bool,
}

impl<R: Record> Sorter<R> {
    /// An empty list that holds so many bytes in memory; any number, where there is no temporary space.
    pub(crate) fn new(store: &Store, most_bytes: usize) -> Self {
        let most = most_bytes.checked_div(size_of::<R>()).unwrap_or(0).max(2);
        Self {
            store: store.clone(),
            most: if store.is_there() { most } else { usize::MAX },
            held: Vec::new(),
            held_in_order: true,
            written: Vec::new(),
            parts_in_order: true,
        }
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, record: R) {
        if self.absorbs(&record) {
            return;
        }
        if self.held.len() >= self.most {
            self.write();
            // Another one is the last now.
            if self.absorbs(&record) {
                return;
            }
        }
        self.held_in_order &= self.held.last().is_none_or(|last| *last <= record);
        self.held.push(record);
    }

    /// Whether a record is one with the last.
    fn absorbs(&mut self, record: &R) -> bool {
        self.held.last_mut().is_some_and(|last| *last <= *record && last.absorb(record))
    }

    /// Puts what is held in order.
    fn sort(&mut self) {
        if !core::mem::replace(&mut self.held_in_order, true) {
            self.held.sort_unstable();
            self.held.dedup_by(|next, kept| kept.absorb(next));
        }
    }

    /// Writes what is held, but for the last, which may go on.
    fn write(&mut self) {
        self.sort();
        let last = self.held.pop();
        self.write_held();
        self.held.extend(last);
    }

    fn write_held(&mut self) {
        let Some(first) = self.held.first().copied() else { return };
        let before = self.written.last().and_then(|part| part.last()).map(|block| block.last);
        self.parts_in_order &= before.is_none_or(|mut before| before < first && !before.absorb(&first));
        let mut blocks = Vec::new();
        for records in self.held.chunks(records_of_a_block::<R>()) {
            let mut bytes = Vec::with_capacity(BLOCK_BYTES);
            records.iter().for_each(|record| record.encode(&mut bytes));
            // What is lost is known to the store.
            if let (Some(place), Some(last)) = (self.store.append(&bytes), records.last()) {
                blocks.push(Block { place, records: records.len(), last: *last });
            }
        }
        self.written.push(blocks);
        self.held.clear();
    }

    /// The list.
    pub(crate) fn finish(mut self) -> Sorted<R> {
        self.sort();
        if self.written.is_empty() {
            return Sorted::held(self.held);
        }
        self.write_held();
        self.held = Vec::new();
        let parts = core::mem::take(&mut self.written);
        if self.parts_in_order {
            return Sorted::written(self.store, parts.into_iter().flatten().collect(), KEPT_BLOCKS);
        }
        let parts: Vec<Sorted<R>> =
            parts.into_iter().map(|blocks| Sorted::written(self.store.clone(), blocks, 1)).collect();
        // In order they come, so that this ends.
        let mut merged = Self { held_in_order: true, parts_in_order: true, ..self };
        let mut passes: Vec<_> = parts.iter().map(|part| part.iter().peekable()).collect();
        let mut next: BinaryHeap<Reverse<(R, usize)>> = passes
            .iter_mut()
            .enumerate()
            .filter_map(|(number, pass)| Some(Reverse((*pass.peek()?, number))))
            .collect();
        while let Some(Reverse((record, number))) = next.pop() {
            merged.add(record);
            let following = passes.get_mut(number).and_then(|pass| {
                pass.next();
                pass.peek()
            });
            next.extend(following.map(|record| Reverse((*record, number))));
        }
        drop(passes);
        merged.finish()
    }
}

/// Records in temporary space.
#[derive(Clone, Copy)]
struct Block<R> {
    place: u64,
    records: usize,
    last: R,
}

/// A block that was read, and its number.
type Kept<R> = Option<(usize, Arc<[R]>)>;

/// A list in order.
pub(crate) struct Sorted<R> {
    held: Vec<R>,
    store: Store,
    blocks: Vec<Block<R>>,
    /// By block, modulo their number.
    kept: Vec<Mutex<Kept<R>>>,
}

impl<R: Record> Default for Sorted<R> {
    fn default() -> Self {
        Self::held(Vec::new())
    }
}

impl<R: Record> Sorted<R> {
    fn held(held: Vec<R>) -> Self {
        Self { held, store: Store::new(None), blocks: Vec::new(), kept: Vec::new() }
    }

    fn written(store: Store, blocks: Vec<Block<R>>, most_kept: usize) -> Self {
        let kept = (0..most_kept.min(blocks.len())).map(|_| Mutex::new(None)).collect();
        Self { held: Vec::new(), store, blocks, kept }
    }

    /// The records of a block.
    fn block(&self, number: usize) -> Option<Arc<[R]>> {
        let block = self.blocks.get(number)?;
        let mut kept = self.kept.get(number.checked_rem(self.kept.len())?)?.lock();
        if let Some((_, records)) = kept.as_ref().filter(|(kept, _)| *kept == number) {
            return Some(Arc::clone(records));
        }
        let bytes = self.store.read(block.place, block.records.saturating_mul(R::BYTES))?;
        let records: Arc<[R]> = bytes.chunks_exact(R::BYTES).map(R::decode).collect();
        *kept = Some((number, Arc::clone(&records)));
        Some(records)
    }

    /// All records, in order.
    pub(crate) fn iter(&self) -> Pass<'_, R> {
        self.from(|_| false)
    }

    /// The records from the first one on for which this does not hold; it holds for none behind one for which
    /// it doesn't.
    pub(crate) fn from(&self, is_before: impl Fn(&R) -> bool) -> Pass<'_, R> {
        let held = self.held.get(self.held.partition_point(&is_before)..).unwrap_or_default();
        let number = self.blocks.partition_point(|block| is_before(&block.last));
        let records = self.block(number);
        let slot = records.as_ref().map_or(0, |records| records.partition_point(is_before));
        Pass { sorted: self, held, number, records, slot }
    }
}

/// A pass over a list.
pub(crate) struct Pass<'a, R> {
    sorted: &'a Sorted<R>,
    held: &'a [R],
    number: usize,
    records: Option<Arc<[R]>>,
    slot: usize,
}

impl<R: Record> Iterator for Pass<'_, R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        if let Some((first, rest)) = self.held.split_first() {
            self.held = rest;
            return Some(*first);
        }
        loop {
            let records = self.records.as_ref()?;
            if let Some(record) = records.get(self.slot) {
                self.slot = self.slot.saturating_add(1);
                return Some(*record);
            }
            self.number = self.number.saturating_add(1);
            self.records = self.sorted.block(self.number);
            self.slot = 0;
        }
    }
}

/// The next bytes, which there are.
pub(crate) fn take<const BYTES: usize>(bytes: &mut &[u8]) -> [u8; BYTES] {
    let (first, rest) = bytes.split_first_chunk().unwrap_or((&[0; BYTES], &[]));
    *bytes = rest;
    *first
}

#[cfg(test)]
mod tests {
    use vlinder_device::MemoryDevice;

    use super::*;
    use crate::store::StoreError;

    fn store(length: u64) -> Store {
        Store::new(Some(Arc::new(MemoryDevice::new(length))))
    }

    fn list(store: &Store, most_bytes: usize, numbers: &[u64]) -> Sorted<[u64; 1]> {
        let mut sorter = Sorter::new(store, most_bytes);
        numbers.iter().for_each(|number| sorter.add([*number]));
        sorter.finish()
    }

    #[test]
    fn lists_are_in_order_wherever_they_lie() {
        let ascending: Vec<u64> = (0..20_000).map(|number| number * 3).collect();
        // Every number twice, and far from in order.
        let mixed: Vec<u64> = (0..40_000u64).map(|number| number * 7_919 % 20_000 * 3).collect();
        let mostly: Vec<u64> =
            ascending.iter().copied().filter(|number| *number != 3).chain([3, 0]).collect();
        for numbers in [&ascending, &mixed, &mostly] {
            for most_bytes in [16, 800, 40_000, 100_000, usize::MAX] {
                let space = store(64 << 20);
                let sorted = list(&space, most_bytes, numbers);
                assert_eq!(space.failure(), None);
                assert!(sorted.iter().map(|[number]| number).eq(ascending.iter().copied()), "{most_bytes}");
                for start in [0, 1, 2999, 30_000, 59_996, 59_997, 59_998] {
                    let found = sorted.from(|[number]| *number < start).next().map(|[number]| number);
                    assert_eq!(found, ascending.iter().copied().find(|number| *number >= start));
                }
            }
        }
    }

    #[test]
    fn in_order_all_is_written_once() {
        let space = store(8 * 20_000);
        let ascending: Vec<u64> = (0..20_000).collect();
        assert!(list(&space, 1000, &ascending).iter().map(|[number]| number).eq(ascending));
        assert_eq!(space.failure(), None);
    }

    #[test]
    fn too_little_space_is_told() {
        let space = store(100_000);
        list(&space, 1000, &(0..20_000).collect::<Vec<u64>>());
        assert!(space.has_failed());
        assert_eq!(space.failure(), Some(StoreError::Full { most_bytes: 100_000 }));
    }
}
