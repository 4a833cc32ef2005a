//! The command `vlinder`: verbs over images and mounts, which composes the crates below.
//!
//! This crate must not know the format's structures beyond single numbers and names that a verb takes or
//! prints, and holds no file-system logic. What the verbs stand on, one call of the command and what its
//! arguments name, is the crate `vlinder-places`; the verbs that examine what may be damaged are the crate
//! `vlinder-examine`.
//!
//! Reading path: [`command`] (which program the call name asks for, and its verbs), then one module for each
//! family of verbs. A file imports only from layers above its own in this table, or from lower files of its
//! own:
//!
//! | layer | modules |
//! |---|---|
//! | verbs | [`files`], [`subvolume`], [`filesystem`], [`property`], [`send`], [`receive`], [`diff`], [`stream`], … |
//! | programs | [`command`], [`other_btrfs`] |

mod command;
mod diff;
mod files;
mod filesystem;
mod fsck;
mod fstrim;
mod generate;
mod limits;
mod log;
mod mistake;
mod mkfs;
mod mount;
mod option_help;
mod other_btrfs;
mod property;
mod receive;
mod send;
mod source_size;
mod stats;
mod stream;
mod subvolume;
mod umount;
mod version;

use std::process::ExitCode;

/// Decision 10 has the measurements.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    log::start();
    limits::outlive_file_size();
    command::main(std::env::args_os().collect())
}
