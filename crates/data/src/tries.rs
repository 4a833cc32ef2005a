//! Trying again what found no space. A commit ends the promises of others and frees what was given back; a
//! ticket keeps the room meanwhile, so that an operation that needs much is not always overtaken by those
//! that need little, or by the steps of a long deletion.

use std::time::Duration;

use vlinder_transaction::{Engine, Ticket};

use crate::{Result, SpaceFailure};

/// How often what found no space is tried again, with a ticket for as much room as it lacked.
const FURTHER_TRIES: u32 = 2;

/// How long what found no space goes on with freeing deleted subvolumes. One step gives back more than most
/// operations need; where all that is deleted is shared with what stays, the room comes late, and a program
/// is better told than held up: making a file is several operations, each with a patience of its own.
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

/// Blocks of deleted subvolumes that it frees between two tries.
const CLEANED_BLOCKS: usize = 256;

/// How often it is tried again because it got further and lacked more: an operation asks for the room of one
/// leaf after the other.
const LARGER_TICKETS: u32 = 16;

/// The further tries of one operation, or of one step of a long one.
pub struct Tries<'a> {
    engine: &'a Engine,
    /// With a ticket for as much room as before.
    left: u32,
    /// With more.
    larger_left: u32,
    /// Bytes of metadata that the ticket is for.
    waited_for: u64,
    ticket: Option<Ticket<'a>>,
    /// What [`DeadTrees::steps`](vlinder_transaction::DeadTrees::steps) said before the try.
    deletion_steps: u64,
    /// When deleted subvolumes are not waited for any longer; none before the first refusal.
    patient_until: Option<Duration>,
}

impl<'a> Tries<'a> {
    /// For an operation that was not tried yet.
    #[must_use]
    pub fn new(engine: &'a Engine) -> Self {
        Self {
            engine,
            left: FURTHER_TRIES,
            larger_left: LARGER_TICKETS,
            waited_for: 0,
            ticket: None,
            deletion_steps: engine.dead_trees().steps(),
            patient_until: None,
        }
    }

    /// After a failure, whether to try again: where there was no space, a commit could give back some, and
    /// tries are left; or deleted subvolumes gave back some. That was done then. The caller holds no
    /// transaction handle.
    ///
    /// # Errors
    /// What the commit met.
    pub fn again<E: SpaceFailure>(&mut self, error: &E) -> Result<bool> {
        let engine = self.engine;
        let lacking = error.lacking_metadata_bytes();
        let left = if lacking > self.waited_for { &mut self.larger_left } else { &mut self.left };
        if !error.is_no_space() {
            return Ok(false);
        }
        if *left == 0 || !engine.would_gain_by_committing() {
            return self.free_deleted_subvolumes();
        }
        tracing::debug!(%error, "tried again after a commit");
        *left -= 1;
        self.waited_for = self.waited_for.max(lacking);
        match &self.ticket {
            Some(ticket) => ticket.raise(lacking),
            None => self.ticket = Some(engine.reservations().take_ticket(lacking)),
        }
        engine.commit()?;
        Ok(true)
    }

    /// Goes on with freeing what deleted subvolumes held, or waits for the thread that does: a program that
    /// deleted a snapshot counts on its room. Gives whether there is more than before the last try.
    fn free_deleted_subvolumes(&mut self) -> Result<bool> {
        let engine = self.engine;
        let now = engine.clock().monotonic();
        let until = *self.patient_until.get_or_insert(now.saturating_add(LONGEST_PATIENCE));
        let before = std::mem::replace(&mut self.deletion_steps, engine.dead_trees().steps());
        if now >= until {
            return Ok(false);
        }
        if self.deletion_steps == before {
            if let Err(error) = engine.clean(CLEANED_BLOCKS) {
                tracing::debug!(%error, "deleted subvolumes gave back nothing");
            }
            self.deletion_steps = engine.dead_trees().steps();
        }
        if self.deletion_steps == before {
            return Ok(false);
        }
        engine.commit()?;
        Ok(true)
    }
}
