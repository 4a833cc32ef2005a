//! btrbk, as its users call it, with vlinder's link `btrfs` first in PATH: between two mounts of vlinder's,
//! between one and a Btrfs of the kernel's both ways, and between two of the kernel's without vlinder. What
//! btrbk says is the same each time.
//!
//! One thing is made up for it: a stand-in `cat`, for btrbk wants mounts of the type `btrfs` in
//! `/proc/self/mountinfo`.
//!
//! The whole log: `cargo test -p vlinder-cli --test it btrbk:: -- --nocapture --test-threads=1`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{run, tool};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

/// Whose mount a side of the backups is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Kernel,
    Vlinder,
}

/// A file system that is mounted.
struct Side {
    image: PathBuf,
    point: PathBuf,
    kernel: Option<KernelMount>,
}

impl Side {
    fn new(scratch: &Scratch, name: &str, whose: Whose) -> Self {
        let image = scratch.join(format!("{name}.img"));
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        if whose == Whose::Kernel {
            tool("mkfs.btrfs", ["-q", image.to_str().unwrap()]);
            let kernel = KernelMount::new(&image, "").unwrap();
            return Self { image, point: kernel.path().to_owned(), kernel: Some(kernel) };
        }
        run(["mkfs", "-q", image.to_str().unwrap()]).done();
        let point = scratch.join(name);
        std::fs::create_dir(&point).unwrap();
        run([Path::new("mount"), &image, &point]).done();
        Self { image, point, kernel: None }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.point.join(path)
    }

    /// Ends the mount; both checkers are content with what it leaves.
    fn end(self) {
        match self.kernel {
            Some(kernel) => kernel.unmount().unwrap(),
            None => drop(run([Path::new("umount"), &self.point]).done()),
        }
        run(["check", self.image.to_str().unwrap()]).done();
        btrfs_check(&self.image).unwrap();
    }
}

/// Three file systems, a directory for raw backups, and what was said until now.
struct Backups {
    scratch: Scratch,
    from: Side,
    to: Side,
    archive: Side,
    raw: PathBuf,
    search: String,
    log: String,
    /// Timestamps, in the order in which they came up.
    times: Vec<String>,
}

const CONFIGURATION: &str = "
timestamp_format long-iso
snapshot_preserve_min latest
snapshot_preserve no
target_preserve no
volume FROM
  snapshot_dir snaps
  subvolume home
    target_preserve_min all
    target TO/backups
    target raw RAW
      target_preserve_min all
  subvolume nested/root
    snapshot_name root
    target_preserve_min latest
    target TO/backups
";

