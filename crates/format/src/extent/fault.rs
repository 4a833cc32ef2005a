//! What can be wrong with an extent item, or with a reference to an extent.

use super::flags::ExtentFlags;
use super::reference::Reference;
use crate::key::ItemType;
use crate::types::{Generation, Logical};

/// How an extent item or a reference can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentFault {
    /// Too few bytes for what the item must have, or not the size of a reference's item.
    #[error("the extent item or reference has the impossible size {found}")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// An extent item of 4 bytes, as file systems before 2009 had.
    #[error("an extent item of the format before 2009, which no current program reads")]
    Ancient,
    /// An inline reference is cut off by the end of the item, or bytes are left over.
    #[error("the last {left} bytes of the extent item are no inline reference")]
    CutOff {
        /// Bytes from the start of the reference to the end of the item.
        left: usize,
    },
    /// An inline reference of a type that is none.
    #[error("the extent item has an inline reference of type {found}")]
    UnknownReference {
        /// Its type.
        found: ItemType,
    },
    /// A metadata item without feature skinny-metadata.
    #[error("a metadata item without feature skinny-metadata")]
    SkinnyFeature,
    /// The extent starts between sectors.
    #[error("the extent starts at {found}, which is no multiple of the sector size")]
    Start {
        /// Object id of the key.
        found: Logical,
    },
    /// No tree is that high.
    #[error("a tree block of level {found}")]
    Level {
        /// In the key or the item.
        found: u64,
    },
    /// Newer than the newest possible transaction.
    #[error("the extent is of generation {found}, newer than {newest}")]
    Generation {
        /// In the item.
        found: Generation,
        /// The newest possible.
        newest: Generation,
    },
    /// Neither data nor tree block, or both, or data with full back references, or a data extent as metadata
    /// item.
    #[error("the extent has the impossible flags 0x{:x}", .found.0)]
    Flags {
        /// In the item.
        found: ExtentFlags,
    },
    /// The length is not that of a tree block, not of whole sectors, or the end is past the last address.
    #[error("the extent has the impossible length {found}")]
    Length {
        /// Offset of the key.
        found: u64,
    },
    /// A reference's parent lies between sectors.
    #[error("a reference by parent {found}, which is no multiple of the sector size")]
    Parent {
        /// In the reference.
        found: Logical,
    },
    /// A data reference whose root has no data, whose inode is no inode, whose offset lies between sectors or
    /// whose count is 0.
    #[error("an impossible data reference: {found:?}")]
    DataReference {
        /// The reference.
        found: Reference,
    },
    /// An inline reference is of the other kind than the extent: to data in a tree block, or the reverse.
    #[error("a reference of type {found} to an extent of the other kind")]
    Kind {
        /// Its type.
        found: ItemType,
    },
    /// Inline references are not sorted.
    #[error("an inline reference of type {found} out of order")]
    Order {
        /// Its type.
        found: ItemType,
    },
    /// More references inline than in all.
    #[error("{inline} references are inline, but only {total} in all")]
    Count {
        /// Sum of the inline references.
        inline: u64,
        /// In the header.
        total: u64,
    },
    /// The extent before ends past the start.
    #[error("the extent at {start} begins before {previous_end}, where the one before it ends")]
    Overlap {
        /// Object id of the key.
        start: Logical,
        /// End of the extent before.
        previous_end: Logical,
    },
    /// A file or a parent block names the extent with another length, or takes it for another kind, than the
    /// extent tree or someone else who refers to it.
    #[error("the extent is referred to as one of another length or kind than it has; check the file system")]
    Disagreement,
    /// A reference to be dropped is not there, or counts less.
    #[error("there is no such reference to drop: {wanted:?}")]
    NoSuchReference {
        /// What was to be dropped.
        wanted: Reference,
    },
    /// The count of references can't grow by what is to be added.
    #[error("the extent counts {found} references, and can't have one more; check the file system")]
    TooManyReferences {
        /// In the item.
        found: u64,
    },
}
