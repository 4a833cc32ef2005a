//! Linux makes two snapshots, this crate sends both, Linux receives them elsewhere: the walks are equal.

use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_data::ContentSource;
use vlinder_fs::{Filesystem, OpenOptions, RootId};
use vlinder_stream::receive::Receiver;
use vlinder_stream::send::{SendOptions, Sending, SentSubvolume, count_data_bytes, send};
use vlinder_stream::wire::{Protocol, StreamReader, StreamWriter};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::scenarios::{CONTENTS, NAMES, Scenario, TERABYTES};

/// Names, what is done first, what is done then. They run in a subvolume, in bash.
pub const SCENARIOS: &[Scenario] = &[
    ("moved into a younger one", "mkdir -p p/q r p/q/s; mv r p/q/s", "mv p/q/s p/q/t; mv p/q/t/r p/q/t/u"),
    (
        "a directory that goes waits for what is in it",
        "mkdir -p p/q m n; mkdir p/q/c; mv m n p/q/c; touch p/q/c/f; mkdir p/q/c/x p/q/g",
        "mv p/q/c/x p/q/g; mv p/q/c/m p/q/g/mm; mv p/q/c/n p; rm p/q/c/f; rmdir p/q/c",
    ),
    ("parent and child change places", "mkdir -p a/b/c; touch a/b/f", "mv a/b x; mv a x/b; mv x a"),
    ("files rotate", "touch e.1 e.2 e.3 e", "rm e.3; mv e.2 e.3; mv e.1 e.2; mv e e.1; touch e"),
    (
        "a new directory has the name of the old",
        "mkdir -p d/e; touch d/f",
        "mv d e; mkdir d; mv e/f d; ln d/f e/g",
    ),
    (
        "links",
        "mkdir a b; touch a/f; for i in $(seq 300); do ln a/f a/f.$i; ln a/f b/f.$i; done",
        "rm -r a; mv b/f.7 c; ln c b/f.8.8",
    ),
    (
        "every type",
        "touch f; mkdir d; ln -s x l; mkfifo p; mknod c c 4 300; mknod b b 259 70000",
        "rm l; ln -s $(printf 'x%.0s' {1..3000}) l; mv c d; mknod c c 1 3; mv b b2",
    ),
    (
        "attributes",
        "touch f; mkdir d; setfattr -n user.gone -v 1 f; setfattr -n user.kept -v 2 f; setfattr -n user.empty f; \
         setfacl -d -m u:5:rwx d; chown 7:8 f; chmod 6755 f; setcap cap_net_raw+ep f; chmod 7777 d",
        "setfattr -x user.gone f; setfattr -n user.new -v '' f; setfacl -k d; chown 9 f; chmod 4711 f; \
         setcap cap_chown+ep f; touch -d '1960-01-01 00:00:00.123456789' f; touch -d 2106-02-07 d",
    ),
    (
        "long names",
        "l=$(printf 'n%.0s' {1..255}); mkdir -p $l/$l/$l; touch $l/$l/$l/$l",
        "l=$(printf 'n%.0s' {1..255}) m=$(printf 'm%.0s' {1..255}); mv $l/$l/$l/$l $m; mv $l ${m:1}d; ln $m ${m:2}l",
    ),
    (
        "times of the root",
        "mkdir h; touch -d '2003-03-03 03:03:03.5' .",
        "touch h/w; touch -d '2004-04-04 04:04:04.25' .",
    ),
    (
        "preallocated and holes",
        "xfs_io -f -c 'falloc -k 0 8m' f; xfs_io -f -c 'pwrite -q 0 64k' g; truncate -s 1G big; cp g h",
        "for o in 9 5121 1048577 3000001 8388000; do xfs_io -c \"pwrite -q -S $((o % 90)) $o 5000\" f; done; \
         xfs_io -c 'pwrite -q 1088k 64k' g; xfs_io -c 'pwrite -q 0 64k' -c 'pwrite -q 512m 64k' big; \
         xfs_io -c 'fpunch 4k 8k' -c 'falloc 32k 64k' h",
    ),
    (
        "clones",
        "xfs_io -f -c 'pwrite -q -S 171 128k 64k' f; xfs_io -f -c 'pwrite -q -S 1 0 128k' -c 'pwrite -q -S 2 128k 1m' g",
        "xfs_io -c 'reflink f 144k 0 16k' -c 'reflink f 176k 16k 16k' f >/dev/null; \
         xfs_io -c 'reflink g 64k 1m 128k' -c 'reflink g 0 512k 256k' -c 'pwrite -q -S 115 384k 640k' g >/dev/null; \
         cp --reflink=always f f2; xfs_io -f -c 'reflink g 1m 4k 64k' h >/dev/null",
    ),
    (
        "inline and back",
        "echo small > a; head -c 9000 /dev/urandom > b; : > c; head -c 2048 /dev/urandom > d; ln -s short l",
        "head -c 100000 /dev/urandom >> a; truncate -s 10 b; echo in > c; truncate -s 1m d; \
         rm l; ln -s $(printf 'x%.0s' {1..3000}) l",
    ),
    (
        "large, compressed and without checksums",
        "head -c 3000000 /dev/urandom > a; yes | head -c 3000000 > b; btrfs property set b compression zstd; \
         yes no | head -c 900000 >> b; touch c; chattr +C c; head -c 500000 /dev/urandom > c; sync",
        "yes | head -c 1000000 | dd of=a bs=1000 seek=700 conv=notrunc status=none; truncate -s 1234567 b; \
         xfs_io -c 'pwrite -q 100k 5' c; sync",
    ),
    (
        "numbers that are used again",
        "mkdir -p z/zz; echo q > z/zz/q; echo a > a; mkdir b; ln -s x c; mkfifo d; setfattr -n user.x -v 1 a",
        "rm -r a b c d; mv z y; REMOUNT; mkdir a; setfattr -n user.x -v 1 a; ln -s yy b; mkfifo c; echo f > e; \
         mv y a/z; mv a/z/zz b2; echo late > late",
    ),
    ("unlinked but open", "echo keep > o; exec 9<o; rm o; touch other", "echo more > p"),
    (
        "a subvolume becomes a directory",
        "btrfs subvolume create s >/dev/null; echo x > s/x",
        "btrfs subvolume delete s >/dev/null; mkdir s; echo y > s/y",
    ),
];

