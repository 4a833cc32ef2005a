//! References from an inode to its names.
//!
//! An INODE_REF, key (inode, INODE_REF, directory), holds the names of an inode in one directory, as many as
//! fit a leaf:
//!
//! ```text
//! 0       8             10
//! | index | name length | name … | next name …
//! ```
//! Those that do not fit go into INODE_EXTREFs (feature extended_iref), key (inode, INODE_EXTREF, hash of
//! directory and name), which hold the names with one hash:
//!
//! ```text
//! 0           8       16            18
//! | directory | index | name length | name … | next name …
//! ```
//! Both lie in subvolume and log trees, the first in the root tree too. Source: `struct btrfs_inode_ref`,
//! `struct btrfs_inode_extref`.

mod fault;
mod names;
mod raw;
mod rules;

pub use fault::InodeReferenceFault;
pub use names::{
    ExtendedReference, ExtendedReferences, InodeReference, InodeReferences, extended_key, find,
    find_extended, key, remove, remove_extended,
};
pub use raw::{EXTENDED_HEADER_SIZE, REFERENCE_HEADER_SIZE};
pub use rules::{check, check_extended};

pub(crate) use names::{lay_out, lay_out_extended};

#[cfg(test)]
mod tests;
