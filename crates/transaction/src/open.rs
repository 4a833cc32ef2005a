//! Opening: from a volume to an engine. Nothing is written.

use std::cell::RefCell;

use vlinder_base::sync::Arc;
use vlinder_format::device::DeviceItem;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId, Uuid};
use vlinder_tree::bootstrap::{Bootstrap, ChunkReading, bootstrap};
use vlinder_tree::{Readahead, Root, TreeIdentity, TreeMetrics, Trees, WantedBlock};
use vlinder_volume::{Opened, Volume, VolumeError};

use crate::EngineError;
use crate::engine_core::{EngineCore, OpenedState};
use crate::metrics::Conversions;
use crate::options::{EngineOptions, Rescue};
use crate::read_only::{
    reason_in_chunks, reason_in_devices, reason_in_log, reason_in_superblock, reason_in_trees,
};
use crate::system_trees::{FixedTrees, SystemTrees, checksum_geometry};
use vlinder_forest::{Forest, ForestError, OpenTree};

/// Opens the file system of a volume.
///
/// # Errors
/// As [`Engine::open`](crate::Engine::open).
pub(crate) fn open_core(opened: Opened, options: EngineOptions) -> Result<EngineCore, EngineError> {
    let Opened { volume, superblock, .. } = opened;
    refuse_unknown_features(&superblock)?;
    let volume = Arc::new(volume);
    let mut reason = reason_in_superblock(&superblock, &volume, &options);
    let reading = chunk_reading(&volume, &options);
    let keeps_log = superblock.has_log() && options.leave_log.is_some();
    let Bootstrap { trees, blocks, chunk_tree, root_tree } = bootstrap(
        &volume,
        &superblock,
        // Linux asks the same: a log that is replayed for a reader may meet flags that forbid writing.
        reason.is_none() && !keeps_log && !volume.keeps_writes_in_memory(),
        options.cache_bytes,
        TreeMetrics::new(&options.registry),
        options.rescue.leniency,
        reading,
    )?;
    reason = reason.or_else(|| reason_in_chunks(&volume));
    let forest = Forest::new(Arc::clone(&trees), Arc::clone(&root_tree));
    let (may_be_bad, salvages) = (options.rescue.ignores_bad_roots, options.rescue.leniency.salvages);
    let fixed = open_fixed_trees(&forest, &superblock, may_be_bad)?;
    if reason.is_none() {
        reason = reason_in_trees(&trees, &root_tree, &fixed, volume.keeps_writes_in_memory())?;
    }
    let device_items = read_devices(&trees, &chunk_tree, &superblock, &volume).or_else(forgiven(salvages))?;
    let rest = || reason_in_devices(&device_items, &volume).or_else(|| reason_in_log(&superblock, &options));
    reason = reason.or_else(rest);
    let chunk_tree_uuid = trees_chunk_uuid(&trees, &chunk_tree).or_else(forgiven(may_be_bad))?;
    let highest = highest_subvolume(&trees, &root_tree).or_else(forgiven(may_be_bad))?;
    let identity = TreeIdentity { fsid: superblock.tree_block_uuid(), chunk_tree_uuid };
    let is_skinny = superblock.incompat.has(IncompatFeatures::SKINNY_METADATA);
    let geometry = checksum_geometry(&volume);
    let conversions = Conversions::new(&options.registry);
    let trees = SystemTrees::new(forest, chunk_tree, fixed, identity, geometry, is_skinny, conversions);
    let state = OpenedState { volume, blocks, superblock, trees, device_items, reason, highest };
    let core = EngineCore::new(state, options);
    load(&core, reading, may_be_bad)?;
    if core.latch().reason().is_none() {
        core.dead_trees().find(core.trees(), core.space().reservations())?;
    }
    Ok(core)
}

/// Reads what is counted: errors of devices, and space in use, if the chunks are known.
fn load(core: &EngineCore, reading: ChunkReading, may_be_bad: bool) -> Result<(), EngineError> {
    load_statistics(core).or_else(forgiven(may_be_bad))?;
    if reading == ChunkReading::AsNeeded {
        // A root that can't be read is told of at once, as Linux does.
        core.trees().store().block(&WantedBlock::root(core.trees().fixed().groups.root()))?;
        return Ok(());
    }
    core.load_space(forgiven(may_be_bad))
}

