//! Images made from and unpacked to directories.

use anyhow::Result;

use crate::command::{program, shell};
use crate::host::Host;
use crate::row::{Outcome, Row, Settings, Side};
use crate::span::Span;
use crate::tree;

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "U1",
            workload: "an image from a directory of text files (mkfs --rootdir)",
            goal: "≥ 5 × mkfs.btrfs --rootdir, and ≤ 1.5 × vlinder's own reader without an image",
            files: None,
            prepare,
            sides: vec![
                Side {
                    name: "vlinder mkfs --rootdir",
                    needs: "vlinder",
                    run: |host, _| make_image(host, "vlinder mkfs -f", "u1-own"),
                },
                Side {
                    name: "mkfs.btrfs --rootdir",
                    needs: "mkfs.btrfs",
                    run: |host, _| make_image(host, "mkfs.btrfs -q -f", "u1-peer"),
                },
                Side {
                    name: "vlinder's own reader, nothing written",
                    needs: "vlinder",
                    run: |host, _| {
                        // Built beside this program.
                        let reader = program("read-source")?;
                        timed(&format!("{} {} >/dev/null", reader.display(), host.path("tree")), host)
                    },
                },
            ],
        },
        compressed(),
        Row {
            id: "U3",
            workload: "all of it unpacked again",
            goal: "≥ 2 × the faster peer",
            files: None,
            prepare: |host, settings| {
                prepare(host, settings)?;
                let (tree, image) = (host.path("tree"), host.path("u3-image"));
                shell(&format!(
                    "rm -f {image}; truncate -s 4G {image}; mkfs.btrfs -q -f --rootdir {tree} {image}"
                ))
                .map(drop)
            },
            sides: vec![
                Side {
                    name: "vlinder cp -r",
                    needs: "vlinder",
                    run: |host, _| unpack(host, "vlinder cp -r IMAGE:/ OUT"),
                },
                Side {
                    name: "btrfs restore",
                    needs: "btrfs",
                    run: |host, _| unpack(host, "mkdir OUT; btrfs restore -mSx IMAGE OUT"),
                },
                Side {
                    name: "kernel mount, cp -r",
                    needs: "losetup",
                    run: |host, _| {
                        unpack(host, "mkdir -p MNT; mount -o loop,ro IMAGE MNT; cp -a MNT OUT; umount MNT")
                    },
                },
            ],
        },
    ]
}

fn compressed() -> Row {
    Row {
        id: "U2",
        workload: "the same, compressed with zstd:3",
        goal: "≤ 1.4 × the time of zstd -3 on all processors (in blocks of 128 KiB)",
        files: None,
        prepare,
        sides: vec![
            Side {
                name: "vlinder mkfs --rootdir --compress",
                needs: "vlinder",
                run: |host, _| make_image(host, "vlinder mkfs -f --compress zstd:3", "u2-own"),
            },
            Side {
                name: "kernel mount, cp -r, sync",
                needs: "losetup",
                run: |host, _| {
                    let (tree, image, mountpoint) =
                        (host.path("tree"), host.path("u2-peer"), host.path("mnt"));
                    shell(&format!("rm -f {image}; truncate -s 4G {image}; mkdir -p {mountpoint}"))?;
                    timed(
                        &format!(
                            "mkfs.btrfs -q {image}; mount -o loop,compress=zstd:3 {image} {mountpoint}; cp -r {tree} {mountpoint}; umount {mountpoint}"
                        ),
                        host,
                    )
                },
            },
            Side {
                name: "zstd -3 of all bytes, all processors",
                needs: "zstd",
                run: |host, _| {
                    let tree = host.path("tree");
                    timed(
                        &format!(
                            "find {tree} -type f -print0 | xargs -0 cat | zstd -q -3 -T0 -B131072 >/dev/null"
                        ),
                        host,
                    )
                },
            },
        ],
    }
}

fn prepare(host: &Host, settings: &Settings) -> Result<()> {
    let tree = host.directory().join("tree");
    if !tree.exists() {
        tree::make(&tree, settings.files)?;
    }
    Ok(())
}

/// Runs a timed script under GNU time, for its peak memory.
fn timed(script: &str, host: &Host) -> Result<Outcome> {
    let account = host.path("account");
    let span = Span::begin(host, None)?;
    shell(&format!("/usr/bin/time -f %M -o {account} bash -euo pipefail -c '{script}'"))?;
    let time = span.end()?;
    let kib = std::fs::read_to_string(&account).unwrap_or_default();
    Ok(Outcome { time, peak_bytes: kib.trim().parse::<u64>().unwrap_or_default() * 1024 })
}

fn make_image(host: &Host, command: &str, name: &str) -> Result<Outcome> {
    let (tree, image) = (host.path("tree"), host.path(name));
    shell(&format!("rm -f {image}; truncate -s 4G {image}"))?;
    let outcome = timed(&format!("{command} --rootdir {tree} {image} >/dev/null; sync -f {image}"), host)?;
    shell(&format!("btrfs check --readonly {image} 2>/dev/null >/dev/null"))?;
    Ok(outcome)
}

fn unpack(host: &Host, script: &str) -> Result<Outcome> {
    let (tree, image, out, mountpoint) =
        (host.path("tree"), host.path("u3-image"), host.path("out"), host.path("mnt"));
    shell(&format!("rm -rf {out}"))?;
    let script = script.replace("IMAGE", &image).replace("OUT", &out).replace("MNT", &mountpoint);
    let outcome = timed(&script, host)?;
    shell(&format!("diff -r {tree} {out}"))?;
    Ok(outcome)
}
