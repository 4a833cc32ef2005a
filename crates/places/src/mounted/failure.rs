//! What a conversation with a mount's server met.

use rustix::io::Errno;
use vlinder_control::{ClientError, ErrorBody, MountEntry};

use crate::failure::{Failure, Kind, hint_of};
use crate::text::escaped;

/// What to do about a mount that can't be unmounted because it is in use.
const BUSY_HINT: &str =
    "a program has a file or its working directory there (fuser -vm lists them): end it, then try again";

/// What to do about a mount whose server has ended.
pub(super) const SERVER_ENDED_HINT: &str = "its server has ended: vlinder umount takes the mount away";

/// What the server refused.
pub fn of_server(body: ErrorBody) -> Failure {
    // The server's place is a path from the mount's root, which the user did not write.
    let failure = Failure::new(body.kind, body.message);
    // Other refusals say in their words what helps.
    let of_right = || hint_of(Errno::ACCESS).filter(|_| body.kind == Kind::Permission).map(str::to_owned);
    match body.hint.or_else(of_right) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What holds a mount that can't be unmounted.
fn busy_hint(error: &ClientError) -> String {
    let ClientError::Unmount { mountpoint, .. } = error else { return BUSY_HINT.to_owned() };
    let all = MountEntry::all().unwrap_or_default().into_iter().map(|entry| entry.mountpoint);
    let inner: Vec<_> = all.filter(|place| place != mountpoint && place.starts_with(mountpoint)).collect();
    match inner.last() {
        Some(last) => {
            format!("{} is mounted inside of it: unmount that first, then try again", last.display())
        }
        None => BUSY_HINT.to_owned(),
    }
}

/// The server of the FUSE mount that was asked has ended.
pub(super) fn is_dead(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// What a conversation with a mount's server met.
pub fn failure(error: ClientError) -> Failure {
    let kind = match error {
        ClientError::Server(body) => return of_server(body),
        ClientError::Path { path, source } => {
            let failure = Failure::host(&source, path.display());
            return if is_dead(&source) { failure.hint(SERVER_ENDED_HINT) } else { failure };
        }
        ClientError::Input { source } => return Failure::host(&source, "the input"),
        ClientError::NotMounted { .. } => Kind::Invalid,
        ClientError::Schema { .. } => Kind::Unsupported,
        ClientError::Unmount { is_busy: true, .. } => Kind::Busy,
        ClientError::Unmount { .. } | ClientError::NoServer { .. } => Kind::Permission,
        ClientError::Conversation { .. }
        | ClientError::Unexpected { .. }
        | ClientError::Lost { .. }
        | ClientError::NotStored { .. } => Kind::Device,
    };
    // What other processes said stands in some of these.
    let failure = Failure::new(kind, escaped(error.to_string().as_bytes()));
    match error {
        ClientError::Unmount { is_busy: true, .. } => failure.hint(busy_hint(&error)),
        ClientError::Unmount { .. } => failure.hint("root and the one who mounted may take it away"),
        ClientError::NoServer { reason, owner, .. } => failure.hint(reason.advice(owner)),
        _ => failure,
    }
}
