//! Leases on the mount's last committed state, each held by a connection.

use rustix::io::Errno;
use vlinder_volume::superblock::pack;

use super::served_mount::ServedMount;
use crate::peer::Peer;
use crate::protocol::{Answer, LeasedDevice, Name};
use crate::server::Conversation;
use crate::{ErrorBody, ErrorKind};

/// The client reads the devices with rights of its own; the lease costs space, so it is not for everybody.
pub(super) fn grant(
    mount: &ServedMount,
    peer: &Peer,
    conversation: &mut Conversation,
) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    // The one before, if any, must not hold space while the commit looks for some.
    conversation.lease = None;
    let engine = mount.filesystem.engine();
    let lease = engine.lease().map_err(vlinder_fs::FsError::from)?;
    let members = engine.volume().members();
    let mut devices = Vec::with_capacity(members.as_slice().len());
    for (superblock, member) in lease.superblocks().iter().zip(&members) {
        let superblock = pack(superblock).map_err(|fault| ErrorBody::new(Errno::IO, fault.to_string()))?;
        devices.push(LeasedDevice { path: mount.path_of(member.id), superblock: Name(superblock) });
    }
    let generation = lease.generation().0;
    conversation.lease = Some(lease);
    Ok(Answer::Leased { generation, devices })
}

/// Whether all that the client read until now is of the state that it leased.
pub(super) fn confirm(conversation: &Conversation) -> Result<Answer, ErrorBody> {
    let lease = conversation.lease.as_ref();
    let lease = lease.ok_or_else(|| ErrorBody::new(Errno::INVAL, "nothing was leased on this connection"))?;
    match lease.confirm() {
        Ok(()) => Ok(Answer::Done),
        Err(revoked) => {
            Err(ErrorBody { kind: ErrorKind::Busy, ..ErrorBody::new(Errno::STALE, revoked.to_string()) })
        }
    }
}
