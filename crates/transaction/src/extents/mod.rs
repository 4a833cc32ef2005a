//! Extents: what is allocated and who refers to it, pending in memory ([`delayed`]) and in the extent tree
//! ([`tree`]).

pub mod delayed;
pub(crate) mod leaf_extents;
mod reference_changes;
pub mod tree;
