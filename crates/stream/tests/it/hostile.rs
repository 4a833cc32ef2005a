//! Streams that mean harm: nothing outside the subvolume is touched, nothing grows without bound.

use vlinder_format::{Generation, Uuid};
use vlinder_fs::{Caller, Filesystem, Refusal};
use vlinder_stream::receive::{ReceiveError, ReceiveOptions, Receiver, discard};
use vlinder_stream::wire::{Command, EncodedWrite, Node, Protocol, Snapshot};

use crate::support::{
    self, FIRST, begin, compressed, first, image, open, receive, receive_with, subvolumes, tree,
};

/// Receives commands into `two` after a few that make files in it; gives the error, and discards what is
/// left.
fn refused(filesystem: &Filesystem, command: Command<'_>) -> ReceiveError {
    let made = [
        Command::Subvolume { path: b"two", uuid: Uuid([8; 16]), transid: Generation(1) },
        Command::MakeDirectory { path: b"d", inode: None },
        Command::MakeFile { path: b"d/f", inode: None },
        Command::Symlink { path: b"up", inode: None, target: b".." },
        Command::Symlink { path: b"root", inode: None, target: b"/" },
        command,
    ];
    let stream = support::stream(Protocol::V3, &made);
    let (received, outcome) = receive_with(filesystem, &stream, ReceiveOptions::default());
    let error = received.expect_err(&format!("{command:?}"));
    if outcome.partial.is_some() {
        discard(filesystem, &filesystem.root().unwrap(), b"two").unwrap();
    }
    error
}

#[test]
fn no_path_leads_out_of_the_subvolume() {
    let filesystem = open(&image());
    receive(&filesystem, &first()).unwrap();
    let (before, names) = (tree(&filesystem, "one"), subvolumes(&filesystem));
    let long = [b'n'; 256];
    let paths: [&[u8]; 18] = [
        b"..",
        b"../one/d/file",
        b"/etc/passwd",
        b"/",
        b"d/../../one/name",
        b"d/./f",
        b".",
        b"d//f",
        b"d/f/",
        b"up/one/name",
        b"root/one",
        b"up/x",
        b"d/f/x",
        b"a\0b",
        &long,
        b"none/x",
        b"d/..",
        b"./d",
    ];
    for path in paths {
        let node = Node { path, inode: None, mode: 0o020_666, device: 0 };
        let commands = [
            Command::Write { path, offset: 0, data: b"x" },
            Command::Unlink { path },
            Command::RemoveDirectory { path },
            Command::SetMode { path, mode: 0o777 },
            Command::SetOwner { path, uid: 0, gid: 0 },
            Command::SetTimes { path, times: support::times(1) },
            Command::SetXattr { path, name: b"user.x", value: b"" },
            Command::RemoveXattr { path, name: b"user.x" },
            Command::Truncate { path, size: 0 },
            Command::Rename { path, to: b"new" },
            Command::Rename { path: b"d/f", to: path },
            Command::Link { path: b"new", existing: path },
        ];
        for command in commands {
            refused(&filesystem, command);
        }
        let makes = [
            Command::MakeFile { path, inode: None },
            Command::MakeDirectory { path, inode: None },
            Command::MakeNode(node),
            Command::Symlink { path, inode: None, target: b"x" },
            Command::Link { path, existing: b"d/f" },
        ];
        for command in makes {
            refused(&filesystem, command);
        }
        let clone = Command::Clone {
            path: b"d/f",
            offset: 0,
            length: 4096,
            source_uuid: FIRST,
            source_transid: Generation(7),
            source_path: path,
            source_offset: 0,
        };
        refused(&filesystem, clone);
    }
    assert_eq!(subvolumes(&filesystem), names);
    assert_eq!(tree(&filesystem, "one"), before);
}

