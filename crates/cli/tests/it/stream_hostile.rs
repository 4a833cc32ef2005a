//! Streams that nobody sent: within 256 MiB and 10 seconds each verb ends, and nothing appears outside of the
//! directory that was named.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_format::{Generation, Uuid};
use vlinder_stream::wire::{Command as StreamCommand, EncodedWrite, Node, Protocol, Snapshot, StreamWriter};

use crate::common::{Ended, run, vlinder};
use vlinder_testkit::Scratch;

const OWN: Uuid = Uuid([1; 16]);
/// KiB of private memory that a verb may have.
const MAX_KIB: u32 = 256 << 10;
/// How long a verb may run.
const PATIENCE: Duration = Duration::from_secs(10);

fn write(path: &Path, commands: &[StreamCommand<'_>]) {
    let mut writer = StreamWriter::new(std::fs::File::create(path).unwrap(), Protocol::V2);
    writer.begin().unwrap();
    writer.put(&StreamCommand::Subvolume { path: b"s", uuid: OWN, transid: Generation(1) }).unwrap();
    commands.iter().chain(&[StreamCommand::End]).for_each(|command| writer.put(command).unwrap());
    writer.flush().unwrap();
}

/// Runs a verb within the bounds, its output thrown away.
fn bounded(words: &[&str]) -> Ended {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let script =
        format!("ulimit -c 0; ulimit -d {MAX_KIB}; exec timeout 20 \"$@\" 2>&1 >/dev/null | tail -c 4000");
    let mut command = Command::new("/bin/bash");
    command.args(["-o", "pipefail", "-c", &format!("{script}; exit ${{PIPESTATUS[0]}}"), "sh"]);
    let output = command.arg(vlinder().get_program()).args(words).output().unwrap();
    let ended = Ended {
        code: output.status.code().unwrap_or(-1),
        out: Vec::new(),
        err: String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let taken = clock.monotonic().saturating_sub(start);
    assert!(taken < PATIENCE, "{words:?} took {taken:?}");
    assert!((0..=3).contains(&ended.code) && !ended.err.contains("panicked"), "{words:?}: {ended:?}");
    ended
}

fn file(path: &[u8]) -> StreamCommand<'_> {
    StreamCommand::MakeFile { path, inode: None }
}

fn directory(path: &[u8]) -> StreamCommand<'_> {
    StreamCommand::MakeDirectory { path, inode: None }
}

fn link<'a>(path: &'a [u8], target: &'a [u8]) -> StreamCommand<'a> {
    StreamCommand::Symlink { path, inode: None, target }
}

fn text<'a>(path: &'a [u8], data: &'a [u8]) -> StreamCommand<'a> {
    StreamCommand::Write { path, offset: 0, data }
}

fn clone_of<'a>(path: &'a [u8], offset: u64, from: &'a [u8], length: u64) -> StreamCommand<'a> {
    StreamCommand::Clone {
        path,
        offset,
        length,
        source_uuid: OWN,
        source_transid: Generation(1),
        source_path: from,
        source_offset: 0,
    }
}

/// What lies beside the directory, with the bytes of files.
fn outside(scratch: &Scratch) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = std::fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "out" && entry.file_name() != "stream")
        .map(|entry| (format!("{:?}", entry.file_name()), std::fs::read(entry.path()).unwrap_or_default()))
        .collect();
    found.sort();
    found
}

