//! An io_uring backend: callers put requests on the ring, one thread takes their results off it.
//!
//! Invariants that the `unsafe` blocks lean on:
//! 1. The submission queue is touched only under the lock of [`Ring::slots`]; the completion queue only by
//!    the reaper thread.
//! 2. A request whose entry is on the ring lies in a slot, untouched, until the reaper has seen its
//!    completion; so its buffer and its file outlive the kernel's use of them.
//! 3. There are as many slots as submission entries, and the completion queue has at least twice as many:
//!    neither queue ever overflows.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use vlinder_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use vlinder_base::thread::{self, JoinHandle};

use super::host_file::HostFile;
use crate::{Completer, Durability, Request, Ticket};

/// Requests on the ring at once.
const SLOTS: u32 = 128;
/// The user data of the entry that ends the reaper.
const GOODBYE: u64 = u64::MAX;
/// One entry carries at most this much (its length field has 32 bits); the rest is done after it, as a short
/// transfer.
const MAX_BYTES_PER_ENTRY: usize = 1 << 30;
/// `RWF_DSYNC` of linux/fs.h.
const RWF_DSYNC: i32 = 2;
/// `IORING_ENTER_GETEVENTS` of linux/io_uring.h.
const ENTER_GETEVENTS: u32 = 1;

/// The backend; its thread ends when it is dropped, after all requests have.
pub(super) struct Uring {
    ring: Arc<Ring>,
    reaper: Option<JoinHandle<()>>,
}

struct Ring {
    uring: IoUring,
    slots: Mutex<Slots>,
    /// Signalled whenever a slot gets free.
    freed: Condvar,
}

struct Slots {
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
}

struct InFlight {
    host: Arc<HostFile>,
    request: Request,
    position: usize,
    completer: Completer,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Uring({} free slots)", self.ring.slots.lock().free.len())
    }
}

impl Uring {
    /// Fails where the kernel has no io_uring or forbids it.
    pub(super) fn new() -> io::Result<Self> {
        let uring = IoUring::new(SLOTS)?;
        let slots = SLOTS as usize;
        let slots = Slots { in_flight: (0..slots).map(|_| None).collect(), free: (0..slots).collect() };
        let ring = Arc::new(Ring { uring, slots: Mutex::new(slots), freed: Condvar::new() });
        let reaped = ring.clone();
        let reaper = thread::try_spawn("device-uring", move || reaped.reap())?;
        Ok(Uring { ring, reaper: Some(reaper) })
    }

    pub(super) fn submit(&self, host: &Arc<HostFile>, batch: Vec<Request>) -> Ticket {
        let (ticket, completer) = Ticket::pending(&host.name, &batch);
        let mut slots = self.ring.slots.lock();
        for (position, request) in batch.into_iter().enumerate() {
            if let Err(error) = host.check_request(&request) {
                completer.complete(position, request.complete(Err(error)));
                continue;
            }
            let slot = self.ring.free_slot(&mut slots);
            let mut in_flight =
                InFlight { host: host.clone(), request, position, completer: completer.clone() };
            let entry = entry(&mut in_flight).user_data(slot as u64);
            slots.in_flight[slot] = Some(in_flight);
            self.ring.push(&mut slots, &entry);
        }
        self.ring.enter(slots);
        ticket
    }
}

/// The entry of a request. Its pointers stay good while the request lies in its slot: moving a request moves
/// neither a vector's heap nor what an `Arc` points to.
fn entry(in_flight: &mut InFlight) -> squeue::Entry {
    let descriptor = types::Fd(in_flight.host.descriptor.as_raw_fd());
    match &mut in_flight.request {
        Request::Read { offset, buffer } => {
            let length = buffer.len().min(MAX_BYTES_PER_ENTRY) as u32;
            opcode::Read::new(descriptor, buffer.as_mut_ptr(), length).offset(offset.0).build()
        }
        Request::Write { offset, data, durability } => {
            let bytes = data.as_slice();
            let length = bytes.len().min(MAX_BYTES_PER_ENTRY) as u32;
            let flags = match durability {
                Durability::Cached => 0,
                Durability::Durable => RWF_DSYNC,
            };
            opcode::Write::new(descriptor, bytes.as_ptr(), length).offset(offset.0).rw_flags(flags).build()
        }
    }
}

impl Ring {
    /// A free slot; sends off what waits in the submission queue before it sleeps for one.
    fn free_slot(&self, slots: &mut MutexGuard<'_, Slots>) -> usize {
        loop {
            if let Some(slot) = slots.free.pop() {
                return slot;
            }
            self.enter_locked();
            self.freed.wait(slots);
        }
    }

