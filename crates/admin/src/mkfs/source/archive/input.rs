//! The bytes of an archive. A plain file is read where it lies. What is compressed, or comes from a pipe, can
//! be read once: the bytes of its files are kept in a file without a name, until the image is made.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::atomic::{AtomicBool, Ordering};

use super::fault::ArchiveFault;

/// A block of tar.
pub(super) const BLOCK_BYTES: usize = 512;
/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 256 << 10;
/// Bytes behind the end of an archive that are read: more than any tar fills its last record with.
const MAX_BYTES_BEHIND_END: usize = 64 << 20;
/// What flate2 says of bytes that begin no further member.
const NO_GZIP_MEMBER: &str = "invalid gzip header";
/// What tells compressions from each other stands in so many bytes.
const MAGIC_BYTES: usize = 6;
/// The path that stands for standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// An archive that is being read.
pub(super) struct Input<'a> {
    bytes: Bytes<'a>,
    /// Bytes that were read, of what the archive is unpacked.
    position: u64,
    interrupted: &'a AtomicBool,
}

enum Bytes<'a> {
    /// From where in the file it begins.
    InPlace {
        reader: BufReader<File>,
        begin: u64,
        length: u64,
    },
    Stream {
        reader: Box<dyn BufRead + 'a>,
        kept: File,
        kept_bytes: u64,
        directory: PathBuf,
    },
}

impl<'a> Input<'a> {
    /// Opens the archive at a path, or at standard input for `-`.
    ///
    /// # Errors
    /// The system's; [`ArchiveFault::NoArchive`], [`ArchiveFault::Compressed`], [`ArchiveFault::NoSpool`].
    pub(super) fn open(path: &Path, interrupted: &'a AtomicBool) -> Result<Self, ArchiveFault> {
        let fail = |source| ArchiveFault::Host { what: "it can't be opened", source };
        let file = if path == Path::new(STANDARD_INPUT) {
            File::from(rustix::io::dup(rustix::stdio::stdin()).map_err(|errno| fail(errno.into()))?)
        } else {
            // Nobody may write to a pipe that has a name yet: what waits for that can be interrupted.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?)
        };
        let mut input = Self::of(file, interrupted)?;
        if let Bytes::InPlace { length, begin, .. } = &input.bytes
            && length.saturating_sub(*begin) == 0
        {
            return Err(ArchiveFault::NoArchive);
        }
        input.position = 0;
        Ok(input)
    }

