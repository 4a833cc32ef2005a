//! A set of tree blocks: one bit for each sector of the chunks that hold metadata, in pages of which those
//! that are used least lie in temporary space.

use std::collections::{BTreeMap, btree_map::Entry};

use vlinder_base::sync::Mutex;
use vlinder_format::Logical;

use crate::store::Store;

/// Words of a page: 4 KiB, which is 128 MiB of addresses with sectors of 4 KiB.
const PAGE_WORDS: usize = 512;
const PAGE_BYTES: usize = PAGE_WORDS * 8;
const PAGE_BITS: u64 = 1 << 15;

/// The bits of one run of addresses.
#[derive(Debug)]
struct Page {
    words: Box<[u64; PAGE_WORDS]>,
    /// Not as in temporary space.
    is_changed: bool,
    /// Since it was last passed over.
    is_used: bool,
}

impl Page {
    fn empty() -> Self {
        Self { words: Box::new([0; PAGE_WORDS]), is_changed: false, is_used: true }
    }

    /// The bits of a word.
    #[allow(clippy::indexing_slicing, reason = "the number is brought below that of the words")]
    fn word(&mut self, number: usize) -> &mut u64 {
        &mut self.words[number % PAGE_WORDS]
    }

    fn encode(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut page = Self::empty();
        for (word, bytes) in page.words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        page
    }
}

/// Where a page's bit lies.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    word: usize,
    bit: u64,
}

/// Pages by number: a page's first address, in pages.
struct Pages {
    store: Store,
    /// Pages that are held in memory.
    most: usize,
    held: BTreeMap<u64, Page>,
    /// Where in temporary space a page has its place.
    written: BTreeMap<u64, u64>,
    /// The number that is looked at next when one must go.
    hand: u64,
}

impl Pages {
    /// A page with its bits, if any of them was ever set. One that is lost is known to the store.
    fn find(&mut self, number: u64) -> Option<&mut Page> {
        if !self.held.contains_key(&number) {
            let place = *self.written.get(&number)?;
            let page = Page::decode(&self.store.read(place, PAGE_BYTES)?);
            self.make_room();
            self.held.insert(number, page);
        }
        let page = self.held.get_mut(&number)?;
        page.is_used = true;
        Some(page)
    }

    /// A page with its bits; one without any where none was ever set, or where they are lost.
    fn find_or_begin(&mut self, number: u64) -> &mut Page {
        if self.find(number).is_none() {
            self.make_room();
        }
        self.held.entry(number).or_insert_with(Page::empty)
    }

    /// Puts away as many pages as it takes to hold one more.
    fn make_room(&mut self) {
        while self.held.len() >= self.most {
            self.put_away_one();
        }
    }

    /// Puts away the next page that was not used since it was passed over last.
    fn put_away_one(&mut self) {
        loop {
            let next = self.held.range_mut(self.hand..).next();
            let Some((&number, page)) = next else {
                self.hand = 0;
                continue;
            };
            self.hand = number.saturating_add(1);
            if !core::mem::replace(&mut page.is_used, false) {
                if let Some(page) = self.held.remove(&number).filter(|page| page.is_changed) {
                    self.write(number, &page);
                }
                return;
            }
        }
    }

    fn write(&mut self, number: u64, page: &Page) {
        match self.written.entry(number) {
            Entry::Occupied(place) => self.store.rewrite(*place.get(), &page.encode()),
            Entry::Vacant(place) => {
                if let Some(written) = self.store.append(&page.encode()) {
                    place.insert(written);
                }
            }
        }
    }
}

/// A set of block addresses. Addresses outside the chunks that it was made for are never members.
pub(crate) struct BlockSet {
    sector_size: u64,
    /// First byte and length.
    chunks: BTreeMap<u64, u64>,
    pages: Mutex<Pages>,
}

impl BlockSet {
    /// An empty set over chunks, each its first byte and length, that holds so many bytes in memory; any
    /// number, where there is no temporary space.
    pub(crate) fn new(
        sector_size: u32,
        chunks: impl Iterator<Item = (Logical, u64)>,
        store: &Store,
        most_bytes: usize,
    ) -> Self {
        let most = if store.is_there() { (most_bytes / PAGE_BYTES).max(1) } else { usize::MAX };
        let pages =
            Pages { store: store.clone(), most, held: BTreeMap::new(), written: BTreeMap::new(), hand: 0 };
        Self {
            sector_size: u64::from(sector_size.max(1)),
            chunks: chunks.map(|(start, length)| (start.0, length)).collect(),
            pages: Mutex::new(pages),
        }
    }

    /// Blocks of this chunk may be members from now on.
    pub(crate) fn add_chunk(&mut self, start: Logical, length: u64) {
        self.chunks.entry(start.0).or_insert(length);
    }

