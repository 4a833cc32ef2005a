//! Workloads with very many items, so that trees grow tall, and fall again.

use std::borrow::Cow;

use vlinder_base::metrics::Registry;
use vlinder_base::sync::Arc;
use vlinder_format::RootId;
use vlinder_fs::{FsError, Inode, OpenOptions, data};

use super::carry_out::Subject;
use super::image::{Recipe, open_image};
use super::judge::both_check;
use super::run::Totals;
use crate::workload::{Choice, Pattern};
use crate::{Scratch, kernel};

/// How large.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Seeds names, sizes and what is deleted.
    pub seed: u64,
    /// The image.
    pub recipe: Recipe,
    /// Files in all.
    pub files: u64,
    /// Extents of each of a few fragmented files.
    pub extents: u64,
    /// The least height that the file tree must reach: its root's level.
    pub level: u8,
    /// How often space is taken by the chunk, cut to pieces and given back.
    pub turns: u64,
    /// Ask the kernel at the end.
    pub kernel: bool,
}

const FRAGMENTED_FILES: u64 = 4;
const ROUNDS: u64 = 4;
/// Single sectors taken in each turn.
const PIECES: u64 = 6000;
const START: i64 = 1_700_000_000;

impl Bulk {
    /// More than 10^6 items in nodes of 4 KiB.
    pub fn long(seed: u64) -> Self {
        let recipe = Recipe { device_bytes: 8 << 30, node_size: 4096, ..Recipe::default() };
        let kernel = crate::require::Requirement::KernelBtrfs.is_met();
        Bulk { seed, recipe, files: 240_000, extents: 260_000, level: 3, turns: 100, kernel }
    }

    /// The same idea, in seconds.
    pub fn short(seed: u64) -> Self {
        let recipe = Recipe { device_bytes: 2 << 30, node_size: 4096, ..Recipe::default() };
        Bulk { seed, recipe, files: 12_000, extents: 3000, level: 2, turns: 3, kernel: true }
    }

    /// Grows, takes a snapshot, shrinks, grows again and deletes all, with `btrfs check` after each commit.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run(&self) -> Result<Totals, String> {
        let scratch = Scratch::in_memory("bulk");
        let image = scratch.join("image");
        self.recipe.in_file(&image);
        let registry = Arc::new(Registry::new());
        let mut options = OpenOptions::parse(&self.recipe.options).map_err(|error| error.to_string())?;
        options.registry = Arc::clone(&registry);
        let device = open_image(&image, self.recipe.device_bytes);
        let subject =
            Subject::open_with(device, options, self.seed, (START, 0)).map_err(|error| error.to_string())?;
        let mut totals = Totals::default();
        let mut work =
            Work { bulk: self, subject: &subject, choice: Choice::new(self.seed), totals: &mut totals };
        let judge = |what: String| -> Result<(), String> {
            subject.commit().map_err(|error| format!("{what}: {error}"))?;
            both_check(&image).map_err(|error| format!("{what}: {error}"))
        };
        let mut highest = [0; 3];
        for round in 0..ROUNDS {
            work.grow(round).map_err(|error| format!("growing {round}: {error}"))?;
            judge(format!("grown {round}"))?;
            highest = work.levels(highest)?;
            if round == 1 {
                work.snapshot().map_err(|error| format!("the snapshot: {error}"))?;
                judge("snapshot".to_owned())?;
            }
            work.shrink(round).map_err(|error| format!("shrinking {round}: {error}"))?;
            judge(format!("shrunk {round}"))?;
            work.totals.commits += 2;
        }
        let wanted = [self.level, self.level, self.level.saturating_sub(1)];
        if highest.iter().zip(wanted).any(|(found, wanted)| *found < wanted) {
            return Err(format!(
                "trees (files, extents, checksums) reached levels {highest:?}, not {wanted:?}"
            ));
        }
        work.empty().map_err(|error| format!("deleting all: {error}"))?;
        judge("emptied".to_owned())?;
        for turn in 0..self.turns {
            work.take_space().map_err(|error| format!("taking space {turn}: {error}"))?;
            judge(format!("space taken {turn}"))?;
            work.cut().map_err(|error| format!("cutting {turn}: {error}"))?;
            judge(format!("space cut {turn}"))?;
            let root = subject.filesystem.root().map_err(|error| error.to_string())?;
            work.delete_files(&root).map_err(|error| format!("giving back {turn}: {error}"))?;
            judge(format!("space given back {turn}"))?;
            // Empty chunks go with the next commit, when nothing in them is pinned any more.
            work.subject
                .filesystem
                .names()
                .create_directory(subject.caller(), &root, format!("turn-{turn}").as_bytes(), 0o755)
                .map_err(|error| error.to_string())?;
            judge(format!("chunks given back {turn}"))?;
            work.totals.commits += 4;
        }
        subject.close().map_err(|error| error.to_string())?;
        totals.add_registry(&registry);
        if self.kernel {
            let mount = kernel::KernelMount::new(&image, "").map_err(|error| error.to_string())?;
            mount.scrub().map_err(|error| error.to_string())?;
            mount.unmount().map_err(|error| error.to_string())?;
        }
        Ok(totals)
    }
}

