//! What one input of an item's target stands for.
//!
//! An input is: settings, owner, object id (8), offset (8), what lies before (a type, 0 for nothing; then
//! object id, offset, length and data), and the item's data.

use vlinder_format::features::{CompatFeatures, CompatReadOnlyFeatures, Features, IncompatFeatures};
use vlinder_format::validate::LeafRules;
use vlinder_format::{Generation, ItemType, Key, ObjectId, RootId};

use crate::input::Input;

/// The superblock's generation in every case.
pub const GENERATION: Generation = Generation(100);

/// Owners, those first that rules ask about.
pub const OWNERS: [RootId; 16] = [
    RootId::FS_TREE,
    RootId(256),
    RootId::ROOT_TREE,
    RootId::EXTENT_TREE,
    RootId::CHUNK_TREE,
    RootId::DEVICE_TREE,
    RootId::CHECKSUM_TREE,
    RootId::TREE_LOG,
    RootId::TREE_RELOCATION,
    RootId::DATA_RELOCATION_TREE,
    RootId::UUID_TREE,
    RootId::QUOTA_TREE,
    RootId::FREE_SPACE_TREE,
    RootId::BLOCK_GROUP_TREE,
    RootId::RAID_STRIPE_TREE,
    RootId(1 << 48),
];

/// The file system that one byte describes; 0 is what mkfs.btrfs makes.
pub fn rules(settings: u8) -> LeafRules {
    let bit = |bit: u8| settings & (1 << bit) != 0;
    let mut incompat = if bit(2) { IncompatFeatures::NONE } else { IncompatFeatures::SKINNY_METADATA };
    if bit(3) {
        incompat = incompat.with(IncompatFeatures::MIXED_GROUPS);
    }
    if bit(4) {
        incompat = incompat.with(IncompatFeatures::RAID_STRIPE_TREE);
    }
    let sector_size = [4096, 4096, 16384, 65536][usize::from(settings & 3)];
    LeafRules {
        sector_size,
        node_size: sector_size.max(16384),
        checksum_size: [4, 8, 32, 32][usize::from(settings >> 6)],
        generation: GENERATION,
        features: Features {
            compat: CompatFeatures::NONE,
            compat_read_only: CompatReadOnlyFeatures::NONE,
            incompat,
        },
        writable: !bit(5),
    }
}

/// One item, and what lies before it.
pub struct Case<'a> {
    /// The file system.
    pub rules: LeafRules,
    /// The leaf's owner.
    pub owner: RootId,
    /// The item before.
    pub previous: Option<(Key, &'a [u8])>,
    /// The item's key.
    pub key: Key,
    /// The item's data.
    pub data: &'a [u8],
}

impl<'a> Case<'a> {
    /// Parses an input, which may be of any length.
    pub fn parse(item_type: ItemType, input: &'a [u8]) -> Self {
        let mut input = Input(input);
        let rules = rules(input.u8());
        let owner = input.of(&OWNERS);
        let key = Key::new(ObjectId(input.u64()), item_type, input.u64());
        let before = ItemType(input.u8());
        let previous = (before.0 != 0).then(|| {
            let key = Key::new(ObjectId(input.u64()), before, input.u64());
            let length = input.u8();
            (key, input.take(usize::from(length)))
        });
        Self { rules, owner, previous, key, data: input.rest() }
    }

    /// The input that parses as this, behind the target's byte; `owner` is a position in [`OWNERS`].
    pub fn bytes(settings: u8, owner: u8, previous: Option<(Key, &[u8])>, key: Key, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![settings, owner];
        let mut put = |part: &[u8]| bytes.extend_from_slice(part);
        put(&key.objectid.0.to_le_bytes());
        put(&key.offset.to_le_bytes());
        match previous.filter(|(_, data)| data.len() < 256) {
            Some((before, data)) => {
                put(&[before.item_type.0]);
                put(&before.objectid.0.to_le_bytes());
                put(&before.offset.to_le_bytes());
                put(&[data.len() as u8]);
                put(data);
            }
            None => put(&[0]),
        }
        put(data);
        bytes
    }
}
