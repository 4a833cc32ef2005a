//! New files are held back and made together: what comes of it is what the commands give one by one.

use std::fmt::Write as _;
use std::io::Read;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use vlinder_base::clock::{FixedClock, Timestamp};
use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::Generation;
use vlinder_fs::{Caller, Filesystem, FsError, InodeId, OpenOptions, Refusal};
use vlinder_stream::receive::{Outcome, ReceiveError, ReceiveOptions, Receiver};
use vlinder_stream::wire::{Command, Protocol, StreamReader, Times};
use vlinder_testkit::subject::own_check;

use crate::support::{
    self, FIRST, begin, image, open, open_device, receive, rest_of, small_image, subvolume, times, tree,
};

/// Few names, so that commands meet.
const PATHS: [&[u8]; 12] =
    [b"a", b"b", b"o1", b"o2", b"d", b"d/a", b"d/b", b"d/o1", b"d/e", b"d/e/a", b"", b"d/../a"];
/// More than a name may have.
const LONG: &[u8] = &[b'n'; 256];

/// A command of a random stream.
#[derive(Clone, Debug)]
struct Drawn {
    kind: u8,
    /// It is about the path of the command before it, as most commands of streams are.
    goes_on: bool,
    path: usize,
    other: usize,
    number: u64,
    birth: bool,
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let path = 0..PATHS.len() + 1;
    let command = (0..26_u8, prop::bool::weighted(0.6), path.clone(), path, 0..6_u64, any::<bool>());
    let command = command.prop_map(|(kind, goes_on, path, other, number, birth)| Drawn {
        kind,
        goes_on,
        path,
        other,
        number,
        birth,
    });
    prop::collection::vec(command, 1..40)
}

fn path_of(number: usize) -> &'static [u8] {
    PATHS.get(number).copied().unwrap_or(LONG)
}

fn commands(drawn: &[Drawn]) -> Vec<Command<'static>> {
    let mut made = vec![begin(b"one"), Command::MakeDirectory { path: b"d", inode: None }];
    let mut before: &[u8] = b"a";
    for Drawn { kind, goes_on, path, other, number, birth } in drawn {
        let other = path_of(*other);
        let path = if *goes_on { before } else { path_of(*path) };
        let number = *number;
        let set_times = |seconds: u64| {
            let of = times(seconds as i64 * 1000 + 5);
            Times { birth: of.birth.filter(|_| *birth), ..of }
        };
        before = path;
        made.push(match kind {
            // Mostly under a name that is free.
            0..=5 => {
                before = if *goes_on { other } else { path };
                Command::MakeFile { path: before, inode: None }
            }
            6..=8 => {
                before = other;
                Command::Rename { path, to: other }
            }
            9..=11 => {
                Command::Write { path, offset: number * 3000, data: &[7; 4000][..number as usize * 700] }
            }
            12 => Command::Write { path, offset: u64::MAX - number, data: b"far" },
            13 | 14 => Command::SetOwner {
                path,
                uid: number,
                gid: [5, u64::from(u32::MAX), 1 << 32][number as usize % 3],
            },
            15 => Command::SetOwner { path, uid: number, gid: 7 },
            16 => Command::SetMode { path, mode: [0o644, 0o4711, 0o2755, 0o17777][number as usize % 4] },
            17 | 18 => Command::SetTimes { path, times: set_times(number) },
            19 => Command::SetTimes { path: b"d", times: set_times(number) },
            20 => Command::Truncate { path, size: number * 700 },
            21 => Command::Link { path: other, existing: path },
            22 => Command::Unlink { path },
            23 => Command::SetXattr { path, name: b"user.x", value: b"value" },
            24 => Command::MakeDirectory { path: other, inode: None },
            _ => Command::Clone {
                path,
                offset: 0,
                length: 4096,
                source_uuid: FIRST,
                source_transid: Generation(7),
                source_path: other,
                source_offset: 0,
            },
        });
    }
    made
}

