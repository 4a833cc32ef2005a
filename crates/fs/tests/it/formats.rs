//! Formats of every age and state that Linux makes: read as the kernel shows them; where vlinder writes,
//! judged afterwards by both checks and by a mount of the kernel's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::inode::InodeFlags;
use vlinder_format::superblock::Superblock;
use vlinder_format::{ItemType, Key, ObjectId, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, btrfs_check_all, unmount};
use vlinder_testkit::matrix::make::walk_of_mount;
use vlinder_testkit::merkle_tree;
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require::corpus;
use vlinder_testkit::subject::{Recipe, library_walk, own_check_all};
use vlinder_testkit::walk::{compare, render};
use vlinder_testkit::{Scratch, require};

/// Files, subvolumes and a snapshot.
const FILL: &str = "
    mkdir -p d/e many; seq 30000 > text; echo small > d/small; ln text d/e/link; ln -s ../text d/symbolic
    for i in $(seq 300); do echo $i > many/$i; done; truncate -s 3M hole; setfattr -n user.a -v b d
    btrfs -q subvolume create sub; seq 9000 > sub/file; btrfs -q subvolume snapshot sub shot; echo more >> sub/file";

fn tool(command: &mut Command) -> String {
    let output = command.env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn shell(directory: &Path, script: &str) -> String {
    tool(Command::new("bash").args(["-ec", script]).current_dir(directory))
}

/// An image that the kernel filled by a script, mounted with these options.
fn filled(scratch: &Scratch, mkfs: &[&str], options: &str, script: &str) -> PathBuf {
    let image = support::image(scratch, 512, mkfs);
    let mount = KernelMount::new(&image, options).unwrap();
    shell(mount.path(), script);
    drop(mount);
    image
}

fn kernel_walk(image: &Path, options: &str, allowed: &[&str]) -> String {
    let mount = KernelMount::of(&[image], options, allowed).unwrap();
    let walked = walk_of_mount(mount.path()).unwrap();
    mount.unmount().unwrap();
    walked
}

fn our_walk(images: &[&Path]) -> String {
    let filesystem = Filesystem::open(images, OpenOptions::read_only()).unwrap();
    render(&library_walk(&filesystem, true).unwrap())
}

fn same(what: &str, expected: &str, found: &str) {
    if let Err(difference) = compare(expected, found) {
        panic!("{what}: {difference}");
    }
}

/// Changes of every kind; the image must be one that takes them.
fn change(image: &Path) {
    let filesystem = support::open(image);
    let reason = filesystem.engine().read_only_reason().map(|reason| reason.to_string());
    assert_eq!(reason, None);
    let files = Files::new(filesystem, Caller::superuser());
    files.create_dir("/ours").unwrap();
    for number in 0..200_usize {
        files.write(format!("/ours/{number}"), vec![7; number * 321]).unwrap();
    }
    files.options().write(true).open("/text").unwrap().write_at(&[b'v'; 9000], 4000).unwrap();
    files.remove_file("/many/7").unwrap();
    files.rename("/many/8", "/ours/renamed").unwrap();
    files.sync().unwrap();
    files.snapshot("/sub", "/ours/snapshot", false).unwrap();
    files.write("/ours/snapshot/file", "other").unwrap();
    files.create_subvolume("/ours/new").unwrap();
    files.write("/ours/new/file", vec![3; 70_000]).unwrap();
    files.delete_subvolume("/shot").unwrap();
    for number in (0..200).step_by(3) {
        files.remove_file(format!("/ours/{number}")).unwrap();
    }
    files.filesystem().maintenance().finish_deletions().unwrap();
    files.close().unwrap();
}

/// What the kernel does after us; whatever it believes matters now.
const KERNELS_TURN: &str = "
    rm -rf many; for i in $(seq 200); do head -c $((i * 700)) /dev/urandom > sub/k$i; done; sync -f .
    btrfs -q subvolume snapshot sub sub/after; for i in $(seq 1 2 200); do rm sub/k$i; done";

/// Both checks, the kernel's mount, walk, work and scrub with a silent log, and both checks again.
fn judge(image: &Path, options: &str, allowed: &[&str], check_lines: &[&str]) {
    own_check_all(&[image]).unwrap();
    btrfs_check_all(&[image], check_lines).unwrap();
    let ours = our_walk(&[image]);
    let mount = KernelMount::of(&[image], options, allowed).unwrap();
    same("the kernel after vlinder", &ours, &walk_of_mount(mount.path()).unwrap());
    shell(mount.path(), KERNELS_TURN);
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    own_check_all(&[image]).unwrap();
    btrfs_check_all(&[image], check_lines).unwrap();
}

fn superblock(image: &Path) -> Superblock {
    let bytes = std::fs::read(image).unwrap();
    Superblock::decode(&bytes[65_536..65_536 + 4096]).unwrap()
}

#[test]
fn a_metadata_uuid_is_kept_in_every_block_that_is_written() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("btrfstune"), Tool("setfattr"));
    let scratch = Scratch::in_memory("metadata-uuid");
    let image = filled(&scratch, &[], "", FILL);
    tool(Command::new("btrfstune").arg("-m").arg(&image));
    let before = superblock(&image);
    assert_ne!(before.fsid, before.metadata_uuid);
    same("as made", &kernel_walk(&image, "ro", &[]), &our_walk(&[&image]));
    change(&image);
    let after = superblock(&image);
    assert_eq!((after.fsid, after.metadata_uuid), (before.fsid, before.metadata_uuid));
    judge(&image, "", &[], &[]);
    // Back to one UUID, and on.
    tool(Command::new("btrfstune").args(["-M", &before.metadata_uuid.to_string()]).arg(&image));
    own_check_all(&[&image]).unwrap();
    assert_eq!(support::open(&image).engine().read_only_reason(), None);
}

