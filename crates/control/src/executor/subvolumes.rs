//! The requests about subvolumes.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_fs::{Inode, InodeId, RootId, SubvolumeInformation};

use super::kernel_notifier::with_room;
use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::by_call::{Call, CallPlace, ExpectedCalls, Job};
use crate::peer::Peer;
use crate::protocol::{Answer, Name, Request, SubvolumeRecord, SubvolumeTarget, Time};
use crate::server::Conversation;

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

/// Makes or deletes a subvolume, and tells the kernel of the name that came or went.
pub(super) fn change(mount: &ServedMount, peer: &Peer, request: &Request) -> Result<Answer, ErrorBody> {
    let Change { directory, name, job, .. } = prepare(mount, peer, request)?;
    let answer = job()?;
    names_changed(mount, &directory, &name);
    Ok(answer)
}

/// The same by a system call that the client is to make.
pub(super) fn expect_call(
    mount: &ServedMount,
    calls: &Arc<ExpectedCalls>,
    peer: &Peer,
    request: &Request,
    conversation: &mut Conversation,
) -> Result<Answer, ErrorBody> {
    conversation.call = None;
    let process = u32::try_from(peer.process).ok().filter(|process| *process > 0);
    let process = process.ok_or_else(|| {
        ErrorBody::new(Errno::OPNOTSUPP, "the calling process can't be told from others here")
    })?;
    let Change { call, directory, name, job } = prepare(mount, peer, request)?;
    let place = CallPlace { call, process, user: peer.user, directory: directory.id(), name };
    conversation.call = Some(calls.expect(place, job));
    Ok(Answer::Expected)
}

/// What is to be done. All that may need the kernel is done already: nothing else may be while a call waits
/// for it.
fn prepare(mount: &ServedMount, peer: &Peer, request: &Request) -> Result<Change, ErrorBody> {
    match request {
        Request::SubvolumeCreate { path, umask } => creation(mount, peer, path, *umask),
        Request::SubvolumeSnapshot { source, path, read_only } => {
            snapshot(mount, peer, source, path, *read_only)
        }
        Request::SubvolumeDelete { target, commit } => deletion(mount, peer, target, *commit),
        _ => Err(ErrorBody::new(Errno::INVAL, "no system call does that")),
    }
}

fn creation(mount: &ServedMount, peer: &Peer, path: &Name, umask: u32) -> Result<Change, ErrorBody> {
    let caller = mount.caller(peer, umask);
    let (directory, name) = mount.resolve_parent(&caller, path)?;
    let (filesystem, notifier) = (mount.filesystem.clone(), Arc::clone(&mount.notifier));
    let (place, inside, own_name) = (path.clone(), Arc::clone(&directory), name.to_vec());
    let job = move || {
        let made = with_room(&*notifier, || filesystem.subvolumes().create(&caller, &inside, &own_name));
        let made = made.map_err(|error| at(error, &place))?;
        Ok(Answer::Subvolume(record_of(&filesystem.subvolumes().information(made.root)?)))
    };
    Ok(Change { call: Call::MakeDirectory, directory, name: name.to_vec(), job: Box::new(job) })
}

fn snapshot(
    mount: &ServedMount,
    peer: &Peer,
    source: &Name,
    path: &Name,
    read_only: bool,
) -> Result<Change, ErrorBody> {
    let caller = mount.caller(peer, 0);
    let source_root = mount.resolve(&caller, source)?;
    let root = mount.subvolume_root(&source_root, source)?.id();
    let (directory, name) = mount.resolve_parent(&caller, path)?;
    mount.write_back()?;
    let (filesystem, notifier) = (mount.filesystem.clone(), Arc::clone(&mount.notifier));
    let (place, inside, own_name) = (path.clone(), Arc::clone(&directory), name.to_vec());
    let job = move || {
        let made = with_room(&*notifier, || {
            filesystem.subvolumes().snapshot(&caller, root, &inside, &own_name, read_only)
        });
        let made = made.map_err(|error| at(error, &place))?;
        Ok(Answer::Subvolume(record_of(&filesystem.subvolumes().information(made.root)?)))
    };
    Ok(Change { call: Call::MakeDirectory, directory, name: name.to_vec(), job: Box::new(job) })
}

