//! What an item that was accepted must be like: the rules of docs/reliability.md once more, read from the
//! bytes by their offsets and from nothing else, so that a decoder that reads the wrong field and a rule that
//! forgets one are both seen.

use vlinder_codec::name_hash::name_hash;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::{ItemType, ObjectId, RootId};

use crate::item_case::{Case, GENERATION};

fn le64(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap_or_default())
}

fn le32(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap_or_default())
}

fn le16(data: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(data[at..at + 2].try_into().unwrap_or_default()))
}

const NEWEST: u64 = GENERATION.0 + 1;
const LAST_FREE: u64 = 0u64.wrapping_sub(256);

fn is_inode(number: u64) -> bool {
    (256..=LAST_FREE).contains(&number)
}

fn is_subvolume(root: u64) -> bool {
    root == 5 || (256..1 << 48).contains(&root)
}

/// Asserts what the rules promise of an item that they accepted.
///
/// # Panics
/// Where they do not keep it.
pub fn assert_keeps_the_rules(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    let (object, offset, length) = (key.objectid.0, key.offset, data.len());
    match key.item_type {
        ItemType::INODE_ITEM => inode(case),
        ItemType::INODE_REF => names(data, 10, |entry| le16(entry, 8)),
        ItemType::INODE_EXTREF => names(data, 18, |entry| le16(entry, 16)),
        ItemType::XATTR_ITEM | ItemType::DIR_ITEM | ItemType::DIR_INDEX => entries(case),
        ItemType::EXTENT_DATA => file_extent(case),
        ItemType::EXTENT_CHECKSUM => {
            let size = case.rules.checksum_size as usize;
            assert!(object == 0u64.wrapping_sub(10) && length >= size && length.is_multiple_of(size));
            let covered = (length / size) as u64 * u64::from(case.rules.sector_size);
            assert!(aligned(case, offset) && offset.checked_add(covered).is_some());
        }
        ItemType::ROOT_ITEM => root(case),
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => {
            let name = le16(data, 16);
            assert!((1..=255).contains(&name) && length == 18 + name);
        }
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent(case),
        ItemType::TREE_BLOCK_REF => assert!(aligned(case, object) && length == 0),
        ItemType::SHARED_BLOCK_REF => assert!(aligned(case, object) && aligned(case, offset) && length == 0),
        ItemType::EXTENT_DATA_REF => {
            assert!(aligned(case, object) && length == 28);
            data_reference(case, data);
        }
        ItemType::SHARED_DATA_REF => {
            assert!(aligned(case, object) && aligned(case, offset) && length == 4 && le32(data, 0) > 0);
        }
        ItemType::BLOCK_GROUP_ITEM => {
            assert!(length == 24 && offset != 0 && le64(data, 0) <= offset && le64(data, 8) == 256);
            assert!((le64(data, 16) >> 3 & 0x7f).count_ones() + (le64(data, 16) >> 10 & 1) as u32 <= 1);
            assert!([1, 2, 4, 5].contains(&(le64(data, 16) & 7)));
        }
        ItemType::FREE_SPACE_INFO | ItemType::FREE_SPACE_EXTENT | ItemType::FREE_SPACE_BITMAP => {
            free_space(case)
        }
        ItemType::DEVICE_EXTENT => {
            assert!(length == 48 && le64(data, 0) == 3 && le64(data, 8) == 256 && le64(data, 24) != 0);
            assert!([offset, le64(data, 16), le64(data, 24)].iter().all(|value| aligned(case, *value)));
        }
        ItemType::DEVICE_ITEM => {
            assert!(object == 1 && length == 98 && le64(data, 0) == offset);
            assert!(le64(data, 16) <= le64(data, 8), "used is at most all");
        }
        ItemType::CHUNK_ITEM => chunk(case),
        ItemType::RAID_STRIPE => {
            assert!(case.rules.features.incompat.has(IncompatFeatures::RAID_STRIPE_TREE));
            assert!(length > 0 && length.is_multiple_of(16) && aligned(case, object));
        }
        ItemType::ORPHAN_ITEM => assert!(object == 0u64.wrapping_sub(5) && length == 0),
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => {
            assert!(length > 0 && length.is_multiple_of(8));
        }
        ItemType::QUOTA_GROUP_STATUS => assert!(object == 0 && offset == 0 && [32, 40].contains(&length)),
        ItemType::QUOTA_GROUP_INFO | ItemType::QUOTA_GROUP_LIMIT => assert!(object == 0 && length == 40),
        ItemType::QUOTA_GROUP_RELATION => assert!(object != offset && length == 0),
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => assert!(length == 8 && le64(data, 0) >= offset),
        ItemType::VERITY_DESCRIPTOR_ITEM if offset == 0 => assert_eq!(length, 25),
        ItemType::VERITY_DESCRIPTOR_ITEM | ItemType::VERITY_MERKLE_ITEM => {
            assert!(length > 0 && offset.checked_add(length as u64).is_some());
        }
        ItemType::TEMPORARY_ITEM if key.objectid == ObjectId::BALANCE => assert_eq!(length, 448),
        ItemType::DEVICE_REPLACE => assert_eq!(length, 72),
        _ => {}
    }
    foreign_inode(case);
}

