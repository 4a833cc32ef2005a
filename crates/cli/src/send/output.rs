//! Where a stream goes.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Kind};

/// Standard output, or a file. A stream that goes to a file is durable there when the verb ends.
pub(super) struct StreamOutput {
    file: File,
    path: Option<PathBuf>,
}

impl StreamOutput {
    /// Opens it.
    ///
    /// # Errors
    /// What the host said; that standard output is a terminal.
    pub fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let file = match path {
            Some(path) => {
                let mut options = File::options();
                // The stream holds all that the snapshot holds, what others may not read among it.
                options.write(true).create(true).truncate(true).mode(0o600);
                options.open(path).map_err(|error| Failure::host(&error, path.display()))?
            }
            None if io::stdout().is_terminal() => {
                let failure = Failure::new(Kind::Usage, "a stream is nothing for a terminal");
                return Err(failure.hint("write it to a file with -f FILE, or into a pipe"));
            }
            None => {
                let descriptor = rustix::io::dup(io::stdout());
                File::from(descriptor.map_err(|errno| Failure::host(&errno.into(), "standard output"))?)
            }
        };
        Ok(Self { file, path: path.map(Path::to_owned) })
    }

    /// Makes what was written durable, if it went to a file of the host.
    ///
    /// # Errors
    /// What the host said.
    pub fn finish(self) -> Result<(), Failure> {
        match &self.path {
            Some(path) if self.file.metadata().is_ok_and(|status| status.is_file()) => {
                self.file.sync_all().map_err(|error| Failure::host(&error, path.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Write for StreamOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
