//! Rules of the items of files and directories.

use vlinder_format::directory::{
    self, DirectoryEntry, DirectoryEntryType, DirectoryFault, DirectoryIndex, largest_entry_bytes,
};
use vlinder_format::file_extent::{CompressionId, ExtentField, FileExtent, FileExtentFault};
use vlinder_format::inode::{FileType, InodeFault, InodeFlags, InodeItem, Mode};
use vlinder_format::inode_ref::{self, ExtendedReference, InodeReference, InodeReferenceFault};
use vlinder_format::{FileOffset, Generation, ItemType, Key, Logical, ObjectId, RootId};

use crate::book::{Book, Leaf, NOW};

const FILE: ObjectId = ObjectId(257);
const NEWEST: Generation = NOW.next();
const FUTURE: Generation = NEWEST.next();

fn inode(file_type: FileType) -> InodeItem {
    InodeItem {
        generation: NEWEST,
        transaction: NEWEST,
        link_count: 1,
        mode: Mode::new(file_type, 0o7755),
        ..InodeItem::default()
    }
}

/// A subvolume's leaf: an inode item, and then these.
fn leaf(items: Vec<(Key, Vec<u8>)>) -> Leaf {
    let mut all = vec![(InodeItem::key(FILE), inode(FileType::Regular).encode().to_vec())];
    all.extend(items);
    Leaf::new(RootId(256), all)
}

/// Another inode before the item at slot 1, so that the inode of that item is missing.
fn foreign(leaf: &mut Leaf) {
    leaf.items[0].0 = InodeItem::key(ObjectId(256));
}

/// The same in a log, where inodes may come without their item.
fn foreign_in_a_log(leaf: &mut Leaf) {
    foreign(leaf);
    leaf.owner = RootId::TREE_LOG;
}

const BEFORE: ObjectId = ObjectId(256);

pub fn prove(book: &mut Book) {
    inodes(book);
    references(book);
    names(book);
    entries(book);
    extents(book);
    ranges(book);
}

fn inodes(book: &mut Book) {
    let with = |change: fn(&mut InodeItem)| {
        move |leaf: &mut Leaf| {
            let mut item = InodeItem::decode(&leaf.items[0].1).unwrap();
            change(&mut item);
            leaf.items[0].1 = item.encode().to_vec();
        }
    };
    let sound = leaf(vec![]);
    for number in [ObjectId::ROOT_TREE_DIRECTORY, ObjectId::FREE_INODE, ObjectId::LAST_FREE] {
        book.passes("I1", &sound, |leaf| leaf.items[0].0 = InodeItem::key(number));
    }
    for found in [ObjectId(1), ObjectId(255), ObjectId(u64::MAX - 254)] {
        book.leaf("I1", &sound, 0, InodeFault::Number { found }, |leaf| {
            leaf.items[0].0 = InodeItem::key(found)
        });
    }
    book.leaf("I1", &sound, 0, InodeFault::KeyOffset { found: 1 }, |leaf| leaf.items[0].0.offset = 1);
    book.leaf("I2", &sound, 0, InodeFault::Size { found: 159 }, |leaf| leaf.items[0].1.truncate(159));
    book.leaf("I2", &sound, 0, InodeFault::Size { found: 161 }, |leaf| leaf.items[0].1.push(0));
    let fault = InodeFault::Generation { found: FUTURE, most: NEWEST };
    book.leaf("I3", &sound, 0, fault, with(|inode| inode.generation = FUTURE));
    let fault = InodeFault::Transaction { found: FUTURE, most: NEWEST };
    book.leaf("I3", &sound, 0, fault, with(|inode| inode.transaction = FUTURE));
    let fault = InodeFault::ModeBits { found: Mode(0o1_107_755) };
    book.leaf("I4", &sound, 0, fault, with(|inode| inode.mode.0 |= 0o1_000_000));
    for kind in [FileType::Socket, FileType::BlockDevice, FileType::SymbolicLink, FileType::Directory] {
        book.passes("I4", &sound, |leaf| leaf.items[0].1 = inode(kind).encode().to_vec());
    }
    let fault = InodeFault::FileType { found: Mode(0) };
    book.leaf("I4", &sound, 0, fault, with(|inode| inode.mode.0 = 0));
    let fault = InodeFault::FileType { found: Mode(0o110_000) };
    book.leaf("I4", &sound, 0, fault, with(|inode| inode.mode.0 = 0o110_000));
    book.passes("I5", &sound, with(|inode| inode.link_count = 65535));
    let fault = InodeFault::DirectoryLinks { found: 2 };
    book.leaf("I5", &sound, 0, fault, |leaf| {
        let directory = InodeItem { link_count: 2, ..inode(FileType::Directory) };
        leaf.items[0].1 = directory.encode().to_vec();
    });
    book.passes("I6", &sound, with(|inode| inode.flags = InodeFlags::KNOWN));
    let fault = InodeFault::IncompatibleFlags { found: InodeFlags(1 << 30) };
    book.leaf("I6", &sound, 0, fault, with(|inode| inode.flags.0 |= 1 << 30));
    let fault = InodeFault::ReadOnlyFlags { found: InodeFlags(1 << 63) };
    book.leaf("I7", &sound, 0, fault, with(|inode| inode.flags.0 |= 1 << 63));
    book.passes("I7", &sound, |leaf| {
        with(|inode| inode.flags.0 |= 1 << 63)(leaf);
        leaf.rules.writable = false;
    });
    book.passes("I8", &sound, with(|inode| inode.size_bytes = i64::MAX as u64));
    let fault = InodeFault::FileSize { found: 1 << 63 };
    book.leaf("I8", &sound, 0, fault, with(|inode| inode.size_bytes = 1 << 63));
}

