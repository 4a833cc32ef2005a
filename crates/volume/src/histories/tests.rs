//! Two histories, by superblocks and by blocks that were made up.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::checksum;
use vlinder_device::{Device, DeviceExt};
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, ChildPointer};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::inode::InodeItem;
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{Block, Level, Logical, ObjectId, Physical, RootId, Uuid};

use super::*;
use crate::member::Member;
use crate::superblock::FoundSuperblock;
use crate::tests::{CHUNK, Faulty, GEOMETRY, LENGTH, MEBIBYTE, chunk};
use crate::volume::Access;

fn found(generation: u64, root: u64) -> FoundSuperblock {
    let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
    (superblock.generation, superblock.root) = (Generation(generation), Logical(root));
    superblock.backup_roots[0].tree_root_generation = Generation(generation);
    superblock.backup_roots[0].tree_root = Logical(root);
    FoundSuperblock { superblock, mirror: SuperblockMirror::Primary }
}

fn remembers(mut found: FoundSuperblock, generation: u64, root: u64) -> FoundSuperblock {
    found.superblock.backup_roots[1].tree_root_generation = Generation(generation);
    found.superblock.backup_roots[1].tree_root = Logical(root);
    found
}

#[test]
fn members_that_went_on_alone_contradict_each_other() {
    let is_contradiction = |found: &[FoundSuperblock]| contradiction(found).is_some();
    assert!(!is_contradiction(&[found(7, 1), found(7, 1)]));
    assert!(is_contradiction(&[found(7, 1), found(7, 2)]), "of one generation");
    assert!(!is_contradiction(&[found(6, 1), remembers(found(7, 2), 6, 1)]), "it was away");
    assert!(is_contradiction(&[found(6, 1), remembers(found(7, 2), 6, 3)]), "another root of 6");
    assert!(is_contradiction(&[remembers(found(7, 2), 6, 3), found(6, 1)]), "in either order");
    assert!(!is_contradiction(&[found(1, 1), found(7, 2)]), "nobody remembers 1");
    let mut same_root = remembers(found(7, 2), 6, 1);
    same_root.superblock.backup_roots[1].bytes_used = 4096;
    assert!(is_contradiction(&[found(6, 1), same_root]), "another size of 6");
    let (older, newer) = (remembers(found(6, 1), 5, 4), remembers(found(7, 2), 5, 3));
    assert!(is_contradiction(&[older, newer]), "another root of 5, which is neither's last");
    let apart = [found(6, 1), found(6, 2), found(7, 3)];
    assert!(is_contradiction(&apart), "two that are older");
    let mut logged = found(7, 1);
    logged.superblock.log_root = Logical(9);
    assert!(!is_contradiction(&[found(7, 1), logged]), "a log was announced to one of them");
    let mut stranger = found(7, 2);
    stranger.superblock.fsid.0[0] ^= 1;
    assert!(!is_contradiction(&[found(7, 1), stranger]), "a seed");
}

const NODE: u64 = 16384;

fn place(number: u64) -> Logical {
    Logical(CHUNK.0 + number * NODE)
}

/// Two members with a mirrored chunk of tree blocks, of which the second was away after the transaction
/// `last`.
struct Mirrors {
    devices: [Arc<Faulty>; 2],
    volume: Volume,
    evidence: SuperblockEvidence,
    superblock: Superblock,
}

const PHYSICAL: [u64; 2] = [32 * MEBIBYTE, 48 * MEBIBYTE];