impl Backups {
    fn new(name: &str, from: Whose, to: Whose) -> Self {
        let scratch = Scratch::new(name);
        let (own, raw) = (scratch.join("bin"), scratch.join("raw"));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&raw).unwrap();
        let search = std::env::var("PATH").unwrap();
        let has_ours = from == Whose::Vlinder || to == Whose::Vlinder;
        let search = if has_ours { format!("{}:{search}", own.display()) } else { search };
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), own.join("btrfs")).unwrap();
        let cat = "#!/bin/sh\n/bin/cat \"$@\" | sed 's/ - fuse\\.vlinder / - btrfs /'\n";
        std::fs::write(own.join("cat"), cat).unwrap();
        std::fs::set_permissions(own.join("cat"), PermissionsExt::from_mode(0o755)).unwrap();
        let side = |name, whose| Side::new(&scratch, name, whose);
        let (archive, log) = (side("archive", from), String::new());
        let (from, to) = (side("from", from), side("to", to));
        let backups = Self { scratch, from, to, archive, raw, search, log, times: Vec::new() };
        backups.configure("btrbk.conf", CONFIGURATION);
        backups.shell(
            "btrfs -q subvolume create FROM/home; mkdir FROM/snaps FROM/nested TO/backups
             btrfs -q subvolume create FROM/nested/root
             head -c 3000000 /dev/urandom > FROM/home/random; mkdir -p FROM/home/some/where
             seq 20000 > FROM/home/some/numbers; ln FROM/home/random FROM/home/some/link
             ln -s random FROM/home/symbolic; truncate -s 5M FROM/home/hole; echo x >> FROM/home/hole
             setfattr -n user.name -v value FROM/home/some; chown 12:34 FROM/home/some/numbers
             echo data > FROM/nested/root/file",
        );
        backups
    }

    fn filled(&self, text: &str) -> String {
        let (from, to) = (self.from.point.to_str().unwrap(), self.to.point.to_str().unwrap());
        let text = text.replace("RAW", self.raw.to_str().unwrap());
        let text = text.replace("ARCHIVE", self.archive.point.to_str().unwrap());
        text.replace("FROM", from).replace("TO", to).replace("HERE", self.scratch.path().to_str().unwrap())
    }

    fn configure(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.join(name), self.filled(text)).unwrap();
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.search).env("TZ", "UTC").env("LC_ALL", "C");
        command.current_dir(self.scratch.path());
        command
    }

    /// Runs a script that must succeed; gives what it says.
    #[track_caller]
    fn shell(&self, script: &str) -> String {
        let ended =
            self.command("bash").args(["-euo", "pipefail", "-c", &self.filled(script)]).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{script}: {out}{err}");
        out.into_owned()
    }

    /// Runs btrbk, which must end with 0, or with this number; what it says goes to the log.
    #[track_caller]
    fn btrbk(&mut self, arguments: &str, code: i32) -> String {
        if arguments.ends_with("run") || arguments.ends_with("snapshot") {
            // Snapshots have the second in their names.
            vlinder_base::thread::sleep(std::time::Duration::from_millis(1010));
        }
        let words = self.filled(arguments);
        let ended = self.command("btrbk").args(words.split_whitespace()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        println!("$ btrbk {words}\n{out}{err}");
        assert_eq!(ended.status.code(), Some(code), "btrbk {words}: {out}{err}");
        let asked = self.plain(&format!("$ btrbk {words}"));
        let said = self.plain(&format!("{out}{err}"));
        self.log += &format!("{asked}{said}\n");
        said
    }

    /// What was said, without what differs from one run to the next: places; days and times.
    fn plain(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        let (from, to, archive) = (&self.from.point, &self.to.point, &self.archive.point);
        for (place, name) in [(&self.raw, "RAW"), (from, "FROM"), (to, "TO"), (archive, "ARCHIVE")] {
            text = text.replace(place.to_str().unwrap(), name);
        }
        text = text.replace(self.scratch.path().to_str().unwrap(), "HERE");
        let mut plain = String::new();
        for line in text.lines().map(str::trim) {
            if ["Date:", "Completed within", "btrbk command"].iter().any(|start| line.starts_with(start)) {
                continue;
            }
            let words: Vec<_> = line.split_whitespace().map(|word| numbered(word, &mut self.times)).collect();
            plain += &words.join(" ");
            plain.push('\n');
        }
        plain
    }

    /// The names in a directory that begin with these words, in order.
    fn names(&self, directory: &Path, start: &str) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with(start)).collect();
        names.sort();
        names
    }

    /// A line of `subvolume show`.
    fn shown(&self, path: &Path, title: &str) -> String {
        let shown = self.shell(&format!("btrfs subvolume show {}", path.display()));
        let line = shown.lines().find(|line| line.trim_start().starts_with(title)).unwrap();
        line.trim_start()[title.len()..].trim().to_owned()
    }

    /// Both show the same tree.
    #[track_caller]
    fn assert_same(&self, one: &Path, other: &Path) {
        let of = |path: &Path| {
            self.shell(&format!(
                "cd {}; find . -printf '%P %y %m %U:%G %l\\n' | sort; getfattr -dR -m '^user' .
                 find . -type f -printf '%P %n %s %T@\\n' | sort; find . -type f -exec sha256sum {{}} + | sort",
                path.display()
            ))
        };
        assert_eq!(of(one), of(other), "{} {}", one.display(), other.display());
    }

    fn end(self) -> String {
        self.from.end();
        self.to.end();
        self.archive.end();
        self.log
    }
}

