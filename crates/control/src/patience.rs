//! How long a server waits for its clients.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};

/// From connecting to the end of the first request. Every client of this program asks at once; the rest is
/// for a machine that is short of memory or of time.
pub(crate) const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// From one request's answer to the end of the next. The verbs that any user may call ask one request after
/// the other; a minute is for a pager or a terminal that holds their output up.
pub(crate) const NEXT_REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// From an answer's first byte to its last: a client reads all of it before anything else. Once the mount has
/// ended the server still waits so long for its last clients.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of one write: the kernel's time limit starts anew with each of the pieces that it cuts a longer
/// write into (`unix_stream_sendmsg`, net/unix/af_unix.c), and this is one piece.
const WRITE_BYTES: usize = 32 << 10;

/// How long a server waits for the client of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the first request.
    pub(crate) first: Duration,
    /// For each request that follows.
    pub(crate) next: Duration,
    /// Until an answer is read.
    pub(crate) answer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { first: FIRST_REQUEST_LIMIT, next: NEXT_REQUEST_LIMIT, answer: ANSWER_LIMIT }
    }
}

impl Patience {
    /// The limit of the next request. Root and the mount's owner have one for the first only: a check that
    /// reads a leased state asks nothing for hours, and a remount for as long as the kernel writes back; and
    /// they use up nobody's room but their own.
    pub(crate) fn limit(self, is_first: bool, is_privileged: bool) -> Option<Duration> {
        match (is_first, is_privileged) {
            (true, _) => Some(self.first),
            (false, false) => Some(self.next),
            (false, true) => None,
        }
    }
}

/// A stream that ends with [`io::ErrorKind::TimedOut`] after so long, however its bytes come and go.
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

impl Limited<'_> {
    /// What is left of the time; none where there is no limit.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.limit.map(|limit| limit.saturating_sub(self.clock.monotonic())) {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// A socket whose time is over says that it would block.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(&bytes[..bytes.len().min(WRITE_BYTES)]).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
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
    fn a_reader_that_takes_byte_by_byte_lengthens_no_limit() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let reader = thread::spawn("reader", move || {
            // Often enough that no single write waits for long.
            let mut bytes = [0; 4096];
            while theirs.read(&mut bytes).is_ok_and(|count| count > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let clock = SystemClock::new();
        let all = vec![0; 64 << 20];
        let ended = Limited::new(&ours, Some(Duration::from_millis(300))).write_all(&all);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(clock.monotonic() >= Duration::from_millis(300));
        ours.shutdown(std::net::Shutdown::Both).unwrap();
        drop(ours);
        reader.join().unwrap();
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
