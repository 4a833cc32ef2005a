//! Members that were away, and members that went on alone (field-cases A2; two histories).

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::Options as CheckOptions;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{Device, FileDevice};
use vlinder_format::block::BlockRules;
use vlinder_format::inode::InodeItem;
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Block, DeviceId, ItemType};
use vlinder_fs::path::Files;
use vlinder_fs::salvage::{Salvage, SalvageOptions};
use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};

use crate::support;
use vlinder_testkit::kernel::{LoopDevice, unmount};
use vlinder_testkit::walk::{self, Options};
use vlinder_testkit::{Scratch, eventually, require};

const DEVICE_BYTES: u64 = 256 << 20;

fn tool(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel mounts what is left of a file system's devices, changes it, and gives its walk.
fn change(images: &[&Path], script: &str) -> String {
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan"]).arg(device.node()));
    }
    let directory = Scratch::new("histories-mount");
    let mount = ["-t", "btrfs", "-o", "degraded"];
    tool(Command::new("mount").args(mount).arg(loops[0].node()).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", script]).current_dir(directory.path()));
    let walked = walk::walk(directory.path(), &Options::default()).unwrap();
    unmount(directory.path()).unwrap();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    walk::render(&walked)
}

/// A file system of this profile on so many devices, with a file whose bytes have no checksums.
fn make(scratch: &Scratch, profile: &str, devices: usize) -> Vec<PathBuf> {
    let names = ["first", "second", "third", "fourth"];
    let images: Vec<PathBuf> = names[..devices].iter().map(|name| scratch.join(name)).collect();
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    }
    // It looks at all that is mounted on loop devices, of other tests too, and fails where one is just being
    // detached.
    let is_made = || {
        let mut command = Command::new("mkfs.btrfs");
        let output = command.args(["-q", "-d", profile, "-m", profile]).args(&images).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() || said.contains("cannot check mount status"), "{said}");
        output.status.success()
    };
    eventually("mkfs.btrfs makes a file system", is_made);
    let script =
        "touch plain; chattr +C plain; head -c 512K /dev/zero | tr '\\0' o > plain; echo common > file";
    change(&paths(&images), script);
    images
}

fn paths(images: &[PathBuf]) -> Vec<&Path> {
    images.iter().map(PathBuf::as_path).collect()
}

/// A mirrored file system.
fn mirrors(scratch: &Scratch) -> Vec<PathBuf> {
    make(scratch, "raid1", 2)
}

fn open(images: &[PathBuf], order: [usize; 2], options: &str) -> Result<Filesystem, FsError> {
    let paths = order.map(|number| images[number].as_path());
    Filesystem::open(&paths, OpenOptions::parse(options).unwrap())
}

fn check(images: &[PathBuf], history: Option<DeviceId>) -> Result<vlinder_check::Report, String> {
    let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
    let opened = |image: &PathBuf| Arc::new(FileDevice::open(image, &how).unwrap()) as Arc<dyn Device>;
    let options = CheckOptions { history, ..CheckOptions::default() };
    vlinder_check::check(images.iter().map(opened).collect(), &options).map_err(|error| error.to_string())
}

/// Opens what `restore` opens.
fn salvage(images: &[PathBuf]) -> Result<(), String> {
    let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
    let opened = |image: &PathBuf| Arc::new(FileDevice::open(image, &how).unwrap()) as Arc<dyn Device>;
    let devices: Vec<_> = images.iter().map(opened).collect();
    Salvage::open(&devices, &SalvageOptions::default()).map(drop).map_err(|error| error.to_string())
}

/// Commits, each with something to write.
fn commits(count: u64, word: &str) -> String {
    let one = |number| format!("echo {word}-{number} > file; sync;");
    (1..count).map(one).collect()
}

#[test]
fn a_stale_member_is_used_only_where_no_other_copy_is_good() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (left, missed) in [(0, 1), (1, 1), (0, 2), (1, 10)] {
        let scratch = Scratch::new("histories");
        let images = mirrors(&scratch);
        let overwrite = "tr o n < plain > /dev/shm/new.$$; dd if=/dev/shm/new.$$ of=plain conv=notrunc bs=64k status=none; rm /dev/shm/new.$$";
        let script = format!("{}{overwrite}", commits(missed, "later"));
        let expected = change(&[&images[left]], &script);
        for order in [[0, 1], [1, 0]] {
            let filesystem = open(&images, order, "").unwrap();
            let members = filesystem.engine().volume().members();
            let stale: Vec<bool> = members.iter().map(|member| member.is_stale).collect();
            assert_eq!(stale, [left == 1, left == 0], "{missed} missed");
            if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
                panic!("device {left} was left, {missed} missed, {order:?}: {difference}");
            }
        }
        let report = check(&images, None).unwrap();
        let is_told = report.findings.iter().any(|finding| finding.kind.id() == "superblock-stale");
        assert!(is_told, "{:?}", report.findings);
    }
}

