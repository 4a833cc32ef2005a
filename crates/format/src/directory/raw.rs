//! The part of a directory entry that has a fixed size.

use super::entry_type::DirectoryEntryType;
use crate::key::Key;
use crate::record::record;
use crate::types::Generation;

/// Bytes of an entry before its name.
pub const ENTRY_HEADER_SIZE: usize = EntryHeader::SIZE;

record! {
    /// What stands before an entry's name.
    #[derive(Clone, Copy)]
    pub struct EntryHeader in RawEntryHeader, 30 bytes {
        /// The key of what the name stands for.
        location: Key,
        /// The transaction that made the entry.
        transid: Generation,
        /// Bytes after the name.
        data_len: u16,
        /// Bytes of the name.
        name_len: u16,
        /// What the name stands for.
        entry_type: DirectoryEntryType,
    }
}