/// All that comes of a stream. Every command is applied alone if each is followed by a checkpoint.
fn received(empty: &MemoryDevice, stream: &[u8], max_errors: u64, alone: bool) -> String {
    let device = Arc::new(empty.snapshot());
    let filesystem = open_with_clock(device.clone());
    let checkpoint_bytes = if alone { 1 } else { ReceiveOptions::default().checkpoint_bytes };
    let options = ReceiveOptions { max_errors, checkpoint_bytes, ..ReceiveOptions::default() };
    let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap()).with_options(options);
    let mut streams = StreamReader::new(stream);
    let received = receiver.receive(&mut streams).map(drop).map_err(|error| error.to_string());
    let place = received.is_err().then(|| receiver.error_start(&streams));
    let Outcome { errors, warnings, partial, progress, received: made, .. } = receiver.into_outcome();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let whole: Vec<bool> = made.iter().map(|made| made.is_whole).collect();
    let commands = progress.commands;
    let ended = format!("{received:?} at {place:?} {whole:?} {commands}\n{errors:#?} {warnings:?}");
    let token = partial.and_then(|partial| partial.token);
    if max_errors > 1 && token.is_some() {
        // The last checkpoint was made before the first of the errors, wherever that was.
        return ended;
    }
    let names = ["one", "one.vlinder-partial"];
    let trees: Vec<String> = names
        .iter()
        .filter(|name| subvolume(&filesystem, name).is_some())
        .map(|name| tree(&filesystem, name) + &births(&filesystem, name))
        .collect();
    filesystem.close().unwrap();
    own_check(device).unwrap();
    format!("{ended}\n{token:?}\n{}", trees.join("\n"))
}

/// When the files of a subvolume were born, and their inodes changed last.
fn births(filesystem: &Filesystem, name: &str) -> String {
    let root = filesystem.inode(InodeId::root_of(subvolume(filesystem, name).unwrap())).unwrap();
    let mut text = String::new();
    for path in &PATHS[..10] {
        let mut inode = Arc::clone(&root);
        let found = path.split(|byte| *byte == b'/').try_for_each(|name| {
            inode = filesystem.names().lookup(&Caller::superuser(), &inode, name)?;
            Ok::<_, FsError>(())
        });
        if found.is_ok() {
            let of = filesystem.attributes().of(&inode);
            writeln!(text, "{} {:?} {:?}", path.escape_ascii(), of.birth_time, of.change_time).unwrap();
        }
    }
    text
}

/// Its time stands still.
fn open_with_clock(device: Arc<MemoryDevice>) -> Filesystem {
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 9)));
    let options = OpenOptions { background: false, clock, ..OpenOptions::default() };
    Filesystem::open_devices(vec![device], options).unwrap()
}

#[test]
fn holding_new_files_changes_nothing_that_is_seen() {
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let empty = image();
    runner
        .run(
            &(drawn(), prop::sample::select(vec![0_u64, 1, 3]), any::<prop::sample::Index>()),
            |(drawn, max_errors, cut)| {
                let stream = support::stream(Protocol::V2, &commands(&drawn));
                let [alone, held] = [true, false].map(|alone| received(&empty, &stream, max_errors, alone));
                prop_assert_eq!(alone, held);
                // The same of what is cut off, or wrong, somewhere.
                let place = cut.index(stream.len());
                let mut wrong = stream.clone();
                wrong[place] ^= 4;
                for bytes in [&stream[..place], &wrong[..]] {
                    let [alone, held] = [true, false].map(|alone| received(&empty, bytes, 1, alone));
                    prop_assert_eq!(alone, held);
                }
                Ok(())
            },
        )
        .unwrap();
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(byte).collect()
}

/// A stream of many files, each with a command of every kind that is held.
fn many(files: u32, data: &[u8]) -> Vec<u8> {
    let paths: Vec<[Vec<u8>; 2]> = (0..files)
        .map(|number| [format!("o{number}"), format!("d/f{number}")].map(String::into_bytes))
        .collect();
    let mut made = vec![begin(b"one"), Command::MakeDirectory { path: b"d", inode: None }];
    for [orphan, path] in &paths {
        made.extend([
            Command::MakeFile { path: orphan, inode: None },
            Command::Rename { path: orphan, to: path },
            Command::SetTimes { path: b"d", times: times(5) },
            Command::Write { path, offset: 0, data },
            Command::SetOwner { path, uid: 1000, gid: 100 },
            Command::SetMode { path, mode: 0o640 },
            Command::SetTimes { path, times: times(7) },
        ]);
    }
    support::stream(Protocol::V1, &made)
}

