//! The order of threads that wait for scarce space.

use vlinder_base::thread::{self, ThreadId};

/// The tickets of a file system, in their order.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Vec<Waiter>);

#[derive(Debug)]
struct Waiter {
    thread: ThreadId,
    bytes: u64,
}

impl Tickets {
    /// A thread waits for so many bytes of metadata from now on; for more, if its ticket was for less. Its
    /// place in the order stays.
    pub(crate) fn add(&mut self, thread: ThreadId, bytes: u64) {
        match self.0.iter_mut().find(|ticket| ticket.thread == thread) {
            Some(ticket) => ticket.bytes = ticket.bytes.max(bytes),
            None => self.0.push(Waiter { thread, bytes }),
        }
    }

    pub(crate) fn remove(&mut self, thread: ThreadId) {
        self.0.retain(|ticket| ticket.thread != thread);
    }

    /// How many threads wait.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has(&self, thread: ThreadId) -> bool {
        self.0.iter().any(|ticket| ticket.thread == thread)
    }

    pub(crate) fn is_first(&self, thread: ThreadId) -> bool {
        self.0.first().is_none_or(|ticket| ticket.thread == thread)
    }

    /// A thread comes first: its ticket counts for all others, and theirs no more for it.
    pub(crate) fn overtake(&mut self, thread: ThreadId) {
        self.0.sort_by_key(|ticket| ticket.thread != thread);
    }

    /// Bytes of metadata that threads wait for which come before a thread: those before it in the order, or
    /// all if it has no ticket.
    pub(crate) fn bytes_before(&self, thread: ThreadId) -> u64 {
        let before = self.0.iter().take_while(|ticket| ticket.thread != thread);
        before.fold(0, |sum, ticket| sum.saturating_add(ticket.bytes))
    }

    /// As [`bytes_before`](Self::bytes_before), of the calling thread.
    pub(crate) fn bytes_before_this_thread(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.bytes_before(thread::current_id()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> [ThreadId; 3] {
        let id = || thread::spawn("tickets", thread::current_id).join().unwrap();
        [id(), id(), id()]
    }

    #[test]
    fn a_ticket_counts_for_later_threads_and_those_without_one() {
        let [first, second, other] = threads();
        let mut tickets = Tickets::default();
        let before = |tickets: &Tickets| [first, second, other].map(|thread| tickets.bytes_before(thread));
        assert_eq!(before(&tickets), [0, 0, 0]);
        tickets.add(first, 10);
        tickets.add(second, 5);
        assert_eq!(before(&tickets), [0, 10, 15]);
        tickets.add(first, 30);
        tickets.add(first, 20);
        assert_eq!(before(&tickets), [0, 30, 35], "a ticket grows where it is");
        tickets.overtake(second);
        assert_eq!(before(&tickets), [5, 0, 35]);
        assert!(tickets.is_first(second) && !tickets.is_first(first));
        tickets.remove(second);
        assert_eq!(before(&tickets), [0, 30, 30]);
    }
}