fn aligned(case: &Case<'_>, value: u64) -> bool {
    value.is_multiple_of(u64::from(case.rules.sector_size))
}

/// In a subvolume, names, attributes and extents come behind something of their own inode.
fn foreign_inode(case: &Case<'_>) {
    let of_an_inode = [
        ItemType::INODE_REF,
        ItemType::INODE_EXTREF,
        ItemType::XATTR_ITEM,
        ItemType::DIR_ITEM,
        ItemType::DIR_INDEX,
        ItemType::EXTENT_DATA,
    ];
    let Some((before, data)) = case.previous else { return };
    let context =
        vlinder_format::validate::ItemContext { rules: &case.rules, owner: case.owner, previous: None };
    let was_given =
        before < case.key && vlinder_format::validate::check_item(&before, data, &context).is_ok();
    if was_given && of_an_inode.contains(&case.key.item_type) && is_subvolume(case.owner.0) {
        assert_eq!(before.objectid, case.key.objectid);
    }
}

fn inode(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    assert!(data.len() == 160 && key.offset == 0);
    assert!(is_inode(key.objectid.0) || [6, 0u64.wrapping_sub(12)].contains(&key.objectid.0));
    assert!(le64(data, 0) <= NEWEST && le64(data, 8) <= NEWEST);
    let mode = le32(data, 52);
    assert!(mode & !0o177_777 == 0, "mode {mode:o}");
    let kinds = [0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o100_000, 0o120_000, 0o140_000];
    assert!(kinds.contains(&(mode & 0o170_000)), "mode {mode:o}");
    let is_directory = mode & 0o170_000 == 0o040_000;
    assert!(!is_directory || le32(data, 40) <= 1, "links of a directory");
    // The upper half of the flags are those that forbid only writing.
    let (flags, known) = (le64(data, 64), 0x8000_0fff_u64);
    assert_eq!(flags & 0xffff_ffff & !known, 0, "flags {flags:#x}");
    assert!(!case.rules.writable || flags >> 32 & !1 == 0, "flags {flags:#x}");
}

fn names(mut data: &[u8], header: usize, name_length: impl Fn(&[u8]) -> usize) {
    assert!(data.len() > header);
    while !data.is_empty() {
        let name = name_length(data);
        assert!((1..=255).contains(&name));
        data = &data[header + name..];
    }
}

fn entries(case: &Case<'_>) {
    let mut data = case.data;
    let is_attribute = case.key.item_type == ItemType::XATTR_ITEM;
    let mut count = 0;
    while !data.is_empty() {
        count += 1;
        let (object, location_type, location_offset) = (le64(data, 0), data[8], le64(data, 9));
        let (value, name, kind) = (le16(data, 25), le16(data, 27), data[29]);
        assert!((1..=255).contains(&name));
        assert!(30 + name + value <= case.rules.node_size as usize - 101 - 25);
        if is_attribute {
            assert!(kind == 8 && (object, location_type, location_offset) == (0, 0, 0));
        } else {
            assert!((1..=7).contains(&kind) && value == 0);
            match location_type {
                1 => assert!(
                    location_offset == 0
                        && (is_inode(object) || [6, 0u64.wrapping_sub(12)].contains(&object))
                ),
                132 => assert!(is_subvolume(object)),
                other => panic!("a name leads to an item of type {other}"),
            }
        }
        if case.key.item_type != ItemType::DIR_INDEX {
            assert_eq!(name_hash(&data[30..30 + name]), case.key.offset);
        }
        data = &data[30 + name + value..];
    }
    assert!(count == 1 || count > 1 && case.key.item_type != ItemType::DIR_INDEX);
}

fn file_extent(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    assert!(data.len() >= 21 && aligned(case, key.offset));
    let (ram, compression, kind) = (le64(data, 8), data[16], data[20]);
    assert!(compression <= 3 && data[17] == 0 && kind <= 2);
    if kind == 0 {
        assert_eq!(key.offset, 0);
        assert!(compression != 0 || ram == data.len() as u64 - 21);
    } else {
        assert_eq!(data.len(), 53);
        let [address, on_disk, skipped, shown] = [21, 29, 37, 45].map(|at| le64(data, at));
        assert!([ram, address, on_disk, skipped, shown].iter().all(|value| aligned(case, *value)));
        assert!(key.offset.checked_add(shown).is_some() && address.checked_add(on_disk).is_some());
    }
    assert!(compression == 0 || ram <= 128 << 10, "what is decompressed is bounded");
}