impl Mirrors {
    fn new(generation: u64, last: u64) -> Self {
        let devices = [(); 2].map(|()| Faulty::new(LENGTH));
        let member = |(id, device): (u64, &Arc<Faulty>)| {
            Member::new(DeviceId(id), Uuid([4; 16]), LENGTH, Arc::clone(device) as Arc<dyn Device>)
        };
        let mut members: Vec<Member> = (1..).zip(&devices).map(member).collect();
        members[1].is_stale = last < generation;
        let volume = Volume::new(members, GEOMETRY, Access::ReadOnly);
        let mut mirrored = chunk(BlockGroupFlags::METADATA.with(BlockGroupFlags::RAID1), &PHYSICAL);
        mirrored.stripes[1].device = DeviceId(2);
        volume.add_chunk(CHUNK, mirrored).unwrap();
        let superblock = |generation| {
            let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
            (superblock.generation, superblock.root) = (Generation(generation), place(generation));
            superblock.device_item.device = DeviceId(2);
            superblock
        };
        let pasts = (last < generation).then(|| superblock(last)).into_iter().collect();
        let evidence = SuperblockEvidence { pasts, ..SuperblockEvidence::default() };
        Self { devices, volume, evidence, superblock: superblock(generation) }
    }

    fn write(&self, on: usize, at: Logical, block: &Block) {
        let mut block = block.clone();
        block.assume_identity(at, block.generation(), block.owner());
        block.set_flag(BLOCK_FLAG_WRITTEN, true);
        let sum = checksum(GEOMETRY.checksum_kind, block.checksummed_bytes());
        block.store_checksum(sum.as_field());
        let physical = Physical(PHYSICAL[on] + (at.0 - CHUNK.0));
        self.devices[on].write_at(physical, block.bytes().to_vec()).unwrap();
    }

    fn on_both(&self, at: Logical, block: &Block) {
        [0, 1].into_iter().for_each(|on| self.write(on, at, block));
    }

    fn is_refused(&self) -> bool {
        let Self { volume, evidence, superblock, .. } = self;
        Comparison { volume, evidence, newest: superblock }.refuse_contradiction().is_err()
    }
}

fn empty(owner: RootId, generation: u64, level: u8) -> Block {
    let identity = BlockIdentity {
        logical: CHUNK,
        generation: Generation(generation),
        owner,
        level: Level(level),
        fsid: Uuid([0; 16]),
        chunk_tree_uuid: Uuid([0; 16]),
    };
    Block::new(GEOMETRY.node_size, &identity)
}

/// A root tree that names one tree, whose last change was in the transaction `changed`, at this time.
fn root_tree(generation: u64, (tree_generation, tree): (u64, Logical), changed: u64, time: u32) -> Block {
    root_tree_of_level(0, generation, (tree_generation, tree), changed, time)
}

fn root_tree_of_level(
    level: u8,
    generation: u64,
    (tree_generation, tree): (u64, Logical),
    changed: u64,
    time: u32,
) -> Block {
    let mut item = RootItem::default();
    item.base.level = Level(level);
    (item.generation, item.address) = (Generation(tree_generation), tree);
    let mut extension = vlinder_format::root_item::RootItemExtension {
        change_transaction: Generation(changed),
        ..Default::default()
    };
    extension.change_time.nanoseconds = time;
    item.extension = Some(extension);
    let mut leaf = empty(RootId::ROOT_TREE, generation, 0);
    leaf.items_mut().insert(0, &[(RootItem::key(RootId::FS_TREE, 0), &item.encode())]);
    leaf
}

/// A file tree of one inode.
fn file_tree(generation: u64, time: u32) -> Block {
    let mut inode = InodeItem { transaction: Generation(generation), ..InodeItem::default() };
    inode.change_time.nanoseconds = time;
    let mut leaf = empty(RootId::FS_TREE, generation, 0);
    leaf.items_mut().insert(0, &[(InodeItem::key(ObjectId(256)), &inode.encode())]);
    leaf
}

#[test]
fn good_copies_of_the_root_that_differ_are_two_histories() {
    for (other, is_refused) in [(1, false), (2, true)] {
        let mirrors = Mirrors::new(9, 9);
        mirrors.write(0, place(9), &root_tree(9, (9, place(20)), 9, 1));
        mirrors.write(1, place(9), &root_tree(9, (9, place(20)), 9, other));
        assert_eq!(mirrors.is_refused(), is_refused);
    }
}

