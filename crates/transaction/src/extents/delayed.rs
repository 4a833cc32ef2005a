//! Delayed references: changes of who refers to an extent, gathered in memory and written to the extent tree
//! by the commit (the second of the four knots: allocating a block changes the extent tree, whose blocks are
//! allocated too).
//!
//! Invariants:
//! 1. A head exists only while some change of its extent is not yet in the extent tree.
//! 2. `fresh` heads have no item in the extent tree yet; every other head has one.
//! 3. A change and its opposite cancel; a head left without changes goes, unless it is fresh.
//! 4. Only the committer takes heads out, while no handle is open.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use vlinder_forest::Referrer;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{Key, Level, Logical, RootId};

use super::reference_changes::ReferenceChanges;
use vlinder_space::Charge;

/// What an extent holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// File data.
    Data,
    /// A tree block.
    TreeBlock {
        /// Its height.
        level: Level,
        /// Its first key when it was allocated, for items without skinny metadata.
        first_key: Key,
        /// The tree that made it.
        owner: RootId,
    },
}

impl ExtentKind {
    /// Whether it holds file data.
    pub fn is_data(&self) -> bool {
        matches!(self, Self::Data)
    }
}

/// All pending changes of one extent.
#[derive(Clone, Debug)]
pub struct Head {
    /// Where the extent lies.
    pub logical: Logical,
    /// Its bytes.
    pub length: u64,
    /// What it holds.
    pub kind: ExtentKind,
    /// The extent has no item in the extent tree yet.
    pub fresh: bool,
    /// The block's children become referenced by its address.
    pub becomes_full: bool,
    /// Two who refer to the extent named different lengths or kinds: the disk contradicts itself.
    pub is_disputed: bool,
    /// References more (or fewer) than the extent tree knows.
    pub changes: ReferenceChanges,
}

impl Head {
    /// References more (or fewer) in all.
    pub fn net(&self) -> i64 {
        self.changes.iter().map(|(_, change)| change).sum()
    }
}

/// The pending changes of all extents.
#[derive(Default)]
pub struct DelayedReferences {
    heads: BTreeMap<Logical, Head>,
    /// Of each tree block whose references changed in this transaction: how often.
    versions: HashMap<Logical, u64>,
    /// Of data extents that live on: the references that a commit took from the extent tree and that are in
    /// the last durable one, how many of each.
    dropped: HashMap<Logical, BTreeMap<Referrer, i64>>,
    /// What writing all heads may change in the trees.
    charge: Charge,
    /// All that was ever added to that.
    grown: Charge,
    /// Bytes of data whose checksums fill a quarter of a leaf, as full as one is at least.
    checksum_leaf_bytes: u64,
}

/// Bytes that one more reference takes in the extent tree at most: an item of its own, with its header.
pub(crate) const MAX_REFERENCE_BYTES: usize = 53 + 25;

/// Leaves full of the checksums of one extent, at most; the disk tells its length. (No device holds such an
/// extent, and no checksum tree has so many blocks.)
const MAX_CHECKSUM_LEAVES: u64 = 1 << 31;

/// A data extent whose items may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TouchedExtent {
    pub(crate) logical: Logical,
    pub(crate) length: u64,
    /// By how many bytes its references may grow.
    pub(crate) growth_bytes: usize,
    /// It may be allocated or freed.
    pub(crate) moves_space: bool,
}

/// What writing a head may change: its references, and where it is of data the extent's free space and
/// checksums.
fn charge_of(head: &Head, checksum_leaf_bytes: u64) -> Charge {
    let count = head.changes.len();
    if !head.kind.is_data() {
        let block_references = count.max(1);
        return Charge { block_references, block_places: u64::from(!head.fresh), ..Charge::default() };
    }
    let added = head.changes.added();
    // A change of references alone leaves space and checksums as they are; an extent that keeps a referrer is
    // not freed.
    let moves_space = head.fresh || added == 0;
    let leaves = head.length / checksum_leaf_bytes;
    Charge {
        added_references: added.max(u64::from(head.fresh)),
        dropped_references: (count - added).max(u64::from(count == 0)),
        extents: u64::from(moves_space),
        // Those of a new extent were put in with it.
        checksums: if moves_space && added == 0 { 1 + leaves.min(MAX_CHECKSUM_LEAVES) } else { 0 },
        ..Charge::default()
    }
}

