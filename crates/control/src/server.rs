//! The server's end: accepts connections, sees who is there, hands requests to an [`Executor`].

mod bound;
mod error;

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};
use vlinder_tree::CommitLease;

use crate::by_call::Expectation;
use crate::connections::Connections;
use crate::frame::{self, FrameError, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES};
use crate::location::SocketLocation;
use crate::patience::{Limited, Patience};
use crate::peer::Peer;
use crate::protocol::{Answer, AnswerMessage, Request, RequestMessage, SCHEMA};
use crate::upload::Upload;
use crate::{ErrorBody, ErrorKind};
use bound::Bound;

pub use error::ServerError;

/// How often one who waits for the mount's end is looked after.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// What is done with bytes that a client hands over.
pub type UploadJob = Box<dyn FnOnce(&mut dyn Read) -> Result<Answer, ErrorBody>>;

/// What lives as long as a connection.
#[derive(Default)]
pub struct Conversation {
    /// The state that the client reads.
    pub lease: Option<CommitLease>,
    /// The system call that the client was told to make.
    pub call: Option<Expectation>,
    /// What is done with the bytes that the client hands over next, after [`Answer::Ready`].
    pub upload: Option<UploadJob>,
    /// The mount by way of which the client says that it came.
    pub mount: Option<u64>,
}

/// Does what is asked.
pub trait Executor: Send + Sync {
    /// Does a request with the rights of the peer.
    ///
    /// # Errors
    /// What the client is told.
    fn execute(
        &self,
        peer: &Peer,
        request: Request,
        conversation: &mut Conversation,
    ) -> Result<Answer, ErrorBody>;
}

/// A socket that is served until [`finish`](Self::finish).
pub struct Server {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    bound: Bound,
    /// The listener is shut down. At the limit of open files accept(2) does not tell that.
    is_closing: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    patience: Patience,
}

struct State {
    /// None once the server is closing.
    executor: Option<Arc<dyn Executor>>,
    /// Requests under way.
    running: usize,
    /// How the mount ended; none while it lasts.
    end: Option<Result<(), ErrorBody>>,
    connections: Connections,
}

impl Server {
    /// Makes the socket in the first of these places that can be used, or under a name that the mount has to
    /// tell, and serves it in threads of its own. A socket that is there belongs to a mount that is gone,
    /// since device numbers are unique among the mounts that are there, and is replaced.
    ///
    /// # Errors
    /// No place is safe and can be made.
    pub fn start(locations: &[SocketLocation], executor: Arc<dyn Executor>) -> Result<Self, ServerError> {
        Self::start_with(locations, executor, Patience::default())
    }

    fn start_with(
        locations: &[SocketLocation],
        executor: Arc<dyn Executor>,
        patience: Patience,
    ) -> Result<Self, ServerError> {
        let owner = rustix::process::geteuid().as_raw();
        let bound = Bound::to_first(locations, owner)?;
        let shared = Arc::new(Shared {
            bound,
            is_closing: AtomicBool::new(false),
            state: Mutex::new(State {
                executor: Some(executor),
                running: 0,
                end: None,
                connections: Connections::new(owner),
            }),
            changed: Condvar::new(),
            patience,
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            let no_thread = |source| ServerError::NoThread { source };
            thread::try_spawn("control", move || shared.accept()).map_err(no_thread)?
        };
        Ok(Self { shared, accepting: Some(accepting) })
    }

    /// Where the socket lies; none where the mount has to tell its [name](Self::told_name).
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.shared.bound.path()
    }

    /// The name that the mount has to tell, since there is no directory for the socket.
    #[must_use]
    pub fn told_name(&self) -> Option<&[u8]> {
        self.shared.bound.told_name()
    }

