//! Which user may do what: the rights that Linux's ioctls ask for.

use rustix::io::Errno;
use vlinder_fs::{Caller, Capabilities, Owners};
use vlinder_transaction::ReadOnlyReason;

use super::served_mount::ServedMount;
use crate::peer::Peer;
use crate::protocol::Request;
use crate::server::Conversation;
use crate::{Effect, ErrorBody};

impl ServedMount {
    fn is_privileged(&self, peer: &Peer) -> bool {
        peer.user == 0 || peer.user == self.facts.owner
    }

    pub(super) fn require_privilege(&self, peer: &Peer) -> Result<(), ErrorBody> {
        if self.is_privileged(peer) {
            return Ok(());
        }
        let body = ErrorBody::new(Errno::PERM, "only root and the one who mounted may do this");
        Err(body.at(self.facts.mountpoint.display().to_string()))
    }

    /// Nothing is changed by way of a mount that is read-only, whether it was made so or the kernel was told
    /// later: mount(2) says no word of that to the server.
    pub(super) fn require_writable(
        &self,
        peer: &Peer,
        request: &Request,
        conversation: &Conversation,
    ) -> Result<(), ErrorBody> {
        let is_read_only = || self.notifier.is_read_only(peer.process, conversation.mount);
        if request.effect() == Effect::Keeps || !(self.filesystem.is_read_only() || is_read_only()) {
            return Ok(());
        }
        self.require_first_right(peer, request)?;
        let body = ErrorBody::new(Errno::ROFS, "the mount is read-only and takes no changes");
        let body = body.at(self.facts.mountpoint.display().to_string());
        let hint = match self.filesystem.engine().read_only_reason() {
            Some(ReadOnlyReason::Error(_)) => "an error made it so, of which the server's log tells",
            Some(_) => "unmount it, and mount it for writing",
            None => "make it writable with mount -o remount,rw",
        };
        Err(body.hint(hint))
    }

    /// The right that Linux judges before it looks whether the mount is read-only:
    /// `btrfs_ioctl_default_subvol`, `btrfs_ioctl_set_fslabel` and `btrfs_ioctl_subvol_setflags` call
    /// `mnt_want_write_file` after it, all others before; `btrfs_ioctl_fitrim` asks for the right first.
    fn require_first_right(&self, peer: &Peer, request: &Request) -> Result<(), ErrorBody> {
        match request {
            Request::SubvolumeSetDefault { .. } | Request::LabelSet { .. } | Request::Fstrim { .. } => {
                self.require_privilege(peer)
            }
            Request::PropertySet { name, .. } if name == "label" => self.require_privilege(peer),
            Request::PropertySet { path, name, .. } if name == "ro" && !self.is_privileged(peer) => {
                let inode = self.resolve(&self.caller(peer, 0), path)?;
                if self.filesystem.attributes().of(&inode).user.0 == peer.user {
                    return Ok(());
                }
                let body =
                    ErrorBody::new(Errno::PERM, "only root, the one who mounted and the owner may do this");
                Err(body.at(path.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The peer as the file system's permissions judge it: with `owners=root` the one who mounted is root.
    pub(super) fn caller(&self, peer: &Peer, umask: u32) -> Caller {
        if self.filesystem.options().owners == Owners::Root && peer.user == self.facts.owner {
            return Caller { umask: umask & 0o777, ..Caller::superuser() };
        }
        peer.caller(umask)
    }

    /// The peer, with every capability if it is the mount's owner.
    pub(super) fn administrator(&self, peer: &Peer) -> Caller {
        let mut caller = self.caller(peer, 0);
        if self.is_privileged(peer) {
            caller.capabilities = Capabilities::ALL;
        }
        caller
    }
}
