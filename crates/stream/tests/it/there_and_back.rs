//! A subvolume that was received goes on: to a third file system, and back to the first, with Linux making
//! the changes and looking at the result.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_stream::receive::{ReceiveError, ReceiveOptions, Receiver, SourceChange};
use vlinder_stream::wire::StreamReader;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::kernel_receives::{ALLOWED, WALK, bash, make};
use crate::support::{receive, receive_with, rest_of};

fn receive_here(image: &Path, stream: &Path) {
    let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
    let mut streams = StreamReader::new(BufReader::new(File::open(stream).unwrap()));
    let mut receiver = Receiver::new(&filesystem, filesystem.root().unwrap());
    receiver.receive(&mut streams).unwrap();
    drop(receiver);
    filesystem.close().unwrap();
}

fn in_kernel(image: &Path, script: &str) -> String {
    let mount = KernelMount::of(&[image], "", ALLOWED).unwrap();
    let output = bash(mount.path(), script);
    mount.unmount().unwrap();
    btrfs_check_data(image).unwrap();
    output
}

const FILL: &str = "btrfs subvolume create v >/dev/null; cd v; mkdir -p a/b; echo one > a/b/f; \
    head -c 3000000 /dev/urandom > a/big; yes | head -c 500000 > a/text; mkfifo p; ln -s a l; \
    setfattr -n user.x -v y a; chown 5:6 a/big; cd ..; btrfs subvolume snapshot -r v s1 >/dev/null; \
    btrfs send -q s1 -f STREAM";
const CHANGE: &str = "btrfs subvolume snapshot s1 w >/dev/null; cd w; mv a c; rm l; echo more >> c/b/f; \
    cp --reflink=always c/big c/copy; dd if=/dev/urandom of=c/big bs=4096 seek=9 count=3 conv=notrunc status=none; \
    cd ..; btrfs subvolume snapshot -r w s2 >/dev/null; btrfs send -q -p s1 s2 -f STREAM";

/// As [`CHANGE`], without clones: `btrfs receive` finds their sources by received UUID alone, which the first
/// has not.
const PLAIN_CHANGE: &str = "btrfs subvolume snapshot s1 x >/dev/null; cd x; mv a/b e; rm a/text; echo more >> e/f; \
    cd ..; btrfs subvolume snapshot -r x s3 >/dev/null; btrfs send -q -p s1 s3 -f STREAM";

#[test]
fn what_was_received_is_changed_and_goes_to_a_third_and_back() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("stream-there-and-back");
    let [first, second, third, one, two] =
        ["first", "second", "third", "one", "two"].map(|name| scratch.join(name));
    for image in [&first, &second, &third] {
        make(image);
    }
    in_kernel(&first, &FILL.replace("STREAM", one.to_str().unwrap()));
    receive_here(&second, &one);
    receive_here(&third, &one);
    // Linux changes a snapshot of what was received here, and sends it as a change of that: the stream names
    // the first file system's UUID.
    in_kernel(&second, &CHANGE.replace("STREAM", two.to_str().unwrap()));
    receive_here(&third, &two);
    let look = |snapshot: &str| format!("cd {snapshot}; {WALK}");
    let expected = in_kernel(&second, &look("s2"));
    assert_eq!(in_kernel(&third, &look("s2")), expected, "the third");
    // Back to the first, by Linux and here.
    receive_here(&first, &two);
    assert_eq!(in_kernel(&first, &look("s2")), expected, "the first");
    let three = scratch.join("three");
    in_kernel(&second, &PLAIN_CHANGE.replace("STREAM", three.to_str().unwrap()));
    let plain = in_kernel(&second, &look("s3"));
    in_kernel(&first, &format!("mkdir again; btrfs receive -q -f {} again", three.display()));
    assert_eq!(in_kernel(&first, &look("again/s3")), plain, "the first, by Linux");
    receive_here(&third, &three);
    in_kernel(&third, &format!("mkdir again; btrfs receive -q -f {} again", three.display()));
    assert_eq!(in_kernel(&third, &look("s3")), plain, "the third");
    assert_eq!(in_kernel(&third, &look("again/s3")), plain, "the third, by Linux");
    let shown = in_kernel(&third, "btrfs subvolume show s2");
    let line = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(line("Flags").contains("readonly"), "{shown}");
    let sent = in_kernel(&second, "btrfs subvolume show s2");
    let uuid = sent.lines().find(|line| line.trim_start().starts_with("UUID")).unwrap();
    let uuid = uuid.split_whitespace().last().unwrap();
    assert!(line("Received UUID").contains(uuid), "{shown}");
}