    /// Takes no more connections and ends those that ask nothing at the moment, but for clients that wait for
    /// the end. Requests under way are finished first: afterwards nobody uses the executor any more.
    pub fn close(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        // A client that finds no socket knows that there is no server.
        if let Err(error) = self.shared.bound.remove() {
            tracing::debug!(%error, path = ?self.path(), "the control socket stays behind");
        }
        self.shared.is_closing.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&self.shared.bound.listener, Shutdown::Both);
        let _ = accepting.join();
        let mut state = self.shared.state.lock();
        state.connections.stop_reading();
        let executor = state.executor.take();
        while state.running > 0 {
            self.shared.changed.wait(&mut state);
        }
        drop(state);
        drop(executor);
    }

    /// Tells all who wait how the mount ended, and ends all connections.
    pub fn finish(mut self, end: Result<(), ErrorBody>) {
        self.close();
        let mut state = self.shared.state.lock();
        state.end = Some(end);
        self.shared.changed.notify_all();
        while !state.connections.is_empty() {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
        let mut state = self.shared.state.lock();
        // Without `finish` nobody can say that all is well.
        let unknown = ErrorBody::new(Errno::IO, "the server ended without saying how");
        state.end.get_or_insert(Err(unknown));
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>) {
        let mut has_told = false;
        loop {
            let stream = match self.bound.listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) if self.is_closing.load(Ordering::SeqCst) => return,
                Err(error) => {
                    // A limit that was reached (of open files, say) stays so for a while.
                    if !std::mem::replace(&mut has_told, true) {
                        tracing::warn!(%error, "connections to the control socket fail");
                    }
                    thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            has_told = false;
            if let Err(error) = self.begin(stream) {
                tracing::warn!(%error, "a connection to the control socket can't be served");
            }
        }
    }

    fn begin(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let peer = Peer::of(&stream)?;
        let handle = stream.try_clone()?;
        let mut state = self.state.lock();
        if self.bound.is_for_privileged_alone() && !state.connections.is_privileged(peer.user) {
            drop(state);
            let refused =
                ErrorBody::new(Errno::ACCESS, "only root and the mount's owner may use its control socket");
            return self.refuse(&stream, refused);
        }
        let added = state.connections.add(peer.user, handle);
        drop(state);
        let number = match added {
            Ok(number) => number,
            Err(refused) => return self.refuse(&stream, refused),
        };
        let shared = Arc::clone(self);
        let spawned = thread::try_spawn("control-client", move || {
            // A broken or rude client is its own loss.
            if let Err(error) = shared.converse(stream, &peer) {
                tracing::debug!(%error, process = peer.process, "a control connection ended");
            }
            shared.forget(number);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "there is no thread for a connection to the control socket");
            let unserved = self.state.lock().connections.remove(number);
            let message = format!("the mount's server has no thread for one more connection: {error}");
            let refused = ErrorBody::new(Errno::AGAIN, message).hint("try again");
            return unserved.map_or(Ok(()), |stream| self.refuse(&stream, refused));
        }
        Ok(())
    }

    /// Says why a connection is not served. Nobody waits for a client that takes no answer.
    fn refuse(&self, stream: &UnixStream, refused: ErrorBody) -> io::Result<()> {
        tracing::debug!(%refused, "a control connection is refused");
        stream.set_nonblocking(true)?;
        if let Err(error) = self.answer(stream, Err(refused)) {
            tracing::debug!(%error, "a client could not be told that it is refused");
        }
        Ok(())
    }

    fn forget(&self, number: u64) {
        self.state.lock().connections.remove(number);
        self.changed.notify_all();
    }

    fn converse(&self, stream: UnixStream, peer: &Peer) -> Result<(), FrameError> {
        let mut conversation = Conversation::default();
        let is_privileged = self.state.lock().connections.is_privileged(peer.user);
        let mut is_first = true;
        loop {
            let limit = self.patience.limit(std::mem::replace(&mut is_first, false), is_privileged);
            let received = frame::receive(&mut Limited::new(&stream, limit), MAX_REQUEST_BYTES);
            let message: RequestMessage = match received {
                Ok(message) => message,
                Err(FrameError::Closed) => return Ok(()),
                Err(FrameError::Stream { source }) if source.kind() == io::ErrorKind::TimedOut => {
                    // A client that asks after all reads this.
                    return self.answer(&stream, Err(silence(limit.unwrap_or_default())));
                }
                Err(error @ (FrameError::TooLong { .. } | FrameError::Content { .. })) => {
                    self.answer(&stream, Err(usage(error.to_string())))?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            };
            if message.schema != SCHEMA {
                let said = format!("the server speaks {SCHEMA} and the client {}", message.schema);
                let error = usage(said).hint("use the version of vlinder that serves the mount");
                return self.answer(&stream, Err(error));
            }
            conversation.mount = message.mount;
            let result = match serde_json::from_value::<Request>(message.request) {
                Ok(request) => self.execute(peer, request, &mut conversation),
                Err(error) => Err(usage(format!("the request can't be understood: {error}"))),
            };
            let waits = matches!(result, Ok(Answer::Prepared { .. }));
            self.answer(&stream, result)?;
            if let Some(job) = conversation.upload.take() {
                let mut upload = Upload::new(&stream);
                stream.set_read_timeout(None)?;
                let result = self.run(|_| job(&mut upload));
                self.answer(&stream, result)?;
                if !upload.has_ended() {
                    return Ok(());
                }
            }
            if waits {
                if let Some(end) = self.wait_for_end(&stream) {
                    self.answer(&stream, end.map(|()| Answer::Finished))?;
                }
                return Ok(());
            }
        }
    }

    fn execute(
        &self,
        peer: &Peer,
        request: Request,
        conversation: &mut Conversation,
    ) -> Result<Answer, ErrorBody> {
        self.run(|executor| executor.execute(peer, request, conversation))
    }

    /// Does something for a client, unless the server is closing; closing waits for it.
    fn run(&self, job: impl FnOnce(&dyn Executor) -> Result<Answer, ErrorBody>) -> Result<Answer, ErrorBody> {
        let executor = {
            let mut state = self.state.lock();
            let executor = state.executor.clone();
            let executor = executor.ok_or_else(|| ErrorBody::new(Errno::SHUTDOWN, "the mount is ending"))?;
            state.running += 1;
            executor
        };
        let result = catch_unwind(AssertUnwindSafe(|| job(&*executor)));
        drop(executor);
        self.state.lock().running -= 1;
        self.changed.notify_all();
        result.unwrap_or_else(|_| {
            Err(ErrorBody::new(Errno::IO, "the server met a mistake in the program; see its log"))
        })
    }

    fn answer(&self, stream: &UnixStream, result: Result<Answer, ErrorBody>) -> Result<(), FrameError> {
        let mut stream = Limited::new(stream, Some(self.patience.answer));
        frame::send(&mut stream, &AnswerMessage::from(result), MAX_ANSWER_BYTES)
    }

    /// Waits for the mount's end; none if the client gave up (the mount is busy).
    fn wait_for_end(&self, stream: &UnixStream) -> Option<Result<(), ErrorBody>> {
        let mut state = self.state.lock();
        loop {
            if let Some(end) = &state.end {
                return Some(end.clone());
            }
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
            // While connections close, an end of file may be our own doing.
            let is_closing = self.is_closing.load(Ordering::SeqCst);
            let is_open = state.end.is_some() || is_closing || is_connected(stream);
            if !is_open {
                return None;
            }
        }
    }
}

fn usage(message: String) -> ErrorBody {
    ErrorBody { kind: ErrorKind::Usage, ..ErrorBody::new(Errno::INVAL, message) }
}

fn silence(limit: Duration) -> ErrorBody {
    let message = format!("the mount's server ended a connection on which no request came for {limit:?}");
    ErrorBody { kind: ErrorKind::Busy, ..ErrorBody::new(Errno::TIMEDOUT, message) }.hint("try again")
}

/// Whether the client is still there.
fn is_connected(stream: &UnixStream) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(stream, &mut byte, flags), Ok((0, _)))
}

#[cfg(test)]
mod tests;