/// Reads the devices' error counters.
fn load_statistics(core: &EngineCore) -> Result<(), EngineError> {
    for member in &core.volume().members() {
        let Some(found) = core
            .trees()
            .store()
            .get(core.trees().fixed().device.root(), &DeviceStatistics::key(member.id))?
        else {
            continue;
        };
        if let Ok((statistics, _)) = DeviceStatistics::decode(found.data()) {
            member.load_statistics(&statistics);
        }
    }
    Ok(())
}

/// A reader of what is sound needs no chunk before an address lies in it. What can't be read without a
/// missing device is told of at once, so a degraded volume knows them all.
fn chunk_reading(volume: &Volume, options: &EngineOptions) -> ChunkReading {
    let rescue = &options.rescue;
    if rescue.leniency.salvages {
        return ChunkReading::Salvage;
    }
    let is_sound = *rescue == Rescue::default() && !volume.is_degraded();
    let only_reads = options.read_only && volume.is_read_only() && !volume.keeps_writes_in_memory();
    if is_sound && only_reads { ChunkReading::AsNeeded } else { ChunkReading::All }
}

fn refuse_unknown_features(superblock: &Superblock) -> Result<(), EngineError> {
    let unknown = superblock.features().unsupported_for_reading();
    if unknown.is_empty() { Ok(()) } else { Err(EngineError::UnknownFeatures { names: unknown.names() }) }
}

/// Turns an error into nothing, where it is allowed.
fn forgiven<T: Default>(is_allowed: bool) -> impl FnOnce(EngineError) -> Result<T, EngineError> {
    move |error| {
        if !is_allowed {
            return Err(error);
        }
        tracing::info!(%error, "left out, as rescue= asks for");
        Ok(T::default())
    }
}

/// A device that says that it is a seed must be one that the chunk tree names so.
fn check_seeds(items: &[DeviceItem], superblock: &Superblock, volume: &Volume) -> Result<(), EngineError> {
    for member in &volume.members() {
        let Some(seed) = member.seed else { continue };
        let is_named = |item: &DeviceItem| {
            (item.device, item.uuid, item.fsid) == (member.id, member.uuid, seed.tree_block_uuid)
        };
        if !items.iter().any(is_named) {
            let device = member.device.describe().name.to_string();
            let (found, expected) = (seed.fsid, superblock.fsid);
            return Err(VolumeError::ForeignDevice { device, found, expected }.into());
        }
    }
    Ok(())
}

fn open_fixed_trees(
    forest: &Forest,
    superblock: &Superblock,
    may_be_bad: bool,
) -> Result<FixedTrees, EngineError> {
    let bad = RefCell::new(Vec::new());
    let open = |id| {
        if !may_be_bad {
            return forest.tree(id);
        }
        match open_root_block(forest, id) {
            Ok(tree) => Ok(tree),
            Err(error) => {
                // Which one it is only matters to who wonders what is missing; that data are not verified is
                // told.
                tracing::info!(tree = %id, %error, "a tree can't be read and is done without, as rescue= asks for");
                bad.borrow_mut().push(id);
                Ok(OpenTree::without_blocks(id))
            }
        }
    };
    let features = superblock.compat_read_only;
    let extent = open(RootId::EXTENT_TREE)?;
    // A reader can do without these, whatever is the matter with them.
    let optional = |id| match forest.tree(id) {
        Ok(tree) => Ok(Some(tree)),
        Err(ForestError::NoSuchTree { .. }) => Ok(None),
        Err(error) => forgiven(may_be_bad)(error.into()),
    };
    let (uuid, quota) = (optional(RootId::UUID_TREE)?, optional(RootId::QUOTA_TREE)?);
    let free_space =
        features.has(CompatReadOnlyFeatures::FREE_SPACE_TREE).then(|| open(RootId::FREE_SPACE_TREE));
    let groups = if features.has(CompatReadOnlyFeatures::BLOCK_GROUP_TREE) {
        open(RootId::BLOCK_GROUP_TREE)?
    } else {
        Arc::clone(&extent)
    };
    let (device, checksum) = (open(RootId::DEVICE_TREE)?, open(RootId::CHECKSUM_TREE)?);
    let free_space = free_space.transpose()?;
    Ok(FixedTrees { extent, device, checksum, uuid, quota, free_space, groups, bad: bad.into_inner() })
}

/// Opens a tree and reads its root block, as Linux does to tell bad roots from good ones.
fn open_root_block(forest: &Forest, id: RootId) -> Result<Arc<OpenTree>, ForestError> {
    let tree = forest.tree(id)?;
    match forest.trees().block(&WantedBlock::root(tree.root())) {
        Ok(_) => Ok(tree),
        Err(error) => {
            forest.remove(id);
            Err(error.into())
        }
    }
}

