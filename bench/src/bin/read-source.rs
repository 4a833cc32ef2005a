//! The source of `vlinder mkfs --rootdir` read by the same code, with nothing made of it:
//! `read-source DIRECTORY` says how much there was.

use anyhow::{Context, Result};
use vlinder_admin::mkfs::read_source;

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).context("usage: read-source DIRECTORY")?;
    let dropped = read_source(directory.as_ref(), None)?;
    println!("{} names, {} bytes", dropped.entries, dropped.data_bytes);
    Ok(())
}
