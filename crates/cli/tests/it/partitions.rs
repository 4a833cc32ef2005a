//! File systems in partitions: named, found, made, changed and mounted, and nothing beside them is touched.
//! The tables are those of sfdisk, fdisk and sgdisk.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vlinder_testkit::kernel::{KernelMount, LoopDevice};
use vlinder_testkit::{Scratch, require};

use crate::common::{Ended, end, run, tool};
use crate::place::wait_for;

const MIB: u64 = 1 << 20;

/// A disk image in a directory of its own, with a directory to fill file systems from.
struct Disk {
    path: PathBuf,
    scratch: Scratch,
}

impl Disk {
    fn new(name: &str, bytes: u64) -> Self {
        let scratch = Scratch::new(name);
        let path = scratch.join("disk.raw");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let tree = scratch.join("tree");
        std::fs::create_dir_all(tree.join("etc")).unwrap();
        std::fs::write(tree.join("etc/fstab"), "none\n").unwrap();
        std::fs::write(tree.join("large"), vec![0x5a; 3 << 20]).unwrap();
        Self { path, scratch }
    }

    /// Lets a program write the table, which reads what it shall do from standard input.
    fn divide(&self, program: &[&str], script: &str) -> &Self {
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{program:?}");
        self
    }

    /// With every byte that no part holds told apart from zero, and a copy of it all.
    fn marked(&self, parts: &[(u64, u64)]) -> Self {
        let file = File::options().write(true).open(&self.path).unwrap();
        for (start, end) in parts {
            file.write_all_at(b"left edge", start - 9).unwrap();
            file.write_all_at(b"right edge", *end).unwrap();
        }
        let copy = self.scratch.join("before");
        std::fs::copy(&self.path, &copy).unwrap();
        Self { path: copy, scratch: Scratch::new("unused") }
    }

    /// Asserts that nothing but this part differs.
    #[track_caller]
    fn differs_only_in(&self, before: &Self, part: (u64, u64)) {
        let (now, then) = (File::open(&self.path).unwrap(), File::open(&before.path).unwrap());
        let length = now.metadata().unwrap().len();
        assert_eq!(length, then.metadata().unwrap().len());
        let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut is_changed = false;
        for start in (0..length).step_by(1 << 20) {
            let count = (length - start).min(1 << 20) as usize;
            now.read_exact_at(&mut one[..count], start).unwrap();
            then.read_exact_at(&mut other[..count], start).unwrap();
            if one[..count] == other[..count] {
                continue;
            }
            let differing = (0..count).filter(|index| one[*index] != other[*index]);
            for place in differing.map(|index| start + index as u64) {
                assert!((part.0..part.1).contains(&place), "byte {place} was changed");
                is_changed = true;
            }
        }
        assert!(is_changed, "nothing was written");
    }

    fn named(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.path.display())
    }

    fn tree(&self) -> String {
        self.scratch.join("tree").display().to_string()
    }

    /// Makes a file system of the tree in a partition.
    #[track_caller]
    fn fill(&self, suffix: &str) {
        run(["mkfs", "-q", "-M", "--rootdir", &self.tree(), &self.named(suffix)]).done();
    }
}

/// An EFI partition, and one of 100 MiB.
const TWO: &str = "label: gpt\nsize=32M,type=U\nsize=100M\n";
const SECOND: (u64, u64) = (33 * MIB, 133 * MIB);

fn two(name: &str) -> Disk {
    let disk = Disk::new(name, 160 * MIB);
    disk.divide(&["sfdisk", "-q"], TWO);
    disk
}

#[track_caller]
fn lists(argument: &str, expected: &[&str]) {
    assert_eq!(run(["ls", argument]).done().text().lines().collect::<Vec<_>>(), expected, "{argument}");
}

#[test]
fn the_only_btrfs_of_a_disk_is_found_and_else_told() {
    require!(Tool("sfdisk"));
    let disk = two("the-only");
    let told =
        "it has a GPT with 2 partitions: 1 EFI system at 1048576, 32 MiB; 2 Linux at 34603008, 100 MiB";
    run(["ls", &disk.named(":/")]).failed(1, &["no Btrfs file system", told, "IMAGE@NUMBER", "offset=BYTES"]);
    run(["check", &disk.named("")]).failed(1, &["no Btrfs file system", told]);
    run(["ls", &disk.named("@3:/")]).failed(1, &["there is no partition 3", told]);
    run(["ls", &disk.named("@1:/")]).failed(1, &["disk.raw@1", "no Btrfs file system"]);
    disk.fill("@2");
    lists(&disk.named(":/"), &["etc", "large"]);
    lists(&disk.named("@2:/etc"), &["fstab"]);
    disk.fill("@1");
    run(["ls", &disk.named(":/")])
        .failed(1, &["several partitions hold a Btrfs", "IMAGE@1", "2 Btrfs at 34603008"]);
    lists(&disk.named("@1:/etc"), &["fstab"]);
    // One lock is for the whole file.
    run(["cp", &disk.named("@1:/large"), &disk.named("@2:/copied")])
        .failed(1, &["another partition of it", "directory of the host"]);
}

