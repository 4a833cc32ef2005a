//! Programs that write until they are told that there is no room, and what must be there of what they wrote.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;

/// Bytes of a file with the same writer and place in them.
const PIECE: usize = 4096;

/// What became of one writer.
#[derive(Debug)]
pub struct Written {
    pub path: PathBuf,
    pub number: u8,
    /// Bytes that write(2) took.
    pub accepted_bytes: u64,
    /// What the last write(2) said; none where it never failed.
    pub write_error: Option<i32>,
    /// What fsync(2) said.
    pub sync_error: Option<i32>,
    pub took: Duration,
}

/// What a writer writes at an offset: no two pieces are alike, and none is zeros.
pub fn content(number: u8, offset: u64, length: usize) -> Vec<u8> {
    assert!(offset.is_multiple_of(PIECE as u64));
    let mut bytes = vec![number | 0x80; length];
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let place = offset + (index * PIECE) as u64;
        piece[..8].copy_from_slice(&place.to_le_bytes());
    }
    bytes
}

/// Writes to a new file, `block` bytes at a time, until a write fails or `most_bytes` are accepted.
pub fn fill(path: &Path, number: u8, block: usize, most_bytes: u64) -> Written {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let mut file = File::create(path).unwrap();
    let mut accepted_bytes = 0;
    let mut write_error = None;
    while write_error.is_none() && accepted_bytes < most_bytes {
        let bytes = content(number, accepted_bytes, block);
        match write_pieces(&mut file, &bytes) {
            Ok(length) => accepted_bytes += length as u64,
            Err(error) => write_error = Some(error),
        }
    }
    let sync_error = file.sync_all().err().and_then(|error| error.raw_os_error());
    let took = clock.monotonic() - start;
    Written { path: path.to_owned(), number, accepted_bytes, write_error, sync_error, took }
}

/// One write(2); a short one goes on up to a border of pieces.
fn write_pieces(file: &mut File, bytes: &[u8]) -> Result<usize, i32> {
    let told = |error: io::Error| error.raw_os_error().unwrap();
    let mut length = file.write(bytes).map_err(told)?;
    while !length.is_multiple_of(PIECE) {
        length += file.write(&bytes[length..]).map_err(told)?;
    }
    Ok(length)
}

/// Writers side by side, each with a file of its own in `directory`.
pub fn fill_together(directory: &Path, writers: u8, block: usize, most_bytes: u64) -> Vec<Written> {
    let start = |number: u8| {
        let path = directory.join(format!("writer{number}"));
        thread::spawn("writer", move || fill(&path, number, block, most_bytes))
    };
    let writers: Vec<_> = (0..writers).map(start).collect();
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

/// Whether all that was accepted is there, after a remount, or its writer's fsync said that it is not.
pub fn is_there_or_told(written: &Written) {
    if written.sync_error == Some(rustix::io::Errno::NOSPC.raw_os_error()) {
        return;
    }
    assert_eq!(written.sync_error, None, "{written:?}");
    let bytes = std::fs::read(&written.path).unwrap();
    assert_eq!(bytes.len() as u64, written.accepted_bytes, "{written:?}");
    for (index, piece) in bytes.chunks(1 << 20).enumerate() {
        let offset = (index << 20) as u64;
        assert!(piece == content(written.number, offset, piece.len()), "{written:?} at {offset}");
    }
}

/// What df(1) says is available.
pub fn available(place: &Path) -> u64 {
    let status = rustix::fs::statvfs(place).unwrap();
    status.f_bavail * status.f_frsize
}
