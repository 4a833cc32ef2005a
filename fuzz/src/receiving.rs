//! Streams of any commands, received into a sound image: new files are held back and made together, and
//! what comes of that is what the commands give one by one; and the image stays clean.
//!
//! An input is: how it is received, and commands until its end, each a kind and its arguments.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use vlinder_base::clock::{self, FixedClock};
use vlinder_base::random::SeededRandom;
use vlinder_base::sync::{Arc, OnceLock};
use vlinder_device::MemoryDevice;
use vlinder_format::{Generation, Uuid};
use vlinder_fs::data::{self, OpenCache};
use vlinder_fs::{Caller, FileType, Filesystem, FsError, Inode, OpenOptions, Timestamp};
use vlinder_stream::receive::{ReceiveOptions, Receiver};
use vlinder_stream::wire::{
    Command, EncodedWrite, Node, Protocol, Snapshot, StreamReader, StreamWriter, Times,
};
use vlinder_testkit::subject::{list, own_check};

use crate::input::Input;
use crate::seeds;

/// Commands of one input.
const MAX_COMMANDS: usize = 100;
/// Few names, so that commands meet; some of them name nothing in the subvolume that is received.
const PATHS: [&[u8]; 14] = [
    b"a", b"b", b"o1", b"o2", b"d", b"d/a", b"d/b", b"d/e", b"d/e/a", b"", b"one", b"link", b"d/../a", b"d/",
];
const NUMBERS: [u64; 12] =
    [0, 1, 700, 4095, 4096, 4097, 9000, 65536, 131_072, 1 << 33, i64::MAX as u64, u64::MAX];
/// What is written.
static DATA: [u8; 70_000] = [7; 70_000];
/// The subvolume that is received.
const OWN: Uuid = Uuid([9; 16]);

/// The image that is received into, and its read-only snapshot.
struct SoundImage {
    device: MemoryDevice,
    parent: (Uuid, Generation),
}

fn base() -> &'static SoundImage {
    static BASE: OnceLock<SoundImage> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = seeds::images().swap_remove(0);
        let filesystem = open(&Arc::new(device.snapshot()));
        let all = filesystem.subvolumes().all().unwrap_or_else(|error| panic!("{error}"));
        let parent = all.iter().find(|found| found.is_read_only);
        let parent = parent.map_or((OWN, Generation(1)), |found| (found.uuid, found.change_transaction));
        SoundImage { device, parent }
    })
}

fn open(device: &Arc<MemoryDevice>) -> Filesystem {
    let options = OpenOptions {
        background: false,
        clock: Arc::new(FixedClock::new(clock::Timestamp::new(1_700_000_000, 9))),
        random: Arc::new(SeededRandom::new(3)),
        ..OpenOptions::default()
    };
    let opened = Filesystem::open_devices(vec![Arc::clone(device) as _], options);
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// The target.
///
/// # Panics
/// Where a judge finds something wrong.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let protocol = input.of(&[Protocol::V1, Protocol::V2, Protocol::V3]);
    let max_errors = input.of(&[1_u64, 0, 3]);
    let stream = stream(&mut input, protocol);
    let [alone, together] = [1, ReceiveOptions::default().checkpoint_bytes]
        .map(|checkpoint_bytes| received(&stream, max_errors, checkpoint_bytes));
    assert_eq!(alone, together, "files that are made together");
}

fn stream(input: &mut Input<'_>, protocol: Protocol) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut writer = StreamWriter::new(&mut stream, protocol);
    let begun = writer.begin();
    assert!(begun.is_ok(), "{begun:?}");
    // What the version does not have is left out.
    let mut write = |command: &Command<'_>| drop(writer.put(command));
    let (parent_uuid, parent_transid) = base().parent;
    let (uuid, transid) = (OWN, Generation(7));
    let whole = Command::Subvolume { path: b"new", uuid, transid };
    let on_parent = Command::Snapshot(Snapshot { path: b"new", uuid, transid, parent_uuid, parent_transid });
    write(if input.u8() & 1 == 0 { &whole } else { &on_parent });
    let mut before: &[u8] = b"a";
    for _ in 0..MAX_COMMANDS {
        if input.is_empty() {
            break;
        }
        write(&command(input, &mut before));
    }
    write(&Command::End);
    let flushed = writer.flush();
    assert!(flushed.is_ok(), "{flushed:?}");
    stream
}