#[test]
fn every_verb_takes_a_partition_and_changes_nothing_beside_it() {
    require!(Tool("sfdisk"));
    let disk = two("every-verb");
    let before = disk.marked(&[SECOND]);
    let (image, root) = (disk.named("@2"), disk.named("@2:/"));
    let at = |path: &str| disk.named(&format!("@2:/{path}"));
    let out = disk.scratch.join("out").display().to_string();
    std::fs::create_dir(&out).unwrap();
    disk.fill("@2");
    for words in [
        ["cp", &disk.tree(), &at("copied"), "-r"].as_slice(),
        &["mkdir", &at("made")],
        &["mv", &at("large"), &at("made/large")],
        &["ln", &at("etc/fstab"), &at("linked")],
        &["rm", "-r", &at("copied")],
        &["subvolume", "create", &at("volume")],
        &["subvolume", "snapshot", "-r", &at("volume"), &at("shot")],
        &["subvolume", "list", &image],
        &["subvolume", "show", &at("shot")],
        &["filesystem", "label", &image, "in a partition"],
        &["filesystem", "df", &image],
        &["filesystem", "usage", &image],
        &["filesystem", "du", &root],
        &["property", "set", &at("linked"), "compression", "zstd"],
        &["send", "-f", &format!("{out}/stream"), &at("shot")],
        &["receive", "-f", &format!("{out}/stream"), &at("made")],
        &["subvolume", "delete", &at("shot")],
        &["restore", &image, &out],
        &["check", "--check-data-csum", &image],
        &["inspect-internal", "dump-super", "-a", &image],
        &["inspect-internal", "dump-tree", &image],
        &["inspect-internal", "tree-stats", &image],
        &["inspect-internal", "rootid", &at("volume")],
        &["stat", &at("made/large")],
        &["tree", &root],
    ] {
        let ended = run(words);
        assert_eq!(ended.code, 0, "{words:?}: {}{}", ended.text(), ended.err);
    }
    assert_eq!(run(["cat", &at("made/large")]).done().out, vec![0x5a; 3 << 20]);
    assert_eq!(run(["filesystem", "label", &image]).done().text(), "in a partition\n");
    disk.differs_only_in(&before, SECOND);
    let table = tool("sfdisk", ["-V", "-q", disk.path.to_str().unwrap()]);
    assert_eq!(table, "", "the table is as it was");
}

#[test]
fn offsets_name_what_no_table_does() {
    require!(Tool("sfdisk"));
    let disk = two("offsets");
    let before = disk.marked(&[SECOND]);
    let (start, length) = (SECOND.0.to_string(), (SECOND.1 - SECOND.0).to_string());
    let words = ["mkfs", "-q", "-M", "--offset", &start, "-b", &length, &disk.named("")];
    run(words).done();
    disk.differs_only_in(&before, SECOND);
    let both = format!("offset={start},sizelimit={length}");
    let written = disk.scratch.join("tree/etc/fstab").display().to_string();
    run(["cp", "-o", &both, &written, &disk.named(":/from offset")]).done();
    for options in [format!("offset={start}"), both, format!("offset={}k", SECOND.0 / 1024)] {
        let listed = run(["ls", "-o", &options, &disk.named(":/")]).done();
        assert_eq!(listed.text(), "from offset\n");
        run(["check", "-o", &options, &disk.named("")]).done();
        run(["inspect-internal", "dump-super", "-o", &options, &disk.named("")]).done();
    }
    lists(&disk.named("@34603008+:/"), &["from offset"]);
    lists(&disk.named("@34603008+104857600:/"), &["from offset"]);
    disk.differs_only_in(&before, SECOND);
    for (options, words) in [
        ("offset=33m,sizelimit=10m", ["10485760 bytes", "truncated"]),
        ("offset=33m,sizelimit=1t", ["34603008", "167772160"]),
        ("offset=1000000m", ["1048576000000", "167772160"]),
        ("offset=100", ["byte 100", "multiples of 512"]),
        ("sizelimit=0", ["0 bytes", "multiples of 512"]),
    ] {
        run(["ls", "-o", options, &disk.named(":/")]).failed(1, &words);
    }
    run(["ls", "-o", "offset=1m", &disk.named("@2:/")]).failed(2, &["leave one of them out"]);
    let missing = disk.scratch.join("missing").display().to_string();
    run(["mkfs", "-M", "--offset", "1M", "-b", "32M", &missing]).failed(1, &["no such file", "truncate"]);
    run(["ls", "-o", "offset=1m", &format!("{missing}:/")]).failed(1, &["no such file"]);
    let made = disk
        .scratch
        .path()
        .read_dir()
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("missing"));
    assert_eq!(made.count(), 0);
}

