//! A state of a file system that can be read: the trees that one superblock, lease, log or backup root
//! reaches.
//!
//! Everything that reads one consistent state works on a [`Forest`]: the running transaction's, or a leased
//! commit's. The forest finds trees by their numbers, and the users of an extent.
//!
//! This crate must not know who changes a tree, or how: it has no handles and takes no space. What the
//! running transaction has in memory beside its trees comes in through a trait ([`PendingReferences`]).
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Forest`] (how a tree is found), [`OpenTree`] (a tree and its root item), [`ExtentUsers`]
//! (from an extent to the files that show it), [`SubvolumeTree`] (inodes and names of a subvolume).

mod checksums;
mod compare;
mod error;
mod extent_users;
mod extents;
mod forest;
mod open_tree;
mod referrer;
mod root_items;
mod subvolume_tree;

pub use checksums::{ChecksumLookup, ExpectedChecksums, MissingChecksum};
pub use compare::{Difference, compare, visit_leaves_since};
pub use error::ForestError;
pub use extent_users::{ExtentUser, ExtentUsers, FoundExtent, PendingReferences};
pub use extents::ExtentWalk;
pub use forest::Forest;
pub use open_tree::OpenTree;
pub use referrer::Referrer;
pub use root_items::{find_root_item, new_root_item};
pub use subvolume_tree::{StoredName, SubvolumeTree};
