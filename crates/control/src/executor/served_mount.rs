//! A mount that is served: its file system, what its kernel has cached, and what everything that is asked of
//! it needs.

use std::path::PathBuf;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_format::DeviceId;
use vlinder_fs::{Caller, Filesystem, Inode, Subvolume};
use vlinder_transaction::ReadOnlyReason;

use super::kernel_notifier::KernelNotifier;
use crate::ErrorBody;
use crate::protocol::{Answer, ConditionRecord, Name};

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

/// A file system, its mount, and the kernel that shows it.
pub(super) struct ServedMount {
    pub(super) filesystem: Filesystem,
    pub(super) notifier: Arc<dyn KernelNotifier>,
    pub(super) facts: MountFacts,
}

impl ServedMount {
    /// The file at a path from the root of the mount; symbolic links are not followed.
    pub(super) fn resolve(&self, caller: &Caller, path: &Name) -> Result<Arc<Inode>, ErrorBody> {
        let mut inode = self.filesystem.root()?;
        for name in path.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if name == b".." {
                return Err(ErrorBody::new(Errno::INVAL, "a path in a request may not lead upwards")
                    .at(path.to_string()));
            }
            let found = self.filesystem.names().lookup(caller, &inode, name);
            inode = found.map_err(|error| ErrorBody::from_fs(&error).at(path.to_string()))?;
        }
        Ok(inode)
    }

    /// The directory and the last name of a path.
    pub(super) fn resolve_parent<'a>(
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

    /// The subvolume whose root directory this is.
    pub(super) fn subvolume_root(
        &self,
        inode: &Arc<Inode>,
        path: &Name,
    ) -> Result<Arc<Subvolume>, ErrorBody> {
        if inode.id().is_subvolume_root() {
            return Ok(Arc::clone(inode.subvolume()));
        }
        Err(ErrorBody::new(Errno::INVAL, "not the root of a subvolume").at(path.to_string()))
    }

    pub(super) fn write_back(&self) -> Result<(), ErrorBody> {
        self.notifier.write_back().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ErrorBody::new(errno, format!("the kernel could not hand over what it had cached: {error}"))
        })
    }

    /// As [`write_back`](Self::write_back), and tells of what of it is not stored.
    pub(super) fn write_back_and_store(&self) -> Result<(), ErrorBody> {
        self.write_back()?;
        self.store_the_rest()
    }

    /// Stores what was handed over and found no room then.
    pub(super) fn store_the_rest(&self) -> Result<(), ErrorBody> {
        self.notifier.store_the_rest().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ErrorBody::new(errno, format!("not all that the kernel had cached could be stored: {error}"))
        })
    }

    pub(super) fn sync(&self) -> Result<Answer, ErrorBody> {
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

    /// The file or block device of a member; empty where it is missing. Members are by number, paths as they
    /// were given.
    pub(super) fn path_of(&self, number: DeviceId) -> Name {
        let members = self.filesystem.engine().volume().members();
        let Some(position) = members.iter().position(|member| member.id == number) else {
            return Name::default();
        };
        let told = members.as_slice().get(position).map(|member| member.device.describe().name);
        let is_it = |path: &&std::path::PathBuf| {
            told.as_deref().is_some_and(|name| path.ends_with(name.trim_start_matches("./")))
        };
        let path = self.facts.devices.iter().find(is_it).or_else(|| self.facts.devices.get(position));
        path.map(|path| Name::of_path(path)).unwrap_or_default()
    }

    /// How the file system fares, with what the mount keeps beside it.
    pub(super) fn condition(&self) -> ConditionRecord {
        let mut condition = ConditionRecord::from(&self.filesystem.maintenance().condition());
        let unplaced = self.notifier.unplaced();
        condition.held_bytes = condition.held_bytes.saturating_add(unplaced.held_bytes);
        condition.lost_bytes = unplaced.lost_bytes;
        condition
    }
}
