//! Opening an image to read one small file: what it costs must not grow with the image.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::command::{program, shell};
use crate::host::Host;
use crate::row::{Outcome, Row, Side};

/// What lies in the small file: more than a leaf takes in, so that its data have a chunk.
const BYTES: u64 = 16_384;
/// Chunks that the kernel makes in a minute or so.
const MAX_BY_KERNEL: u64 = 10_000;

pub fn rows() -> Vec<Row> {
    vec![Row {
        id: "U8",
        workload: "an image opened and one file of 16 KiB read, made by the kernel; few chunks, and 1 PiB with 10,000 and (made by vlinder in an image of mkfs.btrfs) 100,000 chunks of 1 GiB, preallocated",
        goal: "≤ 10 ms and ≤ 40 device reads at every size",
        files: Some(1),
        prepare: |host, _| {
            make(host, "u8-1g", "1G", 0)?;
            make(host, "u8-1t", "1T", 0)?;
            make(host, "u8-1p", "1P", 0)?;
            make(host, "u8-1p-10000", "1P", 10_000)?;
            make(host, "u8-1p-100000", "1P", 100_000)
        },
        sides: vec![
            Side { name: "1 PiB, 100,000 chunks", needs: "strace", run: |host, _| own(host, "u8-1p-100000") },
            Side { name: "1 PiB, 10,000 chunks", needs: "strace", run: |host, _| own(host, "u8-1p-10000") },
            Side { name: "1 PiB", needs: "strace", run: |host, _| own(host, "u8-1p") },
            Side { name: "1 TiB", needs: "strace", run: |host, _| own(host, "u8-1t") },
            Side { name: "1 GiB", needs: "strace", run: |host, _| own(host, "u8-1g") },
            Side {
                name: "kernel, 1 PiB, 100,000 chunks",
                needs: "losetup",
                run: |host, _| peer(host, "u8-1p-100000"),
            },
            Side { name: "kernel, 1 GiB", needs: "losetup", run: |host, _| peer(host, "u8-1g") },
        ],
    }]
}

/// A sparse image with preallocated files over so many chunks, and one small file; made by the kernel, or by
/// the program `grow` where there are so many chunks that the kernel takes half an hour for them.
fn make(host: &Host, name: &str, size: &str, chunks: u64) -> Result<()> {
    let (image, mountpoint) = (host.path(name), host.path("u8-mount"));
    if Path::new(&image).exists() {
        return Ok(());
    }
    shell(&format!("truncate -s {size} {image}; mkfs.btrfs -q {image} 2>/dev/null; mkdir -p {mountpoint}"))?;
    if chunks > MAX_BY_KERNEL {
        let program = program("grow")?.display().to_string();
        shell(&format!(
            "{program} chunks {image} {chunks} >/dev/null; vlinder cat {image}:/small >{image}.small"
        ))?;
        return shell(&format!("btrfs check --readonly {image} >/dev/null 2>&1")).map(drop);
    }
    shell(&format!("mount -o loop {image} {mountpoint}"))?;
    let (large, rest) = (chunks / 1024, chunks % 1024);
    let filled = shell(&format!(
        "for number in $(seq {large}); do fallocate -l 1T {mountpoint}/large-$number; done; \
         if [ {rest} -gt 0 ]; then fallocate -l {rest}G {mountpoint}/large; fi; \
         head -c {BYTES} /dev/urandom >{mountpoint}/small; cp {mountpoint}/small {image}.small; sync -f {mountpoint}"
    ));
    shell(&format!("umount {mountpoint}"))?;
    filled.map(drop)
}

/// The time of one run, and the reads of another.
fn own(host: &Host, name: &str) -> Result<Outcome> {
    let (image, account) = (host.path(name), host.path("account"));
    let start = Instant::now();
    shell(&format!("vlinder cat {image}:/small >{image}.found"))?;
    let time = start.elapsed();
    shell(&format!("cmp {image}.small {image}.found"))?;
    shell(&format!("/usr/bin/time -f %M -o {account} vlinder cat {image}:/small >/dev/null"))?;
    let peak_kib = std::fs::read_to_string(&account)?.trim().parse::<u64>()?;
    // Reads of small images go through pread64; the descriptor's path tells those of the image.
    let reads = shell(&format!(
        "strace -f -qq -y -e trace=pread64,preadv,preadv2 -o {account} vlinder cat {image}:/small >/dev/null; grep -c '<{image}>' {account}"
    ))?;
    host.note("device reads", reads.trim().parse::<f64>().context(reads)?);
    Ok(Outcome { time, peak_bytes: peak_kib * 1024 })
}

/// Mount, cat, umount; the reads are those of the loop device.
fn peer(host: &Host, name: &str) -> Result<Outcome> {
    let (image, mountpoint) = (host.path(name), host.path("u8-mount"));
    let device = shell(&format!("losetup -f --show -r {image}"))?.trim().to_owned();
    let run = || -> Result<Outcome> {
        shell(&format!("blockdev --flushbufs {device}"))?;
        let reads = || -> Result<f64> {
            let text = shell(&format!("awk '{{print $1}}' /sys/block/$(basename {device})/stat"))?;
            Ok(text.trim().parse()?)
        };
        let before = reads()?;
        let start = Instant::now();
        shell(&format!(
            "mount -o ro {device} {mountpoint}; cat {mountpoint}/small >{image}.found; umount {mountpoint}"
        ))?;
        let time = start.elapsed();
        host.note("device reads", reads()? - before);
        shell(&format!("cmp {image}.small {image}.found"))?;
        Ok(Outcome { time, peak_bytes: 0 })
    };
    let outcome = run();
    shell(&format!("losetup -d {device}"))?;
    outcome
}
