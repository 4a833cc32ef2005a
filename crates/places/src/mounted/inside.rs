//! A path that is followed inside of a directory, and never out of it, nor into another mount.
//!
//! openat2(2) does it in one call. Linux has it since 5.6, and sandboxes refuse a call that they do not know
//! (ENOSYS or EPERM, by their rules). There the path is followed name by name, with the same outcome.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use vlinder_control::unmount::mount_of;

/// Symbolic links on one path, as on Linux (`MAXSYMLINKS`, include/linux/namei.h).
const MAX_LINKS: usize = 40;
/// Bytes of a path, as on Linux (`PATH_MAX`, include/uapi/linux/limits.h), the NUL behind it among them.
const MAX_PATH_BYTES: usize = 4096;
/// Only a name is looked up: no file is read or written by these descriptors.
const LOOK_UP: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// What is followed, and what has to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Whatever the path leads to, by any symbolic links.
    Target,
    /// As [`Lookup::Target`]; but a symbolic link that has the last name is what is found.
    Name,
    /// A directory. No name of the path is a symbolic link.
    PlainDirectory,
}

impl Lookup {
    const fn flags(self) -> OFlags {
        match self {
            Self::Target => LOOK_UP,
            Self::Name => LOOK_UP.union(OFlags::NOFOLLOW),
            Self::PlainDirectory => LOOK_UP.union(OFlags::DIRECTORY),
        }
    }
}

/// Opens what a path names inside of a directory (O_PATH); of an absolute path or link, and of `..`, that
/// directory is the root.
///
/// # Errors
/// As openat2(2): EXDEV where another mount is on the way, ELOOP for too many links or one that is not to be
/// there.
pub(super) fn open(root: &OwnedFd, path: &[u8], lookup: Lookup) -> rustix::io::Result<OwnedFd> {
    match at_once(root, path, lookup) {
        // A look-up is never refused by either.
        Err(Errno::NOSYS | Errno::PERM) => name_by_name(root, path, lookup),
        other => other,
    }
}

fn at_once(root: &OwnedFd, path: &[u8], lookup: Lookup) -> rustix::io::Result<OwnedFd> {
    let mut inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    if lookup == Lookup::PlainDirectory {
        inside |= ResolveFlags::NO_SYMLINKS;
    }
    rustix::fs::openat2(root, path, lookup.flags(), Mode::empty(), inside)
}

/// What was opened on the way: the root, and below it each directory that was entered and not left.
struct Way<'a> {
    root: &'a OwnedFd,
    below: Vec<OwnedFd>,
    mount: u64,
}

impl Way<'_> {
    fn current(&self) -> &OwnedFd {
        self.below.last().unwrap_or(self.root)
    }

    /// Opens a name in the current directory; a link is not followed.
    fn open(&self, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        let name = OsStr::from_bytes(name);
        let found = rustix::fs::openat(self.current(), name, LOOK_UP | OFlags::NOFOLLOW, Mode::empty())?;
        let mount = mount_of(found.as_fd()).map_err(|_| Errno::XDEV)?;
        if mount == self.mount { Ok(found) } else { Err(Errno::XDEV) }
    }
}

fn name_by_name(root: &OwnedFd, path: &[u8], lookup: Lookup) -> rustix::io::Result<OwnedFd> {
    match path.len() {
        0 => return Err(Errno::NOENT),
        MAX_PATH_BYTES.. => return Err(Errno::NAMETOOLONG),
        _ => {}
    }
    let mut way = Way { root, below: Vec::new(), mount: mount_of(root.as_fd()).map_err(|_| Errno::XDEV)? };
    let mut names = names_of(path);
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        // What was entered is a directory, and above the root is the root.
        match &*name {
            b"." => continue,
            b".." => {
                way.below.pop();
                continue;
            }
            _ => {}
        }
        let found = way.open(&name)?;
        let is_last = names.is_empty();
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::Symlink if is_last && lookup == Lookup::Name => return Ok(found),
            FileType::Symlink if lookup == Lookup::PlainDirectory => return Err(Errno::LOOP),
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                let text = rustix::fs::readlinkat(&found, "", Vec::new())?;
                if text.as_bytes().starts_with(b"/") {
                    way.below.clear();
                }
                for name in names_of(text.as_bytes()).into_iter().rev() {
                    names.push_front(name);
                }
            }
            FileType::Directory => way.below.push(found),
            // A name behind it, even `.`, asks for a directory.
            _ if is_last && lookup != Lookup::PlainDirectory => return Ok(found),
            _ => return Err(Errno::NOTDIR),
        }
    }
    match way.below.pop() {
        Some(directory) => Ok(directory),
        None => rustix::fs::openat(root, ".", LOOK_UP, Mode::empty()),
    }
}

