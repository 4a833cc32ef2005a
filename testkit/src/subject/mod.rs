//! The file system under test, through the library: images for it, operations carried out on it, and looks at
//! all that can be seen of it.

mod bulk;
mod carry_out;
mod full;
mod image;
mod judge;
mod library_walk;
mod log_cut;
mod look;
mod memory_image;
mod order;
mod recorded;
mod run;
mod shrink;

pub use bulk::Bulk;
pub use carry_out::{Subject, Trouble};
pub use full::{FullDisk, Load, REFUSALS, stored_when_full};
pub use image::{MkfsFeatures, Recipe, open_image};
pub use judge::{both_check, own_check, own_check_all, own_check_data};
pub use library_walk::{LibraryWalkError, library_walk, list, read, without_placeholder_times};
pub use log_cut::{History, judge_by_kernel};
pub use look::{LookError, seen};
pub use memory_image::{check_image, write_image};
pub use order::OrderChecker;
pub use recorded::{CutTotals, Recorded, SmallPlan};
pub use run::{Failure, Judges, Plan, Run, Step, Totals};
pub use shrink::shrink;
