//! The requests about subvolumes.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::Ordering;
use vlinder_base::thread;
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_fs::{Inode, InodeId, RootId, Subvolume, SubvolumeInformation};

use super::{FilesystemExecutor, with_room};
use crate::ErrorBody;
use crate::by_call::{Call, CallPlace, Job};
use crate::protocol::{Answer, Name, Request, SubvolumeRecord, SubvolumeTarget, Time};
use crate::server::{Conversation, Peer};

/// How often deleted subvolumes are looked after.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A change of the subvolumes that was judged and not done yet.
struct Change {
    /// The system call that does the like to directories.
    call: Call,
    directory: Arc<Inode>,
    name: Vec<u8>,
    job: Job,
}

impl FilesystemExecutor {
    /// Makes or deletes a subvolume, and tells the kernel of the name that came or went.
    pub(super) fn change_subvolumes(&self, peer: &Peer, request: &Request) -> Result<Answer, ErrorBody> {
        let Change { directory, name, job, .. } = self.prepare(peer, request)?;
        let answer = job()?;
        self.names_changed(&directory, &name);
        Ok(answer)
    }

    /// The same by a system call that the client is to make.
    pub(super) fn expect_call(
        &self,
        peer: &Peer,
        request: &Request,
        conversation: &mut Conversation,
    ) -> Result<Answer, ErrorBody> {
        conversation.call = None;
        let process = u32::try_from(peer.process).ok().filter(|process| *process > 0);
        let process = process.ok_or_else(|| {
            ErrorBody::new(Errno::OPNOTSUPP, "the calling process can't be told from others here")
        })?;
        let Change { call, directory, name, job } = self.prepare(peer, request)?;
        let place = CallPlace { call, process, user: peer.user, directory: directory.id(), name };
        conversation.call = Some(self.calls.expect(place, job));
        Ok(Answer::Expected)
    }

    /// What is to be done. All that may need the kernel is done already: nothing else may be while a call waits for it.
    fn prepare(&self, peer: &Peer, request: &Request) -> Result<Change, ErrorBody> {
        match request {
            Request::SubvolumeCreate { path, umask } => self.creation(peer, path, *umask),
            Request::SubvolumeSnapshot { source, path, read_only } => {
                self.snapshot(peer, source, path, *read_only)
            }
            Request::SubvolumeDelete { target, commit } => self.deletion(peer, target, *commit),
            _ => Err(ErrorBody::new(Errno::INVAL, "no system call does that")),
        }
    }

    fn creation(&self, peer: &Peer, path: &Name, umask: u32) -> Result<Change, ErrorBody> {
        let caller = peer.caller(umask);
        let (directory, name) = self.resolve_parent(&caller, path)?;
        let (filesystem, notifier) = (self.filesystem.clone(), Arc::clone(&self.notifier));
        let (place, inside, own_name) = (path.clone(), Arc::clone(&directory), name.to_vec());
        let job = move || {
            let made = with_room(&*notifier, || filesystem.create_subvolume(&caller, &inside, &own_name));
            let made = made.map_err(|error| at(error, &place))?;
            Ok(Answer::Subvolume(record_of(&filesystem.subvolume_information(made.root)?)))
        };
        Ok(Change { call: Call::MakeDirectory, directory, name: name.to_vec(), job: Box::new(job) })
    }

    fn snapshot(
        &self,
        peer: &Peer,
        source: &Name,
        path: &Name,
        read_only: bool,
    ) -> Result<Change, ErrorBody> {
        let caller = peer.caller(0);
        let source_root = self.resolve(&caller, source)?;
        let root = self.subvolume_root(&source_root, source)?.id();
        let (directory, name) = self.resolve_parent(&caller, path)?;
        self.write_back()?;
        let (filesystem, notifier) = (self.filesystem.clone(), Arc::clone(&self.notifier));
        let (place, inside, own_name) = (path.clone(), Arc::clone(&directory), name.to_vec());
        let job = move || {
            let made =
                with_room(&*notifier, || filesystem.snapshot(&caller, root, &inside, &own_name, read_only));
            let made = made.map_err(|error| at(error, &place))?;
            Ok(Answer::Subvolume(record_of(&filesystem.subvolume_information(made.root)?)))
        };
        Ok(Change { call: Call::MakeDirectory, directory, name: name.to_vec(), job: Box::new(job) })
    }

    fn deletion(&self, peer: &Peer, target: &SubvolumeTarget, commit: bool) -> Result<Change, ErrorBody> {
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
        let (filesystem, notifier) = (self.filesystem.clone(), Arc::clone(&self.notifier));
        let (inside, own_name) = (Arc::clone(&directory), name.clone());
        let job = move || {
            let victim = filesystem.lookup(&caller, &inside, &own_name).map_err(|error| at(error, &place))?;
            let record = record_of(&filesystem.subvolume_information(victim.id().root)?);
            drop(victim);
            let deleted = with_room(&*notifier, || filesystem.delete_subvolume(&caller, &inside, &own_name));
            deleted.map_err(|error| at(error, &place))?;
            if commit {
                filesystem.sync()?;
            }
            Ok(Answer::Subvolume(record))
        };
        Ok(Change { call: Call::RemoveDirectory, directory, name, job: Box::new(job) })
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
