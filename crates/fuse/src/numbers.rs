//! Inode numbers, which are unique in the mount although each subvolume counts for itself: there is one
//! `st_dev`.
//!
//! | file | number |
//! |---|---|
//! | in the mounted subvolume | its object id |
//! | in another | the subvolume's number × 2^40 + its object id |
//! | where either does not fit, and names whose subvolume is not there | from a table, top number × 2^40 + a count |
//!
//! The kernel names files by the same numbers, except the root of the mount, which is always 1 to it.
//!
//! Invariants, and the function that keeps each:
//! 1. Different files have different numbers, and a number leads back to its file ([`Numbers::number`],
//!    [`Numbers::file`]).
//! 2. A computed number is the same after every mount of the same subvolume ([`Numbers::number`]).
//! 3. A number from the table stays as long as the kernel remembers the file ([`Numbers::remember`],
//!    [`Numbers::forget`]), and is not given twice.

use std::collections::HashMap;

use vlinder_base::sync::Mutex;
use vlinder_fs::{InodeId, ObjectId, RootId};

use crate::transport::NodeNumber;

const OBJECT_BITS: u32 = 40;
/// The subvolume number whose files stand for those of the table.
const TABLE_ROOT: u64 = (1 << (64 - OBJECT_BITS)) - 1;

/// The numbers of a mount's files.
pub(crate) struct Numbers {
    mounted: RootId,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Named>,
    numbers: HashMap<InodeId, u64>,
    last: u64,
}

/// A file with a number from the table.
struct Named {
    id: InodeId,
    /// How often the kernel was told of it and did not say that it forgot.
    lookups: u64,
}

impl Numbers {
    /// For a mount that shows this subvolume.
    pub(crate) fn new(mounted: RootId) -> Self {
        Self { mounted, table: Mutex::default() }
    }

    /// The file that the kernel means; none for a number that was never given.
    pub(crate) fn file(&self, node: NodeNumber) -> Option<InodeId> {
        if node == NodeNumber::ROOT {
            return Some(InodeId::root_of(self.mounted));
        }
        let object = node.0 & ((1 << OBJECT_BITS) - 1);
        match node.0 >> OBJECT_BITS {
            TABLE_ROOT => self.table.lock().files.get(&node.0).map(|named| named.id),
            0 => Some(InodeId::new(self.mounted, ObjectId(object))),
            root => Some(InodeId::new(RootId(root), ObjectId(object))),
        }
    }

    /// A file's inode number (`st_ino`).
    pub(crate) fn number(&self, id: InodeId) -> u64 {
        if let Some(number) = self.computed(id) {
            return number;
        }
        let table = &mut *self.table.lock();
        let number = *table.numbers.entry(id).or_insert_with(|| {
            table.last += 1;
            TABLE_ROOT << OBJECT_BITS | table.last
        });
        table.files.entry(number).or_insert(Named { id, lookups: 0 });
        number
    }

    /// What the kernel calls a file.
    pub(crate) fn node(&self, id: InodeId) -> NodeNumber {
        if id == InodeId::root_of(self.mounted) { NodeNumber::ROOT } else { NodeNumber(self.number(id)) }
    }

    /// Whether a number stands for its file for as long only as the kernel remembers it.
    pub(crate) fn is_from_table(&self, node: NodeNumber) -> bool {
        node.0 >> OBJECT_BITS == TABLE_ROOT
    }

    /// The kernel was told of a file once more.
    pub(crate) fn remember(&self, node: NodeNumber) {
        if node.0 >> OBJECT_BITS == TABLE_ROOT
            && let Some(named) = self.table.lock().files.get_mut(&node.0)
        {
            named.lookups += 1;
        }
    }

    /// The kernel forgets so many of the times that it was told of a file.
    pub(crate) fn forget(&self, node: NodeNumber, lookups: u64) {
        if node.0 >> OBJECT_BITS != TABLE_ROOT {
            return;
        }
        let table = &mut *self.table.lock();
        let Some(named) = table.files.get_mut(&node.0) else { return };
        named.lookups = named.lookups.saturating_sub(lookups);
        if named.lookups == 0 {
            let id = named.id;
            table.files.remove(&node.0);
            table.numbers.remove(&id);
        }
    }

    fn computed(&self, id: InodeId) -> Option<u64> {
        if id.number.0 >> OBJECT_BITS != 0 || id.absent.is_some() {
            return None;
        }
        match id.root {
            root if root == self.mounted => Some(id.number.0),
            RootId(root) if root < TABLE_ROOT => Some(root << OBJECT_BITS | id.number.0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(root: u64, number: u64) -> InodeId {
        InodeId::new(RootId(root), ObjectId(number))
    }

    #[test]
    fn numbers_are_unique_and_lead_back() {
        let numbers = Numbers::new(RootId::FS_TREE);
        assert_eq!(numbers.number(id(5, 257)), 257);
        assert_eq!(numbers.number(id(256, 257)), 256 << 40 | 257);
        let all = [
            id(5, 256),
            id(5, 257),
            id(5, (1 << 40) - 1),
            id(5, 1 << 40),
            id(5, u64::MAX - 256),
            id(256, 256),
            id(256, 1 << 40),
            id((1 << 24) - 2, 300),
            id((1 << 24) - 1, 300),
            id(1 << 24, 300),
            id(u64::MAX - 256, u64::MAX - 256),
            InodeId::placeholder(RootId(256), RootId(300)),
            InodeId::placeholder(RootId(256), RootId(301)),
            InodeId::placeholder(RootId(257), RootId(300)),
        ];
        let mut given: Vec<u64> = all.iter().map(|id| numbers.number(*id)).collect();
        for (id, number) in all.iter().zip(&given) {
            assert_eq!(numbers.file(NodeNumber(*number)), Some(*id));
            assert_eq!(numbers.number(*id), *number, "the number stays");
        }
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), all.len());
        assert_eq!(numbers.node(id(5, 256)), NodeNumber::ROOT);
        assert_eq!(numbers.file(NodeNumber::ROOT), Some(id(5, 256)));
        assert_eq!(numbers.number(id(5, 256)), 256);
    }

    #[test]
    fn the_table_forgets_with_the_kernel() {
        let numbers = Numbers::new(RootId(300));
        let far = id(1 << 30, 256);
        let node = numbers.node(far);
        numbers.remember(node);
        numbers.remember(node);
        numbers.forget(node, 1);
        assert_eq!(numbers.file(node), Some(far));
        numbers.forget(node, 1);
        assert_eq!(numbers.file(node), None);
        assert_ne!(numbers.node(far), node, "a number is not given twice");
        // What is computed needs no counting.
        numbers.forget(NodeNumber(257), 5);
        assert_eq!(numbers.file(NodeNumber(257)), Some(id(300, 257)));
    }
}