impl DelayedReferences {
    /// None, of a file system with such checksums.
    pub(crate) fn new(checksums: ChecksumGeometry) -> Self {
        let quarter = usize::try_from(checksums.node_size / 4).unwrap_or(usize::MAX);
        Self { checksum_leaf_bytes: checksums.covered(quarter).max(1), ..Self::default() }
    }

    /// Changes the references of an extent. `fresh` when this is the first reference to a new extent.
    pub fn change(
        &mut self,
        logical: Logical,
        length: u64,
        kind: ExtentKind,
        referrer: Referrer,
        by: i64,
        fresh: bool,
    ) {
        if matches!(kind, ExtentKind::TreeBlock { .. }) {
            let version = self.versions.entry(logical).or_default();
            *version = version.wrapping_add(1);
        }
        let new = || Head {
            logical,
            length,
            kind,
            fresh,
            becomes_full: false,
            is_disputed: false,
            changes: ReferenceChanges::default(),
        };
        let mut before = Charge::default();
        let mut entry = match self.heads.entry(logical) {
            Entry::Occupied(entry) => {
                before = charge_of(entry.get(), self.checksum_leaf_bytes);
                entry
            }
            Entry::Vacant(entry) => entry.insert_entry(new()),
        };
        self.charge -= before;
        let head = entry.get_mut();
        head.is_disputed |= head.length != length || head.kind.is_data() != kind.is_data();
        head.changes.add(referrer, by);
        if head.changes.is_empty() && !head.fresh && !head.becomes_full && !head.is_disputed {
            entry.remove();
        } else {
            let charge = charge_of(head, self.checksum_leaf_bytes);
            self.charge += charge;
            self.grown += charge.growth_since(before);
        }
    }

