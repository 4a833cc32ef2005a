//! File data: extents, reading, writing, write-back, truncation, preallocation, clones, holes.
//!
//! A file is a [`FileNode`] here: an id, the tree of its items, its inode item, what of its data is in
//! memory. What the files of one file system share is a [`FileStore`]. Neither knows names, directories or
//! callers; `by_inode` has the functions as callers of this crate use them.
//!
//! Reading path: `extent` (one EXTENT_DATA item), `items` (those of a range), [`OpenCache`] (what an open
//! file remembers of them), [`read`](mod@read) with `pieces`, `fetch`, `reader`, `read_ahead` and `held`;
//! then `runs` (bytes in memory), [`FileData`], [`write()`], `flush` (bytes become extents), `rewrite`
//! (what that means for items and references, as a pure function), and the operations on whole ranges.

pub(crate) mod allocate;
mod allocated;
mod apply;
mod attribute_value;
mod background_wake;
mod begin;
mod by_inode;
mod bytes_error;
mod changed_ranges;
pub(crate) mod checksums;
pub(crate) mod clone;
mod compression;
mod compression_property;
mod data_options;
mod deletion_steps;
mod dirty_bytes;
mod dirty_nodes;
mod drops;
mod error;
mod extent;
mod fetch;
mod file_data;
mod file_node;
mod file_store;
mod file_tree;
pub(crate) mod flush;
mod held;
mod ids;
mod in_place;
mod inode_state;
pub(crate) mod items;
mod make_room;
mod open_cache;
mod ordered_extents;
mod own_space;
mod participant;
mod pieces;
pub(crate) mod read;
mod read_ahead;
mod read_beyond;
mod read_whole;
mod reader;
mod references;
mod refusal;
mod replace;
mod rewrite;
mod room_attempts;
mod runs;
mod sectors;
pub(crate) mod seek;
mod space_failure;
mod tries;
pub(crate) mod truncate;
mod unflushed;
mod verity;
pub(crate) mod write;
mod write_back;
mod written_extent;

pub use allocate::Allocate;
pub use by_inode::{
    allocate, clone_range, copy_range, extent_map, flush, flush_ahead, flush_all, flush_replaced,
    flush_subvolume, read, read_data, remove_all, seek, truncate, write,
};
pub use bytes_error::{BytesError, DataFault};
pub use compression_property::CompressionProperty;
pub use data_options::CompressOption;
pub use error::{DataError, Result};
pub use file_data::FileData;
pub use held::Stretch;
pub use ids::InodeId;
pub use inode_state::InodeState;
pub use open_cache::OpenCache;
pub use refusal::DataRefusal;
pub use sectors::MAX_FILE_SIZE;
pub use seek::{MappedExtent, Seek};
pub use space_failure::SpaceFailure;

pub(crate) use allocated::allocated_bytes;
pub(crate) use attribute_value::attribute_value;
pub(crate) use background_wake::Wake;
pub(crate) use begin::{begin, begin_at_once};
pub(crate) use changed_ranges::ChangedRanges;
pub(crate) use compression::{compression_property, has_feature, note_feature};
pub(crate) use compression_property::COMPRESSION_NAME;
pub(crate) use data_options::DataOptions;
pub(crate) use deletion_steps::Steps;
pub(crate) use drops::Drops;
pub(crate) use extent::{Content, Extent};
pub(crate) use file_node::FileNode;
pub(crate) use file_store::FileStore;
pub(crate) use file_tree::FileTree;
pub(crate) use make_room::{bytes_freed_by_commit, make_room};
pub(crate) use own_space::owns_space;
pub(crate) use participant::{put_dirty_inodes, take_part_in_commits};
pub(crate) use replace::replace_content;
pub(crate) use rewrite::Rewrite;
pub(crate) use tries::Tries;
pub(crate) use write::write_inside;
