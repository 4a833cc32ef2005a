//! Logs that are damaged or made by an enemy: each is refused with the reason, or replayed; nothing panics,
//! and what is refused leaves the image as it was.

use crate::support;
use crate::support::log_maker::{has_log, make_log};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, compress};
use vlinder_device::MemoryDevice;
use vlinder_format::file_extent::{CompressionId, FileExtent};
use vlinder_format::root_item::RootItem;
use vlinder_format::{Block, ItemType, Key, ObjectId, RootId};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::{Scratch, require};
use vlinder_transaction::ReadOnlyReason;

/// An image with a log of names, links, attributes, extents and checksums.
fn logged() -> MemoryDevice {
    let scratch = Scratch::in_memory("hostile-log");
    let before = "mkdir A; write A/foo 0 300k; touch A/gone; ln A/foo A/link; setfattr -n user.a -v 1 A/foo";
    let after = "write A/foo 100k 30k 7; touch A/new; rm A/gone; ln A/new A/new2; setfattr -n user.b -v 2 A/foo; \
                 setfattr -x user.a A/foo; fsync A/foo; fsync A";
    // Linux may commit instead of logging; beside other tests that was seen once.
    let logged = (0..5).map(|_| make_log(&scratch, &[], "", before, after).0).find(|cut| has_log(cut));
    let cut = logged.expect("Linux makes a log");
    MemoryDevice::from_bytes(&std::fs::read(cut).unwrap())
}

fn options(list: &str) -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::parse(list).unwrap() }
}

fn log_root_leaf(mutator: &Mutator) -> Block {
    mutator.block(mutator.superblock.log_root)
}

/// The leaf of the only log.
fn log_leaf(mutator: &Mutator) -> Block {
    let roots = log_root_leaf(mutator);
    let item = RootItem::decode(roots.data(0)).unwrap();
    let leaf = mutator.block(item.address);
    assert!(leaf.is_leaf());
    leaf
}

fn found(leaf: &Block, is_it: impl Fn(Key, &[u8]) -> bool) -> Found {
    let slot = (0..leaf.len()).find(|slot| is_it(leaf.key(*slot), leaf.data(*slot))).unwrap();
    Found { leaf: leaf.logical(), slot, key: leaf.key(slot) }
}

/// Why the log was not replayed; the image must be as it was, for readers too.
fn refusal(mutator: &Mutator) -> String {
    let device = mutator.device();
    let before = device.written_chunks();
    let mut reasons = Vec::new();
    for list in ["rw", "ro"] {
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options(list)).unwrap();
        let Some(ReadOnlyReason::LogReplay(reason)) = filesystem.engine().read_only_reason() else {
            panic!("{:?}", filesystem.engine().read_only_reason());
        };
        // What is shown is the last commit.
        assert!(support::walk(&filesystem).contains("A/gone"));
        filesystem.close().unwrap();
        reasons.push(reason);
    }
    assert!(before == device.written_chunks(), "the image changed");
    assert_eq!(reasons[0], reasons[1]);
    reasons.remove(0)
}

