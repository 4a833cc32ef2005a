//! What a new file system is filled from, opened once for all that is asked of it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vlinder_base::clock::Timestamp;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicBool;
use vlinder_device::HostIdentity;

use super::archive::{Archive, ArchiveReading};
use super::directory::{SourceDirectory, open_source};
use super::entry::Entry;
use super::error::SourceError;
use super::host::{self, HostReading};
use super::load;
use super::private_attributes::PrivateAttributes;
use super::reading::Sink;
use super::rules::EntryRules;
use crate::mkfs::error::MkfsError;
use crate::mkfs::owner_table::OwnerTable;

/// Where a source is, and what becomes of it.
pub(in super::super) struct SourceChoice<'a> {
    /// A directory or an archive; `-` for an archive on standard input.
    pub(in super::super) path: &'a Path,
    /// User and group of everything.
    pub(in super::super) owner: Option<(u32, u32)>,
    /// A table of owners, modes and device nodes.
    pub(in super::super) owner_table: Option<&'a Path>,
    /// No time in the image is later.
    pub(in super::super) latest: Option<Timestamp>,
    /// The time of what the source has none for.
    pub(in super::super) present: Timestamp,
    /// Set when reading an archive is to end early.
    pub(in super::super) interrupted: &'a AtomicBool,
}

/// An open source, and the rules for what becomes of it.
pub(in super::super) struct Source {
    kind: SourceKind,
    path: PathBuf,
    rules: EntryRules,
}

enum SourceKind {
    Directory(Arc<SourceDirectory>),
    Archive(Archive),
}

impl Source {
    /// Opens a source: a directory, or an archive, which is read.
    ///
    /// # Errors
    /// [`MkfsError::SourceDirectory`]; [`MkfsError::OwnerTable`], and [`MkfsError::Target`] for its file;
    /// [`MkfsError::Archive`], [`MkfsError::Interrupted`].
    pub(in super::super) fn open(given: &SourceChoice) -> Result<Self, MkfsError> {
        let table = given.owner_table.map(OwnerTable::read).transpose()?;
        let rules = EntryRules {
            owner: given.owner,
            table: table.unwrap_or_default(),
            latest: given.latest,
            private_attributes: PrivateAttributes::of_host(),
        };
        let kind = if is_archive(given.path) {
            SourceKind::Archive(Archive::read(given.path, given.present, given.interrupted)?)
        } else {
            SourceKind::Directory(open_source(given.path)?)
        };
        Ok(Self { kind, path: given.path.to_owned(), rules })
    }

    /// What the caller should know of it, a sentence each.
    pub(in super::super) fn notes(&self) -> &[String] {
        match &self.kind {
            SourceKind::Directory(_) => &[],
            SourceKind::Archive(archive) => archive.notes(),
        }
    }

    /// Whether the file of the host is the archive, which would be overwritten.
    pub(in super::super) fn is_file(&self, file: HostIdentity) -> bool {
        match &self.kind {
            SourceKind::Directory(_) => false,
            SourceKind::Archive(archive) => archive.lies_in(file),
        }
    }

    /// The path of a file or directory without links in it, by any path to it below the source directory.
    ///
    /// # Errors
    /// Why there is none.
    pub(in super::super) fn file_or_directory(&self, path: &Path) -> Result<Vec<u8>, &'static str> {
        let below = path.strip_prefix("/").unwrap_or(path);
        match &self.kind {
            SourceKind::Archive(archive) => archive.file_or_directory(below.as_os_str().as_bytes()),
            SourceKind::Directory(_) => {
                let base = self.path.canonicalize().map_err(|_| "the source directory is gone")?;
                let found = base.join(below).canonicalize().map_err(|_| "no such file in the source")?;
                let is_taken = found.metadata().is_ok_and(|status| status.is_file() || status.is_dir());
                let below = found.strip_prefix(&base).map_err(|_| "leads out of the source directory")?;
                if is_taken { Ok(below.as_os_str().as_bytes().to_vec()) } else { Err(NO_FILE) }
            }
        }
    }

    /// For an archive: whether a path in it leads to a directory; none for a directory of the host.
    pub(in super::super) fn archive_has_directory(&self, path: &[u8]) -> Option<bool> {
        match &self.kind {
            SourceKind::Directory(_) => None,
            SourceKind::Archive(archive) => Some(archive.has_directory(path)),
        }
    }

    /// The source directory itself.
    ///
    /// # Errors
    /// What reading it met.
    pub(in super::super) fn root_entry(&self) -> Result<Entry, SourceError> {
        match &self.kind {
            SourceKind::Directory(root) => load::root_entry(root, &self.rules),
            SourceKind::Archive(archive) => Ok(archive.root_entry(&self.rules)),
        }
    }

    /// Reads all of it; see [`host::read`].
    ///
    /// # Errors
    /// The system gives no threads.
    pub(in super::super) fn read<R>(
        &self,
        threads: usize,
        sector_bytes: usize,
        take: impl FnOnce(Feed) -> R,
    ) -> std::io::Result<R> {
        match &self.kind {
            SourceKind::Directory(root) => {
                let take = |reading| take(Feed::Host(reading));
                host::read(Arc::clone(root), &self.rules, threads, sector_bytes, take)
            }
            SourceKind::Archive(archive) => {
                Ok(take(Feed::Archive(ArchiveReading::new(archive, &self.rules, sector_bytes))))
            }
        }
    }
}

/// A source that is ready to be given.
pub(in super::super) enum Feed<'a> {
    Host(HostReading),
    Archive(ArchiveReading<'a>),
}

impl Feed<'_> {
    /// Gives everything to `sink`, to the end or the first error.
    ///
    /// # Errors
    /// The sink's, and what reading met.
    pub(in super::super) fn give_to<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        match self {
            Self::Host(reading) => reading.give_to(sink),
            Self::Archive(reading) => reading.give_to(sink),
        }
    }
}

const NO_FILE: &str = "neither a file nor a directory: others have no data that the flags could be of";

/// Whether a path is not that of a directory: `-` for standard input, or a file or pipe of the host.
fn is_archive(path: &Path) -> bool {
    path == Path::new("-") || path.metadata().is_ok_and(|status| !status.is_dir())
}