/// What is left of the older member's last transaction on the newer one.
#[test]
fn an_overwritten_block_that_was_needed_shows_two_histories() {
    let what_is_left: &[(&str, Option<Block>, bool)] = &[
        ("the same", Some(root_tree(6, (5, place(20)), 6, 1)), false),
        ("nothing", None, false),
        ("an older block", Some(root_tree(5, (5, place(20)), 5, 7)), false),
        ("a block of the same transaction", Some(root_tree(6, (5, place(20)), 6, 7)), true),
        ("a younger block", Some(root_tree(7, (5, place(20)), 7, 7)), false),
    ];
    for (what, left, is_refused) in what_is_left {
        let mirrors = Mirrors::new(9, 6);
        mirrors.on_both(place(9), &root_tree(9, (9, place(30)), 9, 9));
        mirrors.write(1, place(6), &root_tree(6, (5, place(20)), 6, 1));
        left.iter().for_each(|left| mirrors.write(0, place(6), left));
        assert_eq!(mirrors.is_refused(), *is_refused, "{what}");
    }
}

/// The older member's root tree was used again; a tree that the newer one has had since before it went away
/// is left.
#[test]
fn a_tree_that_the_older_member_lacks_shows_two_histories() {
    for (on_the_older, is_refused) in [
        (file_tree(6, 1), false),
        (file_tree(6, 2), true),
        (file_tree(3, 2), false),
        (file_tree(7, 2), false),
    ] {
        let mirrors = Mirrors::new(9, 6);
        mirrors.write(0, place(9), &root_tree(9, (6, place(20)), 9, 9));
        mirrors.write(0, place(20), &file_tree(6, 1));
        mirrors.write(1, place(20), &on_the_older);
        assert_eq!(mirrors.is_refused(), is_refused, "generation {}", on_the_older.generation().0);
    }
}

#[test]
fn what_is_common_ends_the_search_and_other_times_do_not() {
    for (changed, is_refused) in [(6, false), (5, true)] {
        let mirrors = Mirrors::new(9, 6);
        mirrors.on_both(place(9), &root_tree(9, (9, place(30)), 9, 9));
        mirrors.on_both(place(6), &root_tree(6, (6, place(20)), changed, 1));
        mirrors.write(0, place(20), &file_tree(6, 1));
        mirrors.write(1, place(20), &file_tree(6, 2));
        assert_eq!(mirrors.is_refused(), is_refused, "changed in {changed}");
    }
}

/// Nodes that all point to all of the next level would be entered more than 10^15 times.
#[test]
fn no_block_is_entered_twice() {
    let mirrors = Mirrors::new(9, 6);
    let at = |level: u8, number: u64| place(100 + u64::from(7 - level) * 20 + number);
    mirrors.on_both(place(9), &root_tree_of_level(7, 9, (6, at(7, 0)), 9, 9));
    for level in 1..=7 {
        let mut node = empty(RootId::FS_TREE, 6, level);
        let child = |number| ChildPointer {
            key: InodeItem::key(ObjectId(256 + number)),
            logical: at(level - 1, number),
            generation: Generation(6),
        };
        node.children_mut().insert(0, &(0..20).map(child).collect::<Vec<_>>());
        (0..20).for_each(|number| mirrors.on_both(at(level, number), &node));
    }
    assert!(!mirrors.is_refused());
}

