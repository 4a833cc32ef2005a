//! The directories of a source.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use vlinder_base::sync::Arc;

use crate::mkfs::error::MkfsError;

/// A path and a name.
pub(in super::super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// A directory of the source.
pub(in super::super) struct SourceDirectory {
    /// None for a directory that is not one of the host: nothing is opened in it.
    file: Option<OwnedFd>,
    /// Below the source directory; empty for itself.
    pub(in super::super) path: Vec<u8>,
}

impl SourceDirectory {
    /// An open directory of the host.
    pub(super) fn of_host(file: OwnedFd, path: Vec<u8>) -> Self {
        Self { file: Some(file), path }
    }

    /// A directory that only the image has.
    pub(super) fn made(path: Vec<u8>) -> Self {
        Self { file: None, path }
    }

    /// The open directory.
    pub(super) fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("what has to be read lies in directories of the host")
    }
}

/// Opens a source directory.
pub(in super::super) fn open_source(path: &Path) -> Result<Arc<SourceDirectory>, MkfsError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| MkfsError::SourceDirectory {
        path: path.display().to_string(),
        source: errno.into(),
    })?;
    Ok(Arc::new(SourceDirectory::of_host(file, Vec::new())))
}