/// What Linux says of quotas that it is told are out of date, and while it counts.
const QUOTA_LINES: &[&str] =
    &["BTRFS info (device DEVICE): qgroup scan *", "BTRFS info (device DEVICE): quota *"];

#[test]
fn quotas_are_outdated_until_a_rescan_of_linux() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("quotas");
    let script = format!(
        "btrfs quota enable .; {FILL}; btrfs qgroup create 1/1 .; btrfs qgroup limit 40M sub; btrfs quota rescan -w . > /dev/null"
    );
    let image = filled(&scratch, &[], "", &script);
    btrfs_check_all(&[&image], &[]).unwrap();
    change(&image);
    own_check_all(&[&image]).unwrap();
    let ours = our_walk(&[&image]);
    let mount = KernelMount::of(&[&image], "", QUOTA_LINES).unwrap();
    same("the kernel after vlinder", &ours, &walk_of_mount(mount.path()).unwrap());
    let groups = tool(
        Command::new("btrfs")
            .args(["qgroup", "show"])
            .arg(mount.path())
            .stderr(std::process::Stdio::inherit()),
    );
    // The top level, sub, and the two that vlinder made.
    assert_eq!(groups.lines().filter(|line| line.starts_with("0/")).count(), 5, "{groups}");
    tool(Command::new("btrfs").args(["quota", "rescan", "-w"]).arg(mount.path()));
    shell(mount.path(), KERNELS_TURN);
    mount.unmount().unwrap();
    // Exact again: the check compares every group with what it counts itself.
    btrfs_check_all(&[&image], &[]).unwrap();
    own_check_all(&[&image]).unwrap();
}

#[test]
fn a_rescan_that_was_under_way_does_not_make_wrong_counts_right() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    use vlinder_format::quota::{QuotaStatus, QuotaStatusFlags};
    let scratch = Scratch::in_memory("quotas-rescan");
    let image = filled(
        &scratch,
        &[],
        "",
        &format!("{FILL}; btrfs quota enable .; btrfs quota rescan -w . > /dev/null"),
    );
    let status = || {
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        let tree = filesystem.engine().tree(RootId::QUOTA_TREE).unwrap();
        let found =
            filesystem.engine().forest().trees().get(tree.root(), &QuotaStatus::KEY).unwrap().unwrap();
        QuotaStatus::decode(found.data()).unwrap()
    };
    {
        let made = status();
        let filesystem = support::open(&image);
        let tree = filesystem.engine().tree(RootId::QUOTA_TREE).unwrap();
        let running = QuotaStatus {
            flags: QuotaStatusFlags(3),
            rescan_progress: vlinder_format::Logical(30 << 20),
            ..made
        };
        let mut handle = filesystem.begin(4).unwrap();
        let item = running.encode();
        let edit = vlinder_tree::Edit::new(QuotaStatus::KEY, vlinder_tree::Change::Put(&item));
        handle.edit(&tree, &[edit]).unwrap();
        drop(handle);
        filesystem.close().unwrap();
    }
    let status = status();
    assert_eq!(status.flags.0, QuotaStatusFlags::ON.0 | QuotaStatusFlags::INCONSISTENT.0);
    assert_eq!(status.rescan_progress.0, 0);
    assert_eq!(status.generation, superblock(&image).generation);
}

