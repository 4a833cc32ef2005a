//! Verbs whose lines scripts read, in many combinations of options and places, compared with btrfs-progs on
//! the kernel's mount of the same image: on an image, and under the name `btrfs` on a mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, end, run, tool, vlinder};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// What Linux logs when the first file of an image is to be compressed.
const FEATURE: &str = "BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*";

/// An image made by Linux, and a place to mount it.
struct Place {
    image: PathBuf,
    point: PathBuf,
    scratch: Scratch,
}

impl Place {
    fn new(name: &str, fill: &str) -> Self {
        let scratch = Scratch::new(name);
        let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        tool("mkfs.btrfs", ["-q", image.to_str().unwrap()]);
        let kernel = KernelMount::of(&[&image], "", &[FEATURE]).unwrap();
        let script = Command::new("bash").args(["-euc", fill]).current_dir(kernel.path()).output().unwrap();
        assert!(script.status.success(), "{script:?}");
        kernel.unmount().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), scratch.join("btrfs")).unwrap();
        Self { image, point, scratch }
    }

    /// What btrfs-progs, or vlinder under its name, answers.
    fn progs(&self, program: &Path, words: &[&str]) -> Ended {
        end(Command::new(program)
            .args(words)
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .current_dir(self.scratch.path()))
    }

    fn mount(&self, options: &str) {
        run([Path::new("mount"), Path::new("-o"), Path::new(options), &self.image, &self.point]).done();
    }

    fn unmount(&self) {
        run([Path::new("umount"), &self.point]).done();
    }
}

/// Subvolumes in subvolumes and directories, snapshots of them, names of all kinds.
const SUBVOLUMES: &str = r#"
b() { btrfs -q subvolume "$@"; }
b create @; b create @home; mkdir @snaps dir; b create dir/top
b create @/var; mkdir -p @/dir/below; b create @/dir/sub; b create @/dir/sub/x; b create @/var/deep; mkdir @/var/d
b create @/var/d/deeper; b create @home/user
b create $'@/new\nline'; b create $'@/raw\377\001'; b create '@/sp ace'; b create $'@/tab\there'; b create '@/back\slash'
b snapshot @ @snaps/1; b snapshot -r @ @snaps/2; b snapshot @/var @/snap-of-var; b snapshot -r @/var @/dir/ro
sync; echo x > @/var/f; sync; echo y > @home/f; sync; b create late; b create @/late
"#;

const LIST_OPTIONS: [&[&str]; 20] = [
    &[],
    &["-o"],
    &["-a"],
    &["-s"],
    &["-r"],
    &["-u"],
    &["-q"],
    &["-R"],
    &["-t"],
    &["-p"],
    &["-c"],
    &["-g"],
    &["-o", "-s"],
    &["-pcguqR"],
    &["-a", "-t"],
    &["--sort=path"],
    &["--sort=-path"],
    &["--sort=gen,-path"],
    &["-a", "--sort=path"],
    &["-o", "--sort=-rootid"],
];

/// Where it is asked: which subvolume is mounted, and the place there.
const LIST_PLACES: [(&str, &str); 7] = [
    ("/", "."),
    ("/", "@"),
    ("/", "@/dir/below"),
    ("/", "@/var"),
    ("/", "@snaps/1"),
    ("@", "."),
    ("@", "dir"),
];

