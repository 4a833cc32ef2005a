//! What the crates below tell by `tracing`: warnings and errors go to standard error, from a mount in the
//! background to the system's log. `VLINDER_LOG` chooses more or less, as `VLINDER_LOG=vlinder_fs=debug`.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use vlinder_base::sync::ProcessOnce;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_transaction::{COMMIT_EVENTS, LATCH_EVENTS};

const VARIABLE: &str = "VLINDER_LOG";
/// Where the system's log takes messages, as syslog(3) sends them.
const SYSTEM_LOG: &str = "/dev/log";
/// The facility of daemons in a message's priority (RFC 5424, section 6.2.1), times 8.
const DAEMON: u8 = 3 << 3;

/// The system's log, once standard error is nobody's.
static BACKGROUND: ProcessOnce<Option<UnixDatagram>> = ProcessOnce::new();

/// The events that tell how commits fare, and that nothing can be changed any more. A verb ends with that
/// error anyway, with the place and what to do about it.
const TOLD_BY_VERBS: [&str; 2] = [LATCH_EVENTS, COMMIT_EVENTS];
/// Whether this process serves a mount.
static SERVES: AtomicBool = AtomicBool::new(false);

/// From now on this process serves a mount, whose errors nobody else tells.
pub fn serve() {
    SERVES.store(true, Ordering::Relaxed);
}

/// Begins to tell; for the start of the process.
pub fn start() {
    let filter = EnvFilter::builder()
        .with_env_var(VARIABLE)
        .with_default_directive(Level::WARN.into())
        .from_env_lossy();
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).event_format(Line).with_writer(LogDestination);
    // A process of tests may have one already.
    let _ = subscriber.try_init();
}

/// From now on messages go to the system's log, or nowhere if there is none.
pub fn go_to_background() {
    BACKGROUND.get_or_init(|| connect(Path::new(SYSTEM_LOG)).ok());
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A log that nobody empties must not hold a request up.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// One event in one line, in the form of the command's own messages.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "information",
            Level::DEBUG | Level::TRACE => "debug",
        };
        write!(writer, "vlinder: {level}: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Chooses where a line goes.
struct LogDestination;

/// Where a line goes.
enum Sink {
    StandardError(io::Stderr),
    SystemLog { socket: &'static UnixDatagram, severity: u8 },
    Nowhere,
}

impl<'a> MakeWriter<'a> for LogDestination {
    type Writer = Sink;

    fn make_writer(&'a self) -> Sink {
        match BACKGROUND.get() {
            None => Sink::StandardError(io::stderr()),
            Some(None) => Sink::Nowhere,
            Some(Some(socket)) => Sink::SystemLog { socket, severity: 6 },
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Sink {
        let is_told = TOLD_BY_VERBS.contains(&metadata.target());
        if is_told && !SERVES.load(Ordering::Relaxed) && std::env::var_os(VARIABLE).is_none() {
            return Sink::Nowhere;
        }
        match self.make_writer() {
            Sink::SystemLog { socket, .. } => {
                Sink::SystemLog { socket, severity: severity_of(*metadata.level()) }
            }
            sink => sink,
        }
    }
}

/// The severity of RFC 5424, section 6.2.1.
fn severity_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Sink::StandardError(output) => output.write(line),
            Sink::SystemLog { socket, severity } => {
                let _ = socket.send(&datagram(line, *severity, std::process::id()));
                Ok(line.len())
            }
            Sink::Nowhere => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::StandardError(output) => output.flush(),
            Sink::SystemLog { .. } | Sink::Nowhere => Ok(()),
        }
    }
}

/// A line as the system's log takes it.
fn datagram(line: &[u8], severity: u8, process: u32) -> Vec<u8> {
    let text = line.strip_prefix(b"vlinder: ").unwrap_or(line).trim_ascii_end();
    let mut message = format!("<{}>vlinder[{process}]: ", DAEMON | severity).into_bytes();
    message.extend_from_slice(text);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_log_gets_priority_name_and_text() {
        let directory = vlinder_testkit::Scratch::new("log");
        let path = directory.join("socket");
        let log = UnixDatagram::bind(&path).unwrap();
        let socket: &'static UnixDatagram = Box::leak(Box::new(connect(&path).unwrap()));
        let mut sink = Sink::SystemLog { socket, severity: severity_of(Level::WARN) };
        sink.write_all(b"vlinder: warning: device 2 is missing\n").unwrap();
        let mut found = [0; 100];
        let length = log.recv(&mut found).unwrap();
        let expected = format!("<28>vlinder[{}]: warning: device 2 is missing", std::process::id());
        assert_eq!(std::str::from_utf8(&found[..length]), Ok(expected.as_str()));
    }
}
