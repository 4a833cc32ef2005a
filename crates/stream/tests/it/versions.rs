//! Version 2 of the stream, compressed extents as they are, and streams without data, beside Linux's.

use std::collections::BTreeMap;
use std::path::Path;

use vlinder_stream::send::SendOptions;
use vlinder_stream::wire::{CommandKind, Protocol, StreamReader};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

use crate::kernel_receives::{
    ALLOWED, SCENARIOS, bash, have_linux_change, have_linux_send_as, look_of_linux, make_with, receive,
    receive_here, send_as,
};
use crate::scenarios::CONTENTS;

/// How Linux is asked for what the options say.
const WAYS: [(&str, SendOptions<'_>); 2] = [
    ("--proto 2", OPTIONS),
    ("--proto 2 --compressed-data", SendOptions { compressed_data: true, ..OPTIONS }),
];
/// What of the first list is tried, too.
const ALSO: [&str; 6] = [
    "every type",
    "preallocated and holes",
    "clones",
    "inline and back",
    "large, compressed and without checksums",
    "numbers that are used again",
];
const OPTIONS: SendOptions<'_> = SendOptions {
    compressed_data: false,
    no_data: false,
    threads: None,
    no_readahead: false,
    progress: None,
};

/// Bytes of compressed extents on disk and in files, as Linux tells them.
fn stored(image: &Path, snapshot: &str) -> String {
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    let said = bash(&mount.path().join(snapshot), "compsize -b . | grep -E '^(zlib|lzo|zstd)' || true");
    mount.unmount().unwrap();
    said
}

