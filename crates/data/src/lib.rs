//! File data: extents, reading, writing, write-back, truncation, preallocation, clones, holes.
//!
//! This crate must not know names, directories, subvolumes' places, callers or permissions: it takes a file
//! as a node, and does what it is told.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! A file is a [`FileNode`]: an id, the tree of its items, its inode item, what of its data is in memory.
//! What the files of one file system share is a [`FileStore`]. Both, with the few things that a caller may
//! ask of them, come before the functions, each of which takes the store and a node.
//!
//! Reading path: [`Extent`] (one EXTENT_DATA item), `items` (those of a range), [`OpenCache`] (what an open
//! file remembers of them), [`read`](fn@read) with `pieces`, `fetch`, `reader`, `read_ahead` and `held`;
//! then `runs` (bytes in memory), [`FileData`], [`write`](fn@write), `flush` (bytes become extents),
//! [`Rewrite`] (what that means for items and references, as a pure function), and the operations on whole
//! ranges. [`extents_in_tree`](fn@extents_in_tree) and [`StoredBytes`] read a state that stands still,
//! without a node. What finds no room is tried again by [`Tries`] and [`DeletionSteps`]; what changed without
//! a transaction comes into the next by [`put_dirty_inodes`].
//!
//! # Locks
//! The caller's operation lock of the file → the locks of the file's extents and ranges ([`FileData`] has
//! their order) → a transaction handle → [`FileNode::state`] → what is unflushed. `state` is never held over
//! I/O or while a handle is begun. What the committer calls takes `state` alone, and of the others only what
//! is free.

mod allocate;
mod allocated;
mod apply;
mod attribute_value;
mod background_wake;
mod begin;
mod bytes_error;
mod changed_ranges;
mod checksums;
mod clone;
mod compression;
mod compression_property;
mod data_options;
mod dedupe;
mod deletion_steps;
mod dirty_bytes;
mod dirty_nodes;
mod drops;
mod error;
mod extent;
mod extents_in_tree;
mod fetch;
mod file_data;
mod file_node;
mod file_store;
mod file_tree;
mod flush;
mod held;
mod ids;
mod in_place;
mod inode_state;
mod items;
mod make_room;
mod open_cache;
mod ordered_extents;
mod own_space;
mod participant;
mod pieces;
mod read;
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
mod seek;
mod space_failure;
mod stored_bytes;
mod tries;
mod truncate;
mod unflushed;
mod verity;
mod write;
mod write_back;
mod written_extent;

pub use allocate::{Allocate, allocate};
pub use allocated::allocated_bytes;
pub use attribute_value::attribute_value;
pub use background_wake::{Background, Noting, Wake};
pub use begin::{begin, begin_at_once};
pub use bytes_error::{BytesError, DataFault};
pub use changed_ranges::ChangedRanges;
pub use clone::{clone_range, copy_range};
pub use compression::{compression_property, has_feature, note_feature};
pub use compression_property::{COMPRESSION_NAME, CompressionProperty};
pub use data_options::{CompressOption, DataOptions};
pub use dedupe::dedupe_range;
pub use deletion_steps::DeletionSteps;
pub use drops::Drops;
pub use error::{DataError, Result};
pub use extent::{Content, Extent, StoredExtent};
pub use extents_in_tree::extents_in_tree;
pub use file_data::{ExtentsGuard, FileData};
pub use file_node::FileNode;
pub use file_store::FileStore;
pub use file_tree::FileTree;
pub use flush::{
    EncodedBytes, flush, flush_ahead, flush_all, flush_replaced, flush_subvolume, flush_until_below_limit,
    lock_settled, store_dirty, write_encoded,
};
pub use held::Stretch;
pub use ids::InodeId;
pub use inode_state::InodeState;
pub use items::{Items, load as load_items};
pub use make_room::{bytes_freed_by_commit, make_room};
pub use open_cache::OpenCache;
pub use own_space::owns_space;
pub use participant::{put_dirty_inodes, take_part_in_commits};
pub use read::{read, read_data};
pub use refusal::DataRefusal;
pub use replace::replace_content;
pub use rewrite::{InlineHasNoParts, ItemChanges, ReferenceChange, Rewrite};
pub use sectors::MAX_FILE_SIZE;
pub use seek::{MappedExtent, Seek, extent_map, is_hole, seek};
pub use space_failure::SpaceFailure;
pub use stored_bytes::{ContentSource, StoredBytes, StoredBytesError, StoredRun};
pub use tries::Tries;
pub use truncate::{remove_all, truncate};
pub use write::{write, write_inside};
