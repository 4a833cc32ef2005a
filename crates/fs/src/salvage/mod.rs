//! Getting files out of a damaged file system: every way to open it is tried, and what can't be read is told
//! and passed by.
//!
//! [`Salvage::open`] tries the superblock copies and, for each, the state of the last commit and those of the
//! backup roots, until one has a root tree whose root block can be read; one that lacks the root item of a
//! subvolume comes after those that have it. Where the chunk tree can't be read whole, its older leaves are
//! looked for in the system chunks. All copies of each block and of the data are tried in any case
//! ([`vlinder_volume`]). Names, runs of data and attributes are then given a batch at a time, beside what is
//! lost of them: nothing that grows with the image is held.

mod chunks;
mod items;

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::block::{BlockFault, BlockRules};
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{Block, Damage, Generation, ItemType, Level, Logical, Place, RootId};
use vlinder_transaction::{Engine, EngineOptions, ReadOnlyReason, Rescue};
use vlinder_tree::bootstrap::Leniency;
use vlinder_tree::{TreeMetrics, WantedBlock};
use vlinder_volume::{
    Access, OpenRules, Opened, ReadRequest, SuperblockChoice, Volume, VolumeError, refuse_two_histories,
};

pub use items::{
    ExtendedAttribute, ItemPlace, LeftOutItem, LostPart, Name, Next, Run, SalvagedNames, SalvagedRuns,
    item_of,
};

use self::chunks::LostChunks;
use crate::options::SubvolumeChoice;
use crate::subvolume::default::choose_subvolume;
use crate::{Filesystem, FsError, OpenOptions, Result};

/// Where to look, if not everywhere.
#[derive(Clone, Default)]
pub struct SalvageOptions {
    /// The superblock copy to go by, by the user's word.
    pub mirror: Option<SuperblockMirror>,
    /// Where the root tree lies, by the user's word.
    pub root_tree: Option<Logical>,
    /// Everything else: memory, the subvolume that is the root, whether data need their checksums.
    pub options: OpenOptions,
}

/// A damaged file system, opened for reading what there is.
pub struct Salvage {
    filesystem: Filesystem,
    /// What was tried in vain, and what is shown instead.
    notes: Vec<String>,
    start: RootId,
    is_older: bool,
}

/// A subvolume, or another tree that the root tree names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRoot {
    /// Its number.
    pub id: RootId,
    /// Where its root block lies.
    pub address: Logical,
    /// The level of that.
    pub level: Level,
    /// The generation of that.
    pub generation: Generation,
    /// A snapshot of another subvolume.
    pub is_snapshot: bool,
    /// It was deleted, and is not all freed yet.
    pub is_deleted: bool,
}

const fn is_two_histories(error: &FsError) -> bool {
    matches!(error, FsError::Volume(VolumeError::TwoHistories { .. }))
}

/// A state that was opened.
struct State {
    filesystem: Filesystem,
    start: RootId,
    /// Trees that it lacks and that another state may have, and why.
    lacking: Vec<(RootId, Damage)>,
}

impl State {
    /// Whether it has one of these trees.
    fn has_any(&self, trees: &[RootId]) -> bool {
        trees.iter().any(|tree| self.filesystem.engine().tree(*tree).is_ok())
    }
}

/// What was tried so far.
#[derive(Default)]
struct Tried {
    notes: Vec<String>,
    first_error: Option<FsError>,
    /// Trees that the newest state lacks which has a root tree. It is taken where no other state has one of
    /// them.
    missed: Vec<RootId>,
}

impl Tried {
    fn fail(&mut self, what: &str, error: FsError) {
        self.notes.push(format!("{what}: {error}"));
        self.first_error.get_or_insert(error);
    }

    /// Whether another state may be better than this one.
    fn puts_off(&mut self, name: &str, state: &State) -> bool {
        for (_, damage) in &state.lacking {
            self.fail(name, damage.clone().into());
        }
        if !state.lacking.is_empty() {
            if self.missed.is_empty() {
                self.missed = state.lacking.iter().map(|(tree, _)| *tree).collect();
            }
            return true;
        }
        let is_no_better = !self.missed.is_empty() && !state.has_any(&self.missed);
        if is_no_better {
            self.notes.push(format!("{name}: it does not have that tree either"));
        }
        is_no_better
    }
}

