//! A file of an image that is being written.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_fs::{ContentTimes, Inode, OpenInode, Refusal, Replacement, SetAttributes, WriteOrigin};

use super::attributes;
use super::entered::EnteredDirectory;
use crate::failure::{Failure, Kind};
use crate::place::attributes::{Attributed, Change};
use crate::place::content::{Content, Shared, Sink};

/// A file that is being written.
pub(super) enum Made {
    /// It has its name already, and loses it if it is not finished.
    Named(Arc<Inode>),
    /// It has none yet; another file has it.
    Temporary(OpenInode),
    /// It is the coming content of the file that has the name, which stays that file.
    Content(Replacement),
}

/// A file, with the name that it has or gets.
pub(super) struct ImageSink {
    directory: EnteredDirectory,
    name: Vec<u8>,
    /// None once it is finished.
    made: Option<Made>,
}

impl ImageSink {
    /// For a file that was begun in a directory.
    pub(super) fn new(directory: &EnteredDirectory, name: &[u8], made: Made) -> Self {
        Self { directory: directory.clone(), name: name.to_vec(), made: Some(made) }
    }

    /// The file whose data are written.
    fn inode(&self) -> Result<&Arc<Inode>, Failure> {
        match &self.made {
            Some(Made::Named(inode)) => Ok(inode),
            Some(Made::Temporary(open)) => Ok(open.inode()),
            Some(Made::Content(replacement)) => Ok(replacement.content()),
            None => Err(Failure::new(Kind::Invalid, "finished already").at(self.directory.place(&self.name))),
        }
    }
}

impl Attributed for ImageSink {
    fn change(&self, change: &Change) -> Result<(), Failure> {
        attributes::change(&self.directory, self.inode()?, &self.name, change)
    }

    fn set_attribute(&self, attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        attributes::set_attribute(&self.directory, self.inode()?, &self.name, attribute, value)
    }

    fn remove_attribute(&self, attribute: &[u8]) -> Result<(), Failure> {
        attributes::remove_attribute(&self.directory, self.inode()?, &self.name, attribute)
    }
}

impl Sink for ImageSink {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        let inode = self.inode()?;
        let (filesystem, caller) = (self.directory.filesystem(), &self.directory.image.caller);
        // The copy sets mode and times at the end.
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
        let written = filesystem.files().write_file(caller, inode, offset, Cow::Borrowed(bytes), origin);
        written.map(drop).map_err(self.directory.fail(&self.name))
    }

    fn share(&mut self, source: Content<'_>) -> Result<Shared, Failure> {
        let place = || self.directory.place(&self.name);
        let source = match source {
            Content::Image(image, source) if image == Arc::as_ptr(&self.directory.image).addr() => source,
            _ => {
                let failure =
                    Failure::new(Kind::Invalid, "source and destination lie on different file systems");
                return Ok(Shared::Refused(failure.at(place())));
            }
        };
        let (filesystem, caller) = (self.directory.filesystem(), &self.directory.image.caller);
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
        // The length of a clone that ends where the source ends.
        let whole = 0;
        match filesystem.files().clone_range(caller, (source, 0), (self.inode()?, 0), whole, origin) {
            Ok(()) => Ok(Shared::Whole),
            Err(error) if error.refusal() == Some(Refusal::InvalidArgument) => {
                let text =
                    "only one of both files has checksums (chattr +C, nodatasum), and such share no extents";
                Ok(Shared::Refused(Failure::new(Kind::Invalid, text).at(place())))
            }
            Err(error) => Err(self.directory.fail(&self.name)(error)),
        }
    }

    fn set_size(&mut self, size_bytes: u64) -> Result<(), Failure> {
        let inode = self.inode()?;
        if inode.size() == size_bytes {
            return Ok(());
        }
        let changes =
            SetAttributes { size: Some(size_bytes), opened_for_writing: true, ..SetAttributes::default() };
        let caller = &self.directory.image.caller;
        let set = self.directory.filesystem().attributes().set(caller, inode, &changes);
        set.map(drop).map_err(self.directory.fail(&self.name))
    }

    fn takes_attributes_last(&self) -> bool {
        matches!(self.made, Some(Made::Content(_)))
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        let (directory, caller) = (&self.directory, &self.directory.image.caller);
        match &self.made {
            Some(Made::Temporary(open)) => {
                directory.unlink(&self.name)?;
                directory
                    .filesystem()
                    .names()
                    .link(caller, open.inode(), &directory.inode()?, &self.name)
                    .map_err(directory.fail(&self.name))?;
            }
            Some(Made::Named(_) | Made::Content(_)) | None => {}
        }
        match self.made.take() {
            Some(Made::Content(replacement)) => {
                replacement.finish(caller).map_err(directory.fail(&self.name))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for ImageSink {
    fn drop(&mut self) {
        if matches!(self.made, Some(Made::Named(_))) {
            // What failed is reported already; if this fails too, the file stays as far as it came.
            let _ = self.directory.unlink(&self.name);
        }
    }
}