#[test]
fn subvolumes_are_listed_as_by_btrfs_progs() {
    require!(KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let place = Place::new("like-progs-list", SUBVOLUMES);
    let own = place.scratch.join("btrfs");
    let mut theirs = Vec::new();
    for (shown, path) in LIST_PLACES {
        let kernel = KernelMount::new(&place.image, &format!("subvol={shown}")).unwrap();
        let target = kernel.path().join(path);
        for options in LIST_OPTIONS {
            let words = [&["subvolume", "list"], options, &[target.to_str().unwrap()]].concat();
            theirs.push(place.progs(Path::new("btrfs"), &words).done().out);
        }
        kernel.unmount().unwrap();
    }
    assert!(theirs.iter().any(|lines| lines.ends_with(b" path late\n")));
    let mut theirs = theirs.into_iter();
    for (shown, path) in LIST_PLACES {
        place.mount(&format!("subvol={shown}"));
        let target = place.point.join(path);
        let lists: Vec<_> = LIST_OPTIONS.iter().zip(theirs.by_ref()).collect();
        for (options, theirs) in &lists {
            let words = [&["subvolume", "list"], **options, &[target.to_str().unwrap()]].concat();
            let ours = place.progs(&own, &words).done().out;
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{words:?}");
        }
        place.unmount();
        for (options, theirs) in lists {
            let target = format!("{}:/{path}", place.image.display());
            let shown = format!("--options=subvol={shown}");
            let words = [&["subvolume", "list"], *options, &[&shown, &target]].concat();
            let ours = end(vlinder().args(&words)).done().out;
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{words:?}");
        }
    }
}

#[test]
fn a_table_without_subvolumes_has_btrfs_progs_header() {
    require!(KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let place = Place::new("like-progs-empty-list", ":");
    let own = place.scratch.join("btrfs");
    let more: [&[&str]; 6] =
        [&["-t", "-d"], &["-t", "-s", "-d"], &["-t", "-C", "+1"], &["-t", "-pcguqR"], &["-t", "-u"], &["-d"]];
    let sets: Vec<&[&str]> = LIST_OPTIONS.into_iter().chain(more).collect();
    let list = |program: &Path, target: &str| -> Vec<String> {
        let said = |options: &&[&str]| {
            let words = [&["subvolume", "list"], *options, &[target]].concat();
            place.progs(program, &words).done().out.escape_ascii().to_string()
        };
        sets.iter().map(said).collect()
    };
    let kernel = KernelMount::new(&place.image, "").unwrap();
    let theirs = list(Path::new("btrfs"), kernel.path().to_str().unwrap());
    kernel.unmount().unwrap();
    assert!(theirs.iter().any(|said| said.starts_with(r"ID\tgen\t")), "{theirs:?}");
    assert_eq!(list(&own, &format!("{}:/", place.image.display())), theirs);
    place.mount("rw");
    assert_eq!(list(&own, place.point.to_str().unwrap()), theirs);
    place.unmount();
}

/// Files and directories that can be compressed, and those without copy-on-write or checksums.
const PROPERTIES: &str = "
touch plain nc data; mkdir dir ncdir; chattr +C nc data ncdir; head -c 100000 /dev/zero >> data
touch ncdir/child; mkdir ncdir/sub; btrfs -q subvolume create ncsub; chattr +C ncsub; touch ncsub/file
touch both; chattr +m both; ln -s nc link; mkdir zstd; btrfs property set zstd compression zstd; touch zstd/inherits
";

const FILES: [&str; 12] = [
    "plain",
    "nc",
    "data",
    "dir",
    "ncdir",
    "ncdir/child",
    "ncdir/sub",
    "ncsub",
    "ncsub/file",
    "both",
    "link",
    "zstd/inherits",
];

/// What is said of compression: the ends of calls and standard output; of errors, that they say what Linux
/// says.
fn compression(of: &str, mut call: impl FnMut(&[&str]) -> Ended) -> Vec<String> {
    let mut told = Vec::new();
    let mut tell = |what: String, ended: Ended| {
        let says = |word| if ended.err.contains(word) { word } else { "" };
        let errors = [says("failed to set compression"), says("Invalid argument")];
        told.push(format!("{what}: {} {:?} {errors:?}", ended.code, ended.text()));
    };
    for value in ["zstd", "zlib:9", "lzo", "no", "none", "", "bogus", "zstd"] {
        tell(format!("{of} {value:?}"), call(&["property", "set", of, "compression", value]));
        tell(format!("{of} after {value:?}"), call(&["property", "get", of, "compression"]));
    }
    tell(format!("{of}: all"), call(&["property", "get", of]));
    tell(format!("{of}: list"), call(&["property", "list", of]));
    told
}

#[test]
fn compression_of_nodatacow_files_is_refused_as_by_progs() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("mkfs.btrfs"));
    let place = Place::new("like-progs-property", PROPERTIES);
    let (own, copy) = (place.scratch.join("btrfs"), place.scratch.join("copy.img"));
    std::fs::copy(&place.image, &copy).unwrap();
    let all = |program: &Path, at: &dyn Fn(&str) -> String| -> Vec<String> {
        let of_file = |file: &&str| {
            compression(file, |words| {
                let target = at(file);
                let words: Vec<&str> = words
                    .iter()
                    .enumerate()
                    .map(|(place, word)| if place == 2 { target.as_str() } else { *word })
                    .collect();
                place.progs(program, &words)
            })
        };
        FILES.iter().flat_map(of_file).collect()
    };
    let other = place.scratch.join("other.img");
    std::fs::copy(&place.image, &other).unwrap();
    let kernel = KernelMount::of(&[&other], "", &[FEATURE]).unwrap();
    let theirs = all(Path::new("btrfs"), &|file| kernel.path().join(file).to_str().unwrap().to_owned());
    kernel.unmount().unwrap();
    assert!(
        theirs.iter().any(|line| line.contains("failed to set"))
            && theirs.iter().any(|line| line.contains("=zstd"))
    );
    place.mount("rw");
    let on_mount = all(&own, &|file| place.point.join(file).to_str().unwrap().to_owned());
    place.unmount();
    let on_image = all(&own, &|file| format!("{}:/{file}", copy.display()));
    assert_eq!(on_mount, theirs);
    assert_eq!(on_image, theirs);
    let refused =
        end(vlinder().args(["property", "set", &format!("{}:/nc", copy.display()), "compression", "zstd"]));
    refused.failed(1, &["without copy-on-write or checksums"]);
}