/// A word in which each timestamp of btrbk's is the number of its snapshot, in the order in which they came
/// up under the snapshot's name. (Two runs in one second tell them apart by `_1`.)
fn numbered(word: &str, times: &mut Vec<String>) -> String {
    const SHAPE: &str = "dddddddd\0dddddd+0000";
    let fits = |text: &str| {
        let chars = text.bytes().zip(SHAPE.replace('\0', "T").into_bytes());
        text.len() >= SHAPE.len()
            && chars.into_iter().all(|(byte, shape)| byte == shape || shape == b'd' && byte.is_ascii_digit())
    };
    let Some(at) = (0..word.len()).find(|at| word.is_char_boundary(*at) && fits(&word[*at..])) else {
        return word.to_owned();
    };
    let begin = word[..at].rfind('/').map_or(0, |slash| slash + 1);
    let rest = &word[at + SHAPE.len()..];
    let suffix =
        rest.strip_prefix('_').map_or(0, |rest| 1 + rest.bytes().take_while(u8::is_ascii_digit).count());
    let (name, end) = (&word[begin..at], at + SHAPE.len() + suffix);
    let whole = word[begin..end].to_owned();
    if !times.contains(&whole) {
        times.push(whole.clone());
    }
    let same = times.iter().filter(|other| other.starts_with(name));
    let number = same.take_while(|other| **other != whole).count();
    format!("{}<{number}>{}", &word[..at], &word[end..])
}

/// What users of btrbk do, one after the other; gives what btrbk said.
fn backed_up(name: &str, from: Whose, to: Whose) -> String {
    let mut backups = Backups::new(name, from, to);
    let (snaps, copies) = (backups.from.at("snaps"), backups.to.at("backups"));
    backups.btrbk("-c btrbk.conf -l info -n run", 0);
    backups.btrbk("-c btrbk.conf -l info run", 0);
    for round in 1..=3 {
        backups.shell(&format!(
            "echo {round} > FROM/home/changed; mv FROM/home/some FROM/home/some.new; mv FROM/home/some.new FROM/home/some
             dd if=/dev/urandom of=FROM/home/random bs=4k seek={round} count=3 conv=notrunc status=none
             rm -f FROM/home/gone; cp --reflink=auto FROM/home/random FROM/home/gone; rm -f FROM/home/hole
             echo {round} >> FROM/nested/root/file"
        ));
        let said = backups.btrbk("-c btrbk.conf run", 0);
        assert!(said.contains(">>> TO/backups/home."), "{said}");
    }
    // The newest snapshots stay at the source, and the newest copy of the second subvolume.
    assert_eq!((backups.names(&snaps, "home.").len(), backups.names(&snaps, "root.").len()), (2, 1));
    assert_eq!((backups.names(&copies, "home.").len(), backups.names(&copies, "root.").len()), (4, 1));
    let newest = backups.names(&snaps, "home.").remove(1);
    backups.assert_same(&snaps.join(&newest), &copies.join(&newest));
    assert_eq!(
        backups.shown(&copies.join(&newest), "Received UUID:"),
        backups.shown(&snaps.join(&newest), "UUID:")
    );
    let earlier = backups.names(&copies, "home.");
    assert_eq!(
        backups.shown(&copies.join(&earlier[3]), "Parent UUID:"),
        backups.shown(&copies.join(&earlier[2]), "UUID:")
    );
    for list in ["all", "latest", "snapshots", "backups", "source", "target", "config"] {
        backups.btrbk(&format!("-c btrbk.conf list {list}"), 0);
    }
    backups.btrbk("-c btrbk.conf stats", 0);
    backups.btrbk(&format!("-c btrbk.conf origin TO/backups/{newest}"), 0);
    // A snapshot whose copy does not come about is copied by the next call.
    backups.shell("echo later > FROM/home/later");
    backups.btrbk("-c btrbk.conf snapshot", 0);
    let said = backups.btrbk("-c btrbk.conf -n resume", 0) + &backups.btrbk("-c btrbk.conf resume", 0);
    assert!(said.contains(">>> TO/backups/home."), "{said}");
    // What was received in part is found and removed.
    backups.shell("btrfs -q subvolume create TO/backups/home.20200101T000000+0000");
    backups.btrbk("-c btrbk.conf clean", 0);
    assert!(!copies.join("home.20200101T000000+0000").exists());
    backups.btrbk("-c btrbk.conf --preserve prune", 0);
    // All copies go to another place with what they share, and once more when there are more.
    let archive = backups.archive.at("");
    backups.btrbk("-c btrbk.conf archive TO/backups ARCHIVE", 0);
    backups.shell("echo last > FROM/home/last");
    backups.btrbk("-c btrbk.conf run", 0);
    let said = backups.btrbk("-c btrbk.conf archive TO/backups ARCHIVE", 0);
    assert!(said.contains(">>> ARCHIVE/home."), "{said}");
    for copy in backups.names(&copies, "home.") {
        backups.assert_same(&copies.join(&copy), &archive.join(&copy));
    }
    raw_backups(&backups);
    backups.end()
}

