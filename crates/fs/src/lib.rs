//! POSIX over Btrfs: inodes, directories, links, files, extended attributes, ACLs, subvolumes, orphans, and
//! the opening of a file system for writing.
//!
//! This crate must not know FUSE or any command line: callers are [`Caller`]s, requests are method calls.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Filesystem`] (the handle, which `opening` opens) gives views: [`Names`],
//! [`InodeAttributes`], [`FileContent`], [`Subvolumes`]. A view borrows what its operations need: [`Rights`]
//! (what a caller may do), the directory tree (what a name stands for, and where directories and subvolumes
//! lie), the inode table ([`Inode`] is what is in memory of a file, with its locks), [`Maintenance`]
//! (commits, fsync, how it fares). Then the operations by family: `create`, `link`, `unlink`, `rename`,
//! `metadata`, `extended`, `subvolume`. File *data* (extents, write-back, truncation) are the work of
//! `vlinder_data`, which [`data`] shows by file system and inode. What happens unasked is in `background`,
//! fsync in `fsync_log`. [`path`] has the interface shaped like `std::fs`.
//!
//! # Locks
//! In this order, each optional: the lock of subvolumes' places → the rename lock of the file system →
//! [`Inode::operation`] of directories, then of other inodes, several of one kind in the order of their ids
//! (a directory's ancestor before it, in rename) → the locks of files' extents and of ranges of files
//! ([`data`]) → a transaction handle → [`Inode::state`] → what is remembered for an inode's permissions.
//! `state` is never held over I/O or while a handle is begun; what the committer calls takes `state` alone,
//! never `operation`.

mod access_time;
mod acl;
mod attribute_change;
mod attribute_items;
mod attributes;
mod background;
mod backup_roots;
mod caller;
mod changes;
mod chattr;
mod closer;
mod condition;
mod create;
pub mod data;
mod dedupe;
mod direct;
mod directory;
mod error;
mod extended;
mod file;
mod filesystem;
mod fsync_log;
mod health;
mod host_retry;
mod host_room;
mod identity;
mod inode;
mod item_limit;
mod leased_state;
mod link;
mod log_replay;
mod maintenance;
mod metadata;
mod missing_codec;
pub mod mount_option;
mod name_changes;
mod name_view;
mod nearness;
mod new_file;
mod open;
mod open_data;
mod opening;
mod option_table;
mod options;
mod orphan;
pub mod path;
mod permission;
mod place_locks;
mod privileges;
mod property;
mod put_off;
mod rename;
mod replacement;
mod rescue;
mod room;
mod root_items;
pub mod salvage;
mod set_attributes;
mod stamp;
mod standing;
mod statistics;
mod subvolume;
mod switches;
mod unlink;
mod write_lock;
mod write_origin;

pub use attribute_change::AttributeMode;
pub use attributes::Attributes;
pub use caller::{Access, Caller, Capabilities};
pub use chattr::{ATTRIBUTES_BYTES, ChattrFlags};
pub use condition::Condition;
pub use create::{FileAlone, NewFileName};
pub use directory::{DirectoryRecord, OpenDirectory};
pub use error::{FsError, Refusal};
pub use file::{FileChange, FileContent};
pub use filesystem::Filesystem;
pub use health::DeviceCounter;
pub use inode::Inode;
pub use leased_state::LeasedState;
pub use maintenance::Maintenance;
pub use metadata::InodeAttributes;
pub use mount_option::OptionError;
pub use name_view::Names;
pub use nearness::Prospect;
pub use new_file::TimesAlone;
pub use open::{OpenInode, OpenMode};
pub use option_table::OPEN_OPTIONS;
pub use options::{AccessTimes, OpenOptions, Owners, SubvolumeChoice};
pub use permission::Rights;
pub use rename::RenameMode;
pub use replacement::Replacement;
pub use rescue::{RESCUE_PARTS, RescueOptions, RescuePart};
pub use set_attributes::{SetAttributes, SetTime};
pub use standing::Standing;
pub use statistics::Statistics;
pub use subvolume::{BeingReceived, Subvolume, SubvolumeInformation, Subvolumes};
pub use switches::SWITCHES;
pub use vlinder_data::{CompressOption, CompressionProperty, InodeId, InodeState};
pub use write_origin::{ContentTimes, WriteOrigin};

pub use vlinder_extent_state::ByteRange;
pub use vlinder_format::inode::{DeviceNumber, FileType, GroupId, InodeFlags, Mode, Timestamp, UserId};
pub use vlinder_format::{ObjectId, RootId, Uuid};

/// The result of an operation of this crate.
pub type Result<T, E = FsError> = std::result::Result<T, E>;
