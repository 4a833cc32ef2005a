//! Extents: what is allocated, and what refers to it. All of it lies in the extent tree.
//!
//! | item | key | data |
//! |---|---|---|
//! | EXTENT_ITEM | (logical, 168, length) | header; for tree blocks also first key and level; inline references |
//! | METADATA_ITEM | (logical, 169, level) | header; inline references (feature skinny-metadata) |
//! | TREE_BLOCK_REF | (logical, 176, root) | nothing |
//! | EXTENT_DATA_REF | (logical, 178, hash) | root, inode, offset, count; 28 bytes |
//! | SHARED_BLOCK_REF | (logical, 182, parent block) | nothing |
//! | SHARED_DATA_REF | (logical, 184, parent leaf) | count |
//!
//! An extent's references are inline as long as they fit ([`most_item_bytes`]) and items of their own after
//! that; `references` of the header counts all of them. Inline references are sorted by type ascending; in
//! one type by their root, parent, or hash *descending*. Linux adds none inline once the extent has any in
//! items of their own.
//!
//! A data reference's offset is the file offset minus the offset into the extent, and may wrap below 0.

mod encoding;
mod fault;
mod flags;
mod item;
mod reference;
mod rules;

pub use encoding::{InlineReferences, decode_shared_data_count};
pub use fault::ExtentFault;
pub use flags::ExtentFlags;
pub use item::{ExtentHeader, ExtentItem, TreeBlockInfo, most_item_bytes};
pub use reference::{DataReference, Reference};
pub use rules::check_key_reference;

pub(crate) use encoding::lay_out_reference;
pub(crate) use item::lay_out;
pub(crate) use rules::check;

#[cfg(test)]
mod tests;
