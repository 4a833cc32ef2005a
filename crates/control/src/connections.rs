//! Which connections there are, and for whom there is room for one more.
//!
//! The socket of a mount that everybody may use (`allow_other`) takes connections of everybody, and each
//! costs the server a thread and two descriptors. Root, the mount's owner and all others have room of their
//! own, so that none of the three uses up another's, and each of the others has a share:
//!
//! | who | connections at once |
//! |---|---|
//! | root | [`MAX_OF_ROOT`] |
//! | the mount's owner | [`MAX_OF_OWNER`] |
//! | one other user | [`MAX_OF_ANOTHER`] |
//! | all other users together | [`MAX_OF_OTHERS`] |

use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use crate::{ErrorBody, ErrorKind};

/// Connections of root: verbs that run at the same time, each of which holds one, with room to spare.
pub(crate) const MAX_OF_ROOT: usize = 32;
/// Connections of the one who mounted, likewise.
pub(crate) const MAX_OF_OWNER: usize = 32;
/// Connections of any other user: verbs of one user that run at the same time in a script or two.
pub(crate) const MAX_OF_ANOTHER: usize = 8;
/// Connections of all those users: four of them with all that each may have.
pub(crate) const MAX_OF_OTHERS: usize = 32;

/// One connection.
struct Connection {
    number: u64,
    user: u32,
    /// One more handle of it, to wake its thread.
    stream: UnixStream,
}

/// The connections of a server.
pub(crate) struct Connections {
    owner: u32,
    open: Vec<Connection>,
    next: u64,
}

impl Connections {
    /// None, on a mount of this user's.
    pub(crate) fn new(owner: u32) -> Self {
        Self { owner, open: Vec::new(), next: 0 }
    }

    /// Whether a user is root or the mount's owner.
    pub(crate) fn is_privileged(&self, user: u32) -> bool {
        user == 0 || user == self.owner
    }

    /// Takes one more up, unless its user has as many as there may be; its number.
    ///
    /// # Errors
    /// What the user is told.
    pub(crate) fn add(&mut self, user: u32, stream: UnixStream) -> Result<u64, ErrorBody> {
        let of_user = self.open.iter().filter(|one| one.user == user).count();
        let most = match user {
            0 => MAX_OF_ROOT,
            _ if user == self.owner => MAX_OF_OWNER,
            _ => MAX_OF_ANOTHER,
        };
        if of_user >= most {
            let message =
                format!("too many connections of user {user} to the mount's server ({of_user} are open)");
            return Err(refusal(
                message,
                "wait until other verbs of yours have ended, or end them, and try again",
            ));
        }
        let of_others = self.open.iter().filter(|one| !self.is_privileged(one.user)).count();
        if !self.is_privileged(user) && of_others >= MAX_OF_OTHERS {
            let message =
                format!("too many connections of all users to the mount's server ({of_others} are open)");
            return Err(refusal(message, "try again in a minute: those that ask nothing are ended by then"));
        }
        let number = self.next;
        self.next += 1;
        self.open.push(Connection { number, user, stream });
        Ok(number)
    }

    /// A connection has ended: the handle of it.
    pub(crate) fn remove(&mut self, number: u64) -> Option<UnixStream> {
        let position = self.open.iter().position(|one| one.number == number)?;
        Some(self.open.swap_remove(position).stream)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends reading on all of them; an answer under way is still sent.
    pub(crate) fn stop_reading(&self) {
        for one in &self.open {
            let _ = one.stream.shutdown(std::net::Shutdown::Read);
        }
    }
}

fn refusal(message: String, hint: &str) -> ErrorBody {
    ErrorBody { kind: ErrorKind::Busy, ..ErrorBody::new(Errno::USERS, message) }.hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn add(connections: &mut Connections, user: u32) -> Result<u64, ErrorBody> {
        connections.add(user, UnixStream::pair().unwrap().0)
    }

    #[test]
    fn others_use_up_neither_roots_nor_the_owners_room() {
        let mut connections = Connections::new(OWNER);
        let admitted = (2000..2100).filter(|user| add(&mut connections, *user).is_ok()).count();
        assert_eq!(admitted, MAX_OF_OTHERS);
        let refused = add(&mut connections, 3000).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert!(refused.to_string().contains("of all users"), "{refused}");
        for (user, most) in [(0, MAX_OF_ROOT), (OWNER, MAX_OF_OWNER)] {
            let admitted = (0..most + 5).filter(|_| add(&mut connections, user).is_ok()).count();
            assert_eq!(admitted, most, "{user}");
        }
    }

    #[test]
    fn a_user_uses_up_the_share_of_no_other_and_gets_it_back() {
        let mut connections = Connections::new(OWNER);
        let numbers: Vec<u64> = (0..MAX_OF_ANOTHER).map(|_| add(&mut connections, 2000).unwrap()).collect();
        let refused = add(&mut connections, 2000).unwrap_err().to_string();
        assert!(
            refused.contains("too many connections of user 2000") && refused.contains("try again"),
            "{refused}"
        );
        add(&mut connections, 2001).unwrap();
        connections.remove(numbers[3]);
        add(&mut connections, 2000).unwrap();
        add(&mut connections, 2000).unwrap_err();
    }
}