#[test]
fn two_histories_are_named_and_never_joined_and_one_can_be_read() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (first, second) in [(1, 1), (3, 3), (1, 3), (4, 2)] {
        let scratch = Scratch::new("histories");
        let images = mirrors(&scratch);
        let script = |count, word: &str| {
            format!(
                "{}dd if=/dev/zero bs=64k count=8 status=none | tr '\\0' {word} | dd of=plain conv=notrunc bs=64k status=none; echo {word} > {word}",
                commits(count, word)
            )
        };
        let walks = [change(&[&images[0]], &script(first, "a")), change(&[&images[1]], &script(second, "b"))];
        let what = format!("{first} and {second} commits");
        for order in [[0, 1], [1, 0]] {
            for options in ["", "ro", "ro,degraded", "rescue=all,ro"] {
                let error = open(&images, order, options).map(drop).expect_err(&what);
                let text = error.to_string();
                assert!(
                    text.contains("first") && text.contains("second") && text.contains("-o history=1"),
                    "{text}"
                );
            }
            for (number, expected) in [(1, &walks[0]), (2, &walks[1])] {
                let filesystem = open(&images, order, &format!("history={number}")).unwrap();
                if let Err(difference) = walk::compare(expected, &support::walk(&filesystem)) {
                    panic!("{what}, history {number}, {order:?}: {difference}");
                }
                let files = Files::new(filesystem, Caller::superuser());
                assert!(files.write("/new", b"x").is_err(), "nothing is written");
            }
            let error = open(&images, order, "history=3").map(drop).unwrap_err().to_string();
            assert!(error.contains("no device 3 was given"), "{error}");
        }
        let error = check(&images, None).map(drop).expect_err(&what);
        assert!(error.contains("two histories"), "{what}: {error}");
        let error = salvage(&images).expect_err(&what);
        assert!(error.contains("two histories"), "{what}, what restore opens: {error}");
        for device in [DeviceId(1), DeviceId(2)] {
            check(&images, Some(device)).unwrap();
        }
    }
}

/// Of three mirrors two go on together, the third alone, and then one of the two alone: none is older than
/// all others.
#[test]
fn histories_of_older_members_are_compared_with_each_other() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for commits_of in [(1, 1, 1), (2, 1, 2), (1, 1, 4), (1, 3, 2)] {
        let scratch = Scratch::in_memory("histories");
        let images = make(&scratch, "raid1c3", 3);
        let script = |count, word: &str| format!("{}echo {word} > {word}", commits(count, word));
        // Leaves that no later commit changes. Where the later history had reused each address of the first
        // ones, nothing would be left that contradicts.
        let lasting = |word: &str| {
            let file = format!("head -c 1500 /dev/zero | tr '\\0' x > {word}-$number");
            format!("for number in $(seq 200); do {file}; done; sync;")
        };
        let first = |count, word: &str| format!("{}{}", lasting(word), script(count, word));
        change(&[&images[0], &images[2]], &first(commits_of.0, "together"));
        change(&[&images[1]], &first(commits_of.1, "alone"));
        change(&[&images[2]], &script(commits_of.2, "later"));
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let given: Vec<&Path> = order.iter().map(|number| images[*number].as_path()).collect();
            let what = format!("{commits_of:?}, {order:?}");
            let error = Filesystem::open(&given, OpenOptions::read_only()).map(drop).expect_err(&what);
            assert!(error.to_string().contains("two histories"), "{what}: {error}");
        }
        for (left, is_refused) in [([0, 2], false), ([0, 1], true), ([1, 2], true)] {
            let given: Vec<&Path> = left.iter().map(|number| images[*number].as_path()).collect();
            let opened = Filesystem::open(&given, OpenOptions::parse("ro,degraded").unwrap());
            assert_eq!(opened.is_err(), is_refused, "{commits_of:?}, {left:?}");
        }
    }
}

/// The kernel mounts one half, where a file is written and fsynced after other commits, and then the power is
/// cut. Gives the image as it is then.
fn cut_with_log(scratch: &Scratch, image: &Path, name: &str, commits_before: u64) -> PathBuf {
    let cut = scratch.join(format!("cut-{name}"));
    for _ in 0..20 {
        let whole = scratch.join("before");
        std::fs::copy(image, &whole).unwrap();
        // So little lies in its item: the first extent of a class of sizes would make a chunk, and the fsync
        // commit.
        change(
            &[image],
            &format!(
                "{} echo {name} > {name}; sync {name}; cp {} {}",
                commits(commits_before + 1, "before"),
                image.display(),
                cut.display()
            ),
        );
        let bytes = std::fs::read(&cut).unwrap();
        std::fs::copy(&whole, image).unwrap();
        if Superblock::decode(&bytes[65536..65536 + 4096]).unwrap().log_root.0 != 0 {
            return cut;
        }
    }
    panic!("every fsync committed");
}