struct Work<'a> {
    bulk: &'a Bulk,
    subject: &'a Subject,
    choice: Choice,
    totals: &'a mut Totals,
}

impl Work<'_> {
    fn directory(&mut self, name: &str) -> Result<Arc<Inode>, FsError> {
        let filesystem = &self.subject.filesystem;
        let root = filesystem.root()?;
        match filesystem.names().lookup(self.subject.caller(), &root, name.as_bytes()) {
            Err(error) if error.errno() == rustix::io::Errno::NOENT => {
                self.totals.histogram.count("mkdir", true);
                filesystem.names().create_directory(self.subject.caller(), &root, name.as_bytes(), 0o755)
            }
            other => other,
        }
    }

    fn write(&mut self, inode: &Arc<Inode>, offset: u64, length: u64) -> Result<(), FsError> {
        let _operation = inode.operation.write();
        let bytes = Pattern::Random(self.choice.any()).bytes(offset, length);
        self.totals.histogram.count("write", true);
        data::write(&self.subject.filesystem, inode, offset, Cow::Owned(bytes))
    }

    /// Many small files, and a few files of very many extents.
    fn grow(&mut self, round: u64) -> Result<(), FsError> {
        let many = self.bulk.files / ROUNDS;
        for number in 0..many {
            let directory = self.directory(&format!("directory-{}", number % 7))?;
            let name = format!("{:x}-{round}-{number}", self.choice.below(1 << 40));
            let filesystem = &self.subject.filesystem;
            let file =
                filesystem.names().create_file(self.subject.caller(), &directory, name.as_bytes(), 0o644)?;
            self.totals.histogram.count("create", true);
            // Some in the tree, some in an extent of their own, some empty.
            let length = [0, 30, 600, 5000][self.choice.below(4) as usize];
            if length > 0 {
                self.write(&file, 0, length)?;
            }
        }
        for fragmented in 0..FRAGMENTED_FILES {
            let file = self.fragmented(fragmented)?;
            for extent in 0..self.bulk.extents / ROUNDS {
                // Every other sector: neighbours can't become one extent.
                let place = (round * self.bulk.extents / ROUNDS + extent) * 8192;
                if fragmented == 0 {
                    self.write(&file, place, 4096)?;
                } else {
                    // As good as written ones for the extent tree, and no bytes are moved.
                    let _operation = file.operation.write();
                    let what = data::Allocate::Reserve { keep_size: false };
                    data::allocate(&self.subject.filesystem, &file, what, place, 4096)?;
                    self.totals.histogram.count("fallocate", true);
                }
            }
        }
        Ok(())
    }

    fn fragmented(&mut self, number: u64) -> Result<Arc<Inode>, FsError> {
        self.fragment(&format!("fragmented-{number}"))
    }

    fn fragment(&mut self, name: &str) -> Result<Arc<Inode>, FsError> {
        let filesystem = &self.subject.filesystem;
        let root = filesystem.root()?;
        match filesystem.names().lookup(self.subject.caller(), &root, name.as_bytes()) {
            Err(error) if error.errno() == rustix::io::Errno::NOENT => {
                filesystem.names().create_file(self.subject.caller(), &root, name.as_bytes(), 0o644)
            }
            other => other,
        }
    }

    fn snapshot(&mut self) -> Result<(), FsError> {
        let filesystem = &self.subject.filesystem;
        let root = filesystem.root()?;
        filesystem.subvolumes().snapshot(self.subject.caller(), RootId::FS_TREE, &root, b"snapshot", true)?;
        self.totals.histogram.count("snapshot-read-only", true);
        Ok(())
    }

    /// Most files go, in the order of their names, and holes are punched into the fragmented ones.
    fn shrink(&mut self, round: u64) -> Result<(), FsError> {
        for number in 0..7 {
            let directory = self.directory(&format!("directory-{number}"))?;
            self.delete_in(&directory, |choice| choice.chance(9, 10))?;
        }
        for fragmented in 0..FRAGMENTED_FILES {
            let file = self.fragmented(fragmented)?;
            let size = file.size();
            let _operation = file.operation.write();
            data::allocate(
                &self.subject.filesystem,
                &file,
                data::Allocate::PunchHole,
                size / 8 * (round % 4),
                size / 2,
            )?;
            self.totals.histogram.count("punch-hole", true);
        }
        Ok(())
    }

    fn delete_in(&mut self, directory: &Arc<Inode>, goes: impl Fn(&Choice) -> bool) -> Result<(), FsError> {
        let filesystem = &self.subject.filesystem;
        let open = filesystem.names().open_directory(self.subject.caller(), directory)?;
        let mut from = 2;
        loop {
            let records = open.read(from, 512)?;
            let Some(last) = records.last() else { return Ok(()) };
            from = last.offset + 1;
            for record in records {
                if goes(&self.choice) {
                    filesystem.names().unlink(self.subject.caller(), directory, &record.name)?;
                    self.totals.histogram.count("unlink", true);
                }
            }
        }
    }

    fn empty(&mut self) -> Result<(), FsError> {
        let filesystem = &self.subject.filesystem;
        let root = filesystem.root()?;
        filesystem.subvolumes().delete(self.subject.caller(), &root, b"snapshot")?;
        self.totals.histogram.count("subvolume-delete", true);
        for number in 0..7 {
            let directory = self.directory(&format!("directory-{number}"))?;
            self.delete_in(&directory, |_| true)?;
            filesystem.names().remove_directory(
                self.subject.caller(),
                &root,
                format!("directory-{number}").as_bytes(),
            )?;
        }
        self.delete_in(&root, |_| true)?;
        drop(root);
        self.subject.filesystem.maintenance().finish_deletions()
    }

    fn delete_files(&mut self, root: &Arc<Inode>) -> Result<(), FsError> {
        for name in [b"large".as_slice(), b"pieces"] {
            self.subject.filesystem.names().unlink(self.subject.caller(), root, name)?;
            self.totals.histogram.count("unlink", true);
        }
        Ok(())
    }

    /// Takes most of the device in large pieces, and some of it in single sectors.
    fn take_space(&mut self) -> Result<(), FsError> {
        let filesystem = &self.subject.filesystem;
        let root = filesystem.root()?;
        let large = filesystem.names().create_file(self.subject.caller(), &root, b"large", 0o644)?;
        let length = self.bulk.recipe.device_bytes / 4 * 3;
        {
            let _operation = large.operation.write();
            data::allocate(filesystem, &large, data::Allocate::Reserve { keep_size: false }, 0, length)?;
            self.totals.histogram.count("fallocate", true);
        }
        let pieces = filesystem.names().create_file(self.subject.caller(), &root, b"pieces", 0o644)?;
        for piece in 0..PIECES {
            self.write(&pieces, piece * 8192, 4096)?;
        }
        Ok(())
    }

    /// Every other sector becomes free: more ranges than a block group keeps as extents.
    fn cut(&mut self) -> Result<(), FsError> {
        let pieces = self.fragment("pieces")?;
        let _operation = pieces.operation.write();
        for piece in (0..PIECES).step_by(2) {
            let place = piece * 8192;
            data::allocate(&self.subject.filesystem, &pieces, data::Allocate::PunchHole, place, 4096)?;
            self.totals.histogram.count("punch-hole", true);
        }
        Ok(())
    }

    /// The levels of the roots of the file, extent and checksum trees, or those seen before where they were
    /// higher.
    fn levels(&self, highest: [u8; 3]) -> Result<[u8; 3], String> {
        let engine = self.subject.filesystem.engine();
        let mut levels = highest;
        for (level, id) in
            levels.iter_mut().zip([RootId::FS_TREE, RootId::EXTENT_TREE, RootId::CHECKSUM_TREE])
        {
            let tree = engine.tree(id).map_err(|error| error.to_string())?;
            *level = (*level).max(tree.root().pointer().level.0);
        }
        Ok(levels)
    }
}
