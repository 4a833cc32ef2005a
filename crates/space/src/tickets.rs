//! Tickets for scarce space. A refused thread commits and tries again; its ticket keeps other threads from
//! taking what that commit frees (Linux: `struct reserve_ticket`). Tickets are served in their order.
//!
//! A ticket stops no other thread for good: a thread that finds no room beside tickets is refused, and takes
//! a ticket as well. A waiting thread may hold a lock that the first thread needs. So it waits at most
//! [`PATIENCE`] for the next ticket to end, and then takes the first place.

use std::time::Duration;

use vlinder_base::thread::{self, ThreadId};

use crate::ledger::Ledger;

/// How long a thread waits for the end of the next ticket before its own. Each takes a few commits.
const PATIENCE: Duration = Duration::from_secs(2);

/// The ticket of a thread that was refused room and tries again.
#[derive(Debug)]
pub struct Ticket<'a> {
    ledger: &'a Ledger,
    thread: ThreadId,
    is_first_of_thread: bool,
}

impl<'a> Ticket<'a> {
    /// Gives the calling thread a ticket for so many bytes of metadata, and waits until those before it have
    /// ended; at most [`PATIENCE`] for each of them. A thread that has a ticket already keeps its place, and
    /// its ticket is for the most of both until the first of the two is dropped that was given.
    pub(crate) fn take(ledger: &'a Ledger, bytes: u64) -> Self {
        let thread = thread::current_id();
        let mut state = ledger.state.lock();
        let is_first_of_thread = !state.promises.tickets().has(thread);
        state.promises.tickets().add(thread, bytes);
        while !state.promises.tickets().is_first(thread) {
            if ledger.ticket_ended.wait_for(&mut state, PATIENCE).timed_out() {
                state.promises.tickets().overtake(thread);
            }
        }
        drop(state);
        Self { ledger, thread, is_first_of_thread }
    }

    /// Is for more from now on, if it was for less.
    pub fn raise(&self, bytes: u64) {
        self.ledger.state.lock().promises.tickets().add(self.thread, bytes);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.is_first_of_thread {
            return;
        }
        self.ledger.state.lock().promises.tickets().remove(self.thread);
        self.ledger.ticket_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::charge::Charge;
    use crate::demand::{ReserveAccess, Wanted};
    use crate::neighbours::{BLOCK, BLOCKS, Neighbours, neighbours};
    use vlinder_base::clock::{Clock, SystemClock};

    use super::*;
    use crate::manager::SpaceManager;
    use vlinder_format::chunk::BlockGroupFlags;

    impl SpaceManager {
        /// Whether a thread waits for another's ticket to end.
        fn has_waiting_ticket(&self) -> bool {
            self.ledger().state.lock().promises.tickets().count() > 1
        }
    }

    #[test]
    fn an_operation_within_another_keeps_the_ticket_of_that() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0)]);
        let before_others = || {
            thread::scope(|scope| {
                scope.spawn(|| space.reservations().has_tickets_before_this_thread()).join().unwrap()
            })
        };
        let outer = space.reservations().take_ticket(10);
        drop(space.reservations().take_ticket(20));
        assert!(before_others());
        drop(outer);
        assert!(!before_others());
    }

    #[test]
    fn tickets_are_served_in_order_and_long_waiters_come_first() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0)]);
        let waits_until = |end: &mut dyn FnMut()| {
            thread::scope(|scope| {
                let second = scope.spawn(|| {
                    assert!(space.reservations().has_tickets_before_this_thread());
                    let clock = SystemClock::new();
                    drop(space.reservations().take_ticket(10));
                    clock.monotonic()
                });
                end();
                second.join().unwrap()
            })
        };
        let mut ticket = Some(space.reservations().take_ticket(10));
        assert!(!space.reservations().has_tickets_before_this_thread());
        let waited = waits_until(&mut || {
            while !space.has_waiting_ticket() {
                thread::yield_now();
            }
            ticket = None;
        });
        assert!(waited < PATIENCE, "{waited:?}");
        let _ticket = space.reservations().take_ticket(10);
        assert!(waits_until(&mut || {}) >= PATIENCE);
    }

    #[test]
    fn others_leave_a_tickets_room_but_for_what_was_accepted() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0)]);
        let beside = space.reservations().price_of_commit_bytes(Charge::default());
        let asks = |access, blocks| {
            let wanted = Wanted { changes: Charge { blocks, ..Charge::default() }, ..Wanted::default() };
            let is_given = space.reservations().reserve(wanted, access, Charge::default, &Neighbours);
            if is_given {
                space.reservations().unreserve(wanted.changes);
            }
            is_given
        };
        let free = BLOCKS - beside / BLOCK;
        let _ticket = space.reservations().take_ticket(free / 2 * BLOCK);
        let by_other =
            |access, blocks| thread::scope(|scope| scope.spawn(|| asks(access, blocks)).join().unwrap());
        assert!(asks(ReserveAccess::Reserve, free / 2 + 1), "the ticket is for its own thread");
        assert!(by_other(ReserveAccess::Reserve, free / 3));
        assert!(!by_other(ReserveAccess::Reserve, free / 2 + 1));
        let lacks = |access| {
            let lacking = || space.reservations().lacking(access, Charge::default(), free * BLOCK).metadata;
            thread::scope(|scope| scope.spawn(lacking).join().unwrap())
        };
        assert_eq!(
            (lacks(ReserveAccess::Reserve), lacks(ReserveAccess::Accepted)),
            (free / 2 * BLOCK, 0),
            "nor a chunk"
        );
        assert!(
            by_other(ReserveAccess::Accepted, free / 2 + 1)
                && by_other(ReserveAccess::LastReserve, free / 2 + 1)
        );
    }
}
