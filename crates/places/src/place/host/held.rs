//! The descriptors of a walk through directories of the host. A bounded number is held; a directory that was
//! closed is opened again from the nearest one that is open, through `..` from below or by its name from
//! above, and has to be the same directory then. So the depth of a tree costs no descriptors, and no path
//! that the system would find too long.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use vlinder_base::sync::{Arc, Mutex, OnceLock, Weak};

use super::errors::{failure_at, failure_of_path};
use crate::failure::{Failure, Kind};
use crate::text::escaped;

/// Descriptors that one walk holds at most; the threads of a copy lag behind by fewer directories.
const MAX_HELD: u64 = 64;
/// And at least, however few the process may have.
const FEWEST_HELD: u64 = 4;

/// Device and number of a directory.
type Identity = (u64, u64);

/// A directory that is held: its descriptor, or the way to have it again.
#[derive(Debug)]
pub(super) struct HeldDirectory {
    /// The directory that it was entered from; none for the first, which stays open.
    parent: Option<Arc<Self>>,
    /// Its name there; of the first, the path as the user wrote it.
    name: PathBuf,
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
    /// Known before its descriptor is closed.
    identity: OnceLock<Identity>,
    /// The directory that was entered from here last.
    last_child: Mutex<Weak<Self>>,
    pool: Arc<Pool>,
}

/// The directories below the first one that are open, the one opened last at the end.
#[derive(Debug)]
struct Pool {
    most: usize,
    open: Mutex<VecDeque<Weak<HeldDirectory>>>,
}

impl Pool {
    fn new() -> Self {
        // Others share the limit: files, images, a second walk.
        let share = rustix::process::getrlimit(Resource::Nofile).current.map_or(MAX_HELD, |limit| limit / 8);
        let most = usize::try_from(share.clamp(FEWEST_HELD, MAX_HELD)).unwrap_or(usize::MAX);
        Self { most, open: Mutex::default() }
    }

    fn hold(&self, directory: &Arc<HeldDirectory>) {
        let mut too_many = Vec::new();
        {
            let mut open = self.open.lock();
            open.push_back(Arc::downgrade(directory));
            while open.len() > self.most {
                too_many.extend(open.pop_front());
            }
        }
        // Without the lock: letting go of a directory takes it.
        too_many.iter().filter_map(Weak::upgrade).for_each(|directory| directory.close());
    }

    fn forget(&self, directory: *const HeldDirectory) {
        let mut open = self.open.lock();
        if let Some(place) = open.iter().rposition(|held| held.as_ptr() == directory) {
            open.remove(place);
        }
    }
}

fn identity(descriptor: impl AsFd) -> Result<Identity, Errno> {
    rustix::fs::fstat(descriptor).map(|status| (status.st_dev, status.st_ino))
}

impl HeldDirectory {
    /// Begins a walk at a directory that is open; `path` is shown in messages. The directory stays open: it
    /// is in no pool.
    pub(super) fn start_of_walk(descriptor: OwnedFd, path: PathBuf) -> Arc<Self> {
        Arc::new(Self::new(None, path, descriptor, Arc::new(Pool::new())))
    }

    /// A directory that was opened by its name in this one.
    pub(super) fn below(self: &Arc<Self>, descriptor: OwnedFd, name: &[u8]) -> Arc<Self> {
        let name = PathBuf::from(OsStr::from_bytes(name));
        let child = Arc::new(Self::new(Some(Arc::clone(self)), name, descriptor, Arc::clone(&self.pool)));
        *self.last_child.lock() = Arc::downgrade(&child);
        self.pool.hold(&child);
        child
    }

    fn new(parent: Option<Arc<Self>>, name: PathBuf, descriptor: OwnedFd, pool: Arc<Pool>) -> Self {
        let descriptor = Mutex::new(Some(Arc::new(descriptor)));
        let (identity, last_child) = (OnceLock::new(), Mutex::new(Weak::new()));
        Self { parent, name, descriptor, identity, last_child, pool }
    }