    /// The block's children are referenced by its address from now on.
    pub fn set_full(&mut self, logical: Logical, length: u64, kind: ExtentKind) {
        let head = match self.heads.entry(logical) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let head = entry.insert(Head {
                    logical,
                    length,
                    kind,
                    fresh: false,
                    becomes_full: false,
                    is_disputed: false,
                    changes: ReferenceChanges::default(),
                });
                let charge = charge_of(head, self.checksum_leaf_bytes);
                self.charge += charge;
                self.grown += charge;
                head
            }
        };
        head.becomes_full = true;
        let version = self.versions.entry(logical).or_default();
        *version = version.wrapping_add(1);
    }

    /// Forgets a fresh extent that lost its last reference before it was ever written. Gives whether it was
    /// one.
    pub fn cancel_fresh(&mut self, logical: Logical) -> bool {
        let cancelled = self.heads.get(&logical).is_some_and(|head| head.fresh && head.net() == 0);
        if cancelled && let Some(head) = self.heads.remove(&logical) {
            self.charge -= charge_of(&head, self.checksum_leaf_bytes);
        }
        cancelled
    }

    /// The pending changes of one extent.
    pub fn head(&self, logical: Logical) -> Option<&Head> {
        self.heads.get(&logical)
    }

    /// How often the references of a block changed in this transaction.
    pub fn version(&self, logical: Logical) -> u64 {
        self.versions.get(&logical).copied().unwrap_or_default()
    }

    /// Takes out up to `count` heads, in address order.
    pub fn take(&mut self, count: usize) -> Vec<Head> {
        let mut heads = Vec::with_capacity(count.min(self.heads.len()));
        while heads.len() < count
            && let Some((_, head)) = self.heads.pop_first()
        {
            self.charge -= charge_of(&head, self.checksum_leaf_bytes);
            heads.push(head);
        }
        heads
    }

    /// What writing all heads may change in the trees.
    pub(crate) fn charge(&self) -> Charge {
        self.charge
    }

    /// All that was ever added to [`charge`](Self::charge).
    pub(crate) fn grown(&self) -> Charge {
        self.grown
    }

    /// Where the items of data extents may change: the extents, by how many bytes their references may grow,
    /// and whether the extents come or go.
    pub(crate) fn touched_data(&self) -> Vec<TouchedExtent> {
        let touched = |head: &Head| TouchedExtent {
            logical: head.logical,
            length: head.length,
            growth_bytes: usize::try_from(charge_of(head, 1).added_references)
                .unwrap_or(usize::MAX)
                .saturating_mul(MAX_REFERENCE_BYTES),
            moves_space: charge_of(head, 1).extents > 0,
        };
        self.heads.values().filter(|head| head.kind.is_data()).map(touched).collect()
    }

    /// Places of tree blocks that came or went.
    pub(crate) fn block_places(&self) -> Vec<Logical> {
        self.heads.values().filter(|head| !head.kind.is_data()).map(|head| head.logical).collect()
    }

    /// How many extents have changes pending.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Remembers the references that a data extent loses in the commit under way, until that is durable.
    pub fn remember_dropped(&mut self, head: &Head) {
        for (referrer, change) in head.changes.iter().filter(|(_, change)| *change < 0) {
            *self.dropped.entry(head.logical).or_default().entry(referrer).or_default() -= change;
        }
    }

    /// The commit is durable.
    pub fn forget_dropped(&mut self) {
        self.dropped.clear();
    }

    /// How many references beside `own` a data extent lost that a power cut would bring back: in the running
    /// transaction, and in a commit that is not durable yet.
    pub fn lost_beside(&self, logical: Logical, own: Referrer) -> i64 {
        let pending = self.heads.get(&logical).into_iter().flat_map(|head| head.changes.iter());
        let pending = pending.filter(|(referrer, change)| *referrer != own && *change < 0);
        let committing = self.dropped.get(&logical).into_iter().flatten();
        let committing = committing.filter(|(referrer, _)| **referrer != own);
        pending.map(|(_, change)| -change).chain(committing.map(|(_, lost)| *lost)).sum()
    }

    /// A new transaction begins: nothing may be pending any more.
    pub fn begin_transaction(&mut self) {
        assert!(self.heads.is_empty(), "a transaction ended with {} extents pending", self.heads.len());
        self.versions.clear();
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::checksum_item::ChecksumGeometry;

    use vlinder_format::ObjectId;

    use super::*;

    /// As the disk may tell it.
    #[test]
    fn extents_of_any_length_are_charged_and_given_back() {
        let geometry = ChecksumGeometry { checksum_size: 4, sector_size: 4096, node_size: 16 << 10 };
        let mut delayed = DelayedReferences::new(geometry);
        let lengths = [0, 1, 4096, 1 << 30, 1 << 63, u64::MAX - 4095, u64::MAX];
        let change = |delayed: &mut DelayedReferences, by| {
            for (number, length) in (0..).zip(lengths) {
                let referrer = Referrer::File { root: RootId(5), inode: ObjectId(256), offset: 0 };
                delayed.change(Logical(number), length, ExtentKind::Data, referrer, by, false);
            }
        };
        change(&mut delayed, -1);
        let charge = delayed.charge();
        assert_eq!((charge.dropped_references, charge.extents), (7, 7));
        assert_eq!(delayed.touched_data().len(), lengths.len());
        // The first three, a GiB by leaves of 4 MiB, and the bound three times.
        let leaf_bytes = geometry.covered(4 << 10);
        assert_eq!(charge.checksums, 7 + (1 << 30) / leaf_bytes + 3 * MAX_CHECKSUM_LEAVES);
        change(&mut delayed, 1);
        assert_eq!(delayed.charge(), Charge::default());
    }
}