impl Salvage {
    /// Opens what there is. Nothing is written.
    ///
    /// # Errors
    /// That of the first try, where none leads to a root tree.
    pub fn open(devices: &[Arc<dyn Device>], how: &SalvageOptions) -> Result<Self> {
        let mut tried = Tried::default();
        if let Some(found) = Self::open_best(devices, how, &mut tried, false)? {
            return Ok(found);
        }
        if !tried.missed.is_empty()
            && let Some(found) = Self::open_best(devices, how, &mut Tried::default(), true)?
        {
            return Ok(found);
        }
        Err(tried.first_error.unwrap_or_else(|| VolumeError::NoDevice.into()))
    }

    /// The first state that can be opened; with `settles`, one that lacks a root item, too.
    fn open_best(
        devices: &[Arc<dyn Device>],
        how: &SalvageOptions,
        tried: &mut Tried,
        settles: bool,
    ) -> Result<Option<Self>> {
        let mirrors: Vec<SuperblockChoice> = match how.mirror {
            Some(mirror) => vec![SuperblockChoice::Mirror(mirror)],
            None => std::iter::once(SuperblockChoice::Automatic)
                .chain(SuperblockMirror::ALL.map(SuperblockChoice::Mirror))
                .collect(),
        };
        for choice in mirrors {
            let rules = OpenRules {
                choice,
                may_miss: true,
                ignores_flags: true,
                history: how.options.history,
                salvages: true,
            };
            let opened = match Volume::open_by(devices.to_vec(), rules, Access::ReadOnly) {
                Ok(opened) => opened,
                // Another superblock or an older root may say less of it, and would join them.
                Err(error @ VolumeError::TwoHistories { .. }) => return Err(error.into()),
                Err(error) => {
                    tried.fail(&format!("superblock ({})", name_of(choice)), error.into());
                    continue;
                }
            };
            let superblock = opened.superblock;
            let mut chunks = LostChunks::default();
            for (number, (name, state)) in states(&superblock, how.root_tree).into_iter().enumerate() {
                let reopen = |superblock| {
                    let opened = Volume::open_by(devices.to_vec(), rules, Access::ReadOnly);
                    opened.map(|opened| Opened { superblock, ..opened })
                };
                match Self::open_state(&reopen, state, how, &mut chunks) {
                    Ok(state) if !settles && tried.puts_off(&name, &state) => {}
                    Ok(State { filesystem, start, lacking }) => {
                        let mut notes = std::mem::take(&mut tried.notes);
                        let lacks = |(_, damage)| format!("{name} lacks a tree that no other has: {damage}");
                        notes.extend(lacking.into_iter().map(lacks));
                        notes.extend(chunks.into_note());
                        if !notes.is_empty() {
                            notes.push(format!("shown is {name}, by the superblock ({})", name_of(choice)));
                        }
                        return Ok(Some(Self { filesystem, notes, start, is_older: number > 0 }));
                    }
                    Err(error) if is_two_histories(&error) => return Err(error),
                    Err(error) => tried.fail(&name, error),
                }
            }
        }
        Ok(None)
    }

    fn open_state(
        reopen: &dyn Fn(Superblock) -> Result<Opened, VolumeError>,
        state: Superblock,
        how: &SalvageOptions,
        chunks: &mut LostChunks,
    ) -> Result<State> {
        let mut options = how.options.clone();
        options.read_only = true;
        let leniency = Leniency { ignores_checksums: options.rescue.ignores_block_checksums, salvages: true };
        let engine_options = EngineOptions {
            leave_log: Some(ReadOnlyReason::Requested),
            rescue: Rescue { ignores_bad_roots: true, leniency },
            ..crate::opening::engine_options(&options)
        };
        let mut open = |state: Superblock| -> Result<Arc<Engine>> {
            let (opened, other) = (reopen(state.clone())?, reopen(state)?);
            let metrics = TreeMetrics::new(&engine_options.registry);
            chunks.complete(&opened, other, leniency, &metrics)?;
            let engine = Engine::open(opened, engine_options.clone())?;
            refuse_two_histories(engine.volume(), &engine.superblock())?;
            Ok(engine)
        };
        let mut engine = open(state)?;
        if let Some(address) = how.root_tree {
            engine = open(with_root_tree(&engine, address)?)?;
        }
        // With this block gone there is nothing to find files by.
        let root_block = engine.forest().trees().block(&WantedBlock::root(engine.forest().root_tree()))?;
        let lacking = lacking(&engine, &root_block);
        let choice = options.subvolume.clone();
        let filesystem = Filesystem::assemble(engine, options);
        let start = match choice {
            SubvolumeChoice::Default => RootId::FS_TREE,
            other => choose_subvolume(filesystem.names(), &other)?,
        };
        Ok(State { filesystem, start, lacking })
    }

