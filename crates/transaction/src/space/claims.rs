//! Claims on scarce room. Who was refused commits and tries again; a claim keeps others from taking meanwhile what the commit
//! gives back, as the queue of tickets does in Linux (`struct reserve_ticket`). Claims are served in their order.
//!
//! A claim blocks nobody for good. Who finds no room beside claims is refused, and claims room as well. Who waits for its turn
//! may hold locks that the one whose turn it is needs, so it waits for a while only ([`PATIENCE`]).

use std::time::Duration;

use vlinder_base::thread::{self, ThreadId};

use super::manager::SpaceManager;

/// How long a thread waits for the end of the next claim before its own. Each takes a few commits.
const PATIENCE: Duration = Duration::from_secs(2);

/// The claims of a file system, in their order.
#[derive(Debug, Default)]
pub(super) struct Claims(Vec<Claim>);

#[derive(Debug)]
struct Claim {
    thread: ThreadId,
    bytes: u64,
}

impl Claims {
    /// A thread claims so many bytes of metadata from now on; more, if it claimed less before. Its place in the order stays.
    fn add(&mut self, thread: ThreadId, bytes: u64) {
        match self.0.iter_mut().find(|claim| claim.thread == thread) {
            Some(claim) => claim.bytes = claim.bytes.max(bytes),
            None => self.0.push(Claim { thread, bytes }),
        }
    }

    fn remove(&mut self, thread: ThreadId) {
        self.0.retain(|claim| claim.thread != thread);
    }

    fn is_first(&self, thread: ThreadId) -> bool {
        self.0.first().is_none_or(|claim| claim.thread == thread)
    }

    /// A thread's claim counts for all others, and theirs no more for it.
    fn overtake(&mut self, thread: ThreadId) {
        self.0.sort_by_key(|claim| claim.thread != thread);
    }

    /// Bytes of metadata that were claimed before it is a thread's turn: before its own claim, or by all if it has none.
    fn bytes_before(&self, thread: ThreadId) -> u64 {
        let before = self.0.iter().take_while(|claim| claim.thread != thread);
        before.fold(0, |sum, claim| sum.saturating_add(claim.bytes))
    }

    /// As [`bytes_before`](Self::bytes_before), of the calling thread.
    pub(super) fn bytes_before_this_thread(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.bytes_before(thread::current_id()) }
    }
}

/// The turn of a thread that was refused room and tries again. Its claim ends with this.
#[derive(Debug)]
pub struct Turn<'a> {
    space: &'a SpaceManager,
    thread: ThreadId,
}

impl Turn<'_> {
    /// Claims more, if it claimed less before.
    pub fn raise(&self, bytes: u64) {
        self.space.state.lock().promises.claims().add(self.thread, bytes);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.space.state.lock().promises.claims().remove(self.thread);
        self.space.claim_ended.notify_all();
    }
}

impl SpaceManager {
    /// The calling thread claims so many bytes of metadata, and waits until those are done who claimed before it; not longer
    /// than for a while in which none of them is.
    pub(crate) fn claim(&self, bytes: u64) -> Turn<'_> {
        let thread = thread::current_id();
        let mut state = self.state.lock();
        state.promises.claims().add(thread, bytes);
        while !state.promises.claims().is_first(thread) {
            if self.claim_ended.wait_for(&mut state, PATIENCE).timed_out() {
                state.promises.claims().overtake(thread);
            }
        }
        drop(state);
        Turn { space: self, thread }
    }

    /// Whether others claim room before it is the calling thread's turn.
    pub(crate) fn is_claimed_by_others(&self) -> bool {
        self.state.lock().promises.claims().bytes_before_this_thread() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::charge::Charge;
    use super::super::demand::{Draw, Wanted};
    use super::super::neighbours::{BLOCK, BLOCKS, Neighbours, neighbours};
    use vlinder_base::clock::{Clock, SystemClock};

    use super::*;
    use vlinder_format::chunk::BlockGroupFlags;

    impl SpaceManager {
        /// Whether somebody waits for another's turn to end.
        fn is_claimed_behind(&self) -> bool {
            self.state.lock().promises.claims().0.len() > 1
        }
    }

    fn threads() -> [ThreadId; 3] {
        let id = || thread::spawn("claims", thread::current_id).join().unwrap();
        [id(), id(), id()]
    }

    #[test]
    fn a_claim_counts_for_those_who_came_later_and_for_those_who_claim_nothing() {
        let [first, second, other] = threads();
        let mut claims = Claims::default();
        let before = |claims: &Claims| [first, second, other].map(|thread| claims.bytes_before(thread));
        assert_eq!(before(&claims), [0, 0, 0]);
        claims.add(first, 10);
        claims.add(second, 5);
        assert_eq!(before(&claims), [0, 10, 15]);
        claims.add(first, 30);
        claims.add(first, 20);
        assert_eq!(before(&claims), [0, 30, 35], "a claim grows where it is");
        claims.overtake(second);
        assert_eq!(before(&claims), [5, 0, 35]);
        assert!(claims.is_first(second) && !claims.is_first(first));
        claims.remove(second);
        assert_eq!(before(&claims), [0, 30, 30]);
    }

    #[test]
    fn turns_come_in_the_order_of_claims_and_to_those_who_waited_too_long() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0)]);
        let waits_until = |end: &mut dyn FnMut()| {
            thread::scope(|scope| {
                let second = scope.spawn(|| {
                    assert!(space.is_claimed_by_others());
                    let clock = SystemClock::new();
                    drop(space.claim(10));
                    clock.monotonic()
                });
                end();
                second.join().unwrap()
            })
        };
        let mut turn = Some(space.claim(10));
        assert!(!space.is_claimed_by_others());
        let waited = waits_until(&mut || {
            while !space.is_claimed_behind() {
                thread::yield_now();
            }
            turn = None;
        });
        assert!(waited < PATIENCE, "{waited:?}");
        let _turn = space.claim(10);
        assert!(waits_until(&mut || {}) >= PATIENCE);
    }

    #[test]
    fn others_leave_the_room_that_is_claimed_but_for_what_was_accepted_before() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0)]);
        let beside = space.price_of_commit_bytes(Charge::default());
        let asks = |draw, blocks| {
            let wanted = Wanted { changes: Charge { blocks, ..Charge::default() }, ..Wanted::default() };
            let is_given = space.promise(wanted, draw, Charge::default, &Neighbours);
            if is_given {
                space.unpromise(wanted.changes);
            }
            is_given
        };
        let free = BLOCKS - beside / BLOCK;
        let _turn = space.claim(free / 2 * BLOCK);
        let by_other =
            |draw, blocks| thread::scope(|scope| scope.spawn(|| asks(draw, blocks)).join().unwrap());
        assert!(asks(Draw::Reserve, free / 2 + 1), "the claim is for its own thread");
        assert!(by_other(Draw::Reserve, free / 3));
        assert!(!by_other(Draw::Reserve, free / 2 + 1));
        let lacks = |draw| {
            let lacking = || space.lacking(draw, Charge::default(), free * BLOCK).metadata;
            thread::scope(|scope| scope.spawn(lacking).join().unwrap())
        };
        assert_eq!((lacks(Draw::Reserve), lacks(Draw::Accepted)), (free / 2 * BLOCK, 0), "nor a chunk");
        assert!(by_other(Draw::Accepted, free / 2 + 1) && by_other(Draw::LastReserve, free / 2 + 1));
    }
}
