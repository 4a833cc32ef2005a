//! What can be wrong with references from an inode to its names.

use crate::directory::LONGEST_NAME;
use crate::types::ObjectId;

/// How an INODE_REF or INODE_EXTREF can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeReferenceFault {
    /// The item has no room for a name.
    #[error("{found} bytes hold no name")]
    Empty {
        /// Bytes of the item.
        found: usize,
    },
    /// The item ends inside an entry's header.
    #[error("the item ends {found} bytes into an entry's header")]
    Header {
        /// Bytes up to the end of the item.
        found: usize,
    },
    /// The item ends inside a name.
    #[error("a name of {found} bytes in an item that ends after {available}")]
    Name {
        /// In the entry.
        found: usize,
        /// Bytes up to the end of the item.
        available: usize,
    },
    /// A name of no bytes or too many.
    #[error("a name of {found} bytes; 1 to {LONGEST_NAME} are allowed")]
    NameLength {
        /// In the entry.
        found: usize,
    },
    /// The inode's item is missing: another inode's item comes before.
    #[error("preceded by an item of inode {found}, not by the inode's own")]
    MissingInode {
        /// Object id of the item before.
        found: ObjectId,
    },
}
