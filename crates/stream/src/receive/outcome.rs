//! What came of receiving.

use vlinder_format::RootId;

use super::{PartialSubvolume, ReceiveError};

/// The most warnings, and errors that did not end receiving, that are kept; a stream can cause any number.
const MAX_KEPT: usize = 1000;

/// A subvolume that a stream made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its name in the directory.
    pub name: Vec<u8>,
    /// Its tree.
    pub id: RootId,
    /// Every command of its stream was applied. If not, it is read-only, and not marked as received.
    pub is_whole: bool,
}

/// What of a stream was not applied, although nothing is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A file is under fs-verity at the sender, and is not here.
    Verity {
        /// The file.
        path: Vec<u8>,
        /// The name of the hash.
        algorithm: &'static str,
        /// The file's digest, as `fsverity measure` tells it at the sender, made from the data here.
        digest: Vec<u8>,
    },
    /// The root has the attribute that marks a partial subvolume, at the sender too. It is not kept.
    TokenAttribute,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Verity { path, algorithm, digest } => {
                write!(formatter, "{}: fs-verity is not turned on here; compare ", path.escape_ascii())?;
                write!(formatter, "the digest of what was received with the sender's: {algorithm}:")?;
                digest.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
            }
            Self::TokenAttribute => {
                let name = crate::resume::TOKEN_ATTRIBUTE.escape_ascii();
                write!(formatter, "the root's attribute {name} is not kept: it marks what is partial")
            }
        }
    }
}

/// How far receiving is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of the streams.
    pub bytes: u64,
    /// Commands that were applied.
    pub commands: u64,
}

/// What came of receiving.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The subvolumes that were made, in the order of the streams.
    pub received: Vec<Received>,
    /// What was not applied: the first thousand.
    pub warnings: Vec<Warning>,
    /// How many warnings there are.
    pub warning_count: u64,
    /// Errors that did not end receiving: the first thousand.
    pub errors: Vec<ReceiveError>,
    /// How many such errors there are.
    pub error_count: u64,
    /// What an error left of a subvolume.
    pub partial: Option<PartialSubvolume>,
    /// How far receiving came.
    pub progress: Progress,
}

impl Outcome {
    pub(super) fn warn(&mut self, warning: Warning) {
        self.warning_count += 1;
        if self.warnings.len() < MAX_KEPT {
            self.warnings.push(warning);
        }
    }

    pub(super) fn note_error(&mut self, error: ReceiveError) {
        self.error_count += 1;
        if self.errors.len() < MAX_KEPT {
            self.errors.push(error);
        }
    }
}