#[test]
fn nothing_of_a_stream_leads_outside_of_the_directory() {
    let scratch = Scratch::in_memory("stream-hostile-paths");
    let (stream, out) = (scratch.join("stream"), scratch.join("out"));
    std::fs::write(scratch.join("victim"), "mine").unwrap();
    let before = outside(&scratch);
    let absolute = scratch.join("victim").display().to_string();
    let absolute = absolute.as_bytes();
    let above = b"../../victim";
    let streams: Vec<Vec<StreamCommand<'_>>> = vec![
        vec![file(b".."), text(b"..", b"x")],
        vec![file(b"../victim")],
        vec![file(b"../../victim2"), text(b"../../victim2", b"x")],
        vec![file(absolute), text(absolute, b"x")],
        vec![directory(b"d"), file(b"d/../../victim3")],
        vec![link(b"l", above), text(b"l", b"x")],
        vec![link(b"l", above), StreamCommand::Truncate { path: b"l", size: 0 }],
        vec![link(b"l", b"../.."), file(b"l/victim4")],
        vec![link(b"l", b"/"), directory(b"l/tmp")],
        vec![link(b"l", absolute), StreamCommand::SetMode { path: b"l", mode: 0o4777 }],
        vec![link(b"l", absolute), StreamCommand::SetXattr { path: b"l", name: b"user.x", value: b"1" }],
        vec![link(b"l", absolute), StreamCommand::Link { path: b"m", existing: b"l" }],
        vec![link(b"l", absolute), StreamCommand::Rename { path: b"l", to: b"../l" }],
        vec![file(b"f"), StreamCommand::Link { path: b"../g", existing: b"f" }],
        vec![StreamCommand::Link { path: b"g", existing: absolute }],
        vec![file(b"f"), clone_of(b"f", 0, above, 4)],
        vec![file(b"f"), clone_of(b"f", 0, absolute, 4)],
        vec![StreamCommand::Unlink { path: above }],
        vec![file(b"name"), directory(b"name")],
        vec![file(b"name"), file(b"name/below")],
        vec![directory(b"name"), text(b"name", b"x")],
        vec![directory(b"name"), link(b"name", above)],
        vec![file(b"a\0b")],
        vec![file(b"f"), StreamCommand::SetXattr { path: b"f", name: b"", value: b"1" }],
        vec![file(b"f"), StreamCommand::SetXattr { path: b"f", name: b"user.\0", value: b"1" }],
        vec![file(b"f"), StreamCommand::SetXattr { path: b"f", name: &[b'u'; 60_000], value: b"1" }],
        vec![StreamCommand::MakeNode(Node { path: b"n", inode: None, mode: 0o60_666, device: 0x801 })],
        vec![StreamCommand::Subvolume { path: b"../up", uuid: OWN, transid: Generation(1) }],
        vec![StreamCommand::Subvolume { path: absolute, uuid: OWN, transid: Generation(1) }],
    ];
    for (number, commands) in streams.iter().enumerate() {
        write(&stream, commands);
        std::fs::create_dir(&out).unwrap();
        let words = [stream.to_str().unwrap(), out.to_str().unwrap()];
        bounded(&["stream", "verify", words[0]]);
        bounded(&["stream", "ls", "-l", words[0]]);
        bounded(&["stream", "extract", words[0], "-C", words[1]]);
        assert_eq!(outside(&scratch), before, "stream {number}: {commands:?}");
        assert!(!out.join("s/n").exists(), "a device by an ordinary extraction");
        std::fs::remove_dir_all(&out).unwrap();
    }
    // A link that is there in the place of a name is not followed either.
    write(&stream, &[file(b"f"), text(b"f", b"evil")]);
    std::fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink("..", out.join("s")).unwrap();
    let words = ["stream", "extract", stream.to_str().unwrap(), "-C", out.to_str().unwrap()];
    run(words).failed(1, &["it is there already"]);
    assert_eq!(outside(&scratch), before);
}

