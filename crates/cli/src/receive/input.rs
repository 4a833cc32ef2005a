//! Where a stream comes from.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::Path;

use crate::failure::{Failure, Kind};
use crate::progress::Progress;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Standard input, or a file.
pub(super) struct ReceivedInput {
    file: BufReader<File>,
    progress: Progress,
}

impl ReceivedInput {
    /// Opens it.
    ///
    /// # Errors
    /// What the host said; that standard input is a terminal.
    pub fn open(path: Option<&Path>, mut progress: Progress) -> Result<Self, Failure> {
        let file = match path {
            Some(path) => File::open(path).map_err(|error| Failure::host(&error, path.display()))?,
            None if io::stdin().is_terminal() => {
                let failure = Failure::new(Kind::Usage, "a stream does not come from a terminal");
                return Err(failure.hint("name a file with -f FILE, or give it by a pipe"));
            }
            None => {
                let descriptor = rustix::io::dup(io::stdin());
                File::from(descriptor.map_err(|errno| Failure::host(&errno.into(), "standard input"))?)
            }
        };
        if let Ok(status) = file.metadata()
            && status.is_file()
        {
            progress.expect(status.len());
        }
        Ok(Self { file: BufReader::with_capacity(BUFFER_BYTES, file), progress })
    }
}

impl Read for ReceivedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}
