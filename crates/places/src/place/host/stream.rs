//! Files that take bytes one after the other.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Write as _};
use std::path::Path;

use rustix::fs::{FileType as HostType, Mode, OFlags};

use crate::failure::{Failure, Kind};
use crate::place::content::Run;

/// What holes are written from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// `UIO_MAXIOV` of Linux: parts that one call takes.
const MAX_PARTS: usize = 1024;

/// A pipe or a character device. Runs of data and the holes between them go to it many in one call, from
/// where they are.
pub struct HostStream {
    file: File,
    place: String,
    /// How many bytes it has taken, or are about to be written.
    end: u64,
}

impl HostStream {
    /// Opens what a path leads to for writing.
    ///
    /// # Errors
    /// What the system said; what is no pipe and no character device.
    pub fn open(path: &Path, place: String) -> Result<Self, Failure> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| Failure::host(&errno.into(), &place))?;
        let status = rustix::fs::fstat(&descriptor).map_err(|errno| Failure::host(&errno.into(), &place))?;
        let kind = HostType::from_raw_mode(status.st_mode);
        // Another file may have come since the caller looked; a disk must not be written by mistake.
        if !matches!(kind, HostType::CharacterDevice | HostType::Fifo) {
            return Err(Failure::new(Kind::Exists, "no pipe or character device any more").at(place));
        }
        Ok(Self::new(File::from(descriptor), place))
    }

    /// One that was opened for writing.
    pub fn new(file: File, place: String) -> Self {
        Self { file, place, end: 0 }
    }

    /// Writes runs of data, which follow one another, with what lies before each as zeros.
    ///
    /// # Errors
    /// What the system said.
    pub fn write_runs(&mut self, runs: &[Run<'_>]) -> Result<(), Failure> {
        let mut parts = Vec::with_capacity(MAX_PARTS);
        for (offset, data) in runs {
            self.gather_zeros(*offset, &mut parts)?;
            self.gather(data, &mut parts)?;
        }
        self.write(&mut parts)
    }

    /// Writes a hole up to where the file ends.
    ///
    /// # Errors
    /// What the system said.
    pub fn finish(mut self, size_bytes: u64) -> Result<(), Failure> {
        let mut parts = Vec::new();
        self.gather_zeros(size_bytes, &mut parts)?;
        self.write(&mut parts)
    }

    fn gather_zeros<'a>(&mut self, until: u64, parts: &mut Vec<IoSlice<'a>>) -> Result<(), Failure> {
        while self.end < until {
            let step = usize::try_from(until - self.end).unwrap_or(ZEROS.len()).min(ZEROS.len());
            self.gather(&ZEROS[..step], parts)?;
        }
        Ok(())
    }

    fn gather<'a>(&mut self, data: &'a [u8], parts: &mut Vec<IoSlice<'a>>) -> Result<(), Failure> {
        if parts.len() == MAX_PARTS {
            self.write(parts)?;
        }
        parts.push(IoSlice::new(data));
        self.end += u64::try_from(data.len()).unwrap_or(0);
        Ok(())
    }

    /// Writes what was gathered.
    fn write(&mut self, parts: &mut Vec<IoSlice<'_>>) -> Result<(), Failure> {
        let mut rest = parts.as_mut_slice();
        // Empty parts would look like a file that takes no more.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(Failure::host(&ErrorKind::WriteZero.into(), &self.place)),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::host(&error, &self.place)),
            }
        }
        parts.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn runs_and_holes_come_out_of_a_pipe_in_their_places() {
        let (read_end, write_end) = rustix::pipe::pipe().unwrap();
        let reader = vlinder_base::thread::spawn("reader", move || {
            let mut bytes = Vec::new();
            File::from(read_end).read_to_end(&mut bytes).unwrap();
            bytes
        });
        // More parts than one call takes, a hole longer than the zeros at hand, runs that touch, an empty
        // one.
        let data = [7; 10];
        let mut offsets: Vec<u64> = (0..1500).map(|number| 5 + number * 20).collect();
        offsets.extend([200_000, 200_010, 200_020, 500_000]);
        let runs: Vec<Run<'_>> = offsets.iter().map(|offset| (*offset, &data[..])).collect();
        let mut stream = HostStream::new(File::from(write_end), "pipe".into());
        stream.write_runs(&runs[..700]).unwrap();
        stream.write_runs(&[]).unwrap();
        stream.write_runs(&[(runs[699].0 + 10, &[])]).unwrap();
        stream.write_runs(&runs[700..]).unwrap();
        stream.finish(600_000).unwrap();
        let mut expected = vec![0; 600_000];
        for offset in offsets {
            expected[offset as usize..offset as usize + 10].fill(7);
        }
        assert!(reader.join().unwrap() == expected);
    }

    #[test]
    fn a_reader_that_has_gone_is_told_of() {
        let (read_end, write_end) = rustix::pipe::pipe().unwrap();
        drop(read_end);
        let mut stream = HostStream::new(File::from(write_end), "the pipe".into());
        let failure = stream.write_runs(&[(0, &[1])]).unwrap_err();
        assert!(failure.to_string().contains("the pipe"), "{failure}");
    }
}