    /// Whether a walk begins here, with a path that a user may have written.
    fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// Its path, beginning as the user wrote it.
    fn path(&self) -> PathBuf {
        let (mut names, mut first) = (Vec::new(), self);
        while let Some(parent) = &first.parent {
            names.push(&first.name);
            first = parent;
        }
        let mut path = first.name.clone();
        path.extend(names.iter().rev());
        path
    }

    /// In messages: the path as the user wrote it.
    pub(super) fn place(&self, name: &[u8]) -> String {
        let mut path = self.path();
        if name != b"." {
            path.push(OsStr::from_bytes(name));
        }
        escaped(path.as_os_str().as_bytes())
    }

    /// Only the path of a name in the first directory is one that a user wrote.
    pub(super) fn fail(&self, errno: Errno, name: &[u8]) -> Failure {
        if self.is_first() {
            failure_of_path(errno, &self.path().join(OsStr::from_bytes(name)), self.place(name))
        } else {
            failure_at(errno, self.place(name))
        }
    }

    /// Its descriptor.
    pub(super) fn descriptor(self: &Arc<Self>) -> Result<Arc<OwnedFd>, Failure> {
        if let Some(open) = &*self.descriptor.lock() {
            return Ok(Arc::clone(open));
        }
        let opened = self.reopen().map_err(|errno| match errno {
            Errno::STALE => Failure::new(Kind::Busy, "the directory was moved or replaced meanwhile")
                .at(self.place(b"."))
                .hint("try again when nothing else changes it"),
            _ => failure_at(errno, self.place(b".")),
        })?;
        let opened = Arc::clone(self.descriptor.lock().get_or_insert(Arc::new(opened)));
        self.pool.hold(self);
        Ok(opened)
    }

    fn close(&self) {
        let mut descriptor = self.descriptor.lock();
        let Some(open) = &*descriptor else { return };
        if self.identity.get().is_none() {
            // What could not be told from others later stays open.
            let Ok(found) = identity(open) else { return };
            let _ = self.identity.set(found);
        }
        *descriptor = None;
    }

    /// Opens it again from the nearest directory that is open, and if that way leads elsewhere, from the
    /// other side.
    fn reopen(self: &Arc<Self>) -> Result<OwnedFd, Errno> {
        let mut below = self.last_child.lock().upgrade();
        let (mut way_down, mut failed) = (vec![self], None);
        loop {
            if let Some(child) = below {
                let open = child.descriptor.lock().clone();
                below = match open.map(|open| self.climb(&open, &child)) {
                    Some(Ok(found)) => return Ok(found),
                    Some(Err(_)) => None,
                    None => child.last_child.lock().upgrade(),
                };
            }
            match (failed, &below) {
                (Some(errno), None) => return Err(errno),
                (Some(_), Some(_)) => continue,
                (None, _) => {}
            }
            let parent = way_down.last().and_then(|directory| directory.parent.as_ref());
            let open = parent.and_then(|parent| parent.descriptor.lock().clone());
            match (parent, open) {
                (None, _) => failed = Some(Errno::STALE),
                (Some(_), Some(open)) => match descend(&open, &way_down) {
                    Ok(found) => return Ok(found),
                    Err(errno) => failed = Some(errno),
                },
                (Some(parent), None) => way_down.push(parent),
            }
        }
    }

    /// Opens it from a directory that lies in it, some levels down.
    fn climb(&self, open: &OwnedFd, from: &Self) -> Result<OwnedFd, Errno> {
        let mut parent = from.parent.as_deref().ok_or(Errno::STALE)?;
        let mut found = parent.open_again(open, OsStr::new(".."))?;
        while !std::ptr::eq(parent, self) {
            parent = parent.parent.as_deref().ok_or(Errno::STALE)?;
            found = parent.open_again(&found, OsStr::new(".."))?;
        }
        Ok(found)
    }

