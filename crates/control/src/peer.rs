//! The process at the other end of a connection, as the kernel names it.

use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use vlinder_fs::{Caller, GroupId, UserId};

/// The one at the other end, as the kernel names it (SO_PEERCRED).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Its further groups.
    pub groups: Vec<u32>,
    /// Its process; 0 for one of a process namespace that this process can't see.
    pub process: i32,
}

/// The process that opened the other end of a connection, as the kernel tells (SO_PEERCRED).
pub(crate) fn credentials_of(stream: &UnixStream) -> io::Result<UnixCredentials> {
    Ok(getsockopt(stream, PeerCredentials)?)
}

/// Whether a process was ended and is held up in the kernel: its threads are gone but for one, whose call
/// waits without end. As long as it does, the kernel keeps the process's descriptors open, sockets among
/// them.
pub(crate) fn is_dying(process: i32) -> bool {
    // proc_pid_stat(5): the state stands behind the command's name, in which any byte may be.
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

impl Peer {
    /// The peer of a connection.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = credentials_of(stream)?;
        let (user, process) = (credentials.uid(), credentials.pid());
        Ok(Self { user, group: credentials.gid(), groups: further_groups(process, user), process })
    }

    /// The peer as the file system's permissions judge it.
    #[must_use]
    pub fn caller(&self, umask: u32) -> Caller {
        let mut caller = Caller::user(UserId(self.user), GroupId(self.group));
        caller.groups = self.groups.iter().copied().map(GroupId).collect();
        caller.umask = umask & 0o777;
        caller
    }
}

/// The further groups of a process, as long as it is still that user's; without them less is allowed.
fn further_groups(process: i32, user: u32) -> Vec<u32> {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else { return Vec::new() };
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let mut users = line("Uid:").unwrap_or_default().split_whitespace();
    // All four (real, effective, saved, file system), so that a program with a set-id bit lends nobody its
    // groups.
    if !users.all(|one| one.parse() == Ok(user)) {
        return Vec::new();
    }
    line("Groups:").unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_was_not_waited_for_is_dying() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = i32::try_from(child.id()).unwrap();
        assert!(!is_dying(process) && !is_dying(-1));
        child.kill().unwrap();
        vlinder_testkit::eventually("it has ended", || is_dying(process));
        child.wait().unwrap();
        assert!(!is_dying(process));
    }
}
