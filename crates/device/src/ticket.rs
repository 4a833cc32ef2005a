//! The promise of a batch's completions.

use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::units::Physical;

use crate::{Completion, Data, DeviceError, DeviceErrorKind, Operation, Request};

/// A submitted batch. Dropping it does not cancel its requests.
#[must_use = "a batch is not done, and its errors are not seen, before its ticket is waited for"]
pub struct Ticket {
    state: State,
}

enum State {
    Ready(Vec<Completion>),
    Pending(Arc<Shared>),
}

/// What the waiter and the completer share.
struct Shared {
    batch: Mutex<BatchState>,
    all_done: Condvar,
}

/// The answers of a batch so far.
struct BatchState {
    completions: Vec<Result<Completion, DeviceError>>,
    remaining: usize,
    /// Completers alive. When the last one goes, what is still open will never be answered.
    completers: usize,
}

impl Ticket {
    /// A batch that is already done; completions in the order of its requests.
    pub fn ready(completions: Vec<Completion>) -> Self {
        Ticket { state: State::Ready(completions) }
    }

    /// The ticket of a batch that others will complete, each request once. Requests that nobody has answered
    /// when the last completer is dropped have failed with [`DeviceErrorKind::Abandoned`].
    pub fn pending(device: &Arc<str>, batch: &[Request]) -> (Self, Completer) {
        let abandoned = |operation: Operation, offset: Physical, length_bytes: u64| {
            DeviceError::new(DeviceErrorKind::Abandoned, operation, device, offset, length_bytes)
        };
        let unanswered =
            |request: &Request| Err(abandoned(request.operation(), request.offset(), request.length_bytes()));
        let completions = batch.iter().map(unanswered).collect();
        let batch_state = BatchState { completions, remaining: batch.len(), completers: 1 };
        let shared = Arc::new(Shared { batch: Mutex::new(batch_state), all_done: Condvar::new() });
        (Ticket { state: State::Pending(shared.clone()) }, Completer { shared })
    }

    /// True if [`Ticket::wait`] would not block.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Ready(_) => true,
            State::Pending(shared) => shared.batch.lock().is_settled(),
        }
    }

    /// Waits for the whole batch; completions in the order of its requests.
    pub fn wait(self) -> Vec<Completion> {
        match self.state {
            State::Ready(completions) => completions,
            State::Pending(shared) => {
                let mut batch = shared.batch.lock();
                while !batch.is_settled() {
                    shared.all_done.wait(&mut batch);
                }
                let answer = |slot: Result<Completion, DeviceError>| {
                    slot.unwrap_or_else(|error| Completion {
                        data: Data::Owned(Vec::new()),
                        result: Err(error),
                    })
                };
                std::mem::take(&mut batch.completions).into_iter().map(answer).collect()
            }
        }
    }

    /// Waits for the whole batch and gives the first error, if any.
    ///
    /// # Errors
    /// That of the first request that failed, in the order of the batch.
    pub fn wait_all(self) -> Result<Vec<Completion>, DeviceError> {
        let completions = self.wait();
        match completions.iter().find_map(|completion| completion.result.as_ref().err()) {
            Some(error) => Err(error.clone()),
            None => Ok(completions),
        }
    }
}

impl BatchState {
    fn is_settled(&self) -> bool {
        self.remaining == 0 || self.completers == 0
    }
}

/// The side of a pending [`Ticket`] that answers its requests.
pub struct Completer {
    shared: Arc<Shared>,
}

impl Completer {
    /// Answers the request at `position` of the batch.
    ///
    /// # Panics
    /// If that request was answered before or does not exist: a fault of the device's own code.
    pub fn complete(&self, position: usize, completion: Completion) {
        self.complete_all(vec![(position, completion)]);
    }

    /// Answers several requests, each with its position in the batch.
    ///
    /// # Panics
    /// As [`Completer::complete`].
    pub fn complete_all(&self, answers: Vec<(usize, Completion)>) {
        let mut batch = self.shared.batch.lock();
        batch.remaining -= answers.len();
        for (position, completion) in answers {
            let slot = &mut batch.completions[position];
            assert!(slot.is_err(), "request {position} of a batch was answered twice");
            *slot = Ok(completion);
        }
        if batch.remaining == 0 {
            self.shared.all_done.notify_all();
        }
    }
}

impl Clone for Completer {
    fn clone(&self) -> Self {
        self.shared.batch.lock().completers += 1;
        Completer { shared: self.shared.clone() }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        let mut batch = self.shared.batch.lock();
        batch.completers -= 1;
        if batch.completers == 0 {
            self.shared.all_done.notify_all();
        }
    }
}