/// Both members have the last transaction. What each has at the places 40 and 41, where the logs begin.
#[test]
fn logs_of_which_each_was_written_alone_are_two_histories() {
    let log = |number| file_tree(10, number);
    type Case = (&'static str, [u64; 2], [[Option<u32>; 2]; 2], bool);
    let cases: &[Case] = &[
        ("one log", [40, 40], [[Some(1), None], [Some(1), None]], false),
        ("a copy of it is damaged", [40, 40], [[Some(1), None], [None, None]], false),
        ("two logs at one address", [40, 40], [[Some(1), None], [Some(2), None]], true),
        (
            "the power was cut between two superblocks",
            [40, 41],
            [[Some(1), Some(2)], [Some(1), Some(2)]],
            false,
        ),
        ("each its own", [40, 41], [[Some(1), None], [None, Some(2)]], true),
        ("one went on alone", [40, 41], [[Some(1), None], [Some(1), Some(2)]], true),
    ];
    for (what, roots, blocks, is_refused) in cases {
        let mut mirrors = Mirrors::new(9, 9);
        mirrors.on_both(place(9), &root_tree(9, (9, place(20)), 9, 1));
        for (on, blocks) in blocks.iter().enumerate() {
            for (at, block) in (40..).zip(blocks) {
                block.iter().for_each(|number| mirrors.write(on, place(at), &log(*number)));
            }
        }
        mirrors.evidence.logs = roots
            .iter()
            .zip(1..)
            .map(|(root, device)| {
                let mut superblock = mirrors.superblock.clone();
                (superblock.log_root, superblock.device_item.device) = (place(*root), DeviceId(device));
                superblock
            })
            .collect();
        assert_eq!(mirrors.is_refused(), *is_refused, "{what}");
    }
}

/// One that went on alone, as above; but one member can't read the place where the other has its log. What
/// that member has there proves nothing, neither that the log was written nor that it was not.
#[test]
fn what_a_device_cannot_read_proves_no_history() {
    for unreadable in [None, Some(0), Some(1)] {
        let mut mirrors = Mirrors::new(9, 9);
        mirrors.on_both(place(9), &root_tree(9, (9, place(20)), 9, 1));
        mirrors.on_both(place(40), &file_tree(10, 1));
        mirrors.write(1, place(41), &file_tree(10, 2));
        let log = |(root, device)| {
            let mut superblock = mirrors.superblock.clone();
            (superblock.log_root, superblock.device_item.device) = (place(root), DeviceId(device));
            superblock
        };
        mirrors.evidence.logs = [(40, 1), (41, 2)].map(log).to_vec();
        if let Some(on) = unreadable {
            mirrors.devices[on].fail_reads_of(PHYSICAL[on] + (place(41).0 - CHUNK.0));
        }
        assert_eq!(mirrors.is_refused(), unreadable.is_none(), "{unreadable:?} can't be read");
    }
}

/// The second member is older and has a log, of the next transaction. What each has where that begins.
#[test]
fn a_log_that_the_younger_never_had_is_another_history() {
    let log = |generation, number| file_tree(generation, number);
    type Case = (&'static str, [Option<Block>; 2], bool);
    let cases: [Case; 6] = [
        ("it was away since", [Some(log(8, 1)), Some(log(8, 1))], false),
        ("the younger used the place again", [Some(log(9, 2)), Some(log(8, 1))], false),
        ("the younger has something else there", [None, Some(log(8, 1))], false),
        ("the log is damaged", [Some(log(7, 2)), None], false),
        ("the younger wrote another block there then", [Some(log(8, 2)), Some(log(8, 1))], true),
        ("the younger kept what was there before", [Some(log(7, 2)), Some(log(8, 1))], true),
    ];
    for (what, blocks, is_refused) in cases {
        let mut mirrors = Mirrors::new(9, 7);
        mirrors.on_both(place(7), &root_tree(7, (7, place(20)), 7, 1));
        mirrors.write(0, place(9), &root_tree(9, (7, place(20)), 7, 1));
        mirrors.on_both(place(20), &file_tree(7, 1));
        for (on, block) in blocks.iter().enumerate() {
            block.iter().for_each(|block| mirrors.write(on, place(40), block));
        }
        mirrors.evidence.pasts[0].log_root = place(40);
        assert_eq!(mirrors.is_refused(), is_refused, "{what}");
    }
}
