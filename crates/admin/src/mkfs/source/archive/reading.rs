//! Reading an archive, from its first entry to its end.

use std::path::Path;

use vlinder_base::clock::Timestamp;
use vlinder_base::sync::atomic::AtomicBool;

use super::extended::Extended;
use super::fault::ArchiveFault;
use super::header::{Header, text};
use super::input::{BLOCK_BYTES, Input, padding};
use super::sparse::SparseMap;
use super::tree::{ArchiveTree, KeptRange, Node, NodeKind};

/// Bytes of the longest PAX header that is taken. Linux knows attributes of 64 KiB, and 64 KiB of names.
const MAX_RECORDS_BYTES: u64 = 16 << 20;
/// Bytes of all PAX headers that are for every entry behind them, and are copied for each: they hold a
/// comment or an owner.
const MAX_GLOBAL_BYTES: u64 = 256 << 10;
/// Bytes of the longest name of a file, with what is above it.
const MAX_PATH_BYTES: u64 = 64 << 10;

/// What an archive was found to hold, and how it was read.
pub(super) struct Unpacked<'a> {
    pub(super) tree: ArchiveTree,
    pub(super) input: Input<'a>,
    /// It has the block of zeros that ends an archive.
    pub(super) has_end: bool,
    /// Entries with an ACL as text, which is left out.
    pub(super) text_acls: u64,
}

/// Reads the archive at a path.
///
/// # Errors
/// What is wrong, and the byte of the unpacked archive up to which it was read.
pub(super) fn read<'a>(
    path: &Path,
    present: Timestamp,
    interrupted: &'a AtomicBool,
) -> Result<Unpacked<'a>, (ArchiveFault, u64)> {
    let input = Input::open(path, interrupted).map_err(|fault| (fault, 0))?;
    let mut unpacked = Unpacked { tree: ArchiveTree::new(present), input, has_end: false, text_acls: 0 };
    match unpacked.read() {
        Ok(()) => Ok(unpacked),
        // A file of another kind has no header at its beginning.
        Err(ArchiveFault::Damaged) if unpacked.input.position() <= BLOCK_BYTES as u64 => {
            Err((ArchiveFault::NoArchive, 0))
        }
        Err(ArchiveFault::Incomplete) if unpacked.input.position() == 0 => Err((ArchiveFault::NoArchive, 0)),
        Err(fault) => Err((fault, unpacked.input.position())),
    }
}