/// The device items, which must name every seed that was given.
fn read_devices(
    trees: &Trees,
    chunk_tree: &Arc<Root>,
    superblock: &Superblock,
    volume: &Volume,
) -> Result<Vec<DeviceItem>, EngineError> {
    let items = read_device_items(trees, chunk_tree)?;
    check_seeds(&items, superblock, volume)?;
    Ok(items)
}

fn read_device_items(trees: &Trees, chunk_tree: &Arc<Root>) -> Result<Vec<DeviceItem>, EngineError> {
    let mut items = Vec::new();
    let first = Key::new(ObjectId::DEVICE_ITEMS, ItemType::DEVICE_ITEM, 0);
    let mut cursor = trees.cursor(chunk_tree, &first, Readahead::None)?;
    while let Some((key, data)) = cursor.item()
        && key.item_type == ItemType::DEVICE_ITEM
    {
        items.push(DeviceItem::decode(data).map_err(|fault| Damage::new(fault, cursor.place()))?);
        cursor.advance()?;
    }
    Ok(items)
}

/// Every block carries the chunk tree's UUID; the chunk tree's own blocks are as good a source as any.
fn trees_chunk_uuid(trees: &Trees, chunk_tree: &Arc<Root>) -> Result<Uuid, EngineError> {
    let first = trees.ceiling(chunk_tree, &Key::MIN)?;
    Ok(first.map_or(Uuid::NIL, |position| position.leaf().header().chunk_tree_uuid()))
}

