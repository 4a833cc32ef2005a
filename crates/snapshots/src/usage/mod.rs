//! What files, directories, subvolumes and sets of them take, and what deleting them would free.
//!
//! Reading path: [`UsageReader`]; [`DeletionSet`] (which inodes and subvolumes go), `deletion` (what that
//! frees); `subvolume_usage` and `listing` (the columns of `btrfs filesystem du`), `shared_path` (which
//! leaves of a tree are shared).

mod block_set;
mod blocks;
mod counts;
mod coverage;
mod deletion;
mod deletion_set;
mod dropped;
mod error;
mod extent_items;
mod file_runs;
mod listing;
mod names;
mod number_set;
mod range_list;
mod reader;
mod root_sets;
mod shared_blocks;
mod shared_path;
mod subvolume_usage;

pub use deletion::{Freed, FreedExtent};
pub use deletion_set::DeletionSet;
pub use error::{ExtentKind, UsageError};
pub use listing::{EachLine, Usage, UsageLine};
pub use names::UsageTarget;
pub use reader::UsageReader;
