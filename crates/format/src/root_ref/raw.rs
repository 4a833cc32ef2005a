//! The part of a reference between subvolumes that has a fixed size.

use crate::directory::DirectoryIndex;
use crate::record::record;
use crate::types::ObjectId;

record! {
    /// What stands before the name.
    #[derive(Clone, Copy)]
    pub struct RootReferenceHeader in RawRootReferenceHeader, 18 bytes {
        /// The directory in the parent subvolume.
        directory: ObjectId,
        /// The name's place in the directory's order.
        index: DirectoryIndex,
        /// Bytes of the name.
        name_len: u16,
    }
}
