//! How long a server waits for a request.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};

/// From connecting to the end of the first request. Every client of this program asks at once; the rest is for a machine that
/// is short of memory or of time.
pub(crate) const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// From one request's answer to the end of the next. The verbs that any user may call ask one request after the other; a
/// minute is for a pager or a terminal that holds their output up.
pub(crate) const NEXT_REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// How long a server waits for the requests of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the first.
    pub(crate) first: Duration,
    /// For each that follows.
    pub(crate) next: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { first: FIRST_REQUEST_LIMIT, next: NEXT_REQUEST_LIMIT }
    }
}

impl Patience {
    /// The limit of the next request. Root and the mount's owner have one for the first only: a check that reads a leased state
    /// asks nothing for hours, and a remount for as long as the kernel writes back; and they use up nobody's room but their own.
    pub(crate) fn limit(self, is_first: bool, is_privileged: bool) -> Option<Duration> {
        match (is_first, is_privileged) {
            (true, _) => Some(self.first),
            (false, false) => Some(self.next),
            (false, true) => None,
        }
    }
}

/// A stream that ends with [`io::ErrorKind::TimedOut`] after so long, however its bytes come.
pub(crate) struct Limited<'a> {
    stream: &'a UnixStream,
    limit: Option<Duration>,
    clock: SystemClock,
}

impl<'a> Limited<'a> {
    /// The time runs from now on.
    pub(crate) fn new(stream: &'a UnixStream, limit: Option<Duration>) -> Self {
        Self { stream, limit, clock: SystemClock::new() }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.limit.map(|limit| limit.saturating_sub(self.clock.monotonic()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
            // What a socket says when its time is over.
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use vlinder_base::thread;

    use super::*;

    #[test]
    fn bytes_that_come_one_by_one_lengthen_no_limit() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let writer = thread::spawn("writer", move || {
            while theirs.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let clock = SystemClock::new();
        let mut all = Vec::new();
        let ended = Limited::new(&ours, Some(Duration::from_millis(300))).read_to_end(&mut all);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(clock.monotonic() >= Duration::from_millis(300) && !all.is_empty());
        drop(ours);
        writer.join().unwrap();
    }

    #[test]
    fn root_and_the_owner_may_be_silent_after_their_first_request() {
        let patience = Patience::default();
        assert_eq!(patience.limit(true, true), Some(FIRST_REQUEST_LIMIT));
        assert_eq!(patience.limit(true, false), Some(FIRST_REQUEST_LIMIT));
        assert_eq!(patience.limit(false, false), Some(NEXT_REQUEST_LIMIT));
        assert_eq!(patience.limit(false, true), None);
    }
}