#[test]
fn two_logs_are_two_histories() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    // Members of one generation, and members of which one went on for longer.
    for commits_before in [[0, 0], [0, 1], [1, 0], [3, 0], [1, 3]] {
        let scratch = Scratch::new("histories");
        let images = mirrors(&scratch);
        let cut = |number: usize| {
            cut_with_log(&scratch, &images[number], ["one", "two"][number], commits_before[number])
        };
        let cuts = [0, 1].map(cut);
        for (number, name) in [(0, "one"), (1, "two")] {
            let alone =
                Filesystem::open(&[&cuts[number]], OpenOptions::parse("ro,degraded").unwrap()).unwrap();
            let expected = support::walk(&alone);
            assert!(expected.contains(name), "the log is replayed");
            let without = &images[1 - number];
            for given in [[&cuts[number], without], [without, &cuts[number]]] {
                let filesystem = Filesystem::open(&given, OpenOptions::read_only()).unwrap();
                if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
                    panic!("log on {name}: {difference}");
                }
            }
        }
        for order in [[0, 1], [1, 0]] {
            let error = open(&cuts, order, "ro").map(drop).expect_err("two logs").to_string();
            assert!(error.contains("two histories"), "{commits_before:?}: {error}");
        }
    }
}

/// Gives the leaves that the last transaction of a device wrote other times, as another history would have
/// that allocated the same addresses. Gives whether the device has the root tree.
fn tell_another_time(image: &Path) -> bool {
    const NODE: usize = 16384;
    let mut bytes = std::fs::read(image).unwrap();
    let superblock = Superblock::decode(&bytes[65536..65536 + 4096]).unwrap();
    let rules = BlockRules { node_size: 16384, sector_size: 4096 };
    let mut has_root_tree = false;
    for place in (0..bytes.len()).step_by(NODE) {
        if bytes[place + 32..place + 48] != superblock.fsid.0 {
            continue;
        }
        let Ok(mut block) = Block::parse(bytes[place..place + NODE].into(), &rules) else { continue };
        if block.generation() != superblock.generation || !block.is_leaf() {
            continue;
        }
        for slot in 0..block.len() {
            match block.key(slot).item_type {
                ItemType::INODE_ITEM => {
                    let mut inode = InodeItem::decode(block.data(slot)).unwrap();
                    inode.change_time.nanoseconds ^= 1;
                    block.items_mut().data(slot).copy_from_slice(&inode.encode());
                }
                ItemType::ROOT_ITEM => {
                    let mut root = RootItem::decode(block.data(slot)).unwrap();
                    root.extension.as_mut().unwrap().change_time.nanoseconds ^= 1;
                    block.items_mut().data(slot).copy_from_slice(&root.encode());
                    has_root_tree = true;
                }
                _ => {}
            }
        }
        let sum = checksum(ChecksumKind::Crc32c, block.checksummed_bytes());
        block.store_checksum(sum.as_field());
        bytes[place..place + NODE].copy_from_slice(block.bytes());
    }
    std::fs::write(image, bytes).unwrap();
    has_root_tree
}

/// Two histories that begin alike can allocate alike, and then their superblocks do not tell them apart.
#[test]
fn histories_of_equal_allocation_are_told_apart_by_content() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let cases = [
        ("raid1", 2, 1),
        ("raid1", 2, 2),
        ("raid1", 3, 3),
        ("raid1c3", 3, 5),
        ("raid10", 4, 7),
        ("raid1", 2, 10),
    ];
    for (profile, devices, missed) in cases {
        let what = format!("{profile} on {devices}, {missed} missed");
        let scratch = Scratch::in_memory("histories");
        let images = make(&scratch, profile, devices);
        change(&paths(&images), "seq 20000 > more; mkdir d; seq 9 > d/nine; sync; echo last > file");
        // Two copies on more devices: one that was mounted alone has the root tree.
        let (was_away, other) = (scratch.join("was-away"), scratch.join("other"));
        let has_blocks = |image: &PathBuf| {
            std::fs::copy(image, &was_away).unwrap();
            std::fs::copy(image, &other).unwrap();
            tell_another_time(&other)
        };
        let left = images.iter().position(has_blocks).unwrap();
        let script = format!("{}echo later > later", commits(missed, "later"));
        let expected = change(&paths(&images), &script);
        std::fs::rename(&was_away, &images[left]).unwrap();
        let turned: Vec<&Path> = images.iter().rev().map(PathBuf::as_path).collect();
        for given in [&paths(&images), &turned] {
            let filesystem = Filesystem::open(given, OpenOptions::default()).unwrap();
            assert!(filesystem.engine().volume().members().as_slice()[left].is_stale, "{what}");
            if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
                panic!("{what}: {difference}");
            }
        }
        check(&images, None).unwrap();
        std::fs::rename(&other, &images[left]).unwrap();
        for given in [&paths(&images), &turned] {
            for options in ["", "ro", "rescue=all,ro"] {
                let opened = Filesystem::open(given, OpenOptions::parse(options).unwrap());
                let error = opened.map(drop).expect_err(&what).to_string();
                assert!(error.contains(&format!("-o history={}", left + 1)), "{what}: {error}");
            }
        }
        let error = check(&images, None).map(drop).expect_err(&what);
        assert!(error.contains("two histories"), "{what}: {error}");
        let newest = OpenOptions::parse(&format!("history={}", if left == 0 { 2 } else { 1 })).unwrap();
        let filesystem = Filesystem::open(&paths(&images), newest).unwrap();
        if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
            panic!("{what}: {difference}");
        }
    }
}