fn root(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    assert!(key.objectid.0 != 0 && [239, 439].contains(&data.len()));
    assert!(key.objectid.0 != RootId::TREE_RELOCATION.0 || is_subvolume(key.offset));
    assert!(le64(data, 160) <= NEWEST && le64(data, 200) <= NEWEST);
    assert!(data.len() == 239 || le64(data, 239) <= NEWEST);
    assert!(aligned(case, le64(data, 176)) && data[237] < 8 && data[238] < 8);
    assert_eq!(le64(data, 208) & !(1 | 1 << 48), 0, "flags");
}

fn data_reference(case: &Case<'_>, data: &[u8]) {
    let (root, inode) = (le64(data, 0), le64(data, 8));
    assert!(is_subvolume(root) || [1, 0u64.wrapping_sub(9)].contains(&root));
    assert!(is_inode(inode) && aligned(case, le64(data, 16)) && le32(data, 24) > 0);
}

fn extent(case: &Case<'_>) {
    let (key, mut data) = (&case.key, case.data);
    let is_metadata_item = key.item_type == ItemType::METADATA_ITEM;
    assert!(!is_metadata_item || case.rules.features.incompat.has(IncompatFeatures::SKINNY_METADATA));
    assert!(aligned(case, key.objectid.0) && data.len() >= 24);
    let (total, generation, flags) = (le64(data, 0), le64(data, 8), le64(data, 16));
    assert!(generation <= NEWEST && (flags & 3 == 1 || flags & 3 == 2));
    let is_data = flags & 1 != 0;
    data = &data[24..];
    if is_data {
        assert!(!is_metadata_item && flags & 1 << 8 == 0 && key.offset > 0 && aligned(case, key.offset));
    } else if is_metadata_item {
        assert!(key.offset < 8);
    } else {
        assert!(key.offset == u64::from(case.rules.node_size) && data[17] < 8);
        data = &data[18..];
    }
    let (mut inline, mut last) = (0u64, 0);
    while !data.is_empty() {
        let kind = data[0];
        assert!(kind >= last, "types ascend");
        last = kind;
        let size = match kind {
            172 if is_data => 9,
            176 | 182 if !is_data => {
                inline += 1;
                9
            }
            178 if is_data => {
                data_reference(case, &data[1..]);
                inline = inline.saturating_add(u64::from(le32(data, 25)));
                29
            }
            184 if is_data => {
                inline = inline.saturating_add(u64::from(le32(data, 9)));
                13
            }
            other => panic!("an inline reference of type {other}"),
        };
        assert!(!matches!(kind, 182 | 184) || aligned(case, le64(data, 1)));
        data = &data[size..];
    }
    assert!(inline <= total);
}

fn chunk(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    let (length, stripe, flags) = (le64(data, 0), le64(data, 16), le64(data, 24));
    let (stripes, sub_stripes) = (le16(data, 44), le16(data, 46));
    assert!(key.objectid.0 == 256 && aligned(case, key.offset) && stripes > 0);
    assert_eq!(data.len(), 48 + 32 * stripes);
    assert!(length > 0 && aligned(case, length) && length < 65536 << 32);
    assert!(key.offset.checked_add(length).is_some());
    assert!(stripe == 65536 && le32(data, 40) == case.rules.sector_size);
    let is_mixed = case.rules.features.incompat.has(IncompatFeatures::MIXED_GROUPS);
    assert!([1, 2, 4].contains(&(flags & 7)) || flags & 7 == 5 && is_mixed);
    assert_eq!(flags & !0x7ff, 0);
    // RAID0 8, RAID1 16, DUP 32, RAID10 64, RAID5 128, RAID6 256, RAID1C3 512, RAID1C4 1024.
    let fits = match flags & !7 {
        0 => stripes == 1,
        8 => stripes >= 1,
        16 => stripes == 2,
        32 => stripes == 2,
        64 => stripes >= 2 && stripes.is_multiple_of(2) && sub_stripes == 2,
        128 => stripes >= 2,
        256 => stripes >= 3,
        512 => stripes == 3,
        1024 => stripes == 4,
        _ => false,
    };
    assert!(fits, "{stripes} stripes, {sub_stripes} of them alike, of type {flags:#x}");
}

fn free_space(case: &Case<'_>) {
    let (key, data) = (&case.key, case.data);
    assert!(aligned(case, key.objectid.0) && aligned(case, key.offset) && key.offset > 0);
    assert!(key.objectid.0.checked_add(key.offset).is_some());
    let sectors = key.offset / u64::from(case.rules.sector_size);
    match key.item_type {
        ItemType::FREE_SPACE_INFO => {
            assert!(data.len() == 8 && u64::from(le32(data, 0)) <= sectors && le32(data, 4) <= 1);
        }
        ItemType::FREE_SPACE_EXTENT => assert!(data.is_empty()),
        _ => assert!(sectors <= 2048 && data.len() as u64 == sectors.div_ceil(8)),
    }
}