/// In the middle of files that are made together there is no more room: what is left is what came before the
/// command that met it, and receiving goes on from there.
#[test]
fn a_full_image_has_all_before_the_command_that_found_it() {
    let device = Arc::new(small_image());
    let filesystem = open_device(device.clone());
    let root = filesystem.root().unwrap();
    let caller = Caller::superuser();
    let filler = filesystem.names().create_file(&caller, &root, b"filler", 0o600).unwrap();
    for megabyte in 0..30_u64 {
        filesystem.files().write_at(&caller, &filler, megabyte << 20, vec![5; 1 << 20].into()).unwrap();
    }
    filesystem.sync().unwrap();
    let stream = many(1000, &noise(30_000));
    let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap());
    let mut streams = StreamReader::new(&stream[..]);
    let error = receiver.receive(&mut streams).unwrap_err();
    assert!(
        matches!(&error, ReceiveError::Command { error, .. } if error.refusal() == Some(Refusal::NoSpace))
    );
    let (start, read) = (receiver.error_start(&streams), streams.position());
    let token = receiver.into_outcome().partial.unwrap().token.unwrap();
    // The header comes before the commands that the token counts.
    println!("ended at {start}, {read} were read");
    assert_eq!(token.received.bytes() + 17, start);
    let mut streams = StreamReader::new(&stream[..start as usize]);
    let (protocol, mut files) = (streams.begin().unwrap().unwrap(), 0);
    while let Ok(command) = streams.next_command(protocol) {
        files += usize::from(matches!(command, Command::MakeFile { .. }));
    }
    let part = tree(&filesystem, "one.vlinder-partial");
    assert_eq!(part.matches(" Regular ").count(), files);
    assert_eq!(part.matches("\n\"/d/").count() + part.matches("\n\"/o").count(), files);
    drop(filler);
    filesystem.names().unlink(&caller, &root, b"filler").unwrap();
    filesystem.sync().unwrap();
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
    let resumed = tree(&filesystem, "one");
    filesystem.subvolumes().delete(&caller, &root, b"one").unwrap();
    filesystem.maintenance().finish_deletions().unwrap();
    receive(&filesystem, &stream).unwrap();
    let below = |tree: &str| tree.split_once('\n').unwrap().1.to_owned();
    assert_eq!(below(&resumed), below(&tree(&filesystem, "one")));
    filesystem.close().unwrap();
    own_check(device).unwrap();
}

/// A file that a stream takes for a directory has the times that are named last, as any file.
#[test]
fn a_file_taken_for_a_directory_keeps_its_times() {
    let commands = [
        begin(b"one"),
        Command::MakeFile { path: b"file", inode: None },
        Command::SetTimes { path: b"file", times: times(1000) },
        Command::MakeFile { path: b"file/below", inode: None },
        Command::SetTimes { path: b"file", times: times(2000) },
    ];
    let stream = support::stream(Protocol::V2, &commands);
    for checkpoint_bytes in [1, ReceiveOptions::default().checkpoint_bytes] {
        let filesystem = open(&image());
        let options = ReceiveOptions { max_errors: 0, checkpoint_bytes, ..ReceiveOptions::default() };
        let (received, outcome) = support::receive_with(&filesystem, &stream, options);
        received.unwrap();
        let errors: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains("not a directory"), "{errors:?}");
        let shown = tree(&filesystem, "one");
        assert!(shown.contains("mt 2001.5"), "{shown}");
    }
}

/// What an input gives a byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

/// The hash that is made beside is the one of all commands, wherever a token is asked for.
#[test]
fn tokens_of_long_streams_are_those_of_their_commands() {
    let stream = many(400, &noise(5_000));
    for checkpoint_bytes in [100_000, 700_000, 256 << 20] {
        let filesystem = open(&image());
        let options = ReceiveOptions { checkpoint_bytes, ..ReceiveOptions::default() };
        let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap()).with_options(options);
        let cut = &stream[..stream.len() - 40];
        receiver.receive(&mut StreamReader::new(Slow(cut))).unwrap_err();
        let token = receiver.into_outcome().partial.unwrap().token.unwrap();
        assert!(token.received.bytes() > 2_000_000, "{token:?}");
        // The sender compares the hash.
        receive(&filesystem, &rest_of(&stream, token)).unwrap();
        assert_eq!(tree(&filesystem, "one").matches(" Regular ").count(), 400);
    }
}

/// Files that are made together cost few descents each.
#[test]
fn new_files_cost_few_descents() {
    let filesystem = open(&image());
    let descents = || match filesystem
        .options()
        .registry
        .snapshot()
        .iter()
        .find(|sample| sample.name == "tree.descents")
    {
        Some(sample) => match sample.value {
            vlinder_base::metrics::Value::Counter(count) => count,
            ref other => panic!("{other:?}"),
        },
        None => panic!("no such metric"),
    };
    let before = descents();
    receive(&filesystem, &many(2000, b"data")).unwrap();
    let each = (descents() - before) as f64 / 2000.0;
    println!("{each} descents for each file");
    assert!(each < 6.0, "{each}");
}
