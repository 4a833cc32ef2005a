//! One damage at a time, in images that the kernel made. Each says what must be found: the finding with all
//! its fields and its place, worked out from what was changed and what was written there, and whatever
//! follows from it; nothing else may be found.

mod blocks;
mod checksums;
mod extents;
mod file_extents;
mod free_space;
mod image;
mod inodes;
mod layout;
mod names;
mod roots;
mod superblock;

use vlinder_base::sync::Arc;
use vlinder_check::{Finding, FindingKind, Options};
use vlinder_device::MemoryDevice;
use vlinder_format::{ItemType as Type, ObjectId, Place};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;

use crate::common;
use crate::common::expected::{Expected, only};
use crate::common::place;
use crate::damage::image::{FILL, FS};

/// Name, damage, and what must be found.
type Damage = (&'static str, fn(&Mutator) -> Expected);

const FAMILIES: &[&[Damage]] = &[
    superblock::DAMAGES,
    blocks::DAMAGES,
    inodes::DAMAGES,
    names::DAMAGES,
    file_extents::DAMAGES,
    checksums::DAMAGES,
    extents::DAMAGES,
    layout::DAMAGES,
    free_space::DAMAGES,
    roots::DAMAGES,
];

/// What is found in an image, data compared with their checksums too.
fn findings(device: Arc<MemoryDevice>) -> Vec<Finding> {
    let options = Options { data_checksums: true, ..Options::default() };
    common::report_of(device, &options).findings
}

/// Does each damage of a family to an image of its own.
#[track_caller]
fn assert_each_is_found(damages: &[Damage]) {
    let image = image::filled();
    let mut wrong = Vec::new();
    for (name, damage) in damages {
        let mutator = Mutator::new(image);
        let expected = damage(&mutator);
        if let Err(difference) = expected.compare(&findings(mutator.device())) {
            wrong.push(format!("{name}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_but_what_was_expected_will_do() {
    let place = |slot| Place { slot: Some(slot), ..Place::default() };
    let size = |found| FindingKind::DirectorySize { inode: ObjectId(257), found, expected: 4 };
    let finding = |found, slot| Finding { kind: size(found), place: place(slot) };
    let expected = only(size(6), place(1));
    expected.compare(&[finding(6, 1)]).unwrap();
    let others: [&[Finding]; 6] = [
        &[],
        &[finding(6, 2)],
        &[finding(7, 1)],
        &[finding(6, 1), finding(6, 1)],
        &[finding(6, 1), finding(7, 1)],
        &[finding(6, 1), Finding { kind: FindingKind::RootDirectory {}, place: place(1) }],
    ];
    for found in others {
        expected.compare(found).unwrap_err();
    }

    let expected = only(size(6), place(1)).and(size(6), place(2)).besides(["root-directory"]);
    let other = Finding { kind: FindingKind::RootDirectory {}, place: place(9) };
    expected.compare(&[other.clone(), finding(6, 2), finding(6, 1), other.clone()]).unwrap();
    expected.compare(&[finding(6, 2), finding(6, 1)]).unwrap_err();
    expected.compare(&[finding(6, 1), finding(6, 1), other]).unwrap_err();
}

/// The positive case of each damage: the same image before it.
#[test]
fn nothing_is_found_without_damage() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    assert_eq!(findings(Arc::new(image::filled().snapshot())), []);
}

#[test]
fn there_are_ninety_kinds_of_damage() {
    let names: std::collections::BTreeSet<&str> =
        FAMILIES.iter().copied().flatten().map(|(name, _)| *name).collect();
    assert!(names.len() >= 90, "{}", names.len());
    assert_eq!(names.len(), FAMILIES.iter().map(|family| family.len()).sum::<usize>(), "each has its name");
    println!("{} kinds of damage are found", names.len());
}

#[test]
fn a_missing_hole_is_found_where_holes_are_items() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = common::image(&["-O", "^no-holes"], FILL);
    assert_eq!(findings(Arc::new(image.snapshot())), [], "the image without damage");
    let mutator = Mutator::new(&image);
    let hole = mutator.find(FS, |key, data| {
        key.item_type == Type::EXTENT_DATA && data.len() == 53 && data[21..29] == [0; 8] && key.offset == 0
    });
    let inode = mutator.find_of(hole.key.objectid, Type::INODE_ITEM);
    mutator.remove(hole);
    let kind = FindingKind::FileHole { inode: hole.key.objectid, start: 0 };
    only(kind, place(FS, inode)).compare(&findings(mutator.device())).unwrap();
}
