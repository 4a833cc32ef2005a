//! What a file holds: runs of bytes that lie somewhere in the streams, and holes.

use vlinder_base::sync::Arc;
use vlinder_format::Uuid;

use super::sequence::{Items, Measured, Sequence};
use crate::encoded::EncodedForm;

/// No file is longer (`MAX_LFS_FILESIZE`).
pub(super) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// Where bytes of a command lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPlace {
    /// Which of the inputs, in the order in which they were added.
    pub input: u32,
    /// The first byte of the input.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
}

/// A compressed extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncodedExtent {
    pub place: StreamPlace,
    pub form: EncodedForm,
}

/// Where the bytes of a run come from.
#[derive(Clone, Debug)]
pub(super) enum RunSource {
    /// Zeros that nobody wrote.
    Hole,
    /// Bytes of an input from an offset on.
    Plain { input: u32, offset: u64 },
    /// Decoded bytes of an extent, but for so many at its beginning.
    Encoded(Arc<EncodedExtent>, u64),
    /// Bytes of a subvolume that was not given.
    Missing(Uuid),
    /// Bytes that the sender left out (`btrfs send --no-data`).
    NotSent,
}

/// Bytes of a file that follow one another in one place.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub bytes: u64,
    pub source: RunSource,
}

impl Measured for Run {
    fn length(&self) -> u64 {
        self.bytes
    }

    fn is_marked(&self) -> bool {
        matches!(self.source, RunSource::Missing(_) | RunSource::NotSent)
    }
}

impl Run {
    /// The bytes of a run before a position in it, and those behind.
    fn cut(self, at: u64) -> (Self, Self) {
        let behind = match &self.source {
            RunSource::Plain { input, offset } => RunSource::Plain { input: *input, offset: offset + at },
            RunSource::Encoded(extent, skipped) => RunSource::Encoded(Arc::clone(extent), skipped + at),
            other => other.clone(),
        };
        (Self { bytes: at, ..self.clone() }, Self { bytes: self.bytes - at, source: behind })
    }
}

/// The content of a file.
///
/// Invariants: (1) the runs are as long as the file, which is at most [`MAX_FILE_BYTES`]. (2) No run is
/// empty. (3) Where the size is not known, the runs are as long as a file can be.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    runs: Sequence<Run>,
    /// The file was there before the streams that were given, and they do not tell its size.
    is_size_unknown: bool,
}

impl Content {
    /// That of a file of a subvolume that was not given.
    pub fn of_missing(subvolume: Uuid) -> Self {
        let source = RunSource::Missing(subvolume);
        Self { runs: Sequence::of(Run { bytes: MAX_FILE_BYTES, source }), is_size_unknown: true }
    }

    /// The size, if it is known.
    pub fn size(&self) -> Option<u64> {
        (!self.is_size_unknown).then(|| self.runs.length())
    }

    /// A run whose bytes are in none of the streams, if there is one.
    pub fn first_lacking(&self) -> Option<&RunSource> {
        self.runs.first_marked().map(|run| &run.source)
    }

    /// The runs in the order of the file.
    pub fn runs(&self) -> Items<'_, Run> {
        self.runs.iter()
    }

    /// Sets the size; a file that becomes longer has a hole at its end.
    pub fn truncate(&mut self, size: u64) {
        self.is_size_unknown = false;
        self.extend(size);
        self.runs = std::mem::take(&mut self.runs).split_at(size, &Run::cut).0;
    }

    /// Makes a file that is shorter as long as `size`.
    pub fn extend(&mut self, size: u64) {
        let bytes = size.saturating_sub(self.runs.length());
        if bytes > 0 {
            let hole = Sequence::of(Run { bytes, source: RunSource::Hole });
            self.runs = std::mem::take(&mut self.runs).concat(hole);
        }
    }

    /// Puts a run at an offset, over what is there.
    pub fn write(&mut self, offset: u64, run: Run) {
        if run.bytes > 0 {
            self.replace(offset, Sequence::of(run));
        }
    }

    /// Makes a range that lies in the file a hole.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.runs.length());
        let bytes = end.saturating_sub(offset);
        self.write(offset, Run { bytes, source: RunSource::Hole });
    }

    /// Takes over a range of another file, which lies in it.
    pub fn clone_range(&mut self, offset: u64, from: &Self, from_offset: u64, length: u64) {
        let (_, behind) = from.runs.clone().split_at(from_offset, &Run::cut);
        let (runs, _) = behind.split_at(length, &Run::cut);
        if !runs.is_empty() {
            self.replace(offset, runs);
        }
    }

    fn replace(&mut self, offset: u64, runs: Sequence<Run>) {
        self.extend(offset);
        let (before, behind) = std::mem::take(&mut self.runs).split_at(offset, &Run::cut);
        let (_, after) = behind.split_at(runs.length(), &Run::cut);
        self.runs = before.concat(runs).concat(after);
    }
}
