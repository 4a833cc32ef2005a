//! The superblock.

use vlinder_check::FindingKind;
use vlinder_device::DeviceExt;
use vlinder_format::block::BlockFault;
use vlinder_format::superblock::{SUPERBLOCK_FLAG_METADUMP, SuperblockMirror};
use vlinder_format::{Generation, Level, Logical, RootId};
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::blocks::unreadable;
use crate::damage::image::{NOWHERE, at_block};

/// What follows where no tree can be found but the chunk tree.
const WITHOUT_ROOTS: [&str; 6] = [
    "tree-missing",
    "chunk-without-group",
    "superblock-bytes-used",
    "stripe-without-device-extent",
    "device-used",
    "extent-missing",
];

pub const DAMAGES: &[Damage] = &[
    ("bytes used", |m| {
        m.change_superblock(|s| s.bytes_used += 4096);
        let expected = m.superblock.bytes_used;
        only(FindingKind::SuperblockBytesUsed { found: expected + 4096, expected }, NOWHERE)
    }),
    ("total bytes", |m| {
        m.change_superblock(|s| s.total_bytes -= 4096);
        let expected = m.superblock.total_bytes;
        only(FindingKind::SuperblockTotalBytes { found: expected - 4096, expected }, NOWHERE)
    }),
    ("stripe size", |m| {
        m.change_superblock(|s| s.stripe_size = 32768);
        let expected = m.superblock.sector_size;
        only(FindingKind::SuperblockStripeSize { found: 32768, expected }, NOWHERE)
    }),
    ("restored by btrfs-image -o", |m| {
        m.change_superblock(|s| s.flags |= SUPERBLOCK_FLAG_METADUMP);
        only(
            FindingKind::SuperblockMetadump { flags: m.superblock.flags | SUPERBLOCK_FLAG_METADUMP },
            NOWHERE,
        )
    }),
    ("root generation", |m| {
        let (found, root) = (m.superblock.generation, m.superblock.root);
        m.change_superblock(|s| s.generation = found.next());
        let fault = BlockFault::Generation { found, expected: found.next() };
        let (kind, place) = unreadable(m, at_block(RootId::ROOT_TREE, root), fault);
        only(kind, place).besides(WITHOUT_ROOTS)
    }),
    ("root level", |m| {
        let (found, root) = (m.superblock.root_level, m.superblock.root);
        m.change_superblock(|s| s.root_level.0 += 1);
        let fault = BlockFault::Level { found, expected: Level(found.0 + 1) };
        let (kind, place) = unreadable(m, at_block(RootId::ROOT_TREE, root), fault);
        only(kind, place).besides(WITHOUT_ROOTS)
    }),
    ("chunk root generation", |m| {
        let (found, root) = (m.superblock.chunk_root_generation, m.superblock.chunk_root);
        m.change_superblock(|s| s.chunk_root_generation.0 -= 1);
        let fault = BlockFault::Generation { found, expected: Generation(found.0 - 1) };
        let (kind, place) = unreadable(m, at_block(RootId::CHUNK_TREE, root), fault);
        // Nothing but system chunks can be read, and so nothing of the root tree.
        let (root, length) = (m.superblock.root, m.superblock.node_size);
        let reason =
            format!("no chunk covers the {length} bytes at {root}; the file system is damaged: run a check");
        let (system, _) = m.superblock.system_chunks().next().unwrap().unwrap();
        only(kind, place)
            .and(FindingKind::BlockUnreadable { reason }, at_block(RootId::ROOT_TREE, root))
            .and(FindingKind::SystemChunk { logical: system }, NOWHERE)
            .and(FindingKind::DeviceMissing { device: m.superblock.device_item.device }, NOWHERE)
            .and(FindingKind::SuperblockTotalBytes { found: m.superblock.total_bytes, expected: 0 }, NOWHERE)
            .and(FindingKind::SuperblockBytesUsed { found: m.superblock.bytes_used, expected: 0 }, NOWHERE)
            .besides(["tree-missing", "extent-missing"])
    }),
    ("system chunk", |m| {
        let found = crate::damage::image::chunk_of(m, m.superblock.chunk_root);
        m.remove(found);
        only(FindingKind::SystemChunk { logical: Logical(found.key.offset) }, NOWHERE).besides([
            "extent-place",
            "group-without-chunk",
            "group-used",
            "superblock-bytes-used",
            "device-extent-without-stripe",
            "free-space",
        ])
    }),
    ("second superblock", |m| {
        let offset = SuperblockMirror::Second.offset();
        m.device().write_at(offset, vec![0; 4096]).unwrap();
        let reason = "memory: no Btrfs: the magic number is 0x0000000000000000".to_owned();
        only(FindingKind::SuperblockCopy { device: "memory".to_owned(), offset, reason }, NOWHERE)
    }),
];

#[test]
fn damaged_superblocks_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
