//! What directories and inodes say of names.

use twox_hash::XxHash64;
use vlinder_format::directory::{DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::{ItemType, Key, ObjectId};

use crate::ledger::{Balance, Fact, Side};

/// What is compared of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Between {
    /// The index (claims) and the inode's own reference (records): the place in the index counts.
    IndexAndInode(DirectoryIndex),
    /// The entry by hash (claims) and the index (records).
    HashAndIndex,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameFact {
    pub(crate) directory: ObjectId,
    /// Stands for the name.
    pub(crate) name: u64,
    pub(crate) between: Between,
    pub(crate) child: ObjectId,
    pub(crate) child_type: ItemType,
    pub(crate) entry_type: DirectoryEntryType,
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