fn references(book: &mut Book) {
    let entry = InodeReference { index: DirectoryIndex(2), name: b"name" }.encode();
    let extended = ExtendedReference { parent: BEFORE, index: DirectoryIndex(2), name: b"name" }.encode();
    let sound = leaf(vec![(inode_ref::key(FILE, BEFORE), entry)]);
    let sound_extended = leaf(vec![(inode_ref::extended_key(FILE, BEFORE, b"name"), extended)]);
    for (sound, header) in [(&sound, 10), (&sound_extended, 18)] {
        book.passes("R1", sound, foreign_in_a_log);
        book.leaf("R1", sound, 1, InodeReferenceFault::MissingInode { found: BEFORE }, foreign);
        let cut = |length: usize| move |leaf: &mut Leaf| leaf.items[1].1.truncate(length);
        book.leaf("R2", sound, 1, InodeReferenceFault::Empty { found: header }, cut(header));
        let fault = InodeReferenceFault::Header { found: 3 };
        book.leaf("R2", sound, 1, fault, |leaf| leaf.items[1].1.extend([0; 3]));
        let fault = InodeReferenceFault::Name { found: 4, available: 3 };
        book.leaf("R3", sound, 1, fault, cut(header + 3));
        let rename = |length: u16| {
            move |leaf: &mut Leaf| {
                let data = &mut leaf.items[1].1;
                data[header - 2..header].copy_from_slice(&length.to_le_bytes());
                data.resize(header + usize::from(length), b'x');
            }
        };
        book.passes("R4", sound, rename(255));
        book.leaf("R4", sound, 1, InodeReferenceFault::NameLength { found: 256 }, rename(256));
        let fault = InodeReferenceFault::NameLength { found: 0 };
        book.leaf("R4", sound, 1, fault, |leaf| {
            let again = leaf.items[1].1[..header].to_vec();
            leaf.items[1].1.extend(again);
            let end = leaf.items[1].1.len();
            leaf.items[1].1[end - 2..].fill(0);
        });
    }
}

fn entry(name: &[u8]) -> DirectoryEntry<'_> {
    DirectoryEntry {
        location: InodeItem::key(ObjectId(300)),
        transaction: NOW,
        entry_type: DirectoryEntryType::REGULAR,
        name,
        data: &[],
    }
}

