//! One item of a leaf: read, written back, judged.

use vlinder_format::balance::BalanceItem;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::chunk::Chunk;
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::device_replace::DeviceReplace;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::directory::{self, DirectoryEntries, DirectoryEntry};
use vlinder_format::extent::{DataReference, ExtentItem, Reference};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::free_space::{self, FreeSpaceInfo};
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{self, ExtendedReferences, InodeReferences};
use vlinder_format::log::DirectoryLogRange;
use vlinder_format::quota::{QuotaGroupInfo, QuotaGroupLimit, QuotaStatus};
use vlinder_format::root_item::RootItem;
use vlinder_format::root_ref::RootReference;
use vlinder_format::validate::{ItemContext, check_item};
use vlinder_format::verity::{MerkleDescriptor, VerityDescriptor};
use vlinder_format::{ItemType, Key, Logical, ObjectId, RootId, orphan, raid_stripe, uuid_item};

use crate::item_case::Case;
use crate::laws;

/// The target of an item type.
///
/// # Panics
/// Where a law is broken.
pub fn run<const TYPE: u8>(input: &[u8]) {
    judge(&Case::parse(ItemType(TYPE), input));
}

/// Judges one item.
///
/// # Panics
/// Where a law is broken.
pub fn judge(case: &Case<'_>) {
    // In a leaf the item before was judged first, and its key is smaller.
    let previous = case.previous.filter(|(key, data)| {
        let context = ItemContext { rules: &case.rules, owner: case.owner, previous: None };
        *key < case.key && check_item(key, data, &context).is_ok()
    });
    let context = ItemContext { rules: &case.rules, owner: case.owner, previous };
    let verdict = check_item(&case.key, case.data, &context);
    if let Err(fault) = &verdict {
        assert!(!fault.to_string().is_empty(), "a fault says something");
    }
    let is_read = comes_back(case);
    if verdict.is_ok() {
        assert!(is_read, "an item that the rules accept can be read: {}", case.key);
        laws::assert_keeps_the_rules(case);
    }
}

/// Reads an item and writes it again, which must give its bytes; false where it can't be read.
fn comes_back(case: &Case<'_>) -> bool {
    let (key, data) = (&case.key, case.data);
    macro_rules! whole {
        ($decoded:expr) => {
            match $decoded {
                Ok(value) => {
                    assert_eq!(&value.encode()[..], data, "{key}");
                    true
                }
                Err(_) => false,
            }
        };
    }
    match key.item_type {
        ItemType::INODE_ITEM => whole!(InodeItem::decode(data)),
        ItemType::INODE_REF => references(data),
        ItemType::INODE_EXTREF => extended_references(data),
        ItemType::XATTR_ITEM | ItemType::DIR_ITEM | ItemType::DIR_INDEX => entries(data),
        ItemType::VERITY_DESCRIPTOR_ITEM => {
            if let Some(descriptor) = MerkleDescriptor::decode(data) {
                assert_eq!(descriptor.encode()[..], data[..MerkleDescriptor::SIZE]);
            }
            key.offset != 0 || whole!(VerityDescriptor::decode(data))
        }
        ItemType::ORPHAN_ITEM => {
            let named = orphan::orphan_of(key);
            assert!(named.is_none_or(|orphan| orphan::key(orphan) == *key));
            named.is_some()
        }
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => whole!(DirectoryLogRange::decode(data)),
        ItemType::EXTENT_DATA => whole!(FileExtent::decode(data)),
        ItemType::EXTENT_CHECKSUM => checksums(case),
        ItemType::ROOT_ITEM => whole!(RootItem::decode(data)),
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => whole!(RootReference::decode(data)),
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent(case),
        ItemType::TREE_BLOCK_REF
        | ItemType::EXTENT_DATA_REF
        | ItemType::SHARED_BLOCK_REF
        | ItemType::SHARED_DATA_REF => key_reference(key, data),
        ItemType::BLOCK_GROUP_ITEM => whole!(BlockGroupItem::decode(data)),
        ItemType::FREE_SPACE_INFO => whole!(FreeSpaceInfo::decode(data)),
        ItemType::FREE_SPACE_BITMAP => bitmap(data),
        ItemType::DEVICE_EXTENT => whole!(DeviceExtent::decode(data)),
        ItemType::DEVICE_ITEM => whole!(DeviceItem::decode(data)),
        ItemType::CHUNK_ITEM => chunk(data),
        ItemType::RAID_STRIPE => raid_stripe::decode(data).is_ok_and(|strides| !strides.is_empty()),
        ItemType::QUOTA_GROUP_STATUS => whole!(QuotaStatus::decode(data)),
        ItemType::QUOTA_GROUP_INFO => whole!(QuotaGroupInfo::decode(data)),
        ItemType::QUOTA_GROUP_LIMIT => whole!(QuotaGroupLimit::decode(data)),
        ItemType::TEMPORARY_ITEM => key.objectid != ObjectId::BALANCE || whole!(BalanceItem::decode(data)),
        ItemType::PERSISTENT_ITEM => key.objectid != ObjectId::DEVICE_STATS || statistics(data),
        ItemType::DEVICE_REPLACE => whole!(DeviceReplace::decode(data)),
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => subvolumes(key, data),
        // Key alone, or bytes that nobody interprets.
        _ => true,
    }
}

