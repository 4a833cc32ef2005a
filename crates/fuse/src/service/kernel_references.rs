//! What the kernel knows: how often it was told of each file, and the files that lost their last name
//! meanwhile.
//!
//! A file without names lives on for the programs that have it. The server knows of open handles. Only the
//! kernel knows of descriptors of `O_PATH`, working directories and mappings, and it says that it let go of a
//! file by forgetting the file. So a file that loses its last name is held open here, with an orphan item on
//! disk, until the kernel has forgotten it, and is [deleted](super::deletions) then. Nearly always that is at
//! once, since no program has the file.
//!
//! Invariants, and the function that keeps each:
//! 1. The kernel is told of a file only after that was counted ([`KernelReferences::remember`]).
//! 2. A file without names is held until the count is 0 again, and handed to the deleter then
//!    ([`KernelReferences::hold`], [`KernelReferences::forget`]).
//! 3. What is held is bounded ([`MAX_HELD`]). Beyond that, a file that loses its last name is deleted with
//!    the name unless it has an open handle, and a program that has the file in another way gets `ESTALE`
//!    ([`KernelReferences::may_hold`]).

use std::collections::{HashMap, HashSet};

use vlinder_base::clock::Clock;
use vlinder_base::sync::{Arc, Mutex};
use vlinder_fs::{Inode, OpenInode};

use super::deletions::{Deleter, Held};
use crate::transport::NodeNumber;

const SHARDS: usize = 16;
/// Files without names held at a time, those that wait for their deletion included: some 64 MiB of memory.
const MAX_HELD: usize = 1 << 16;

/// The files that the kernel knows.
pub(super) struct KernelReferences {
    shards: [Mutex<Shard>; SHARDS],
    deleter: Deleter,
}

/// Part of the files. The kernel may know millions, so hardly more than a count is kept of those that have
/// names.
#[derive(Default)]
struct Shard {
    told: HashMap<u64, Neighbours>,
    /// Those without names.
    held: HashMap<NodeNumber, Held>,
    /// Directories with files whose attributes the kernel forgot.
    outdated: HashSet<NodeNumber>,
}

/// Files whose numbers differ in the last bits alone: they were made one after another, mostly in one
/// directory. Kept together they take 9 to 19 MiB for each million, and 4 times that if no two are
/// neighbours.
const NEIGHBOURS: usize = 4;

/// What the kernel was told of neighbours.
struct Neighbours {
    /// How often of each, and did not say that it forgot. A count that is full stays so: such a file is never
    /// forgotten, at worst held until the mount ends.
    lookups: [u32; NEIGHBOURS],
    /// In which directory, last.
    directory: NodeNumber,
}

/// The number of a file's neighbours, and its place among them.
fn place(node: NodeNumber) -> (u64, usize) {
    let neighbours = NEIGHBOURS as u64;
    (node.0 / neighbours, usize::try_from(node.0 % neighbours).unwrap_or(0))
}

impl Shard {
    fn lookups(&self, node: NodeNumber) -> u32 {
        let (number, place) = place(node);
        self.told.get(&number).map_or(0, |neighbours| neighbours.lookups[place])
    }
}

