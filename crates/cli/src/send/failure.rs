//! What ends a send, as the command tells it.

use std::fmt::Display;

use vlinder_places::failure::{Failure, Kind};
use vlinder_stream::resume::ResumeError;
use vlinder_stream::send::SendError;
use vlinder_stream::wire::WireError;

fn is_of_resuming(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ResumeError>())
}

/// What ended a send of `place`, whose stream goes to `output`.
pub(super) fn failure_of(error: SendError, place: impl Display, output: impl Display) -> Failure {
    let text = error.to_string();
    let failure = match error {
        SendError::Wire(WireError::Io(error)) if is_of_resuming(&error) => {
            Failure::new(Kind::Invalid, error.to_string())
        }
        SendError::Wire(WireError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Failure::new(Kind::Device, "the reader of the stream ended before the stream was whole")
                .hint("look at what the receiver said")
        }
        SendError::Wire(WireError::Io(error)) => return Failure::host(&error, output),
        SendError::Wire(_) => Failure::new(Kind::Unsupported, text),
        SendError::Volume(error) => error.into(),
        SendError::UnknownCompression { .. } => Failure::new(Kind::Unsupported, text),
        _ => Failure::new(Kind::Corruption, text)
            .hint("keep the image as it is; vlinder check names what is damaged"),
    };
    failure.at(place)
}