#[test]
fn a_damaged_log_is_refused_and_the_image_stays() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("setfattr"));
    let image = logged();
    type Damage = fn(&Mutator);
    let cases: &[(&str, Damage)] = &[
        ("checksum", |mutator| {
            let leaf = log_leaf(mutator).logical();
            mutator.flip_bit(leaf, 0, 300);
            mutator.flip_bit(leaf, 1, 300);
        }),
        ("no generation after", |mutator| {
            let item = found(&log_root_leaf(mutator), |key, _| key.item_type == ItemType::ROOT_ITEM);
            mutator.add_u64(item, 160, 1);
        }),
        ("the parent recorded", |mutator| {
            let item = found(&log_root_leaf(mutator), |key, _| key.item_type == ItemType::ROOT_ITEM);
            mutator.add_u64(item, 160, u64::MAX);
        }),
        ("no subvolume", |mutator| {
            let item = found(&log_root_leaf(mutator), |key, _| key.item_type == ItemType::ROOT_ITEM);
            mutator.set_key(item, Key { offset: RootId::CHECKSUM_TREE.0, ..item.key });
        }),
        ("not free", |mutator| {
            let item = found(&log_root_leaf(mutator), |key, _| key.item_type == ItemType::ROOT_ITEM);
            mutator.set_u64(item, 176, mutator.root(RootId::FS_TREE).0);
        }),
        ("not free", |mutator| {
            let chunk_root = mutator.superblock.chunk_root;
            mutator.change_superblock(|superblock| superblock.log_root = chunk_root);
        }),
        // A log that points at its own root tree.
        ("not free", |mutator| {
            let item = found(&log_root_leaf(mutator), |key, _| key.item_type == ItemType::ROOT_ITEM);
            mutator.set_u64(item, 176, mutator.superblock.log_root.0);
        }),
        // Data that lie in metadata.
        ("not free", |mutator| {
            let item = found(&log_leaf(mutator), |key, data| {
                key.item_type == ItemType::EXTENT_DATA && FileExtent::decode(data).unwrap().range().is_some()
            });
            mutator.set_u64(item, 21, mutator.superblock.log_root.0);
        }),
        ("which does not exist", |mutator| {
            let item = found(&log_leaf(mutator), |key, _| key.item_type == ItemType::EXTENT_DATA);
            let missing = ObjectId(item.key.objectid.0 + 100);
            let last = |key: Key, _: &[u8]| key.item_type == ItemType::EXTENT_DATA;
            let leaf = log_leaf(mutator);
            let slot = (0..leaf.len()).rev().find(|slot| last(leaf.key(*slot), leaf.data(*slot))).unwrap();
            let item = Found { leaf: leaf.logical(), slot, key: leaf.key(slot) };
            for later in (slot + 1..leaf.len()).rev() {
                mutator.remove(Found { leaf: leaf.logical(), slot: later, key: leaf.key(later) });
            }
            mutator.set_key(item, Key { objectid: missing, ..item.key });
        }),
        // A name that the log removes is in its directory, and not among the inode's references.
        ("has no such name", |mutator| {
            let item = mutator.find(RootId::FS_TREE, |key, data| {
                key.item_type == ItemType::INODE_REF && data.ends_with(b"gone")
            });
            mutator.change_item(item, |data| {
                let place = data.len() - 4;
                data[place..].copy_from_slice(b"gane");
            });
        }),
        // A new name has the index of another, which stays.
        ("another entry at index", |mutator| {
            replace_link(mutator, |data| {
                let of_foo = index_place(data, b"foo");
                let of_link = index_place(data, b"lonk");
                data.copy_within(of_foo..of_foo + 8, of_link);
            });
        }),
        // An extent that covers a part of what is inline, which only an enemy's inline data is long enough
        // for.
        ("a part of inline data", |mutator| inline(mutator, 128 << 10)),
    ];
    for (expected, damage) in cases {
        let mutator = Mutator::new(&image);
        damage(&mutator);
        let reason = refusal(&mutator);
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

/// Where the index of a name lies in an item of references.
fn index_place(references: &[u8], name: &[u8]) -> usize {
    references.windows(name.len()).position(|found| found == name).unwrap() - 10
}

/// Makes the log say that the file's name `link` is `lonk`, and changes its references further.
fn replace_link(mutator: &Mutator, change: impl FnOnce(&mut [u8])) {
    let is_it = |data: &[u8]| data.windows(4).any(|name| name == b"link");
    let item = found(&log_leaf(mutator), |key, data| key.item_type == ItemType::INODE_REF && is_it(data));
    mutator.change_item(item, |data| {
        let place = index_place(data, b"link") + 10;
        data[place..place + 4].copy_from_slice(b"lonk");
        change(data);
    });
}

/// Makes the first so many bytes of `A/foo` zeros in its item, as they were at the last commit.
fn inline(mutator: &Mutator, bytes: usize) {
    let extent = mutator.find(RootId::FS_TREE, |key, data| {
        let is_run = key.item_type == ItemType::EXTENT_DATA && key.offset == 0;
        is_run && FileExtent::decode(data).unwrap().file_bytes() == 300 << 10
    });
    let mut packed = Vec::new();
    let zeros = vec![0; bytes];
    assert!(compress(Compression::Zlib, 3, &zeros, 4096, 4096, &mut packed).unwrap());
    let item = FileExtent {
        ram_bytes: bytes as u64,
        compression: CompressionId::ZLIB,
        ..FileExtent::inline(&packed, mutator.superblock.generation)
    };
    mutator.remove(extent);
    mutator.insert(RootId::FS_TREE, extent.key, &item.encode());
}

/// What refused changes begin with is no fault by itself. (That the unchanged log removes a name:
/// `a_reader_may_leave_the_log`.)
#[test]
fn a_log_may_replace_name_and_inline_data() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("setfattr"));
    let image = logged();
    let replayed = |mutator: &Mutator| {
        let devices = vec![mutator.device() as _];
        let filesystem = Filesystem::open_devices(devices, options("rw")).unwrap();
        let walk = support::walk(&filesystem);
        assert_eq!(filesystem.engine().read_only_reason(), None);
        filesystem.close().unwrap();
        walk
    };
    let mutator = Mutator::new(&image);
    replace_link(&mutator, |_| {});
    let walk = replayed(&mutator);
    assert!(walk.contains("A/lonk") && !walk.contains("A/link"), "{walk}");
    // The new extent begins behind it.
    let mutator = Mutator::new(&image);
    inline(&mutator, 4096);
    assert!(replayed(&mutator).contains("A/new2"));
}

