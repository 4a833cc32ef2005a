//! What is received is what the stream says, and nothing that the receiver's directories would pass on.

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_fs::data::OpenCache;
use vlinder_fs::{
    AttributeMode, ByteRange, Caller, Filesystem, GroupId, InodeId, OpenOptions, Owners, SetAttributes,
};
use vlinder_stream::receive::{ReceiveOptions, Warning};
use vlinder_stream::wire::{Command, EncodedWrite, Protocol};
use vlinder_testkit::subject::read;

use crate::support::{self, begin, first, image, open, receive_with, second, tree};

#[test]
fn the_directory_passes_nothing_on() {
    let plain = open(&image());
    receive_with(&plain, &first(), ReceiveOptions::default()).0.unwrap();
    let filesystem = open(&image());
    let (root, caller) = (filesystem.root().unwrap(), Caller::superuser());
    let attributes = filesystem.attributes();
    let mut acl = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1_u16, 7_u16, u32::MAX), (2, 7, 5), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    let set = |name: &[u8], value: &[u8]| {
        attributes.set_extended_attribute(&caller, &root, name, value, AttributeMode::Either).unwrap();
    };
    set(b"system.posix_acl_default", &acl);
    set(b"btrfs.compression", b"zstd");
    let changes =
        SetAttributes { permissions: Some(0o2777), group: Some(GroupId(77)), ..SetAttributes::default() };
    attributes.set(&caller, &root, &changes).unwrap();
    receive_with(&filesystem, &first(), ReceiveOptions::default()).0.unwrap();
    assert_eq!(tree(&filesystem, "one"), tree(&plain, "one"));
    assert!(!tree(&filesystem, "one").contains("btrfs.compression"));
    // Inside the subvolume neither.
    let inner = [
        begin(b"two"),
        Command::MakeDirectory { path: b"d", inode: None },
        Command::SetMode { path: b"d", mode: 0o2777 },
        Command::SetOwner { path: b"d", uid: 1, gid: 55 },
        Command::SetXattr { path: b"d", name: b"system.posix_acl_default", value: &acl },
        Command::SetXattr { path: b"d", name: b"btrfs.compression", value: b"zstd" },
        Command::MakeDirectory { path: b"d/d", inode: None },
        Command::MakeFile { path: b"d/f", inode: None },
    ];
    let stream = support::stream(Protocol::V1, &inner);
    receive_with(&filesystem, &stream, ReceiveOptions::default()).0.unwrap();
    let text = tree(&filesystem, "two");
    assert_eq!(text.matches("posix_acl").count(), 1, "{text}");
    assert_eq!(text.matches("btrfs.compression").count(), 1, "{text}");
    assert!(
        text.contains("\"/d/d\" Directory 40700 0:0") && text.contains("\"/d/f\" Regular 100600 0:0"),
        "{text}"
    );
}

/// Set-id bits and capabilities are what the stream says, in whatever order it says it.
#[test]
fn an_owner_that_changes_later_takes_nothing_away() {
    let filesystem = open(&image());
    let path = b"f";
    let made = [
        begin(b"one"),
        Command::MakeFile { path, inode: None },
        Command::SetMode { path, mode: 0o6755 },
        Command::SetXattr { path, name: b"security.capability", value: &[2; 20] },
        Command::SetOwner { path, uid: 12, gid: 13 },
        Command::Write { path, offset: 0, data: b"data" },
        Command::Truncate { path, size: 3 },
        Command::SetTimes { path, times: support::times(9) },
    ];
    receive_with(&filesystem, &support::stream(Protocol::V1, &made), ReceiveOptions::default()).0.unwrap();
    let text = tree(&filesystem, "one");
    assert!(text.contains("\"/f\" Regular 106755 12:13") && text.contains("security.capability"), "{text}");
    assert!(text.contains("mt 10.5"), "{text}");
}

/// Of an empty file, of one block, of several, with a salt.
#[test]
fn the_digest_of_a_file_under_verity_is_told() {
    let filesystem = open(&image());
    let file = |path| Command::MakeFile { path, inode: None };
    let verity = |path, algorithm, block_size, salt| Command::EnableVerity {
        path,
        algorithm,
        block_size,
        salt,
        signature: b"",
    };
    let large = vec![b'v'; 600_000];
    let mut made = vec![begin(b"one"), file(b"empty"), file(b"small"), file(b"large")];
    made.push(Command::Write { path: b"small", offset: 0, data: b"small\n" });
    for (number, piece) in large.chunks(50_000).enumerate() {
        made.push(Command::Write { path: b"large", offset: 50_000 * number as u64, data: piece });
    }
    made.extend([
        verity(b"empty", 1, 4096, b""),
        verity(b"small", 1, 4096, b""),
        verity(b"large", 1, 4096, b""),
        verity(b"large", 2, 1024, b"salt"),
    ]);
    let (received, outcome) =
        receive_with(&filesystem, &support::stream(Protocol::V3, &made), ReceiveOptions::default());
    received.unwrap();
    let told: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
    assert!(matches!(&outcome.warnings[0], Warning::Verity { path, .. } if path == b"empty"));
    println!("{told:#?}");
    for (text, digest) in told.iter().zip(DIGESTS) {
        assert!(text.ends_with(digest), "{text}, not {digest}");
    }
    assert_eq!(outcome.warning_count, 4);
}

