//! The client's end: finds the socket of the mount that a path lies on, asks, waits.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;

use crate::ErrorBody;
use crate::frame::{self, FrameError, MAX_REQUEST_BYTES};
use crate::location::{self, LocationError};
use crate::mounts::MountEntry;
use crate::patience::Limited;
use crate::peer::{credentials_of, is_dying};
use crate::places::{self, Place};
use crate::protocol::{
    Answer, AnswerMessage, MountInformation, Name, Outcome, Request, RequestMessage, SCHEMA,
};
use crate::unmount::{HeldMount, Refused};
use crate::upload::{self, UploadError};
use crate::{last_resort, limits};

/// Why the server could not be asked, or what it said.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The path can't be looked up.
    #[error("{}: {source}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path lies on no mount of this program.
    #[error("{} is not on a vlinder mount", .path.display())]
    NotMounted {
        /// The path.
        path: PathBuf,
    },
    /// There is no socket of the mount that could be trusted.
    #[error("no control socket of the mount at {} answers (looked at {tried})", .mountpoint.display())]
    NoServer {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// What was looked at, and what was wrong with it.
        tried: String,
        /// Why, as far as that is known.
        reason: NoServerReason,
        /// The user who mounted it.
        owner: u32,
    },
    /// The conversation failed.
    #[error("the control socket of the mount at {} failed: {source}", .mountpoint.display())]
    Conversation {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// Why.
        source: FrameError,
    },
    /// What was to be handed over can't be read.
    #[error("the input can't be read: {source}")]
    Input {
        /// Why.
        source: io::Error,
    },
    /// The server speaks another version.
    #[error("the server of the mount at {} speaks {schema}, this is {SCHEMA}; use the version that serves the mount", .mountpoint.display())]
    Schema {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// What it speaks.
        schema: String,
    },
    /// The server refused or failed.
    #[error(transparent)]
    Server(#[from] ErrorBody),
    /// The answer belongs to another request.
    #[error("the server of the mount at {} gave an answer that was not asked for; use the version of vlinder that serves the mount", .mountpoint.display())]
    Unexpected {
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
    /// The system did not unmount.
    #[error("{} can't be unmounted: {message}", .mountpoint.display())]
    Unmount {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// What the system said.
        message: String,
        /// It is in use.
        is_busy: bool,
    },
    /// The last commit before unmounting failed, and the mount goes on elsewhere.
    #[error("{} is unmounted, but what was written last could not be stored; the mount is still seen elsewhere, and its server's log says why", .mountpoint.display())]
    NotStored {
        /// Where it was mounted.
        mountpoint: PathBuf,
    },
    /// The server went away before it said that all is durable.
    #[error("the server of the mount at {} ended before it said that all is durable; run vlinder check on the image", .mountpoint.display())]
    Lost {
        /// Where it was mounted.
        mountpoint: PathBuf,
    },
}

/// Why no server of a mount was found. Of several reasons the first of these is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoServerReason {
    /// Its server was killed while the kernel waited for it, and can't end ([`abort`]).
    Dying,
    /// Nobody listens at the mount's socket any more: its server has ended.
    Ended,
    /// The mount is another user's alone, and so is its socket.
    Denied,
    /// The system did not connect to a socket that is there, for another reason.
    Unknown,
    /// Something is in a socket's place that another user could have put there.
    Unsafe,
    /// There is no socket in any place that this process sees: the server sees other ones.
    Nowhere,
}

impl NoServerReason {
    /// What to do about it, for a mount of that user's.
    #[must_use]
    pub fn advice(self, owner: u32) -> String {
        match self {
            Self::Dying => {
                "its server was killed while the kernel waited for it: vlinder umount takes the mount away"
                    .to_owned()
            }
            Self::Ended => "its server has ended: vlinder umount takes the mount away".to_owned(),
            Self::Denied => {
                format!("it is a mount of user {owner}: ask that user, or have it mounted with allow_other")
            }
            Self::Unsafe => format!(
                "only what belongs to user {owner}, who mounted it, and what nobody else can write to is trusted: see with \
                 ls -l whose these are"
            ),
            Self::Nowhere => format!(
                "its server (of user {owner}) has its socket in a /run or /tmp that this process does not see, or in another \
                 XDG_RUNTIME_DIR: call vlinder in the container or session in which it was mounted"
            ),
            Self::Unknown => "try again; if that does not help, see that its server runs".to_owned(),
        }
    }
}

