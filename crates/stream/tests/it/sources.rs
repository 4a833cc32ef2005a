//! Several subvolumes: clones from one that is not the parent, and snapshots of snapshots.

use std::fs::File;
use std::path::{Path, PathBuf};

use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_stream::send::{SendOptions, send};
use vlinder_stream::wire::{Command, Protocol, StreamWriter};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

use crate::kernel_receives::{ALLOWED, bash, have_linux_change, make, receive, send_to, walk, with_sending};

/// A snapshot, its parent, and further clone sources.
type Step = (&'static str, Option<&'static str>, &'static [&'static str]);

fn send_here(image: &Path, (name, parent, clone_sources): Step, protocol: Protocol, stream: &Path) {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[image], options).unwrap();
    let mut output = StreamWriter::new(File::create(stream).unwrap(), protocol);
    output.begin().unwrap();
    let clone_sources: Vec<&[u8]> = clone_sources.iter().map(|name| name.as_bytes()).collect();
    let sources = (parent.map(str::as_bytes), &clone_sources[..]);
    with_sending(&filesystem, sources, name.as_bytes(), SendOptions::default(), |sending| {
        send(sending, &mut output).unwrap();
    });
    output.put(&Command::End).unwrap();
    output.flush().unwrap();
}

/// Receives streams with Linux; gives what the snapshots look like, and the bytes of data.
fn receive_all(image: &Path, steps: &[Step], streams: &[PathBuf]) -> (Vec<String>, u64) {
    make(image);
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    for stream in streams {
        bash(mount.path(), &format!("btrfs receive -q -f {} .; sync", stream.display()));
    }
    let walks = steps.iter().map(|(name, ..)| walk(&mount.path().join(name))).collect();
    let used = bash(mount.path(), "btrfs filesystem df --raw . | sed -n 's/^Data.*used=//p'");
    mount.unmount().unwrap();
    (walks, used.trim().parse().unwrap())
}

/// Makes subvolumes by a script, sends them in steps, and compares with what Linux sends.
fn travel(what: &str, script: &str, steps: &[Step]) {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("python3"));
    let scratch = Scratch::in_memory(what);
    let (source, target) = (scratch.join("source"), scratch.join("target"));
    make(&source);
    let mount = KernelMount::of(&[&source], "", ALLOWED).unwrap();
    bash(mount.path(), script);
    let expected: Vec<String> = steps.iter().map(|(name, ..)| walk(&mount.path().join(name))).collect();
    mount.unmount().unwrap();
    for (protocol, number) in [(Protocol::V1, 1), (Protocol::V2, 2)] {
        let mount = KernelMount::of(&[&source], "", ALLOWED).unwrap();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            let (name, parent, clone_sources) = step;
            let parent = parent.map_or(String::new(), |parent| format!("-p {parent}"));
            let clone_sources: String = clone_sources.iter().map(|name| format!("-c {name} ")).collect();
            let stream = scratch.join(format!("linux-{number}-{index}"));
            let send =
                format!("ulimit -f 500000; btrfs send -q --proto {number} {parent} {clone_sources} {name}");
            bash(mount.path(), &format!("{send} -f {}", stream.display()));
            theirs.push(stream);
        }
        mount.unmount().unwrap();
        for (index, step) in steps.iter().enumerate() {
            let stream = scratch.join(format!("ours-{number}-{index}"));
            send_here(&source, *step, protocol, &stream);
            ours.push(stream);
        }
        let (walks, used) = receive_all(&target, steps, &ours);
        assert_eq!(walks, expected, "version {number}");
        let (_, used_by_linux) = receive_all(&target, steps, &theirs);
        assert!(used <= used_by_linux, "version {number}: {used} bytes, {used_by_linux} by Linux's");
        let size = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
        for (ours, theirs) in ours.iter().map(size).zip(theirs.iter().map(size)) {
            println!(
                "{what}, version {number}: {ours} bytes, Linux {theirs}; {used}, {used_by_linux} stored"
            );
            assert!(ours * 100 <= theirs * 105, "version {number}: {ours} bytes, Linux {theirs}");
        }
    }
}

#[test]
fn ranges_are_cloned_from_another_subvolume() {
    let script = "btrfs subvolume create v >/dev/null; btrfs subvolume create w >/dev/null; w v/a 1 0 1m; w w/b 2 0 1m; w w/d 3 0 300001; sync; \
        btrfs subvolume snapshot -r v s1 >/dev/null; btrfs subvolume snapshot -r w o1 >/dev/null; \
        cp --reflink=always w/b v/b; cp --reflink=always w/d v/e; c v/a 128k 512k 64k w/b; w v/b 4 64k 4k; \
        c v/new 0 4k 100k w/b; cp --reflink=always v/a v/a2; sync; \
        btrfs subvolume snapshot -r v s2 >/dev/null";
    let steps: [Step; 3] = [("s1", None, &[]), ("o1", None, &[]), ("s2", Some("s1"), &["o1"])];
    travel("stream-clone-sources", script, &steps);
}

#[test]
fn snapshots_of_snapshots_travel() {
    let script = "btrfs subvolume create v >/dev/null; mkdir -p v/d/e; w v/a 1 0 1m; echo 1 > v/d/e/f; sync; \
        btrfs subvolume snapshot -r v s1 >/dev/null; btrfs subvolume snapshot s1 u >/dev/null; \
        w u/a 2 256k 4k; mv u/d/e u/x; rm u/x/f; echo 2 > u/d/g; sync; btrfs subvolume snapshot -r u s2 >/dev/null; \
        btrfs subvolume snapshot s2 t >/dev/null; cp --reflink=always t/a t/b; w t/b 3 0 8k; mv t/x t/d/e; \
        echo 3 > t/d/e/f; sync; btrfs subvolume snapshot -r t s3 >/dev/null; btrfs subvolume snapshot -r s1 s4 >/dev/null";
    let chain: [Step; 4] = [
        ("s1", None, &[]),
        ("s2", Some("s1"), &[]),
        ("s3", Some("s2"), &["s1"]),
        ("s4", Some("s3"), &["s1"]),
    ];
    travel("stream-snapshots-of-snapshots", script, &chain);
    // From one that is no ancestor.
    let across: [Step; 3] = [("s2", None, &[]), ("s3", Some("s2"), &[]), ("s1", Some("s3"), &[])];
    travel("stream-snapshots-backwards", script, &across);
}

/// Linux leaves the rest of the last sector as it is when it cuts a file. A clone of the whole sector then
/// makes the file longer, and changes nothing of its item: Linux's own stream gives the file zeros there.
#[test]
fn what_a_clone_shows_again_of_a_cut_file_travels() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-cut-file");
    let [image, target, full, changes] =
        ["image", "target", "full", "changes"].map(|name| scratch.join(name));
    make(&image);
    let first = "head -c 9000 /dev/urandom > f; sync; cp --reflink=always f g; truncate -s 5000 f";
    let walks = have_linux_change(&image, (first, "xfs_io -c 'reflink g 4096 4096 4904' f >/dev/null"));
    send_to(&image, None, b"s1", &full);
    send_to(&image, Some(b"s1"), b"s2", &changes);
    let (found, _) = receive(&target, [&full, &changes]);
    assert_eq!(found, walks);
}
