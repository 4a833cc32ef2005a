//! Prints how fast each checksum and codec is on this machine:
//! `cargo run --release --example speed -p vlinder-codec FILE`.

use std::hint::black_box;
use std::time::{Duration, Instant};
use vlinder_codec::checksum::{ChecksumKind, checksum_many};
use vlinder_codec::compress::{Compression, MAX_EXTENT_BYTES, Workspace};

const SECTOR: usize = 4096;

/// The best of several runs, in MB of `bytes` a second.
fn measure(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    bytes as f64 / best.as_secs_f64() / 1e6
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: speed FILE");
    let mut data = std::fs::read(&path).expect("the file is readable");
    data.truncate(32 << 20);
    data.truncate(data.len() / SECTOR * SECTOR);
    println!("{path}: {} bytes", data.len());
    for kind in ChecksumKind::ALL {
        let mut output = Vec::new();
        let rate = measure(data.len(), || {
            for extent in data.chunks(MAX_EXTENT_BYTES) {
                output.clear();
                checksum_many(kind, extent, SECTOR, &mut output);
                black_box(&output);
            }
        });
        println!("{kind:9} {rate:8.0} MB/s");
    }
    let mut workspace = Workspace::new();
    for kind in Compression::ALL {
        let mut streams = Vec::new();
        let rate = measure(data.len(), || {
            streams.clear();
            for extent in data.chunks(MAX_EXTENT_BYTES) {
                let mut stream = Vec::new();
                let roomy = extent.len() * 2;
                workspace
                    .compress(kind, kind.default_level(), extent, SECTOR, roomy, &mut stream)
                    .expect("the level is the default");
                streams.push(stream);
            }
        });
        let compressed: usize = streams.iter().map(Vec::len).sum();
        let mut output = vec![0; MAX_EXTENT_BYTES];
        let back = measure(data.len(), || {
            for stream in &streams {
                workspace.decompress(kind, stream, &mut output, SECTOR).expect("it was just made");
                black_box(&output);
            }
        });
        let percent = compressed as f64 * 100.0 / data.len() as f64;
        println!("{kind:9} {rate:8.0} MB/s compress {back:8.0} MB/s decompress, to {percent:.1} %");
    }
}