    /// Without members again.
    pub(crate) fn clear(&mut self) {
        let pages = self.pages.get_mut();
        pages.held.clear();
        pages.written.clear();
    }

    fn place(&self, logical: Logical) -> Option<Place> {
        let (start, length) = self.chunks.range(..=logical.0).next_back()?;
        logical.0.checked_sub(*start).filter(|offset| offset < length)?;
        let sector = logical.0.checked_div(self.sector_size)?;
        let in_page = sector % PAGE_BITS;
        Some(Place {
            page: sector / PAGE_BITS,
            word: usize::try_from(in_page / 64).ok()?,
            bit: 1 << (in_page % 64),
        })
    }

    /// Adds a block; false if it was there, or is outside.
    pub(crate) fn insert(&mut self, logical: Logical) -> bool {
        let Some(Place { page, word, bit }) = self.place(logical) else { return false };
        let page = self.pages.get_mut().find_or_begin(page);
        let bits = page.word(word);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        page.is_changed |= is_new;
        is_new
    }

    /// Takes a block out.
    pub(crate) fn remove(&mut self, logical: Logical) {
        let Some(Place { page, word, bit }) = self.place(logical) else { return };
        let Some(page) = self.pages.get_mut().find(page) else { return };
        *page.word(word) &= !bit;
        page.is_changed = true;
    }

    /// Whether a block is there.
    pub(crate) fn contains(&self, logical: Logical) -> bool {
        let Some(Place { page, word, bit }) = self.place(logical) else { return false };
        self.pages.lock().find(page).is_some_and(|page| *page.word(word) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vlinder_base::random::{Random, SeededRandom};
    use vlinder_base::sync::Arc;
    use vlinder_device::MemoryDevice;

    use super::*;

    #[test]
    fn a_set_knows_its_blocks_and_nothing_outside() {
        let chunks = [(Logical(1 << 20), 1 << 20), (Logical(8 << 20), 1 << 16)];
        let mut set = BlockSet::new(4096, chunks.into_iter(), &Store::new(None), 0);
        assert!(set.insert(Logical(1 << 20)));
        assert!(!set.insert(Logical(1 << 20)));
        assert!(set.insert(Logical((8 << 20) + 4096)));
        assert!(set.contains(Logical((8 << 20) + 4096)) && !set.contains(Logical(8 << 20)));
        for outside in [0, (2 << 20), (8 << 20) + (1 << 16), u64::MAX] {
            assert!(!set.insert(Logical(outside)) && !set.contains(Logical(outside)), "{outside}");
        }
        set.remove(Logical(1 << 20));
        assert!(!set.contains(Logical(1 << 20)) && set.contains(Logical((8 << 20) + 4096)));
    }

    /// Terabytes of addresses with few pages in memory, against a plain set.
    #[test]
    fn pages_in_temporary_space_are_the_same_set() {
        for most in [1, 2, 7] {
            let device: Arc<dyn vlinder_device::Device> = Arc::new(MemoryDevice::new(4 << 20));
            let store = Store::new(Some(device));
            let chunks = (0..40).map(|chunk| (Logical(chunk << 36), 1 << 30));
            let mut set = BlockSet::new(4096, chunks, &store, most * PAGE_BYTES);
            let mut expected = BTreeSet::new();
            let random = SeededRandom::new(most as u64);
            let below = |bound: u64| random.next_u64() % bound;
            for step in 0..20_000 {
                let logical = (below(40) << 36) + (below(1 << 6) << 12) + (below(8) << 27);
                match below(4) {
                    0 => {
                        set.remove(Logical(logical));
                        expected.remove(&logical);
                    }
                    1 => assert_eq!(set.contains(Logical(logical)), expected.contains(&logical)),
                    _ => assert_eq!(set.insert(Logical(logical)), expected.insert(logical)),
                }
                if step == 10_000 {
                    set.clear();
                    expected.clear();
                }
                assert!(set.pages.get_mut().held.len() <= most);
            }
            assert!(set.pages.get_mut().written.len() > 300, "all pages were put away");
            assert_eq!(store.failure(), None);
        }
    }
    #[test]
    fn a_set_whose_space_is_too_small_says_so() {
        let device: Arc<dyn vlinder_device::Device> = Arc::new(MemoryDevice::new(2 * PAGE_BYTES as u64));
        let store = Store::new(Some(device));
        let mut set = BlockSet::new(4096, std::iter::once((Logical(0), 1 << 40)), &store, 0);
        for page in 0..3u64 {
            set.remove(Logical(page << 27));
            assert!(set.insert(Logical(page << 27)));
        }
        assert!(!store.has_failed(), "one in memory, two in space for two");
        assert!(set.insert(Logical(3 << 27)));
        assert!(store.has_failed());
        set.remove(Logical(1 << 50));
    }
}
