//! Floods: more of one thing than anybody has, each of them allowed. Names and attributes that collide by
//! hash, attributes that fill leaves, quota groups in long chains and in rings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_codec::name_hash::name_hash;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaStatus, QuotaStatusFlags, relation_key};
use vlinder_format::{Block, ItemType, Key, Logical, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Filesystem, FsError, OpenOptions, Refusal};

use crate::mutator::Mutator;

/// A way to fill an image.
pub struct Flood {
    /// What it is called.
    pub name: &'static str,
    /// A filled copy of an image.
    pub make: fn(&MemoryDevice) -> MemoryDevice,
}

/// All of them.
pub const FLOODS: &[Flood] = &[
    Flood { name: "names collide by hash, as many as fit, in 30 items side by side", make: colliding_names },
    Flood {
        name: "names that collide by hash go on in the next leaf",
        make: |sound| {
            let image = colliding_names(sound);
            let mutator = Mutator::new(&image);
            continue_in_the_next_leaf(&mutator, ItemType::DIR_ITEM);
            mutator.device().snapshot()
        },
    },
    Flood { name: "an inode has 5,000 attributes", make: many_attributes },
    Flood { name: "an inode has 1,000 attributes that fill a leaf each", make: large_attributes },
    Flood {
        name: "attributes collide by hash, as many as fit, in 30 items side by side",
        make: colliding_attributes,
    },
    Flood {
        name: "attributes that collide by hash go on in the next leaf",
        make: |sound| {
            let image = colliding_attributes(sound);
            let mutator = Mutator::new(&image);
            continue_in_the_next_leaf(&mutator, ItemType::XATTR_ITEM);
            mutator.device().snapshot()
        },
    },
    Flood { name: "quota groups are members in a ring of 20,000", make: |sound| quotas(sound, ring()) },
    Flood { name: "two quota groups contain each other", make: |sound| quotas(sound, pair()) },
    Flood {
        name: "20,000 quota groups in a chain over 3,000 members",
        make: |sound| quotas(sound, chain(20_000, 3_000)),
    },
    Flood { name: "2^10,000 ways lead up through quota groups", make: |sound| quotas(sound, ways(10_000)) },
];

/// The file with the attributes.
pub const FLOODED: &str = "/flooded";

/// A copy of an image, in which something was done.
pub(super) fn with(image: &MemoryDevice, change: impl FnOnce(&Files)) -> MemoryDevice {
    let device = Arc::new(image.snapshot());
    let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    change(&files);
    files.close().unwrap();
    device.snapshot()
}

/// Finds names of a given hash. A CRC of names of one length is linear but for a constant, so that four bytes
/// at the end bring about any.
struct Collider {
    /// By its highest bit, a change of the hash, and the bits of the last four bytes that cause it.
    basis: [(u32, u32); 32],
}

fn hash32(prefix: &[u8], last: u32) -> u32 {
    let mut name = prefix.to_vec();
    name.extend_from_slice(&last.to_le_bytes());
    u32::try_from(name_hash(&name)).unwrap()
}

impl Collider {
    fn new() -> Self {
        let mut basis = [(0, 0); 32];
        for bit in 0..32 {
            let (mut change, mut cause) = (hash32(b"", 1 << bit) ^ hash32(b"", 0), 1 << bit);
            while change != 0 {
                let place = &mut basis[change.ilog2() as usize];
                if place.0 == 0 {
                    *place = (change, cause);
                    break;
                }
                change ^= place.0;
                cause ^= place.1;
            }
        }
        Self { basis }
    }

    /// A name that begins so and has this hash; none where it would have a byte that names don't have.
    fn name(&self, prefix: &[u8], hash: u32) -> Option<Vec<u8>> {
        let (mut change, mut last) = (hash ^ hash32(prefix, 0), 0);
        while change != 0 {
            let (by, cause) = self.basis[change.ilog2() as usize];
            change ^= by;
            last ^= cause;
        }
        let name = [prefix, &last.to_le_bytes()].concat();
        assert_eq!(name_hash(&name), u64::from(hash));
        (!name.iter().any(|byte| matches!(byte, 0 | b'/'))).then_some(name)
    }

    /// Different names of one hash.
    fn names<'a>(&'a self, start: &'a str, hash: u32) -> impl Iterator<Item = Vec<u8>> + 'a {
        (0..).filter_map(move |number: u32| self.name(format!("{start}{number:x}").as_bytes(), hash))
    }
}

/// The first of the hashes that collide.
const HASH: u32 = 0x7000_0000;
/// How many hashes beside one another have as many names as fit.
const HASHES: u32 = 30;

/// How many hashes right before those have two names each: their items share a leaf, in which the first full
/// one has no room.
const SMALL_HASHES: u32 = 5;

/// Adds colliding names: two of each of the small hashes, and of the others until no more fits into one item;
/// at least so many did.
fn fill_hashes(start: &str, add: impl Fn(&[u8]) -> Result<(), FsError>, least: usize) {
    let collider = Collider::new();
    for hash in HASH - SMALL_HASHES..HASH {
        collider.names(start, hash).take(2).for_each(|name| add(&name).unwrap());
    }
    for hash in HASH..HASH + HASHES {
        fill(collider.names(start, hash), &add, least);
    }
}

/// Adds names until no more fits into one item; at least so many did.
fn fill(names: impl Iterator<Item = Vec<u8>>, add: impl Fn(&[u8]) -> Result<(), FsError>, least: usize) {
    let mut added = 0;
    for name in names {
        match add(&name) {
            Ok(()) => added += 1,
            Err(error) => {
                let is_full = error
                    .refusal()
                    .is_some_and(|refusal| matches!(refusal, Refusal::Overflow | Refusal::AttributeTooLong));
                assert!(is_full, "{error}");
                break;
            }
        }
    }
    assert!(added >= least, "only {added} names of one hash");
}

