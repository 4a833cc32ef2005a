//! Does what clients ask, on the file system of a mount, with the rights that Linux's ioctls ask for:
//!
//! | request | who |
//! |---|---|
//! | create | who may write the directory |
//! | snapshot | the same, and owner of the source |
//! | delete | root, the mount's owner; others where they may write and `user_subvol_rm_allowed` is on |
//! | list, set-default, label, inode-resolve, lease | root, the mount's owner |
//! | `ro` | root, the mount's owner, the subvolume's owner |
//! | unmount | root, the mount's owner |
//! | a file's map | who may read the file |
//! | by a system call | as what the call stands for; the kernel judges the call as well |
//! | the rest | who may search the path |
//!
//! What changes the file system is refused to everybody where the mount is read-only (`effect.rs`).
//!
//! The kernel's dirty pages are pushed out before whatever must see them, and the kernel is told of every name that changed
//! behind its back.

mod leases;
mod report;
mod subvolumes;

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_format::superblock::Label;
use vlinder_fs::{AttributeMode, Caller, Capabilities, Filesystem, Inode, InodeId, ObjectId, Refusal};
use vlinder_transaction::ReadOnlyReason;

use crate::by_call::ExpectedCalls;
use crate::protocol::{Answer, Name, Request};
use crate::server::{Conversation, Executor, Peer};
use crate::{Effect, ErrorBody};

/// How often what finds no room is tried while files are being deleted.
const MOST_ATTEMPTS: usize = 64;
const COMPRESSION_ATTRIBUTE: &[u8] = b"btrfs.compression";

/// What the kernel has cached of a mount, and how it hears of changes that did not pass through it.
pub trait KernelNotifier: Send + Sync {
    /// Makes the kernel hand over all its dirty pages; they have arrived when this returns. Called without any lock. What became
    /// of a file's bytes is that file's to tell, at fsync or close.
    ///
    /// # Errors
    /// What the kernel met; some pages may not have arrived.
    fn write_back(&self) -> io::Result<()>;
    /// Tries again to store what has arrived and found no room.
    ///
    /// # Errors
    /// Once, of bytes that are not stored and of which nobody was told.
    fn store_the_rest(&self) -> io::Result<()>;
    /// A name in a directory came, went, or stands for something else.
    fn entry_changed(&self, directory: InodeId, name: &[u8]);
    /// Attributes of a file changed.
    fn attributes_changed(&self, inode: InodeId);
    /// What came from the kernel's cache and found no room.
    fn unplaced(&self) -> Unplaced;
    /// How many files without names were deleted so far because the kernel forgot them.
    fn deletions(&self) -> u64;
    /// Whether the kernel shows the file system read-only to a process (0 for one that is not known) that came by way of the
    /// mount of this number, or by any where none is named.
    fn is_read_only(&self, process: i32, mount: Option<u64>) -> bool;
    /// Waits until more are deleted than `before`, where some are about to be; whether that is so.
    fn wait_for_deletions(&self, before: u64) -> bool;
}

/// Bytes from the kernel's cache that found no room in the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unplaced {
    /// In memory, and tried again.
    pub held_bytes: u64,
    /// There were too many to be kept. Whoever wrote them is told at fsync.
    pub lost_bytes: u64,
}

/// What is served where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountFacts {
    /// The files or block devices, as the server was told.
    pub devices: Vec<PathBuf>,
    /// Where they are mounted.
    pub mountpoint: PathBuf,
    /// The user who mounted.
    pub owner: u32,
    /// The options of the file system, as they were given.
    pub options: Vec<String>,
}

/// Does what may find no room, and again where files that were removed are deleted meanwhile: whoever removed them counts on
/// their room.
fn with_room<T>(
    notifier: &dyn KernelNotifier,
    mut attempt: impl FnMut() -> vlinder_fs::Result<T>,
) -> vlinder_fs::Result<T> {
    for _ in 0..MOST_ATTEMPTS {
        let before = notifier.deletions();
        match attempt() {
            Err(error)
                if error.refusal() == Some(Refusal::NoSpace) && notifier.wait_for_deletions(before) => {}
            other => return other,
        }
    }
    attempt()
}

/// Does requests on a file system.
pub struct FilesystemExecutor {
    filesystem: Filesystem,
    notifier: Arc<dyn KernelNotifier>,
    facts: MountFacts,
    stopping: AtomicBool,
    calls: Arc<ExpectedCalls>,
}

