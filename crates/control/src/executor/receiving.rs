//! Streams that a client hands over, made into subvolumes.

use std::io::{BufReader, Read};

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::Inode;
use vlinder_stream::receive::{ReceiveError, Receiver};
use vlinder_stream::wire::{StreamReader, WireError};

use super::kernel_notifier::KernelNotifier;
use super::served_mount::ServedMount;
use crate::peer::Peer;
use crate::protocol::{Answer, Name, ReceivedSubvolume};
use crate::server::Conversation;
use crate::{ErrorBody, ErrorKind};

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// What is done with the streams that the client will hand over.
pub(super) fn prepare(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    conversation: &mut Conversation,
) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let directory = mount.resolve(&mount.administrator(peer), path)?;
    if !directory.is_directory() {
        return Err(ErrorBody::new(Errno::NOTDIR, "not a directory").at(path.to_string()));
    }
    let (filesystem, notifier, place) = (mount.filesystem.clone(), Arc::clone(&mount.notifier), path.clone());
    conversation.upload = Some(Box::new(move |bytes: &mut dyn Read| {
        let mut streams = StreamReader::new(BufReader::with_capacity(BUFFER_BYTES, bytes));
        let mut receiver = Receiver::new(&filesystem, Arc::clone(&directory));
        let received = receiver.receive(&mut streams);
        let position = streams.position();
        for name in receiver.names() {
            tell_of_name(&*notifier, &directory, name);
        }
        let received = received.map_err(|error| body_of(&error, position).at(place.to_string()))?;
        // Who hears that all was received may remove what it was sent from.
        filesystem.sync()?;
        let record = |received: vlinder_stream::receive::Received| ReceivedSubvolume {
            number: received.id.0,
            name: Name(received.name),
        };
        Ok(Answer::Received { subvolumes: received.into_iter().map(record).collect() })
    }));
    Ok(Answer::Ready)
}

fn tell_of_name(notifier: &dyn KernelNotifier, directory: &Arc<Inode>, name: &[u8]) {
    notifier.entry_changed(directory.id(), name);
    notifier.attributes_changed(directory.id());
}

/// What ended a receive, at a byte of the stream.
fn body_of(error: &ReceiveError, position: u64) -> ErrorBody {
    let text = format!("{error} (byte {position} of the stream)");
    match error {
        ReceiveError::Filesystem(error) => ErrorBody::from_fs(error),
        ReceiveError::Command { error, .. } => {
            let body = ErrorBody::from_fs(error);
            ErrorBody { message: text, ..body }
        }
        ReceiveError::Wire(WireError::Io(_)) => ErrorBody::new(Errno::IO, text),
        ReceiveError::MissingSource { .. } => ErrorBody::new(Errno::NOENT, text),
        ReceiveError::Unsupported { .. } => ErrorBody::new(Errno::OPNOTSUPP, text),
        _ => ErrorBody { kind: ErrorKind::Invalid, ..ErrorBody::new(Errno::INVAL, text) },
    }
}
