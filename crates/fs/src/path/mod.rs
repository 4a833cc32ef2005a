//! An interface shaped like `std::fs`: paths instead of inodes, [`File`] with `Read`, `Write` and `Seek`.
//!
//! Paths are from the root of the file system, whether they begin with a slash or not. Symbolic links are
//! followed as system calls follow them, absolute ones from that root.
//!
//! ```standalone_crate
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = vlinder_testkit::Scratch::new("doc");
//! # vlinder_testkit::golden::unpack("empty", &directory.join("disk.img"))?;
//! # std::env::set_current_dir(directory.path())?;
//! use vlinder_fs::path::Files;
//!
//! let files = Files::open("disk.img")?;
//! files.create_dir_all("/home/me")?;
//! files.write("/home/me/greeting", "hello")?;
//! assert_eq!(files.read_to_string("/home/me/greeting")?, "hello");
//! files.close()?;
//! # let again = vlinder_fs::Filesystem::open(&["disk.img"], vlinder_fs::OpenOptions::read_only())?;
//! # assert_eq!(Files::new(again, vlinder_fs::Caller::superuser()).read("/home/me/greeting")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! A file is read and written as any other of Rust:
//!
//! ```standalone_crate
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = vlinder_testkit::Scratch::new("doc");
//! # vlinder_testkit::golden::unpack("empty", &directory.join("disk.img"))?;
//! # std::env::set_current_dir(directory.path())?;
//! use std::io::{Read, Seek, SeekFrom, Write};
//! use vlinder_fs::path::Files;
//!
//! let files = Files::open("disk.img")?;
//! let mut file = files.options().read(true).write(true).create(true).open("/log")?;
//! file.seek(SeekFrom::End(0))?;
//! writeln!(file, "one more line")?;
//! file.sync_all()?;
//!
//! for entry in files.read_dir("/")? {
//!     let entry = entry?;
//!     println!("{} {} bytes", entry.file_name().display(), entry.metadata()?.len());
//! }
//! files.snapshot("/", "/yesterday", true)?;
//! assert_eq!(files.read_to_string("/yesterday/log")?, "one more line\n");
//! # Ok(())
//! # }
//! ```

mod directory;
mod error;
mod file;
mod files;
mod metadata;
mod resolve;
mod tree;

pub use directory::{DirEntry, ReadDir};
pub use file::{File, FileOptions};
pub use files::Files;
pub use metadata::Metadata;