#[test]
fn a_reader_may_leave_the_log() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("setfattr"));
    let device = Arc::new(logged());
    let before = device.written_chunks();
    let walk = |list| {
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options(list)).unwrap();
        support::walk(&filesystem)
    };
    let (left, replayed) = (walk("ro,rescue=nologreplay"), walk("ro"));
    assert!(left.contains("A/gone") && !left.contains("A/new"), "{left}");
    assert!(!replayed.contains("A/gone") && replayed.contains("A/new2"), "{replayed}");
    // Where nothing is damaged, nothing that was fsynced is left out for the sake of a rescue.
    assert_eq!(walk("ro,rescue=usebackuproot"), replayed);
    assert!(before == device.written_chunks(), "readers changed the image");
    assert!(OpenOptions::parse("rescue=nologreplay").unwrap().check().is_err());
}

/// Any bytes in a log: no panic, and a log that is refused changes nothing.
#[test]
fn any_bytes_in_a_log_end_in_a_replay_or_a_refusal() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("setfattr"));
    let image = logged();
    let random = SeededRandom::new(7);
    let below = |most: usize| (random.next_u64() % most as u64) as usize;
    let (mut refused, mut replayed) = (0, 0);
    for _ in 0..400 {
        let mutator = Mutator::new(&image);
        let leaf = if below(8) == 0 { log_root_leaf(&mutator) } else { log_leaf(&mutator) };
        let slot = below(leaf.len());
        let item = Found { leaf: leaf.logical(), slot, key: leaf.key(slot) };
        let length = leaf.data(slot).len();
        for _ in 0..=below(2) {
            let value = match below(5) {
                0 => 0,
                1 => u64::MAX,
                2 => 1 << below(64),
                3 => random.next_u64(),
                _ => 256 + below(6) as u64,
            };
            let (offset, width) = (below(length.max(1)), [1, 2, 4, 8][below(4)]);
            if below(3) == 0 {
                let key = match below(3) {
                    0 => Key { objectid: ObjectId(value), ..item.key },
                    1 => Key { item_type: ItemType(value as u8), ..item.key },
                    _ => Key { offset: value, ..item.key },
                };
                mutator.set_key(item, key);
                // The order of keys may be broken now, so that nothing else can be changed.
                break;
            } else {
                mutator.change_item(item, |data| {
                    let end = data.len().min(offset + width);
                    let bytes = value.to_le_bytes();
                    data[offset.min(end)..end].copy_from_slice(&bytes[..end - offset.min(end)]);
                });
            }
        }
        let device = mutator.device();
        let before = device.written_chunks();
        let opened = Filesystem::open_devices(vec![Arc::clone(&device) as _], options("rw"));
        let filesystem = opened.expect("the last commit is sound");
        match filesystem.engine().read_only_reason() {
            None => {
                replayed += 1;
                let _ = filesystem
                    .root()
                    .and_then(|root| filesystem.names().lookup(&support::root_user(), &root, b"A").map(drop));
            }
            Some(ReadOnlyReason::LogReplay(_)) => {
                refused += 1;
                assert!(before == device.written_chunks(), "a log was refused, and the image changed");
            }
            Some(other) => panic!("{other}"),
        }
        let _ = filesystem.close();
    }
    assert!(refused > 50 && replayed > 20, "{refused} refused, {replayed} replayed");
}