/// A command, mostly about the path of the one before it, as in most streams.
fn command(input: &mut Input<'_>, before: &mut &'static [u8]) -> Command<'static> {
    let kind = input.u8();
    let path = if kind & 0x80 == 0 { *before } else { input.of(&PATHS) };
    let (other, number) = (input.of(&PATHS), input.of(&NUMBERS));
    *before = path;
    let inode = None;
    let node = Node { path: other, inode, mode: 0o010_640, device: number };
    let at = |seconds: u64| Timestamp { seconds: seconds as i64, nanoseconds: 5 };
    let birth = (number & 1 == 0).then(|| at(number));
    let times = Times { access: at(1), modification: at(number), change: at(3), birth };
    match kind & 0x7f {
        0..=20 => {
            *before = other;
            Command::MakeFile { path: other, inode }
        }
        21..=34 => {
            *before = other;
            Command::Rename { path, to: other }
        }
        35..=54 => Command::Write { path, offset: number, data: &DATA[..usize::from(input.u16()) % 65536] },
        55..=62 => Command::SetTimes { path, times },
        63..=69 => Command::SetOwner { path, uid: number, gid: 5 },
        70..=76 => Command::SetMode { path, mode: number },
        77..=83 => Command::Truncate { path, size: number },
        84..=88 => Command::MakeDirectory { path: other, inode },
        89..=92 => Command::Link { path: other, existing: path },
        93..=96 => Command::Unlink { path },
        97 | 98 => Command::RemoveDirectory { path },
        99 | 100 => Command::SetXattr { path, name: b"user.x", value: &DATA[..usize::from(input.u8())] },
        101 => Command::SetXattr { path, name: b"security.capability", value: b"any" },
        102 => Command::RemoveXattr { path, name: b"user.x" },
        103 => Command::SetXattr { path, name: b"btrfs.compression", value: b"zstd" },
        104..=108 => Command::Clone {
            path,
            offset: input.of(&NUMBERS),
            length: number,
            source_uuid: if number & 1 == 0 { OWN } else { base().parent.0 },
            source_transid: if number & 1 == 0 { Generation(7) } else { base().parent.1 },
            source_path: other,
            source_offset: input.of(&NUMBERS),
        },
        109..=111 => Command::Fallocate {
            path,
            mode: u32::from(input.u8()),
            offset: input.of(&NUMBERS),
            length: number,
        },
        112..=115 => Command::EncodedWrite(EncodedWrite {
            path,
            offset: input.of(&NUMBERS),
            file_length: number,
            unencoded_length: input.of(&NUMBERS),
            unencoded_offset: input.of(&NUMBERS),
            compression: u32::from(input.u8() % 8),
            encryption: u32::from(input.u8() / 255),
            data: &DATA[..usize::from(input.u8())],
        }),
        116 => Command::EnableVerity { path, algorithm: 1, block_size: 4096, salt: b"", signature: b"" },
        117 => Command::SetFileAttributes { path, flags: number },
        118 => Command::UpdateExtent { path, offset: 0, length: number },
        119 | 120 => Command::Symlink { path: other, inode, target: b"../a" },
        121 => Command::MakeNode(Node { mode: 0o020_600, ..node }),
        122 => Command::MakeFifo(node),
        123 => Command::MakeSocket(Node { mode: number, ..node }),
        124 => Command::Subvolume { path: b"next", uuid: Uuid([8; 16]), transid: Generation(number) },
        _ => Command::SetTimes { path: b"d", times },
    }
}