/// A name by its hash, a name in the index, an attribute.
fn three() -> [Leaf; 3] {
    [
        leaf(vec![(directory::item_key(FILE, b"name"), entry(b"name").encode())]),
        leaf(vec![(directory::index_key(FILE, DirectoryIndex(2)), entry(b"name").encode())]),
        leaf(vec![(
            directory::attribute_key(FILE, b"name"),
            DirectoryEntry::attribute(b"name", b"value", NOW).encode(),
        )]),
    ]
}

fn names(book: &mut Book) {
    for sound in three() {
        book.passes("D1", &sound, foreign_in_a_log);
        book.leaf("D1", &sound, 1, DirectoryFault::MissingInode { found: BEFORE }, foreign);
        book.leaf("D2", &sound, 1, DirectoryFault::Empty, |leaf| leaf.items[1].1.clear());
        let fault = DirectoryFault::Header { found: 29 };
        book.leaf("D2", &sound, 1, fault, |leaf| leaf.items[1].1.truncate(29));
        let length = sound.items[1].1.len() - 30;
        let fault = DirectoryFault::Entry { name_len: 4, data_len: length - 4, available: length - 1 };
        book.leaf("D2", &sound, 1, fault, |leaf| leaf.items[1].1.truncate(length + 29));
        let set_type = |number: u8| move |leaf: &mut Leaf| leaf.items[1].1[29] = number;
        for number in [0, 9] {
            let fault = DirectoryFault::UnknownType { found: DirectoryEntryType(number) };
            book.leaf("D5", &sound, 1, fault, set_type(number));
        }
        let key_type = sound.items[1].0.item_type;
        let number = if key_type == ItemType::XATTR_ITEM { 1 } else { 8 };
        let fault = DirectoryFault::TypeOfKey { found: DirectoryEntryType(number), key_type };
        book.leaf("D5", &sound, 1, fault, set_type(number));
        let set = |name: &'static [u8]| {
            move |leaf: &mut Leaf| {
                let is_attribute = leaf.items[1].0.item_type == ItemType::XATTR_ITEM;
                let changed =
                    if is_attribute { DirectoryEntry::attribute(name, b"", NOW) } else { entry(name) };
                leaf.items[1].1 = changed.encode();
                if leaf.items[1].0.item_type != ItemType::DIR_INDEX {
                    leaf.items[1].0.offset = directory::item_key(FILE, name).offset;
                }
            }
        };
        book.passes("D6", &sound, set(&[b'x'; 255]));
        book.leaf("D6", &sound, 1, DirectoryFault::NameLength { found: 256 }, set(&[b'x'; 256]));
        book.leaf("D6", &sound, 1, DirectoryFault::EmptyName, set(b""));
    }
    let [hashed, indexed, attribute] = three();
    for sound in [hashed, attribute] {
        let (found, expected) = (sound.items[1].0.offset, sound.items[1].0.offset ^ 1);
        let fault = DirectoryFault::Hash { found, expected };
        book.leaf("D9", &sound, 1, fault, |leaf| leaf.items[1].0.offset ^= 1);
        // Names of one hash share an item.
        book.passes("D10", &sound, |leaf| leaf.items[1].1 = leaf.items[1].1.repeat(2));
    }
    let fault = DirectoryFault::EntryCount { trailing: 34 };
    book.leaf("D10", &indexed, 1, fault, |leaf| leaf.items[1].1 = leaf.items[1].1.repeat(2));
}