    /// Puts an entry on the submission queue. `_slots` shows that the lock is held.
    fn push(&self, _slots: &mut Slots, entry: &squeue::Entry) {
        // SAFETY: invariant 1: the lock is held, so this is the only user of the submission queue.
        let mut queue = unsafe { self.uring.submission_shared() };
        // SAFETY: invariant 2: the request lies in its slot until its completion was seen.
        let pushed = unsafe { queue.push(entry) };
        assert!(pushed.is_ok(), "more entries than slots on the submission queue");
    }

    fn enter(&self, slots: MutexGuard<'_, Slots>) {
        self.enter_locked();
        drop(slots);
    }

    /// Hands the submission queue to the kernel; the lock is held.
    fn enter_locked(&self) {
        // A kernel short of memory or of completion space takes the entries a little later.
        while self.uring.submit().is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn reap(&self) {
        loop {
            // SAFETY: waits for one completion; no argument is passed and no submission entry is taken.
            let waited = unsafe { self.uring.submitter().enter::<()>(0, 1, ENTER_GETEVENTS, None) };
            if waited.is_err_and(|error| error.raw_os_error() != Some(Errno::INTR.raw_os_error())) {
                thread::sleep(Duration::from_millis(1));
            }
            // SAFETY: invariant 1: this thread alone reads the completion queue.
            let queue = unsafe { self.uring.completion_shared() };
            for completion in queue {
                if completion.user_data() == GOODBYE {
                    return;
                }
                self.finish(completion.user_data() as usize, completion.result());
            }
        }
    }

    fn finish(&self, slot: usize, result: i32) {
        let mut slots = self.slots.lock();
        let in_flight = slots.in_flight[slot].take();
        slots.free.push(slot);
        drop(slots);
        self.freed.notify_all();
        let Some(InFlight { host, request, position, completer }) = in_flight else {
            unreachable!("the kernel completed a request that was not on the ring");
        };
        let completion = match outcome(&request, result) {
            Outcome::Done => {
                if let Request::Write { offset, durability: Durability::Cached, .. } = &request {
                    host.note_written(*offset, request.length_bytes());
                }
                request.complete(Ok(()))
            }
            Outcome::RunAgain => host.run(request),
            Outcome::Failed(errno) => {
                let error =
                    host.fail(errno.into(), request.operation(), request.offset(), request.length_bytes());
                request.complete(Err(error))
            }
        };
        completer.complete(position, completion);
    }
}

/// What the ring's answer to a request means.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// It is run in the plain way, which finishes it or finds its error; running it twice does no harm.
    RunAgain,
    Failed(Errno),
}

/// Short transfers, interrupted ones and most errors are worth another run. Not the error of a durable write:
/// the kernel tells each failed write-back once, that of other writes to the file too, and forgets it. A
/// second run would succeed, and the flush that should have told the error as well.
fn outcome(request: &Request, result: i32) -> Outcome {
    let Ok(count) = u64::try_from(result) else {
        let errno = Errno::from_raw_os_error(result.saturating_neg());
        let is_durable = matches!(request, Request::Write { durability: Durability::Durable, .. });
        // Interrupted, or a host that knows no per-write flags: nothing was written back.
        let was_not_tried = matches!(
            errno,
            Errno::INTR | Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::CANCELED
        );
        return if is_durable && !was_not_tried { Outcome::Failed(errno) } else { Outcome::RunAgain };
    };
    if count == request.length_bytes() { Outcome::Done } else { Outcome::RunAgain }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut slots = self.ring.slots.lock();
        while slots.free.len() < SLOTS as usize {
            self.ring.freed.wait(&mut slots);
        }
        self.ring.push(&mut slots, &opcode::Nop::new().build().user_data(GOODBYE));
        self.ring.enter(slots);
        if let Some(reaper) = self.reaper.take() {
            // A panic of that thread has been reported where it happened; a drop has nobody to tell.
            drop(reaper.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::units::Physical;

    use super::*;

    #[test]
    fn the_error_of_a_durable_write_is_never_tried_away() {
        let read = Request::read(Physical(0), 512);
        let cached = Request::write(Physical(0), vec![0; 512]);
        let durable = Request::write_durable(Physical(0), vec![0; 512]);
        let error = |errno: Errno| -errno.raw_os_error();
        for request in [&read, &cached, &durable] {
            assert_eq!(outcome(request, 512), Outcome::Done);
            assert_eq!(outcome(request, 100), Outcome::RunAgain);
            assert_eq!(outcome(request, error(Errno::INTR)), Outcome::RunAgain);
            assert_eq!(outcome(request, error(Errno::OPNOTSUPP)), Outcome::RunAgain);
        }
        for errno in [Errno::IO, Errno::NOSPC] {
            assert_eq!(outcome(&read, error(errno)), Outcome::RunAgain);
            assert_eq!(outcome(&cached, error(errno)), Outcome::RunAgain);
            assert_eq!(outcome(&durable, error(errno)), Outcome::Failed(errno));
        }
    }
}