fn colliding_names(sound: &MemoryDevice) -> MemoryDevice {
    with(sound, |files| {
        files.create_dir("/collisions").unwrap();
        let add = |name: &[u8]| files.write(Path::new("/collisions").join(OsStr::from_bytes(name)), "");
        fill_hashes("", add, 90);
    })
}

/// A new file, and a way to give it attributes.
fn with_attributes(
    sound: &MemoryDevice,
    set: impl FnOnce(&dyn Fn(&[u8], &[u8]) -> Result<(), FsError>),
) -> MemoryDevice {
    with(sound, |files| {
        files.write(FLOODED, "flooded").unwrap();
        let file = files.open_file(FLOODED).unwrap();
        let caller = Caller::superuser();
        let mode = AttributeMode::Either;
        set(&|name, value| {
            files.filesystem().attributes().set_extended_attribute(&caller, file.inode(), name, value, mode)
        });
    })
}

fn many_attributes(sound: &MemoryDevice) -> MemoryDevice {
    with_attributes(sound, |set| {
        (0..5_000).for_each(|number| set(format!("user.{number}").as_bytes(), b"value").unwrap());
    })
}

fn large_attributes(sound: &MemoryDevice) -> MemoryDevice {
    with_attributes(sound, |set| {
        let value = vec![b'x'; 3_900];
        (0..1_000).for_each(|number| set(format!("user.{number}").as_bytes(), &value).unwrap());
    })
}

fn colliding_attributes(sound: &MemoryDevice) -> MemoryDevice {
    with_attributes(sound, |set| fill_hashes("user.", |name| set(name, b""), 70))
}

/// Makes the first item of a leaf say that it has the hash of the last one before, which is not alone in its
/// leaf: the two leaves still begin with different keys.
fn continue_in_the_next_leaf(mutator: &Mutator, item_type: ItemType) {
    let hashes = HASH - SMALL_HASHES..HASH + HASHES;
    let is_it = |key: Key| key.item_type == item_type && hashes.contains(&(key.offset as u32));
    for logical in super::blocks(mutator, RootId::FS_TREE) {
        let node = mutator.block(logical);
        if node.level().0 != 1 {
            continue;
        }
        let leaves: Vec<Block> = node.children().map(|child| mutator.block(child.logical)).collect();
        for slot in 1..leaves.len() {
            let (left, right) = (leaves[slot - 1].last_key().unwrap(), leaves[slot].key(0));
            if is_it(left) && is_it(right) && leaves[slot - 1].len() > 1 {
                mutator.change_bytes(leaves[slot].logical(), |bytes| {
                    let start = vlinder_format::block::HEADER_SIZE;
                    bytes[start..start + Key::SIZE].copy_from_slice(&left.encode());
                });
                let child = vlinder_format::block::ChildPointer { key: left, ..node.child(slot) };
                mutator.change_block(logical, |node| node.children_mut().set(slot, &child));
                return;
            }
        }
    }
    panic!("no two leaves with such items under one node");
}

/// Pairs of a member and its group.
type Relations = Vec<(QuotaGroupId, QuotaGroupId)>;

fn group(level: u64, number: u64) -> QuotaGroupId {
    QuotaGroupId(level << 48 | number)
}

/// Three levels, each group a member of one on the next, and from the last back to the first.
fn ring() -> Relations {
    let of = |number: u64| group(1 + number % 3, 1 + number);
    let next = |number: u64| if number == 19_998 { 0 } else { number + 1 };
    (0..19_999).map(|number| (of(number), of(next(number)))).collect()
}

fn pair() -> Relations {
    vec![
        (group(0, 256), group(1, 0)),
        (group(1, 0), group(0, 256)),
        (group(1, 0), group(1, 1)),
        (group(1, 1), group(1, 0)),
    ]
}

fn chain(levels: u64, members: u64) -> Relations {
    let members = (0..members).map(|member| (group(0, 256 + member), group(1, 0)));
    members.chain((1..levels).map(|level| (group(level, 0), group(level + 1, 0)))).collect()
}

/// Two groups on each level, each a member of both above.
fn ways(levels: u64) -> Relations {
    let of_level = |level| (0..4).map(move |pair| (group(level, pair & 1), group(level + 1, pair >> 1)));
    let top = (0..2).map(|number| (group(0, 256), group(1, number)));
    top.chain((1..levels).flat_map(of_level)).collect()
}

/// An image with a few quota groups.
pub(super) fn small_quotas(sound: &MemoryDevice) -> MemoryDevice {
    quotas(sound, pair())
}

/// An image that says that it has these quota groups, and that what they count is right.
fn quotas(sound: &MemoryDevice, relations: Relations) -> MemoryDevice {
    let mutator = Mutator::new(sound);
    let mut items = std::collections::BTreeMap::new();
    let generation = mutator.superblock.generation;
    let status = QuotaStatus {
        version: 1,
        generation,
        flags: QuotaStatusFlags::ON,
        rescan_progress: Logical(0),
        enable_generation: None,
    };
    items.insert(QuotaStatus::KEY, status.encode());
    let info = QuotaGroupInfo { generation, ..QuotaGroupInfo::default() };
    for (member, group) in relations {
        for (one, other) in [(member, group), (group, member)] {
            items.insert(QuotaGroupInfo::key(one), info.encode().to_vec());
            items.insert(relation_key(one, other), Vec::new());
        }
    }
    mutator.plant(RootId::QUOTA_TREE, &items.into_iter().collect::<Vec<_>>());
    mutator.device().snapshot()
}
