//! The superblock of a new file system.

use vlinder_base::units::Physical;
use vlinder_codec::checksum::checksum;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::{
    BACKUP_ROOTS, BackupRoot, MAGIC, SUPERBLOCK_FLAG_WRITTEN, Superblock, SuperblockMirror, SystemChunkArray,
};
use vlinder_format::{Generation, Level, Logical, ObjectId, Reserved, RootId, Uuid};

use super::layout::Layout;
use super::parameters::{FIRST_GENERATION, MkfsParameters};
use super::trees::{Forest, device_item, system_chunks};

/// The superblock, and its copies at their places, the primary last.
pub(super) fn make(
    parameters: &MkfsParameters,
    layout: &Layout,
    forest: &Forest,
) -> (Superblock, Vec<(Physical, Vec<u8>)>) {
    let superblock = value(parameters, layout, forest);
    let copies = copies(parameters, &superblock);
    (superblock, copies)
}

/// Every copy of a superblock that the file system has room for, at its place, the primary last.
pub(in super::super) fn copies(
    parameters: &MkfsParameters,
    superblock: &Superblock,
) -> Vec<(Physical, Vec<u8>)> {
    assert_eq!(superblock.check_for_write(), Ok(()), "mkfs made a bad superblock");
    let copies = SuperblockMirror::ALL.into_iter().rev().filter(|mirror| mirror.fits(superblock.total_bytes));
    let sum = |covered: &[u8]| *checksum(parameters.checksum_kind, covered).as_field();
    copies.map(|mirror| (mirror.offset(), superblock.encode_with_checksum(mirror, sum).to_vec())).collect()
}

/// Where a tree's root block lies.
type RootPlace<'a> = &'a dyn Fn(RootId) -> (Logical, Level);

/// The superblock of a file system that was built by another, `built`: with its roots and chunks where they
/// lie now. `bytes_used` are those of all extents and tree blocks.
pub(in super::super) fn moved(
    parameters: &MkfsParameters,
    layout: &Layout,
    built: Superblock,
    root: RootPlace<'_>,
    bytes_used: u64,
) -> Superblock {
    let generation = built.generation;
    let system = system_chunks(layout).map(|chunk| (chunk.logical, &chunk.chunk));
    let (system_chunk_array, system_array_size) =
        SystemChunkArray::of(system).expect("one system chunk fits the superblock");
    let mut incompat = built.incompat;
    if parameters.features.mixed_groups {
        incompat = incompat.with(IncompatFeatures::MIXED_GROUPS);
    }
    let ((root_tree, root_level), (chunk_root, chunk_root_level)) =
        (root(RootId::ROOT_TREE), root(RootId::CHUNK_TREE));
    let mut backup_roots = [BackupRoot::default(); BACKUP_ROOTS];
    backup_roots[0] = backup(layout, root, generation, bytes_used);
    Superblock {
        root: root_tree,
        root_level,
        chunk_root,
        chunk_root_level,
        chunk_root_generation: generation,
        total_bytes: layout.total_bytes,
        bytes_used,
        system_chunk_array,
        system_array_size,
        incompat,
        compat_read_only: parameters.features.compat_read_only(),
        device_item: device_item(parameters, layout),
        cache_generation: cache_generation(parameters),
        uuid_tree_generation: generation,
        backup_roots,
        ..built
    }
}

/// The v1 space cache has this generation where there is one; none is the largest number.
fn cache_generation(parameters: &MkfsParameters) -> Generation {
    Generation(if parameters.features.free_space_tree { 0 } else { u64::MAX })
}

fn value(parameters: &MkfsParameters, layout: &Layout, forest: &Forest) -> Superblock {
    let system = system_chunks(layout).map(|chunk| (chunk.logical, &chunk.chunk));
    let (system_chunk_array, system_array_size) =
        SystemChunkArray::of(system).expect("one system chunk fits the superblock");
    let root = |tree: RootId| {
        let found = forest.tree(tree).expect("every file system has these trees").root_block();
        (found.logical, found.level)
    };
    let (root_tree, root_level) = root(RootId::ROOT_TREE);
    let (chunk_root, chunk_root_level) = root(RootId::CHUNK_TREE);
    let blocks = u64::try_from(forest.blocks().count()).unwrap_or(u64::MAX);
    let bytes_used = blocks * u64::from(parameters.node_size);
    let mut backup_roots = [BackupRoot::default(); BACKUP_ROOTS];
    backup_roots[0] = backup(layout, &root, FIRST_GENERATION, bytes_used);
    Superblock {
        checksum: [0; 32],
        fsid: parameters.uuids.fsid,
        location: SuperblockMirror::Primary.offset(),
        flags: SUPERBLOCK_FLAG_WRITTEN,
        magic: MAGIC,
        generation: FIRST_GENERATION,
        root: root_tree,
        chunk_root,
        log_root: Logical(0),
        log_root_transaction: 0,
        total_bytes: layout.total_bytes,
        bytes_used,
        root_directory: ObjectId::ROOT_TREE_DIRECTORY,
        device_count: 1,
        sector_size: parameters.sector_size,
        node_size: parameters.node_size,
        leaf_size: parameters.node_size,
        stripe_size: parameters.sector_size,
        system_array_size,
        chunk_root_generation: FIRST_GENERATION,
        compat: Default::default(),
        compat_read_only: parameters.features.compat_read_only(),
        incompat: parameters.features.incompat(),
        checksum_type: parameters.checksum_kind.to_disk(),
        root_level,
        chunk_root_level,
        log_root_level: Level(0),
        device_item: device_item(parameters, layout),
        label: parameters.label,
        cache_generation: cache_generation(parameters),
        uuid_tree_generation: FIRST_GENERATION,
        metadata_uuid: Uuid::NIL,
        global_root_count: 0,
        reserved: Reserved::ZERO,
        system_chunk_array,
        backup_roots,
        padding: Reserved::ZERO,
    }
}

/// The roots of this commit, as the first of the backups.
fn backup(layout: &Layout, root: RootPlace<'_>, generation: Generation, bytes_used: u64) -> BackupRoot {
    let [tree, chunk, extent, fs, device, checksums] = [
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::EXTENT_TREE,
        RootId::FS_TREE,
        RootId::DEVICE_TREE,
        RootId::CHECKSUM_TREE,
    ]
    .map(root);
    BackupRoot {
        tree_root: tree.0,
        tree_root_generation: generation,
        chunk_root: chunk.0,
        chunk_root_generation: generation,
        extent_root: extent.0,
        extent_root_generation: generation,
        fs_root: fs.0,
        fs_root_generation: generation,
        device_root: device.0,
        device_root_generation: generation,
        checksum_root: checksums.0,
        checksum_root_generation: generation,
        total_bytes: layout.total_bytes,
        bytes_used,
        device_count: 1,
        tree_root_level: tree.1,
        chunk_root_level: chunk.1,
        extent_root_level: extent.1,
        fs_root_level: fs.1,
        device_root_level: device.1,
        checksum_root_level: checksums.1,
        ..BackupRoot::default()
    }
}