fn deletion(
    mount: &ServedMount,
    peer: &Peer,
    target: &SubvolumeTarget,
    commit: bool,
) -> Result<Change, ErrorBody> {
    let caller = mount.administrator(peer);
    let (directory, name, place) = match target {
        SubvolumeTarget::Path(path) => {
            let (directory, name) = mount.resolve_parent(&mount.caller(peer, 0), path)?;
            let found = mount
                .filesystem
                .names()
                .lookup(&mount.caller(peer, 0), &directory, name)
                .map_err(|error| at(error, path))?;
            mount.subvolume_root(&found, path)?;
            (directory, name.to_vec(), path.clone())
        }
        SubvolumeTarget::Number(number) => {
            mount.require_privilege(peer)?;
            let information = mount.filesystem.subvolumes().information(RootId(*number))?;
            let parent = information.parent.ok_or_else(|| {
                ErrorBody::new(Errno::NOENT, "the subvolume has no name").at(number.to_string())
            })?;
            (mount.filesystem.inode(parent)?, information.name, Name(number.to_string().into_bytes()))
        }
    };
    let (filesystem, notifier) = (mount.filesystem.clone(), Arc::clone(&mount.notifier));
    let (inside, own_name) = (Arc::clone(&directory), name.clone());
    let job = move || {
        let victim =
            filesystem.names().lookup(&caller, &inside, &own_name).map_err(|error| at(error, &place))?;
        let record = record_of(&filesystem.subvolumes().information(victim.id().root)?);
        drop(victim);
        let deleted = with_room(&*notifier, || filesystem.subvolumes().delete(&caller, &inside, &own_name));
        deleted.map_err(|error| at(error, &place))?;
        if commit {
            filesystem.sync()?;
        }
        Ok(Answer::Subvolume(record))
    };
    Ok(Change { call: Call::RemoveDirectory, directory, name, job: Box::new(job) })
}

pub(super) fn list(mount: &ServedMount, peer: &Peer) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let all = mount.filesystem.subvolumes().all()?;
    Ok(Answer::Subvolumes { subvolumes: all.iter().map(record_of).collect() })
}

pub(super) fn show(mount: &ServedMount, peer: &Peer, target: &SubvolumeTarget) -> Result<Answer, ErrorBody> {
    let root = target_root(mount, peer, target)?;
    Ok(Answer::Subvolume(record(mount, root, true)?))
}

pub(super) fn set_default(
    mount: &ServedMount,
    peer: &Peer,
    target: &SubvolumeTarget,
) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let root = target_root(mount, peer, target)?;
    mount.filesystem.subvolumes().set_default(&mount.administrator(peer), root)?;
    Ok(Answer::Done)
}

/// Waits until deleted subvolumes are wholly gone: these, or all that there are now.
pub(super) fn await_deletions(
    mount: &ServedMount,
    stopping: &AtomicBool,
    numbers: &[u64],
) -> Result<Answer, ErrorBody> {
    let deleted = || -> Result<Vec<u64>, ErrorBody> {
        let all = mount.filesystem.subvolumes().all()?;
        Ok(all.iter().filter(|one| one.is_deleted).map(|one| one.id.0).collect())
    };
    let wanted = if numbers.is_empty() { deleted()? } else { numbers.to_vec() };
    if let Some(living) = wanted.iter().find(|number| mount.filesystem.subvolume(RootId(**number)).is_ok()) {
        let body = ErrorBody::new(Errno::INVAL, format!("subvolume {living} was not deleted"));
        return Err(body.hint("subvolume list -d tells which are"));
    }
    loop {
        let waiting = deleted()?;
        if !wanted.iter().any(|number| waiting.contains(number)) {
            return Ok(Answer::Freed { numbers: wanted });
        }
        // Those that nobody has open any more wait for nothing but their turn.
        if !mount.filesystem.engine().dead_trees().is_empty() {
            mount.filesystem.maintenance().wake_background();
        }
        if stopping.load(Ordering::Relaxed) {
            return Err(ErrorBody::new(
                Errno::INTR,
                "the mount ends; deletion goes on when it is mounted again",
            ));
        }
        if mount.filesystem.is_read_only() {
            return Err(ErrorBody::new(Errno::ROFS, "nothing is deleted on a read-only file system"));
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

fn target_root(mount: &ServedMount, peer: &Peer, target: &SubvolumeTarget) -> Result<RootId, ErrorBody> {
    match target {
        SubvolumeTarget::Path(path) => {
            let inode = mount.resolve(&mount.caller(peer, 0), path)?;
            Ok(mount.subvolume_root(&inode, path)?.id())
        }
        SubvolumeTarget::Number(number) => {
            mount.require_privilege(peer)?;
            Ok(RootId(*number))
        }
    }
}

pub(super) fn record(
    mount: &ServedMount,
    root: RootId,
    with_snapshots: bool,
) -> Result<SubvolumeRecord, ErrorBody> {
    let mut record = record_of(&mount.filesystem.subvolumes().information(root)?);
    if with_snapshots {
        let uuid = Some(record.uuid.clone());
        let all = mount.filesystem.subvolumes().all()?;
        let snapshots = all.iter().map(record_of).filter(|one| uuid.is_some() && one.parent_uuid == uuid);
        record.snapshots = snapshots.map(|one| one.number).collect();
    }
    Ok(record)
}

fn names_changed(mount: &ServedMount, directory: &Arc<Inode>, name: &[u8]) {
    mount.notifier.entry_changed(directory.id(), name);
    mount.notifier.attributes_changed(directory.id());
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
        creation_time: time_of(information.creation_time),
        change_generation: information.change_transaction.0,
        send_generation: information.send_transaction.0,
        send_time: time_of(information.send_time),
        receive_generation: information.receive_transaction.0,
        receive_time: time_of(information.receive_time),
        snapshots: Vec::new(),
    }
}

fn time_of(timestamp: Timestamp) -> Time {
    Time { seconds: timestamp.seconds, nanoseconds: timestamp.nanoseconds }
}
