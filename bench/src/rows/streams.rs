//! Send and receive against the kernel's.

use std::path::Path;

use anyhow::Result;

use super::check::make_inline;
use crate::command::shell;
use crate::host::Host;
use crate::row::{Outcome, Row, Settings, Side};
use crate::span::Span;
use crate::tree;

/// Files of the smaller and of the larger image of inline files.
const FILES: u64 = 200_000;
const MORE_FILES: u64 = 500_000;

pub fn rows() -> Vec<Row> {
    let mut rows = inline_rows();
    rows.extend(larger_inline_rows());
    rows.extend(tree_rows());
    rows
}

/// Sends of small files alone.
fn inline_rows() -> Vec<Row> {
    vec![
        Row {
            id: "S4a-200000",
            workload: "full send of 200,000 files of 2,000 bytes (inline), cold, into a hasher",
            goal: "≥ 5 × btrfs send",
            files: Some(FILES),
            prepare: |host, _| make_inline(host, "u6", FILES),
            sides: vec![
                Side {
                    name: "vlinder send",
                    needs: "vlinder",
                    run: |host, _| own(host, "u6", "send IMAGE:/snap1"),
                },
                Side {
                    name: "btrfs send",
                    needs: "btrfs",
                    run: |host, _| peer(host, "u6", "send MOUNT/snap1"),
                },
            ],
        },
        Row {
            id: "S4b-200000",
            workload: "incremental send after 25 % more than 200,000 files, and one in 50 changed, cold, into a hasher",
            goal: "≥ 5 × btrfs send -p",
            files: Some(FILES),
            prepare: |host, _| make_inline(host, "u6", FILES),
            sides: vec![
                Side {
                    name: "vlinder send -p",
                    needs: "vlinder",
                    run: |host, _| own(host, "u6", "send -p IMAGE:/snap1 IMAGE:/snap2"),
                },
                Side {
                    name: "btrfs send -p",
                    needs: "btrfs",
                    run: |host, _| peer(host, "u6", "send -p MOUNT/snap1 MOUNT/snap2"),
                },
            ],
        },
    ]
}

/// The same of more files.
fn larger_inline_rows() -> Vec<Row> {
    vec![
        Row {
            id: "S4a-500000",
            workload: "full send of 500,000 files of 2,000 bytes (inline), cold, into a hasher",
            goal: "≥ 5 × btrfs send",
            files: Some(MORE_FILES),
            prepare: |host, _| make_inline(host, "s4-500000", MORE_FILES),
            sides: vec![
                Side {
                    name: "vlinder send",
                    needs: "vlinder",
                    run: |host, _| own(host, "s4-500000", "send IMAGE:/snap1"),
                },
                Side {
                    name: "btrfs send",
                    needs: "btrfs",
                    run: |host, _| peer(host, "s4-500000", "send MOUNT/snap1"),
                },
            ],
        },
        Row {
            id: "S4b-500000",
            workload: "incremental send after 25 % more than 500,000 files, and one in 50 changed, cold, into a hasher",
            goal: "≥ 5 × btrfs send -p",
            files: Some(MORE_FILES),
            prepare: |host, _| make_inline(host, "s4-500000", MORE_FILES),
            sides: vec![
                Side {
                    name: "vlinder send -p",
                    needs: "vlinder",
                    run: |host, _| own(host, "s4-500000", "send -p IMAGE:/snap1 IMAGE:/snap2"),
                },
                Side {
                    name: "btrfs send -p",
                    needs: "btrfs",
                    run: |host, _| peer(host, "s4-500000", "send -p MOUNT/snap1 MOUNT/snap2"),
                },
            ],
        },
    ]
}