#[test]
fn a_file_of_the_literal_name_wins() {
    require!(Tool("sfdisk"));
    let disk = two("literal");
    disk.fill("@2");
    let literal = disk.named("@2");
    run(["ls", &disk.named(r"\@2:/")]).failed(1, &["No such file"]);
    run(["mkfs", "-q", "-M", "-b", "32M", &disk.named(r"\@2")]).done();
    assert!(Path::new(&literal).exists(), "a file was made of that name");
    lists(&disk.named("@2:/"), &[]);
    lists(&disk.named(r"\@2:/"), &[]);
    lists(&disk.named(":/"), &["etc", "large"]);
    std::fs::remove_file(&literal).unwrap();
    lists(&disk.named("@2:/"), &["etc", "large"]);
    std::fs::write(disk.named("@34603008+"), b"").unwrap();
    run(["ls", "-o", "offset=33m", &disk.named(":/")]).failed(1, &["there is a file of the name"]);
}

#[test]
fn tables_of_many_kinds_are_read() {
    require!(Tool("sfdisk"), Tool("fdisk"), Tool("sgdisk"));
    // 4096-byte sectors.
    let disk = Disk::new("sectors", 160 * MIB);
    disk.divide(&["fdisk", "-b", "4096"], "g\nn\n1\n\n+32M\nn\n2\n\n+64M\nw\n");
    disk.fill("@2");
    lists(&disk.named(":/"), &["etc", "large"]);
    run(["ls", &disk.named("@7:/")]).failed(1, &["sectors of 4096 bytes"]);
    // Its first header is damaged.
    let file = File::options().write(true).open(&disk.path).unwrap();
    file.write_all_at(&[0; 100], 4096).unwrap();
    lists(&disk.named("@2:/"), &["etc", "large"]);
    run(["ls", &disk.named("@7:/")]).failed(1, &["the first one is damaged"]);

    let disk = Disk::new("sgdisk", 160 * MIB);
    tool("sgdisk", ["-a", "8", "-n", "3:2056:+40M", "-n", "9:0:+64M", disk.path.to_str().unwrap()]);
    disk.fill("@9");
    lists(&disk.named(":/"), &["etc", "large"]);
    let file = File::options().write(true).open(&disk.path).unwrap();
    file.write_all_at(&[0; 1 << 20], 0).unwrap();
    lists(&disk.named("@9:/"), &["etc", "large"]);

    let disk = Disk::new("logical", 200 * MIB);
    let script = "label: dos\np1 : size=16M\np2 : size=170M, type=5\np5 : size=40M\np6 : size=16M, type=82\np7 : size=64M\n";
    disk.divide(&["sfdisk", "-q"], script);
    disk.fill("@7");
    lists(&disk.named(":/"), &["etc", "large"]);
    let told = run(["ls", &disk.named("@2:/")]).failed(1, &["logical", "6 Linux swap at", "7 Btrfs at"]);
    assert!(told.err.contains("an MBR with 5 partitions"), "{}", told.err);
    let listed = tool("sfdisk", ["-d", disk.path.to_str().unwrap()]);
    let starts = listed.lines().filter_map(|line| line.split_once("start=")?.1.split(',').next());
    for (start, number) in starts.zip([1, 2, 5, 6, 7]) {
        let shown = format!(
            "{} at {}",
            match number {
                2 => "2 extended",
                6 => "6 Linux swap",
                7 => "7 Btrfs",
                5 => "5 Linux",
                _ => "1 Linux",
            },
            start.trim().parse::<u64>().unwrap() * 512
        );
        assert!(told.err.contains(&shown), "{shown}: {}", told.err);
    }
}