fn entries(book: &mut Book) {
    let [hashed, indexed, attribute] = three();
    for sound in [&hashed, &indexed] {
        let lead_to =
            |location: Key| move |leaf: &mut Leaf| leaf.items[1].1[..17].copy_from_slice(&location.encode());
        book.passes("D3", sound, lead_to(Key::new(ObjectId(256), ItemType::ROOT_ITEM, u64::MAX)));
        let found = ItemType::DIR_ITEM;
        let fault = DirectoryFault::LocationType { found };
        book.leaf("D3", sound, 1, fault, lead_to(Key::new(ObjectId(300), found, 0)));
        for found in [InodeItem::key(ObjectId(255)), Key::new(ObjectId(300), ItemType::INODE_ITEM, 1)] {
            book.leaf("D3", sound, 1, DirectoryFault::Location { found }, lead_to(found));
        }
        for found in [RootId(0), RootId::EXTENT_TREE, RootId(1 << 48)] {
            let location = Key::new(found.object_id(), ItemType::ROOT_ITEM, u64::MAX);
            book.leaf("D4", sound, 1, DirectoryFault::LocationRoot { found }, lead_to(location));
        }
        let fault = DirectoryFault::Data { found: 1 };
        book.leaf("D8", sound, 1, fault, |leaf| {
            leaf.items[1].1[25] = 1;
            leaf.items[1].1.push(0);
        });
    }
    let found = InodeItem::key(ObjectId(300));
    let fault = DirectoryFault::Location { found };
    book.leaf("D3", &attribute, 1, fault, |leaf| leaf.items[1].1[..17].copy_from_slice(&found.encode()));
    // The largest attribute fills a leaf of its own.
    let most = largest_entry_bytes(16384);
    let mut alone = attribute;
    alone.items.remove(0);
    let value = |length: usize| {
        move |leaf: &mut Leaf| {
            leaf.items[0].1 = DirectoryEntry::attribute(b"name", &vec![7; length], NOW).encode();
        }
    };
    book.passes("D7", &alone, value(most - 4));
    // One byte more fits no leaf, and so is only met where a leaf is not what it says.
    let fault =
        DirectoryFault::EntryLength { found: largest_entry_bytes(4096) + 1, most: largest_entry_bytes(4096) };
    let long = DirectoryEntry::attribute(b"name", &vec![7; largest_entry_bytes(4096) - 3], NOW).encode();
    let mut rules = alone.rules;
    rules.node_size = 4096;
    let context = vlinder_format::validate::ItemContext { rules: &rules, owner: RootId(256), previous: None };
    assert_eq!(
        vlinder_format::validate::check_item(&alone.items[0].0, &long, &context),
        Err(fault.clone().into())
    );
    book.note("D7", &fault.into());
}

/// A file of two sectors in two extents.
fn file() -> Leaf {
    let extent = |number: u64| {
        let key = FileExtent::key(FILE, FileOffset(number * 4096));
        (key, FileExtent::whole(Logical((1 + number) << 24), 4096, NOW).encode())
    };
    leaf(vec![extent(0), extent(1)])
}

/// A file of five bytes in its item.
fn inline() -> Leaf {
    leaf(vec![(FileExtent::key(FILE, FileOffset(0)), FileExtent::inline(b"hello", NOW).encode())])
}

/// Where the fields of an extent lie.
const RAM_BYTES: usize = 8;
const COMPRESSION: usize = 16;
const ENCRYPTION: usize = 17;
const TYPE: usize = 20;
const ADDRESS: usize = 21;
const DISK_BYTES: usize = 29;
const OFFSET: usize = 37;
const FILE_BYTES: usize = 45;

