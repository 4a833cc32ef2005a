//! The UUID tree against the subvolumes that it names. It is in the order of UUIDs, which is none: what it
//! says is put in the order of the subvolumes and compared by going along both; what is found then is told
//! where it stands in the tree.

use std::iter::Peekable;

use vlinder_format::uuid_item::{self, UuidKind};
use vlinder_format::{ItemType, Key, Logical, ObjectId, Place, RootId};

use crate::check_state::CheckState;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::roots::{FoundRoot, Roots};
use crate::sorted::{Pass, Sorter};
use crate::walk::{ItemVisitor, walk};

/// That a subvolume has the UUID of an item's key.
struct Claim {
    subvolume: RootId,
    /// How many claims stand before it.
    number: u64,
    /// How many findings were listed when it came.
    listed: u64,
    leaf: Logical,
    slot: u64,
    key: Key,
}

/// In a list.
type Row = [u64; 8];

impl Claim {
    /// For a list in the order of subvolumes.
    fn by_subvolume(&self) -> Row {
        let [number, subvolume, rest @ ..] = self.by_number();
        let mut row = [subvolume, number, 0, 0, 0, 0, 0, 0];
        row.iter_mut().skip(2).zip(rest).for_each(|(place, value)| *place = value);
        row
    }

    /// For a list in the order of the tree.
    fn by_number(&self) -> Row {
        let Key { objectid, item_type, offset } = self.key;
        [
            self.number,
            self.subvolume.0,
            self.listed,
            self.leaf.0,
            self.slot,
            objectid.0,
            u64::from(item_type.0),
            offset,
        ]
    }

    fn from_number([number, subvolume, listed, leaf, slot, objectid, item_type, offset]: Row) -> Self {
        let item_type = ItemType(u8::try_from(item_type).unwrap_or(0));
        let key = Key::new(ObjectId(objectid), item_type, offset);
        Self { subvolume: RootId(subvolume), number, listed, leaf: Logical(leaf), slot, key }
    }

    fn from_subvolume([subvolume, number, rest @ ..]: Row) -> Self {
        let [listed, leaf, slot, objectid, item_type, offset] = rest;
        Self::from_number([number, subvolume, listed, leaf, slot, objectid, item_type, offset])
    }

    fn place(&self) -> Place {
        Place {
            tree: Some(RootId::UUID_TREE),
            block: Some(self.leaf),
            slot: u32::try_from(self.slot).ok(),
            key: Some(self.key),
        }
    }
}

/// The UUID tree, while it is read.
struct UuidTree {
    found: u64,
    claims: Sorter<Row>,
}

impl ItemVisitor for UuidTree {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        if uuid_item::uuid_of(&item.key).is_none() {
            return;
        }
        for subvolume in uuid_item::decode(item.data).into_iter().flatten() {
            let claim = Claim {
                subvolume,
                number: self.found,
                listed: u64::try_from(context.report.findings.len()).unwrap_or(u64::MAX),
                leaf: item.leaf.logical(),
                slot: u64::try_from(item.slot).unwrap_or(u64::MAX),
                key: item.key,
            };
            self.claims.add(claim.by_subvolume());
            self.found = self.found.saturating_add(1);
        }
    }
}

/// Whether a subvolume has the UUID that is claimed. Claims come in the order of subvolumes.
struct RootCursor<'a> {
    roots: Peekable<Pass<'a, FoundRoot>>,
    last: Option<FoundRoot>,
}

impl RootCursor<'_> {
    fn agrees(&mut self, claim: &Claim) -> bool {
        while let Some(root) = self.roots.next_if(|root| root.id <= claim.subvolume) {
            self.last = Some(root);
        }
        let root = self.last.filter(|root| root.id == claim.subvolume);
        root.zip(uuid_item::uuid_of(&claim.key)).is_some_and(|(root, (kind, uuid))| match kind {
            UuidKind::Own => root.uuid == uuid,
            UuidKind::Received => root.received_uuid == uuid,
        })
    }
}

/// Reads the UUID tree, if there is one.
pub(crate) fn judge(context: &mut CheckState<'_>, roots: &Roots) {
    let Some(tree) = roots.get(RootId::UUID_TREE) else { return };
    let mut uuids = UuidTree { found: 0, claims: context.sorter() };
    walk(context, &tree, &mut uuids);
    let mut known = RootCursor { roots: roots.iter().peekable(), last: None };
    let mut odd = context.sorter();
    for claim in uuids.claims.finish().iter().map(Claim::from_subvolume) {
        if !known.agrees(&claim) && !roots.faulty.has_root(claim.subvolume) {
            odd.add(claim.by_number());
        }
    }
    let odd = odd.finish();
    let mut odd = odd.iter().map(Claim::from_number).peekable();
    // What was listed since the first of them comes after it.
    let Some(first) = odd.peek().map(|claim| claim.listed) else { return };
    let at = usize::try_from(first).unwrap_or(usize::MAX).min(context.report.findings.len());
    let listed = context.report.findings.split_off(at);
    for (number, finding) in (first..).zip(listed) {
        while let Some(claim) = odd.next_if(|claim| claim.listed <= number) {
            context.find(FindingKind::UuidEntry { root: claim.subvolume }, claim.place());
        }
        context.find(finding.kind, finding.place);
    }
    for claim in odd {
        context.find(FindingKind::UuidEntry { root: claim.subvolume }, claim.place());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_comes_back_from_either_row() {
        let key = Key::new(ObjectId(1 << 60 | 7), ItemType::UUID_SUBVOLUME, u64::MAX - 1);
        let claim =
            Claim { subvolume: RootId(256), number: 3, listed: 4, leaf: Logical(1 << 50), slot: 6, key };
        let row = [3, 256, 4, 1 << 50, 6, 1 << 60 | 7, u64::from(ItemType::UUID_SUBVOLUME.0), u64::MAX - 1];
        assert_eq!(claim.by_number(), row);
        for back in [Claim::from_number(row), Claim::from_subvolume(claim.by_subvolume())] {
            assert_eq!((back.by_number(), back.place()), (row, claim.place()));
        }
        let [first, second, ..] = claim.by_subvolume();
        assert_eq!((first, second), (256, 3));
    }
}
