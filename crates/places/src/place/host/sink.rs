//! A file of the host that is being written.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, IFlags, Mode, XattrFlags};
use rustix::io::Errno;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::Arc;

use super::convert::{host_owner, host_times};
use super::held::HeldDirectory;
use super::refill::refill;
use super::reflink;
use crate::failure::{Failure, Kind, text_of};
use crate::place::attributes::{Attributed, Change};
use crate::place::content::{Content, Shared, Sink};

/// Where the system shows the descriptors of this process.
pub(super) const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// What a file is called before it is whole.
pub(super) enum Unfinished {
    Nameless,
    /// By a name of its own in its directory.
    Named(String),
    /// It has its name.
    Whole,
}

/// A name that no other file has.
pub(super) fn temporary_name() -> String {
    format!(".vlinder-{:016x}", OsRandom.next_u64())
}

/// A file that gets its name when it is whole, and goes if it never is; or whose content another file gets
/// then.
pub struct HostSink {
    file: File,
    /// The file that gets the content, and keeps its names.
    content_of: Option<File>,
    directory: Arc<HeldDirectory>,
    unfinished: Unfinished,
    name: Vec<u8>,
    /// Behind the last byte written, which is the file's length until that is set.
    written_to: u64,
}

impl HostSink {
    /// For a file that was begun in a directory.
    pub(super) fn new(
        descriptor: OwnedFd,
        directory: &Arc<HeldDirectory>,
        unfinished: Unfinished,
        name: &[u8],
    ) -> Self {
        Self {
            file: File::from(descriptor),
            content_of: None,
            directory: Arc::clone(directory),
            unfinished,
            name: name.to_vec(),
            written_to: 0,
        }
    }

    /// The name that it gets when it is finished, instead of the one that it was begun for.
    pub fn set_name(&mut self, name: &[u8]) {
        self.name = name.to_vec();
    }

    /// Gives the content to a file, which stays, when it is whole, instead of getting a name.
    pub(super) fn be_content_of(&mut self, file: File) {
        self.content_of = Some(file);
    }

    /// Takes over the flags of another file that chattr(1) sets and that say how it is stored, as far as the
    /// file system knows them.
    pub(super) fn take_flags(&self, other: &OwnedFd) {
        let kept = IFlags::NOCOW | IFlags::COMPRESSED | IFlags::NODUMP | IFlags::NOATIME;
        let flags = |file: &dyn AsFd| rustix::fs::ioctl_getflags(file.as_fd());
        if let (Ok(theirs), Ok(ours)) = (flags(other), flags(&self.file)) {
            let wanted = ours.difference(kept) | theirs.intersection(kept);
            if wanted != ours {
                // A copy that is stored in another way is a copy all the same.
                let _ = rustix::fs::ioctl_setflags(&self.file, wanted);
            }
        }
    }

    /// Gives a file without a name one.
    fn link(&self, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        // With AT_EMPTY_PATH only who may read every file could.
        let file = format!("{OWN_DESCRIPTORS}/{}", self.file.as_fd().as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, &*file, to, name, AtFlags::SYMLINK_FOLLOW)
    }

    fn done<T>(&self, result: Result<T, Errno>) -> Result<T, Failure> {
        result.map_err(|errno| self.directory.fail(errno, &self.name))
    }
}

impl Attributed for HostSink {
    fn change(&self, change: &Change) -> Result<(), Failure> {
        if let Some(owner) = change.owner {
            let (user, group) = host_owner(owner);
            self.done(rustix::fs::fchown(&self.file, Some(user), Some(group)))?;
        }
        if let Some(permissions) = change.permissions {
            self.done(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(permissions)))?;
        }
        if let Some(times) = change.times {
            self.done(rustix::fs::futimens(&self.file, &host_times(times)))?;
        }
        Ok(())
    }

    fn set_attribute(&self, attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        let name = OsStr::from_bytes(attribute);
        self.done(rustix::fs::fsetxattr(&self.file, name, value, XattrFlags::empty()))
    }

    fn remove_attribute(&self, attribute: &[u8]) -> Result<(), Failure> {
        let attribute = OsStr::from_bytes(attribute);
        // Asked first: most file systems begin a transaction even to remove what is not there.
        let found = rustix::fs::fgetxattr(&self.file, attribute, &mut [0u8; 0][..]);
        match found.and_then(|_| rustix::fs::fremovexattr(&self.file, attribute)) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            other => self.done(other),
        }
    }
}

impl Sink for HostSink {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all_at(data, offset);
        written.map_err(|error| Failure::host(&error, self.directory.place(&self.name)))?;
        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.written_to = self.written_to.max(offset.saturating_add(length));
        Ok(())
    }

    fn share(&mut self, source: Content<'_>) -> Result<Shared, Failure> {
        let place = || self.directory.place(&self.name);
        let Content::Host(source) = source else {
            let failure = Failure::new(Kind::Invalid, "source and destination lie on different file systems");
            return Ok(Shared::Refused(failure.at(place())));
        };
        match reflink::share(source, &self.file) {
            Ok(length) => {
                self.written_to = length;
                Ok(Shared::Whole)
            }
            Err(errno) => {
                // What is in the way of a copy as well, that meets.
                let text = format!("the extents can't be shared: {}", text_of(errno.raw_os_error()));
                Ok(Shared::Refused(Failure::new(Kind::of_errno(errno), text).at(place())))
            }
        }
    }

    fn set_size(&mut self, size_bytes: u64) -> Result<(), Failure> {
        if self.written_to == size_bytes {
            return Ok(());
        }
        let set = self.file.set_len(size_bytes);
        set.map_err(|error| Failure::host(&error, self.directory.place(&self.name)))
    }

    fn takes_attributes_last(&self) -> bool {
        self.content_of.is_some()
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        if let Some(target) = &self.content_of {
            let filled = refill(target, &self.file);
            return filled.map_err(|error| Failure::host(&error, self.directory.place(&self.name)));
        }
        let name = OsStr::from_bytes(&self.name).to_owned();
        let directory = self.directory.descriptor()?;
        if let Unfinished::Nameless = self.unfinished {
            match self.link(&directory, &name) {
                // link(2) replaces nothing, rename(2) does.
                Err(Errno::EXIST) => {
                    let temporary = temporary_name();
                    self.done(self.link(&directory, OsStr::new(&temporary)))?;
                    self.unfinished = Unfinished::Named(temporary);
                }
                linked => {
                    self.done(linked)?;
                    self.unfinished = Unfinished::Whole;
                }
            }
        }
        if let Unfinished::Named(temporary) = &self.unfinished {
            self.done(rustix::fs::renameat(&*directory, &**temporary, &*directory, &*name))?;
            self.unfinished = Unfinished::Whole;
        }
        Ok(())
    }
}

impl Drop for HostSink {
    fn drop(&mut self) {
        if let Unfinished::Named(temporary) = &self.unfinished {
            // What failed is reported already; a file that can't be removed is found by its name.
            if let Ok(open) = self.directory.descriptor() {
                let _ = rustix::fs::unlinkat(&*open, &**temporary, AtFlags::empty());
            }
        }
    }
}