    /// Opens what is called so in another directory. It has to be this directory.
    fn open_again(&self, at: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(at, name, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Errno::STALE,
            errno => errno,
        })?;
        if self.identity.get() == Some(&identity(&found)?) { Ok(found) } else { Err(Errno::STALE) }
    }

    /// Opens the directory above again by way of this one, which is about to go: the walk goes on up there.
    fn open_parent(&mut self) {
        let Some(parent) = self.parent.as_ref().filter(|parent| Arc::strong_count(parent) > 1) else {
            return;
        };
        let Some(open) = self.descriptor.lock().take() else { return };
        let mut descriptor = parent.descriptor.lock();
        if descriptor.is_none()
            && let Ok(found) = parent.open_again(&open, OsStr::new(".."))
        {
            *descriptor = Some(Arc::new(found));
            drop(descriptor);
            parent.pool.hold(parent);
        }
    }
}

/// Opens the first of these directories, each of which lies in the next, and the last of them in one that is
/// open.
fn descend(open: &OwnedFd, way_down: &[&Arc<HeldDirectory>]) -> Result<OwnedFd, Errno> {
    let mut found: Option<OwnedFd> = None;
    for directory in way_down.iter().rev() {
        found = Some(directory.open_again(found.as_ref().unwrap_or(open), directory.name.as_os_str())?);
    }
    found.ok_or(Errno::STALE)
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        self.pool.forget(self);
        self.open_parent();
        // One by one: a deep tree would need more stack than a thread has.
        let mut next = self.parent.take().and_then(Arc::into_inner);
        while let Some(mut directory) = next {
            next = directory.parent.take().and_then(Arc::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::host::HostDirectory;

    fn open(path: &std::path::Path) -> HostDirectory {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        HostDirectory::start_of_walk(rustix::fs::open(path, flags, Mode::empty()).unwrap(), path.to_owned())
    }

    /// A way down through directories called `d`.
    fn dig(top: &HostDirectory, depth: usize) -> Vec<HostDirectory> {
        let mut way = vec![top.clone()];
        for _ in 0..depth {
            let last = way.last().unwrap();
            last.make_directory(b"d", 0o755).unwrap();
            let next = last.enter(b"d").unwrap();
            way.push(next);
        }
        way
    }

    fn open_ones(way: &[HostDirectory]) -> usize {
        way.iter().filter(|directory| directory.held.descriptor.lock().is_some()).count()
    }

    #[test]
    fn a_bounded_number_is_open_and_all_can_be_used() {
        let scratch = vlinder_testkit::Scratch::new("held");
        let way = dig(&open(scratch.path()), 300);
        assert!(open_ones(&way) <= 65, "{}", open_ones(&way));
        for step in [0, 7, 150, 299, 3, 200] {
            assert_eq!(way[step].list().unwrap().count(), 1, "{step}");
        }
        assert!(open_ones(&way) <= 65, "{}", open_ones(&way));
        assert_eq!(way[300].held.path().as_os_str().len(), scratch.path().as_os_str().len() + 600);
    }

    #[test]
    fn who_goes_leaves_the_one_above_open() {
        let scratch = vlinder_testkit::Scratch::new("held-up");
        let mut way = dig(&open(scratch.path()), 300);
        while way.pop().is_some() {
            let last = way.last();
            assert!(last.is_none_or(|last| last.held.descriptor.lock().is_some()), "{}", way.len());
        }
    }

    #[test]
    fn a_replaced_directory_is_not_taken_for_the_one_before() {
        let scratch = vlinder_testkit::Scratch::new("held-moved");
        let way = dig(&open(scratch.path()), 300);
        let (first, other) = (scratch.join("d"), scratch.join("other"));
        std::fs::rename(&first, &other).unwrap();
        std::fs::create_dir(&first).unwrap();
        // From below it is found wherever it lies now.
        assert_eq!(way[1].list().unwrap().count(), 1);
        way[1].held.close();
        way[2].held.close();
        let stays = way[1].clone();
        drop(way);
        stays.held.close();
        let failure = stays.list().unwrap_err();
        assert!(failure.message.contains("moved or replaced"), "{failure}");
    }
}
