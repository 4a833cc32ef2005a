use super::*;
use crate::fault::Fault;
use crate::key::{ItemType, Key};
use crate::types::{Generation, ObjectId};
use crate::validate::tests::{assert_fault, assert_sound};
use proptest::prelude::*;

proptest! {
    #[test]
    fn decode_and_encode_are_inverse(bytes in proptest::collection::vec(any::<u8>(), InodeItem::SIZE)) {
        let inode = InodeItem::decode(&bytes).unwrap();
        prop_assert_eq!(&inode.encode()[..], &bytes[..]);
    }

    #[test]
    fn any_other_size_is_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if bytes.len() != InodeItem::SIZE {
            prop_assert_eq!(InodeItem::decode(&bytes), Err(InodeFault::Size { found: bytes.len() }));
        }
    }
}

fn file() -> InodeItem {
    InodeItem {
        generation: Generation(7),
        transaction: Generation(8),
        size_bytes: 5,
        link_count: 1,
        mode: Mode::new(FileType::Regular, 0o644),
        ..InodeItem::default()
    }
}

const KEY: Key = InodeItem::key(ObjectId(257));

#[track_caller]
fn refused(inode: &InodeItem, fault: InodeFault) {
    assert_fault(&KEY, &inode.encode(), None, Fault::Inode(fault));
}

#[test]
fn fields_lie_where_the_format_says() {
    let inode = InodeItem {
        link_count: 0x0403_0201,
        flags: InodeFlags::NODATACOW,
        modification_time: Timestamp { seconds: -2, nanoseconds: 9 },
        ..InodeItem::default()
    };
    let bytes = inode.encode();
    assert_eq!(bytes[40..44], [1, 2, 3, 4]);
    assert_eq!(bytes[64..72], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[136..148], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0]);
}

#[test]
fn inodes_as_linux_writes_them_pass() {
    assert_sound(&KEY, &file().encode(), None);
    let directory = InodeItem { mode: Mode::new(FileType::Directory, 0o1777), ..file() };
    assert_sound(&InodeItem::key(ObjectId::ROOT_TREE_DIRECTORY), &directory.encode(), None);
    // An old bug of Linux let a directory's size wrap below zero; it harms nothing.
    assert_sound(&KEY, &InodeItem { size_bytes: u64::MAX - 9, ..directory }.encode(), None);
    // A log is one generation ahead of the superblock.
    assert_sound(&KEY, &InodeItem { transaction: Generation(101), ..file() }.encode(), None);
    let verity = InodeItem { flags: InodeFlags::VERITY | InodeFlags::COMPRESS, ..file() };
    assert_sound(&KEY, &verity.encode(), None);
    for file_type in [
        FileType::Fifo,
        FileType::CharacterDevice,
        FileType::BlockDevice,
        FileType::SymbolicLink,
        FileType::Socket,
    ] {
        assert_sound(&KEY, &InodeItem { mode: Mode::new(file_type, 0o7777), ..file() }.encode(), None);
    }
}

#[test]
fn a_key_that_no_inode_has_is_refused() {
    let bytes = file().encode();
    for number in [0, 5, 255, u64::MAX - 254] {
        let found = ObjectId(number);
        assert_fault(&InodeItem::key(found), &bytes, None, Fault::Inode(InodeFault::Number { found }));
    }
    let key = Key::new(ObjectId(257), ItemType::INODE_ITEM, 1);
    assert_fault(&key, &bytes, None, Fault::Inode(InodeFault::KeyOffset { found: 1 }));
    assert_fault(&KEY, &bytes[..159], None, Fault::Inode(InodeFault::Size { found: 159 }));
}

#[test]
fn generations_to_come_are_refused() {
    let (found, most) = (Generation(102), Generation(101));
    refused(&InodeItem { generation: found, ..file() }, InodeFault::Generation { found, most });
    refused(&InodeItem { transaction: found, ..file() }, InodeFault::Transaction { found, most });
}

#[test]
fn modes_that_no_file_has_are_refused() {
    let found = Mode(0o1_100_644);
    refused(&InodeItem { mode: found, ..file() }, InodeFault::ModeBits { found });
    for bits in [0o000_644, 0o030_644, 0o110_000, 0o170_000] {
        let found = Mode(bits);
        refused(&InodeItem { mode: found, ..file() }, InodeFault::FileType { found });
    }
}

#[test]
fn links_sizes_and_flags_that_cannot_be_are_refused() {
    let directory = InodeItem { mode: Mode::new(FileType::Directory, 0o755), link_count: 2, ..file() };
    refused(&directory, InodeFault::DirectoryLinks { found: 2 });
    refused(&InodeItem { size_bytes: 1 << 63, ..file() }, InodeFault::FileSize { found: 1 << 63 });
    let found = InodeFlags(1 << 12);
    refused(
        &InodeItem { flags: found | InodeFlags::SYNC, ..file() },
        InodeFault::IncompatibleFlags { found },
    );
}

#[test]
fn unknown_read_only_flags_count_only_when_writing() {
    let found = InodeFlags(1 << 40);
    let bytes = InodeItem { flags: found, ..file() }.encode();
    let mut rules = crate::validate::tests::RULES;
    rules.writable = true;
    assert_fault(&KEY, &bytes, None, Fault::Inode(InodeFault::ReadOnlyFlags { found }));
    rules.writable = false;
    let context = crate::validate::ItemContext { rules: &rules, owner: crate::RootId(256), previous: None };
    assert_eq!(check(&KEY, &bytes, &context), Ok(()));
}

#[test]
fn flags_are_shown_by_name_and_unknown_ones_by_number() {
    assert_eq!((InodeFlags::NODATASUM | InodeFlags::NODATACOW).to_string(), "NODATASUM|NODATACOW");
    assert_eq!((InodeFlags::VERITY | InodeFlags(1 << 40)).to_string(), "VERITY|0x10000000000");
    assert_eq!(InodeFlags::NONE.to_string(), "none");
}

#[test]
fn device_numbers_have_twenty_bits_of_minor() {
    let device = DeviceNumber::new(8, 0xf_ffff);
    assert_eq!((device.0, device.major(), device.minor()), (0x8f_ffff, 8, 0xf_ffff));
}