/// All that comes of a stream. Every command is applied alone if each is followed by a checkpoint.
fn received(stream: &[u8], max_errors: u64, checkpoint_bytes: u64) -> String {
    let device = Arc::new(base().device.snapshot());
    let filesystem = open(&device);
    let root = filesystem.root().unwrap_or_else(|error| panic!("{error}"));
    let options = ReceiveOptions { max_errors, checkpoint_bytes, ..ReceiveOptions::default() };
    let mut receiver = Receiver::new(&filesystem, Arc::clone(&root)).with_options(options);
    receiver = receiver.watched(|_| ControlFlow::Continue(()));
    let mut streams = StreamReader::new(stream);
    let ended = receiver.receive(&mut streams).map(drop).map_err(|error| error.to_string());
    let place = ended.is_err().then(|| receiver.error_start(&streams));
    let outcome = receiver.into_outcome();
    let errors: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    let mut text = format!("{ended:?} at {place:?}, {} commands, {errors:?}\n", outcome.progress.commands);
    // After errors that were borne, the last checkpoint was made before the first of them.
    if max_errors == 1 || ended.is_ok() {
        for name in ["new", "next", "new.vlinder-partial", "next.vlinder-partial"] {
            match filesystem.names().lookup(&Caller::superuser(), &root, name.as_bytes()) {
                Ok(found) => describe(&filesystem, &found, name, &mut text),
                Err(error) => writeln!(text, "{name}: {error}").unwrap_or_default(),
            }
        }
    }
    drop(root);
    let closed = filesystem.close();
    assert!(closed.is_ok(), "{closed:?}");
    let checked = own_check(device as _);
    assert!(checked.is_ok(), "{checked:?} after\n{text}");
    text
}

fn describe(filesystem: &Filesystem, top: &Arc<Inode>, name: &str, text: &mut String) {
    let mut waiting = vec![(name.to_owned(), Arc::clone(top))];
    while let Some((path, inode)) = waiting.pop() {
        let described = describe_inode(filesystem, &inode, &path, text);
        assert!(described.is_ok(), "{path}: {described:?}");
        if !inode.is_directory() || waiting.len() > MAX_COMMANDS {
            continue;
        }
        for (name, _) in list(filesystem, &inode).unwrap_or_else(|error| panic!("{path}: {error}")) {
            let found = filesystem.names().lookup(&Caller::superuser(), &inode, &name);
            let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
            waiting.push((format!("{path}/{}", name.escape_ascii()), found));
        }
    }
}

fn describe_inode(
    filesystem: &Filesystem,
    inode: &Arc<Inode>,
    path: &str,
    text: &mut String,
) -> Result<(), FsError> {
    let mut of = filesystem.attributes().of(inode);
    if path == "new.vlinder-partial" || path == "next.vlinder-partial" {
        // A mark tells what was received.
        text.push_str(path);
        text.push('\n');
        return Ok(());
    }
    // How much is allocated goes by when the bytes were flushed, and which transaction by the checkpoints.
    of.allocated_bytes = 0;
    let size = inode.size();
    let shown = (of.file_type, of.mode.permissions(), of.user, of.group, of.link_count, size);
    let times = (of.access_time, of.modification_time, of.change_time, of.birth_time);
    writeln!(text, "{path}: {shown:?} {times:?}").unwrap_or_default();
    for name in filesystem.attributes().extended_attributes(inode)? {
        let value = filesystem.attributes().extended_attribute(&Caller::superuser(), inode, &name)?;
        writeln!(text, "  {}={}", name.escape_ascii(), value.escape_ascii()).unwrap_or_default();
    }
    if of.file_type == FileType::Regular {
        let _operation = inode.operation.read();
        let mut bytes = vec![0; 80_000];
        for at in [0, 65_536, 1 << 33, size.saturating_sub(5000)] {
            let read = data::read(filesystem, inode, &OpenCache::new(), at, &mut bytes)?;
            let sum: u64 = bytes[..read].iter().map(|byte| u64::from(*byte)).sum();
            writeln!(text, "  {at}: {read} bytes, {sum}").unwrap_or_default();
        }
    }
    Ok(())
}

/// Where the fuzzer begins: a stream of files as send writes them, and one command of each kind.
pub fn sound_inputs() -> Vec<Vec<u8>> {
    let files = [0_u8, 84 | 0x80, 4, 4, 0, 0, 2, 0, 21, 5, 0, 35, 0, 0, 9, 9, 63, 0, 0, 70, 0, 2, 55, 0, 1];
    let mut inputs = vec![[&[42, 1, 0][..], &files].concat(), [&[42, 1, 0, 1][..], &files[1..]].concat()];
    inputs.extend((0..128).map(|kind| vec![42, 1, 1, 0, 84, 4, 0, 0, 5, 0, kind, 6, 6, 1, 2, 3, 4, 5]));
    inputs
}
