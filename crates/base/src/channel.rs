//! Queues between threads: any number of senders and receivers, each value received once, in order.

use crate::sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// The value comes back because nobody can receive it any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`Sender::try_send`] gave the value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel holds as many values as it may.
    Full(T),
    /// Nobody can receive any more.
    Disconnected(T),
}

/// The channel is empty and nobody can send any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Why [`Receiver::try_recv`] or [`Receiver::recv_timeout`] has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyError {
    /// Nothing has come (in time).
    Empty,
    /// The channel is empty and nobody can send any more.
    Disconnected,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SendError: the receivers are gone")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full(_) => "TrySendError: the channel is full",
            Self::Disconnected(_) => "TrySendError: the receivers are gone",
        })
    }
}

struct ChannelState<T> {
    values: VecDeque<T>,
    senders: usize,
    receivers: usize,
    waiting_receivers: usize,
    waiting_senders: usize,
}

struct Shared<T> {
    state: Mutex<ChannelState<T>>,
    capacity: usize,
    filled: Condvar,
    drained: Condvar,
}

/// The end that sends; clones send into the same channel.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end that receives; clones take from the same channel.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel that holds at most `capacity` values (at least 1); sending into a full one waits.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel(capacity.max(1))
}

/// A channel without a bound: for queues that something else bounds.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(usize::MAX)
}

fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = ChannelState {
        values: VecDeque::new(),
        senders: 1,
        receivers: 1,
        waiting_receivers: 0,
        waiting_senders: 0,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        capacity,
        filled: Condvar::new(),
        drained: Condvar::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn push(&self, state: &mut ChannelState<T>, value: T) {
        state.values.push_back(value);
        if state.waiting_receivers > 0 {
            self.filled.notify_one();
        }
    }

    fn pop(&self, state: &mut ChannelState<T>) -> Option<T> {
        let value = state.values.pop_front()?;
        if state.waiting_senders > 0 {
            self.drained.notify_one();
        }
        Some(value)
    }
}

impl<T> Sender<T> {
    /// Waits for room and sends.
    ///
    /// # Errors
    /// Gives the value back when every receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        loop {
            if state.receivers == 0 {
                return Err(SendError(value));
            }
            if state.values.len() < self.0.capacity {
                self.0.push(&mut state, value);
                return Ok(());
            }
            state.waiting_senders += 1;
            self.0.drained.wait(&mut state);
            state.waiting_senders -= 1;
        }
    }

    /// Sends if there is room now.
    ///
    /// # Errors
    /// Gives the value back when the channel is full or every receiver is gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(value));
        }
        if state.values.len() >= self.0.capacity {
            return Err(TrySendError::Full(value));
        }
        self.0.push(&mut state, value);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Waits for the next value.
    ///
    /// # Errors
    /// When the channel is empty and every sender is gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(value) = self.0.pop(&mut state) {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError);
            }
            state.waiting_receivers += 1;
            self.0.filled.wait(&mut state);
            state.waiting_receivers -= 1;
        }
    }

    /// The next value, if it is there now.
    ///
    /// # Errors
    /// When the channel is empty.
    pub fn try_recv(&self) -> Result<T, EmptyError> {
        let mut state = self.0.state.lock();
        match self.0.pop(&mut state) {
            Some(value) => Ok(value),
            None if state.senders == 0 => Err(EmptyError::Disconnected),
            None => Err(EmptyError::Empty),
        }
    }

    /// Waits for the next value, for at most `timeout`.
    ///
    /// # Errors
    /// When nothing came in time, or the channel is empty and every sender is gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, EmptyError> {
        // A timeout past the clock's end (Duration::MAX) is no timeout.
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.0.state.lock();
        loop {
            if let Some(value) = self.0.pop(&mut state) {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(EmptyError::Disconnected);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(EmptyError::Empty);
            }
            state.waiting_receivers += 1;
            match left {
                Some(left) => {
                    self.0.filled.wait_for(&mut state, left);
                }
                None => self.0.filled.wait(&mut state),
            }
            state.waiting_receivers -= 1;
        }
    }

    /// How many values wait now.
    pub fn len(&self) -> usize {
        self.0.state.lock().values.len()
    }

    /// Whether no value waits now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each value until every sender is gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.filled.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        if state.receivers > 0 {
            return;
        }
        // Values may hold senders of this very channel, so they are dropped after the lock.
        let abandoned = std::mem::take(&mut state.values);
        self.0.drained.notify_all();
        drop(state);
        drop(abandoned);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Receiver")
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn every_value_of_many_senders_reaches_exactly_one_receiver() {
        let (sender, receiver) = bounded(3);
        let mut received = Vec::new();
        thread::scope(|scope| {
            for part in 0..4_u32 {
                let sender = sender.clone();
                scope.spawn(move || {
                    for value in 0..1000 {
                        sender.send(part * 1000 + value).unwrap();
                    }
                });
            }
            drop(sender);
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let receiver = receiver.clone();
                    scope.spawn(move || receiver.iter().collect::<Vec<_>>())
                })
                .collect();
            for reader in readers {
                received.extend(reader.join().unwrap());
            }
        });
        received.sort_unstable();
        assert_eq!(received, (0..4000).collect::<Vec<_>>());
    }

    #[test]
    fn bounds_timeouts_and_missing_ends_are_told_apart() {
        let (sender, receiver) = bounded(1);
        assert_eq!(receiver.try_recv(), Err(EmptyError::Empty));
        assert_eq!(receiver.recv_timeout(Duration::from_millis(5)), Err(EmptyError::Empty));
        sender.send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(1));
        drop(receiver);
        assert_eq!(sender.send(3), Err(SendError(3)));
        assert_eq!(sender.try_send(4), Err(TrySendError::Disconnected(4)));

        let (sender, receiver) = unbounded();
        sender.send(5).unwrap();
        drop(sender);
        assert_eq!(receiver.recv(), Ok(5));
        assert_eq!(receiver.recv(), Err(RecvError));
        assert_eq!(receiver.recv_timeout(Duration::MAX), Err(EmptyError::Disconnected));
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod model_tests {
    use super::*;
    use crate::thread;

    #[test]
    fn no_interleaving_loses_a_value_or_a_wake_up() {
        shuttle::check_random(
            || {
                let (sender, receiver) = bounded(1);
                let senders: Vec<_> = (0..2)
                    .map(|part| {
                        let sender = sender.clone();
                        thread::spawn("sender", move || {
                            for value in 0..2 {
                                sender.send(part * 2 + value).unwrap();
                            }
                        })
                    })
                    .collect();
                drop(sender);
                let other = receiver.clone();
                let reader = thread::spawn("reader", move || other.iter().collect::<Vec<_>>());
                let mut all: Vec<_> = receiver.iter().collect();
                all.extend(reader.join().unwrap());
                all.sort_unstable();
                assert_eq!(all, [0, 1, 2, 3]);
                senders.into_iter().for_each(|sender| sender.join().unwrap());
            },
            2000,
        );
    }
}
