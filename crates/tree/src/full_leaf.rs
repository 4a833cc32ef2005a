//! What to do with a full leaf: how much a neighbour gets of it before it is split, as in Linux, and where it
//! is split.
//!
//! The items of small files come in several sweeps over the same leaves: references, then inodes, then data.
//! Even halves would leave the left one half full for good. So that a sweep leaves full leaves behind it,
//! what is left of it gets what will fill it, and the item that lacks room may go along.

use vlinder_format::block::ITEM_HEADER_SIZE;
use vlinder_format::{Block, ItemType, Key, RootId};

/// Moving items to a neighbour pays from this part of a block on.
pub(crate) const WORTHWHILE_PART: usize = 64;

/// What lay before a write in an extent, the write, and what lay behind it. The plan counts a split for each:
/// with more items, a leaf that is split in its middle may need more blocks than were counted.
const PARTS_OF_CUT_EXTENT: usize = 3;

/// Room that an item lacks in its leaf.
pub(crate) struct Lack {
    /// Where the item is, or belongs.
    pub(crate) slot: usize,
    /// Its key.
    pub(crate) key: Key,
    /// Bytes that it needs there beyond those it has, header included.
    pub(crate) need: usize,
    /// It is there already, and grows.
    pub(crate) exists: bool,
}

/// What a leaf gives to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gift {
    /// How many items, counted from the end that faces the neighbour.
    pub(crate) items: usize,
    /// The item that lacks room belongs to the neighbour then.
    pub(crate) takes_new_item: bool,
}

/// Where the new block of a split goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafSplit {
    /// An empty leaf before this one.
    EmptyBefore,
    /// An empty leaf behind this one: appending keeps the leaves before it full.
    EmptyAfter,
    /// The items from this slot on go into a new leaf behind this one.
    At(usize),
}

/// A leaf that has no room for an item.
pub(crate) struct FullLeaf<'a> {
    pub(crate) leaf: &'a Block,
    pub(crate) lack: &'a Lack,
    /// What the change puts into the leaf, from the item that lacks room on: keys and bytes.
    pub(crate) growths: &'a [(Key, usize)],
}

