//! What is told of streams that are wrong, and of files that they hold only in part.

use vlinder_format::Uuid;
use vlinder_places::failure::{Failure, Kind};
use vlinder_stream::files::{CommandFault, ContentError, IndexError, IndexFault};
use vlinder_stream::wire::WireError;

/// The failure for a stream that is wrong.
pub fn wrong_stream(error: &IndexError, place: &str) -> Failure {
    let hint = match &error.cause {
        IndexFault::Wire(wire) => return wrong_bytes(wire, error.offset, place),
        IndexFault::Command { fault: CommandFault::NotAPath, .. } => {
            "do not trust this stream: btrfs send writes no such path"
        }
        IndexFault::Command { fault: CommandFault::RestOfStream, .. } => {
            "vlinder receive goes on with it; to look into it, send the snapshot again without --resume"
        }
        IndexFault::Command { fault: CommandFault::NoSubvolume, .. } | IndexFault::NoSubvolume => {
            "its beginning is lost, or it was put together wrongly: send it again"
        }
        IndexFault::Command { .. } => {
            "the stream does not follow from itself and those before it: check their order, or send it again"
        }
    };
    Failure::new(Kind::Corruption, error.to_string()).at(place).hint(hint)
}

/// The failure for an input without any stream: a sender that failed at once leaves such a file.
pub fn no_stream(place: &str) -> Failure {
    Failure::new(Kind::Invalid, "no stream: it is empty").at(place).hint("check how it was saved")
}

/// The failure for bytes that are no stream.
pub fn wrong_bytes(error: &WireError, offset: u64, place: &str) -> Failure {
    let hint = match error {
        WireError::Io(error) => return Failure::host(error, place),
        WireError::NotAStream if offset == 0 => {
            let failure = Failure::new(Kind::Invalid, error.to_string()).at(place);
            return failure
                .hint("name a file that btrfs send wrote; one that was compressed, decompress first");
        }
        WireError::UnknownProtocol { .. } => {
            let failure = Failure::new(Kind::Unsupported, error.to_string()).at(place);
            return failure.hint("use a newer vlinder, or send it again with --proto 2");
        }
        WireError::NotAStream => "something else follows the last stream: cut it off there",
        WireError::Truncated | WireError::Unfinished => {
            "what comes before that byte is whole; the rest is lost: send it again"
        }
        _ => "what comes before that byte is whole; from there on nothing can be trusted: send it again",
    };
    Failure::new(Kind::Corruption, format!("at byte {offset}: {error}")).at(place).hint(hint)
}

/// The failure for a file whose bytes can't be had.
pub fn no_content(error: &ContentError, place: &str) -> Failure {
    let failure = |kind| Failure::new(kind, error.to_string()).at(place);
    match error {
        ContentError::Missing { uuid } => failure(Kind::NotFound).hint(missing_hint(*uuid)),
        ContentError::NotSent => failure(Kind::NotFound).hint("send it again, without --no-data"),
        ContentError::NotARegularFile => failure(Kind::Invalid).hint("list it with vlinder stream ls -l"),
        ContentError::Codec { .. } => {
            failure(Kind::Corruption).hint("send it again; if it is the same then, check the sender's disk")
        }
        ContentError::Io(error) => Failure::host(error, place),
    }
}

/// What to do where a subvolume was not given.
pub fn missing_hint(uuid: Uuid) -> String {
    format!("give the stream of subvolume {uuid} with --after FILE")
}