#[test]
fn simple_quotas_open_for_reading_with_the_reason() {
    require!(Corpus, Tool("xz"));
    let scratch = Scratch::in_memory("squota");
    let image = scratch.join("image");
    let packed = corpus().unwrap().join("golden/squota.raw.xz");
    let output = Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert!(output.status.success());
    std::fs::write(&image, output.stdout).unwrap();
    let reason = support::open(&image).engine().read_only_reason().unwrap().to_string();
    assert!(reason.contains("simple quotas"), "{reason}");
}

/// Lines of a kernel that finds an unfinished balance, goes on with it or leaves it.
const BALANCE_LINES: &[&str] = &[
    "BTRFS info (device DEVICE): balance: *",
    "BTRFS info (device DEVICE): relocating block group *",
    "BTRFS info (device DEVICE): found * extents, stage: *",
];

/// Copies of an image at moments of a balance: one between two chunks, and one with relocation trees. A
/// reflinked copy of the loop device's file is what a power cut at that moment would leave.
fn balance_cuts(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let script = r#"
        truncate -s 3G host; mkfs.btrfs -q host; mkdir h m; H=$(losetup -f --show host); mount "$H" h
        # The inner loop device lets go of its file when whoever looks at new devices has closed it.
        end() { umount m; [ -z "$L" ] || losetup -d "$L"; for try in $(seq 100); do umount -q h && break; sleep 0.1; done; losetup -d "$H"; }
        L=; trap end EXIT
        truncate -s 512M h/b; mkfs.btrfs -q h/b; L=$(losetup -f --show h/b); mount -o commit=600 "$L" m
        for d in $(seq 10); do mkdir m/$d; for i in $(seq 300); do seq $((i * 9)) > m/$d/$i; done; done
        cd m; FILL; cd ..; sync -f m
        btrfs balance start --full-balance m > /dev/null 2>&1 & balance=$!
        i=0; while kill -0 $balance 2> /dev/null; do cp --reflink=always h/b h/cut-$i; i=$((i + 1)); done
        for cut in h/cut-*; do
            roots=$(btrfs inspect-internal dump-tree -t root $cut 2> /dev/null) || continue
            case $roots in
                *"TREE_RELOC ROOT_ITEM"*) [ -e moving ] || cp --sparse=always $cut moving ;;
                *"BALANCE TEMPORARY_ITEM"*) [ -e between ] || cp --sparse=always $cut between ;;
            esac
        done"#;
    shell(scratch.path(), &script.replace("FILL", FILL));
    (scratch.join("between"), scratch.join("moving"))
}

#[test]
fn an_interrupted_balance_is_written_to_only_between_chunks() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("balance");
    let (between, moving) = balance_cuts(&scratch);
    for image in [&between, &moving] {
        assert!(image.exists(), "no copy hit {}", image.display());
        own_check_all(&[image]).unwrap();
        btrfs_check_all(&[image], &[]).unwrap();
        let copy = scratch.join("copy");
        std::fs::copy(image, &copy).unwrap();
        same("cut", &kernel_walk(&copy, "skip_balance", BALANCE_LINES), &our_walk(&[image]));
    }
    let reason = support::open(&moving).engine().read_only_reason().unwrap().to_string();
    assert!(reason.contains("balance was interrupted"), "{reason}");
    change(&between);
    judge(&between, "skip_balance", BALANCE_LINES, &[]);
    // And Linux goes on with it.
    let mount = KernelMount::of(&[&between], "", BALANCE_LINES).unwrap();
    let status = "while btrfs balance status . | grep -q 'is running'; do sleep 0.1; done";
    shell(mount.path(), status);
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    btrfs_check_all(&[&between], &[]).unwrap();
    own_check_all(&[&between]).unwrap();
}

