//! The same random operations on a kernel mount and on an image of ours: each must end with the same error or
//! none, and both trees must walk equal, directory sizes included. `btrfs check` judges ours after each
//! commit.

#[path = "it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other test program uses the rest")]
mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use support::{image, root_user};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_fs::path::Files;
use vlinder_fs::{
    AttributeMode, FileType, Filesystem, Inode, OpenInode, OpenOptions, RenameMode, SetAttributes,
};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require, walk};

const COMMITS: usize = 12;
const OPERATIONS_IN_COMMIT: usize = 500;

struct Pair {
    mount: PathBuf,
    files: Files,
    random: SeededRandom,
    directories: Vec<String>,
    /// Files that both sides hold open while their names may go.
    held: Vec<(rustix::fd::OwnedFd, OpenInode)>,
    successes: std::collections::BTreeMap<&'static str, u32>,
}

type Outcome = Result<(), Errno>;

fn ours<T>(result: vlinder_fs::Result<T>) -> Outcome {
    result.map(drop).map_err(|error| error.errno())
}

impl Pair {
    fn below(&self, most: u64) -> u64 {
        self.random.next_u64() % most
    }

    fn directory(&self) -> String {
        self.directories[self.below(self.directories.len() as u64) as usize].clone()
    }

    /// A path in a directory that was made at some time, of a name that others use too.
    fn path(&self) -> String {
        let long = if self.below(20) == 0 { "-with-a-longer-name".repeat(8) } else { String::new() };
        format!("{}/n{}{long}", self.directory(), self.below(24))
    }

    /// Mostly the path of something that is there.
    fn existing(&self) -> String {
        let directory = self.directory();
        let names = self
            .files
            .read_dir(format!("{directory}/"))
            .map(|names| names.collect::<Vec<_>>())
            .unwrap_or_default();
        if names.is_empty() || self.below(5) == 0 {
            return self.path();
        }
        let entry = names[self.below(names.len() as u64) as usize].as_ref().unwrap();
        format!("{directory}/{}", entry.file_name().to_str().unwrap())
    }

