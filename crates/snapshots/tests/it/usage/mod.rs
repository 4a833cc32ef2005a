//! What files, directories, subvolumes and sets of them take, and what deleting them frees.

mod against_deletion;
mod support;
