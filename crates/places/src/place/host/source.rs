//! A file of the host that is read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vlinder_base::sync::Arc;

use super::errors::failure_at;
use super::held::HeldDirectory;
use super::holes::next_data;
use crate::failure::{Failure, Kind};
use crate::place::content::{Content, Source, Take};
use crate::place::status::FileStatus;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// A file that is read.
pub(super) struct HostSource {
    pub(super) file: File,
    pub(super) directory: Arc<HeldDirectory>,
    pub(super) name: Vec<u8>,
}

impl Source for HostSource {
    fn content(&self) -> Content<'_> {
        Content::Host(&self.file)
    }

    fn check_is(&self, seen: &FileStatus) -> Result<(), Failure> {
        let place = || self.directory.place(&self.name);
        let found = rustix::fs::fstat(&self.file).map_err(|errno| failure_at(errno, place()))?;
        if (found.st_dev, found.st_ino) == (seen.volume, seen.inode) {
            return Ok(());
        }
        let text = "another file has taken its place while it was copied";
        Err(Failure::new(Kind::Exists, text).at(place()).hint("copy it when nobody changes its directory"))
    }

    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure> {
        let mut done = 0;
        while done < target.len() {
            let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            match self.file.read_at(&mut target[done..], at) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::host(&error, self.directory.place(&self.name))),
            }
        }
        Ok(done)
    }

    fn read_data(
        &mut self,
        offset: u64,
        scratch: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<Option<u64>, Failure> {
        let found = next_data(&self.file, offset);
        let found = found.map_err(|errno| failure_at(errno, self.directory.place(&self.name)))?;
        let Some((start, end)) = found else { return Ok(None) };
        scratch.resize(STEP, 0);
        let step = usize::try_from(end - start).unwrap_or(STEP).min(STEP);
        let read = self.read_at(start, &mut scratch[..step])?;
        take(&[(start, &scratch[..read])])?;
        // A file that shrinks while it is read ends before its run of data does.
        Ok(Some(if read == 0 { end } else { start + u64::try_from(read).unwrap_or(0) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::locate;
    use crate::target::Follow;

    #[test]
    fn only_the_file_that_was_seen_is_opened() {
        let scratch = vlinder_testkit::Scratch::new("seen");
        let [name, other] = ["name", "other"].map(|name| scratch.join(name));
        std::fs::write(&name, b"seen").unwrap();
        std::fs::write(&other, b"another").unwrap();
        let location = locate::on_host(&name, Follow::No).unwrap();
        let seen = location.status().unwrap();
        let read = |mut source: Box<dyn Source>| {
            let mut bytes = [0; 16];
            let length = source.read_at(0, &mut bytes).unwrap();
            bytes[..length].to_vec()
        };
        assert_eq!(read(location.open_seen(&seen).unwrap()), b"seen");
        // The file that was seen, by another name, is the one that was seen.
        std::fs::hard_link(&name, scratch.join("again")).unwrap();
        assert!(locate::on_host(&scratch.join("again"), Follow::No).unwrap().open_seen(&seen).is_ok());
        std::fs::rename(&other, &name).unwrap();
        let refused = location.open_seen(&seen).err().unwrap();
        assert_eq!(refused.kind, Kind::Exists);
        assert!(refused.message.contains("another file") && refused.hint.is_some(), "{refused}");
        std::fs::remove_file(&name).unwrap();
        std::os::unix::fs::symlink("again", &name).unwrap();
        assert!(location.open_seen(&seen).is_err(), "a link to it is not followed");
    }
}
