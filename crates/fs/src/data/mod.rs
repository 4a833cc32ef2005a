//! File data: extents, reading, writing, write-back, truncation, preallocation, clones, holes.
//!
//! Reading path: `extent` (one EXTENT_DATA item), `items` (those of a range), [`OpenCache`] (what an open
//! file remembers of them), [`read`] with `pieces`, `fetch`, `read_ahead` and `held`; then `runs` (bytes in
//! memory), [`FileData`], [`write()`], `flush` (bytes become extents), `rewrite` (what that means for items
//! and references, as a pure function), and the operations on whole ranges.

mod allocate;
mod allocated;
mod apply;
pub(crate) mod checksums;
mod clone;
mod error;
mod extent;
mod fetch;
mod file_data;
mod flush;
mod held;
mod in_place;
pub(crate) mod items;
mod open_cache;
mod pieces;
mod read;
mod read_ahead;
mod references;
mod replace;
mod rewrite;
mod runs;
mod seek;
mod truncate;
mod verity;
mod write;
mod write_back;

pub use crate::sectors::MAX_FILE_SIZE;
pub use allocate::{Allocate, allocate};
pub use clone::{clone_range, copy_range};
pub use error::{DataError, DataFault};
pub use file_data::FileData;
pub use flush::{flush, flush_ahead, flush_all, flush_replaced, flush_subvolume};
pub use held::Stretch;
pub use open_cache::OpenCache;
pub use read::{read, read_data};
pub use seek::{MappedExtent, Seek, extent_map, seek};
pub use truncate::{remove_all, truncate};
pub use write::write;

pub(crate) use allocated::allocated_bytes;
pub(crate) use apply::Steps;
pub(crate) use extent::{Content, Extent};
pub(crate) use flush::{flush_idle, lock_settled, relieve, store_dirty};
pub(crate) use held::Budget as ReadAheadBudget;
pub(crate) use in_place::owns_space;
pub(crate) use replace::replace_content;
pub(crate) use rewrite::Rewrite;
pub(crate) use write::write_inside;
pub(crate) use write_back::WriteBack;
