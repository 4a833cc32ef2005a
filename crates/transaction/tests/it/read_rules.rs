//! What must hold of a block beyond its own bytes: that it is the one that its parent, or the superblock,
//! speaks of. Each rule accepts the right block and names what is wrong with another, with the place.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockFault, BlockIdentity};
use vlinder_format::chunk::{BlockGroupFlags, Chunk, STRIPE_LENGTH, Stripe};
use vlinder_format::inode::{FileType, InodeFault, InodeItem, Mode};
use vlinder_format::superblock::Superblock;
use vlinder_format::{
    Block, Damage, DeviceId, Fault, Generation, ItemType, Key, Level, Logical, ObjectId, Physical, Place,
    RootId, Uuid,
};
use vlinder_tree::{BlockSource, TreeError, VolumeBlocks, WantedBlock};
use vlinder_volume::{Access, CopyFault, Geometry, Member, Volume, VolumeError};

const CHUNK: Logical = Logical(1 << 30);
const AT: Logical = Logical(CHUNK.0 + 65536);
const PHYSICAL: Physical = Physical(1 << 20);
const NODE_SIZE: u32 = 4096;
const FSID: Uuid = Uuid([1; 16]);
const KEY: Key = Key::new(ObjectId(256), ItemType::INODE_ITEM, 0);

fn wanted() -> WantedBlock {
    WantedBlock {
        logical: AT,
        generation: Generation(7),
        level: Level::LEAF,
        first_key: Some(KEY),
        before: None,
        tree: RootId(256),
    }
}

fn identity() -> BlockIdentity {
    BlockIdentity {
        logical: AT,
        generation: Generation(7),
        owner: RootId(300),
        level: Level::LEAF,
        fsid: FSID,
        chunk_tree_uuid: Uuid([2; 16]),
    }
}

fn inode() -> Vec<u8> {
    let mode = Mode::new(FileType::Regular, 0o600);
    InodeItem { link_count: 1, mode, ..InodeItem::default() }.encode().to_vec()
}

/// The bytes of a leaf with one inode item.
fn leaf(identity: &BlockIdentity, item: &[u8]) -> Vec<u8> {
    let mut block = Block::new(NODE_SIZE, identity);
    block.items_mut().insert(0, &[(KEY, item)]);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    let sum = checksum(ChecksumKind::Crc32c, block.checksummed_bytes());
    block.store_checksum(sum.as_field());
    block.bytes().to_vec()
}

/// What reading says of these bytes.
fn read(bytes: Vec<u8>, wanted: &WantedBlock) -> Result<Arc<Block>, Damage> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    let uuid = Uuid([4; 16]);
    let stripes = vec![Stripe { device: DeviceId(1), physical: PHYSICAL, device_uuid: uuid }];
    let chunk = Chunk {
        length: 8 << 20,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags: BlockGroupFlags::METADATA,
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes: 1,
        stripes,
    };
    let geometry = Geometry {
        sector_size: 4096,
        node_size: NODE_SIZE,
        checksum_kind: ChecksumKind::Crc32c,
        mixed_groups: false,
    };
    let physical = vlinder_base::units::Physical(PHYSICAL.0 + AT.0 - CHUNK.0);
    device.write_at(physical, bytes).unwrap();
    let member = Member::new(DeviceId(1), uuid, 16 << 20, device);
    let volume = Volume::new(vec![member], geometry, Access::ReadOnly);
    volume.add_chunk(CHUNK, chunk).unwrap();
    let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
    superblock.fsid = FSID;
    superblock.generation = Generation(7);
    let blocks = VolumeBlocks::new(Arc::new(volume), &superblock, false);
    match blocks.read(&[*wanted]).remove(0) {
        Ok(block) => Ok(block),
        Err(TreeError::Volume(VolumeError::NoGoodCopy { failures, .. })) => match &failures[0].fault {
            CopyFault::Damage(damage) => Err(damage.clone()),
            other => panic!("{other:?}"),
        },
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn refused(bytes: Vec<u8>, wanted: &WantedBlock, fault: BlockFault) {
    let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None };
    assert_eq!(read(bytes, wanted).err(), Some(Damage::new(fault, place)));
}