#[test]
fn a_sprout_is_read_with_its_seed_and_with_no_other() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("btrfstune"), Tool("setfattr"));
    let scratch = Scratch::in_memory("seed");
    let seed = filled(&scratch, &[], "", FILL);
    let stranger = scratch.join("stranger");
    std::fs::copy(&seed, &stranger).unwrap();
    tool(Command::new("btrfstune").args(["-f", "-u"]).arg(&stranger));
    for image in [&seed, &stranger] {
        tool(Command::new("btrfstune").args(["-f", "-S", "1"]).arg(image));
    }
    let reason = support::open(&seed).engine().read_only_reason().unwrap().to_string();
    assert!(reason.contains("seed"), "{reason}");
    let sprout = scratch.join("sprout");
    std::fs::File::create(&sprout).unwrap().set_len(512 << 20).unwrap();
    let devices = [&seed, &sprout].map(|image| LoopDevice::attach(image).unwrap());
    let directory = Scratch::new("seed-mount");
    tool(Command::new("mount").args(["-t", "btrfs"]).arg(devices[0].node()).arg(directory.path()));
    tool(Command::new("btrfs").args(["device", "add", "-f"]).arg(devices[1].node()).arg(directory.path()));
    tool(Command::new("mount").args(["-o", "remount,rw"]).arg(directory.path()));
    shell(
        directory.path(),
        "seq 50000 > new; echo more >> text; rm many/3; btrfs -q subvolume snapshot sub later; sync -f .",
    );
    let expected = walk_of_mount(directory.path()).unwrap();
    unmount(directory.path()).unwrap();
    for device in &devices {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    drop(devices);
    for order in [[&seed, &sprout], [&sprout, &seed]] {
        let paths = order.map(PathBuf::as_path);
        same("with its seed", &expected, &our_walk(&paths));
        own_check_all(&paths).unwrap();
    }
    let filesystem = Filesystem::open(&[&sprout, &seed], OpenOptions::default()).unwrap();
    let reason = filesystem.engine().read_only_reason().unwrap().to_string();
    assert!(reason.contains("built on a seed"), "{reason}");
    drop(filesystem);
    let refused = Filesystem::open(&[&sprout, &stranger], OpenOptions::default()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("belongs to file system"), "{refused}");
    assert!(Filesystem::open(&[&sprout], OpenOptions::default()).is_err());
}

#[test]
fn a_received_uuid_is_shown_and_kept_as_linux_does() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("received");
    let script = format!(
        "{FILL}; btrfs -q subvolume snapshot -r sub source; mkdir into; sync -f .; btrfs -q send source 2> /dev/null | btrfs -q receive into"
    );
    let image = filled(&scratch, &[], "", &script);
    let files = Files::new(support::open(&image), Caller::superuser());
    // A read-only snapshot of what was received stays received; a writable one does not.
    files.snapshot("/into/source", "/read-only", true).unwrap();
    files.snapshot("/into/source", "/writable", false).unwrap();
    let listed = files.filesystem().subvolumes().all().unwrap();
    let mut shown: Vec<(u64, String)> = listed
        .iter()
        .filter(|one| !one.received_uuid.is_nil())
        .map(|one| (one.id.0, one.received_uuid.to_string()))
        .collect();
    shown.sort();
    files.close().unwrap();
    assert_eq!(shown.len(), 2, "{shown:?}");
    let mount = KernelMount::new(&image, "").unwrap();
    let list = tool(Command::new("btrfs").args(["subvolume", "list", "-R"]).arg(mount.path()));
    let kernels: Vec<(u64, String)> = list
        .lines()
        .filter(|line| !line.contains("received_uuid -"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let received = words.iter().position(|word| *word == "received_uuid").unwrap();
            (words[1].parse().unwrap(), words[received + 1].to_owned())
        })
        .collect();
    assert_eq!(shown, kernels, "{list}");
    mount.unmount().unwrap();
    judge(&image, "", &[], &[]);
}

#[test]
fn a_v1_space_cache_is_never_believed_after_us() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::in_memory("v1");
    // Much is deleted at the end, so that whole groups become empty while their caches are there.
    let script =
        format!("{FILL}; for i in $(seq 6); do head -c 25M /dev/urandom > large-$i; done; sync -f .");
    let image = filled(&scratch, &["-R", "^free-space-tree", "-m", "single"], "space_cache=v1", &script);
    let made = superblock(&image);
    assert_eq!(made.cache_generation, made.generation, "the kernel keeps a cache here");
    let files = Files::new(support::open(&image), Caller::superuser());
    for number in 1..=6 {
        files.remove_file(format!("/large-{number}")).unwrap();
    }
    files.sync().unwrap();
    files.close().unwrap();
    change(&image);
    let left = superblock(&image);
    assert!(left.cache_generation < left.generation);
    // The kernel's turn allocates from what it believes is free; a stale cache would overwrite our files or
    // be noticed.
    judge(&image, "space_cache=v1", &[], &[]);
    judge_again(&image);
}

