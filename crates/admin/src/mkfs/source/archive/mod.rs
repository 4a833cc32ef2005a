//! An archive of tar as a source: read once, from a file or standard input, plain or compressed with gzip or
//! zstd, with owners, devices and attributes that no user of the host needs the right to make.
//!
//! What comes of it is what unpacking it as root would leave (`tar --xattrs --xattrs-include='*'
//! --numeric-owner`), and nothing of the host is touched: names lead through a tree in memory alone. Names of
//! users are not looked up, so that the image is the same on each machine. The forms that are read: old tar,
//! POSIX ustar and pax, GNU tar (long names, sparse files of all its forms), star's prefixes.
//!
//! Nothing here trusts the archive: lengths have bounds before memory is taken, names with `..` and those
//! that go through links out of their directory are refused, and what else is wrong has its place told.

mod extended;
mod fault;
mod header;
mod input;
mod reading;
mod sparse;
mod tree;

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;

use vlinder_base::clock::Timestamp;
use vlinder_base::sync::atomic::AtomicBool;
use vlinder_device::HostIdentity;

pub use fault::ArchiveFault;

use super::directory::{SourceDirectory, join};
use super::entry::{Content, Entry, FileState, Kind};
use super::error::SourceError;
use super::list::NAMES_IN_PART;
use super::load::read_range;
use super::reading::{FileBytes, Pieces, Reading, Sink};
use super::rules::EntryRules;
use crate::mkfs::error::MkfsError;
use crate::mkfs::owner_table::TableKind;
use tree::{ArchiveTree, Node, NodeId, NodeKind, ROOT};

/// A file of the archive shows this as its file system; its number is that of its node.
const ARCHIVE_IDENTITY: u64 = u64::MAX - 1;
/// The largest file that comes with its bytes.
const LOADED_FILE_BYTES: u64 = 256 << 10;
/// Bytes of a piece of a large file.
const PIECE_BYTES: usize = 1 << 20;

/// An archive that was read.
pub(super) struct Archive {
    tree: ArchiveTree,
    /// Holds the bytes of its files.
    kept: OwnedFd,
    notes: Vec<String>,
}

/// Directories that are to be entered: a name, and what it is in the archive.
type Below = VecDeque<(Vec<u8>, Option<NodeId>)>;

impl Archive {
    /// Reads the archive at a path, or standard input for `-`.
    ///
    /// # Errors
    /// [`MkfsError::Archive`], [`MkfsError::Interrupted`].
    pub(super) fn read(path: &Path, present: Timestamp, interrupted: &AtomicBool) -> Result<Self, MkfsError> {
        let unpacked = reading::read(path, present, interrupted).map_err(|(fault, byte)| match fault {
            ArchiveFault::Interrupted => MkfsError::Interrupted,
            fault => MkfsError::Archive { archive: shown_archive(path), byte, fault },
        })?;
        let tree = unpacked.tree;
        let mut notes = Vec::new();
        let mut note = |count: u64, what: &str| {
            if count > 0 {
                notes.push(format!("{}: {count} {what}", shown_archive(path)));
            }
        };
        note(tree.absolute, "names begin with a slash; they count from the root of the image");
        note(tree.replaced, "names come more than once; the last entry of each counts");
        note(
            unpacked.text_acls,
            "entries have ACLs as text, which are left out; pack with --xattrs and not --acls",
        );
        if !unpacked.has_end {
            let what =
                "it has no end mark, so it may have been cut; see that what packed it ended without an error";
            notes.push(format!("{}: {what}", shown_archive(path)));
        }
        Ok(Self { tree, kept: unpacked.input.into_kept(), notes })
    }

    /// What its reader should know, a sentence each.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether the bytes of its files lie in this file of the host.
    pub(super) fn lies_in(&self, file: HostIdentity) -> bool {
        rustix::fs::fstat(&self.kept).is_ok_and(|status| {
            let own = HostIdentity::of(&status);
            (own.file_system, own.inode) == (file.file_system, file.inode)
        })
    }