/// Preallocated blocks of 512 bytes of each file up to its end, as FIEMAP tells them.
const PREALLOCATED: &str = r#"
import os, subprocess
for directory, directories, files in os.walk(b'.'):
    directories.sort()
    for name in sorted(files):
        path = os.path.join(directory, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        lines = subprocess.run([b'xfs_io', b'-r', b'-c', b'fiemap -v', path], capture_output=True).stdout
        fields = [line.split() for line in lines.decode().splitlines()[2:]]
        limit, held = (os.stat(path).st_size + 4095) // 4096 * 8, 0
        for f in fields:
            if f[2] != 'hole' and int(f[-1], 16) & 0x800:
                first, last = (int(n) for n in f[1].strip('[]:').split('..'))
                held += max(0, min(last + 1, limit) - first)
        print(path, held)
"#;

fn preallocated(image: &Path) -> [String; 2] {
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    let script = format!("python3 - <<'END'\n{PREALLOCATED}\nEND");
    let said = ["s1", "s2"].map(|snapshot| bash(&mount.path().join(snapshot), &script));
    mount.unmount().unwrap();
    said
}

#[test]
fn version_2_travels_with_and_without_no_holes() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"), Tool("setfacl"));
    require!(Tool("setcap"), Tool("xfs_io"), Tool("compsize"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-version-2");
    let (source, target) = (scratch.join("source"), scratch.join("target"));
    let names = ["full", "changes", "full-of-linux", "changes-of-linux"];
    let [full, changes, full_of_linux, changes_of_linux] = names.map(|name| scratch.join(name));
    // Names are the same in any version.
    let contents = SCENARIOS.iter().filter(|(name, ..)| ALSO.contains(name)).chain(CONTENTS);
    for mkfs in ["", "-O ^no-holes"] {
        for (name, first, then) in contents.clone() {
            make_with(&source, mkfs);
            let expected = have_linux_change(&source, (first, then));
            for (flags, options) in WAYS {
                let context = format!("{name}, {flags} {mkfs}");
                have_linux_send_as(&source, flags, [&full_of_linux, &changes_of_linux]);
                send_as(&source, None, b"s1", &full, (Protocol::V2, options));
                send_as(&source, Some(b"s1"), b"s2", &changes, (Protocol::V2, options));
                let (_, used_by_linux) = receive(&target, [&full_of_linux, &changes_of_linux]);
                let stored_by_linux = ["s1", "s2"].map(|snapshot| stored(&target, snapshot));
                let (walks, used) = receive(&target, [&full, &changes]);
                for (walk, expected) in walks.iter().zip(&expected) {
                    assert_eq!(walk, expected, "{context}");
                }
                let size = |path: &Path| std::fs::metadata(path).unwrap().len();
                for (ours, theirs) in [(&full, &full_of_linux), (&changes, &changes_of_linux)] {
                    let (ours, theirs) = (size(ours), size(theirs));
                    println!("{context}: {ours} bytes, Linux {theirs}; {used} stored, Linux {used_by_linux}");
                    // A preallocated range is a command that Linux does not send.
                    assert!(ours * 100 <= theirs * 105 + 6000, "{context}: {ours} bytes, Linux {theirs}");
                }
                // What is preallocated is so at the receiver; Linux leaves holes or writes zeros.
                let [reserved, reserved_at_source] = [&target, &source].map(|image| preallocated(image));
                assert_eq!(reserved, reserved_at_source, "{context}");
                let nothing_is_reserved =
                    reserved.iter().flat_map(|held| held.lines()).all(|line| line.ends_with(" 0"));
                assert!(
                    !nothing_is_reserved || used <= used_by_linux,
                    "{context}: {used} bytes, {used_by_linux}"
                );
                assert_eq!(
                    ["s1", "s2"].map(|snapshot| stored(&target, snapshot)),
                    stored_by_linux,
                    "{context}"
                );
                make_with(&target, mkfs);
                [&full, &changes].iter().for_each(|stream| receive_here(&target, stream));
                assert_eq!(look_of_linux(&target), expected, "{context}, received here");
            }
        }
    }
}

/// The commands of a stream about the contents of files, and how many there are of the other kinds but those
/// that make and move names.
fn commands(stream: &Path) -> (Vec<String>, BTreeMap<CommandKind, usize>) {
    let mut reader = StreamReader::new(std::io::BufReader::new(std::fs::File::open(stream).unwrap()));
    let protocol = reader.begin().unwrap().unwrap();
    let (mut contents, mut others) = (Vec::new(), BTreeMap::new());
    loop {
        let command = reader.next_command(protocol).unwrap();
        match command.kind() {
            CommandKind::End => return (contents, others),
            CommandKind::Write | CommandKind::EncodedWrite => panic!("bytes in a stream without data"),
            CommandKind::UpdateExtent | CommandKind::Fallocate => contents.push(format!("{command:?}")),
            CommandKind::Rename | CommandKind::SetTimes | CommandKind::Clone => {}
            kind => *others.entry(kind).or_default() += 1,
        }
    }
}

#[test]
fn a_stream_without_data_names_what_linux_names() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-no-data");
    let source = scratch.join("source");
    let names = ["full", "changes", "full-of-linux", "changes-of-linux"];
    let [full, changes, full_of_linux, changes_of_linux] = names.map(|name| scratch.join(name));
    let first = "w f 1 0 300001; touch z; btrfs property set z compression zstd; yes | head -c 300000 > z; \
        seq 100 > small; w p 3 0 1m; w h 4 0 1m; truncate -s 3m h; ln -s x l; mkdir d";
    let then = "w f 5 64k 4k; w f 6 290000 30000; xfs_io -c 'fpunch 64k 64k' p; xfs_io -c 'falloc 2m 64k' p; \
        truncate -s 100 small; w h 7 2m 10; echo new > d/new; chattr +A z; rm l";
    make_with(&source, "");
    have_linux_change(&source, (first, then));
    for (protocol, flags) in [(Protocol::V1, "--proto 1 --no-data"), (Protocol::V2, "--proto 2 --no-data")] {
        have_linux_send_as(&source, flags, [&full_of_linux, &changes_of_linux]);
        let options = (protocol, SendOptions { no_data: true, ..OPTIONS });
        assert_eq!(send_as(&source, None, b"s1", &full, options), 0);
        assert_eq!(send_as(&source, Some(b"s1"), b"s2", &changes, options), 0);
        for (ours, theirs) in [(&full, &full_of_linux), (&changes, &changes_of_linux)] {
            assert_eq!(commands(ours), commands(theirs), "{flags}");
        }
    }
}