impl Unpacked<'_> {
    fn read(&mut self) -> Result<(), ArchiveFault> {
        let mut global = Extended::default();
        let mut global_bytes = 0_u64;
        let mut next: Option<Extended> = None;
        // A file that ends without blocks of zeros is as complete as GNU tar takes it, which is told.
        while let Some(block) = self.input.block()? {
            let Some(header) = Header::decode(&block)? else {
                self.has_end = true;
                return self.input.finish();
            };
            match header.kind {
                b'g' => {
                    let most = MAX_GLOBAL_BYTES.saturating_sub(global_bytes);
                    let records = self.input.content(header.size, most)?;
                    global_bytes += header.size;
                    global.read(&records)?;
                }
                b'x' | b'X' => {
                    let records = self.input.content(header.size, MAX_RECORDS_BYTES)?;
                    next.get_or_insert_with(|| global.clone()).read(&records)?;
                }
                b'L' | b'K' => {
                    let name = self.input.content(header.size, MAX_PATH_BYTES + 1)?;
                    let name = Some(text(&name).to_vec());
                    let extended = next.get_or_insert_with(|| global.clone());
                    *(if header.kind == b'L' { &mut extended.path } else { &mut extended.link }) = name;
                }
                // The name of the archive, and Solaris's ACLs and attributes of the next file.
                b'V' | b'N' | b'A' | b'E' => {
                    self.text_acls += u64::from(header.kind == b'A');
                    self.input.take(header.size.saturating_add(padding(header.size)))?;
                }
                _ => {
                    let extended = next.take().unwrap_or_else(|| global.clone());
                    self.entry(&block, header, extended)?;
                }
            }
        }
        // Nothing is what a program writes that fails.
        if self.input.position() == 0 { Err(ArchiveFault::NoArchive) } else { Ok(()) }
    }

    fn entry(
        &mut self,
        block: &[u8; BLOCK_BYTES],
        header: Header,
        extended: Extended,
    ) -> Result<(), ArchiveFault> {
        let path = extended.sparse.name.as_ref().or(extended.path.as_ref()).unwrap_or(&header.path).clone();
        let link = extended.link.as_ref().unwrap_or(&header.link).clone();
        for name in [&path, &link] {
            if name.len() as u64 > MAX_PATH_BYTES {
                return Err(ArchiveFault::TooLong { found: name.len() as u64, most: MAX_PATH_BYTES });
            }
        }
        self.text_acls += u64::from(extended.has_text_acl);
        let size = extended.size.unwrap_or(header.size);
        let kind = match header.kind {
            // Before POSIX a directory was told by its name.
            0 | b'0' | b'7' if path.ends_with(b"/") => self.without_content(size, directory())?,
            0 | b'0' | b'7' => self.regular(size, &path, &extended)?,
            b'S' => {
                let map = SparseMap::of_header(block, &path, &mut self.input)?;
                self.kept(size, map, &path)?
            }
            // A size that stands here is that of the file it leads to; no bytes follow.
            b'1' => return self.tree.link(&path, &link),
            b'2' => NodeKind::SymbolicLink(link),
            b'3' => {
                self.without_content(size, NodeKind::CharacterDevice(header.device.0, header.device.1))?
            }
            b'4' => self.without_content(size, NodeKind::BlockDevice(header.device.0, header.device.1))?,
            // GNU tar's, with a list of names as its content.
            b'5' | b'D' => self.without_content(size, directory())?,
            b'6' => self.without_content(size, NodeKind::Fifo)?,
            kind => return Err(ArchiveFault::UnknownType { path, kind: kind.into() }),
        };
        let modification_time = extended.modified.unwrap_or(Timestamp::new(header.modified, 0));
        let permissions = if matches!(kind, NodeKind::SymbolicLink(_)) { 0o777 } else { header.permissions };
        let node = Node {
            kind,
            permissions,
            user: extended.user.unwrap_or(header.user),
            group: extended.group.unwrap_or(header.group),
            access_time: extended.accessed.unwrap_or(modification_time),
            modification_time,
            attributes: extended.attributes,
            names: 1,
        };
        self.tree.put(&path, node)
    }

    /// Passes over bytes that mean nothing.
    fn without_content(&mut self, size: u64, kind: NodeKind) -> Result<NodeKind, ArchiveFault> {
        self.input.take(size.saturating_add(padding(size)))?;
        Ok(kind)
    }

    fn regular(&mut self, stored: u64, path: &[u8], extended: &Extended) -> Result<NodeKind, ArchiveFault> {
        let sparse = &extended.sparse;
        let fail = || ArchiveFault::SparseMap { path: path.to_vec() };
        if !sparse.is_there() {
            let map = SparseMap { ranges: vec![(0, stored)], size: stored };
            return self.kept(stored, map, path);
        }
        let size = sparse.real_size.ok_or_else(fail)?;
        if !sparse.map_before_data {
            return self.kept(stored, SparseMap { ranges: sparse.map.clone(), size }, path);
        }
        let (map, map_bytes) = SparseMap::before_data(size, stored, path, &mut self.input)?;
        let stored = stored.checked_sub(map_bytes).ok_or_else(fail)?;
        self.kept(stored, map, path)
    }

    /// Keeps the bytes of a file.
    fn kept(&mut self, stored: u64, map: SparseMap, path: &[u8]) -> Result<NodeKind, ArchiveFault> {
        map.check(stored, path)?;
        let mut kept_at = self.input.keep(stored)?;
        self.input.take(padding(stored))?;
        let mut ranges = Vec::new();
        for (offset, length) in map.ranges.into_iter().filter(|(_, length)| *length > 0) {
            ranges.push(KeptRange { offset, length, kept_at });
            kept_at += length;
        }
        Ok(NodeKind::Regular { size: map.size, ranges })
    }
}

fn directory() -> NodeKind {
    NodeKind::Directory(std::collections::BTreeMap::new())
}