#[test]
fn a_subvolume_has_a_name_alone() {
    let filesystem = open(&image());
    let long = [b'n'; 256];
    for name in [&b"../x"[..], b"/x", b"a/b", b"", b".", b"..", b"a\0", &long] {
        let error = receive(&filesystem, &support::stream(Protocol::V1, &[begin(name)])).unwrap_err();
        assert!(
            matches!(
                error,
                ReceiveError::Path { .. } | ReceiveError::Command { .. } | ReceiveError::Filesystem(_)
            ),
            "{error}"
        );
    }
    let nil = Snapshot {
        path: b"x",
        uuid: FIRST,
        transid: Generation(1),
        parent_uuid: Uuid::NIL,
        parent_transid: Generation(0),
    };
    let error = receive(&filesystem, &support::stream(Protocol::V1, &[Command::Snapshot(nil)])).unwrap_err();
    assert!(matches!(error, ReceiveError::NilParent), "{error}");
    let early = support::stream(Protocol::V1, &[Command::Unlink { path: b"x" }]);
    assert!(matches!(receive(&filesystem, &early).unwrap_err(), ReceiveError::NoSubvolume { .. }));
    assert_eq!(subvolumes(&filesystem), [""; 0]);
    // The longest name still has a partial subvolume and checkpoints.
    let options = ReceiveOptions { checkpoint_bytes: 1, ..ReceiveOptions::default() };
    let stream =
        support::stream(Protocol::V1, &[begin(&long[..255]), Command::MakeFile { path: b"f", inode: None }]);
    receive_with(&filesystem, &stream[..stream.len() - 1], options).0.unwrap_err();
    let left = support::partial(&filesystem);
    assert_eq!(left[0].name, long[..255]);
    receive(&filesystem, &support::rest_of(&stream, left[0].token.unwrap())).unwrap();
    assert_eq!(subvolumes(&filesystem), [String::from_utf8(long[..255].to_vec()).unwrap()]);
}

#[test]
fn a_path_through_another_subvolume_is_refused() {
    let filesystem = open(&image());
    let stream = support::stream(
        Protocol::V1,
        &[
            begin(b"one"),
            Command::MakeDirectory { path: b"d", inode: None },
            Command::MakeFile { path: b"d/nested/f", inode: None },
        ],
    );
    // Somebody makes a subvolume inside the one that is being received.
    let shared = filesystem.clone();
    let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap()).watched(|progress| {
        if progress.commands == 2 {
            let part = support::subvolume(&shared, "one.vlinder-partial").unwrap();
            let root = shared.inode(vlinder_fs::InodeId::root_of(part)).unwrap();
            let directory = shared.names().lookup(&Caller::superuser(), &root, b"d").unwrap();
            shared.subvolumes().create(&Caller::superuser(), &directory, b"nested").unwrap();
        }
        std::ops::ControlFlow::Continue(())
    });
    let error = receiver.receive(&mut vlinder_stream::wire::StreamReader::new(&stream[..])).unwrap_err();
    let ReceiveError::Command { error, .. } = error else { panic!("{error}") };
    assert_eq!(error.refusal(), Some(Refusal::CrossesSubvolumes));
}

#[test]
fn numbers_beyond_all_bounds_are_refused() {
    let filesystem = open(&image());
    receive(&filesystem, &first()).unwrap();
    let path = b"d/f";
    let clone = |offset, length, source_offset| Command::Clone {
        path,
        offset,
        length,
        source_uuid: FIRST,
        source_transid: Generation(7),
        source_path: b"d/file",
        source_offset,
    };
    let zlib = compressed();
    let encoded = |file_length, unencoded_length, unencoded_offset, compression, encryption| {
        Command::EncodedWrite(EncodedWrite {
            path,
            offset: 0,
            file_length,
            unencoded_length,
            unencoded_offset,
            compression,
            encryption,
            data: &zlib,
        })
    };
    let commands = [
        Command::Write { path, offset: u64::MAX, data: b"x" },
        Command::Write { path, offset: i64::MAX as u64, data: b"xy" },
        Command::Truncate { path, size: u64::MAX },
        Command::Truncate { path, size: 1 << 63 },
        Command::Fallocate { path, mode: 0, offset: u64::MAX - 4095, length: 8192 },
        Command::Fallocate { path, mode: 0, offset: 0, length: 1 << 40 },
        Command::Fallocate { path, mode: 0x40, offset: 0, length: 4096 },
        clone(0, u64::MAX, 0),
        clone(u64::MAX - 4095, 4096, 0),
        clone(0, 4096, u64::MAX - 4095),
        clone(1, 4096, 0),
        clone(0, 1 << 40, 0),
        Command::SetOwner { path, uid: 1 << 32, gid: 0 },
        Command::SetOwner { path, uid: 0, gid: u64::MAX },
        Command::SetOwner { path, uid: u64::from(u32::MAX), gid: 0 },
        encoded(8192, u64::MAX, 0, 1, 0),
        encoded(8192, 1 << 30, 0, 1, 0),
        encoded(u64::MAX, 8192, 1, 1, 0),
        encoded(8192, 8192, 4096, 1, 0),
        encoded(8192, 8192, 0, 9, 0),
        encoded(8192, 8192, 0, 0, 0),
        encoded(8192, 8192, 0, 1, 1),
        encoded(8192, 8192, 0, 2, 0),
        Command::EnableVerity { path, algorithm: 9, block_size: 4096, salt: b"", signature: b"" },
        Command::EnableVerity { path, algorithm: 1, block_size: 0, salt: b"", signature: b"" },
        Command::EnableVerity { path, algorithm: 1, block_size: 1 << 20, salt: b"", signature: b"" },
        Command::EnableVerity { path, algorithm: 1, block_size: 4096, salt: &[0; 33], signature: b"" },
        Command::MakeNode(Node { path: b"n", inode: None, mode: 0o100_644, device: 0 }),
        Command::Symlink { path: b"l", inode: None, target: &[b'x'; 4096] },
        Command::Symlink { path: b"l", inode: None, target: b"" },
    ];
    for command in commands {
        refused(&filesystem, command);
    }
    assert_eq!(subvolumes(&filesystem), ["one"]);
    assert!(!filesystem.is_read_only());
}

