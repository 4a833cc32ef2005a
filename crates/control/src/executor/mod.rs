//! Does what clients ask, on the file system of a mount, with the rights that Linux's ioctls ask for:
//!
//! | request | who |
//! |---|---|
//! | create | who may write the directory |
//! | snapshot | the same, and owner of the source |
//! | delete | root, the mount's owner; others where they may write and `user_subvol_rm_allowed` is on |
//! | list, set-default, label, inode-resolve, lease, receive, fstrim | root, the mount's owner |
//! | `ro` | root, the mount's owner, the subvolume's owner |
//! | unmount | root, the mount's owner |
//! | a file's map | who may read the file |
//! | dedupe | who may read the source, and write or own the target; root |
//! | by a system call | as what the call stands for; the kernel judges the call as well |
//! | the rest | who may search the path |
//!
//! What changes the file system is refused to everybody where the mount is read-only (`effect.rs`).
//!
//! The kernel's dirty pages are pushed out before whatever must see them, and the kernel is told of every
//! name that changed behind its back.

mod kernel_notifier;
mod leases;
mod properties;
mod receiving;
mod report;
mod rights;
mod served_mount;
mod sharing;
mod subvolumes;
mod trimming;
mod unmounting;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_fs::{Filesystem, InodeId, ObjectId};

use crate::ErrorBody;
use crate::by_call::ExpectedCalls;
use crate::peer::Peer;
use crate::protocol::{Answer, Name, Request};
use crate::server::{Conversation, Executor};
use served_mount::ServedMount;

pub use kernel_notifier::{KernelNotifier, Unplaced};
pub use served_mount::MountFacts;

/// Does requests on a file system.
pub struct FilesystemExecutor {
    mount: ServedMount,
    stopping: AtomicBool,
    calls: Arc<ExpectedCalls>,
}

impl FilesystemExecutor {
    /// For the file system of a mount.
    #[must_use]
    pub fn new(filesystem: Filesystem, notifier: Arc<dyn KernelNotifier>, facts: MountFacts) -> Self {
        let mount = ServedMount { filesystem, notifier, facts };
        Self { mount, stopping: AtomicBool::new(false), calls: Arc::default() }
    }

    /// The system calls that clients were told to make. The server looks among them when a call comes.
    #[must_use]
    pub fn calls(&self) -> Arc<ExpectedCalls> {
        Arc::clone(&self.calls)
    }

    /// From now on requests that wait for something give up.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Executor for FilesystemExecutor {
    fn execute(
        &self,
        peer: &Peer,
        request: Request,
        conversation: &mut Conversation,
    ) -> Result<Answer, ErrorBody> {
        let mount = &self.mount;
        mount.require_writable(peer, &request, conversation)?;
        match request {
            Request::Mount => Ok(Answer::Mount(report::information(mount))),
            Request::SubvolumeCreate { .. }
            | Request::SubvolumeSnapshot { .. }
            | Request::SubvolumeDelete { .. } => subvolumes::change(mount, peer, &request),
            Request::ByCall { request } => {
                subvolumes::expect_call(mount, &self.calls, peer, &request, conversation)
            }
            Request::CallOutcome => {
                let call = conversation.call.take();
                let call = call.ok_or_else(|| ErrorBody::new(Errno::INVAL, "no call was asked for"))?;
                call.end().unwrap_or(Ok(Answer::NotCalled))
            }
            Request::SubvolumeList => subvolumes::list(mount, peer),
            Request::SubvolumeShow { target } => subvolumes::show(mount, peer, &target),
            Request::SubvolumeSetDefault { target } => subvolumes::set_default(mount, peer, &target),
            Request::SubvolumeGetDefault => {
                let root = mount.filesystem.subvolumes().default()?;
                Ok(Answer::Subvolume(subvolumes::record(mount, root, false)?))
            }
            Request::SubvolumeSync { numbers } => {
                subvolumes::await_deletions(mount, &self.stopping, &numbers)
            }
            Request::FilesystemSync => mount.sync(),
            Request::Fstrim { from } => trimming::trim(mount, peer, &self.stopping, from),
            Request::Remounted { read_only } => {
                mount.require_privilege(peer)?;
                mount.filesystem.hold_access_times(read_only);
                mount.sync()
            }
            Request::FilesystemDf | Request::FilesystemUsage => report::space(mount),
            Request::LabelGet => Ok(Answer::Label {
                label: Name::from(mount.filesystem.engine().superblock().label.as_bytes()),
            }),
            Request::LabelSet { label } => properties::set_label(mount, peer, &label),
            Request::PropertyGet { path, name } => properties::property(mount, peer, &path, &name),
            Request::PropertySet { path, name, value, force } => {
                properties::set_property(mount, peer, &path, &name, &value, force)
            }
            Request::RootId { path } => {
                Ok(Answer::Root { number: mount.resolve(&mount.caller(peer, 0), &path)?.id().root.0 })
            }
            Request::InodeResolve { path, inode } => resolve_inode(mount, peer, &path, inode),
            Request::FileMap { path, from } => report::file_map(mount, peer, &path, from),
            Request::FileDedupe { source, source_offset, path, offset, length } => {
                sharing::dedupe(mount, peer, (&source, source_offset), (&path, offset), length)
            }
            Request::Statistics => {
                Ok(Answer::Statistics { metrics: report::metrics(mount), condition: mount.condition() })
            }
            Request::Lease => leases::grant(mount, peer, conversation),
            Request::LeaseConfirm => leases::confirm(conversation),
            Request::Receive { directory, how } => {
                receiving::prepare(mount, peer, &directory, how, conversation)
            }
            Request::ReceiveParts { directory } => receiving::parts(mount, peer, &directory),
            Request::ReceiveDiscard { directory, name } => receiving::discard(mount, peer, &directory, &name),
            Request::Unmount => unmounting::prepare(mount, peer),
        }
    }
}

/// Linux asks for CAP_DAC_READ_SEARCH (`btrfs_ioctl_ino_to_path`).
fn resolve_inode(mount: &ServedMount, peer: &Peer, path: &Name, number: u64) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let root = mount.resolve(&mount.administrator(peer), path)?.id().root;
    let id = InodeId::new(root, ObjectId(number));
    let paths = mount.filesystem.names().paths_in_subvolume(id)?;
    Ok(Answer::Paths { paths: paths.into_iter().map(Name).collect() })
}