/// Once more with a cache that the kernel made anew.
fn judge_again(image: &Path) {
    let made = superblock(image);
    assert_eq!(made.cache_generation, made.generation);
    same("at last", &kernel_walk(image, "ro,space_cache=v1", &[]), &our_walk(&[image]));
}

/// Where a file's blocks and tree are made wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    Data(usize),
    Tree(usize),
    Root,
    Size,
    MissingPiece,
}

/// An image in memory with a file under fs-verity, made wrong on purpose.
fn with_verity(data: &[u8], salt: &[u8], wrong: Wrong) -> Arc<MemoryDevice> {
    // All its items fit into one leaf.
    let recipe = Recipe { device_bytes: 256 << 20, node_size: 65536, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let mut stored = data.to_vec();
    if let Wrong::Data(at) = wrong {
        stored[at] ^= 1;
    }
    {
        let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
        let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
        let files = Files::new(filesystem, Caller::superuser());
        files.write("/file", &stored).unwrap();
        files.close().unwrap();
    }
    let (mut tree, mut root) = merkle_tree(data, 4096, salt);
    match wrong {
        Wrong::Tree(at) => tree[at] ^= 0x80,
        Wrong::Root => root[5] ^= 1,
        _ => {}
    }
    let mut descriptor = vec![0; 256];
    descriptor[..4].copy_from_slice(&[1, 1, 12, salt.len() as u8]);
    let size = data.len() as u64 + u64::from(wrong == Wrong::Size);
    descriptor[8..16].copy_from_slice(&size.to_le_bytes());
    descriptor[16..48].copy_from_slice(&root);
    descriptor[80..80 + salt.len()].copy_from_slice(salt);
    let inode = ObjectId(257);
    let mutator = Mutator::new(&device);
    let mut head = [0; 25];
    head[1] = 1;
    mutator.insert(RootId::FS_TREE, Key::new(inode, ItemType::VERITY_DESCRIPTOR_ITEM, 0), &head);
    mutator.insert(RootId::FS_TREE, Key::new(inode, ItemType::VERITY_DESCRIPTOR_ITEM, 1), &descriptor);
    for (number, piece) in tree.chunks(2048).enumerate() {
        if wrong == Wrong::MissingPiece && number == 1 {
            continue;
        }
        mutator.insert(
            RootId::FS_TREE,
            Key::new(inode, ItemType::VERITY_MERKLE_ITEM, number as u64 * 2048),
            piece,
        );
    }
    // The upper half of the flags of an inode, at 64 of its item, is what Linux must know to write.
    let item = mutator.find_of(inode, ItemType::INODE_ITEM);
    mutator.change_item(item, |bytes| bytes[68] |= 1);
    assert_eq!(InodeFlags::VERITY.0, 1 << 32);
    mutator.change_superblock(|superblock| superblock.compat_read_only.0 |= 1 << 2);
    mutator.device()
}

#[test]
fn a_file_under_verity_is_compared_with_its_merkle_tree() {
    let data: Vec<u8> = (0..600_000_u32).flat_map(|word| (word / 5).to_le_bytes()).take(600_001).collect();
    let open =
        |device| Filesystem::open_devices(vec![device as Arc<dyn Device>], OpenOptions::default()).unwrap();
    let files = |device| Files::new(open(device), Caller::superuser());
    for (length, salt) in
        [(600_001, &b""[..]), (600_001, b"salt"), (4096, b""), (5000, b"x"), (10, b""), (0, b"")]
    {
        let files = files(with_verity(&data[..length], salt, Wrong::Nothing));
        let reason = files.filesystem().engine().read_only_reason().unwrap().to_string();
        assert!(reason.contains("verity"), "{reason}");
        assert_eq!(files.read("/file").unwrap(), &data[..length], "{length} bytes, salt {salt:?}");
        let file = files.open_file("/file").unwrap();
        for offset in [0, 1, 4095, 4096, 100_000, 599_999] {
            let mut part = [0; 5000];
            let count = file.read_at(&mut part, offset).unwrap();
            let expected = data[..length].get(offset as usize..).unwrap_or_default();
            assert_eq!(part[..count], expected[..expected.len().min(5000)]);
        }
    }
    // 147 blocks: two of hashes, and one above them. The second leaf of the tree says something of block 128
    // on.
    let wrongs = [
        (Wrong::Data(300_000), "a block of the file", 300_000 / 4096 * 4096),
        (Wrong::Data(600_000), "a block of the file", 600_000 / 4096 * 4096),
        (Wrong::Tree(4096 + 4096 + 8), "a block of the Merkle tree", 128 * 4096),
        (Wrong::Tree(3), "a block of the Merkle tree", 0),
        (Wrong::Root, "a block of the Merkle tree", 0),
        (Wrong::Size, "another size", 0),
        (Wrong::MissingPiece, "not whole", 0),
    ];
    for (wrong, words, offset) in wrongs {
        let files = files(with_verity(&data, b"salt", wrong));
        let file = files.open_file("/file").unwrap();
        let mut part = [0; 4096];
        let error = file.read_at(&mut part, offset as u64).unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::IO, "{wrong:?}");
        assert!(error.to_string().contains(words), "{wrong:?}: {error}");
        if let Wrong::Data(_) = wrong {
            assert_eq!(file.read_at(&mut part, 0).unwrap(), 4096, "the other blocks are good");
        }
    }
}

