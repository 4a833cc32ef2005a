//! The command `vlinder`: verbs over images and mounts, which composes the crates below.
//!
//! This crate must not know the format's structures beyond printing them (`inspect`), and holds no
//! file-system logic.
//!
//! Reading path: [`command`] (which program the call name asks for, and its verbs), then one module for each
//! family of verbs. A file imports only from layers above its own in this table, or from lower files of its
//! own:
//!
//! | layer | modules |
//! |---|---|
//! | words and failures | [`text`], [`failure`], [`report`] and [`output`] (what comes out), [`times`], [`units`], [`values`] |
//! | one call of the command | [`session`], [`progress`], [`tally`], [`options`] (`-o`), [`target`] (what an argument names) |
//! | what is told of a file system | [`fullness`], [`metrics`], [`condition`] |
//! | files wherever they lie | [`place`] |
//! | mounts and images | [`mounted`], [`devices`], [`leased`], [`image`] (what a verb has open) |
//! | file systems wherever they lie | [`object`] |
//! | verbs | [`files`], [`subvolume`], [`filesystem`], [`property`], [`inspect`], [`check`], [`restore`], [`send`], [`receive`], [`diff`], [`stream`], … |
//! | programs | [`command`], [`other_btrfs`] |

mod caller;
mod check;
mod command;
mod condition;
mod devices;
mod diff;
mod failure;
mod files;
mod filesystem;
mod foreign_mount;
mod fsck;
mod fstrim;
mod fullness;
mod generate;
mod image;
mod inspect;
mod interruption;
mod leased;
mod limits;
mod log;
mod metrics;
mod mistake;
mod mkfs;
mod mount;
mod mounted;
mod object;
mod option_help;
mod options;
mod other_btrfs;
mod output;
mod path_filter;
mod patterns;
mod place;
mod progress;
mod property;
mod receive;
mod report;
mod restore;
mod send;
mod session;
mod source_size;
mod stats;
mod stream;
mod subvolume;
mod tally;
mod target;
mod text;
mod times;
mod umount;
mod units;
mod values;
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
