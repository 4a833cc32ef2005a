//! File systems in memory, streams made of commands, and what can be seen of a subvolume.

use std::fmt::Write as _;
use std::io::Write as _;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::{Generation, Uuid};
use vlinder_fs::{Caller, FileType, Filesystem, FsError, Inode, InodeId, OpenOptions, RootId, Timestamp};
use vlinder_stream::receive::{PartialSubvolume, ReceiveError, ReceiveOptions, Receiver, partial_subvolumes};
use vlinder_stream::resume::{ResumeToken, ResumingWriter};
use vlinder_stream::wire::{
    Command, EncodedWrite, Node, Protocol, Snapshot, StreamReader, StreamWriter, Times,
};
use vlinder_testkit::subject::{self, Recipe};

pub const FIRST: Uuid = Uuid([1; 16]);
pub const SECOND: Uuid = Uuid([2; 16]);

/// An empty file system in memory, which holds what is written alone.
pub fn image() -> MemoryDevice {
    Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory()
}

/// As [`image`], the smallest one that can be filled quickly.
pub fn small_image() -> MemoryDevice {
    Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory()
}

pub fn open(image: &MemoryDevice) -> Filesystem {
    open_device(Arc::new(image.snapshot()))
}

/// Nothing is committed but by calls.
pub fn open_device(device: Arc<dyn Device>) -> Filesystem {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    Filesystem::open_devices(vec![device], options).unwrap()
}

/// A stream of these commands and an end.
pub fn stream(protocol: Protocol, commands: &[Command<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::new(&mut bytes, protocol);
    writer.begin().unwrap();
    commands.iter().chain([&Command::End]).for_each(|command| writer.put(command).unwrap());
    writer.flush().unwrap();
    drop(writer);
    bytes
}

/// The command that makes a subvolume of [`FIRST`].
pub fn begin(name: &[u8]) -> Command<'_> {
    Command::Subvolume { path: name, uuid: FIRST, transid: Generation(7) }
}

pub fn times(seconds: i64) -> Times {
    let time = |more| Timestamp { seconds: seconds + more, nanoseconds: 5 };
    Times { access: time(0), modification: time(1), change: time(2), birth: Some(time(3)) }
}

