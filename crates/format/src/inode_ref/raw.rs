//! The parts of references that have a fixed size.

use crate::directory::DirectoryIndex;
use crate::record::record;
use crate::types::ObjectId;

/// Bytes of a name's entry in an INODE_REF before the name.
pub const REFERENCE_HEADER_SIZE: usize = ReferenceHeader::SIZE;
/// Bytes of a name's entry in an INODE_EXTREF before the name.
pub const EXTENDED_HEADER_SIZE: usize = ExtendedHeader::SIZE;

record! {
    /// What stands before a name in an INODE_REF.
    #[derive(Clone, Copy)]
    pub struct ReferenceHeader in RawReferenceHeader, 10 bytes {
        /// Place in the directory's order.
        index: DirectoryIndex,
        /// Bytes of the name.
        name_len: u16,
    }
}

record! {
    /// What stands before a name in an INODE_EXTREF.
    #[derive(Clone, Copy)]
    pub struct ExtendedHeader in RawExtendedHeader, 18 bytes {
        /// The directory.
        parent: ObjectId,
        /// Place in the directory's order.
        index: DirectoryIndex,
        /// Bytes of the name.
        name_len: u16,
    }
}