fn references(data: &[u8]) -> bool {
    let Ok(all) = InodeReferences::new(data).collect::<Result<Vec<_>, _>>() else { return false };
    let mut again = Vec::new();
    all.iter().for_each(|entry| entry.append_to(&mut again));
    assert_eq!(again, data);
    for entry in all.iter().take(3) {
        let first = all.iter().find(|other| other.name == entry.name);
        assert_eq!(inode_ref::find(data, entry.name).ok().flatten().as_ref(), first);
        let mut left = data.to_vec();
        assert_eq!(inode_ref::remove(&mut left, entry.name), Ok(true));
        assert_eq!(left.len() + entry.encoded_len(), data.len());
        assert_eq!(InodeReferences::new(&left).filter_map(Result::ok).count(), all.len() - 1);
    }
    true
}

fn extended_references(data: &[u8]) -> bool {
    let Ok(all) = ExtendedReferences::new(data).collect::<Result<Vec<_>, _>>() else { return false };
    let mut again = Vec::new();
    all.iter().for_each(|entry| entry.append_to(&mut again));
    assert_eq!(again, data);
    for entry in all.iter().take(3) {
        let first = all.iter().find(|other| other.name == entry.name && other.parent == entry.parent);
        assert_eq!(inode_ref::find_extended(data, entry.parent, entry.name).ok().flatten().as_ref(), first);
        let mut left = data.to_vec();
        assert_eq!(inode_ref::remove_extended(&mut left, entry.parent, entry.name), Ok(true));
        assert_eq!(left.len() + entry.encoded_len(), data.len());
        assert_eq!(ExtendedReferences::new(&left).filter_map(Result::ok).count(), all.len() - 1);
    }
    true
}

fn entries(data: &[u8]) -> bool {
    let Ok(all) = DirectoryEntries::new(data).collect::<Result<Vec<_>, _>>() else { return false };
    let mut again = Vec::new();
    all.iter().for_each(|entry| entry.append_to(&mut again));
    assert_eq!(again, data);
    assert_eq!(DirectoryEntry::decode(data).ok(), if all.len() == 1 { Some(all[0]) } else { None });
    for entry in all.iter().take(3) {
        let first = all.iter().find(|other| other.name == entry.name);
        assert_eq!(directory::find(data, entry.name).ok().flatten().as_ref(), first);
        let mut left = data.to_vec();
        assert_eq!(directory::remove(&mut left, entry.name), Ok(true));
        assert_eq!(Some(left.len()), first.map(|first| data.len() - first.encoded_len()));
        assert_eq!(DirectoryEntries::new(&left).filter_map(Result::ok).count(), all.len() - 1);
    }
    true
}

fn checksums(case: &Case<'_>) -> bool {
    let geometry = ChecksumGeometry {
        sector_size: case.rules.sector_size,
        checksum_size: case.rules.checksum_size,
        node_size: case.rules.node_size,
    };
    let (start, data) = (Logical(case.key.offset), case.data);
    let size = case.rules.checksum_size as usize;
    let Some(end) = geometry.end(start, data.len()) else { return false };
    assert_eq!(end.0 - start.0, geometry.covered(data.len()));
    let entries = data.len() / size;
    for number in [0, entries / 2, entries.wrapping_sub(1), entries] {
        let wanted = data.get(number.wrapping_mul(size)..).and_then(|rest| rest.get(..size));
        let step = (number as u64).checked_mul(u64::from(case.rules.sector_size));
        let Some(logical) = step.and_then(|step| start.0.checked_add(step)) else { continue };
        assert_eq!(geometry.entry(start, data, Logical(logical)), wanted, "entry {number} of {entries}");
    }
    true
}