/// The highest number of a subvolume.
fn highest_subvolume(trees: &Trees, root_tree: &Arc<Root>) -> Result<u64, EngineError> {
    let last = Key::new(ObjectId::LAST_FREE, ItemType(u8::MAX), u64::MAX);
    Ok(trees.floor(root_tree, &last)?.map_or(0, |position| position.key().objectid.0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use vlinder_device::{FileDevice, OpenOptions};
    use vlinder_format::block_group::BlockGroupItem;
    use vlinder_format::device_replace::DeviceReplace;
    use vlinder_testkit::{Scratch, require};
    use vlinder_tree::{Change, Edit};
    use vlinder_volume::{Access, SuperblockChoice};

    use super::*;
    use crate::{Engine, Reservation};
    use vlinder_forest::find_root_item;

    fn open(image: &Path) -> Arc<Engine> {
        let device = FileDevice::open(image, &OpenOptions::writer()).unwrap();
        let opened =
            Volume::open(vec![Arc::new(device)], SuperblockChoice::default(), Access::ReadWrite).unwrap();
        Engine::open(opened, EngineOptions::default()).unwrap()
    }

    fn image(scratch: &Scratch) -> std::path::PathBuf {
        let image = scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let made = std::process::Command::new("mkfs.btrfs").arg("-q").arg(&image).status().unwrap();
        assert!(made.success());
        image
    }

    /// The reason for reading only, after one edit of a tree.
    fn reason_after(image: &Path, tree: impl Fn(&Engine) -> Arc<OpenTree>, edit: Edit<'_>) -> String {
        let engine = open(image);
        let mut handle = engine.begin(Reservation::items(1)).unwrap();
        handle.edit(&tree(&engine), &[edit]).unwrap();
        drop(handle);
        engine.commit().unwrap();
        drop(engine);
        open(image).read_only_reason().map(|reason| reason.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_unfinished_device_replacement_opens_for_reading_only() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("replace");
        let image = image(&scratch);
        let device = |engine: &Engine| Arc::clone(&engine.core().trees().fixed().device);
        let finished = DeviceReplace { state: 2, ..DeviceReplace::default() }.encode();
        let put = |item| Edit::new(DeviceReplace::KEY, Change::Put(item));
        assert_eq!(reason_after(&image, device, put(&finished)), "");
        let started = DeviceReplace { state: 1, ..DeviceReplace::default() }.encode();
        assert!(reason_after(&image, device, put(&started)).contains("replacement"));
    }

    #[test]
    fn backup_roots_name_the_top_level_subvolume_unopened() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("backup");
        let image = image(&scratch);
        let device = |engine: &Engine| Arc::clone(&engine.core().trees().fixed().device);
        let replace = DeviceReplace::default().encode();
        reason_after(&image, device, Edit::new(DeviceReplace::KEY, Change::Put(&replace)));
        let engine = open(&image);
        let superblock = engine.core().superblock().clone();
        let newest = superblock.backup_roots.iter().max_by_key(|backup| backup.tree_root_generation).unwrap();
        assert_eq!(newest.tree_root, superblock.root);
        let (_, item) =
            find_root_item(engine.core().trees().store(), engine.core().trees().root_tree(), RootId::FS_TREE)
                .unwrap()
                .unwrap();
        assert_eq!((newest.fs_root, newest.fs_root_generation), (item.address, item.generation));
    }

    #[test]
    fn a_device_item_that_claims_too_much_opens_for_reading_only() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("device-item");
        let image = image(&scratch);
        {
            let engine = open(&image);
            let mut item = engine.core().chunks().device_items()[0];
            item.total_bytes += 1 << 30;
            let mut handle = engine.begin(Reservation::items(1)).unwrap();
            let key = DeviceItem::key(item.device);
            handle.editor_mut().put(engine.core().trees().chunk(), key, &item.encode()).unwrap();
            handle.mark_changed();
            drop(handle);
            engine.commit().unwrap();
        }
        // The superblock is still right: it opens, and says why it takes no writes.
        let engine = open(&image);
        let reason = engine.read_only_reason().map(|reason| reason.to_string()).unwrap_or_default();
        assert!(reason.contains("claims"), "{reason}");
        assert!(engine.begin(Reservation::items(1)).is_err());
    }

    #[test]
    fn a_chunk_without_a_group_opens_for_reading_only() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("group");
        let image = image(&scratch);
        let group = {
            let engine = open(&image);
            let chunks = engine.core().volume().chunks().snapshot();
            let data = chunks
                .iter()
                .find(|chunk| chunk.chunk.flags.has(vlinder_format::chunk::BlockGroupFlags::DATA));
            data.map(|chunk| BlockGroupItem::key(chunk.logical, chunk.chunk.length)).unwrap()
        };
        let groups = |engine: &Engine| Arc::clone(&engine.core().trees().fixed().groups);
        let reason = reason_after(&image, groups, Edit::new(group, Change::Remove));
        assert!(reason.contains("no block group"), "{reason}");
        // A log that could be replayed does not hide that.
        let device = FileDevice::open(&image, &OpenOptions::writer()).unwrap();
        let opened =
            Volume::open(vec![Arc::new(device)], SuperblockChoice::default(), Access::ReadWrite).unwrap();
        opened.volume.publish_log(opened.superblock.root, opened.superblock.root_level).unwrap();
        drop(opened);
        let engine = open(&image);
        assert!(engine.superblock().has_log());
        let reason = engine.read_only_reason().map(|reason| reason.to_string()).unwrap_or_default();
        assert!(reason.contains("no block group"), "{reason}");
        assert!(engine.adopt_log().unwrap().is_none());
    }

    #[test]
    fn in_memory_a_file_system_of_any_profile_makes_chunks() {
        require!(Tool("mkfs.btrfs"));
        for profile in ["raid0", "raid1", "raid1c3", "raid10", "raid5", "raid6"] {
            let scratch = Scratch::new("in-memory");
            let images: Vec<std::path::PathBuf> =
                (0..4).map(|number| scratch.path().join(format!("device-{number}"))).collect();
            for image in &images {
                std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
            }
            let mut mkfs = std::process::Command::new("mkfs.btrfs");
            mkfs.args(["-q", "-d", profile, "-m", profile]).args(&images);
            assert!(mkfs.status().unwrap().success());
            let open = |access| {
                let device = |image| Arc::new(FileDevice::open(image, &OpenOptions::reader()).unwrap()) as _;
                let devices = images.iter().map(device).collect();
                let opened = Volume::open(devices, SuperblockChoice::default(), access).unwrap();
                Engine::open(opened, EngineOptions::default()).unwrap()
            };
            let engine = open(Access::ReadWrite);
            assert!(engine.read_only_reason().is_some(), "{profile}");
            let engine = open(Access::InMemory { most_bytes: 32 << 20 });
            assert_eq!(engine.read_only_reason(), None, "{profile}");
            assert!(
                engine.core().chunk_maker().make_chunk(vlinder_space::Purpose::Metadata).unwrap(),
                "{profile}"
            );
            let tree = engine.tree(RootId::FS_TREE).unwrap();
            let mut handle = engine.begin(Reservation::items(1)).unwrap();
            let key = Key::new(ObjectId::ORPHAN, ItemType::ORPHAN_ITEM, 300);
            handle.edit(&tree, &[Edit::new(key, Change::Put(b""))]).unwrap();
            drop(handle);
            engine.commit().unwrap();
            assert_eq!(engine.reader().item(&tree, &key).unwrap(), Some(Vec::new()), "{profile}");
        }
    }
}
