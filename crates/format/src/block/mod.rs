//! One tree block: a header, and either items (a leaf) or pointers to children (a node).
//!
//! A [`Block`] always holds `node_size` bytes whose structure was validated or built here, so its accessors
//! cannot leave the bytes. What the item data mean is for the item families.
//!
//! ```text
//! 0      32    48      56     64               80          88     96      100    101
//! | csum | fsid | bytenr | flags | chunk tree uuid | generation | owner | nritems | level | ...
//! leaf: 25-byte item headers (key, data offset, data size) grow up, item data grow down from the end
//! node: 33-byte pointers (key, logical, generation)
//! ```

mod edit;
mod entries;
mod header;
mod identity;
mod offsets;
mod tree_block;
mod validate;

pub use edit::{ChildrenMut, ItemsMut};
pub use entries::ChildPointer;
pub use header::BlockHeader;
pub use identity::{BackReferenceRevision, BlockIdentity};
pub use offsets::{BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN, HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE};
pub use tree_block::Block;
pub use validate::{BlockFault, BlockRules};

#[cfg(test)]
mod tests;
