//! Btrfs without the kernel: file systems in images and on block devices are made, read, written, snapshotted
//! and checked, in the real format on disk. What this library writes, Linux mounts.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = vlinder_testkit::Scratch::new("doc");
//! # let path = scratch.join("disk.img");
//! use vlinder::Image;
//!
//! let image = Image::create(&path, 1 << 30)?;
//! image.create_dir_all("/home/me")?;
//! image.write("/home/me/greeting", "hello")?;
//! image.subvolumes().read_only_snapshot("/", "/yesterday")?;
//! image.close()?;
//!
//! let image = Image::open(&path)?;
//! assert_eq!(image.read_to_string("/yesterday/home/me/greeting")?, "hello");
//! image.close()?;
//! assert!(vlinder::check(&path)?.is_clean());
//! # Ok(())
//! # }
//! ```
//!
//! # Where to begin
//! [`Image`] is an open file system, with functions shaped like those of `std::fs`. [`OpenOptions`] says how
//! to open one, [`MkfsOptions`] how to make one, and [`CheckOptions`] how to check one. A [`File`] is read
//! and written as any other of Rust. Every error is an [`Error`], whose [`kind`](Error::kind) a program can
//! look at.
//!
//! Paths are from the root of the file system, whether they begin with a slash or not. Symbolic links are
//! followed as system calls follow them, absolute ones from that root. The caller acts as root does: modes
//! and owners of files are stored, and forbid nothing.
//!
//! # What is durable, and when
//! [`Image::close`], [`Image::sync`] and [`File::sync_all`] return when what was done before is on the
//! device. An image that is dropped without `close` commits, too; but nobody hears of an error then, so that
//! it says so in a warning (by `tracing`).
//!
//! One driver at a time: an image that another process has open is refused ([`ErrorKind::Busy`]), and a mount
//! of Linux is refused, too. But Linux does not know that an image is open here: don't mount it meanwhile.
//!
//! # Features
//! All are on by default. `zstd`, `zlib` and `lzo` are the compressions: without one, data of that kind are
//! neither read nor written, with an error that names the feature. Without `io-uring`, requests to the host
//! go through a pool of threads alone.
//!
//! This crate must not know FUSE, nor show a type of another crate of the workspace: those are inner crates,
//! whose interfaces may change with any release.

mod advice;
mod attribute_changes;
mod check;
mod compression;
mod directory;
mod error;
mod error_kind;
mod file;
mod format_choices;
mod image;
mod image_paths;
mod metadata;
mod mkfs;
mod open_options;
mod opening;
mod subvolume;
mod subvolumes;
mod time;
mod unsaved;
mod usage;
mod uuid;
mod xattrs;

pub use attribute_changes::AttributeChanges;
pub use check::{CheckOptions, CheckReport, Finding, Severity, check};
pub use compression::Compression;
pub use directory::{DirEntry, ReadDir};
pub use error::{Error, Result};
pub use error_kind::ErrorKind;
pub use file::{File, FileOptions};
pub use format_choices::{Checksum, Profile};
pub use image::Image;
pub use metadata::{FileType, Metadata};
pub use mkfs::{MkfsOptions, MkfsReport};
pub use open_options::OpenOptions;
pub use subvolume::SubvolumeInfo;
pub use subvolumes::Subvolumes;
pub use usage::Usage;
pub use uuid::Uuid;
pub use xattrs::Xattrs;

/// The examples of the package's own page run, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackagePage;