impl FilesystemExecutor {
    /// For the file system of a mount.
    #[must_use]
    pub fn new(filesystem: Filesystem, notifier: Arc<dyn KernelNotifier>, facts: MountFacts) -> Self {
        Self { filesystem, notifier, facts, stopping: AtomicBool::new(false), calls: Arc::default() }
    }

    /// The system calls that clients were told to make: whoever answers those of the mount looks for them there.
    #[must_use]
    pub fn calls(&self) -> Arc<ExpectedCalls> {
        Arc::clone(&self.calls)
    }

    /// From now on requests that wait for something give up.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_privileged(&self, peer: &Peer) -> bool {
        peer.user == 0 || peer.user == self.facts.owner
    }

    fn require_privilege(&self, peer: &Peer) -> Result<(), ErrorBody> {
        if self.is_privileged(peer) {
            return Ok(());
        }
        let body = ErrorBody::new(Errno::PERM, "only root and the one who mounted may do this");
        Err(body.at(self.facts.mountpoint.display().to_string()))
    }

    /// Nothing is changed by way of a mount that is read-only, whether it was made so or the kernel was told later: mount(2)
    /// says no word of that to the server.
    fn require_writable(
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

    /// The right that Linux judges before it looks whether the mount is read-only: `btrfs_ioctl_default_subvol`,
    /// `btrfs_ioctl_set_fslabel` and `btrfs_ioctl_subvol_setflags` call `mnt_want_write_file` after it, all others before.
    fn require_first_right(&self, peer: &Peer, request: &Request) -> Result<(), ErrorBody> {
        match request {
            Request::SubvolumeSetDefault { .. } | Request::LabelSet { .. } => self.require_privilege(peer),
            Request::PropertySet { name, .. } if name == "label" => self.require_privilege(peer),
            Request::PropertySet { path, name, .. } if name == "ro" && !self.is_privileged(peer) => {
                let inode = self.resolve(&peer.caller(0), path)?;
                if self.filesystem.attributes(&inode).user.0 == peer.user {
                    return Ok(());
                }
                let body =
                    ErrorBody::new(Errno::PERM, "only root, the one who mounted and the owner may do this");
                Err(body.at(path.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The peer, with every capability if it is the mount's owner.
    fn administrator(&self, peer: &Peer) -> Caller {
        let mut caller = peer.caller(0);
        if self.is_privileged(peer) {
            caller.capabilities = Capabilities::ALL;
        }
        caller
    }

    /// The file at a path from the root of the mount; symbolic links are not followed.
    fn resolve(&self, caller: &Caller, path: &Name) -> Result<Arc<Inode>, ErrorBody> {
        let mut inode = self.filesystem.root()?;
        for name in path.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if name == b".." {
                return Err(ErrorBody::new(Errno::INVAL, "a path in a request may not lead upwards")
                    .at(path.to_string()));
            }
            let found = self.filesystem.lookup(caller, &inode, name);
            inode = found.map_err(|error| ErrorBody::from_fs(&error).at(path.to_string()))?;
        }
        Ok(inode)
    }

    /// The directory and the last name of a path.
    fn resolve_parent<'a>(
        &self,
        caller: &Caller,
        path: &'a Name,
    ) -> Result<(Arc<Inode>, &'a [u8]), ErrorBody> {
        let end = path.0.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let trimmed = &path.0[..end];
        let (parent, name) = match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&trimmed[..slash], &trimmed[slash + 1..]),
            None => (&trimmed[..0], trimmed),
        };
        if name.is_empty() || name == b".." || name == b"." {
            return Err(ErrorBody::new(Errno::INVAL, "a name is needed").at(path.to_string()));
        }
        Ok((self.resolve(caller, &Name(parent.to_vec()))?, name))
    }

    fn write_back(&self) -> Result<(), ErrorBody> {
        self.notifier.write_back().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ErrorBody::new(errno, format!("the kernel could not hand over what it had cached: {error}"))
        })
    }

    /// As [`write_back`](Self::write_back), and tells of what of it is not stored.
    fn write_back_and_store(&self) -> Result<(), ErrorBody> {
        self.write_back()?;
        self.notifier.store_the_rest().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ErrorBody::new(errno, format!("not all that the kernel had cached could be stored: {error}"))
        })
    }

    fn sync(&self) -> Result<Answer, ErrorBody> {
        let came = self.write_back_and_store();
        if self.filesystem.is_read_only() {
            came?;
            return self.read_only_sync();
        }
        // Bytes that found no room do not keep those that came from becoming durable.
        let lacks_room = came.as_ref().is_err_and(|error| error.errno == Errno::NOSPC.raw_os_error());
        if !lacks_room {
            came.clone()?;
        }
        let generation = self.filesystem.sync()?.0;
        came.map(|()| Answer::Synced { generation })
    }

    /// What was opened read-only is durable; what became read-only by an error is not known to be.
    fn read_only_sync(&self) -> Result<Answer, ErrorBody> {
        match self.filesystem.engine().read_only_reason() {
            Some(reason @ ReadOnlyReason::Error(_)) => {
                let body = ErrorBody::new(Errno::IO, format!("not everything is durable: {reason}"));
                Err(body.hint("unmount, run vlinder check on the image, and look into the server's log"))
            }
            _ => Ok(Answer::Synced { generation: self.filesystem.engine().generation().0 }),
        }
    }

    fn set_label(&self, peer: &Peer, label: &Name) -> Result<Answer, ErrorBody> {
        self.require_privilege(peer)?;
        let label = Label::new(&label.0).map_err(|fault| ErrorBody::new(Errno::INVAL, fault.to_string()))?;
        {
            // The handle makes the running transaction one that has something to write.
            let handle = self.filesystem.begin(0)?;
            self.filesystem.engine().change_superblock(|superblock| superblock.label = label);
            handle.mark_changed();
        }
        self.filesystem.sync()?;
        Ok(Answer::Done)
    }

    fn property(&self, peer: &Peer, path: &Name, name: &str) -> Result<Answer, ErrorBody> {
        let caller = peer.caller(0);
        let inode = self.resolve(&caller, path)?;
        let value = match name {
            "ro" => Some(Name::from(self.subvolume_root(&inode, path)?.is_read_only().to_string().as_str())),
            "label" => Some(Name::from(self.filesystem.engine().superblock().label.as_bytes())),
            "compression" => match self.filesystem.extended_attribute(&caller, &inode, COMPRESSION_ATTRIBUTE)
            {
                Ok(value) => Some(Name(value)),
                Err(error) if error.refusal() == Some(Refusal::NoAttribute) => None,
                Err(error) => return Err(error.into()),
            },
            _ => return Err(unknown_property(name)),
        };
        Ok(Answer::Property { value })
    }

    fn set_property(
        &self,
        peer: &Peer,
        path: &Name,
        name: &str,
        value: &Name,
        force: bool,
    ) -> Result<Answer, ErrorBody> {
        let caller = peer.caller(0);
        let inode = self.resolve(&caller, path)?;
        match name {
            "ro" => {
                let read_only = match value.0.as_slice() {
                    b"true" => true,
                    b"false" => false,
                    _ => {
                        let text = format!("ro is true or false, not {value}");
                        return Err(ErrorBody::new(Errno::INVAL, text));
                    }
                };
                let root = self.subvolume_root(&inode, path)?.id();
                if read_only {
                    // What is held in memory could not be stored there any more.
                    self.write_back_and_store()?;
                }
                self.filesystem.set_subvolume_read_only(&self.administrator(peer), root, read_only, force)?;
            }
            "label" => return self.set_label(peer, value),
            "compression" => {
                let (name, filesystem) = (COMPRESSION_ATTRIBUTE, &self.filesystem);
                if value.0.is_empty() {
                    filesystem.remove_extended_attribute(&caller, &inode, name)?;
                } else {
                    let mode = AttributeMode::Either;
                    filesystem.set_extended_attribute(&caller, &inode, name, &value.0, mode)?;
                }
                self.notifier.attributes_changed(inode.id());
            }
            _ => return Err(unknown_property(name)),
        }
        Ok(Answer::Done)
    }

    /// Linux asks for CAP_DAC_READ_SEARCH (`btrfs_ioctl_ino_to_path`).
    fn resolve_inode(&self, peer: &Peer, path: &Name, number: u64) -> Result<Answer, ErrorBody> {
        self.require_privilege(peer)?;
        let root = self.resolve(&self.administrator(peer), path)?.id().root;
        let id = InodeId::new(root, ObjectId(number));
        let paths = self.filesystem.paths_in_subvolume(id)?;
        Ok(Answer::Paths { paths: paths.into_iter().map(Name).collect() })
    }

    /// What is to be done before unmounting is tried again, as far as it is known what was not stored.
    fn with_advice(&self, error: ErrorBody) -> ErrorBody {
        let condition = self.condition();
        let held = condition.held_bytes;
        error.hint(if condition.is_host_full {
            "nothing is lost while the mount is there: free some space on the host, then unmount again".to_owned()
        } else if condition.lost_bytes > 0 {
            "files that were written last have lost bytes: free space, write them again, then unmount".to_owned()
        } else if held == 1 {
            "1 byte that was written last is in memory and found no room: free space, or copy its file to another place, then unmount again".to_owned()
        } else if held > 0 {
            format!("{held} bytes that were written last are in memory and found no room: free space, or copy them to another place, then unmount again")
        } else if condition.read_only.is_some() {
            "copy what was written last to another place, then unmount again".to_owned()
        } else {
            "all that reached the mount is stored; unmount again".to_owned()
        })
    }

    fn prepare_unmount(&self, peer: &Peer) -> Result<Answer, ErrorBody> {
        self.require_privilege(peer)?;
        // A mount that an error made read-only must still come down; its end says what is lost.
        let says_so_at_the_end = || {
            let reason = self.filesystem.engine().read_only_reason();
            matches!(reason, Some(ReadOnlyReason::Error(_)))
        };
        let mut is_durable = true;
        match self.write_back_and_store() {
            // The kernel drops what it could not hand over, and tells it once: nobody else would hear of it.
            Err(error) if !says_so_at_the_end() => return Err(self.with_advice(error)),
            Err(error) => {
                is_durable = false;
                tracing::warn!(%error, "not everything came before unmounting");
            }
            Ok(()) => {}
        }
        let is_known = says_so_at_the_end();
        match self.sync() {
            // Until now nobody knew: what was not stored can still be read, and goes with the mount.
            Err(error) if !is_known => return Err(self.with_advice(error)),
            Err(error) => {
                is_durable = false;
                tracing::warn!(%error, "the commit before unmounting failed");
            }
            Ok(_) => {}
        }
        Ok(Answer::Prepared { process: std::process::id(), is_durable })
    }
}

