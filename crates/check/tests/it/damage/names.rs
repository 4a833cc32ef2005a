//! Names: in a directory by hash and by index, and in the inode; and the names of attributes.

use vlinder_check::FindingKind;
use vlinder_codec::name_hash::name_hash;
use vlinder_format::directory::{DirectoryEntryType, DirectoryFault};
use vlinder_format::inode_ref;
use vlinder_format::{ItemType as Type, Key, ObjectId, Place};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::{Expected, only};
use crate::damage::Damage;
use crate::damage::image::{
    FS, ROOT_DIRECTORY, at_key, hashed, indexed, inode, of, place, root_directory, u64_at,
};

/// What the index lacks of what others have of a name.
const INDEX_LACKS: [&str; 2] = [
    "is not in the directory's index as it is in the inode",
    "is not in the directory's index as it is by its hash",
];
/// What others lack of what the index has.
const INDEX_ALONE: [&str; 2] = [
    "is not in the inode as it is in the directory's index",
    "is not there by its hash as it is in the directory's index",
];

/// A name in the root directory that something is wrong with.
pub fn name_of(child: ObjectId, reason: &'static str) -> (FindingKind, Place) {
    let kind = FindingKind::Name { directory: ROOT_DIRECTORY, child, reason };
    (kind, at_key(FS, Key::new(ROOT_DIRECTORY, Type::DIR_ITEM, 0)))
}

/// Findings of a name that leads to these, for these reasons.
fn names(wrong: [(ObjectId, [&'static str; 2]); 2]) -> Expected {
    let mut all = wrong.into_iter().flat_map(|(child, reasons)| reasons.map(|reason| name_of(child, reason)));
    let (kind, place) = all.next().unwrap();
    all.fold(only(kind, place), |expected, (kind, place)| expected.and(kind, place))
}

/// One entry of a name is gone: the directory's size counts it.
fn directory_size(m: &Mutator, name: &str) -> (FindingKind, Place) {
    let directory = root_directory(m);
    let found = u64_at(m, directory, 16);
    let expected = found - name.len() as u64;
    let inode = directory.key.objectid;
    (FindingKind::DirectorySize { inode, found, expected }, place(FS, directory))
}

pub const DAMAGES: &[Damage] = &[
    ("no entry by hash", |m| {
        m.remove(hashed(m, "name-5"));
        let ((size, directory), (kind, place)) =
            (directory_size(m, "name-5"), name_of(inode(m, "name-5"), INDEX_ALONE[1]));
        only(kind, place).and(size, directory)
    }),
    ("no entry in the index", |m| {
        let child = inode(m, "name-5");
        m.remove(indexed(m, "name-5"));
        let ((size, directory), [(in_inode, place), (by_hash, _)]) =
            (directory_size(m, "name-5"), INDEX_LACKS.map(|reason| name_of(child, reason)));
        only(in_inode, place).and(by_hash, place).and(size, directory)
    }),
    ("the root directory's own reference", |m| {
        let own = m.find(FS, |key, _| key == inode_ref::key(ROOT_DIRECTORY, ROOT_DIRECTORY));
        m.change_item(own, |data| data[0] = 1);
        let reason = "is not `..` in the root directory's own reference";
        let kind = FindingKind::Name { directory: ROOT_DIRECTORY, child: ROOT_DIRECTORY, reason };
        only(kind, place(FS, own))
    }),
    ("entry to another inode", |m| {
        let child = inode(m, "name-5");
        let other = ObjectId(child.0 + 1);
        m.set_u64(indexed(m, "name-5"), 0, other.0);
        names([(child, INDEX_LACKS), (other, INDEX_ALONE)])
    }),
    ("entry of another type", |m| {
        let child = inode(m, "name-5");
        m.change_item(indexed(m, "name-5"), |data| data[29] = DirectoryEntryType::DIRECTORY.0);
        names([(child, INDEX_LACKS), (child, INDEX_ALONE)])
    }),
    ("entry of another name", |m| {
        let entry = hashed(m, "name-5");
        m.change_item(entry, |data| data[30] = b'X');
        let fault = DirectoryFault::Hash { found: name_hash(b"Xame-5"), expected: name_hash(b"name-5") };
        only(FindingKind::Item { fault: fault.into() }, place(FS, entry))
    }),
    ("hash of an attribute", |m| {
        let found = of(m, "file", Type::XATTR_ITEM);
        let key = Key { offset: found.key.offset + 1, ..found.key };
        m.set_key(found, key);
        let hash = name_hash(b"user.name");
        let fault = DirectoryFault::Hash { found: hash, expected: hash + 1 };
        only(FindingKind::Item { fault: fault.into() }, place(FS, Found { key, ..found }))
    }),
];

#[test]
fn damaged_names_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