/// A subvolume `one` with every kind of file, by every kind of command that it takes.
pub fn first() -> Vec<u8> {
    let zlib = compressed();
    let node = |path, mode, device| Node { path, inode: None, mode, device };
    let encoded = EncodedWrite {
        path: b"d/encoded",
        offset: 0,
        file_length: 8192,
        unencoded_length: 8192,
        unencoded_offset: 0,
        compression: 1,
        encryption: 0,
        data: &zlib,
    };
    stream(
        Protocol::V3,
        &[
            begin(b"one"),
            Command::SetOwner { path: b"", uid: 3, gid: 4 },
            Command::SetMode { path: b"", mode: 0o755 },
            Command::MakeDirectory { path: b"o1-1-1", inode: Some(257) },
            Command::Rename { path: b"o1-1-1", to: b"d" },
            Command::SetXattr { path: b"d", name: b"user.kind", value: b"directory" },
            Command::MakeFile { path: b"d/file", inode: Some(258) },
            Command::Write { path: b"d/file", offset: 0, data: &[7; 9000] },
            Command::Write { path: b"d/file", offset: 20_000, data: b"end" },
            Command::SetOwner { path: b"d/file", uid: 1000, gid: 100 },
            Command::SetMode { path: b"d/file", mode: 0o4711 },
            Command::SetXattr { path: b"d/file", name: b"security.capability", value: &[1; 20] },
            Command::SetXattr { path: b"d/file", name: b"trusted.gone", value: b"soon" },
            Command::RemoveXattr { path: b"d/file", name: b"trusted.gone" },
            Command::Link { path: b"link", existing: b"d/file" },
            Command::MakeFile { path: b"d/encoded", inode: None },
            Command::EncodedWrite(encoded),
            Command::EnableVerity {
                path: b"d/encoded",
                algorithm: 1,
                block_size: 4096,
                salt: b"",
                signature: b"",
            },
            Command::MakeFile { path: b"d/space", inode: None },
            Command::Fallocate { path: b"d/space", mode: 0, offset: 0, length: 65_536 },
            Command::Write { path: b"d/space", offset: 4096, data: &[3; 20_000] },
            Command::Fallocate { path: b"d/space", mode: 3, offset: 8192, length: 4096 },
            Command::Fallocate { path: b"d/space", mode: 16, offset: 12_288, length: 4096 },
            Command::Clone {
                path: b"d/space",
                offset: 32_768,
                length: 4096,
                source_uuid: FIRST,
                source_transid: Generation(7),
                source_path: b"d/file",
                source_offset: 4096,
            },
            Command::Truncate { path: b"d/space", size: 50_000 },
            Command::SetFileAttributes { path: b"d/space", flags: 0 },
            Command::MakeNode(node(b"null", 0o020_666, 0x103)),
            Command::MakeFifo(node(b"pipe", 0o010_600, 0)),
            Command::MakeSocket(node(b"socket", 0o140_600, 0)),
            Command::Symlink { path: b"symlink", inode: None, target: b"../outside" },
            Command::MakeDirectory { path: b"gone", inode: None },
            Command::RemoveDirectory { path: b"gone" },
            Command::MakeFile { path: b"unlinked", inode: None },
            Command::Unlink { path: b"unlinked" },
            Command::SetTimes { path: b"d/file", times: times(1_000_000) },
            Command::SetTimes { path: b"d/encoded", times: times(1_000_100) },
            Command::SetTimes { path: b"d/space", times: times(1_000_200) },
            Command::SetTimes { path: b"null", times: times(1_000_300) },
            Command::SetTimes { path: b"pipe", times: times(1_000_400) },
            Command::SetTimes { path: b"socket", times: times(1_000_500) },
            Command::SetTimes { path: b"symlink", times: times(1_000_600) },
            Command::SetTimes { path: b"d", times: times(1_000_700) },
            Command::SetTimes { path: b"", times: times(1_000_800) },
            // Its times stay.
            Command::Rename { path: b"link", to: b"name" },
        ],
    )
}

/// `two`, a change of what [`first`] makes.
pub fn second() -> Vec<u8> {
    let made = Snapshot {
        path: b"two",
        uuid: SECOND,
        transid: Generation(9),
        parent_uuid: FIRST,
        parent_transid: Generation(7),
    };
    stream(
        Protocol::V1,
        &[
            Command::Snapshot(made),
            Command::Write { path: b"d/file", offset: 100, data: &[9; 5000] },
            Command::Rename { path: b"d", to: b"e" },
            Command::MakeFile { path: b"e/clone", inode: None },
            Command::Clone {
                path: b"e/clone",
                offset: 0,
                length: 8192,
                source_uuid: FIRST,
                source_transid: Generation(7),
                source_path: b"d/space",
                source_offset: 4096,
            },
            Command::Unlink { path: b"null" },
            Command::Truncate { path: b"e/file", size: 3 },
            Command::SetTimes { path: b"e/clone", times: times(2_000_000) },
            Command::SetTimes { path: b"e", times: times(2_000_100) },
            Command::SetTimes { path: b"", times: times(2_000_200) },
        ],
    )
}

/// 8 KiB of one byte as zlib has them.
pub fn compressed() -> Vec<u8> {
    let mut bytes = Vec::new();
    let zlib = vlinder_codec::compress::Compression::Zlib;
    assert!(vlinder_codec::compress::compress(zlib, 3, &[b'z'; 8192], 4096, 4096, &mut bytes).unwrap());
    bytes
}

