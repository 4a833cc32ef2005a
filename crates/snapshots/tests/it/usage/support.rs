//! Random images, what is in them, and deletion itself.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_forest::Forest;
use vlinder_format::{Generation, Logical, RootId};
use vlinder_fs::{Caller, FileType, Filesystem, FsError, Inode, InodeFlags, InodeId, OpenOptions};
use vlinder_snapshots::usage::{DeletionSet, UsageError, UsageTarget};
use vlinder_testkit::subject::{Recipe, Subject, list};
use vlinder_testkit::workload::{Choice, Generator, Limits, Model, Operation, Place, Token};
use vlinder_tree::WantedBlock;

const START: i64 = 1_700_000_000;
/// Tokens from here on are of snapshots that the generator did not choose.
const MORE_SNAPSHOTS: u32 = 1 << 30;

/// A name that can be measured and deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// What it stands for.
    pub inode: InodeId,
    /// Where the name lies.
    pub directory: InodeId,
    /// The name.
    pub name: Vec<u8>,
    /// What kind of file it is.
    pub is_directory: bool,
}

impl Named {
    /// To measure it.
    pub fn target(&self) -> UsageTarget<'_> {
        let (root, inode) = (self.inode.root, self.inode.number);
        UsageTarget { root, inode, name: Some((self.directory.number, &self.name)) }
    }

    /// Whether it is a subvolume.
    pub fn is_subvolume(&self) -> bool {
        self.inode.is_subvolume_root()
    }
}

/// Root without a umask.
pub fn superuser() -> Caller {
    Caller { umask: 0, ..Caller::superuser() }
}

/// Opens an image.
pub fn open(device: &Arc<MemoryDevice>, options: &str) -> Filesystem {
    let mut options = OpenOptions::parse(options).unwrap();
    options.background = false;
    options.subvolume = vlinder_fs::SubvolumeChoice::Number(RootId::FS_TREE);
    Filesystem::open_devices(vec![Arc::clone(device) as _], options).unwrap()
}

/// An image after a random workload with snapshots, of which nothing waits to be freed and nothing refuses to
/// be deleted.
pub fn random_image(seed: u64) -> (Arc<MemoryDevice>, Recipe) {
    let recipe = Recipe { device_bytes: 1 << 30, ..Recipe::of_seed(seed) };
    let device = Arc::new(recipe.in_memory());
    let choice = Choice::new(seed ^ 0xd0);
    let limits = Limits { bytes: 12 << 20, write_bytes: 200_000, file_bytes: 1 << 20, ..Limits::default() };
    let mut generator = Generator::new(seed, limits);
    let mut model = Model::new(0o755, (START, 0));
    let mut subject = Subject::open(Arc::clone(&device) as _, &recipe.options, seed, (START, 0)).unwrap();
    subject.learn(&mut model, &[Model::root_directory(5)]).unwrap();
    let mut sources = vec![Token::ROOT];
    let mut second = 0;
    let mut perform = |subject: &mut Subject, model: &mut Model, operation: Operation| {
        second += 1;
        let now = (START + second, 0);
        subject.set_time(now);
        let outcome = subject.carry_out(model, &operation).unwrap();
        let touched = model.take_in(&operation, now, &outcome).unwrap();
        subject.learn(model, &touched).unwrap();
        outcome.is_ok()
    };
    for round in 0..5 + choice.below(4) {
        for _ in 0..30 + choice.below(60) {
            let operation = generator.next(&mut model);
            let made = match &operation {
                Operation::CreateSubvolume { token, .. } | Operation::Snapshot { token, .. } => Some(*token),
                _ => None,
            };
            if perform(&mut subject, &mut model, operation) {
                sources.extend(made);
            }
        }
        for number in 0..choice.below(3) {
            let token = Token(MORE_SNAPSHOTS + (round * 4 + number) as u32);
            let snapshot = Operation::Snapshot {
                source: sources[choice.below(sources.len() as u64) as usize],
                directory: Place::default(),
                name: format!("more-{round}-{number}").into_bytes(),
                read_only: choice.below(2) == 0,
                token,
            };
            if perform(&mut subject, &mut model, snapshot) {
                sources.push(token);
            }
        }
        subject.commit().unwrap();
    }
    subject.close().unwrap();
    let filesystem = open(&device, &recipe.options);
    make_deletable(&filesystem);
    filesystem.maintenance().finish_deletions().unwrap();
    filesystem.sync().unwrap();
    filesystem.close().unwrap();
    (device, recipe)
}

/// The subvolumes that are not being deleted.
pub fn subvolumes(filesystem: &Filesystem) -> Vec<RootId> {
    let all = filesystem.subvolumes().all().unwrap();
    all.iter().filter(|found| !found.is_deleted).map(|found| found.id).collect()
}