impl KernelReferences {
    /// Of a kernel that knows nothing yet.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn new(clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        Ok(Self { shards: std::array::from_fn(|_| Mutex::default()), deleter: Deleter::new(clock)? })
    }

    fn shard(&self, node: NodeNumber) -> &Mutex<Shard> {
        let (number, _) = place(node);
        &self.shards[usize::try_from(number % SHARDS as u64).unwrap_or(0)]
    }

    /// The kernel is told once more of a file, in a directory: to be said before it is.
    pub(super) fn remember(&self, node: NodeNumber, directory: NodeNumber) {
        let mut shard = self.shard(node).lock();
        let (number, place) = place(node);
        let empty = || Neighbours { lookups: [0; NEIGHBOURS], directory };
        let neighbours = shard.told.entry(number).or_insert_with(empty);
        neighbours.lookups[place] = neighbours.lookups[place].saturating_add(1);
        neighbours.directory = directory;
    }

    /// A file is closed. With its own cache of written pages the kernel then forgets how many blocks the file
    /// has. A listing with attributes tells it of a whole directory what it would else ask for file by file.
    pub(super) fn note_close(&self, node: NodeNumber) {
        let (number, _) = place(node);
        let told_in = self.shard(node).lock().told.get(&number).map(|neighbours| neighbours.directory);
        if let Some(directory) = told_in {
            let mut shard = self.shard(directory).lock();
            if shard.lookups(directory) > 0 || directory == NodeNumber::ROOT {
                shard.outdated.insert(directory);
            }
        }
    }

    /// Whether the kernel lacks attributes of files of a directory that is about to be listed, and so will
    /// have them.
    pub(super) fn take_outdated(&self, directory: NodeNumber) -> bool {
        self.shard(directory).lock().outdated.remove(&directory)
    }

    /// The kernel forgets so many of the times that it was told of a file. At the last of them a file without
    /// names is deleted.
    pub(super) fn forget(&self, node: NodeNumber, lookups: u64) {
        let forgotten = {
            let mut shard = self.shard(node).lock();
            let (number, place) = place(node);
            let Some(neighbours) = shard.told.get_mut(&number) else { return };
            let count = &mut neighbours.lookups[place];
            if *count == 0 || *count == u32::MAX {
                return;
            }
            *count = count.saturating_sub(u32::try_from(lookups).unwrap_or(u32::MAX));
            if *count > 0 {
                return;
            }
            if neighbours.lookups == [0; NEIGHBOURS] {
                shard.told.remove(&number);
            }
            shard.outdated.remove(&node);
            shard.held.remove(&node)
        };
        if let Some(held) = forgotten {
            self.deleter.delete(held);
        }
    }

    /// Whether there is room to hold one more file.
    pub(super) fn may_hold(&self) -> bool {
        self.deleter.held() < MAX_HELD
    }

    /// Holds a file that lost its last name, if the kernel knows it; else it is deleted.
    pub(super) fn hold(&self, node: NodeNumber, open: OpenInode) {
        let held = self.deleter.hold(open);
        let unknown = {
            let mut shard = self.shard(node).lock();
            if shard.lookups(node) > 0 { shard.held.insert(node, held) } else { Some(held) }
        };
        if let Some(held) = unknown {
            self.deleter.delete(held);
        }
    }

    /// What deletes them.
    pub(super) fn deleter(&self) -> &Deleter {
        &self.deleter
    }

    /// The file, if it is held without a name.
    pub(super) fn held(&self, node: NodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(node).lock();
        let open = shard.held.get(&node)?.open()?;
        Some(Arc::clone(open.inode()))
    }

    /// The kernel is gone: deletes all that is held, and returns when it is.
    pub(super) fn finish(&self) {
        for shard in &self.shards {
            let known = std::mem::take(&mut *shard.lock());
            drop(known);
        }
        self.deleter.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use vlinder_base::clock::SystemClock;
    use vlinder_base::thread;
    use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};
    use vlinder_testkit::{Scratch, golden};

    use super::*;

    const NODE: NodeNumber = NodeNumber(300);

    /// A file system with a file that has just lost its last name, and that file.
    fn nameless(scratch: &Scratch) -> (Filesystem, OpenInode) {
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
        filesystem.names().create_file(&caller, &root, b"file", 0o644).unwrap();
        let open = filesystem.names().unlink_and_hold(&caller, &root, b"file").unwrap().unwrap();
        (filesystem, open)
    }

    fn is_gone(filesystem: &Filesystem, inode: &Arc<Inode>) -> bool {
        matches!(filesystem.files().hold(inode), Err(FsError::Refused(_)))
    }

    #[test]
    fn a_nameless_file_lives_until_the_kernel_forgot_it() {
        let scratch = Scratch::new("references");
        let (filesystem, open) = nameless(&scratch);
        let inode = Arc::clone(open.inode());
        let references = KernelReferences::new(Arc::new(SystemClock::new())).unwrap();
        (0..3).for_each(|_| references.remember(NODE, NodeNumber::ROOT));
        references.hold(NODE, open);
        references.forget(NODE, 2);
        assert!(references.held(NODE).is_some() && !is_gone(&filesystem, &inode));
        references.forget(NODE, 1);
        references.deleter().settle();
        assert!(references.held(NODE).is_none() && is_gone(&filesystem, &inode));
        references.finish();
    }

    #[test]
    fn what_was_forgotten_is_deleted_though_nobody_waits_for_it() {
        let scratch = Scratch::new("references");
        let (filesystem, open) = nameless(&scratch);
        let inode = Arc::clone(open.inode());
        let references = KernelReferences::new(Arc::new(SystemClock::new())).unwrap();
        references.remember(NODE, NodeNumber::ROOT);
        references.hold(NODE, open);
        references.forget(NODE, 1);
        vlinder_testkit::eventually("the file is deleted", || is_gone(&filesystem, &inode));
        references.finish();
    }

    #[test]
    fn what_the_kernel_does_not_know_is_deleted() {
        let scratch = Scratch::new("references");
        let (filesystem, open) = nameless(&scratch);
        let inode = Arc::clone(open.inode());
        let references = KernelReferences::new(Arc::new(SystemClock::new())).unwrap();
        references.hold(NODE, open);
        references.deleter().settle();
        assert!(is_gone(&filesystem, &inode));
        let root = filesystem.root().unwrap();
        filesystem.names().create_file(&Caller::superuser(), &root, b"other", 0o644).unwrap();
        let open =
            filesystem.names().unlink_and_hold(&Caller::superuser(), &root, b"other").unwrap().unwrap();
        let inode = Arc::clone(open.inode());
        references.remember(NODE, NodeNumber::ROOT);
        references.hold(NODE, open);
        assert!(!is_gone(&filesystem, &inode));
        references.finish();
        assert!(is_gone(&filesystem, &inode));
    }

    #[test]
    fn a_directory_is_outdated_from_a_close_until_it_is_listed() {
        let (references, directory) =
            (KernelReferences::new(Arc::new(SystemClock::new())).unwrap(), NodeNumber(257));
        references.remember(directory, NodeNumber::ROOT);
        references.remember(NODE, directory);
        assert!(!references.take_outdated(directory));
        references.note_close(NODE);
        assert!(!references.take_outdated(NodeNumber::ROOT));
        assert!(references.take_outdated(directory) && !references.take_outdated(directory));
        references.note_close(NODE);
        references.forget(directory, 1);
        references.note_close(NODE);
        assert!(!references.take_outdated(directory), "nobody lists what the kernel does not know");
        references.note_close(directory);
        references.remember(NODE, NodeNumber::ROOT);
        references.note_close(NODE);
        assert!(references.take_outdated(NodeNumber::ROOT), "the root is known from the start");
        references.finish();
    }

    #[test]
    fn neighbours_are_known_and_forgotten_each_by_itself() {
        let references = KernelReferences::new(Arc::new(SystemClock::new())).unwrap();
        let count = |node| references.shard(node).lock().lookups(node);
        let nodes: Vec<NodeNumber> = (256..300).map(NodeNumber).collect();
        for (times, node) in nodes.iter().enumerate() {
            (0..times).for_each(|_| references.remember(*node, NodeNumber::ROOT));
        }
        for (times, node) in nodes.iter().enumerate() {
            assert_eq!(count(*node), u32::try_from(times).unwrap());
            references.forget(*node, u64::try_from(times / 2).unwrap());
            assert_eq!(count(*node), u32::try_from(times - times / 2).unwrap());
        }
        nodes.iter().for_each(|node| references.forget(*node, 50));
        assert!(references.shards.iter().all(|shard| shard.lock().told.is_empty()));
        references.finish();
    }

    #[test]
    fn who_finds_no_room_waits_while_the_kernel_may_still_forget() {
        let scratch = Scratch::new("references");
        let (_filesystem, open) = nameless(&scratch);
        let references = Arc::new(KernelReferences::new(Arc::new(SystemClock::new())).unwrap());
        let before = references.deleter().deleted();
        assert!(!references.deleter().wait_for_room(before), "nothing is held");
        references.remember(NODE, NodeNumber::ROOT);
        references.hold(NODE, open);
        let forgetful = {
            let references = Arc::clone(&references);
            thread::spawn("kernel", move || {
                thread::sleep(Duration::from_millis(20));
                references.forget(NODE, 1);
            })
        };
        assert!(references.deleter().wait_for_room(before), "the file was deleted meanwhile");
        assert!(
            !references.deleter().wait_for_room(references.deleter().deleted()),
            "there is nothing left to wait for"
        );
        forgetful.join().unwrap();
        references.finish();
    }
}
