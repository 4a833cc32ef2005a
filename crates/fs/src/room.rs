//! Trying again what found no space. A commit ends the promises of others and frees what was given back; a ticket keeps the room
//! meanwhile, so that an operation that needs much is not always overtaken by those that need little, or by the steps of a
//! long deletion.

use vlinder_transaction::Ticket;

use crate::{Filesystem, FsError, Refusal, Result};

/// How often what found no space is tried again, with a ticket for as much room as it lacked.
const FURTHER_TRIES: u32 = 2;
/// How often it is tried again because it got further and lacked more: an operation asks for the room of one leaf after the
/// other.
const LARGER_TICKETS: u32 = 16;

/// The further tries of one operation, or of one step of a long one.
pub(crate) struct Tries<'a> {
    filesystem: &'a Filesystem,
    /// With a ticket for as much room as before.
    left: u32,
    /// With more.
    larger_left: u32,
    /// Bytes of metadata that the ticket is for.
    waited_for: u64,
    ticket: Option<Ticket<'a>>,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(filesystem: &'a Filesystem) -> Self {
        Self { filesystem, left: FURTHER_TRIES, larger_left: LARGER_TICKETS, waited_for: 0, ticket: None }
    }

    /// After a failure, whether to try again: where there was no space, a commit could give back some, and tries are left. That
    /// commit was made then. The caller holds no transaction handle.
    ///
    /// # Errors
    /// What the commit met.
    pub(crate) fn again(&mut self, error: &FsError) -> Result<bool> {
        let engine = self.filesystem.engine();
        let lacking = error.lacking_metadata_bytes();
        let left = if lacking > self.waited_for { &mut self.larger_left } else { &mut self.left };
        let is_worth_it =
            error.refusal() == Some(Refusal::NoSpace) && *left > 0 && engine.would_gain_by_committing();
        if !is_worth_it {
            return Ok(false);
        }
        tracing::debug!(%error, "tried again after a commit");
        *left -= 1;
        self.waited_for = self.waited_for.max(lacking);
        match &self.ticket {
            Some(ticket) => ticket.raise(lacking),
            None => self.ticket = Some(engine.take_ticket(lacking)),
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
