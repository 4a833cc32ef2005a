//! Linux makes two snapshots, this crate sends both, Linux receives them elsewhere: the walks are equal.

use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_fs::{Filesystem, OpenOptions, RootId};
use vlinder_stream::receive::Receiver;
use vlinder_stream::send::{ContentSource, Sending, SentSubvolume, send};
use vlinder_stream::wire::{Protocol, StreamReader, StreamWriter};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

/// Names, what is done first, what is done then. They run in a subvolume, in bash.
const SCENARIOS: &[(&str, &str, &str)] = &[
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
pub const ALLOWED: &[&str] =
    &["BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_ZSTD*"];

/// Sizes of directories and what nested subvolumes leave do not travel.
pub const WALK: &str = "find . -inum 2 -prune -o -type d -printf '%P|%y|%#m|%U|%G|%T@\\n' \
    -o -printf '%P|%y|%#m|%n|%U|%G|%s|%l|%T@\\n' | LC_ALL=C sort; \
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0r md5sum; getfattr -hRd -m - . 2>/dev/null | LC_ALL=C sort; \
    find . \\( -type c -o -type b \\) -exec stat -c '%n %t %T' {} \\; | LC_ALL=C sort";

pub fn bash(directory: &Path, script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends a subvolume of an image to a file.
fn send_to(image: &Path, parent: Option<&[u8]>, name: &[u8], file: &Path) {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[image], options).unwrap();
    send_into(&filesystem, parent, name, std::fs::File::create(file).unwrap());
}

/// Sends a subvolume of a file system in which nothing waits in memory.
pub fn send_into(filesystem: &Filesystem, parent: Option<&[u8]>, name: &[u8], output: impl std::io::Write) {
    let forest = filesystem.engine().forest();
    let sent = |name: &[u8]| {
        let id: RootId = filesystem.subvolumes().at(name).unwrap();
        let tree = forest.tree(id).unwrap();
        let item = tree.item();
        let root = Arc::clone(tree.root());
        SentSubvolume { forest, root, uuid: item.uuid(), transid: item.change_transaction() }
    };
    let parent = parent.map(sent);
    let mut output = StreamWriter::new(output, Protocol::V1);
    output.begin().unwrap();
    let engine = filesystem.engine();
    let source = ContentSource {
        volume: engine.volume(),
        checksums: engine.reader().checksum_lookup().unwrap(),
        sector_bytes: engine.sector_size(),
    };
    let (subvolume, clone_sources) = (sent(name), Vec::new());
    let sending = Sending { name, subvolume, parent, clone_sources, source };
    send(&sending, &mut output).unwrap();
    output.put(&vlinder_stream::wire::Command::End).unwrap();
    output.flush().unwrap();
}

/// Receives a stream into an image that nobody mounted.
fn receive_here(image: &Path, stream: &Path) {
    let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
    let directory = filesystem.root().unwrap();
    let mut streams = StreamReader::new(BufReader::new(std::fs::File::open(stream).unwrap()));
    Receiver::new(&filesystem, directory).receive(&mut streams).unwrap();
    filesystem.close().unwrap();
}

/// What the snapshots of an image look like to Linux.
fn look_of_linux(image: &Path) -> [String; 2] {
    btrfs_check_data(image).unwrap();
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    let walks = ["s1", "s2"].map(|snapshot| bash(&mount.path().join(snapshot), WALK));
    mount.unmount().unwrap();
    walks
}

/// Receives streams into a new file system; gives what its snapshots look like, and the bytes of data.
fn receive(image: &Path, streams: [&Path; 2]) -> ([String; 2], u64) {
    make(image);
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    for stream in streams {
        bash(mount.path(), &format!("btrfs receive -q -f {} .; sync", stream.display()));
    }
    let walks = ["s1", "s2"].map(|snapshot| bash(&mount.path().join(snapshot), WALK));
    let used = bash(mount.path(), "btrfs filesystem df --raw . | sed -n 's/^Data.*used=//p'");
    mount.unmount().unwrap();
    (walks, used.trim().parse().unwrap())
}

pub fn make(image: &Path) {
    let _ = std::fs::remove_file(image);
    std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    bash(Path::new("/"), &format!("mkfs.btrfs -q {}", image.display()));
}

/// Has Linux make and send both snapshots; gives what they look like.
fn have_linux_send(image: &Path, (first, then): (&str, &str), streams: [&Path; 2]) -> [String; 2] {
    make(image);
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
    let walks = ["s1", "s2"].map(|snapshot| bash(&mount.path().join(snapshot), WALK));
    bash(mount.path(), &format!("btrfs send -q -f {} s1", streams[0].display()));
    bash(mount.path(), &format!("btrfs send -q -f {} -p s1 s2", streams[1].display()));
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
    require!(Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-kernel-receives");
    let (source, target) = (scratch.join("source"), scratch.join("target"));
    let names = ["full", "changes", "full-of-linux", "changes-of-linux"];
    let [full, changes, full_of_linux, changes_of_linux] = names.map(|name| scratch.join(name));
    for (name, first, then) in SCENARIOS {
        let expected = have_linux_send(&source, (first, then), [&full_of_linux, &changes_of_linux]);
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
