//! What a client bears of a server, which may be anybody's.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;

use crate::frame::MAX_ANSWER_BYTES;
use crate::mounts::MountEntry;
use crate::protocol::Request;

/// The longest answer that does not grow with the file system: 512 runs of a file are the longest of them.
const MAX_PLAIN_BYTES: u32 = 1 << 20;
/// The longest list of another user's server: some 16,000 subvolumes. What it is read into takes several
/// times as much memory.
const MAX_STRANGERS_BYTES: u32 = 8 << 20;
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// Whether a mount is of somebody whose programs this process trusts: root, or its own user.
pub fn is_trusted(mount: &MountEntry) -> bool {
    let owner = mount.owner.unwrap_or(0);
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// The longest answer that a client takes.
pub(crate) fn most_answer_bytes(request: &Request, is_trusted: bool) -> u32 {
    let is_list = matches!(
        request,
        Request::SubvolumeList
            | Request::SubvolumeShow { .. }
            | Request::SubvolumeSync { .. }
            | Request::InodeResolve { .. }
    );
    match (is_list, is_trusted) {
        (false, _) => MAX_PLAIN_BYTES,
        (true, false) => MAX_STRANGERS_BYTES,
        (true, true) => MAX_ANSWER_BYTES,
    }
}

/// Connects to a socket, or says after so long that its server takes no connection: the kernel lets
/// connect(2) wait without end where the queue of a server that is stopped is full.
pub(crate) fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    connect_to_address_within(&SocketAddrUnix::new(path)?, limit)
}

/// As [`connect_within`], to an address of any kind.
pub(crate) fn connect_to_address_within(address: &SocketAddrUnix, limit: Duration) -> io::Result<UnixStream> {
    let (flags, clock) = (SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC), SystemClock::new());
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect(&socket, address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if clock.monotonic() < limit => thread::sleep(CONNECT_INTERVAL),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Turns the order of letters round, so that a text reads as another (UAX #9: embeddings, overrides and
/// isolates).
const fn changes_direction(character: char) -> bool {
    matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of the other side's for people: without control characters, which could make a terminal show
/// anything, and without those that change the direction of letters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || changes_direction(character) {
            let mut encoded = [0; 4];
            for byte in character.encode_utf8(&mut encoded).bytes() {
                shown.push_str(&format!("\\{byte:03o}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// For members that are texts for people, when they are received.
pub(crate) mod as_printable {
    use serde::{Deserialize, Deserializer};

    /// One text.
    pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        Ok(super::printable(&String::deserialize(deserializer)?))
    }

    /// A text, or none.
    pub(crate) fn option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(|text| super::printable(&text)))
    }

    /// Texts.
    pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
        let all = Vec::<String>::deserialize(deserializer)?;
        Ok(all.iter().map(|text| super::printable(text)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use vlinder_testkit::Scratch;

    use super::*;

    #[test]
    fn a_server_that_takes_no_connection_is_not_waited_for() {
        let scratch = Scratch::new("full-queue");
        let path = scratch.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(200);
        let _first = connect_within(&path, limit).unwrap();
        let refused = connect_within(&path, limit).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(listener);
        let ended = connect_within(&path, limit).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn texts_hold_no_control_characters() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}d"), "a\\033[2Jb\\012c\\302\\233d");
        assert_eq!(printable("d\u{fc}n"), "d\u{fc}n");
        assert_eq!(printable("a\u{202e}b\u{2066}c"), "a\\342\\200\\256b\\342\\201\\246c");
    }
}