    /// Whether a path leads to a directory, without links at its end.
    pub(super) fn has_directory(&self, path: &[u8]) -> bool {
        let mut at = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            match self.tree.entries(at).and_then(|entries| entries.get(name)) {
                Some(next) if self.tree.entries(*next).is_some() => at = *next,
                _ => return false,
            }
        }
        true
    }

    /// The path of a file or directory, without parts that lead nowhere.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn file_or_directory(&self, path: &[u8]) -> Result<Vec<u8>, &'static str> {
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        let found = parts.iter().try_fold(ROOT, |at, name| self.tree.entries(at)?.get(*name).copied());
        match found.map(|id| &self.tree.node(id).kind) {
            Some(NodeKind::Directory(_) | NodeKind::Regular { .. }) => Ok(parts.join(&b'/')),
            Some(_) => Err("neither a file nor a directory: others have no data that the flags could be of"),
            None => Err("no such file in the archive (links are not followed)"),
        }
    }

    /// The directory that it was packed from, as far as it is in the archive.
    pub(super) fn root_entry(&self, rules: &EntryRules) -> Entry {
        rules.apply_to_root(self.entry(&[], ROOT, Kind::Directory, rules))
    }

    fn kept_bytes(
        &self,
        path: &[u8],
        at: u64,
        length: u64,
        sector_bytes: usize,
    ) -> Result<Vec<u8>, SourceError> {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = read_range(&self.kept, at, wanted, sector_bytes)
            .map_err(|errno| SourceError::call(path, "read", errno))?;
        if bytes.len() == wanted { Ok(bytes) } else { Err(SourceError::changed(path)) }
    }

    fn entry(&self, name: &[u8], id: NodeId, kind: Kind, rules: &EntryRules) -> Entry {
        let node: &Node = self.tree.node(id);
        let (size_bytes, may_have_holes) = match &node.kind {
            NodeKind::Regular { size, ranges } => {
                (*size, ranges.iter().map(|range| range.length).sum::<u64>() < *size)
            }
            _ => (0, false),
        };
        let kept = node.attributes.iter().filter(|(name, _)| !rules.private_attributes.has(name));
        Entry {
            name: name.to_vec(),
            kind,
            seen: FileState::still((ARCHIVE_IDENTITY, id.0 as u64)),
            links: node.names,
            permissions: node.permissions,
            user: node.user,
            group: node.group,
            size_bytes,
            may_have_holes,
            access_time: node.access_time,
            modification_time: node.modification_time,
            is_in_table: false,
            attributes: kept.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

/// How errors call it.
fn shown_archive(path: &Path) -> String {
    if path == Path::new(input::STANDARD_INPUT) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// An archive on its way to a [`Sink`].
pub(in super::super) struct ArchiveReading<'a> {
    archive: &'a Archive,
    rules: &'a EntryRules,
    sector_bytes: usize,
}

impl<'a> ArchiveReading<'a> {
    pub(super) fn new(archive: &'a Archive, rules: &'a EntryRules, sector_bytes: usize) -> Self {
        Self { archive, rules, sector_bytes }
    }

    /// Gives everything to `sink`, to the end or the first error.
    ///
    /// # Errors
    /// The sink's, and what reading the kept bytes met.
    pub(super) fn give_to<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let mut path = Vec::new();
        let mut seen = HashSet::new();
        let mut levels: Vec<(usize, Below)> = vec![(0, self.directory(&path, Some(ROOT), &mut seen, sink)?)];
        while let Some((above_bytes, below)) = levels.last_mut() {
            match below.pop_front() {
                Some((name, id)) => {
                    let above_bytes = path.len();
                    path = join(&path, &name);
                    sink.enter(&name, None)?;
                    let below = self.directory(&path, id, &mut seen, sink)?;
                    levels.push((above_bytes, below));
                }
                None => {
                    path.truncate(*above_bytes);
                    levels.pop();
                    if !levels.is_empty() {
                        sink.leave();
                    }
                }
            }
        }
        Ok(self.rules.check_all_seen(&seen)?)
    }

    /// Gives the entries of one directory; the directories among them.
    fn directory<S: Sink>(
        &self,
        path: &[u8],
        id: Option<NodeId>,
        seen: &mut HashSet<Vec<u8>>,
        sink: &mut S,
    ) -> Result<Below, S::Error> {
        let reading = Reading::of(self);
        let directory = SourceDirectory::made(path.to_vec());
        let entries = id.and_then(|id| self.archive.tree.entries(id));
        let mut below = Below::new();
        let mut part = Vec::with_capacity(NAMES_IN_PART);
        for (name, id) in entries.into_iter().flatten() {
            if self.archive.tree.entries(*id).is_some() {
                below.push_back((name.clone(), Some(*id)));
            }
            part.push(self.load(path, name, *id)?);
            if part.len() == NAMES_IN_PART {
                sink.take(&reading, &directory, std::mem::take(&mut part))?;
            }
        }
        let nodes = self.rules.table.directory(path);
        if nodes.is_some() {
            seen.insert(path.to_vec());
        }
        for (name, node) in nodes.into_iter().flatten() {
            if entries.is_some_and(|entries| entries.contains_key(name)) {
                continue;
            }
            if node.kind == TableKind::Directory {
                below.push_back((name.clone(), None));
            }
            part.push(self.rules.made(path, name, node)?);
            if part.len() == NAMES_IN_PART {
                sink.take(&reading, &directory, std::mem::take(&mut part))?;
            }
        }
        if !part.is_empty() {
            sink.take(&reading, &directory, part)?;
        }
        sink.finish_directory()?;
        Ok(below)
    }

    fn load(&self, path: &[u8], name: &[u8], id: NodeId) -> Result<Entry, SourceError> {
        let node = self.archive.tree.node(id);
        let kind = match &node.kind {
            NodeKind::Directory(_) => Kind::Directory,
            NodeKind::SymbolicLink(target) => Kind::SymbolicLink(target.clone()),
            NodeKind::CharacterDevice(major, minor) => Kind::CharacterDevice(*major, *minor),
            NodeKind::BlockDevice(major, minor) => Kind::BlockDevice(*major, *minor),
            NodeKind::Fifo => Kind::Fifo,
            NodeKind::Regular { size, ranges } => Kind::Regular(match ranges.as_slice() {
                [] if *size == 0 => Content::Loaded(Vec::new()),
                [whole] if whole.length == *size && *size <= LOADED_FILE_BYTES && node.names == 1 => {
                    let path = join(path, name);
                    Content::Loaded(self.archive.kept_bytes(
                        &path,
                        whole.kept_at,
                        *size,
                        self.sector_bytes,
                    )?)
                }
                _ => Content::Unread,
            }),
        };
        let mut entry = self.archive.entry(name, id, kind, self.rules);
        self.rules.apply(path, &mut entry)?;
        Ok(entry)
    }
}

impl FileBytes for ArchiveReading<'_> {
    fn pieces<'a>(&'a self, directory: &SourceDirectory, entry: &Entry) -> Result<Pieces<'a>, SourceError> {
        let path = join(&directory.path, &entry.name);
        let id = usize::try_from(entry.seen.identity.1).map(NodeId);
        let Some(NodeKind::Regular { ranges, .. }) = id.ok().map(|id| &self.archive.tree.node(id).kind)
        else {
            return Err(SourceError::changed(&path));
        };
        let pieces = ranges.iter().flat_map(|range| {
            let begins = (0..range.length).step_by(PIECE_BYTES);
            begins.map(|begin| (range.offset + begin, range.kept_at + begin, range.length - begin))
        });
        Ok(Box::new(pieces.map(move |(offset, kept_at, left)| {
            let length = left.min(PIECE_BYTES as u64);
            Ok((offset, self.archive.kept_bytes(&path, kept_at, length, self.sector_bytes)?))
        })))
    }
}
