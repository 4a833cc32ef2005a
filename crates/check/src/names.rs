//! Names: each is in its directory twice (by hash, and by order of creation) and in its inode once, and all
//! three agree.

use std::collections::BTreeSet;

use vlinder_format::directory::DirectoryEntryType;
use vlinder_format::{ItemType, Key, ObjectId, Place, RootId};

use crate::check_state::CheckState;
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::ledger::Said;
use crate::name_fact::Between;
use crate::name_fact::NameFact;
use crate::name_fact::Names;

impl Faulty {
    /// Whether what lacks may be said by an item that breaks a rule.
    fn may_say(&self, fact: &NameFact, is_claimed: bool) -> bool {
        let NameFact { directory, child, .. } = *fact;
        match (fact.between, is_claimed) {
            (Between::IndexAndInode(_), true) => {
                self.has(child, ItemType::INODE_REF, directory.0)
                    || self.has_any(child, ItemType::INODE_EXTREF)
            }
            (Between::IndexAndInode(index), false) => self.has_index(directory, index),
            // The names of inodes go by what these say of the index.
            (Between::HashAndIndex, true) => {
                fact.child_type != ItemType::INODE_ITEM && self.has_any(directory, ItemType::DIR_INDEX)
            }
            (Between::HashAndIndex, false) => self.has_any(directory, ItemType::DIR_ITEM),
        }
    }
}

/// Those of one name that do not agree, but for what items that break a rule may say.
fn odd_of<'a>(of_name: &'a [Said<NameFact>], faulty: &Faulty) -> Vec<&'a Said<NameFact>> {
    let mut odd: Vec<_> = of_name.iter().filter(|said| said.claimed != said.recorded).collect();
    if faulty.is_empty() {
        return odd;
    }
    // What the index lacks by the inode's word, and by the hash then too.
    let lacking: BTreeSet<ObjectId> = odd
        .iter()
        .filter(|said| matches!(said.fact.between, Between::IndexAndInode(_)))
        .filter(|said| said.recorded > said.claimed && faulty.may_say(&said.fact, false))
        .map(|said| said.fact.child)
        .collect();
    odd.retain(|said| {
        let is_claimed = said.claimed > said.recorded;
        let is_hashed = said.fact.between == Between::HashAndIndex;
        let is_lacking = is_claimed && is_hashed && lacking.contains(&said.fact.child);
        !is_lacking && !faulty.may_say(&said.fact, is_claimed)
    });
    // An inode whose item breaks a rule knows its names, and not its type.
    let but_for_type =
        |said: &Said<NameFact>| NameFact { entry_type: DirectoryEntryType::UNKNOWN, ..said.fact };
    let groups = odd.chunk_by(|left, right| but_for_type(left) == but_for_type(right));
    let agrees = |group: &[&Said<NameFact>]| {
        group.iter().any(|said| said.claimed > said.recorded)
            && group.iter().any(|said| said.recorded > said.claimed)
            && group.iter().all(|said| faulty.has(said.fact.child, ItemType::INODE_ITEM, 0))
    };
    groups.filter(|group| !agrees(group)).flatten().copied().collect()
}

/// Reports the names that were collected and do not agree, one finding for each and each thing that it leads
/// to.
pub(crate) fn explain(context: &mut CheckState<'_>, tree: RootId, names: &mut Names, faulty: &Faulty) {
    let said = names.take();
    for of_name in said.chunk_by(|left, right| {
        (left.fact.directory, left.fact.name) == (right.fact.directory, right.fact.name)
    }) {
        let mut told: BTreeSet<(ObjectId, &str)> = BTreeSet::new();
        for said in odd_of(of_name, faulty) {
            let reason = match (said.fact.between, said.claimed > said.recorded) {
                (Between::IndexAndInode(_), true) => "is not in the inode as it is in the directory's index",
                (Between::IndexAndInode(_), false) => "is not in the directory's index as it is in the inode",
                (Between::HashAndIndex, true) => "is not in the directory's index as it is by its hash",
                (Between::HashAndIndex, false) => {
                    "is not there by its hash as it is in the directory's index"
                }
            };
            let (directory, child) = (said.fact.directory, said.fact.child);
            if told.insert((child, reason)) {
                let place = Place {
                    tree: Some(tree),
                    key: Some(Key::new(directory, ItemType::DIR_ITEM, 0)),
                    ..Place::default()
                };
                context.list(FindingKind::Name { directory, child, reason }, place);
            }
        }
    }
}
