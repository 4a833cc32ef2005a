//! Names: each is in its directory twice (by hash, and by order of creation) and in its inode once, and all three agree.

use std::collections::BTreeSet;

use twox_hash::XxHash64;
use vlinder_format::directory::{DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::{ItemType, Key, ObjectId, Place, RootId};

use crate::context::Context;
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::ledger::{Balance, Fact, Said, Side};

/// What is compared of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Between {
    /// The index (claims) and the inode's own reference (records): the place in the index counts.
    IndexAndInode(DirectoryIndex),
    /// The entry by hash (claims) and the index (records).
    HashAndIndex,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameFact {
    directory: ObjectId,
    /// Stands for the name.
    name: u64,
    between: Between,
    child: ObjectId,
    child_type: ItemType,
    entry_type: DirectoryEntryType,
}

impl Fact for NameFact {
    type Form = [u8; 43];

    fn subject(&self) -> u64 {
        self.directory.0.rotate_left(32) ^ self.name
    }

    fn form(&self) -> [u8; 43] {
        let (between, index) = match self.between {
            Between::IndexAndInode(index) => (0, index.0),
            Between::HashAndIndex => (1, 0),
        };
        let mut bytes = [0; 43];
        let numbers = [self.directory.0, self.name, index, self.child.0];
        let parts = numbers.iter().flat_map(|number| number.to_le_bytes());
        let parts = parts.chain([between, self.child_type.0, self.entry_type.0]);
        for (place, byte) in bytes.iter_mut().zip(parts) {
            *place = byte;
        }
        bytes
    }
}

/// The names of a subvolume.
pub(crate) type Names = Balance<NameFact>;

/// A number that stands for a name.
pub(crate) fn number_of(name: &[u8]) -> u64 {
    XxHash64::oneshot(0, name)
}

/// What is said of names, on the way: only summed, or kept for an explanation.
#[derive(Clone, Debug)]
pub(crate) enum NameSink {
    /// The sum of what is claimed less what is recorded: 0 where both agree.
    Sum {
        /// Of the whole check: sums of different parts add up.
        secret: u64,
        /// The sum so far.
        sum: u64,
    },
    /// All that was said.
    Facts(Vec<(Side, NameFact)>),
}

impl NameSink {
    fn add(&mut self, side: Side, fact: NameFact) {
        match self {
            Self::Sum { secret, sum } => {
                let hash = XxHash64::oneshot(*secret, &fact.form());
                *sum = match side {
                    Side::Claimed => sum.wrapping_add(hash),
                    Side::Recorded => sum.wrapping_sub(hash),
                };
            }
            Self::Facts(facts) => facts.push((side, fact)),
        }
    }

    fn add_entry(
        &mut self,
        side: Side,
        between: Between,
        (directory, name): (ObjectId, u64),
        entry: &DirectoryEntry<'_>,
    ) {
        let Key { objectid: child, item_type: child_type, .. } = entry.location;
        self.add(
            side,
            NameFact { directory, name, between, child, child_type, entry_type: entry.entry_type },
        );
    }

    /// An entry by hash.
    pub(crate) fn add_hashed(&mut self, directory: ObjectId, entry: &DirectoryEntry<'_>) {
        let name = (directory, number_of(entry.name));
        self.add_entry(Side::Claimed, Between::HashAndIndex, name, entry);
    }

    /// An entry of the index.
    pub(crate) fn add_indexed(
        &mut self,
        directory: ObjectId,
        index: DirectoryIndex,
        entry: &DirectoryEntry<'_>,
    ) {
        let name = (directory, number_of(entry.name));
        self.add_entry(Side::Recorded, Between::HashAndIndex, name, entry);
        if entry.location.item_type == ItemType::INODE_ITEM {
            self.add_entry(Side::Claimed, Between::IndexAndInode(index), name, entry);
        }
    }

    /// An inode's own reference to a name.
    pub(crate) fn add_reference(
        &mut self,
        directory: ObjectId,
        index: DirectoryIndex,
        name: &[u8],
        child: ObjectId,
        entry_type: DirectoryEntryType,
    ) {
        let fact = NameFact {
            directory,
            name: number_of(name),
            between: Between::IndexAndInode(index),
            child,
            child_type: ItemType::INODE_ITEM,
            entry_type,
        };
        self.add(Side::Recorded, fact);
    }
}

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

/// Reports the names that were collected and do not agree, one finding for each and each thing that it leads to.
pub(crate) fn explain(context: &mut Context<'_>, tree: RootId, names: &mut Names, faulty: &Faulty) {
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
