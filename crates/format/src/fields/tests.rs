use super::*;
use crate::block::{BLOCK_FLAG_WRITTEN, Block, BlockIdentity, BlockRules, ChildPointer};
use crate::directory::{DirectoryEntries, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use crate::extent::{DataReference, ExtentFlags, ExtentItem, Reference, TreeBlockInfo};
use crate::file_extent::FileExtent;
use crate::inode_ref::{ExtendedReference, ExtendedReferences, InodeReference, InodeReferences};
use crate::root_ref::RootReference;
use crate::superblock::Superblock;
use crate::types::{Generation, Level, Logical, RootId, Uuid};

const CHECKSUM_SIZE: u32 = 4;

fn key(item_type: ItemType) -> Key {
    let objectid = match item_type {
        ItemType::TEMPORARY_ITEM => ObjectId::BALANCE,
        ItemType::PERSISTENT_ITEM => ObjectId::DEVICE_STATS,
        _ => ObjectId(256),
    };
    Key::new(objectid, item_type, 0)
}

/// An entry with a name and data.
fn entry() -> Vec<u8> {
    let entry = DirectoryEntry {
        location: Key::MIN,
        transaction: Generation(0),
        entry_type: DirectoryEntryType::DIRECTORY,
        name: b"name",
        data: b"data",
    };
    entry.encode()
}

/// An extent with a reference of each kind.
fn extent(item_type: ItemType, flags: ExtentFlags, info: Option<TreeBlockInfo>) -> (Key, Vec<u8>) {
    let mut item = ExtentItem::new_data(Generation(1));
    (item.header.flags, item.tree_block) = (flags, info);
    item.add(Reference::ExtentOwner { root: RootId(5) }).unwrap();
    item.add(Reference::TreeBlock { root: RootId(5) }).unwrap();
    let data = DataReference { root: RootId(5), inode: ObjectId(257), offset: 0, count: 1 };
    item.add(Reference::ExtentData(data)).unwrap();
    item.add(Reference::SharedBlock { parent: Logical(4096) }).unwrap();
    item.add(Reference::SharedData { parent: Logical(4096), count: 1 }).unwrap();
    (key(item_type), item.encode())
}

/// A chunk of two stripes.
fn chunk() -> Vec<u8> {
    let mut chunk = vec![0; 48 + 2 * 32];
    chunk[44] = 2;
    chunk
}

/// An item or more of each type.
fn samples() -> Vec<(Key, Vec<u8>)> {
    let info = TreeBlockInfo { first_key: Key::MIN, level: Level::LEAF };
    let name = InodeReference { index: DirectoryIndex(2), name: b"ab" }.encode();
    let extended =
        ExtendedReference { parent: ObjectId(256), index: DirectoryIndex(2), name: b"ab" }.encode();
    let root = RootReference { directory: ObjectId(256), index: DirectoryIndex(2), name: b"ab" }.encode();
    let inline = FileExtent::inline(b"abc", Generation(1)).encode();
    let regular = FileExtent::whole(Logical(4096), 4096, Generation(1)).encode();
    let preallocated = FileExtent::preallocated(Logical(4096), 4096, Generation(1)).encode();
    let piece = Key { offset: 1, ..key(ItemType::VERITY_DESCRIPTOR_ITEM) };
    let mut samples = vec![
        (piece, vec![0; 260]),
        extent(ItemType::EXTENT_ITEM, ExtentFlags::DATA, None),
        extent(ItemType::EXTENT_ITEM, ExtentFlags::TREE_BLOCK, Some(info)),
        extent(ItemType::METADATA_ITEM, ExtentFlags::TREE_BLOCK, None),
    ];
    samples.extend([inline, regular, preallocated].map(|data| (key(ItemType::EXTENT_DATA), data)));
    samples.extend(WITHOUT_DATA.map(|item_type| (key(item_type), Vec::new())));
    samples.extend(
        [
            (ItemType::INODE_ITEM, vec![0; 160]),
            (ItemType::INODE_REF, name.repeat(2)),
            (ItemType::INODE_EXTREF, extended.repeat(2)),
            (ItemType::XATTR_ITEM, entry()),
            (ItemType::DIR_ITEM, entry().repeat(2)),
            (ItemType::DIR_INDEX, entry()),
            (ItemType::VERITY_DESCRIPTOR_ITEM, vec![0; 25]),
            (ItemType::VERITY_MERKLE_ITEM, vec![0; 8]),
            (ItemType::DIR_LOG_ITEM, vec![0; 8]),
            (ItemType::DIR_LOG_INDEX, vec![0; 8]),
            (ItemType::EXTENT_CHECKSUM, vec![0; 12]),
            (ItemType::ROOT_ITEM, vec![0; 239]),
            (ItemType::ROOT_ITEM, vec![0; 439]),
            (ItemType::ROOT_REF, root.clone()),
            (ItemType::ROOT_BACKREF, root),
            (ItemType::EXTENT_DATA_REF, vec![0; 28]),
            (ItemType::SHARED_DATA_REF, vec![0; 4]),
            (ItemType::BLOCK_GROUP_ITEM, vec![0; 24]),
            (ItemType::FREE_SPACE_INFO, vec![0; 8]),
            (ItemType::FREE_SPACE_BITMAP, vec![0; 16]),
            (ItemType::DEVICE_EXTENT, vec![0; 48]),
            (ItemType::DEVICE_ITEM, vec![0; 98]),
            (ItemType::CHUNK_ITEM, chunk()),
            (ItemType::RAID_STRIPE, vec![0; 32]),
            (ItemType::QUOTA_GROUP_STATUS, vec![0; 32]),
            (ItemType::QUOTA_GROUP_STATUS, vec![0; 40]),
            (ItemType::QUOTA_GROUP_INFO, vec![0; 40]),
            (ItemType::QUOTA_GROUP_LIMIT, vec![0; 40]),
            (ItemType::TEMPORARY_ITEM, vec![0; 448]),
            (ItemType::PERSISTENT_ITEM, vec![0; 48]),
            (ItemType::DEVICE_REPLACE, vec![0; 72]),
            (ItemType::UUID_SUBVOLUME, vec![0; 16]),
            (ItemType::UUID_RECEIVED_SUBVOLUME, vec![0; 16]),
        ]
        .map(|(item_type, data)| (key(item_type), data)),
    );
    samples
}

/// What the decoder of an item makes of its data, as text.
fn decoded(key: &Key, data: &[u8]) -> String {
    match key.item_type {
        ItemType::INODE_ITEM => format!("{:?}", inode::InodeItem::decode(data)),
        ItemType::INODE_REF => format!("{:?}", InodeReferences::new(data).collect::<Vec<_>>()),
        ItemType::INODE_EXTREF => format!("{:?}", ExtendedReferences::new(data).collect::<Vec<_>>()),
        ItemType::XATTR_ITEM | ItemType::DIR_ITEM | ItemType::DIR_INDEX => {
            format!("{:?}", DirectoryEntries::new(data).collect::<Vec<_>>())
        }
        ItemType::VERITY_DESCRIPTOR_ITEM if key.offset == 0 => {
            format!("{:?}", verity::VerityDescriptor::decode(data))
        }
        ItemType::VERITY_DESCRIPTOR_ITEM => {
            format!("{:?} {:?}", verity::MerkleDescriptor::decode(data), data.get(256..))
        }
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => {
            format!("{:?}", log::DirectoryLogRange::decode(data))
        }
        ItemType::EXTENT_DATA => format!("{:?}", FileExtent::decode(data)),
        ItemType::ROOT_ITEM => format!("{:?}", root_item::RootItem::decode(data)),
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => format!("{:?}", RootReference::decode(data)),
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => {
            format!("{:?}", ExtentItem::decode(key.item_type, data))
        }
        ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF => {
            format!("{:?}", Reference::decode_item(key, data))
        }
        ItemType::BLOCK_GROUP_ITEM => format!("{:?}", block_group::BlockGroupItem::decode(data)),
        ItemType::FREE_SPACE_INFO => format!("{:?}", free_space::FreeSpaceInfo::decode(data)),
        ItemType::DEVICE_EXTENT => format!("{:?}", device::DeviceExtent::decode(data)),
        ItemType::DEVICE_ITEM => format!("{:?}", device::DeviceItem::decode(data)),
        ItemType::CHUNK_ITEM => format!("{:?}", chunk::Chunk::decode(data)),
        ItemType::RAID_STRIPE => format!("{:?}", raid_stripe::decode(data)),
        ItemType::QUOTA_GROUP_STATUS => format!("{:?}", quota::QuotaStatus::decode(data)),
        ItemType::QUOTA_GROUP_INFO => format!("{:?}", quota::QuotaGroupInfo::decode(data)),
        ItemType::QUOTA_GROUP_LIMIT => format!("{:?}", quota::QuotaGroupLimit::decode(data)),
        ItemType::TEMPORARY_ITEM => format!("{:?}", balance::BalanceItem::decode(data)),
        ItemType::PERSISTENT_ITEM => format!("{:?}", device_statistics::DeviceStatistics::decode(data)),
        ItemType::DEVICE_REPLACE => format!("{:?}", device_replace::DeviceReplace::decode(data)),
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => {
            format!("{:?}", uuid_item::decode(data).map(Iterator::collect::<Vec<_>>))
        }
        // Bits, checksums and pieces are read as they are.
        _ => format!("{data:?}"),
    }
}

/// Asserts that fields cover `length` bytes, each once, and that the decoder reads each byte of each.
#[track_caller]
fn assert_read(
    what: &str,
    bytes: &[u8],
    fields: &[PlacedField],
    length: usize,
    read: impl Fn(&[u8]) -> String,
) {
    let mut end = 0;
    let sound = read(bytes);
    for field in fields {
        assert_eq!(field.start, end, "{what}: {field:?}");
        end += field.width;
        for place in field.start..end {
            let mut changed = bytes.to_vec();
            changed[place] ^= 0x41;
            assert_ne!(read(&changed), sound, "{what}: byte {place}, {field:?}");
        }
    }
    assert_eq!(end, length, "{what}: bytes that no field covers");
}

#[test]
fn every_type_of_item_has_its_fields_listed() {
    let samples = samples();
    for item_type in ItemType::NAMED {
        assert!(samples.iter().any(|(key, _)| key.item_type == *item_type), "{item_type} has no sample");
    }
    for (key, data) in &samples {
        let fields = of_item(key, data, CHECKSUM_SIZE);
        assert_eq!(fields.is_empty(), WITHOUT_DATA.contains(&key.item_type), "{key}");
    }
}

#[test]
fn the_fields_of_an_item_are_what_its_decoder_reads() {
    for (key, data) in samples() {
        let fields = of_item(&key, &data, CHECKSUM_SIZE);
        assert_read(&key.to_string(), &data, &fields, data.len(), |data| decoded(&key, data));
    }
}

#[test]
fn the_fields_of_a_superblock_are_what_its_decoder_reads() {
    let mut bytes = vec![0; 4096];
    let entry = [&key(ItemType::CHUNK_ITEM).encode()[..], &chunk()].concat();
    bytes[811..811 + entry.len()].copy_from_slice(&entry);
    bytes[160] = u8::try_from(entry.len()).unwrap();
    let read = |bytes: &[u8]| {
        let superblock = Superblock::decode(bytes).unwrap();
        let chunks: Vec<_> = superblock.system_chunks().collect();
        // The label shows its bytes up to a zero byte, the array nothing; both keep all.
        format!("{superblock:?} {chunks:?} {:?} {:?}", superblock.label.0, superblock.system_chunk_array.0)
    };
    let fields = Superblock::fields(&bytes);
    assert!(fields.iter().any(|field| field.structure == "Stripe"), "{fields:?}");
    assert_read("superblock", &bytes, &fields, 4096, read);
}

#[test]
fn the_fields_of_a_block_are_what_its_accessors_read() {
    let rules = BlockRules { node_size: 4096, sector_size: 4096 };
    for level in 0..2 {
        let identity = BlockIdentity {
            logical: Logical(1 << 20),
            generation: Generation(7),
            owner: RootId(256),
            level: Level(level),
            fsid: Uuid([1; 16]),
            chunk_tree_uuid: Uuid([2; 16]),
        };
        let mut block = Block::new(4096, &identity);
        if level == 0 {
            block
                .items_mut()
                .insert(0, &[(key(ItemType::INODE_ITEM), &[7; 160]), (key(ItemType::XATTR_ITEM), &[7; 9])]);
        } else {
            let (logical, generation) = (Logical(1 << 21), Generation(7));
            block
                .children_mut()
                .insert(0, &[ChildPointer { key: key(ItemType::XATTR_ITEM), logical, generation }]);
        }
        block.set_flag(BLOCK_FLAG_WRITTEN, true);
        let read = |bytes: &[u8]| match Block::parse(bytes.into(), &rules) {
            Err(fault) => format!("{fault:?}"),
            Ok(block) => {
                let identity = (
                    block.header().fsid(),
                    block.header().chunk_tree_uuid(),
                    block.header().stored_checksum().to_vec(),
                );
                let flags = (block.header().flags(), block.header().back_reference_revision());
                let keys: Vec<Key> = (0..block.len()).map(|slot| block.key(slot)).collect();
                let data: Vec<usize> =
                    (0..block.len()).filter(|_| block.is_leaf()).map(|slot| block.data_len(slot)).collect();
                let children: Vec<_> =
                    (0..block.len()).filter(|_| !block.is_leaf()).map(|slot| block.child(slot)).collect();
                format!("{block:?} {identity:?} {flags:?} {keys:?} {data:?} {children:?}")
            }
        };
        let entries = if level == 0 { 2 * 25 } else { 33 };
        assert_read("block", block.bytes(), &block.header().fields(), 101 + entries, read);
    }
}

/// Where a decoder's table is made, its name is; the samples must hold each structure, or another one that
/// does.
#[test]
fn every_structure_of_the_sources_is_listed() {
    let mut sources = String::new();
    let mut pending = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            sources.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let mut listed: Vec<&str> = Vec::new();
    let samples = samples();
    for (key, data) in &samples {
        listed.extend(of_item(key, data, CHECKSUM_SIZE).iter().map(|field| field.structure));
    }
    let records = sources.lines().filter_map(|line| {
        let (name, raw) = line.trim().strip_prefix("pub struct ")?.split_once(" in Raw")?;
        raw.ends_with("bytes {").then_some(name)
    });
    let mut count = 0;
    for name in records {
        count += 1;
        let is_inner = [format!(": {name},"), format!(": [{name}; ")].iter().any(|field| {
            sources.lines().any(|line| {
                line.trim().starts_with(|first: char| first.is_lowercase()) && line.contains(field.as_str())
            })
        });
        assert!(listed.contains(&name) || is_inner || name == "Superblock", "{name} is in no item");
    }
    assert!(count > 25, "{count}");
}
