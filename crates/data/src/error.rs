//! What work on file data can meet.

use vlinder_extent_state::StateError;
use vlinder_forest::ForestError;
use vlinder_format::Damage;
use vlinder_transaction::EngineError;
use vlinder_tree::TreeError;
use vlinder_volume::VolumeError;

use crate::bytes_error::BytesError;
use crate::refusal::DataRefusal;
use crate::space_failure::SpaceFailure;

/// Why data can't be read, written or moved.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The request is refused.
    #[error(transparent)]
    Refused(#[from] DataRefusal),
    /// Transactions, space, the state of the whole.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A tree could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Bytes on disk break a rule.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The volume could not be read or written.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Bytes of a file can't be read or written.
    #[error(transparent)]
    Bytes(#[from] Box<BytesError>),
    /// A defect of the map of unflushed data.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The result of work on file data.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

impl DataError {
    /// Whether the request is refused for this reason.
    pub(crate) fn is_refusal(&self, wanted: DataRefusal) -> bool {
        matches!(self, Self::Refused(refusal) if *refusal == wanted)
    }
}

impl SpaceFailure for DataError {
    fn is_no_space(&self) -> bool {
        match self {
            Self::Refused(refusal) => *refusal == DataRefusal::NoSpace,
            Self::Engine(error) => error.is_no_space(),
            Self::Tree(error) => matches!(error, TreeError::NoSpace { .. }),
            Self::Damage(_) | Self::Volume(_) | Self::Bytes(_) | Self::State(_) => false,
        }
    }

    fn is_host_full(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_host_full(),
            Self::Volume(error) => error.full_host().is_some(),
            _ => false,
        }
    }

    fn lacking_metadata_bytes(&self) -> u64 {
        match self {
            Self::Engine(error) => error.lacking_metadata_bytes(),
            Self::Tree(TreeError::NoSpace { needed_bytes, .. }) => *needed_bytes,
            _ => 0,
        }
    }
}

impl From<BytesError> for DataError {
    fn from(error: BytesError) -> Self {
        Self::Bytes(Box::new(error))
    }
}

impl From<ForestError> for DataError {
    fn from(error: ForestError) -> Self {
        Self::Engine(error.into())
    }
}

/// The engine tells its own errors to the caller that asked for the commit; those of data are of its kinds
/// but for refusals, which nothing that takes part in a commit can meet.
impl From<DataError> for EngineError {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Engine(error) => error,
            DataError::Tree(error) => error.into(),
            DataError::Damage(error) => error.into(),
            DataError::Volume(error) => error.into(),
            other => Self::Participant(Box::new(other)),
        }
    }
}