/// Linux marks a subvolume as received while its data are in the page cache, so that its transaction moves
/// afterwards. A change by a program is another thing.
#[test]
fn a_parent_that_linux_received_is_taken_until_it_is_changed() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"), Tool("perl"));
    let scratch = Scratch::in_memory("stream-changed-parent");
    let [source, target, one, two] = ["source", "target", "one", "two"].map(|name| scratch.join(name));
    for image in [&source, &target] {
        make(image);
    }
    in_kernel(&source, &FILL.replace("STREAM", one.to_str().unwrap()));
    in_kernel(&source, &CHANGE.replace("STREAM", two.to_str().unwrap()));
    // A snapshot of another subvolume commits, and the data come later.
    let receive = "btrfs subvolume create x >/dev/null; btrfs receive -q -f STREAM .; \
        btrfs subvolume snapshot x y >/dev/null; sync -f .";
    in_kernel(&target, &receive.replace("STREAM", one.to_str().unwrap()));
    {
        let filesystem = Filesystem::open(&[&target], OpenOptions::default()).unwrap();
        let parent = filesystem.subvolumes().at(b"s1").unwrap();
        let parent = filesystem.subvolumes().information(parent).unwrap();
        assert!(parent.change_transaction > parent.receive_transaction, "{parent:?}");
        filesystem.close().unwrap();
    }
    receive_here(&target, &two);
    let look = format!("cd s2; {WALK}");
    assert_eq!(in_kernel(&target, &look), in_kernel(&source, &look));
    // By the ioctl that older programs used, which leaves the received UUID.
    let change = "set_flags() { perl -e 'open(my $f, \"<\", \"s1\") or die; my $flags = pack(\"Q\", shift); \
        ioctl($f, 0x4008941a, $flags) or die $!' $1; }; \
        set_flags 0; echo changed > s1/new; sync -f .; set_flags 2; btrfs subvolume delete s2 >/dev/null";
    let allowed =
        [ALLOWED, &["BTRFS warning (device DEVICE): read-write for subvolume * with received uuid *"]]
            .concat();
    let mount = KernelMount::of(&[&target], "", &allowed).unwrap();
    bash(mount.path(), change);
    mount.unmount().unwrap();
    let filesystem = Filesystem::open(&[&target], OpenOptions::default()).unwrap();
    let mut streams = StreamReader::new(BufReader::new(File::open(&two).unwrap()));
    let error = Receiver::new(&filesystem, filesystem.root().unwrap()).receive(&mut streams).unwrap_err();
    let ReceiveError::ChangedSource { change: SourceChange::SinceReceived(_), .. } = error else {
        panic!("{error}")
    };
    assert!(filesystem.subvolumes().at(b"s2").is_err());
    filesystem.close().unwrap();
}

/// For Linux a partial subvolume is a writable one that was not received; once it is whole, it is a parent.
#[test]
fn linux_sees_what_is_partial_and_takes_what_went_on() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("stream-partial");
    let [source, target, one, two] = ["source", "target", "one", "two"].map(|name| scratch.join(name));
    for image in [&source, &target] {
        make(image);
    }
    in_kernel(&source, &FILL.replace("STREAM", one.to_str().unwrap()));
    in_kernel(&source, &CHANGE.replace("STREAM", two.to_str().unwrap()));
    let stream = std::fs::read(&one).unwrap();
    let filesystem = Filesystem::open(&[&target], OpenOptions::default()).unwrap();
    let options = ReceiveOptions { checkpoint_bytes: 1 << 20, ..ReceiveOptions::default() };
    let (received, outcome) = receive_with(&filesystem, &stream[..stream.len() / 2], options);
    received.unwrap_err();
    let token = outcome.partial.unwrap().token.unwrap();
    filesystem.close().unwrap();
    let shown = in_kernel(&target, "btrfs subvolume show s1.vlinder-partial");
    let line = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap().trim();
    assert!(line("Received UUID:").ends_with('-') && !line("Flags:").contains("readonly"), "{shown}");
    in_kernel(&target, "touch s1.vlinder-partial/written");
    let filesystem = Filesystem::open(&[&target], OpenOptions::default()).unwrap();
    receive(&filesystem, &rest_of(&stream, token)).unwrap();
    filesystem.close().unwrap();
    let look = |snapshot: &str| format!("cd {snapshot}; {WALK}");
    assert_eq!(in_kernel(&target, &look("s1")), in_kernel(&source, &look("s1")));
    assert_eq!(in_kernel(&target, "ls"), "s1\n");
    in_kernel(&target, &format!("btrfs receive -q -f {} .", two.display()));
    assert_eq!(in_kernel(&target, &look("s2")), in_kernel(&source, &look("s2")));
}

/// Compressed extents that Linux sends as they are stay so: as much is stored as at the sender.
#[test]
fn compressed_extents_are_kept_as_they_came() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::in_memory("stream-compressed");
    let [source, target, stream] = ["source", "target", "stream"].map(|name| scratch.join(name));
    for algorithm in ["zlib", "lzo", "zstd"] {
        make(&source);
        make(&target);
        let fill = format!(
            "btrfs subvolume create v >/dev/null; cd v; \
             for i in $(seq 5); do : > f$i; btrfs property set f$i compression {algorithm}; done; \
             seq 300000 > f1; yes abc | head -c 131072 > f2; seq 900 > f3; seq 20000 | head -c 77777 > f4; \
             seq 40000 > f5; sync; echo changed | dd of=f5 bs=1 seek=50000 conv=notrunc status=none; sync; cd ..; \
             btrfs subvolume snapshot -r v s1 >/dev/null; \
             btrfs send -q --proto 2 --compressed-data s1 -f {}",
            stream.display()
        );
        let allowed =
            [ALLOWED, &["BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_LZO*"]]
                .concat();
        let run = |image: &Path, script: &str| {
            let mount = KernelMount::of(&[image], "", &allowed).unwrap();
            let output = bash(mount.path(), script);
            mount.unmount().unwrap();
            btrfs_check_data(image).unwrap();
            output
        };
        run(&source, &fill);
        receive_here(&target, &stream);
        let look = format!("cd s1; {WALK}");
        assert_eq!(run(&target, &look), run(&source, &look), "{algorithm}");
        let used = |image: &Path| -> u64 {
            let text = run(image, "btrfs filesystem df --raw . | sed -n 's/^Data.*used=//p'");
            text.trim().parse().unwrap()
        };
        // Compressed extents of which a part alone is shown are written anew.
        let (sent, received) = (used(&source), used(&target));
        println!("{algorithm}: {sent} bytes at the sender, {received} here");
        assert!(received <= sent + (256 << 10), "{algorithm}: {sent} bytes at the sender, {received} here");
    }
}
