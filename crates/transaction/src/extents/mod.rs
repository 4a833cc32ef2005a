//! Extents: what is allocated and who refers to it, pending in memory ([`delayed`]) and in the extent tree
//! ([`tree`]).

pub mod delayed;
mod reference_changes;
pub mod tree;
