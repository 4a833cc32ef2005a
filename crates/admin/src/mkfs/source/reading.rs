//! How a source comes to what takes it.

use super::directory::SourceDirectory;
use super::entry::Entry;
use super::error::SourceError;

/// What takes a source as it comes.
pub(in super::super) trait Sink {
    /// What ends the reading early.
    type Error: From<SourceError>;

    /// Further entries of the present directory, the source itself at first.
    fn take(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        entries: Vec<Entry>,
    ) -> Result<(), Self::Error>;

    /// The present directory has no more entries; its attributes can be set.
    fn finish_directory(&mut self) -> Result<(), Self::Error>;

    /// The next directory among those that came, in their order, is the present one from here on: the one of
    /// this name. `opened` is what it shows now that it is open, where the host has it. Between the two
    /// another directory may have taken the name, and its files belong under its own owner and mode alone.
    fn enter(&mut self, name: &[u8], opened: Option<Entry>) -> Result<(), Self::Error>;

    /// Back to the directory above.
    fn leave(&mut self);
}

/// Offsets and bytes of a file, piece by piece.
pub(super) type Pieces<'a> = Box<dyn Iterator<Item = Result<(u64, Vec<u8>), SourceError>> + 'a>;

/// What has the bytes of files.
pub(super) trait FileBytes {
    /// The bytes of a regular file that came without them, but for its holes.
    ///
    /// # Errors
    /// What opening it met.
    fn pieces<'a>(&'a self, directory: &SourceDirectory, entry: &Entry) -> Result<Pieces<'a>, SourceError>;
}

/// A source that is being read.
pub(in super::super) struct Reading<'a>(&'a dyn FileBytes);

impl<'a> Reading<'a> {
    pub(super) fn of(files: &'a dyn FileBytes) -> Self {
        Self(files)
    }

    /// Gives the bytes of a regular file that came without them, but for its holes, to `take`: offsets and
    /// pieces.
    ///
    /// # Errors
    /// Those of `take`, and what reading met.
    pub(in super::super) fn contents<E: From<SourceError>>(
        &self,
        directory: &SourceDirectory,
        entry: &Entry,
        mut take: impl FnMut(u64, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for piece in self.0.pieces(directory, entry)? {
            let (offset, bytes) = piece?;
            take(offset, bytes)?;
        }
        Ok(())
    }
}