    /// The file system. Reading through it ends at damage; what is sound it gives.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// What was tried in vain before, and what is shown instead; empty where the first try succeeded.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether the state that is shown is not that of the last commit: what was done since is lost.
    #[must_use]
    pub fn is_older(&self) -> bool {
        self.is_older
    }

    /// The subvolume to begin with: the top level, unless the options name another.
    #[must_use]
    pub fn start(&self) -> RootId {
        self.start
    }
}

/// Trees whose root items the root block of the root tree lacks, if files are found by them, or their data
/// verified: what was done since an earlier commit is less than a whole subvolume. Of further blocks of the
/// root tree any may be lost, and the rest is taken.
fn lacking(engine: &Engine, root_block: &Block) -> Vec<(RootId, Damage)> {
    let left_out =
        engine.forest().trees().left_out().map(|left_out| left_out.of(root_block)).unwrap_or_default();
    let lost = left_out.iter().filter(|item| item.key.item_type == ItemType::ROOT_ITEM).filter_map(|item| {
        let tree = RootId(item.key.objectid.0);
        let is_needed = tree.is_subvolume() || tree == RootId::CHECKSUM_TREE;
        let damage = || item.clone().into_damage(Some(RootId::ROOT_TREE), root_block.logical());
        is_needed.then(|| (tree, damage()))
    });
    lost.collect()
}

fn name_of(choice: SuperblockChoice) -> String {
    match choice {
        SuperblockChoice::Automatic => "primary".to_owned(),
        SuperblockChoice::Mirror(mirror) => format!("copy at byte {}", mirror.offset()),
    }
}

/// The states that a superblock leads to, the best first.
fn states(superblock: &Superblock, root_tree: Option<Logical>) -> Vec<(String, Superblock)> {
    if let Some(address) = root_tree {
        return vec![(format!("the root tree at {address}"), superblock.clone())];
    }
    let newest = ("the last commit".to_owned(), superblock.clone());
    let older = chunks::by_age(superblock).into_iter().flat_map(|backup| {
        [false, true].map(|with_chunks| {
            let name = format!("the state of commit {}", backup.tree_root_generation);
            (name, crate::backup_roots::as_of(superblock, backup, with_chunks))
        })
    });
    std::iter::once(newest).chain(older).collect()
}

/// The superblock with the root tree that the user names. No parent tells its generation and level: the block
/// itself does.
fn with_root_tree(engine: &Engine, logical: Logical) -> Result<Superblock> {
    let (volume, mut superblock) = (engine.volume(), engine.superblock());
    let geometry = volume.geometry();
    let rules = BlockRules { node_size: geometry.node_size, sector_size: geometry.sector_size };
    let place = Place { tree: Some(RootId::ROOT_TREE), block: Some(logical), slot: None, key: None };
    let length = usize::try_from(geometry.node_size).unwrap_or(0);
    let read = volume.read_verified(ReadRequest { logical, length }, &mut |bytes| {
        let block = Block::parse(bytes.into_boxed_slice(), &rules)
            .map_err(|(fault, slot)| Damage::new(fault, Place { slot, ..place }))?;
        if block.owner() == RootId::ROOT_TREE {
            return Ok((block.generation(), block.level()));
        }
        let fault = BlockFault::Owner { found: block.owner(), tree: RootId::ROOT_TREE };
        Err(Damage::new(fault, place))
    })?;
    superblock.root = logical;
    (superblock.generation, superblock.root_level) = read.value;
    superblock.log_root = Logical(0);
    Ok(superblock)
}
