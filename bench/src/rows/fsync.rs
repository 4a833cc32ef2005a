//! What an fsync costs, against the kernel's own driver.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::mounts::{Mounted, Server};
use crate::command::shell;
use crate::host::Host;
use crate::row::{Outcome, Row, Settings, Side};

/// fsyncs of one run.
const COUNT: u64 = 2000;
/// Bytes written before each.
const BYTES: usize = 4096;
/// Bytes of the file that is overwritten.
const FILE_BYTES: u64 = 64 << 20;

pub fn rows() -> Vec<Row> {
    macro_rules! row {
        ($id:literal, $workload:literal, $function:path) => {
            Row {
                id: $id,
                workload: $workload,
                goal: "≥ 0.5 × kernel",
                files: Some(COUNT),
                prepare: |_: &Host, _: &Settings| Ok(()),
                sides: vec![
                    Side {
                        name: "vlinder mount",
                        needs: "vlinder",
                        run: |host, _| $function(host, Server::Vlinder),
                    },
                    Side {
                        name: "kernel",
                        needs: "mkfs.btrfs",
                        run: |host, _| $function(host, Server::Kernel),
                    },
                ],
            }
        };
    }
    vec![
        row!("F6A", "2000 × 4 KiB overwritten at random, fsync after each", overwrite),
        row!("F6B", "2000 × a file made, 4 KiB written, fsync", create),
    ]
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BYTES / 8)
}

/// Where the numbered write goes: every block once before any comes again.
fn place(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b1) % (FILE_BYTES / BYTES as u64) * BYTES as u64
}

fn overwrite(host: &Host, server: Server) -> Result<Outcome> {
    let mut mounted = Mounted::fresh(host, server)?;
    let path = PathBuf::from(mounted.path("file"));
    let mut made = File::create(&path)?;
    for _ in 0..FILE_BYTES >> 20 {
        made.write_all(&vec![0x5a; 1 << 20])?;
    }
    drop(made);
    mounted.sync()?;
    let file = File::options().read(true).write(true).open(&path)?;
    let span = mounted.span()?;
    for number in 0..COUNT {
        file.write_all_at(&block(number), place(number))?;
        file.sync_all()?;
    }
    let time = span.end()?;
    let mut found = vec![0; BYTES];
    for number in 0..COUNT {
        file.read_exact_at(&mut found, place(number))?;
        if found != block(number) {
            bail!("write {number} is not there");
        }
    }
    drop(file);
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

fn create(host: &Host, server: Server) -> Result<Outcome> {
    let mut mounted = Mounted::fresh(host, server)?;
    let directory = PathBuf::from(mounted.path("directory"));
    std::fs::create_dir(&directory)?;
    mounted.sync()?;
    let span = mounted.span()?;
    for number in 0..COUNT {
        let mut file = File::create(directory.join(number.to_string()))?;
        file.write_all(&block(number))?;
        file.sync_all()?;
    }
    let time = span.end()?;
    let count = shell(&format!("ls {} | wc -l", directory.display()))?;
    if count.trim() != COUNT.to_string() {
        bail!("{} files", count.trim());
    }
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}