#[test]
fn attributes_of_all_kinds_are_set_or_refused() {
    let filesystem = open(&image());
    let path = b"d/f";
    let long = [b'x'; 256];
    let names: [&[u8]; 11] = [
        b"",
        b"user.",
        b"user",
        b"system.nothing",
        b"none.x",
        b"btrfs.nothing",
        b"btrfs.",
        &long,
        b"trusted.",
        b"system.posix_acl_access",
        b"system.posix_acl_default",
    ];
    for name in names {
        refused(&filesystem, Command::SetXattr { path, name, value: b"value" });
    }
    refused(&filesystem, Command::SetXattr { path, name: b"user.x", value: &[0; 17_000] });
    refused(&filesystem, Command::SetXattr { path, name: b"btrfs.compression", value: b"rar" });
    let stream = support::stream(
        Protocol::V1,
        &[
            begin(b"one"),
            Command::MakeFile { path: b"f", inode: None },
            Command::SetXattr { path: b"f", name: b"btrfs.compression", value: b"zstd" },
            Command::SetXattr { path: b"f", name: b"security.selinux", value: b"a:b:c\0" },
            Command::SetXattr { path: b"f", name: b"trusted.overlay.opaque", value: b"y" },
            Command::SetXattr { path: b"f", name: b"user.empty", value: b"" },
            Command::SetXattr { path: b"f", name: b"user.large", value: &[7; 8000] },
            Command::RemoveXattr { path: b"f", name: b"user.none" },
            Command::SetXattr { path: b"", name: b"btrfs.compression", value: b"lzo" },
            Command::Write { path: b"f", offset: 0, data: &[b'a'; 40_000] },
        ],
    );
    receive(&filesystem, &stream).unwrap();
    let text = tree(&filesystem, "one");
    for part in
        ["btrfs.compression=Ok(\"zstd\")", "security.selinux", "trusted.overlay.opaque", "user.empty", "lzo"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A stream of many directories with long paths takes no more memory than one of a few.
#[test]
fn what_is_remembered_of_a_stream_is_bounded() {
    let filesystem = open(&image());
    let mut made = vec![begin(b"one")];
    let names: Vec<Vec<u8>> =
        (0..3000_u32).map(|number| format!("{number}-{}", "n".repeat(200)).into_bytes()).collect();
    let files: Vec<Vec<u8>> = names.iter().map(|name| [name, &b"/f"[..]].concat()).collect();
    for (path, file) in names.iter().zip(&files) {
        made.push(Command::MakeDirectory { path, inode: None });
        made.push(Command::MakeFile { path: file, inode: None });
        made.push(Command::SetTimes { path, times: support::times(5) });
    }
    receive(&filesystem, &support::stream(Protocol::V1, &made)).unwrap();
    assert_eq!(tree(&filesystem, "one").matches("mt 6.5").count(), 3000);
}
