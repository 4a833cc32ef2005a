//! Inode items: what `stat` shows of a file.

mod fault;
mod flags;
mod item;
mod mode;
mod rules;
mod timestamp;

pub use fault::InodeFault;
pub use flags::InodeFlags;
pub use item::InodeItem;
pub use mode::{DeviceNumber, FileType, GroupId, Mode, UserId};
pub use rules::check;
pub use timestamp::Timestamp;

pub(crate) use item::lay_out;
pub(crate) use rules::is_inode_number;

#[cfg(test)]
mod tests;
