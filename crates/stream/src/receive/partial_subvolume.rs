//! What is known of a subvolume that is not received whole.

use vlinder_format::RootId;

use crate::resume::{ResumeToken, RunningHash};

/// A subvolume that is not received whole, with its checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialSubvolume {
    /// The name that it will have.
    pub name: Vec<u8>,
    /// What the sender needs to go on. It names the last checkpoint, or the beginning where there is none.
    /// None where receiving ended before it had begun.
    pub token: Option<ResumeToken>,
    /// The subvolumes that belong to it.
    pub(super) parts: Vec<PartialPart>,
}

/// A subvolume that belongs to a partial one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialPart {
    pub id: RootId,
    /// Its name in the directory.
    pub name: Vec<u8>,
    pub is_checkpoint: bool,
    pub token: Option<ResumeToken>,
}

impl PartialSubvolume {
    /// The checkpoint that its token names.
    pub(super) fn checkpoint(&self) -> Option<&PartialPart> {
        let checkpoints = self.parts.iter().filter(|part| part.is_checkpoint && part.token.is_some());
        checkpoints.max_by_key(|part| part.token.map(|token| token.received.bytes()))
    }

    /// What its attributes say.
    pub(super) fn judge(&mut self) {
        let begun = self.parts.iter().find_map(|part| part.token);
        let at_start = begun.map(|token| ResumeToken { received: RunningHash::default(), ..token });
        self.token = self.checkpoint().and_then(|checkpoint| checkpoint.token).or(at_start);
    }
}