/// What became of a mount whose place is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It has ended, and all is durable.
    Ended,
    /// It is still seen in other places, those that could be found; all that was written before is durable.
    SeenElsewhere(Vec<Place>),
}

/// How often it is looked whether a mount is seen in another place, where the system does not tell whether it
/// has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A server whose last place is gone has ended before this; one that has not has a place that this process
/// can't see.
const LONGEST_END: Duration = Duration::from_secs(10);

/// How long a server may take from the mount to its socket, and how often it is looked for.
const LONGEST_BEGIN: Duration = Duration::from_secs(1);
const BEGIN_INTERVAL: Duration = Duration::from_millis(10);
/// How long a mount may take to tell the name of its socket.
const LONGEST_TELLING: Duration = Duration::from_secs(5);

/// Where no server was found.
struct Tried {
    /// The places, and what is wrong with each.
    found: Vec<String>,
    /// There is no socket in any of them.
    is_nowhere: bool,
    reason: NoServerReason,
}

/// Connects again as long as there is no socket and there may be one soon.
fn wait_while_nowhere<T>(connect: impl Fn() -> Result<T, Tried>) -> Result<T, Tried> {
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    loop {
        match connect() {
            Err(tried) if tried.is_nowhere && clock.monotonic().saturating_sub(begun) < LONGEST_BEGIN => {
                thread::sleep(BEGIN_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

/// Connects to the first socket of the mount that can be trusted.
fn connect_to_any(
    mount: &MountEntry,
    connect: impl Fn(&Path) -> io::Result<UnixStream>,
    limit: Duration,
) -> Result<UnixStream, Tried> {
    let mut tried = Tried { found: Vec::new(), is_nowhere: true, reason: NoServerReason::Nowhere };
    for (socket, owner) in location::candidates(mount) {
        match connect_to(&socket, owner, &connect) {
            Ok(stream) => return Ok(stream),
            Err(LocationError::Host { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                tried.found.push(socket.display().to_string());
            }
            Err(error) => {
                let reason = reason_of(&error, mount);
                if reason == NoServerReason::Dying {
                    // Nothing more is asked: a system call on the mount would not end.
                    return Err(Tried { found: vec![error.to_string()], is_nowhere: false, reason });
                }
                tried.is_nowhere &= reason == NoServerReason::Nowhere;
                tried.reason = tried.reason.min(reason);
                tried.found.push(error.to_string());
            }
        }
    }
    match last_resort::connect(mount, limit) {
        Ok(stream) => return Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tried.is_nowhere = false;
            let reason = match error.kind() {
                io::ErrorKind::PermissionDenied if mount.is_for_its_owner_alone() => NoServerReason::Denied,
                io::ErrorKind::TimedOut => NoServerReason::Unknown,
                _ => tried.reason,
            };
            tried.reason = tried.reason.min(reason);
            tried.found.push(format!("the name that the mount tells: {error}"));
        }
    }
    Err(tried)
}

/// A conversation with the server of a mount.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    mount: MountEntry,
    /// How long a request may take, and its answer as long again; none waits as long as the user does.
    limit: Option<Duration>,
}

impl Client {
    /// Connects to the server of the mount that a path lies on.
    ///
    /// # Errors
    /// [`ClientError::NotMounted`] where that is no mount of this program; what looking and connecting met.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let found = MountEntry::of_path(path);
        let found = found.map_err(|source| ClientError::Path { path: path.to_owned(), source })?;
        let mount = found.filter(MountEntry::is_ours);
        let mount = mount.ok_or_else(|| ClientError::NotMounted { path: path.to_owned() })?;
        Self::connect_to(mount)
    }

    /// Connects to the server of a mount. A server that has just mounted makes its socket next, so one that
    /// is nowhere is waited for, for a moment.
    ///
    /// # Errors
    /// [`ClientError::NoServer`].
    pub fn connect_to(mount: MountEntry) -> Result<Self, ClientError> {
        let connect = |socket: &Path| UnixStream::connect(socket);
        match wait_while_nowhere(|| connect_to_any(&mount, connect, LONGEST_TELLING)) {
            Ok(stream) => Ok(Self::with_stream(stream, mount)),
            Err(tried) => Err(no_server(mount, tried)),
        }
    }

    /// Asks who serves a mount, and takes no longer than `limit` for it, whatever that server does. This
    /// thread does not touch the mount itself: a system call on it may wait for its server without end.
    ///
    /// # Errors
    /// [`ClientError::NoServer`]; what the conversation met, [`io::ErrorKind::TimedOut`] among it.
    pub fn enquire(mount: MountEntry, limit: Duration) -> Result<(Self, MountInformation), ClientError> {
        let clock = SystemClock::new();
        let left = || limit.saturating_sub(clock.monotonic());
        let connect = |socket: &Path| limits::connect_within(socket, left());
        let stream =
            connect_to_any(&mount, connect, left()).map_err(|tried| no_server(mount.clone(), tried))?;
        let mut client = Self::with_stream(stream, mount);
        client.limit = Some(left());
        let Answer::Mount(information) = client.request(&Request::Mount)? else {
            return Err(client.unexpected());
        };
        client.limit = None;
        Ok((client, information))
    }

    /// A conversation on a stream that is there already, for tests.
    #[must_use]
    pub fn with_stream(stream: UnixStream, mount: MountEntry) -> Self {
        Self { stream, mount, limit: None }
    }

    /// The mount.
    #[must_use]
    pub fn mount(&self) -> &MountEntry {
        &self.mount
    }

    /// The path from the root of the mount that requests name. Its directory must exist; its last name need
    /// not, and is not followed if it is a symbolic link.
    ///
    /// # Errors
    /// The directory can't be looked up or lies on another mount.
    pub fn inner_path(&self, path: &Path) -> Result<Name, ClientError> {
        let fails = |source| ClientError::Path { path: path.to_owned(), source };
        let canonical = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                parent.canonicalize().map_err(fails)?.join(name)
            }
            _ => path.canonicalize().map_err(fails)?,
        };
        // The last name may itself be a symbolic link from outside into the mount.
        let inner = self.mount.inner_path(&canonical);
        let inner = inner.or_else(|| self.mount.inner_path(&path.canonicalize().ok()?));
        let inner = inner.ok_or_else(|| ClientError::NotMounted { path: path.to_owned() })?;
        Ok(Name(inner.as_os_str().as_bytes().to_vec()))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What the server refused, or that it can't be reached any more.
    pub fn request(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let kind = request;
        let request = serde_json::to_value(request).map_err(|source| self.failed(source.into()))?;
        let message = RequestMessage { schema: SCHEMA.to_owned(), mount: Some(self.mount.id), request };
        let most = limits::most_answer_bytes(kind, limits::is_trusted(&self.mount));
        match frame::send(&mut Limited::new(&self.stream, self.limit), &message, MAX_REQUEST_BYTES) {
            Ok(()) => self.answer(most),
            Err(source) if is_closed_by_peer(&source) => match self.answer(most) {
                // The server said why before it closed.
                Err(said @ ClientError::Server(_)) => Err(said),
                _ => Err(self.failed(source)),
            },
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Asks for something that is about bytes, and hands these over; gives the answer to that.
    ///
    /// # Errors
    /// As [`request`](Self::request); [`ClientError::Input`].
    pub fn upload(&mut self, request: &Request, input: &mut dyn Read) -> Result<Answer, ClientError> {
        let Answer::Ready = self.request(request)? else { return Err(self.unexpected()) };
        let most = limits::most_answer_bytes(request, limits::is_trusted(&self.mount));
        match upload::send(input, &mut &self.stream) {
            Ok(()) => self.answer(most),
            Err(UploadError::Input(source)) => {
                // Without its end the server takes nothing of it for whole. What it says then is no news.
                let _ = self.stream.shutdown(std::net::Shutdown::Write);
                let _ = self.answer(most);
                Err(ClientError::Input { source })
            }
            // The server has ended it, and said why.
            Err(UploadError::Connection(source)) => match self.answer(most) {
                Err(said @ ClientError::Server(_)) => Err(said),
                _ => Err(self.failed(source.into())),
            },
        }
    }

    fn answer(&mut self, most: u32) -> Result<Answer, ClientError> {
        let message: AnswerMessage = frame::receive(&mut Limited::new(&self.stream, self.limit), most)
            .map_err(|source| self.failed(source))?;
        if message.schema != SCHEMA {
            return Err(ClientError::Schema {
                mountpoint: self.mount.mountpoint.clone(),
                schema: message.schema,
            });
        }
        match message.result {
            Outcome::Answer(answer) => Ok(answer),
            Outcome::Error(error) => Err(error.into()),
        }
    }

    /// Has the server commit, unmounts, and waits until the server says that all is durable. Where the mount
    /// is seen in another place it goes on: then that commit is what makes durable what was written before.
    ///
    /// # Errors
    /// [`ClientError::Unmount`] where the mount is in use (it goes on); what the last commit met;
    /// [`ClientError::NotStored`].
    pub fn unmount(mut self) -> Result<Unmounted, ClientError> {
        // Before the server is talked to: it may be anybody's.
        let held = hold(&self.mount)?;
        let Answer::Prepared { is_durable, .. } = self.request(&Request::Unmount)? else {
            return Err(self.unexpected());
        };
        let mountpoint = self.mount.mountpoint.clone();
        held.unmount(false).map_err(|refused| not_unmounted(&self.mount, refused))?;
        if let Some(places) = self.places_that_are_left() {
            return if is_durable {
                Ok(Unmounted::SeenElsewhere(places))
            } else {
                Err(ClientError::NotStored { mountpoint })
            };
        }
        match self.answer(limits::most_answer_bytes(&Request::Unmount, false)) {
            Ok(Answer::Finished) => Ok(Unmounted::Ended),
            Ok(_) => Err(self.unexpected()),
            Err(ClientError::Conversation { .. }) => Err(ClientError::Lost { mountpoint }),
            Err(error) => Err(error),
        }
    }

    /// The places where the mount goes on after one is gone, which may be such as this process can't see;
    /// none where it has ended. Where the system does not tell whether it has, the server's last word says
    /// so, or another place does, or that no word comes for [`LONGEST_END`].
    fn places_that_are_left(&self) -> Option<Vec<Place>> {
        let (device, clock) = (self.mount.device, SystemClock::new());
        loop {
            match places::is_alive(device) {
                Some(false) => return None,
                Some(true) => return Some(places::all(device)),
                None => {}
            }
            if self.has_answer_within(LOOK_INTERVAL) {
                return None;
            }
            let places = places::all(device);
            if !places.is_empty() || clock.monotonic() >= LONGEST_END {
                return Some(places);
            }
        }
    }

    fn has_answer_within(&self, limit: Duration) -> bool {
        let mut streams = [PollFd::new(&self.stream, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // What went wrong shows when the answer is read.
        !matches!(rustix::event::poll(&mut streams, limit.as_ref()), Ok(0) | Err(Errno::INTR))
    }

    /// The error for an answer of the wrong kind.
    #[must_use]
    pub fn unexpected(&self) -> ClientError {
        ClientError::Unexpected { mountpoint: self.mount.mountpoint.clone() }
    }

    fn failed(&self, source: FrameError) -> ClientError {
        ClientError::Conversation { mountpoint: self.mount.mountpoint.clone(), source }
    }
}

fn is_closed_by_peer(error: &FrameError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error, FrameError::Stream { source } if matches!(source.kind(), BrokenPipe | ConnectionReset))
}

/// What an error of a socket's place tells.
fn reason_of(error: &LocationError, mount: &MountEntry) -> NoServerReason {
    let source = match error {
        LocationError::Host { source, .. } => source,
        LocationError::Dying { .. } => return NoServerReason::Dying,
        LocationError::Unsafe { .. } => return NoServerReason::Unsafe,
    };
    match source.kind() {
        io::ErrorKind::ConnectionRefused => NoServerReason::Ended,
        io::ErrorKind::PermissionDenied if mount.is_for_its_owner_alone() => NoServerReason::Denied,
        // A directory that only its owner may search, where the socket of a mount for everybody is not.
        io::ErrorKind::PermissionDenied => NoServerReason::Nowhere,
        _ => NoServerReason::Unknown,
    }
}

fn no_server(mount: MountEntry, Tried { found, reason, .. }: Tried) -> ClientError {
    let owner = mount.owner.unwrap_or(0);
    ClientError::NoServer { mountpoint: mount.mountpoint, tried: found.join(", "), reason, owner }
}

fn connect_to(
    socket: &Path,
    owner: u32,
    connect: impl Fn(&Path) -> io::Result<UnixStream>,
) -> Result<UnixStream, LocationError> {
    location::check_socket(socket, owner)?;
    let host = |source| LocationError::Host { path: socket.to_owned(), source };
    let stream = connect(socket).map_err(host)?;
    let server = credentials_of(&stream).map_err(host)?;
    if server.uid() != owner {
        return Err(LocationError::Unsafe { path: socket.to_owned(), reason: "somebody else serves it" });
    }
    if is_dying(server.pid()) {
        return Err(LocationError::Dying { path: socket.to_owned(), process: server.pid() });
    }
    Ok(stream)
}

fn hold(mount: &MountEntry) -> Result<HeldMount, ClientError> {
    HeldMount::of(mount).map_err(|refused| not_unmounted(mount, refused))
}

fn not_unmounted(mount: &MountEntry, Refused { message, is_busy }: Refused) -> ClientError {
    ClientError::Unmount { mountpoint: mount.mountpoint.clone(), message, is_busy }
}

/// Unmounts without asking the server.
///
/// # Errors
/// [`ClientError::Unmount`].
pub fn unmount(mount: &MountEntry) -> Result<(), ClientError> {
    hold(mount)?.unmount(false).map_err(|refused| not_unmounted(mount, refused))
}

/// Takes a mount whose server is gone out of the tree, though processes may still stand in it: there is
/// nothing left that could be used.
///
/// # Errors
/// [`ClientError::Unmount`].
pub fn detach(mount: &MountEntry) -> Result<(), ClientError> {
    hold(mount)?.unmount(true).map_err(|refused| not_unmounted(mount, refused))
}

/// Takes a mount away whose server was killed and can't end, because the kernel waits for its own answer in a
/// call of its. What programs wait for ends with an error, and so does the server.
///
/// # Errors
/// [`ClientError::Unmount`].
pub fn abort(mount: &MountEntry) -> Result<(), ClientError> {
    let held = hold(mount)?;
    places::abort(mount.device);
    held.abort().map_err(|refused| not_unmounted(mount, refused))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_socket_that_comes_soon_is_waited_for() {
        let calls = Cell::new(0);
        let nth = |ready: u32, is_nowhere| {
            calls.set(0);
            wait_while_nowhere(|| {
                calls.set(calls.get() + 1);
                if calls.get() < ready {
                    Err(Tried { found: Vec::new(), is_nowhere, reason: NoServerReason::Nowhere })
                } else {
                    Ok(())
                }
            })
        };
        assert!(nth(4, true).is_ok());
        assert_eq!(calls.get(), 4);
        assert!(nth(4, false).is_err());
        assert_eq!(calls.get(), 1);
        let begun = SystemClock::new();
        assert!(nth(u32::MAX, true).is_err());
        assert!(begun.monotonic() >= LONGEST_BEGIN);
    }
}