/// What the kernel says when a file is compressed for the first time.
pub const ALLOWED: &[&str] = &["BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*"];

/// A hash of what is not zero in each file, wherever it is: holes of terabytes cost nothing.
const HASHES: &str = r#"
import hashlib, os
zeros = bytes(4096)
for directory, directories, files in os.walk(b"."):
    directories.sort()
    for path in sorted(os.path.join(directory, name) for name in files):
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        file, sum, at = os.open(path, os.O_RDONLY), hashlib.md5(), 0
        while True:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file, at, os.SEEK_HOLE)
            while at < end:
                block = os.pread(file, 4096 - at % 4096, at)
                if not block:
                    break
                if block != zeros[:len(block)]:
                    sum.update(b"%d:" % at + block)
                at += len(block)
        os.close(file)
        print(path, sum.hexdigest())
"#;

/// Sizes of directories and what nested subvolumes leave do not travel.
pub const WALK: &str = "find . -inum 2 -prune -o -type d -printf '%P|%y|%#m|%U|%G|%T@\\n' \
    -o -printf '%P|%y|%#m|%n|%U|%G|%s|%l|%T@\\n' | LC_ALL=C sort; \
    getfattr -hRd -m - . 2>/dev/null | LC_ALL=C sort; \
    find . \\( -type c -o -type b \\) -exec stat -c '%n %t %T' {} \\; | LC_ALL=C sort";

/// For scripts: writes bytes of one value, and clones.
const FUNCTIONS: &str = "w() { xfs_io -f -c \"pwrite -q -S $2 $3 $4\" \"$1\"; }; \
    c() { xfs_io -f -c \"reflink -q ${5:-$1} $2 $3 $4\" \"$1\"; };";

/// All that Linux shows of a subvolume and that travels.
pub fn walk(directory: &Path) -> String {
    let hashes = Command::new("python3").args(["-c", HASHES]).current_dir(directory).output().unwrap();
    assert!(hashes.status.success(), "{}", String::from_utf8_lossy(&hashes.stderr));
    bash(directory, WALK) + std::str::from_utf8(&hashes.stdout).unwrap()
}