/// Receives into the top level.
pub fn receive_with(
    filesystem: &Filesystem,
    stream: &[u8],
    options: ReceiveOptions,
) -> (Result<(), ReceiveError>, vlinder_stream::receive::Outcome) {
    let mut receiver = Receiver::new(filesystem, filesystem.root().unwrap()).with_options(options);
    let received = receiver.receive(&mut StreamReader::new(stream)).map(drop);
    (received, receiver.into_outcome())
}

pub fn receive(filesystem: &Filesystem, stream: &[u8]) -> Result<(), ReceiveError> {
    receive_with(filesystem, stream, ReceiveOptions::default()).0
}

/// The partial subvolumes of the top level.
pub fn partial(filesystem: &Filesystem) -> Vec<PartialSubvolume> {
    partial_subvolumes(filesystem, &filesystem.root().unwrap()).unwrap()
}

/// What a sender sends that goes on where a token says.
pub fn rest_of(stream: &[u8], token: ResumeToken) -> Vec<u8> {
    let mut writer = ResumingWriter::new(Vec::new(), token);
    writer.write_all(stream).unwrap();
    writer.finish().unwrap()
}

/// The subvolume of a name in the top level.
pub fn subvolume(filesystem: &Filesystem, name: &str) -> Option<RootId> {
    match filesystem.subvolumes().at(name.as_bytes()) {
        Ok(id) => Some(id),
        Err(FsError::Refused(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// All subvolumes by name.
pub fn subvolumes(filesystem: &Filesystem) -> Vec<String> {
    let all = filesystem.subvolumes().all().unwrap();
    let names = all.iter().filter(|found| !found.is_deleted && !found.name.is_empty());
    names.map(|found| String::from_utf8(found.name.clone()).unwrap()).collect()
}

/// All that can be seen of a subvolume's files, one on each line.
pub fn tree(filesystem: &Filesystem, name: &str) -> String {
    let id = subvolume(filesystem, name).unwrap_or_else(|| panic!("no {name}"));
    let root = filesystem.inode(InodeId::root_of(id)).unwrap();
    let mut text = String::new();
    tell(filesystem, &root, "", &mut text);
    text
}

fn tell(filesystem: &Filesystem, inode: &Arc<Inode>, path: &str, text: &mut String) {
    let (caller, attributes) = (Caller::superuser(), filesystem.attributes());
    let of = attributes.of(inode);
    let time = |time: Timestamp| format!("{}.{}", time.seconds, time.nanoseconds);
    write!(
        text,
        "{path:?} {:?} {:o} {}:{} links {} size {} device {:?} at {} mt {}",
        of.file_type,
        of.mode.0,
        of.user.0,
        of.group.0,
        of.link_count,
        of.size_bytes,
        of.device_number,
        time(of.access_time),
        time(of.modification_time)
    )
    .unwrap();
    let mut names = attributes.extended_attributes(inode).unwrap();
    names.sort();
    for name in names {
        let value = attributes.extended_attribute(&caller, inode, &name);
        write!(text, " {}={:?}", name.escape_ascii(), value.map(|value| value.escape_ascii().to_string()))
            .unwrap();
    }
    match of.file_type {
        FileType::Regular => {
            let bytes = subject::read(filesystem, inode).unwrap();
            writeln!(text, " {:08x}", vlinder_codec::checksum::crc32c(0, &bytes)).unwrap();
        }
        FileType::SymbolicLink => {
            let target = filesystem.names().read_link(inode).unwrap();
            writeln!(text, " -> {}", target.escape_ascii()).unwrap();
        }
        FileType::Directory => {
            text.push('\n');
            let mut names = subject::list(filesystem, inode).unwrap();
            names.sort();
            for (name, _) in names {
                let child = filesystem.names().lookup(&caller, inode, &name).unwrap();
                if child.id().root == inode.id().root {
                    tell(filesystem, &child, &format!("{path}/{}", name.escape_ascii()), text);
                }
            }
        }
        _ => text.push('\n'),
    }
}
