//! Content that comes from, or goes to, what has no place to seek to: standard input and output, pipes and
//! character devices.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use vlinder_base::sync::atomic::Ordering;
use vlinder_format::inode::FileType;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::place::host::HostStream;
use vlinder_places::place::{FileStatus, Location};
use vlinder_places::target::Target;
use vlinder_places::text::escaped;

use super::copier::{Copier, STEP, Scratch};
use crate::files::destination::no_regular_file;
use crate::files::mode::type_name;

/// What stands for standard input among the sources, and for standard output as the destination.
const STANDARD: &str = "-";

/// What an argument names, if it is a stream.
pub(super) enum Stream {
    /// Standard input or output, which was named `-`.
    Standard,
    /// A pipe or a character device of the host: `/dev/stdin`, or what a shell makes of `<(COMMAND)`.
    At(PathBuf),
}

impl Stream {
    /// The stream that an argument names; none where it names a file.
    pub(super) fn named(argument: &OsStr) -> Option<Self> {
        if argument == STANDARD {
            return Some(Self::Standard);
        }
        let Ok(Target::Host(path)) = Target::parse(argument) else { return None };
        let found = path.metadata().ok()?.file_type();
        (found.is_fifo() || found.is_char_device()).then_some(Self::At(path))
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn open(&self) -> Result<SourceStream, Failure> {
        let place = self.place("standard input");
        let file = match self {
            // By its descriptor: its file may have no name any more, and stands where it was read to.
            Self::Standard => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
            Self::At(path) => File::open(path),
        };
        let file = file.map_err(|error| Failure::host(&error, &place))?;
        Ok(SourceStream { file, place })
    }

    /// Opens it for writing.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn open_for_writing(&self) -> Result<HostStream, Failure> {
        let place = self.place("standard output");
        match self {
            Self::Standard => {
                let file = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
                Ok(HostStream::new(file.map_err(|error| Failure::host(&error, &place))?, place))
            }
            Self::At(path) => HostStream::open(path, place),
        }
    }

    /// The name that its content gets in a directory.
    ///
    /// # Errors
    /// Where it has none.
    pub(super) fn file_name(&self) -> Result<Vec<u8>, Failure> {
        let name = match self {
            Self::Standard => None,
            Self::At(path) => path.file_name(),
        };
        let failure = || {
            let failure = Failure::usage("what comes from standard input has no name in a directory");
            failure.hint("give the file's path as the destination")
        };
        name.map(|name| name.as_encoded_bytes().to_vec()).ok_or_else(failure)
    }

    fn place(&self, standard: &str) -> String {
        match self {
            Self::Standard => standard.to_owned(),
            Self::At(path) => escaped(path.as_os_str().as_encoded_bytes()),
        }
    }
}

/// A stream that is read.
pub(super) struct SourceStream {
    file: File,
    place: String,
}

impl SourceStream {
    /// Gives all bytes to `take`, piece by piece with their offsets; returns how many there were.
    fn read_all(&mut self, mut take: impl FnMut(u64, &[u8]) -> Result<(), Failure>) -> Result<u64, Failure> {
        let mut buffer = vec![0; STEP];
        let mut offset = 0;
        loop {
            let read = self.read(&mut buffer)?;
            if read == 0 {
                return Ok(offset);
            }
            take(offset, &buffer[..read])?;
            offset += u64::try_from(read).unwrap_or(0);
        }
    }

    /// The next bytes; none at the end.
    fn read(&mut self, target: &mut [u8]) -> Result<usize, Failure> {
        loop {
            match self.file.read(target) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map_err(|error| Failure::host(&error, &self.place)),
            }
        }
    }
}

impl Copier<'_> {
    /// Copies what comes out of a stream into a file.
    pub(super) fn copy_stream(&self, mut from: SourceStream, to: &Location) -> Result<(), Failure> {
        let (to, existing) = self.reached(to, true)?;
        let is_regular =
            |found: &FileStatus| matches!(found.file_type, FileType::Regular | FileType::SymbolicLink);
        if existing.as_ref().is_some_and(|found| !is_regular(found)) {
            return Err(no_regular_file(&to));
        }
        if existing.is_some() && self.options.no_clobber {
            return Ok(());
        }
        let mut sink = self.sink(&to, 0o666, self.overwritten(existing.as_ref()))?;
        let length = from.read_all(|offset, bytes| {
            self.progress.add(u64::try_from(bytes.len()).unwrap_or(0));
            sink.write_at(offset, bytes)
        })?;
        sink.set_size(length)?;
        sink.finish()?;
        self.bytes.fetch_add(length, Ordering::Relaxed);
        if self.options.verbose {
            self.session.tell(format!("{} -> {}", from.place, to.place()))
        } else {
            Ok(())
        }
    }

    /// Writes a regular file into a stream, as cp does.
    pub(super) fn copy_into_stream(&self, from: &Location, mut to: HostStream) -> Result<(), Failure> {
        let status = from.status()?;
        if status.file_type != FileType::Regular {
            let text = format!("a {}, which can't go into a stream of bytes", type_name(status.file_type));
            return Err(Failure::new(Kind::Invalid, text).at(from.place()));
        }
        let mut source = from.open_seen(&status)?;
        let mut scratch = Scratch::default();
        let copied_bytes = self.transfer(&mut *source, &mut scratch, &mut |runs| to.write_runs(runs))?;
        to.finish(status.size_bytes)?;
        self.bytes.fetch_add(copied_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what comes out of one stream into another.
    pub(super) fn copy_between_streams(
        &self,
        mut from: SourceStream,
        mut to: HostStream,
    ) -> Result<(), Failure> {
        let length = from.read_all(|offset, bytes| to.write_runs(&[(offset, bytes)]))?;
        to.finish(length)?;
        self.bytes.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }
}
