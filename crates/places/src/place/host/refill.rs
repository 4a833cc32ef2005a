//! New content for a file of the host that keeps its names.
//!
//! No call of the host exchanges contents at once. So that a full disk or a source that can't be read leaves
//! the old content, the new one is whole in a file of its own before the file that stays is changed, and has
//! its space there, where the file system can say so.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::holes::next_data;

/// How much is copied in one call.
const PIECE_BYTES: usize = 1 << 20;

/// No file system of Linux has larger blocks.
const MAX_BLOCK_BYTES: u64 = 64 << 10;

/// A range of a file: where it begins, and where it ends.
type Range = (u64, u64);

/// Makes a file show the content of another. It is cut or grown last; the sizes that it goes through lie
/// between the old one and the new one.
///
/// # Errors
/// What the system said. Where it was for want of space, the file is as it was, on file systems that reserve
/// (fallocate(2)).
pub(super) fn refill(target: &File, content: &File) -> std::io::Result<()> {
    let size_bytes = content.metadata()?.len();
    // Sharing the extents changes the file in one transaction, where a file system can do that.
    if size_bytes == 0 || rustix::fs::ioctl_ficlone(target, content).is_err() {
        let data = data_ranges(content, size_bytes)?;
        reserve(target, &data)?;
        copy(target, content, &data)?;
    }
    target.set_len(size_bytes)
}

/// The ranges of a file that are no holes.
fn data_ranges(file: &File, size_bytes: u64) -> Result<Vec<Range>, Errno> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size_bytes
        && let Some((start, end)) = next_data(file, at)?
    {
        ranges.push((start, end.min(size_bytes)));
        at = end;
    }
    Ok(ranges)
}

/// Gives ranges of a file their space without a change of what it holds. What it got behind its end before
/// there was no more goes back; what it got for holes stays.
fn reserve(target: &File, ranges: &[Range]) -> std::io::Result<()> {
    for (start, end) in ranges {
        match rustix::fs::fallocate(target, FallocateFlags::KEEP_SIZE, *start, end - start) {
            Ok(()) => {}
            // The copy meets a full disk then, as with cp(1).
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(errno) => {
                target.set_len(target.metadata()?.len())?;
                return Err(errno.into());
            }
        }
    }
    Ok(())
}

/// Copies ranges of data, and clears the rest, also what is to be cut off: cutting within a block frees none.
fn copy(target: &File, content: &File, data: &[Range]) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    for (start, end) in data.iter().copied().chain([(u64::MAX, u64::MAX)]) {
        clear(target, (at, start), &mut piece)?;
        at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            content.read_exact_at(&mut piece[..length], at)?;
            target.write_all_at(&piece[..length], at)?;
            at += u64::try_from(length).unwrap_or(0);
        }
    }
    Ok(())
}

/// Makes a range of a file a hole, or zeros where the file system has no holes. What lies behind the end of
/// the file is one already.
fn clear(target: &File, (start, end): Range, piece: &mut [u8]) -> std::io::Result<()> {
    let length = target.metadata()?.len();
    let end = end.min(length);
    if start >= end {
        return Ok(());
    }
    // The last block is freed where the range reaches behind it.
    let behind = if end == length { end.next_multiple_of(MAX_BLOCK_BYTES) } else { end };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(target, flags, start, behind - start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        other => return Ok(other?),
    }
    piece.fill(0);
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(piece.len()).min(piece.len());
        match target.write_at(&piece[..length], at) {
            Ok(written) => at += u64::try_from(written).unwrap_or(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with these bytes in these blocks of 4 KiB, and holes between.
    fn file(directory: &std::path::Path, name: &str, blocks: &[Option<u8>], rest: u64) -> File {
        let path = directory.join(name);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        for (number, byte) in blocks.iter().enumerate() {
            if let Some(byte) = byte {
                file.write_all_at(&[*byte; 4096], number as u64 * 4096).unwrap();
            }
        }
        file.set_len((blocks.len() as u64 * 4096).saturating_sub(rest)).unwrap();
        file
    }

    fn bytes(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn whatever_a_file_held_it_holds_the_content(
            old in prop::collection::vec(prop::option::of(1..=255_u8), 0..12),
            new in prop::collection::vec(prop::option::of(1..=255_u8), 0..12),
            rests in (0..4096_u64, 0..4096_u64),
        ) {
            let directory = vlinder_testkit::Scratch::new("refill");
            let old = file(directory.path(), "old", &old, rests.0);
            let new = file(directory.path(), "new", &new, rests.1);
            refill(&old, &new).unwrap();
            prop_assert_eq!(bytes(&old), bytes(&new));
        }
    }

    #[test]
    fn holes_of_the_content_are_holes_then() {
        use std::os::unix::fs::MetadataExt;
        let directory = vlinder_testkit::Scratch::new("refill-holes");
        let old = file(directory.path(), "old", &[Some(1); 4096], 100);
        let mut blocks = [None; 2048];
        blocks[2000] = Some(2);
        let new = file(directory.path(), "new", &blocks, 0);
        refill(&old, &new).unwrap();
        assert!(bytes(&old) == bytes(&new));
        // Some file systems keep a little around what is written.
        let allocated = old.metadata().unwrap().blocks() * 512;
        assert!(allocated <= 1 << 20, "{allocated}");
    }
}