#[test]
fn remnants_of_the_inode_cache_are_passed_by() {
    require!(Tool("btrfs"));
    let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let mutator = Mutator::new(&device);
    // As kernels before 5.11 left it with -o inode_cache: a file without names, of a number past all others.
    let root = mutator.find_of(ObjectId(256), ItemType::INODE_ITEM);
    let mut item = Vec::new();
    mutator.change_item(root, |bytes| item = bytes.to_vec());
    item[16..32].fill(0);
    item[40..44].copy_from_slice(&1_u32.to_le_bytes());
    item[52..56].copy_from_slice(&0o100_600_u32.to_le_bytes());
    mutator.insert(RootId::FS_TREE, Key::new(ObjectId::FREE_INODE, ItemType::INODE_ITEM, 0), &item);
    let scratch = Scratch::in_memory("inode-cache");
    let image = scratch.join("image");
    std::fs::write(&image, mutator.device().read_at(Physical(0), 256 << 20).unwrap()).unwrap();
    own_check_all(&[&image]).unwrap();
    btrfs_check_all(&[&image], &[]).unwrap();
    let files = Files::new(support::open(&image), Caller::superuser());
    files.write("/new", "content").unwrap();
    // Numbers of new files go on after the highest of a file, not after that.
    assert_eq!(files.metadata("/new").unwrap().id.number, ObjectId(257));
    files.close().unwrap();
    own_check_all(&[&image]).unwrap();
    btrfs_check_all(&[&image], &[]).unwrap();
}

#[test]
fn every_sector_size_is_read_written_and_made() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    for sector_size in ["8k", "16k", "32k", "64k"] {
        let scratch = Scratch::in_memory("sectors");
        let image = support::image(&scratch, 512, &["-s", sector_size, "-n", "64k"]);
        let files = Files::new(support::open(&image), Caller::superuser());
        files.create_dir("/many").unwrap();
        files.create_subvolume("/sub").unwrap();
        let content =
            |number: usize| -> Vec<u8> { (0..number * 2777).map(|at| (at * number / 97) as u8).collect() };
        for number in 0..60 {
            files.write(format!("/many/{number}"), content(number)).unwrap();
            files.write(format!("/sub/{number}"), content(number)).unwrap();
        }
        files.sync().unwrap();
        files.snapshot("/sub", "/shot", false).unwrap();
        let mut expected: Vec<Vec<u8>> = (0..60).map(content).collect();
        for (number, one) in expected.iter_mut().enumerate().skip(2).step_by(4) {
            let file = files.options().write(true).open(format!("/sub/{number}")).unwrap();
            file.write_at(&[1; 700], 5000).unwrap();
            file.set_len(number as u64 * 2000).unwrap();
            one.resize(one.len().max(5700), 0);
            one[5000..5700].fill(1);
            one.resize(number * 2000, 0);
        }
        files.close().unwrap();
        own_check_all(&[&image]).unwrap();
        btrfs_check_all(&[&image], &[]).unwrap();
        let files =
            Files::new(Filesystem::open(&[&image], OpenOptions::read_only()).unwrap(), Caller::superuser());
        for (number, one) in expected.iter().enumerate() {
            assert_eq!(
                files.read(format!("/shot/{number}")).unwrap(),
                content(number),
                "{sector_size}, {number}"
            );
            assert_eq!(files.read(format!("/sub/{number}")).unwrap(), *one, "{sector_size}, {number}");
        }
    }
}
