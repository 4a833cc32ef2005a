//! What the file system of an image said.

use vlinder_fs::{FsError, Refusal};

use crate::failure::{Failure, Kind};

/// A failure of the file system, at a place.
pub fn from_fs(error: FsError, place: impl std::fmt::Display) -> Failure {
    let failure = match error {
        FsError::Refused(refusal) => return refused(refusal).at(place),
        FsError::Path { path, source } => return from_fs(*source, format!("{place}: {path}")),
        FsError::Volume(error) => error.into(),
        FsError::Device(error) => error.into(),
        FsError::Partition(error) => error.into(),
        FsError::Option(error) => Failure::usage(error.to_string()),
        FsError::NoThreads { source } => Failure::no_threads(&source),
        FsError::NoDefaultSubvolume { .. } => Failure::new(Kind::NotFound, error.to_string()).hint(
            "give -o subvolid=5, and choose another one with vlinder subvolume set-default -o subvolid=5 NUMBER IMAGE",
        ),
        FsError::Damage(damage) => Failure::new(Kind::Corruption, damage.to_string()).hint(
            "the file system is damaged: keep the image as it is, and look at it with inspect-internal",
        ),
        other => from_engine(other),
    };
    failure.at(place)
}

/// What the file system said about a request, with the verbs that help.
fn refused(refusal: Refusal) -> Failure {
    if refusal == Refusal::NoSpace {
        return no_space();
    }
    let failure = Failure::new(Kind::of_errno(refusal.errno()), refusal.to_string());
    match refusal {
        Refusal::NotFound => {
            failure.hint("vlinder ls shows what is there, vlinder mkdir -p makes directories")
        }
        Refusal::Exists => failure.hint("take another name, or remove what has this one"),
        Refusal::NotADirectory => failure.hint("vlinder ls -l shows what is there"),
        Refusal::IsADirectory => failure.hint("name a file; vlinder ls -l shows what is there"),
        Refusal::NotEmpty => failure.hint("remove what is in it first, or all of it with vlinder rm -r"),
        _ => failure,
    }
}

/// No space in an image.
fn no_space() -> Failure {
    Failure::new(Kind::NoSpace, "no space left in the image").hint(
        "remove files or snapshots in it; or make a larger image (vlinder mkfs -b SIZE NEW) and copy everything \
         (vlinder cp -a IMAGE:/ NEW:/), for images can't be enlarged yet",
    )
}

fn from_engine(error: FsError) -> Failure {
    use vlinder_transaction::EngineError;
    let errno = error.errno();
    match error {
        FsError::Engine(EngineError::UnknownFeatures { names }) => Failure::unknown_features(&names),
        FsError::Engine(EngineError::ReadOnly { reason }) => {
            Failure::new(Kind::ReadOnly, format!("the file system can only be read: {reason}"))
        }
        FsError::Engine(EngineError::Volume(error)) => error.into(),
        FsError::Engine(EngineError::NoSpace { .. }) => no_space(),
        FsError::Engine(EngineError::HostFull { device }) => {
            Failure::new(Kind::NoSpace, "the host's file system is full")
                .at(device)
                .hint("free some space there and try again; what was not finished is not in the image")
        }
        other => {
            let text = other.to_string();
            match Kind::of_errno(errno) {
                Kind::Device => Failure::new(Kind::Corruption, text)
                    .hint("keep the image as it is, and look at it with inspect-internal"),
                kind => Failure::new(kind, text),
            }
        }
    }
}