pub fn bash(directory: &Path, script: &str) -> String {
    let script = &format!("{FUNCTIONS} {script}");
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends a subvolume of an image to a file, in version 1.
pub fn send_to(image: &Path, parent: Option<&[u8]>, name: &[u8], file: &Path) {
    send_as(image, parent, name, file, (Protocol::V1, SendOptions::default()));
}

/// Sends a subvolume of an image to a file; gives the bytes of files in the stream.
pub fn send_as(
    image: &Path,
    parent: Option<&[u8]>,
    name: &[u8],
    file: &Path,
    (protocol, options): (Protocol, SendOptions<'_>),
) -> u64 {
    let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[image], reading).unwrap();
    let mut output = StreamWriter::new(std::fs::File::create(file).unwrap(), protocol);
    output.begin().unwrap();
    let bytes = with_sending(&filesystem, (parent, &[]), name, options, |sending| {
        let bytes = send(sending, &mut output).unwrap();
        assert_eq!(count_data_bytes(sending, protocol).unwrap(), bytes);
        bytes
    });
    output.put(&vlinder_stream::wire::Command::End).unwrap();
    output.flush().unwrap();
    bytes
}

/// Sends a subvolume of a file system in which nothing waits in memory, in version 1.
pub fn send_into(filesystem: &Filesystem, parent: Option<&[u8]>, name: &[u8], output: impl std::io::Write) {
    let mut output = StreamWriter::new(output, Protocol::V1);
    output.begin().unwrap();
    with_sending(filesystem, (parent, &[]), name, SendOptions::default(), |sending| {
        send(sending, &mut output).unwrap();
    });
    output.put(&vlinder_stream::wire::Command::End).unwrap();
    output.flush().unwrap();
}

/// Makes ready to send a subvolume, with a parent and further clone sources.
pub fn with_sending<R>(
    filesystem: &Filesystem,
    (parent, clone_sources): (Option<&[u8]>, &[&[u8]]),
    name: &[u8],
    options: SendOptions<'_>,
    work: impl FnOnce(&Sending<'_>) -> R,
) -> R {
    let engine = filesystem.engine();
    let forest = engine.forest();
    let sent = |name: &[u8]| {
        let id: RootId = filesystem.subvolumes().at(name).unwrap();
        let tree = forest.tree(id).unwrap();
        let item = tree.item();
        let root = Arc::clone(tree.root());
        SentSubvolume { forest, root, uuid: item.uuid(), transid: item.change_transaction() }
    };
    let source = ContentSource {
        volume: engine.volume(),
        checksums: engine.reader().checksum_lookup().unwrap(),
        sector_bytes: engine.sector_size(),
    };
    let (subvolume, parent) = (sent(name), parent.map(sent));
    let clone_sources = clone_sources.iter().map(|name| sent(name)).collect();
    let no_readahead = options.no_readahead || filesystem.options().disabled.send_readahead;
    let options = SendOptions { no_readahead, ..options };
    work(&Sending { name, subvolume, parent, clone_sources, source, options })
}

/// Receives a stream into an image that nobody mounted.
pub fn receive_here(image: &Path, stream: &Path) {
    let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
    let directory = filesystem.root().unwrap();
    let mut streams = StreamReader::new(BufReader::new(std::fs::File::open(stream).unwrap()));
    Receiver::new(&filesystem, directory).receive(&mut streams).unwrap();
    filesystem.close().unwrap();
}

/// What the snapshots of an image look like to Linux.
pub fn look_of_linux(image: &Path) -> [String; 2] {
    btrfs_check_data(image).unwrap();
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    let walks = ["s1", "s2"].map(|snapshot| walk(&mount.path().join(snapshot)));
    mount.unmount().unwrap();
    walks
}

/// Receives streams into a new file system; gives what its snapshots look like, and the bytes of data.
pub fn receive(image: &Path, streams: [&Path; 2]) -> ([String; 2], u64) {
    make(image);
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    for stream in streams {
        bash(mount.path(), &format!("btrfs receive -q -f {} .; sync", stream.display()));
    }
    let walks = ["s1", "s2"].map(|snapshot| walk(&mount.path().join(snapshot)));
    let used = bash(mount.path(), "btrfs filesystem df --raw . | sed -n 's/^Data.*used=//p'");
    mount.unmount().unwrap();
    (walks, used.trim().parse().unwrap())
}

pub fn make(image: &Path) {
    make_with(image, "");
}

/// Makes a file system, with options of mkfs.
pub fn make_with(image: &Path, options: &str) {
    let _ = std::fs::remove_file(image);
    std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    bash(Path::new("/"), &format!("mkfs.btrfs -q {options} {}", image.display()));
}

/// Has Linux send both snapshots, with options of `btrfs send`.
pub fn have_linux_send_as(image: &Path, options: &str, streams: [&Path; 2]) {
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    // Streams go to memory: one without end must not take all of it.
    let send = format!("ulimit -f 500000; btrfs send -q {options}");
    bash(mount.path(), &format!("{send} -f {} s1", streams[0].display()));
    bash(mount.path(), &format!("{send} -f {} -p s1 s2", streams[1].display()));
    mount.unmount().unwrap();
}

/// Has Linux make both snapshots in an image; gives what they look like.
pub fn have_linux_change(image: &Path, (first, then): (&str, &str)) -> [String; 2] {
    let mut mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    bash(mount.path(), "btrfs subvolume create v >/dev/null");
    bash(&mount.path().join("v"), first);
    bash(mount.path(), "btrfs subvolume snapshot -r v s1 >/dev/null");
    for (number, part) in then.split("REMOUNT;").enumerate() {
        if number > 0 {
            mount.unmount().unwrap();
            mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
        }
        bash(&mount.path().join("v"), part);
    }
    bash(mount.path(), "btrfs subvolume snapshot -r v s2 >/dev/null");
    let walks = ["s1", "s2"].map(|snapshot| walk(&mount.path().join(snapshot)));
    mount.unmount().unwrap();
    walks
}

/// The walks are equal, but for the time of the root, which Linux's own stream leaves wrong at times.
#[test]
fn snapshots_travel_full_and_incremental() {
    require!(
        KernelBtrfs,
        Tool("btrfs"),
        Tool("mkfs.btrfs"),
        Tool("setfattr"),
        Tool("setfacl"),
        Tool("setcap")
    );
    require!(Tool("xfs_io"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-kernel-receives");
    let (source, target) = (scratch.join("source"), scratch.join("target"));
    let names = ["full", "changes", "full-of-linux", "changes-of-linux"];
    let [full, changes, full_of_linux, changes_of_linux] = names.map(|name| scratch.join(name));
    let all = SCENARIOS.iter().chain(NAMES).chain(CONTENTS).map(|scenario| ("", scenario));
    let with_holes = CONTENTS.iter().map(|scenario| ("-O ^no-holes", scenario));
    for (mkfs, (name, first, then)) in all.chain(with_holes) {
        let name = format!("{name} {mkfs}");
        make_with(&source, mkfs);
        let expected = have_linux_change(&source, (first, then));
        have_linux_send_as(&source, "", [&full_of_linux, &changes_of_linux]);
        send_to(&source, None, b"s1", &full);
        send_to(&source, Some(b"s1"), b"s2", &changes);
        let (walks, used) = receive(&target, [&full, &changes]);
        for (walk, expected) in walks.iter().zip(&expected) {
            assert_eq!(walk, expected, "{name}");
        }
        let (_, used_by_linux) = receive(&target, [&full_of_linux, &changes_of_linux]);
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        for (ours, theirs) in [(&full, &full_of_linux), (&changes, &changes_of_linux)] {
            let (ours, theirs) = (size(ours), size(theirs));
            println!("{name}: {ours} bytes, Linux {theirs}; {used} stored, Linux {used_by_linux}");
            assert!(ours * 100 <= theirs * 105, "{name}: {ours} bytes, Linux {theirs}");
        }
        assert!(used <= used_by_linux, "{name}: {used} bytes are stored, {used_by_linux} by Linux's streams");
        for streams in [[&full, &changes], [&full_of_linux, &changes_of_linux]] {
            make(&target);
            streams.iter().for_each(|stream| receive_here(&target, stream));
            assert_eq!(look_of_linux(&target), expected, "{name}, received here");
        }
        // Linux goes on with what was received here.
        make(&target);
        receive_here(&target, &full);
        let mount = KernelMount::of(&[&target], "", ALLOWED).unwrap();
        bash(mount.path(), &format!("btrfs receive -q -f {} .", changes.display()));
        mount.unmount().unwrap();
        assert_eq!(look_of_linux(&target), expected, "{name}, received here and there");
    }
}

/// Linux replaces a value by a longer one only where the leaf has room for it: its own stream ends in ENOSPC.
#[test]
fn extended_attributes_that_grow_are_received() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-grown-attributes");
    let names = ["source", "target", "full", "changes"];
    let [source, target, full, changes] = names.map(|name| scratch.join(name));
    let set = |bytes: u32| format!("[os.setxattr('f', 'user.' + n, n.encode() * {bytes}) for n in 'abc']");
    for (node_bytes, before, after) in [(16384, 6000, 12000), (16384, 2000, 2100), (4096, 1800, 2900)] {
        let options = format!("-n {node_bytes}");
        make_with(&source, &options);
        let first = format!("touch f; python3 -c \"import os; {}\"", set(before));
        let remove = "[os.removexattr('f', 'user.' + n) for n in 'abc']";
        let then = format!("python3 -c \"import os; {remove}; {}\"", set(after));
        let expected = have_linux_change(&source, (&first, &then));
        send_to(&source, None, b"s1", &full);
        send_to(&source, Some(b"s1"), b"s2", &changes);
        make_with(&target, &options);
        let mount = KernelMount::of(&[&target], "", ALLOWED).unwrap();
        for stream in [&full, &changes] {
            bash(mount.path(), &format!("btrfs receive -q -f {} .", stream.display()));
        }
        mount.unmount().unwrap();
        assert_eq!(look_of_linux(&target), expected, "nodes of {node_bytes}");
    }
}

#[test]
fn terabyte_holes_travel_as_holes() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-terabytes");
    let names = ["source", "target", "full", "changes"];
    let [source, target, full, changes] = names.map(|name| scratch.join(name));
    let (_, first, then) = TERABYTES;
    for mkfs in ["", "-O ^no-holes"] {
        make_with(&source, mkfs);
        let expected = have_linux_change(&source, (first, then));
        for protocol in [Protocol::V1, Protocol::V2] {
            let how = (protocol, SendOptions::default());
            send_as(&source, None, b"s1", &full, how);
            send_as(&source, Some(b"s1"), b"s2", &changes, how);
            let size = |path: &Path| std::fs::metadata(path).unwrap().len();
            assert!(size(&full) + size(&changes) < 400_000);
            let (walks, _) = receive(&target, [&full, &changes]);
            assert_eq!(walks, expected, "{protocol:?} {mkfs}");
            make(&target);
            [&full, &changes].iter().for_each(|stream| receive_here(&target, stream));
            assert_eq!(look_of_linux(&target), expected, "{protocol:?} {mkfs}, received here");
        }
    }
}

/// What has no item costs nothing, whatever number its file has.
#[test]
fn a_huge_hole_under_a_number_used_again_is_sent_at_once() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::in_memory("stream-huge-hole");
    let (image, stream) = (scratch.join("image"), scratch.join("stream"));
    make(&image);
    let number =
        |mount: &KernelMount, script: &str| bash(mount.path(), &format!("{script}; stat -c %i v/file"));
    let mount = KernelMount::new(&image, "").unwrap();
    let first = number(&mount, "btrfs subvolume create v >/dev/null; echo a > v/file");
    bash(mount.path(), "btrfs subvolume snapshot -r v s1 >/dev/null; rm v/file");
    mount.unmount().unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert_eq!(number(&mount, "truncate -s 7E v/file; echo z >> v/file"), first);
    bash(mount.path(), "btrfs subvolume snapshot -r v s2 >/dev/null");
    mount.unmount().unwrap();
    send_to(&image, Some(b"s1"), b"s2", &stream);
    assert!(std::fs::metadata(&stream).unwrap().len() < 1000);
}
