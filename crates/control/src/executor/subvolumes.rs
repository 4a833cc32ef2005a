//! The requests about subvolumes.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::Ordering;
use vlinder_base::thread;
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_fs::{Inode, InodeId, RootId, Subvolume, SubvolumeInformation};

use super::FilesystemExecutor;
use crate::ErrorBody;
use crate::protocol::{Answer, Name, SubvolumeRecord, SubvolumeTarget, Time};
use crate::server::Peer;

/// How often deleted subvolumes are looked after.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

impl FilesystemExecutor {
    pub(super) fn create_subvolume(&self, peer: &Peer, path: &Name, umask: u32) -> Result<Answer, ErrorBody> {
        let caller = peer.caller(umask);
        let (directory, name) = self.resolve_parent(&caller, path)?;
        let made = self.with_room(|| self.filesystem.create_subvolume(&caller, &directory, name));
        let made = made.map_err(|error| at(error, path))?;
        self.names_changed(&directory, name);
        Ok(Answer::Subvolume(self.record(made.root, false)?))
    }

    pub(super) fn snapshot(
        &self,
        peer: &Peer,
        source: &Name,
        path: &Name,
        read_only: bool,
    ) -> Result<Answer, ErrorBody> {
        let caller = peer.caller(0);
        let source_root = self.resolve(&caller, source)?;
        let root = self.subvolume_root(&source_root, source)?.id();
        let (directory, name) = self.resolve_parent(&caller, path)?;
        self.write_back()?;
        let made = self.with_room(|| self.filesystem.snapshot(&caller, root, &directory, name, read_only));
        let made = made.map_err(|error| at(error, path))?;
        self.names_changed(&directory, name);
        Ok(Answer::Subvolume(self.record(made.root, false)?))
    }

    pub(super) fn delete_subvolume(
        &self,
        peer: &Peer,
        target: &SubvolumeTarget,
        commit: bool,
    ) -> Result<Answer, ErrorBody> {
        let caller = self.administrator(peer);
        let (directory, name, place) = match target {
            SubvolumeTarget::Path(path) => {
                let (directory, name) = self.resolve_parent(&peer.caller(0), path)?;
                let found = self
                    .filesystem
                    .lookup(&peer.caller(0), &directory, name)
                    .map_err(|error| at(error, path))?;
                self.subvolume_root(&found, path)?;
                (directory, name.to_vec(), path.clone())
            }
            SubvolumeTarget::Number(number) => {
                self.require_privilege(peer)?;
                let information = self.filesystem.subvolume_information(RootId(*number))?;
                let parent = information.parent.ok_or_else(|| {
                    ErrorBody::new(Errno::NOENT, "the subvolume has no name").at(number.to_string())
                })?;
                (self.filesystem.inode(parent)?, information.name, Name(number.to_string().into_bytes()))
            }
        };
        let victim = self.filesystem.lookup(&caller, &directory, &name).map_err(|error| at(error, &place))?;
        let record = self.record(victim.id().root, false)?;
        drop(victim);
        let deleted = self.with_room(|| self.filesystem.delete_subvolume(&caller, &directory, &name));
        deleted.map_err(|error| at(error, &place))?;
        self.names_changed(&directory, &name);
        if commit {
            self.filesystem.sync()?;
        }
        Ok(Answer::Subvolume(record))
    }

    pub(super) fn list_subvolumes(&self, peer: &Peer) -> Result<Answer, ErrorBody> {
        self.require_privilege(peer)?;
        let all = self.filesystem.subvolumes()?;
        Ok(Answer::Subvolumes { subvolumes: all.iter().map(record_of).collect() })
    }

    pub(super) fn show_subvolume(&self, peer: &Peer, target: &SubvolumeTarget) -> Result<Answer, ErrorBody> {
        let root = self.target_root(peer, target)?;
        Ok(Answer::Subvolume(self.record(root, true)?))
    }

    pub(super) fn set_default(&self, peer: &Peer, target: &SubvolumeTarget) -> Result<Answer, ErrorBody> {
        self.require_privilege(peer)?;
        let root = self.target_root(peer, target)?;
        self.filesystem.set_default_subvolume(&self.administrator(peer), root)?;
        Ok(Answer::Done)
    }