/// A hole of any size is hashed at once, and as if its zeros had been read.
#[test]
fn the_digest_of_a_huge_hole_is_that_of_its_zeros() {
    let filesystem = open(&image());
    let verity =
        |path, salt| Command::EnableVerity { path, algorithm: 1, block_size: 1024, salt, signature: b"" };
    let size = 40_000_000;
    let mut made = vec![begin(b"one")];
    for path in [&b"hole"[..], b"written"] {
        made.push(Command::MakeFile { path, inode: None });
        made.push(Command::Write { path, offset: 5000, data: b"start" });
        made.push(Command::Write { path, offset: 17_000_000, data: b"middle" });
        made.push(Command::Truncate { path, size });
    }
    let zeros = [0; 40_000];
    for offset in (40_000..size).step_by(zeros.len()).filter(|offset| *offset != 17_000_000 / 40_000 * 40_000)
    {
        made.push(Command::Write { path: b"written", offset, data: &zeros });
    }
    made.push(Command::MakeFile { path: b"huge", inode: None });
    made.push(Command::Truncate { path: b"huge", size: (1 << 62) + 5 });
    for path in [&b"hole"[..], b"written", b"huge"] {
        made.push(verity(path, b"salt"));
    }
    let stream = support::stream(Protocol::V3, &made);
    let (received, outcome) = receive_with(&filesystem, &stream, ReceiveOptions::default());
    received.unwrap();
    let digests: Vec<&Vec<u8>> = outcome
        .warnings
        .iter()
        .map(|warning| {
            let Warning::Verity { digest, .. } = warning else { panic!("{warning}") };
            digest
        })
        .collect();
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

/// By an independent calculation; that of the empty file is the one in fs-verity's own documentation.
const DIGESTS: [&str; 4] = [
    "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95",
    "sha256:1025126569ef8b3bb08f4a9a25f2bdf43c0da66e2cc7b8f6f2abc95f842836b4",
    "sha256:af408df95e13ffb7c4c8896fc37f971739e9cb94fee3a457ee6b1b1c9fd43dee",
    "sha512:e99321800db90a863efc3001aa32cf7ed2b8e5537e148f5cc8ee3521be87e15db670e36ae24ffad775f346a7366d4b7668af8e1c6d3b4ed44f539826e10b7dec",
];

/// An extent that comes whole is stored as it came; of a part, its bytes are written.
#[test]
fn a_compressed_extent_is_kept_if_all_of_it_is_shown() {
    let filesystem = open(&image());
    let zlib = support::compressed();
    let encoded = |path, file_length, unencoded_offset| {
        let (unencoded_length, compression) = (8192, 1);
        let (offset, encryption, data) = (0, 0, &zlib[..]);
        Command::EncodedWrite(EncodedWrite {
            path,
            offset,
            file_length,
            unencoded_length,
            unencoded_offset,
            compression,
            encryption,
            data,
        })
    };
    let file = |path| Command::MakeFile { path, inode: None };
    let names: [(&[u8], u64, u64, bool); 3] =
        [(b"whole", 8192, 0, true), (b"head", 4096, 0, false), (b"tail", 4096, 4096, false)];
    let mut made = vec![begin(b"one")];
    for (path, length, offset, _) in names {
        made.extend([file(path), encoded(path, length, offset)]);
    }
    receive_with(&filesystem, &support::stream(Protocol::V2, &made), ReceiveOptions::default()).0.unwrap();
    filesystem.sync().unwrap();
    let root = filesystem.inode(InodeId::root_of(support::subvolume(&filesystem, "one").unwrap())).unwrap();
    for (path, length, _, is_kept) in names {
        let inode = filesystem.names().lookup(&Caller::superuser(), &root, path).unwrap();
        let runs = filesystem.files().extent_map(&inode, &OpenCache::new(), ByteRange::ALL, 10).unwrap();
        assert!(!runs.is_empty() && runs.iter().all(|run| run.encoded == is_kept), "{runs:?}");
        assert_eq!(read(&filesystem, &inode).unwrap(), vec![b'z'; length as usize]);
    }
}

#[test]
fn a_change_is_received_on_what_was_received() {
    let filesystem = open(&image());
    receive_with(&filesystem, &first(), ReceiveOptions::default()).0.unwrap();
    receive_with(&filesystem, &second(), ReceiveOptions::default()).0.unwrap();
    let text = tree(&filesystem, "two");
    assert!(text.contains("\"/e/file\" Regular 104711 1000:100 links 2 size 3"), "{text}");
    assert!(text.contains("\"\" Directory 40755 3:4") && text.contains("mt 2000201.5"), "{text}");
}

/// `owners=me` decides how files are shown, not what a stream's files have on disk.
#[test]
fn owners_are_stored_where_all_files_are_shown_as_mine() {
    let device: Arc<dyn Device> = Arc::new(image());
    let options = OpenOptions { background: false, owners: Owners::Me, ..OpenOptions::default() };
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device)], options).unwrap();
    receive_with(&filesystem, &first(), ReceiveOptions::default()).0.unwrap();
    filesystem.sync().unwrap();
    drop(filesystem);
    let usual = open(&image());
    receive_with(&usual, &first(), ReceiveOptions::default()).0.unwrap();
    assert_eq!(support::tree(&support::open_device(device), "one"), support::tree(&usual, "one"));
}
