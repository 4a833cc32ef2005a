//! Who uses which extent: the uses that are found in trees (claimed) against those that the extent tree has (recorded).

use core::fmt;

use vlinder_format::{Generation, Level, Logical, ObjectId, Place, RootId};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::ledger::{Fact, Said};
use crate::roots::Roots;

/// An extent: data, or a tree block of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) logical: Logical,
    pub(crate) length: u64,
    pub(crate) level: Option<Level>,
}

/// Who uses an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    /// A tree, a block of it.
    Root(RootId),
    /// A node, its child.
    Parent(Logical),
    /// A file, data; the offset is that of the extent's first byte in the file.
    File { root: RootId, inode: ObjectId, offset: u64 },
    /// A leaf, data.
    Leaf(Logical),
    /// Nobody: a tree block is of this generation, by itself and by its item.
    Made(Generation),
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => write!(formatter, "tree {root}"),
            Self::Parent(parent) => write!(formatter, "node {parent}"),
            Self::File { root, inode, offset } => {
                write!(formatter, "inode {inode} of tree {root} at offset {offset}")
            }
            Self::Leaf(leaf) => write!(formatter, "leaf {leaf}"),
            Self::Made(generation) => write!(formatter, "generation {generation}"),
        }
    }
}

impl User {
    /// The tree that it names.
    fn root(self) -> Option<RootId> {
        match self {
            Self::Root(root) | Self::File { root, .. } => Some(root),
            Self::Parent(_) | Self::Leaf(_) | Self::Made(_) => None,
        }
    }

    /// As numbers: the kind, and its three parts.
    fn numbers(self) -> [u64; 4] {
        match self {
            Self::Root(root) => [0, root.0, 0, 0],
            Self::Parent(parent) => [1, parent.0, 0, 0],
            Self::File { root, inode, offset } => [2, root.0, inode.0, offset],
            Self::Leaf(leaf) => [3, leaf.0, 0, 0],
            Self::Made(generation) => [4, generation.0, 0, 0],
        }
    }
}

/// One extent is used by one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub(crate) extent: Extent,
    pub(crate) user: User,
}

impl Fact for Use {
    type Form = [u8; 56];

    fn subject(&self) -> u64 {
        self.extent.logical.0
    }

    fn form(&self) -> [u8; 56] {
        let level = self.extent.level.map_or(u64::MAX, |level| u64::from(level.0));
        let [kind, first, second, third] = self.user.numbers();
        let numbers = [self.extent.logical.0, self.extent.length, level, kind, first, second, third];
        let mut bytes = [0; 56];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// Reports the uses that were collected and are not recorded as they are.
pub(crate) fn explain(context: &mut Context<'_>, roots: &Roots) {
    let uses = context.references.take();
    for of_extent in uses.chunk_by(|left, right| left.fact.extent == right.fact.extent) {
        let (made, used): (Vec<Said<Use>>, Vec<Said<Use>>) =
            of_extent.iter().copied().partition(|said| matches!(said.fact.user, User::Made(_)));
        explain_generation(context, &made);
        let is_recorded = used.iter().any(|said| said.recorded > 0);
        for said in used.iter().filter(|said| said.claimed != said.recorded) {
            let extent = said.fact.extent;
            let is_missing = said.claimed > said.recorded;
            let is_unknown = if is_missing {
                context.faulty_extents.has_object(ObjectId(extent.logical.0))
            } else {
                said.fact.user.root().is_some_and(|root| roots.faulty.has_root(root))
            };
            // An item that should say so is there and breaks a rule.
            if is_unknown {
                continue;
            }
            let (logical, user) = (extent.logical, said.fact.user.to_string());
            let (expected, found) = (said.claimed, said.recorded);
            let kind = if !is_recorded {
                FindingKind::ExtentMissing { logical, length: extent.length, user }
            } else if expected > found {
                FindingKind::ReferenceMissing { logical, user, expected, found }
            } else {
                FindingKind::ReferenceExtra { logical, user, expected, found }
            };
            let block = extent.level.map(|_| logical);
            context.list(kind, Place { tree: Some(RootId::EXTENT_TREE), block, ..Place::default() });
        }
    }
}

/// Reports a block that is of another generation than its item says. A block that is not reached, or has no item, is another's
/// matter.
fn explain_generation(context: &mut Context<'_>, made: &[Said<Use>]) {
    let is_odd = |said: &&Said<Use>| said.claimed != said.recorded;
    let claimed = made.iter().filter(is_odd).find(|said| said.claimed > 0).map(|said| said.fact);
    let recorded = made.iter().filter(is_odd).find(|said| said.recorded > 0).map(|said| said.fact.user);
    if let (Some(Use { extent, user: User::Made(expected) }), Some(User::Made(found))) = (claimed, recorded) {
        let block = Some(extent.logical);
        let place = Place { tree: Some(RootId::EXTENT_TREE), block, ..Place::default() };
        context.list(FindingKind::BlockGeneration { found, expected }, place);
    }
}