impl FullLeaf<'_> {
    /// Whether the change puts several items there that others like them will follow. The parts of an extent
    /// that was cut are none: the next cut may be anywhere, and would split a full half again.
    fn is_sweep(&self) -> bool {
        let Some(((first, _), others)) = self.growths.split_first() else { return false };
        let is_part = |key: &Key| (key.objectid, key.item_type) == (first.objectid, ItemType::EXTENT_DATA);
        let is_cut_extent =
            others.len() < PARTS_OF_CUT_EXTENT && self.growths.iter().all(|(key, _)| is_part(key));
        !others.is_empty() && !is_cut_extent
    }

    /// What the leaf on the left gets, if that makes room for the item, here or there. A sweep gives what
    /// fills it with what comes between.
    pub(crate) fn gift_to_left(&self, left: &Block) -> Option<Gift> {
        if self.is_sweep() {
            return self.gift_of_sweep(left);
        }
        // The item stays where its leaf begins with its own key, or with one before it.
        let (slot, last) = (self.lack.slot, self.leaf.len().saturating_sub(1));
        let most = slot.min(last).saturating_sub(usize::from(!self.lack.exists));
        let with_new = (slot > 0 && slot <= last && !self.lack.exists).then_some(slot);
        self.as_much_as_fits(left, 0..slot.min(last), most, None, with_new)
    }

    fn gift_of_sweep(&self, left: &Block) -> Option<Gift> {
        let slot = self.lack.slot;
        let items = self.slot_where_full(left.used_bytes());
        let takes_new_item = items > slot || (items == slot && !self.lack.exists);
        if takes_new_item && self.bytes_before(slot).saturating_add(self.lack.need) <= left.free_bytes() {
            return (items > 0).then_some(Gift { items, takes_new_item });
        }
        let items = items.min(slot.saturating_sub(usize::from(!self.lack.exists)));
        self.pays(self.bytes_before(items)).then_some(Gift { items, takes_new_item: false })
    }

    /// What the leaf on the right gets, if that makes room for the item, here or there. A sweep keeps what
    /// fills this one with what comes between.
    pub(crate) fn gift_to_right(&self, right: &Block) -> Option<Gift> {
        let slot = self.lack.slot;
        let first = slot.saturating_add(usize::from(self.lack.exists)).max(1);
        let behind = |slot: usize| self.leaf.len().saturating_sub(slot);
        let full = self.is_sweep().then(|| self.slot_where_full(0)).filter(|full| *full >= first);
        let with_new = (first == slot).then(|| behind(first));
        let slots = (first..self.leaf.len()).rev();
        self.as_much_as_fits(right, slots, behind(full.unwrap_or(first)), full.map(behind), with_new)
    }

    /// What a neighbour gets of the items in these slots: as many as fit there, at most `most`, if that pays,
    /// or is `enough` for the whole change; else all `with_new` that lie between it and the item that lacks
    /// room, if that fits there, too.
    fn as_much_as_fits(
        &self,
        neighbour: &Block,
        slots: impl Iterator<Item = usize>,
        most: usize,
        enough: Option<usize>,
        with_new: Option<usize>,
    ) -> Option<Gift> {
        let room = neighbour.free_bytes();
        let (mut items, mut bytes) = (0usize, 0usize);
        let mut staying = (items, bytes);
        for slot in slots {
            let with = bytes.saturating_add(self.item_bytes(slot));
            if with > room {
                break;
            }
            (items, bytes) = (items.saturating_add(1), with);
            if items <= most {
                staying = (items, bytes);
            }
        }
        if enough.is_some_and(|enough| staying.0 >= enough) || self.pays(staying.1) {
            return Some(Gift { items: staying.0, takes_new_item: false });
        }
        let fits = with_new == Some(items) && bytes.saturating_add(self.lack.need) <= room;
        fits.then_some(Gift { items, takes_new_item: true })
    }

    /// Whether moving so many bytes makes room for the item, and is worth it.
    fn pays(&self, bytes: usize) -> bool {
        let worthwhile = self.leaf.capacity_bytes().checked_div(WORTHWHILE_PART).unwrap_or_default();
        bytes >= self.lack.need && bytes >= worthwhile
    }

    /// Where to split the leaf. Where a sweep goes through it, right where the left half will be full when
    /// the sweep has passed; else in the middle, if the item then fits its half; else right at the item, so
    /// that the next split, at an end, leaves it alone.
    pub(crate) fn split(&self) -> LeafSplit {
        let (leaf, slot) = (self.leaf, self.lack.slot);
        if !self.lack.exists && slot == leaf.len() {
            return LeafSplit::EmptyAfter;
        }
        if !self.lack.exists && slot == 0 {
            return LeafSplit::EmptyBefore;
        }
        // What the change itself puts there has to fit, too: room for one more item is used up by the next.
        let passing = self.is_sweep().then(|| self.slot_where_full(0));
        let ending = self.ends_sweep().then(|| slot_where_full(leaf, 0, &self.growths_of_sweep()));
        let full = passing.into_iter().chain(ending).min().unwrap_or(0);
        if full > 0 {
            return LeafSplit::At(full);
        }
        let (middle, left) = self.middle();
        let is_left = slot < middle || (slot == middle && !self.lack.exists);
        let half = if is_left { left } else { leaf.used_bytes().saturating_sub(left) };
        let fits = half.saturating_add(self.lack.need) <= leaf.capacity_bytes();
        if fits && middle > 0 && middle < leaf.len() {
            return LeafSplit::At(middle);
        }
        LeafSplit::At(slot.max(1))
    }

    /// Whether the item is the last of its type in the second half of a leaf: such items come in the order of
    /// their keys, each between items that are there already (the data of files that were made one after
    /// another). What lies before it gets no more of them.
    fn ends_sweep(&self) -> bool {
        // A log goes with the next commit: what counts there is in how many leaves the next items lie.
        if self.leaf.owner() == RootId::TREE_LOG {
            return false;
        }
        let Lack { slot, key, exists, .. } = *self.lack;
        let is_last = (slot..self.leaf.len()).all(|slot| self.leaf.key(slot).item_type != key.item_type);
        !exists && is_last && self.bytes_before(slot) >= self.leaf.capacity_bytes() / 2
    }

    /// What a sweep will put into the leaf: an item as large as this one for each object from here on.
    fn growths_of_sweep(&self) -> Vec<(Key, usize)> {
        let Lack { slot, key, need, .. } = *self.lack;
        let mut growths = vec![(key, need)];
        for slot in slot..self.leaf.len() {
            let objectid = self.leaf.key(slot).objectid;
            if growths.last().is_some_and(|(last, _)| last.objectid != objectid) {
                growths.push((Key { objectid, ..key }, need));
            }
        }
        growths
    }

    /// As [`slot_where_full`], with what the change puts there.
    fn slot_where_full(&self, bytes_there: usize) -> usize {
        slot_where_full(self.leaf, bytes_there, self.growths)
    }

    /// The slot where the halves of the leaf are most even, and the bytes before it.
    fn middle(&self) -> (usize, usize) {
        let half = self.leaf.used_bytes() / 2;
        let slot = first_slot(self.leaf, |slot| self.leaf.used_bytes_to(slot) > half);
        let left = self.bytes_before(slot);
        if slot == self.leaf.len() {
            return (slot, left);
        }
        let with = self.leaf.used_bytes_to(slot);
        let rounds_up = with.saturating_sub(half) < half.saturating_sub(left);
        if rounds_up { (slot.saturating_add(1), with) } else { (slot, left) }
    }

    fn bytes_before(&self, slot: usize) -> usize {
        slot.checked_sub(1).map_or(0, |last| self.leaf.used_bytes_to(last))
    }

    fn item_bytes(&self, slot: usize) -> usize {
        item_bytes(self.leaf, slot)
    }
}

/// The first slot of a leaf whose item does not fit where so many bytes lie already, when that place has got
/// the growths before it.
fn slot_where_full(leaf: &Block, bytes_there: usize, growths: &[(Key, usize)]) -> usize {
    let is_too_much = |slot: usize| {
        let key = leaf.key(slot);
        let grown = growths.iter().take_while(|(grown, _)| *grown <= key).map(|(_, growth)| *growth);
        let growth = grown.fold(bytes_there, usize::saturating_add);
        growth.saturating_add(leaf.used_bytes_to(slot)) > leaf.capacity_bytes()
    };
    first_slot(leaf, is_too_much).min(leaf.len().saturating_sub(1))
}

/// The first slot for which something is true that is true for all slots behind it; the number of items where
/// there is none.
fn first_slot(leaf: &Block, is_behind: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, leaf.len());
    while low < high {
        let middle = low.midpoint(high);
        if is_behind(middle) {
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    low
}

/// What an item takes, with its header.
fn item_bytes(leaf: &Block, slot: usize) -> usize {
    leaf.data_len(slot).saturating_add(ITEM_HEADER_SIZE)
}
