use super::*;
use crate::block::{BLOCK_FLAG_WRITTEN, BlockIdentity};
use crate::features::Features;
use crate::inode::{FileType, InodeFault, InodeItem, Mode};
use crate::types::{Generation, Level, Uuid};

/// A file system of 4 KiB sectors and 16 KiB nodes at generation 100, open for writing.
pub(crate) const RULES: LeafRules = LeafRules {
    sector_size: 4096,
    node_size: 16384,
    checksum_size: 4,
    generation: Generation(100),
    features: Features {
        compat: crate::features::CompatFeatures::NONE,
        compat_read_only: crate::features::CompatReadOnlyFeatures::NONE,
        incompat: crate::features::IncompatFeatures::NONE,
    },
    writable: true,
};

/// Checks an item of subvolume 256.
pub(crate) fn check_in_subvolume(
    key: &Key,
    data: &[u8],
    previous: Option<(Key, &[u8])>,
) -> Result<(), Fault> {
    check_item(key, data, &ItemContext { rules: &RULES, owner: RootId(256), previous })
}

#[track_caller]
pub(crate) fn assert_sound(key: &Key, data: &[u8], previous: Option<(Key, &[u8])>) {
    assert_eq!(check_in_subvolume(key, data, previous), Ok(()));
}

#[track_caller]
pub(crate) fn assert_fault(key: &Key, data: &[u8], previous: Option<(Key, &[u8])>, fault: impl Into<Fault>) {
    assert_eq!(check_in_subvolume(key, data, previous), Err(fault.into()));
}

fn leaf(items: &[(Key, &[u8])]) -> Block {
    let identity = BlockIdentity {
        logical: Logical(1 << 20),
        generation: Generation(7),
        owner: RootId(256),
        level: Level::LEAF,
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    };
    let mut block = Block::new(RULES.node_size, &identity);
    block.items_mut().insert(0, items);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    block
}

#[test]
fn the_damage_names_block_slot_and_key() {
    let inode =
        InodeItem { link_count: 1, mode: Mode::new(FileType::Regular, 0o600), ..InodeItem::default() };
    let (first, second) = (InodeItem::key(ObjectId(256)), InodeItem::key(ObjectId(257)));
    let sound = inode.encode();
    assert_eq!(validate_leaf(&leaf(&[(first, &sound), (second, &sound)]), &RULES), Ok(()));
    let found = validate_leaf(&leaf(&[(first, &sound), (second, &sound[1..])]), &RULES).unwrap_err();
    let damage = found.into_damage(Some(RootId(300)), Logical(1 << 20));
    assert_eq!(damage.fault, Fault::Inode(InodeFault::Size { found: 159 }));
    assert_eq!(
        *damage.place,
        Place { tree: Some(RootId(300)), block: Some(Logical(1 << 20)), slot: Some(1), key: Some(second) }
    );
}

#[test]
fn item_types_that_no_family_claims_pass() {
    assert_sound(&Key::new(ObjectId(1), ItemType(77), 3), b"anything", None);
}

#[test]
fn a_subvolume_number_leaves_the_quota_level_clear() {
    assert!(
        is_file_tree(RootId::FS_TREE) && is_file_tree(RootId(256)) && is_file_tree(RootId((1 << 48) - 1))
    );
    assert!(!is_file_tree(RootId(255)) && !is_file_tree(RootId(1 << 48)) && !is_file_tree(RootId::TREE_LOG));
}

/// Of which slots the items have to go.
fn faulty(items: &[(Key, &[u8])]) -> Vec<u32> {
    faulty_items(&leaf(items), &RULES).into_iter().map(|fault| fault.slot).collect()
}

/// An inode item of a regular file, and the key of a run of its bytes.
fn file(number: u64) -> ((Key, [u8; 160]), impl Fn(u64) -> Key) {
    let item = InodeItem { link_count: 1, mode: Mode::new(FileType::Regular, 0o600), ..InodeItem::default() };
    let number = ObjectId(number);
    ((InodeItem::key(number), item.encode()), move |offset| Key::new(number, ItemType::EXTENT_DATA, offset))
}

fn run(bytes: u64) -> Vec<u8> {
    let range = crate::file_extent::ExtentRange {
        address: Logical(1 << 30),
        disk_bytes: 1 << 20,
        offset_bytes: 0,
        file_bytes: bytes,
    };
    crate::file_extent::FileExtent {
        generation: Generation(7),
        ram_bytes: 1 << 20,
        compression: crate::file_extent::CompressionId::NONE,
        encryption: 0,
        other_encoding: 0,
        content: crate::file_extent::FileExtentContent::Regular(range),
    }
    .encode()
}

#[test]
fn only_what_breaks_a_rule_by_itself_has_to_go() {
    let (((one, item), at), ((two, _), _)) = (file(256), file(257));
    let (sound, odd) = (run(4096), [&run(4096)[..], &[0]].concat());
    assert_eq!(faulty(&[(one, &item), (at(0), &sound), (two, &item)]), []);
    // The items of an inode whose own is faulty stay.
    let other = Key::new(ObjectId(257), ItemType::EXTENT_DATA, 0);
    let ours = [(one, &item[..]), (at(0), &sound), (two, &item[1..]), (other, &sound)];
    assert_eq!(faulty(&ours), [2]);
    assert_eq!(faulty(&ours[2..]), [0]);
    // Those of one that has no inode item at all do not, as before; what follows them has its own before it.
    let missing = [(one, &item[..]), (other, &sound[..])];
    assert_eq!(faulty(&missing), [1]);
    // What a faulty run says of its end, or can't say, counts for nothing.
    for wrong in [odd, run(u64::MAX - 4095)] {
        assert_eq!(faulty(&[(one, &item), (at(0), &wrong), (at(8192), &sound)]), [1]);
    }
    assert_eq!(faulty_items(&leaf(&ours), &RULES)[0], validate_leaf(&leaf(&ours), &RULES).unwrap_err());
}

#[test]
fn of_runs_that_overlap_the_odd_one_has_to_go() {
    let ((one, item), at) = file(256);
    let (endless, long, short) = (run(1 << 40), run(8192), run(4096));
    let all = [
        (one, &item[..]),
        (at(0), &short),
        (at(4096), &endless),
        (at(8192), &long),
        (at(16384), &short),
        (at(20480), &short),
    ];
    assert_eq!(faulty(&all), [2], "it reaches over all that follow");
    assert_eq!(faulty(&all[..4]), [2], "and past its extent");
    let inside = [all[0], (at(0), &run(65536)[..]), (at(4096), &long), (at(12288), &short)];
    assert_eq!(faulty(&inside), [1]);
    assert_eq!(
        faulty(&inside[..3]),
        [2],
        "either may be wrong: the first one counts, as when the file is read"
    );
    let low = [all[0], (at(0), &long[..]), (at(4096), &short), (at(8192), &short)];
    assert_eq!(faulty(&low), [2], "one that begins in the run before it");
    let also_odd = [all[0], all[2], (at(8192), &short[1..]), all[4], all[5]];
    assert_eq!(faulty(&also_odd), [1, 2]);
    let missing = [all[0], (Key::new(ObjectId(300), ItemType::EXTENT_DATA, 0), &short[..])];
    let without_inode = Key::new(ObjectId(300), ItemType::EXTENT_DATA, 4096);
    assert_eq!(faulty(&[missing[0], missing[1], (without_inode, &short)]), [1]);
}