fn make_deletable(filesystem: &Filesystem) {
    filesystem.subvolumes().set_default(&superuser(), RootId::FS_TREE).unwrap();
    for root in subvolumes(filesystem) {
        filesystem.subvolumes().set_read_only(&superuser(), root, false, true).unwrap();
    }
    let guards = InodeFlags::IMMUTABLE.0 | InodeFlags::APPEND.0;
    let top = filesystem.root().unwrap();
    let others = names(filesystem);
    let others = others.iter().map(|named| filesystem.inode(named.inode).unwrap());
    for inode in std::iter::once(top).chain(others) {
        let flags = inode.flags();
        if flags.0 & guards != 0 {
            let flags = InodeFlags(flags.0 & !guards);
            filesystem.attributes().set_flags(&superuser(), &inode, flags).unwrap();
        }
    }
}

/// All names but those of files that are neither regular nor directories.
pub fn names(filesystem: &Filesystem) -> Vec<Named> {
    let (mut found, mut waiting) = (Vec::new(), vec![filesystem.root().unwrap()]);
    while let Some(directory) = waiting.pop() {
        for (name, file_type) in list(filesystem, &directory).unwrap() {
            let inode = filesystem.names().lookup(&superuser(), &directory, &name).unwrap();
            if inode.id().absent.is_some() {
                // Where a subvolume lay in the source of a snapshot.
                continue;
            }
            let is_directory = file_type == FileType::Directory;
            if is_directory || file_type == FileType::Regular {
                found.push(Named { inode: inode.id(), directory: directory.id(), name, is_directory });
            }
            if is_directory {
                waiting.push(inode);
            }
        }
    }
    found
}

/// What goes when these names do.
pub fn deletion_set(forest: &Forest, all: &[Named]) -> Result<DeletionSet, UsageError> {
    let mut set = DeletionSet::new();
    all.iter().try_for_each(|named| set.add(forest, &named.target()))?;
    Ok(set)
}

/// Deletes names, with all below them; those that are gone with another already are passed.
pub fn delete(filesystem: &Filesystem, all: &[Named]) -> Result<(), FsError> {
    for named in all {
        let Ok(directory) = filesystem.inode(named.directory) else { continue };
        delete_name(filesystem, &directory, &named.name)?;
    }
    filesystem.sync()?;
    filesystem.maintenance().finish_deletions()?;
    filesystem.sync().map(drop)
}

fn delete_name(filesystem: &Filesystem, directory: &Arc<Inode>, name: &[u8]) -> Result<(), FsError> {
    let (names, caller) = (filesystem.names(), superuser());
    let Ok(inode) = names.lookup(&caller, directory, name) else { return Ok(()) };
    if inode.file_type() != FileType::Directory {
        return names.unlink(&caller, directory, name);
    }
    let is_subvolume = inode.id().is_subvolume_root();
    for (name, file_type) in list(filesystem, &inode)? {
        // Files of a subvolume go with it.
        if !is_subvolume || file_type == FileType::Directory {
            delete_below(filesystem, &inode, &name, is_subvolume)?;
        }
    }
    drop(inode);
    if is_subvolume {
        filesystem.subvolumes().delete(&caller, directory, name)
    } else {
        names.remove_directory(&caller, directory, name)
    }
}

/// Of a subvolume that goes as a whole only the subvolumes in it have to be deleted before.
fn delete_below(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    name: &[u8],
    subvolumes_alone: bool,
) -> Result<(), FsError> {
    if !subvolumes_alone {
        return delete_name(filesystem, directory, name);
    }
    let inode = filesystem.names().lookup(&superuser(), directory, name)?;
    if inode.id().is_subvolume_root() {
        return delete_name(filesystem, directory, name);
    }
    for (name, file_type) in list(filesystem, &inode)? {
        if file_type == FileType::Directory {
            delete_below(filesystem, &inode, &name, true)?;
        }
    }
    Ok(())
}

/// A block, told from others that had its address.
pub type BlockName = (Logical, Generation);

/// The blocks of a subvolume, by a plain walk of all of its tree.
pub fn blocks_of(forest: &Forest, root: RootId) -> BTreeSet<BlockName> {
    let tree = forest.tree(root).unwrap();
    let (mut found, mut waiting) = (BTreeSet::new(), vec![WantedBlock::root(tree.root())]);
    while let Some(wanted) = waiting.pop() {
        let block = forest.trees().block(&wanted).unwrap();
        if !block.is_leaf() {
            waiting.extend((0..block.len()).map(|slot| WantedBlock::child(root, &block, slot)));
        }
        found.insert((block.logical(), block.generation()));
    }
    found
}

/// The extents of the extent tree: data, and blocks of all trees.
pub fn extents(forest: &Forest) -> (BTreeSet<(Logical, u64)>, BTreeSet<BlockName>) {
    let mut walk = forest.extents(Logical(0)..Logical(u64::MAX)).unwrap();
    let (mut data, mut blocks) = (BTreeSet::new(), BTreeSet::new());
    while let Some(extent) = walk.next_extent().unwrap() {
        if extent.is_data {
            data.insert((extent.start, extent.length_bytes));
        } else {
            blocks.insert((extent.start, extent.generation));
        }
    }
    (data, blocks)
}