/// The names of a path. A slash at its end asks for a directory, as `.` does there.
fn names_of(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names: VecDeque<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    if path.ends_with(b"/") {
        names.push_back(b".".to_vec());
    }
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use proptest::prelude::*;
    use vlinder_testkit::{Scratch, require};

    use super::*;

    const LOOKUPS: [Lookup; 3] = [Lookup::Target, Lookup::Name, Lookup::PlainDirectory];

    fn root(path: &Path) -> OwnedFd {
        rustix::fs::open(path, LOOK_UP | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// What was found, or why nothing was.
    fn outcome(found: rustix::io::Result<OwnedFd>) -> Result<(u64, u64), Errno> {
        found.and_then(rustix::fs::fstat).map(|status| (status.st_dev, status.st_ino))
    }

    fn compare(root: &OwnedFd, path: &[u8]) -> [Result<(u64, u64), Errno>; 3] {
        LOOKUPS.map(|lookup| {
            let both = [at_once(root, path, lookup), name_by_name(root, path, lookup)].map(outcome);
            assert_eq!(both[1], both[0], "{lookup:?} of {}", path.escape_ascii());
            both[0]
        })
    }

    /// A directory `top` with files, directories and links of all kinds, beside one outside of it.
    fn tree(name: &str) -> (Scratch, OwnedFd) {
        let scratch = Scratch::new(name);
        let top = scratch.join("top");
        std::fs::create_dir_all(top.join("a/b/c")).unwrap();
        std::fs::create_dir(scratch.join("out")).unwrap();
        for file in ["out/f", "top/f", "top/a/f", "top/a/b/f"] {
            std::fs::write(scratch.join(file), file).unwrap();
        }
        for (text, link) in [
            ("a", "l"),
            ("/a/b", "a/l"),
            ("../../out", "o"),
            ("../..", "a/b/l"),
            ("/", "r"),
            ("f", "a/g"),
            ("f/", "a/b/g"),
            ("none", "n"),
            ("m", "m"),
            ("a/./b/", "s"),
            ("l/l/l/..", "a/o"),
        ] {
            symlink(text, top.join(link)).unwrap();
        }
        let chain = (0..45).map(|number| (format!("{}", number + 1), format!("{number}")));
        chain.for_each(|(text, link)| symlink(text, top.join(link)).unwrap());
        std::fs::write(top.join("45"), "the end").unwrap();
        let descriptor = root(&top);
        (scratch, descriptor)
    }

    #[test]
    fn both_ways_lead_to_the_same_place() {
        let (_scratch, top) = tree("inside");
        let found = |path: &[u8]| compare(&top, path);
        assert_eq!(found(b""), [Err(Errno::NOENT); 3]);
        assert_eq!(found(b"5")[0], found(b"45")[0], "40 links");
        assert_eq!(found(b"4")[0], Err(Errno::LOOP), "41 links");
        assert_eq!(found(b"a/g/"), [Err(Errno::NOTDIR), Err(Errno::NOTDIR), Err(Errno::LOOP)]);
        assert_eq!(found(b"o/f")[0], Err(Errno::NOENT), "no link leads out");
        assert_eq!(found(b"../out")[0], Err(Errno::NOENT));
        assert_eq!(found(b"a/../../../f")[0], found(b"f")[0]);
        assert_eq!(found(b"s/..")[0], found(b"a")[0], "a link that ends with a slash");
        assert!(found(b"/").iter().all(Result::is_ok));
        let long = [b'x'; 256];
        assert_eq!(found(&long)[0], Err(Errno::NAMETOOLONG));
        assert_eq!(found(&b"././".repeat(1024)), [Err(Errno::NAMETOOLONG); 3]);
        assert!(found(&b"././".repeat(1024)[1..]).iter().all(Result::is_ok));
    }

    #[test]
    fn any_path_leads_to_the_same_place_both_ways() {
        let (_scratch, top) = tree("inside-any");
        let names = proptest::collection::vec("[abcfglmnors]|[.]{1,2}|4[0-5]", 1..8);
        proptest!(|(names in names, (first, last) in ("/?", "/{0,2}"))| {
            let path = [first, names.join("/"), last].concat();
            prop_assert_eq!(compare(&top, path.as_bytes()).len(), LOOKUPS.len());
        });
    }

    #[test]
    fn neither_way_enters_another_mount() {
        let host = root(Path::new("/"));
        assert_eq!(compare(&host, b"proc/self/comm"), [Err(Errno::XDEV); 3]);
        assert_eq!(compare(&host, b"proc"), [Err(Errno::XDEV); 3]);
    }

    #[test]
    fn a_mount_of_the_same_file_system_is_another_mount() {
        require!(Root);
        let scratch = Scratch::new("inside-bound");
        let [from, at] = ["from", "at"].map(|name| scratch.join(name));
        [&from, &at].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        rustix::mount::mount_bind(&from, &at).unwrap();
        let outcomes = compare(&root(scratch.path()), b"at");
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).unwrap();
        assert_eq!(outcomes, [Err(Errno::XDEV); 3]);
    }
}
