//! What files, directories, subvolumes and sets of them take, and what deleting them frees.

mod against_deletion;
mod costs;
mod kernel_deletes;
mod lies;
mod support;
mod trees_and_names;
mod wrong_counts;