#[test]
fn the_block_that_is_wanted_is_read() {
    let block = read(leaf(&identity(), &inode()), &wanted()).unwrap();
    assert_eq!(block.first_key(), Some(KEY));
    // A root's first key is not known before.
    read(leaf(&identity(), &inode()), &WantedBlock { first_key: None, ..wanted() }).unwrap();
}

#[test]
fn the_checksum_is_that_of_the_bytes() {
    let mut bytes = leaf(&identity(), &inode());
    bytes[200] ^= 1;
    refused(bytes, &wanted(), BlockFault::Checksum);
}

#[test]
fn a_block_names_its_own_address() {
    let found = Logical(AT.0 + 4096);
    let elsewhere = BlockIdentity { logical: found, ..identity() };
    refused(leaf(&elsewhere, &inode()), &wanted(), BlockFault::Address { found });
}

#[test]
fn a_block_is_of_this_file_system() {
    let stranger = BlockIdentity { fsid: Uuid([9; 16]), ..identity() };
    refused(leaf(&stranger, &inode()), &wanted(), BlockFault::FileSystem);
}

#[test]
fn the_generation_is_what_the_parent_recorded() {
    for found in [Generation(6), Generation(8)] {
        let other = BlockIdentity { generation: found, ..identity() };
        let fault = BlockFault::Generation { found, expected: Generation(7) };
        refused(leaf(&other, &inode()), &wanted(), fault);
    }
}

#[test]
fn the_level_is_one_below_the_parent() {
    let higher = WantedBlock { level: Level(1), ..wanted() };
    let fault = BlockFault::Level { found: Level::LEAF, expected: Level(1) };
    refused(leaf(&identity(), &inode()), &higher, fault);
}

#[test]
fn the_first_key_is_what_the_parent_recorded() {
    for expected in [Key { objectid: ObjectId(255), ..KEY }, Key { offset: 1, ..KEY }] {
        let other = WantedBlock { first_key: Some(expected), ..wanted() };
        let fault = BlockFault::FirstKey { found: KEY, expected };
        refused(leaf(&identity(), &inode()), &other, fault);
    }
}

#[test]
fn the_last_key_lies_before_the_next_child() {
    let behind = WantedBlock { before: Some(Key { offset: 1, ..KEY }), ..wanted() };
    read(leaf(&identity(), &inode()), &behind).unwrap();
    let within = WantedBlock { before: Some(KEY), ..wanted() };
    refused(leaf(&identity(), &inode()), &within, BlockFault::KeyOrder { key: KEY, next: KEY });
}

#[test]
fn the_owner_may_have_blocks_in_the_tree() {
    let owned_by = |owner| leaf(&BlockIdentity { owner, ..identity() }, &inode());
    let of = |tree| WantedBlock { tree, ..wanted() };
    let sound = [
        (RootId::FS_TREE, RootId(300)),
        (RootId(300), RootId::FS_TREE),
        (RootId::ROOT_TREE, RootId::ROOT_TREE),
        (RootId(300), RootId::TREE_LOG),
        (RootId(300), RootId::TREE_RELOCATION),
    ];
    for (owner, tree) in sound {
        read(owned_by(owner), &of(tree)).unwrap_or_else(|fault| panic!("{owner} in {tree}: {fault:?}"));
    }
    let broken = [
        (RootId::FS_TREE, RootId::ROOT_TREE),
        (RootId::EXTENT_TREE, RootId(300)),
        (RootId::EXTENT_TREE, RootId::CHECKSUM_TREE),
    ];
    for (found, tree) in broken {
        refused(owned_by(found), &of(tree), BlockFault::Owner { found, tree });
    }
}

#[test]
fn an_item_that_breaks_its_rule_is_named_with_slot_and_key() {
    let place = Place { tree: Some(RootId(256)), block: Some(AT), slot: Some(0), key: Some(KEY) };
    let fault = Fault::Inode(InodeFault::Size { found: 159 });
    assert_eq!(read(leaf(&identity(), &inode()[1..]), &wanted()).err(), Some(Damage::new(fault, place)));
}