    fn of(mut file: File, interrupted: &'a AtomicBool) -> Result<Self, ArchiveFault> {
        let fail = |source| ArchiveFault::Host { what: "it can't be read", source };
        let status = file.metadata().map_err(fail)?;
        if status.is_dir() {
            return Err(ArchiveFault::NoArchive);
        }
        let begin = if status.is_file() { file.stream_position().map_err(fail)? } else { 0 };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        let mut file = Awaited { file, interrupted };
        let first = (&mut file).take(MAGIC_BYTES as u64).read_to_end(&mut magic);
        first.map_err(|source| unreadable(source, interrupted))?;
        let compression = Compression::of(&magic)?;
        if status.is_file() {
            file.file.seek(SeekFrom::Start(begin)).map_err(fail)?;
            if compression == Compression::None {
                let bytes = Bytes::InPlace { reader: BufReader::new(file.file), begin, length: status.len() };
                return Ok(Self { bytes, position: 0, interrupted });
            }
            magic.clear();
        }
        let whole = std::io::Cursor::new(magic).chain(file);
        let reader: Box<dyn BufRead + 'a> = match compression {
            Compression::None => Box::new(BufReader::with_capacity(COPIED_BYTES, whole)),
            #[cfg(feature = "zlib")]
            Compression::Gzip => Box::new(BufReader::with_capacity(
                COPIED_BYTES,
                flate2::bufread::MultiGzDecoder::new(BufReader::new(whole)),
            )),
            #[cfg(feature = "zstd")]
            Compression::Zstd => Box::new(BufReader::with_capacity(
                COPIED_BYTES,
                zstd::stream::read::Decoder::new(whole).map_err(fail)?,
            )),
            #[allow(unreachable_patterns, reason = "nothing is left where both are built in")]
            Compression::Gzip | Compression::Zstd => {
                let name = if compression == Compression::Gzip { "gzip" } else { "zstd" };
                return Err(ArchiveFault::Compressed { name });
            }
        };
        let directory = std::env::temp_dir();
        let kept = unnamed_file(&directory)
            .map_err(|source| ArchiveFault::NoSpool { directory: directory.display().to_string(), source })?;
        let bytes = Bytes::Stream { reader, kept, kept_bytes: 0, directory };
        Ok(Self { bytes, position: 0, interrupted })
    }

    /// Bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next block; none at the end of the file.
    ///
    /// # Errors
    /// [`ArchiveFault::Incomplete`] within a block.
    pub(super) fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>, ArchiveFault> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(ArchiveFault::Interrupted);
        }
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.reader().read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(ArchiveFault::Incomplete),
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(unreadable(source, self.interrupted)),
            }
        }
        self.position += BLOCK_BYTES as u64;
        Ok(Some(block))
    }

    /// The content of an entry, with what pads its last block taken.
    ///
    /// # Errors
    /// [`ArchiveFault::TooLong`] above `most` bytes.
    pub(super) fn content(&mut self, length: u64, most: u64) -> Result<Vec<u8>, ArchiveFault> {
        let too_long = ArchiveFault::TooLong { found: length, most };
        let Some(wanted) = usize::try_from(length).ok().filter(|_| length <= most) else {
            return Err(too_long);
        };
        let mut content = vec![0; wanted];
        let read = self.reader().read_exact(&mut content);
        read.map_err(|source| unreadable(source, self.interrupted))?;
        self.position += length;
        self.take(padding(length))?;
        Ok(content)
    }

    /// Keeps the next bytes, which belong to a file: where they lie in [`into_kept`](Self::into_kept).
    ///
    /// # Errors
    /// The system's; [`ArchiveFault::NoSpool`].
    pub(super) fn keep(&mut self, length: u64) -> Result<u64, ArchiveFault> {
        let place = match &mut self.bytes {
            Bytes::InPlace { begin, .. } => *begin + self.position,
            Bytes::Stream { kept_bytes, .. } => *kept_bytes,
        };
        self.pass(length, true)?;
        Ok(place)
    }

    /// Reads on, to what comes behind these bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn take(&mut self, length: u64) -> Result<(), ArchiveFault> {
        self.pass(length, false)
    }

    /// Takes what comes behind the end of the archive: a program that still writes there is not to fail, and
    /// what was compressed has its checksum at its end.
    ///
    /// # Errors
    /// What reading met; the checksum does not fit.
    pub(super) fn finish(&mut self) -> Result<(), ArchiveFault> {
        let Bytes::Stream { reader, .. } = &mut self.bytes else { return Ok(()) };
        let mut left = MAX_BYTES_BEHIND_END;
        while left > 0 {
            let found = match reader.fill_buf() {
                Ok(found) => found.len(),
                // Zeros or anything else behind the last member, which gzip(1) passes over, too.
                Err(error) if error.to_string() == NO_GZIP_MEMBER => 0,
                Err(error) => return Err(unreadable(error, self.interrupted)),
            };
            if found == 0 {
                break;
            }
            reader.consume(found);
            left = left.saturating_sub(found);
        }
        Ok(())
    }

    /// The file that holds what was kept.
    pub(super) fn into_kept(self) -> OwnedFd {
        match self.bytes {
            Bytes::InPlace { reader, .. } => reader.into_inner().into(),
            Bytes::Stream { kept, .. } => kept.into(),
        }
    }

    fn reader(&mut self) -> &mut dyn BufRead {
        match &mut self.bytes {
            Bytes::InPlace { reader, .. } => reader,
            Bytes::Stream { reader, .. } => reader,
        }
    }

    fn pass(&mut self, length: u64, keeps: bool) -> Result<(), ArchiveFault> {
        match &mut self.bytes {
            Bytes::InPlace { reader, begin, length: whole } => {
                let after = self.position.checked_add(length).ok_or(ArchiveFault::Incomplete)?;
                if begin.checked_add(after).is_none_or(|end| end > *whole) {
                    return Err(ArchiveFault::Incomplete);
                }
                let step = i64::try_from(length).map_err(|_| ArchiveFault::Incomplete)?;
                reader.seek_relative(step).map_err(|source| unreadable(source, self.interrupted))?;
            }
            Bytes::Stream { reader, kept, kept_bytes, directory } => {
                let mut left = length;
                while left > 0 {
                    if self.interrupted.load(Ordering::Relaxed) {
                        return Err(ArchiveFault::Interrupted);
                    }
                    let found = reader.fill_buf().map_err(|source| unreadable(source, self.interrupted))?;
                    let part = usize::try_from(left).map_or(found.len(), |left| left.min(found.len()));
                    if part == 0 {
                        return Err(ArchiveFault::Incomplete);
                    }
                    if keeps {
                        kept.write_all(&found[..part]).map_err(|source| ArchiveFault::NoSpool {
                            directory: directory.display().to_string(),
                            source,
                        })?;
                        *kept_bytes += part as u64;
                    }
                    reader.consume(part);
                    left -= part as u64;
                }
            }
        }
        self.position = self.position.saturating_add(length);
        Ok(())
    }
}

/// Bytes behind a content of this length, up to the next block.
pub(super) fn padding(length: u64) -> u64 {
    (BLOCK_BYTES as u64 - length % BLOCK_BYTES as u64) % BLOCK_BYTES as u64
}

fn unreadable(source: std::io::Error, interrupted: &AtomicBool) -> ArchiveFault {
    match source.kind() {
        _ if interrupted.load(Ordering::Relaxed) => ArchiveFault::Interrupted,
        std::io::ErrorKind::UnexpectedEof => ArchiveFault::Incomplete,
        _ => ArchiveFault::Host { what: "it can't be read on", source },
    }
}

/// Longest time between the caller's asking for an end and that end, while nobody writes to a pipe.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A file whose bytes others write when they will. Reading it fails once the caller has asked for an end: a
/// signal alone does not end a call that waits, since such calls begin again behind a handler.
struct Awaited<'a> {
    file: File,
    interrupted: &'a AtomicBool,
}

impl Read for Awaited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("interrupted"));
            }
            let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut waiting, Some(&LONGEST_WAIT)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

/// A file that nobody else sees, and that is gone with its last descriptor.
fn unnamed_file(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, private) {
        Ok(file) => Ok(file.into()),
        // Not each file system of the host has such files.
        Err(_) => {
            let path = directory.join(format!("vlinder-{:016x}", OsRandom.next_u64()));
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, private)?;
            std::fs::remove_file(&path)?;
            Ok(file.into())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// What the first bytes of a file tell.
    fn of(magic: &[u8]) -> Result<Self, ArchiveFault> {
        let others: [(&[u8], &str); 4] =
            [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"LZIP", "lzip")];
        if let Some((_, name)) = others.into_iter().find(|(bytes, _)| magic.starts_with(bytes)) {
            return Err(ArchiveFault::Compressed { name });
        }
        Ok(match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or one that is to be skipped.
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50 => Self::Zstd,
            _ => Self::None,
        })
    }
}