#[test]
fn claims_and_bombs_end_within_their_bounds() {
    let scratch = Scratch::in_memory("stream-hostile-sizes");
    let (stream, out) = (scratch.join("stream"), scratch.join("out"));
    let packed = |length, start, data| {
        StreamCommand::EncodedWrite(EncodedWrite {
            path: b"f",
            offset: 0,
            file_length: length,
            unencoded_length: length,
            unencoded_offset: start,
            compression: 2,
            encryption: 0,
            data,
        })
    };
    let names: Vec<Vec<u8>> = (0..30_000).map(|number| format!("{number:0>200}").into_bytes()).collect();
    let deep: Vec<Vec<u8>> = (1..1500).map(|depth| vec![&b"d"[..]; depth].join(&b'/')).collect();
    let uuid = |number: u32| Uuid([number.to_le_bytes(); 4].concat().try_into().unwrap());
    let snapshots: Vec<[StreamCommand<'_>; 2]> = (0..20_000_u32)
        .map(|number| {
            let (transid, parent_transid) = (Generation(1), Generation(1));
            let parent_uuid = if number == 0 { OWN } else { uuid(number + 1000) };
            let snapshot =
                Snapshot { path: b"t", uuid: uuid(number + 1001), transid, parent_uuid, parent_transid };
            [StreamCommand::Snapshot(snapshot), StreamCommand::Unlink { path: &names[number as usize] }]
        })
        .collect();
    let mut doubling = vec![file(b"f"), text(b"f", b"12345678")];
    doubling.extend((3..62).map(|power| clone_of(b"f", 1 << power, b"f", 1 << power)));
    let streams: Vec<(&str, Vec<StreamCommand<'_>>)> = vec![
        ("truncate", vec![file(b"f"), StreamCommand::Truncate { path: b"f", size: 1 << 63 }]),
        ("truncate, almost", vec![file(b"f"), StreamCommand::Truncate { path: b"f", size: (1 << 63) - 1 }]),
        (
            "write at the end",
            vec![file(b"f"), StreamCommand::Write { path: b"f", offset: u64::MAX - 1, data: b"xyz" }],
        ),
        (
            "fallocate",
            vec![file(b"f"), StreamCommand::Fallocate { path: b"f", mode: 0, offset: 1, length: u64::MAX }],
        ),
        ("encoded claim", vec![file(b"f"), packed(u64::MAX, 0, b"x")]),
        ("encoded start", vec![file(b"f"), packed(4096, u64::MAX, b"x")]),
        ("encoded garbage", vec![file(b"f"), packed(131_072, 0, b"no zstd at all")]),
        ("overlapping clone", vec![file(b"f"), text(b"f", b"abcdefgh"), clone_of(b"f", 1, b"f", 4)]),
        ("doubling", doubling),
        ("names", names.iter().map(|name| file(name)).collect()),
        ("depth", deep.iter().map(|path| directory(path)).collect()),
        (
            "snapshots",
            names.iter().take(20_000).map(|name| file(name)).chain(snapshots.into_iter().flatten()).collect(),
        ),
    ];
    for (name, commands) in &streams {
        write(&stream, commands);
        let path = stream.to_str().unwrap();
        std::fs::create_dir(&out).unwrap();
        bounded(&["stream", "verify", path]);
        bounded(&["stream", "ls", "-l", path]);
        bounded(&["stream", "dump", path]);
        if *name != "truncate, almost" && *name != "doubling" {
            bounded(&["stream", "cat", &format!("{path}:/f")]);
            bounded(&["stream", "extract", path, "-C", out.to_str().unwrap()]);
        }
        std::process::Command::new("rm").arg("-rf").arg(&out).status().unwrap();
    }
    // What can't be had is told, with where and what to do.
    write(&stream, &streams[0].1);
    let verified = run(["stream", "verify", stream.to_str().unwrap()]);
    verified.failed(1, &["at byte 79: truncate f: no file can be so long", "send it again"]);
    write(&stream, &streams[6].1);
    let target = format!("{}:/f", stream.display());
    run(["stream", "cat", &target]).failed(1, &["the compressed bytes at byte", "send it again"]);
    write(&stream, &[file(b"../x")]);
    let verified = run(["stream", "verify", stream.to_str().unwrap()]);
    verified.failed(
        1,
        &["at byte 64: mkfile ../x: this is no path in the subvolume", "do not trust this stream"],
    );
}

/// A command that claims 4 GiB, an attribute that is longer than its command, and files that are no streams.
#[test]
fn bytes_that_are_no_stream_are_told() {
    let scratch = Scratch::new("stream-hostile-bytes");
    let path = scratch.join("stream");
    let told = |bytes: &[u8], words: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        for verb in ["verify", "ls", "dump"] {
            bounded(&["stream", verb, path.to_str().unwrap()]).failed(1, words);
        }
    };
    told(b"GIF89a and a little more than a header", &["this is no stream of btrfs send", "decompress first"]);
    told(b"btrfs-stream\0\x09\0\0\0", &["version 9", "newer vlinder"]);
    told(b"btrfs-stream\0\x01\0\0\0", &["at byte 17", "cut off", "send it again"]);
    let head = b"btrfs-stream\0\x01\0\0\0";
    told(&[head, &[0xff; 10][..]].concat(), &["at byte 17", "claims 4294967295 bytes"]);
    let empty = scratch.join("empty");
    std::fs::write(&empty, b"").unwrap();
    run(["stream", "ls", empty.to_str().unwrap()]).failed(1, &["no stream: it is empty"]);
    run(["stream", "verify", "/nowhere/x"]).failed(1, &["/nowhere/x: No such file"]);
    run(["stream", "ls", scratch.path().to_str().unwrap()]).failed(1, &["directory"]);
    run(["stream", "cat", "a:/x", "b:/y"]).failed(2, &["two streams", "--after"]);
    run(["stream", "cat", ":/x"]).failed(2, &["STREAM:/PATH"]);
    run(["stream"]).failed(2, &["Usage"]);
}