    /// Waits until deleted subvolumes are wholly gone: these, or all that there are now.
    pub(super) fn await_deletions(&self, numbers: &[u64]) -> Result<Answer, ErrorBody> {
        let deleted = || -> Result<Vec<u64>, ErrorBody> {
            let all = self.filesystem.subvolumes()?;
            Ok(all.iter().filter(|one| one.is_deleted).map(|one| one.id.0).collect())
        };
        let wanted = if numbers.is_empty() { deleted()? } else { numbers.to_vec() };
        if let Some(living) = wanted.iter().find(|number| self.filesystem.subvolume(RootId(**number)).is_ok())
        {
            let body = ErrorBody::new(Errno::INVAL, format!("subvolume {living} was not deleted"));
            return Err(body.hint("subvolume list -d tells which are"));
        }
        loop {
            let waiting = deleted()?;
            if !wanted.iter().any(|number| waiting.contains(number)) {
                return Ok(Answer::Freed { numbers: wanted });
            }
            // Those that nobody has open any more wait for nothing but their turn.
            if !self.filesystem.engine().dead_trees().is_empty() {
                self.filesystem.wake_background();
            }
            if self.stopping.load(Ordering::Relaxed) {
                return Err(ErrorBody::new(
                    Errno::INTR,
                    "the mount ends; deletion goes on when it is mounted again",
                ));
            }
            if self.filesystem.is_read_only() {
                return Err(ErrorBody::new(Errno::ROFS, "nothing is deleted on a read-only file system"));
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn target_root(&self, peer: &Peer, target: &SubvolumeTarget) -> Result<RootId, ErrorBody> {
        match target {
            SubvolumeTarget::Path(path) => {
                let inode = self.resolve(&peer.caller(0), path)?;
                Ok(self.subvolume_root(&inode, path)?.id())
            }
            SubvolumeTarget::Number(number) => {
                self.require_privilege(peer)?;
                Ok(RootId(*number))
            }
        }
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

    pub(super) fn record(&self, root: RootId, with_snapshots: bool) -> Result<SubvolumeRecord, ErrorBody> {
        let mut record = record_of(&self.filesystem.subvolume_information(root)?);
        if with_snapshots {
            let uuid = Some(record.uuid.clone());
            let all = self.filesystem.subvolumes()?;
            let snapshots = all.iter().map(record_of).filter(|one| uuid.is_some() && one.parent_uuid == uuid);
            record.snapshots = snapshots.map(|one| one.number).collect();
        }
        Ok(record)
    }

    fn names_changed(&self, directory: &Arc<Inode>, name: &[u8]) {
        self.notifier.entry_changed(directory.id(), name);
        self.notifier.attributes_changed(directory.id());
    }
}

fn at(error: vlinder_fs::FsError, path: &Name) -> ErrorBody {
    ErrorBody::from_fs(&error).at(path.to_string())
}

fn record_of(information: &SubvolumeInformation) -> SubvolumeRecord {
    let uuid = |uuid: Uuid| (!uuid.is_nil()).then(|| uuid.to_string());
    let parent = information.parent;
    SubvolumeRecord {
        number: information.id.0,
        parent: parent.map(|InodeId { root, .. }| root.0),
        directory: parent.map(|InodeId { number, .. }| number.0),
        name: Name(information.name.clone()),
        path: Name(information.path.clone()),
        generation: information.generation.0,
        creation_generation: information.creation_transaction.0,
        flags: information.flags.0,
        read_only: information.is_read_only,
        deleted: information.is_deleted,
        uuid: information.uuid.to_string(),
        parent_uuid: uuid(information.parent_uuid),
        received_uuid: uuid(information.received_uuid),
        creation_time: time(information.creation_time),
        change_generation: information.change_transaction.0,
        send_generation: information.send_transaction.0,
        send_time: time(information.send_time),
        receive_generation: information.receive_transaction.0,
        receive_time: time(information.receive_time),
        snapshots: Vec::new(),
    }
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