/// Sending and receiving the tree that most rows have.
fn tree_rows() -> Vec<Row> {
    vec![
        Row {
            id: "U4",
            workload: "full send of the tree, cold, into a hasher",
            goal: "≥ 4 × btrfs send",
            files: None,
            prepare: prepare_tree,
            sides: vec![
                Side {
                    name: "vlinder send",
                    needs: "vlinder",
                    run: |host, _| own(host, "u4-image", "send IMAGE:/snap"),
                },
                Side {
                    name: "btrfs send",
                    needs: "btrfs",
                    run: |host, _| peer(host, "u4-image", "send MOUNT/snap"),
                },
            ],
        },
        Row {
            id: "U5",
            workload: "the tree's stream received into a fresh image",
            goal: "≥ 5 × btrfs receive onto a kernel mount",
            files: None,
            prepare: |host, settings| {
                prepare_tree(host, settings)?;
                let (image, stream) = (host.path("u4-image"), host.path("u5-stream"));
                shell(&format!("vlinder send -q {image}:/snap > {stream}")).map(drop)
            },
            sides: vec![
                Side {
                    name: "vlinder receive",
                    needs: "vlinder",
                    run: |host, _| received(host, "vlinder receive -q -f STREAM IMAGE:/"),
                },
                Side {
                    name: "btrfs receive, umount",
                    needs: "btrfs",
                    run: |host, _| {
                        received(
                            host,
                            "mount -o loop IMAGE MOUNT; btrfs receive -q -f STREAM MOUNT; umount MOUNT",
                        )
                    },
                },
            ],
        },
    ]
}

/// An image, filled by the kernel, with the tree in a snapshot.
fn prepare_tree(host: &Host, settings: &Settings) -> Result<()> {
    let (tree, image, mount) = (host.path("tree"), host.path("u4-image"), host.path("stream-mount"));
    if !Path::new(&tree).exists() {
        tree::make(Path::new(&tree), settings.files)?;
    }
    if Path::new(&image).exists() {
        return Ok(());
    }
    shell(&format!(
        "truncate -s 4G {image}; mkfs.btrfs -q {image} 2>/dev/null; mkdir -p {mount}; mount -o loop {image} {mount}; \
         btrfs -q subvolume create {mount}/v; cp -r {tree} {mount}/v; \
         btrfs -q subvolume snapshot -r {mount}/v {mount}/snap; umount {mount}"
    ))
    .map(drop)
}

/// Runs a timed script under GNU time, for its peak memory; what it reads is not in the host's cache.
fn timed(host: &Host, script: &str) -> Result<Outcome> {
    let account = host.path("stream-account");
    shell("sync; echo 3 > /proc/sys/vm/drop_caches")?;
    let span = Span::begin(host, None)?;
    shell(&format!("/usr/bin/time -f %M -o {account} bash -euo pipefail -c '{script}'"))?;
    let time = span.end()?;
    let kib = std::fs::read_to_string(&account).unwrap_or_default();
    Ok(Outcome { time, peak_bytes: kib.trim().parse::<u64>().unwrap_or_default() * 1024 })
}

fn own(host: &Host, image: &str, words: &str) -> Result<Outcome> {
    let words = words.replace("IMAGE", &host.path(image));
    timed(host, &format!("vlinder {words} 2>/dev/null | cksum"))
}

/// The mount is there before the time begins.
fn peer(host: &Host, image: &str, words: &str) -> Result<Outcome> {
    let (image, mount) = (host.path(image), host.path("stream-mount"));
    shell(&format!("mkdir -p {mount}; mount -o loop {image} {mount}"))?;
    let words = words.replace("MOUNT", &mount);
    let outcome = timed(host, &format!("btrfs {words} 2>/dev/null | cksum"));
    shell(&format!("umount {mount}"))?;
    outcome
}

fn received(host: &Host, script: &str) -> Result<Outcome> {
    let (image, mount, stream) = (host.path("u5-image"), host.path("stream-mount"), host.path("u5-stream"));
    shell(&format!("rm -f {image}; truncate -s 4G {image}; mkfs.btrfs -q {image} 2>/dev/null"))?;
    shell(&format!("mkdir -p {mount}; cat {stream} >/dev/null"))?;
    let script = script.replace("IMAGE", &image).replace("MOUNT", &mount).replace("STREAM", &stream);
    let outcome = timed(host, &format!("{script}; sync -f {image}"))?;
    shell(&format!("btrfs check --readonly {image} >/dev/null 2>&1"))?;
    Ok(outcome)
}