    fn host(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    fn filesystem(&self) -> &Filesystem {
        self.files.filesystem()
    }

    fn parent(&self, path: &str) -> vlinder_fs::Result<(Arc<Inode>, Vec<u8>)> {
        self.files.resolve_parent(Path::new(path))
    }

    fn step(&mut self) {
        let (name, detail, theirs, ours) = match self.below(17) {
            0 | 1 => self.create(),
            2 => self.mkdir(),
            3 => self.symlink(),
            4 => self.link(),
            5 | 6 => self.unlink(),
            7 => self.rmdir(),
            8..=10 => self.rename(),
            11 => self.write(),
            12 => self.truncate(),
            13 => self.set_xattr(),
            14 => self.remove_xattr(),
            15 => self.chmod(),
            _ => self.hold(),
        };
        assert_eq!(theirs, ours, "{name} {detail}: the kernel left, we right");
        if ours.is_ok() {
            *self.successes.entry(name).or_default() += 1;
        }
    }

    fn create(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let path = self.path();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let theirs = rustix::fs::open(self.host(&path), flags, Mode::from_raw_mode(0o640)).map(drop);
        let ours = ours(self.files.options().write(true).create_new(true).permissions(0o640).open(&path));
        ("create", path, theirs, ours)
    }

    fn mkdir(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let path = self.path();
        let theirs = rustix::fs::mkdir(self.host(&path), Mode::from_raw_mode(0o777));
        let ours = ours(self.files.create_dir(&path));
        if ours.is_ok() && path.matches('/').count() < 4 && self.directories.len() < 12 {
            self.directories.push(path.clone());
        }
        ("mkdir", path, theirs, ours)
    }

    fn symlink(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (path, target) = (self.path(), format!("t{}", self.below(1000)));
        let theirs = rustix::fs::symlink(&target, self.host(&path));
        let ours = ours(self.files.symlink(&target, &path));
        ("symlink", path, theirs, ours)
    }

    fn link(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (from, to) = (self.existing(), self.path());
        let theirs = rustix::fs::linkat(CWD, self.host(&from), CWD, self.host(&to), AtFlags::empty());
        let ours = ours(self.files.hard_link(&from, &to));
        ("link", format!("{from} {to}"), theirs, ours)
    }

    fn unlink(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let path = self.existing();
        let theirs = rustix::fs::unlink(self.host(&path));
        let ours = ours(self.files.remove_file(&path));
        ("unlink", path, theirs, ours)
    }

    fn rmdir(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let path = if self.below(3) == 0 { self.directory() } else { self.path() };
        if path.is_empty() {
            return ("rmdir", path, Ok(()), Ok(()));
        }
        let theirs = rustix::fs::rmdir(self.host(&path));
        let ours = ours(self.files.remove_dir(&path));
        ("rmdir", path, theirs, ours)
    }

    fn rename(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (from, to) = (self.existing(), self.path());
        let to = if self.below(3) == 0 { self.existing() } else { to };
        let (name, flags, mode) = match self.below(8) {
            0 => ("rename NOREPLACE", RenameFlags::NOREPLACE, RenameMode::NoReplace),
            1 | 2 => ("rename EXCHANGE", RenameFlags::EXCHANGE, RenameMode::Exchange),
            3 => ("rename WHITEOUT", RenameFlags::WHITEOUT, RenameMode::Whiteout),
            _ => ("rename", RenameFlags::empty(), RenameMode::Replace),
        };
        let theirs = rustix::fs::renameat_with(CWD, self.host(&from), CWD, self.host(&to), flags);
        let result = self.parent(&from).and_then(|(from_directory, from_name)| {
            let (to_directory, to_name) = self.parent(&to)?;
            self.filesystem().names().rename(
                &root_user(),
                &from_directory,
                &from_name,
                &to_directory,
                &to_name,
                mode,
            )
        });
        (name, format!("{from} {to}"), theirs, ours(result))
    }

    fn write(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let path = self.existing();
        let offset = self.below(3) * self.below(100_000);
        let data = vec![self.below(256) as u8; 1 + self.below(30_000) as usize];
        let theirs = rustix::fs::open(self.host(&path), OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty())
            .and_then(|file| {
                rustix::io::pwrite(&file, &data, offset).map(|count| assert_eq!(count, data.len()))
            });
        let result = self.files.resolve_link(Path::new(&path)).and_then(|inode| {
            if matches!(inode.file_type(), FileType::CharacterDevice) {
                // The kernel opens the device that a whiteout stands for, and finds none.
                return Err(vlinder_fs::Refusal::NoSuchOffset.into());
            }
            let mode = vlinder_fs::OpenMode { write: true, ..Default::default() };
            let open = self.filesystem().files().open(&root_user(), &inode, mode)?;
            self.filesystem().files().write_at(&root_user(), open.inode(), offset, data.into())
        });
        ("write", path, theirs, ours(result))
    }

    fn truncate(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (path, size) = (self.existing(), self.below(2) * self.below(60_000));
        let is_link = self.files.symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link {
            return ("truncate", path, Ok(()), Ok(()));
        }
        let host = std::ffi::CString::new(self.host(&path).as_os_str().as_bytes()).unwrap();
        let theirs = std::fs::OpenOptions::new().write(true).open(OsStr::from_bytes(host.as_bytes()));
        let theirs =
            theirs.and_then(|file| file.set_len(size)).map_err(|error| Errno::from_io_error(&error).unwrap());
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let result = self.files.resolve(Path::new(&path)).and_then(|inode| {
            if inode.file_type() == FileType::CharacterDevice {
                return Err(vlinder_fs::Refusal::NoSuchOffset.into());
            }
            self.filesystem().attributes().set(&root_user(), &inode, &changes)
        });
        ("truncate", path, theirs, ours(result))
    }

    fn set_xattr(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (path, name) = (self.existing(), format!("user.x{}", self.below(3)));
        let value = vec![b'v'; self.below(200) as usize];
        let (flags, mode) = match self.below(4) {
            0 => (XattrFlags::CREATE, AttributeMode::Create),
            1 => (XattrFlags::REPLACE, AttributeMode::Replace),
            _ => (XattrFlags::empty(), AttributeMode::Either),
        };
        let theirs = rustix::fs::lsetxattr(self.host(&path), &name, &value, flags);
        let result = self.files.resolve_link(Path::new(&path)).and_then(|inode| {
            self.filesystem().attributes().set_extended_attribute(
                &root_user(),
                &inode,
                name.as_bytes(),
                &value,
                mode,
            )
        });
        ("setxattr", format!("{path} {name}"), theirs, ours(result))
    }

    fn remove_xattr(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (path, name) = (self.existing(), format!("user.x{}", self.below(3)));
        let theirs = rustix::fs::lremovexattr(self.host(&path), &name);
        let result = self.files.resolve_link(Path::new(&path)).and_then(|inode| {
            self.filesystem().attributes().remove_extended_attribute(&root_user(), &inode, name.as_bytes())
        });
        ("removexattr", format!("{path} {name}"), theirs, ours(result))
    }

    fn chmod(&mut self) -> (&'static str, String, Outcome, Outcome) {
        let (path, permissions) = (self.existing(), self.below(0o10000) as u32);
        let is_link = self.files.symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if is_link {
            return ("chmod", path, Ok(()), Ok(()));
        }
        let theirs = rustix::fs::chmod(self.host(&path), Mode::from_raw_mode(permissions));
        let ours = ours(self.files.set_permissions(&path, permissions));
        ("chmod", path, theirs, ours)
    }

    /// Holds a file open, or lets go of one.
    fn hold(&mut self) -> (&'static str, String, Outcome, Outcome) {
        if self.held.len() > 5 {
            let position = self.below(self.held.len() as u64) as usize;
            let (_, open) = self.held.swap_remove(position);
            return ("close", String::new(), Ok(()), ours(open.close()));
        }
        let path = self.existing();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let theirs = rustix::fs::open(self.host(&path), flags, Mode::empty());
        let result = self.files.resolve_link(Path::new(&path)).and_then(|inode| {
            if inode.file_type() == FileType::CharacterDevice {
                return Err(vlinder_fs::Refusal::NoSuchOffset.into());
            }
            let mode = vlinder_fs::OpenMode { read: true, ..Default::default() };
            self.filesystem().files().open(&root_user(), &inode, mode)
        });
        let (their_errno, our_errno) =
            (theirs.as_ref().err().copied(), result.as_ref().err().map(|error| error.errno()));
        if let (Ok(file), Ok(open)) = (theirs, result) {
            self.held.push((file, open));
        }
        ("open", path, their_errno.map_or(Ok(()), Err), our_errno.map_or(Ok(()), Err))
    }
}

/// Walks without times, which no two runs share.
fn timeless(walk: &str) -> String {
    let mut lines = String::new();
    for line in walk.lines() {
        let mut fields: Vec<&str> = line.split('|').collect();
        fields[5] = "0";
        lines.push_str(&fields.join("|"));
        lines.push('\n');
    }
    lines
}

fn run(seed: u64, arguments: &[&str]) {
    let (theirs, ours) = (Scratch::new("differential-kernel"), Scratch::new("differential"));
    let (their_image, our_image) = (image(&theirs, 512, arguments), image(&ours, 512, arguments));
    let mount = KernelMount::new(&their_image, "").unwrap();
    let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[&our_image], options).unwrap();
    let mut pair = Pair {
        mount: mount.path().to_owned(),
        files: Files::new(filesystem, root_user()),
        random: SeededRandom::new(seed),
        directories: vec![String::new()],
        held: Vec::new(),
        successes: Default::default(),
    };
    for _ in 0..COMMITS {
        for _ in 0..OPERATIONS_IN_COMMIT {
            pair.step();
        }
        pair.filesystem().sync().unwrap();
        btrfs_check(&our_image).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let walk_options = walk::Options { identity: walk::InodeIdentity::NumberAlone, ..Default::default() };
    let expected = timeless(&walk::render(&walk::walk(&pair.mount, &walk_options).unwrap()));
    let found = timeless(&support::walk(pair.filesystem()));
    walk::compare(&expected, &found).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    eprintln!("seed {seed}: {:?}", pair.successes);
    assert!(pair.successes.values().all(|count| *count >= 3), "{:?}", pair.successes);
    let Pair { files, held, .. } = pair;
    drop(held);
    files.close().unwrap();
    mount.unmount().unwrap();
    let again = KernelMount::new(&our_image, "").unwrap();
    let after = timeless(&walk::render(&walk::walk(again.path(), &walk_options).unwrap()));
    walk::compare(&expected, &after).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    again.scrub().unwrap();
    again.unmount().unwrap();
}

/// `VLINDER_SEED` replays one run.
#[test]
fn random_operations_end_as_the_kernel_s() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    rustix::process::umask(Mode::empty());
    if let Ok(seed) = std::env::var("VLINDER_SEED") {
        return run(seed.parse().unwrap(), &["-n", "4096"]);
    }
    for seed in 1..4 {
        run(seed, &["-n", "4096"]);
        run(seed + 100, &[]);
    }
}