/// An extent item comes back, and a reference that is added to it can be dropped again.
fn extent(case: &Case<'_>) -> bool {
    let (key, data) = (&case.key, case.data);
    let Ok(item) = ExtentItem::decode(key.item_type, data) else { return false };
    assert_eq!(item.encode(), data);
    assert_eq!(item.size(), data.len());
    assert_eq!(ExtentItem::decode_header(data).ok(), Some(item.header));
    let added = [
        Reference::TreeBlock { root: RootId(key.offset) },
        Reference::SharedData { parent: Logical(key.offset), count: 3 },
        Reference::ExtentData(DataReference {
            root: RootId(5),
            inode: ObjectId(257),
            offset: key.offset,
            count: 1,
        }),
    ];
    let known = item.inline.first().cloned();
    for reference in added.into_iter().chain(known) {
        let room = u64::MAX - item.header.references;
        let before = item.position(&reference).ok().and_then(|at| item.inline.get(at));
        let fits = before.is_none_or(|found| found.count().checked_add(reference.count()).is_some());
        let mut changed = item.clone();
        let added = changed.add(reference.clone());
        if room < u64::from(reference.count()) || !fits {
            assert!(added.is_err(), "a count that can't grow is refused");
            assert_eq!(changed, item, "and nothing is changed");
            continue;
        }
        assert_eq!(added, Ok(()));
        assert!(changed.position(&reference).is_ok(), "what was added is found");
        assert_eq!(
            changed.header.references,
            item.header.references + u64::from(reference.count()),
            "the header counts it"
        );
        // A block referred to twice in the same way would be gone with the first: no tree does so.
        if before.is_none() || reference.is_counted() {
            assert_eq!(changed.drop_reference(&reference), Ok(()));
            if reference.count() != 0 && before.is_none_or(|found| found.count() != 0) {
                assert_eq!(changed, item, "what was added and dropped is gone");
            }
        }
    }
    true
}

fn key_reference(key: &Key, data: &[u8]) -> bool {
    match Reference::decode_item(key, data) {
        Some(Ok(reference)) => {
            assert_eq!(reference.encode_item(), data);
            assert_eq!(reference.item_type(), key.item_type);
            if !matches!(reference, Reference::ExtentData(_)) {
                assert_eq!(reference.key(Logical(key.objectid.0)), *key);
            }
            let mut inline = Vec::new();
            reference.encode_inline(&mut inline);
            assert_eq!(inline.len(), reference.inline_size());
            true
        }
        Some(Err(_)) => false,
        None => panic!("{key} is a reference"),
    }
}

/// The runs of a bitmap are its bits, and setting what is set changes nothing.
fn bitmap(data: &[u8]) -> bool {
    let sectors = data.len().min(256) as u64 * 8;
    let bit = |sector: u64| data[(sector / 8) as usize] >> (sector % 8) & 1 != 0;
    let mut next = 0;
    let mut again = vec![0; data.len()];
    for (start, count) in free_space::bitmap_runs(data, sectors) {
        assert!(start >= next && count > 0 && (next..start).all(|sector| !bit(sector)));
        assert!((start..start + count).all(bit));
        assert_eq!(free_space::bitmap_set(&mut again, start, count, true), Ok(()));
        next = start + count;
        assert!(next >= sectors || !bit(next), "a run is as long as it can be");
    }
    assert_eq!(again[..(sectors / 8) as usize], data[..(sectors / 8) as usize]);
    assert_eq!(free_space::bitmap_bit(data, data.len() as u64 * 8), None);
    true
}

fn chunk(data: &[u8]) -> bool {
    let whole = Chunk::decode(data);
    if let Ok((chunk, rest)) = Chunk::decode_prefix(data) {
        assert_eq!(chunk.encode(), data[..data.len() - rest.len()]);
        assert_eq!(whole.is_ok(), rest.is_empty());
        let _ = chunk.stripe_bytes();
    } else {
        assert!(whole.is_err());
    }
    whole.is_ok()
}

fn statistics(data: &[u8]) -> bool {
    let Ok((counters, rest)) = DeviceStatistics::decode(data) else { return false };
    let mut again = counters.encode().to_vec();
    again.extend_from_slice(rest);
    assert_eq!(again[..data.len()], *data);
    assert!(again[data.len()..].iter().all(|byte| *byte == 0));
    true
}

fn subvolumes(key: &Key, data: &[u8]) -> bool {
    let named = uuid_item::uuid_of(key);
    assert!(named.is_some_and(|(kind, uuid)| uuid_item::key(kind, uuid) == *key));
    let Ok(all) = uuid_item::decode(data).map(Iterator::collect::<Vec<_>>) else { return false };
    assert_eq!(uuid_item::encode(all.iter().copied()), data);
    let mut item = data.to_vec();
    uuid_item::append(&mut item, RootId(77));
    assert_eq!(item.len(), data.len() + 8);
    let before = all.contains(&RootId(77));
    assert_eq!(uuid_item::remove(&mut item, RootId(77)), Ok(true));
    assert!(before || item == data);
    true
}
