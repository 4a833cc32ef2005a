//! References to an extent, where the extent tree has to tell references apart.

use std::collections::HashMap;

use crate::support::{mkfs, open};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_format::extent::{DataReference, Reference};
use vlinder_format::{Logical, ObjectId, RootId};
use vlinder_testkit::{Scratch, kernel, require};
use vlinder_transaction::{DataExtent, Engine, Reservation};

/// An inode, and a file offset less an offset into the extent.
type User = (ObjectId, u64);

fn hash(user: User) -> u64 {
    let (inode, offset) = user;
    Reference::ExtentData(DataReference { root: RootId::FS_TREE, inode, offset, count: 1 })
        .key(Logical(0))
        .offset
}

/// Two users whose references have the same hash, and others.
fn users_of_one_hash() -> ([User; 2], Vec<User>) {
    let random = SeededRandom::new(3);
    let mut seen: HashMap<u64, User> = HashMap::new();
    loop {
        let user = (ObjectId(257 + random.next_u64() % (1 << 40)), random.next_u64() & !4095);
        if let Some(other) = seen.insert(hash(user), user) {
            return ([other, user], seen.into_values().filter(|user| *user != other).take(300).collect());
        }
    }
}

fn change(engine: &Engine, extent: DataExtent, add: bool, users: &[User]) {
    let mut handle = engine.begin(Reservation::items(400)).unwrap();
    for (inode, offset) in users {
        if add {
            handle.add_data_reference(extent, false, RootId::FS_TREE, *inode, *offset);
        } else {
            handle.drop_data_reference(extent, RootId::FS_TREE, *inode, *offset);
        }
    }
    drop(handle);
    engine.commit().unwrap();
}

fn references(engine: &Engine, extent: DataExtent) -> Option<u64> {
    engine
        .begin(Reservation::items(1))
        .unwrap()
        .extent_references(extent.logical, RootId::FS_TREE, ObjectId(0), 0)
        .unwrap()
}

/// The second of two references of one hash lies behind the first, and is found there when the first is gone.
#[test]
fn references_of_one_hash_come_and_go_in_any_order() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("references");
    let image = scratch.path().join("image");
    mkfs(&image, &["-n", "4096"], "128M");
    let engine = open(&image);
    let ([first, second], others) = users_of_one_hash();
    assert_eq!(hash(first), hash(second));
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let extent = handle.allocate_data(4096, 4096).unwrap();
    handle.add_data_reference(extent, true, RootId::FS_TREE, others[0].0, others[0].1);
    drop(handle);
    change(&engine, extent, true, &others[1..]);
    change(&engine, extent, true, &[first]);
    change(&engine, extent, true, &[second]);
    change(&engine, extent, false, &[first]);
    change(&engine, extent, true, &[second]);
    assert_eq!(references(&engine, extent), Some(others.len() as u64 + 2));
    change(&engine, extent, false, &[second, second]);
    change(&engine, extent, false, &others);
    assert_eq!(references(&engine, extent), None);
    drop(engine);
    kernel::btrfs_check(&image).unwrap();
}
