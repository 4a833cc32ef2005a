//! The command `vlinder`: verbs over images and mounts, which composes the crates below.
//!
//! This crate must not know the format's structures beyond printing them (`inspect`), and holds no file-system logic.
//!
//! Reading path: [`command`] (which program the call name asks for, and its verbs), then one module for each family of
//! verbs; [`target`] (what an argument names), [`image`] (opening), [`report`] and [`failure`] (what comes out).

mod check;
mod command;
mod condition;
mod failure;
mod files;
mod filesystem;
mod fsck;
mod fullness;
mod generate;
mod image;
mod inspect;
mod leased;
mod limits;
mod log;
mod mistake;
mod mkfs;
mod mount;
mod mounted;
mod object;
mod options;
mod place;
mod progress;
mod property;
mod report;
mod restore;
mod session;
mod stats;
mod subvolume;
mod target;
mod umount;
mod units;
mod values;

use std::process::ExitCode;

/// Decision 10 has the measurements.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    log::start();
    limits::outlive_file_size();
    command::main(std::env::args_os().collect())
}
