//! Where a stream goes.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vlinder_places::failure::{Failure, Kind};
use vlinder_places::place::host::has_filesystem;
use vlinder_stream::resume::{ResumeToken, ResumingWriter};

/// Standard output, or a file. A stream that goes to a file is durable there when the verb ends.
pub(super) struct StreamOutput {
    sink: StreamSink,
    path: Option<PathBuf>,
}

/// All of the stream, or its rest.
enum StreamSink {
    Whole(File),
    Rest(ResumingWriter<File>),
}

impl StreamOutput {
    /// Opens it. With a token, what the receiver has is held back.
    ///
    /// # Errors
    /// What the host said; that standard output is a terminal.
    pub fn open(path: Option<&Path>, token: Option<ResumeToken>) -> Result<Self, Failure> {
        let file = match path {
            Some(path) => Self::open_file(path)?,
            None if io::stdout().is_terminal() => {
                let failure = Failure::new(Kind::Usage, "a stream is nothing for a terminal");
                return Err(failure.hint("write it to a file with -f FILE, or into a pipe"));
            }
            None => {
                let descriptor = rustix::io::dup(io::stdout());
                File::from(descriptor.map_err(|errno| Failure::host(&errno.into(), "standard output"))?)
            }
        };
        let sink = match token {
            Some(token) => StreamSink::Rest(ResumingWriter::new(file, token)),
            None => StreamSink::Whole(file),
        };
        Ok(Self { sink, path: path.map(Path::to_owned) })
    }

    /// Opens a file of the host, and empties it unless it is an image: `-f disk.img` is written where
    /// `disk.img:/PATH` or a pipe into `receive` was meant, and the image that is sent could be the one.
    fn open_file(path: &Path) -> Result<File, Failure> {
        let fail = |error: io::Error| Failure::host(&error, path.display());
        let mut options = File::options();
        // The stream holds all that the snapshot holds, what others may not read among it.
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(fail)?;
        let kind = file.metadata().map_err(fail)?.file_type();
        // A user who may not read it can't have meant a path in it.
        if (kind.is_file() || kind.is_block_device())
            && let Ok(readable) = File::open(path)
            && has_filesystem(&readable).map_err(fail)?
        {
            let failure =
                Failure::new(Kind::Exists, "it holds a Btrfs file system, all of which would be lost");
            return Err(failure
                .at(path.display())
                .hint("to receive into it: vlinder send … | vlinder receive IMAGE:/; else remove it first"));
        }
        if kind.is_file() {
            file.set_len(0).map_err(fail)?;
        }
        Ok(file)
    }

    /// Makes what was written durable, if it went to a file of the host.
    ///
    /// # Errors
    /// What the host said.
    pub fn finish(self) -> Result<(), Failure> {
        let file = match self.sink {
            StreamSink::Whole(file) => file,
            StreamSink::Rest(rest) => {
                rest.finish().map_err(|error| Failure::new(Kind::Invalid, error.to_string()))?
            }
        };
        match &self.path {
            Some(path) if file.metadata().is_ok_and(|status| status.is_file()) => {
                file.sync_all().map_err(|error| Failure::host(&error, path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Write for StreamOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            StreamSink::Whole(file) => file.write(bytes),
            StreamSink::Rest(rest) => rest.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            StreamSink::Whole(file) => file.flush(),
            StreamSink::Rest(rest) => rest.flush(),
        }
    }
}