/// Files of streams are streams, each behind the one that it continues, and give the same trees.
fn raw_backups(backups: &Backups) {
    let files = backups.names(&backups.raw, "home.");
    let streams: Vec<_> = files.iter().filter(|name| name.ends_with(".btrfs")).collect();
    assert!(streams.len() > 3, "{files:?}");
    backups.shell("mkdir TO/restored");
    for stream in streams {
        backups.shell(&format!("btrfs receive -f RAW/{stream} TO/restored"));
        let name = stream.trim_end_matches(".btrfs");
        backups.assert_same(&backups.to.at("backups").join(name), &backups.to.at("restored").join(name));
    }
}

#[test]
fn backups_are_told_the_same_wherever_they_lie() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("btrbk"), Tool("getfattr"));
    let kernel = backed_up("btrbk-kernel", Whose::Kernel, Whose::Kernel);
    for (name, from, to) in [
        ("btrbk-ours", Whose::Vlinder, Whose::Vlinder),
        ("btrbk-out", Whose::Vlinder, Whose::Kernel),
        ("btrbk-in", Whose::Kernel, Whose::Vlinder),
    ] {
        let ours = backed_up(name, from, to);
        for (number, (ours, kernels)) in ours.lines().zip(kernel.lines()).enumerate() {
            assert_eq!(ours, kernels, "{from:?} to {to:?}, line {number}");
        }
        assert_eq!(ours.len(), kernel.len());
    }
}

#[test]
fn what_changed_between_snapshots_is_told_as_on_linux() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("btrbk"));
    let [kernel, ours] = [Whose::Kernel, Whose::Vlinder].map(|whose| {
        let mut backups = Backups::new("btrbk-diff", whose, whose);
        backups.btrbk("-c btrbk.conf -p snapshot", 0);
        backups.shell(
            "head -c 300000 /dev/urandom > FROM/home/added; seq 9000 >> FROM/home/some/numbers
             head -c 8192 /dev/urandom | dd of=FROM/home/random bs=4k seek=9 conv=notrunc status=none; sync",
        );
        backups.btrbk("-c btrbk.conf -p snapshot", 0);
        let snaps = backups.names(&backups.from.at("snaps"), "home.");
        let said =
            backups.btrbk(&format!("-c btrbk.conf diff FROM/snaps/{} FROM/snaps/{}", snaps[0], snaps[1]), 0);
        backups.end();
        // How the bytes are cut into extents is each one's own.
        let files = said
            .lines()
            .filter(|line| ["added", "numbers", "random"].iter().any(|name| line.ends_with(name)));
        files.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(kernel.len(), 3, "{kernel:?}");
    assert_eq!(ours, kernel);
}
