//! Trying again what found no space. A commit ends the promises of others and frees what was given back; a claim keeps the room
//! meanwhile, so that an operation that needs much is not always overtaken by those that need little, or by the steps of a
//! long deletion.

use vlinder_transaction::Turn;

use crate::{Filesystem, FsError, Refusal, Result};

/// How often what found no space is tried again, with as much room claimed as it lacked.
const FURTHER_TRIES: u32 = 2;
/// How often it is tried again because it got further and lacked more: an operation asks for the room of one leaf after the
/// other.
const FURTHER_CLAIMS: u32 = 16;

/// The further tries of one operation, or of one step of a long one.
pub(crate) struct Tries<'a> {
    filesystem: &'a Filesystem,
    /// With as much room as claimed before.
    left: u32,
    /// With more.
    claims_left: u32,
    /// Bytes of metadata that are claimed.
    claimed: u64,
    turn: Option<Turn<'a>>,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(filesystem: &'a Filesystem) -> Self {
        Self { filesystem, left: FURTHER_TRIES, claims_left: FURTHER_CLAIMS, claimed: 0, turn: None }
    }

    /// After a failure, whether to try again: where there was no space, a commit could give back some, and tries are left. That
    /// commit was made then. The caller holds no transaction handle.
    ///
    /// # Errors
    /// What the commit met.
    pub(crate) fn again(&mut self, error: &FsError) -> Result<bool> {
        let engine = self.filesystem.engine();
        let lacking = error.lacking_metadata_bytes();
        let left = if lacking > self.claimed { &mut self.claims_left } else { &mut self.left };
        let is_worth_it =
            error.refusal() == Some(Refusal::NoSpace) && *left > 0 && engine.would_gain_by_committing();
        if !is_worth_it {
            return Ok(false);
        }
        tracing::debug!(%error, "tried again after a commit");
        *left -= 1;
        self.claimed = self.claimed.max(lacking);
        match &self.turn {
            Some(turn) => turn.raise(lacking),
            None => self.turn = Some(engine.claim_room(lacking)),
        }
        engine.commit()?;
        Ok(true)
    }
}

impl Filesystem {
    /// Does what takes space, and again after a commit where it found none. A refusal has changed nothing, so `work` can be done
    /// anew. The caller holds no transaction handle.
    ///
    /// # Errors
    /// What the last try met.
    pub(crate) fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = Tries::new(self);
        loop {
            match work() {
                Err(error) if tries.again(&error)? => {}
                done => return done,
            }
        }
    }
}