#[test]
fn mkfs_keeps_the_table_and_its_own_bounds() {
    require!(Tool("sfdisk"));
    let disk = two("mkfs-keeps");
    run(["mkfs", &disk.named("")])
        .failed(1, &["partition table (GPT)", "IMAGE@NUMBER", "2 Linux at 34603008"]);
    run(["mkfs", "-M", "-b", "101M", &disk.named("@2")]).failed(1, &["104857600", "105906176"]);
    run(["mkfs", &disk.named("@1")]).failed(1, &["too few"]);
    let before = disk.marked(&[SECOND]);
    disk.fill("@2");
    run(["mkfs", "-M", &disk.named("@2")]).failed(1, &["btrfs", "-f"]);
    run(["mkfs", "-q", "-f", "-M", "--shrink", "--rootdir", &disk.tree(), &disk.named("@2")]).done();
    // A source that does not fit leaves no file system behind, and nothing beside it.
    std::fs::write(disk.scratch.join("tree/more"), vec![0x77; 120 << 20]).unwrap();
    let failed = run(["mkfs", "-f", "-M", "--rootdir", &disk.tree(), &disk.named("@2")]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    run(["ls", &disk.named("@2:/")]).failed(1, &["no Btrfs file system"]);
    disk.differs_only_in(&before, SECOND);
    assert!(tool("sfdisk", ["-d", disk.path.to_str().unwrap()]).contains("type=0FC63DAF"));
}

#[test]
fn the_example_builds_a_disk() {
    require!(Tool("sfdisk"), Tool("truncate"));
    let scratch = Scratch::new("disk-example");
    std::fs::create_dir_all(scratch.join("tree/home/me")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/disk/build.sh");
    let program = Path::new(env!("CARGO_BIN_EXE_vlinder")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(script);
    command.args(["tree", "disk.raw"]).current_dir(scratch.path()).env("PATH", path);
    let built = end(&mut command);
    assert_eq!(built.code, 0, "{}{}", built.text(), built.err);
    let disk = scratch.join("disk.raw").display().to_string();
    assert_eq!(run(["cat", &format!("{disk}:/hostname")]).done().text(), "disk\n");
    assert!(run(["subvolume", "list", &format!("{disk}@2")]).done().text().contains("home"));
    lists(&format!("{disk}@2:/home"), &["me"]);
}

/// A mount that is gone with the test.
struct Mounted(PathBuf);

impl Mounted {
    #[track_caller]
    fn of(disk: &Disk, suffix: &str, options: &str) -> Self {
        let point = disk.scratch.join("mount");
        let _ = std::fs::create_dir(&point);
        let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
        let (image, at) = (disk.named(suffix), point.display().to_string());
        run(["mount", "-o", owners, "-o", options, &image, &at]).done();
        Self(point)
    }

    fn source(&self) -> String {
        tool("findmnt", ["-n", "-o", "SOURCE", self.0.to_str().unwrap()]).trim().to_owned()
    }

    fn unmount(self) -> Ended {
        run([Path::new("umount"), &self.0])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ =
            Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_mounted_partition_is_reached_by_each_of_its_names() {
    require!(Fuse, Tool("sfdisk"), Tool("findmnt"));
    let disk = two("mounted-part");
    disk.fill("@1");
    disk.fill("@2");
    let before = disk.marked(&[SECOND]);
    for (suffix, options, source) in
        [("@2", "rw", disk.named("@2")), ("", "offset=33m,sizelimit=100m", disk.named("@34603008+104857600"))]
    {
        let mounted = Mounted::of(&disk, suffix, options);
        assert_eq!(
            mounted.source(),
            Path::new(&source).canonicalize().map_or(source, |path| path.display().to_string())
        );
        std::fs::write(mounted.0.join("through the mount"), options).unwrap();
        for name in ["@2:/through the mount", "@34603008+:/through the mount"] {
            assert_eq!(run(["cat", &disk.named(name)]).done().text(), options);
        }
        run(["check", &disk.named("@2")]).done();
        run(["subvolume", "list", &disk.named("@2")]).done();
        let usage = run(["--json", "filesystem", "usage", mounted.0.to_str().unwrap()]).done().json();
        assert_eq!(usage["devices"][0]["total_bytes"], 100 * MIB, "{usage}");
        // The other one is behind the same lock, and not shown through this mount.
        run(["cat", &disk.named("@1:/etc/fstab")])
            .failed(1, &["in use", "another partition of it is mounted on"]);
        mounted.unmount().done();
        wait_for("the end of the server", || run(["ls", &disk.named("@1:/")]).code == 0);
        run(["check", "--check-data-csum", &disk.named("@2")]).done();
    }
    disk.differs_only_in(&before, SECOND);
}

#[test]
fn linux_mounts_what_was_made_in_a_partition() {
    require!(KernelBtrfs, Root, Tool("sfdisk"), Tool("btrfs"));
    let disk = Disk::new("linux-mounts", 200 * MIB);
    disk.divide(&["sfdisk", "-q"], "label: gpt\nsize=32M,type=U\nstart=67591,size=120M\n");
    // No multiple of a page.
    let (start, length) = (67591 * 512, 120 * MIB);
    let before = disk.marked(&[(start, start + length)]);
    run(["mkfs", "-q", "--rootdir", &disk.tree(), &disk.named("@2")]).done();
    run(["subvolume", "create", &disk.named("@2:/volume")]).done();
    let kernel = KernelMount::of_part(&disk.path, start, length, "").unwrap();
    assert_eq!(std::fs::read(kernel.path().join("large")).unwrap(), vec![0x5a; 3 << 20]);
    assert!(kernel.path().join("volume").is_dir());
    std::fs::write(kernel.path().join("volume/linux"), b"from Linux").unwrap();
    // The kernel has it: by a loop device that shows a part of the file.
    run(["ls", &disk.named("@2:/")]).failed(1, &["it is mounted", "/dev/loop"]);
    run(["mkfs", "-f", "-M", &disk.named("@1")]).failed(1, &["it is mounted", "/dev/loop"]);
    kernel.scrub().unwrap();
    kernel.unmount().unwrap();
    assert_eq!(run(["cat", &disk.named("@2:/volume/linux")]).done().text(), "from Linux");
    run(["check", "--check-data-csum", &disk.named("")]).done();
    disk.differs_only_in(&before, (start, start + length));
}

#[test]
fn a_block_device_with_partitions_is_as_good_as_a_file() {
    require!(LoopDevices, Root, Tool("sfdisk"));
    let disk = two("block-device");
    let before = disk.marked(&[SECOND]);
    let device = LoopDevice::attach(&disk.path).unwrap();
    let named = |suffix: &str| format!("{}{suffix}", device.node().display());
    run(["mkfs", "-q", "-M", "--rootdir", &disk.tree(), &named("@2")]).done();
    lists(&named("@2:/etc"), &["fstab"]);
    lists(&named(":/"), &["etc", "large"]);
    drop(device);
    lists(&disk.named(":/"), &["etc", "large"]);
    disk.differs_only_in(&before, SECOND);
}

#[test]
fn hostile_tables_end_in_words() {
    let disk = Disk::new("hostile-tables", 64 * MIB);
    let write = |bytes: &[u8], place: u64| {
        File::options().write(true).open(&disk.path).unwrap().write_all_at(bytes, place).unwrap();
    };
    let mbr = |entries: &[(u8, u32, u32)]| {
        let mut sector = vec![0; 512];
        for (index, (kind, start, sectors)) in entries.iter().enumerate() {
            sector[450 + 16 * index] = *kind;
            sector[454 + 16 * index..458 + 16 * index].copy_from_slice(&start.to_le_bytes());
            sector[458 + 16 * index..462 + 16 * index].copy_from_slice(&sectors.to_le_bytes());
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    };
    // A chain of extended partitions that leads to itself.
    write(&mbr(&[(0x05, 2048, 65536)]), 0);
    write(&mbr(&[(0x83, 63, 128), (0x05, 0, 1024)]), 2048 * 512);
    run(["ls", &disk.named(":/")]).failed(1, &["does not end", "and 241 more"]);
    run(["ls", &disk.named("@5:/")]).failed(1, &["overlaps"]);
    // Partitions that overlap, that lie outside, and that hold the table.
    write(&mbr(&[(0x83, 2048, 8192), (0x83, 4096, 8192), (0x83, 65536, u32::MAX), (0x83, 0, 100)]), 0);
    run(["ls", &disk.named("@1:/")]).failed(1, &["it overlaps partition 2", "-o ro,offset=BYTES"]);
    run(["ls", &disk.named("@3:/")]).failed(1, &["and the disk has 67108864"]);
    run(["mkfs", "-f", "-M", &disk.named("@4")]).failed(1, &["the partition table itself lies in it"]);
    // A protective MBR before nothing, and before a header that asks for terabytes.
    write(&mbr(&[(0xee, 1, u32::MAX)]), 0);
    run(["ls", &disk.named("@1:/")]).failed(1, &["the GPT is damaged", "and there is none"]);
    write(b"EFI PART\0\0\x01\0\xff\xff\xff\xff", 512);
    run(["ls", &disk.named("@1:/")]).failed(1, &["impossible length", "sgdisk"]);
}
