//! Golden images: file systems that Linux made, kept compressed in `tests/golden` with the kernel's walk of
//! each.
//!
//! `cargo run -p vlinder-testkit --bin golden` makes them anew (as root); `manifest.txt` tells how each was
//! made.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes that are read, and left out where all are zero, at once.
const PIECE: usize = 64 << 10;

/// The directory of the golden images.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

/// The names of all golden images, in order.
///
/// # Errors
/// The host's.
pub fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory())? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".img.zst")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// What the kernel saw in an image, as [`crate::walk::render`] writes it.
///
/// # Errors
/// The host's.
pub fn walk_of(name: &str) -> io::Result<String> {
    std::fs::read_to_string(directory().join(format!("{name}.walk")))
}

/// Writes an image to a new file; zeros become holes.
///
/// # Errors
/// The host's, or what is no golden image.
pub fn unpack(name: &str, target: &Path) -> io::Result<()> {
    let packed = File::open(directory().join(format!("{name}.img.zst")))?;
    let mut unpacked = zstd::stream::read::Decoder::new(packed)?;
    let file = File::create_new(target)?;
    let mut piece = vec![0; PIECE];
    let mut at: u64 = 0;
    loop {
        let mut filled = 0;
        while filled < PIECE {
            match unpacked.read(&mut piece[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        let bytes = &piece[..filled];
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, at)?;
        }
        at += filled as u64;
        if filled < PIECE {
            return file.set_len(at);
        }
    }
}

/// Compresses an image into `tests/golden`; gives the hash of what is compressed.
///
/// # Errors
/// The host's.
pub fn pack(image: &Path, name: &str) -> io::Result<String> {
    let target = File::create(directory().join(format!("{name}.img.zst")))?;
    let mut encoder = zstd::stream::write::Encoder::new(target, 19)?;
    io::copy(&mut File::open(image)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    hash(image)
}

/// SHA-256 of a file in hexadecimal digits.
///
/// # Errors
/// The host's.
pub fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut state = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => state.update(&piece[..count]),
        }
    }
    Ok(state.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