impl Executor for FilesystemExecutor {
    fn execute(
        &self,
        peer: &Peer,
        request: Request,
        conversation: &mut Conversation,
    ) -> Result<Answer, ErrorBody> {
        self.require_writable(peer, &request, conversation)?;
        match request {
            Request::Mount => Ok(Answer::Mount(self.information())),
            Request::SubvolumeCreate { .. }
            | Request::SubvolumeSnapshot { .. }
            | Request::SubvolumeDelete { .. } => self.change_subvolumes(peer, &request),
            Request::ByCall { request } => self.expect_call(peer, &request, conversation),
            Request::CallOutcome => {
                let call = conversation.call.take();
                let call = call.ok_or_else(|| ErrorBody::new(Errno::INVAL, "no call was asked for"))?;
                call.end().unwrap_or(Ok(Answer::NotCalled))
            }
            Request::SubvolumeList => self.list_subvolumes(peer),
            Request::SubvolumeShow { target } => self.show_subvolume(peer, &target),
            Request::SubvolumeSetDefault { target } => self.set_default(peer, &target),
            Request::SubvolumeGetDefault => {
                let root = self.filesystem.default_subvolume()?;
                Ok(Answer::Subvolume(self.record(root, false)?))
            }
            Request::SubvolumeSync { numbers } => self.await_deletions(&numbers),
            Request::FilesystemSync => self.sync(),
            Request::Remounted { read_only } => {
                self.require_privilege(peer)?;
                self.filesystem.hold_access_times(read_only);
                self.sync()
            }
            Request::FilesystemDf | Request::FilesystemUsage => self.space(),
            Request::LabelGet => Ok(Answer::Label {
                label: Name::from(self.filesystem.engine().superblock().label.as_bytes()),
            }),
            Request::LabelSet { label } => self.set_label(peer, &label),
            Request::PropertyGet { path, name } => self.property(peer, &path, &name),
            Request::PropertySet { path, name, value, force } => {
                self.set_property(peer, &path, &name, &value, force)
            }
            Request::RootId { path } => {
                Ok(Answer::Root { number: self.resolve(&peer.caller(0), &path)?.id().root.0 })
            }
            Request::InodeResolve { path, inode } => self.resolve_inode(peer, &path, inode),
            Request::FileMap { path, from } => self.file_map(peer, &path, from),
            Request::Statistics => {
                Ok(Answer::Statistics { metrics: self.metrics(), condition: self.condition() })
            }
            Request::Lease => self.lease(peer, conversation),
            Request::LeaseConfirm => leases::confirm(conversation),
            Request::Unmount => self.prepare_unmount(peer),
        }
    }
}

fn unknown_property(name: &str) -> ErrorBody {
    ErrorBody::new(
        Errno::OPNOTSUPP,
        format!("there is no property {name:?}; there are ro, label and compression"),
    )
}
