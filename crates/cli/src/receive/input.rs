//! Where a stream comes from.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::interruption::end_by_signals;
use vlinder_places::progress::Progress;
use vlinder_stream::wire::OneStream;

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// How long a wait for input lasts at most before the flag is looked at again.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Standard input, or a file.
pub(super) struct ReceivedInput {
    bytes: InputBytes,
    progress: Progress,
    is_interrupted: Arc<AtomicBool>,
}

/// How the input is read.
enum InputBytes {
    /// To its end.
    All(BufReader<InterruptibleFile>),
    /// Up to the first end command; what follows is left to the next reader of the same input.
    OneStream(OneStream<InterruptibleFile>),
}

/// A file whose reading fails once a flag is set, also while nothing comes from it.
struct InterruptibleFile {
    file: File,
    is_interrupted: Arc<AtomicBool>,
}

impl Read for InterruptibleFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted by a signal"));
            }
            // A signal ends the call; one that came just before it is seen after the limit.
            let mut files = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut files, Some(&WAIT)) {
                Ok(0) | Err(Errno::INTR) => {}
                _ => return self.file.read(buffer),
            }
        }
    }
}

impl ReceivedInput {
    /// Opens it.
    ///
    /// # Errors
    /// What the host said; that standard input is a terminal.
    pub fn open(
        path: Option<&Path>,
        ends_at_end_command: bool,
        mut progress: Progress,
    ) -> Result<Self, Failure> {
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
        let status = file.metadata();
        if status.as_ref().is_ok_and(Metadata::is_dir) {
            let place = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
            let failure = Failure::new(Kind::Invalid, "a directory, where a stream is needed").at(place);
            return Err(failure.hint("name the file that send wrote"));
        }
        if let Ok(status) = status
            && status.is_file()
        {
            progress.expect(status.len());
        }
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let file = InterruptibleFile { file, is_interrupted: Arc::clone(&is_interrupted) };
        let bytes = match ends_at_end_command {
            true => InputBytes::OneStream(OneStream::new(file)),
            false => InputBytes::All(BufReader::with_capacity(BUFFER_BYTES, file)),
        };
        Ok(Self { bytes, progress, is_interrupted })
    }

    /// Lets the first signal that ends a process end the input instead, with an error.
    ///
    /// # Errors
    /// The system refused.
    pub fn end_by_signals(&self) -> Result<(), Failure> {
        end_by_signals(&self.is_interrupted)
    }
}

impl Read for ReceivedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.bytes {
            InputBytes::All(file) => file.read(buffer)?,
            InputBytes::OneStream(stream) => stream.read(buffer)?,
        };
        self.progress.add(read as u64);
        Ok(read)
    }
}
