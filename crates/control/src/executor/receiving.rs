//! Streams that a client hands over, made into subvolumes of the mount.

use std::io::Read;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::Inode;
use vlinder_stream::receive::ReceiveOptions;

use super::kernel_notifier::KernelNotifier;
use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::{Answer, Name, ReceiveRequest};
use crate::receive;
use crate::server::Conversation;

/// What is done with the streams that the client will hand over.
pub(super) fn prepare(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    request: ReceiveRequest,
    conversation: &mut Conversation,
) -> Result<Answer, ErrorBody> {
    let directory = directory(mount, peer, path)?;
    let (filesystem, notifier, place) = (mount.filesystem.clone(), Arc::clone(&mount.notifier), path.clone());
    let options = ReceiveOptions {
        max_errors: request.max_errors,
        ends_at_end_command: request.ends_at_end_command,
        ..ReceiveOptions::default()
    };
    conversation.upload = Some(Box::new(move |bytes: &mut dyn Read| {
        let tell = |name: &[u8]| tell_of_name(&*notifier, &directory, name);
        let received = receive::receive(&filesystem, &directory, options, bytes, tell);
        received.map_err(|body| body.at(place.to_string()))
    }));
    Ok(Answer::Ready)
}

/// What was received in part in a directory.
pub(super) fn parts(mount: &ServedMount, peer: &Peer, path: &Name) -> Result<Answer, ErrorBody> {
    receive::parts(&mount.filesystem, &*directory(mount, peer, path)?)
}

/// Removes what was received in part of a subvolume.
pub(super) fn discard(
    mount: &ServedMount,
    peer: &Peer,
    path: &Name,
    name: &Name,
) -> Result<Answer, ErrorBody> {
    let directory = directory(mount, peer, path)?;
    let left = vlinder_stream::receive::partial_subvolume_names(&name.0);
    let discarded = receive::discard_part(&mount.filesystem, &directory, &name.0);
    for name in left {
        tell_of_name(&*mount.notifier, &directory, &name);
    }
    discarded.map_err(|body| body.at(path.to_string()))
}

fn directory(mount: &ServedMount, peer: &Peer, path: &Name) -> Result<Arc<Inode>, ErrorBody> {
    mount.require_privilege(peer)?;
    let directory = mount.resolve(&mount.administrator(peer), path)?;
    if directory.is_directory() {
        return Ok(directory);
    }
    Err(ErrorBody::new(Errno::NOTDIR, "not a directory").at(path.to_string()))
}

fn tell_of_name(notifier: &dyn KernelNotifier, directory: &Arc<Inode>, name: &[u8]) {
    notifier.entry_changed(directory.id(), name);
    notifier.attributes_changed(directory.id());
}