fn extents(book: &mut Book) {
    for sound in [file(), inline()] {
        book.passes("E2", &sound, foreign_in_a_log);
        book.leaf("E2", &sound, 1, FileExtentFault::MissingInode { found: BEFORE }, foreign);
        let fault = FileExtentFault::Header { found: 20 };
        book.leaf("E3", &sound, 1, fault, |leaf| leaf.items[1].1.truncate(20));
        book.leaf("E4", &sound, 1, FileExtentFault::Type { found: 3 }, |leaf| leaf.items[1].1[TYPE] = 3);
        book.passes("E5", &sound, |leaf| leaf.items[1].1[COMPRESSION] = 3);
        let fault = FileExtentFault::Compression { found: CompressionId(4) };
        book.leaf("E5", &sound, 1, fault, |leaf| leaf.items[1].1[COMPRESSION] = 4);
        let fault = FileExtentFault::Encryption { found: 1 };
        book.leaf("E6", &sound, 1, fault, |leaf| leaf.items[1].1[ENCRYPTION] = 1);
    }
    let fault = FileExtentFault::InlineOffset { found: 4096 };
    book.leaf("E7", &inline(), 1, fault, |leaf| leaf.items[1].0.offset = 4096);
    let fault = FileExtentFault::InlineSize { found: 5, expected: 6 };
    book.leaf("E8", &inline(), 1, fault, |leaf| leaf.set_u64(1, RAM_BYTES, 6));
    // What is compressed says how much it becomes.
    let packed = |ram_bytes: u64| {
        move |leaf: &mut Leaf| {
            leaf.items[1].1[COMPRESSION] = 1;
            leaf.set_u64(1, RAM_BYTES, ram_bytes);
        }
    };
    book.passes("E8", &inline(), packed(4096));
    for sound in [file(), inline()] {
        let disk_bytes = if sound.items.len() == 3 { 4096 } else { 5 };
        book.passes("E14", &sound, packed(131_072));
        let fault = FileExtentFault::CompressedSize { ram_bytes: 135_168, disk_bytes };
        book.leaf("E14", &sound, 1, fault, packed(135_168));
        let fault = FileExtentFault::CompressedSize { ram_bytes: 1 << 62, disk_bytes };
        book.leaf("E14", &sound, 1, fault, packed(1 << 62));
    }
    let fault = FileExtentFault::CompressedSize { ram_bytes: 4096, disk_bytes: 135_168 };
    book.leaf("E14", &file(), 1, fault, |leaf| {
        leaf.items[1].1[COMPRESSION] = 1;
        leaf.set_u64(1, DISK_BYTES, 135_168);
    });
    for found in [52, 54] {
        let fault = FileExtentFault::Size { found };
        book.leaf("E9", &file(), 1, fault, |leaf| leaf.items[1].1.resize(found, 0));
    }
}

fn ranges(book: &mut Book) {
    let sound = file();
    let unaligned = |field, found| FileExtentFault::Alignment { field, found, sector_size: 4096 };
    let fault = unaligned(ExtentField::FileOffset, 4097);
    book.leaf("E1", &sound, 2, fault, |leaf| leaf.items[2].0.offset = 4097);
    book.passes("E10", &sound, |leaf| leaf.items[1].1[TYPE] = 2);
    book.passes("E10", &sound, |leaf| leaf.items[1].1 = FileExtent::hole(4096, NOW).encode());
    for (field, at) in [
        (ExtentField::RamBytes, RAM_BYTES),
        (ExtentField::Address, ADDRESS),
        (ExtentField::DiskBytes, DISK_BYTES),
        (ExtentField::Offset, OFFSET),
        (ExtentField::FileBytes, FILE_BYTES),
    ] {
        book.leaf("E10", &sound, 1, unaligned(field, 1), |leaf| leaf.set_u64(1, at, 1));
    }
    let offset = u64::MAX - 4095;
    let fault = FileExtentFault::EndOfFile { offset, bytes: 4096 };
    book.leaf("E11", &sound, 2, fault, |leaf| leaf.items[2].0.offset = offset);
    let endless = |address, offset_bytes| FileExtentFault::EndOfExtent {
        address: Logical(address),
        disk_bytes: 4096,
        offset_bytes,
        file_bytes: 4096,
    };
    book.leaf("E12", &sound, 1, endless(offset, 0), |leaf| leaf.set_u64(1, ADDRESS, offset));
    book.leaf("E12", &sound, 1, endless(1 << 24, offset), |leaf| leaf.set_u64(1, OFFSET, offset));
    let fault = FileExtentFault::Overlap { found: 8192, offset: 4096 };
    book.leaf("E13", &sound, 2, fault, |leaf| leaf.set_u64(1, FILE_BYTES, 8192));
    book.leaf("E13", &sound, 2, FileExtentFault::Overlap { found: 8192, offset: 4096 }, |leaf| {
        leaf.items[1].1 = FileExtent::inline(&[7; 5000], NOW).encode();
    });
    book.passes("E13", &sound, |leaf| leaf.items[1].1 = FileExtent::inline(&[7; 4096], NOW).encode());
}
