//! Directory items: names in a directory, and extended attributes, which share one shape.
//!
//! | key | tree | entries |
//! |---|---|---|
//! | (directory, DIR_ITEM, hash of the name) | subvolume, log, root tree | one for each name with that hash |
//! | (directory, DIR_INDEX, index) | subvolume, log | one |
//! | (inode, XATTR_ITEM, hash of the name) | subvolume, log | one for each name with that hash |
//!
//! ```text
//! 0          17        25            27            29     30
//! | location | transid | data length | name length | type | name … | data … | next entry …
//! ```
//! The location is the key of what the name stands for: an inode item, or a root item (offset 2^64 - 1) for a
//! subvolume; all zero for an attribute. Source: `struct btrfs_dir_item`.

mod entry;
mod entry_type;
mod fault;
mod index;
mod name;
mod raw;
mod rules;

pub use entry::{DirectoryEntries, DirectoryEntry, attribute_key, find, index_key, item_key, remove};
pub use entry_type::DirectoryEntryType;
pub use fault::DirectoryFault;
pub use index::DirectoryIndex;
pub use name::{LONGEST_NAME, is_file_name};
pub use raw::ENTRY_HEADER_SIZE;
pub use rules::{check, largest_entry_bytes};

pub(crate) use entry::lay_out;

#[cfg(test)]
mod tests;
