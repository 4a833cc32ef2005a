//! Reading a source for nothing: what reading alone takes of the making of an image.

use std::path::Path;

use vlinder_base::clock::Timestamp;
use vlinder_base::sync::atomic::AtomicBool;
use vlinder_base::thread;

use super::choice::{Source, SourceChoice};
use super::directory::SourceDirectory;
use super::entry::{Content, Entry, Kind};
use super::reading::{Reading, Sink};
use crate::mkfs::error::MkfsError;

/// Sectors of the image that is not made.
const SECTOR_BYTES: usize = 4096;

/// What was read and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedSource {
    /// Names, the root's not included; every name of a file counts.
    pub entries: u64,
    /// Bytes of regular files, without holes.
    pub data_bytes: u64,
}

impl Sink for DroppedSource {
    type Error = MkfsError;

    fn take(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        entries: Vec<Entry>,
    ) -> Result<(), MkfsError> {
        for entry in entries {
            self.entries += 1;
            match &entry.kind {
                Kind::Regular(Content::Loaded(bytes)) => self.add(bytes),
                Kind::Regular(Content::Unread) => reading.contents(directory, &entry, |_, bytes| {
                    self.add(&bytes);
                    Ok::<(), MkfsError>(())
                })?,
                _ => {}
            }
        }
        Ok(())
    }

    fn finish_directory(&mut self) -> Result<(), MkfsError> {
        Ok(())
    }

    fn enter(&mut self, _name: &[u8], _opened: Option<Entry>) -> Result<(), MkfsError> {
        Ok(())
    }

    fn leave(&mut self) {}
}

impl DroppedSource {
    fn add(&mut self, bytes: &[u8]) {
        self.data_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
}

/// Reads all that [`mkfs`](crate::mkfs::mkfs) would copy from a directory, as it reads it, and drops it.
///
/// # Errors
/// [`MkfsError::SourceDirectory`], [`MkfsError::Source`], [`MkfsError::NoThreads`].
pub fn read_source(path: &Path, threads: Option<usize>) -> Result<DroppedSource, MkfsError> {
    let source = Source::open(&SourceChoice {
        path,
        owner: None,
        owner_table: None,
        latest: None,
        present: Timestamp::EPOCH,
        interrupted: &AtomicBool::new(false),
    })?;
    source.root_entry()?;
    let threads = threads.unwrap_or_else(thread::available_parallelism);
    source
        .read(threads, SECTOR_BYTES, |reading| {
            let mut dropped = DroppedSource::default();
            reading.give_to(&mut dropped)?;
            Ok(dropped)
        })
        .map_err(|source| MkfsError::NoThreads { source })?
}