/// Profiles of data and metadata, and MiB of the devices.
const DEVICES: [(&str, &str, &[u64]); 4] = [
    ("raid5", "raid1", &[500, 700, 1024, 2048]),
    ("raid6", "raid1c3", &[500, 700, 1024, 2048]),
    ("raid10", "raid1", &[700, 700, 700, 700, 400]),
    ("raid0", "raid1", &[300, 2048]),
];

/// Lines with the paths of devices, and what goes by their length, taken out.
fn without_devices(text: &str) -> Vec<String> {
    let words = |line: &str| -> String {
        let words = line.split_whitespace().map(|word| if word.starts_with('/') { "DEVICE" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().filter(|line| !line.starts_with("-- -")).map(words).collect()
}

#[test]
fn usage_of_several_devices_is_told_as_by_btrfs_progs() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    for (data, metadata, sizes) in DEVICES {
        let scratch = Scratch::new("like-progs-usage");
        let images: Vec<PathBuf> =
            (1..=sizes.len()).map(|number| scratch.join(format!("{number}.img"))).collect();
        for (image, megabytes) in images.iter().zip(sizes) {
            std::fs::File::create(image).unwrap().set_len(megabytes << 20).unwrap();
        }
        let made = Command::new("mkfs.btrfs").args(["-q", "-d", data, "-m", metadata]).args(&images).output();
        assert!(made.unwrap().status.success());
        let kernel = KernelMount::of(&images, "", &["*"]).unwrap();
        std::fs::write(kernel.path().join("file"), vec![7; 30 << 20]).unwrap();
        kernel.unmount().unwrap();
        let ours = |flags: &[&str], first: usize| {
            let mut command = vlinder();
            command.args(["filesystem", "usage", "-b"]).args(flags).arg(&images[first]);
            for image in images.iter().enumerate().filter(|(position, _)| *position != first) {
                command.arg("-D").arg(image.1);
            }
            end(&mut command).done().text()
        };
        // Whichever device is named first, they are listed by number.
        let (plain, table) = (ours(&[], 0), ours(&["-T"], sizes.len() - 1));
        let kernel = KernelMount::of(&images, "ro", &["*"]).unwrap();
        let point = kernel.path().to_str().unwrap();
        assert_eq!(
            without_devices(&plain),
            without_devices(&tool("btrfs", ["filesystem", "usage", "-b", point]))
        );
        let theirs = tool("btrfs", ["filesystem", "usage", "-b", "-T", point]);
        assert_eq!(without_devices(&table), without_devices(&theirs));
        kernel.unmount().unwrap();
        let unallocated = plain.split("Unallocated:\n").nth(1).unwrap();
        for (line, image) in unallocated.lines().zip(&images) {
            assert!(line.contains(image.to_str().unwrap()), "{unallocated}");
        }
        if data == "raid10" {
            std::fs::remove_file(&images[4]).unwrap();
            let mut command = vlinder();
            command.args(["filesystem", "usage", "-b", "-T", "-o", "ro,degraded"]).arg(&images[0]);
            for image in &images[1..4] {
                command.arg("-D").arg(image);
            }
            let told = end(&mut command);
            assert_eq!(told.code, 0, "{}", told.err);
            let missing = told.text().lines().find(|line| line.starts_with(" 5 missing ")).map(str::to_owned);
            assert!(missing.is_some_and(|line| line.contains(" 419430400 ")), "{}", told.text());
        }
    }
}

/// What is told of changes, and asked of snapshots: one call a line, in a directory with the mount `mount`.
const CHANGES: &str = "
subvolume create mount/a
subvolume snapshot mount/a mount/z
subvolume snapshot -r mount/a mount/s1
subvolume snapshot -r ./mount/../mount/a/ mount/dir
subvolume snapshot mount/dir/a mount/dir/x
subvolume create mount/dir/a2
subvolume create mount/b
subvolume snapshot mount/a mount/dir
subvolume snapshot -r mount/a mount/b/late
subvolume show mount/a
subvolume show mount/dir/a
subvolume show mount
subvolume delete mount/z
subvolume delete -c mount/../mount/dir/x mount/s1
subvolume delete -C mount/dir/a2
subvolume delete mount/nothing
subvolume create mount/b
subvolume snapshot mount/dir mount/no
-q subvolume create mount/quiet
subvolume list mount
";

/// What a program says to the calls, without what differs from one file system to the next.
fn told_of_changes(place: &Place, program: &Path) -> Vec<String> {
    std::fs::create_dir(place.point.join("dir")).unwrap();
    let mut told = Vec::new();
    for call in CHANGES.lines().filter(|line| !line.is_empty()) {
        let ended = place.progs(program, &call.split(' ').collect::<Vec<_>>());
        assert!(ended.code == 0 || ended.err.starts_with("ERROR: "), "{call}: {}", ended.err);
        told.push(format!("{call}: {}", ended.code));
        // btrfs-progs tells some of what it is about to try.
        let text = if ended.code == 0 { ended.text() } else { String::new() };
        // btrfs-progs 6.2 shows the time of creation as that of sending where the disk has none.
        for line in text.lines().filter(|line| !line.contains("Send time:")) {
            let varies = ["UUID:", "time:", "Generation:", "Gen at", "ID 2"];
            if let Some(title) = varies.iter().find(|title| line.contains(**title)) {
                told.push(format!("{title} {}", line.rsplit(' ').next().unwrap().len()));
                continue;
            }
            // Newer versions than that of the comparison tell the number of what is deleted.
            let words =
                line.split(' ').filter(|word| !(line.starts_with("Delete") && word.parse::<u64>().is_ok()));
            told.push(words.collect::<Vec<_>>().join(" "));
        }
    }
    told
}

#[test]
fn changes_of_subvolumes_are_told_as_by_btrfs_progs() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let place = Place::new("like-progs-changes", "true");
    let copy = place.scratch.join("copy.img");
    std::fs::copy(&place.image, &copy).unwrap();
    let kernel = KernelMount::new(&copy, "").unwrap();
    let (mount, bind) = (Path::new("mount"), place.point.to_str().unwrap());
    tool("mount", ["--bind", kernel.path().to_str().unwrap(), bind]);
    let theirs = told_of_changes(&place, Path::new("btrfs"));
    tool("umount", [bind]);
    kernel.unmount().unwrap();
    run([mount, &place.image, &place.point]).done();
    let ours = told_of_changes(&place, &place.scratch.join("btrfs"));
    place.unmount();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
    // Without a mount each call commits.
    let target = |path: &str| format!("{}:/{path}", place.image.display());
    let said = place.progs(&place.scratch.join("btrfs"), &["subvolume", "delete", &target("dir/a")]);
    let said = said.done().text();
    assert!(said.contains(" (commit): ") && said.contains(&format!("'{}'", target("dir/a"))), "{said}");
}
