//! Where the content of a file goes, with all that is asked on the way.

use std::io::Write;

use vlinder_data::Extent;
use vlinder_extent_state::ByteRange;
use vlinder_forest::ExtentUser;
use vlinder_format::{Generation, ObjectId, RootId, Uuid};

use super::clones::{CloneSearch, Next};
use super::source::ContentSource;
use crate::send::{Namespace, SendError, TreeNames};
use crate::wire::{Command, Protocol, StreamWriter};

/// Bytes that are read together.
pub(super) const MAX_READ_BYTES: u64 = 1 << 20;

/// The stream, and what is asked for each piece of a file.
pub(crate) struct Outlet<'o, 'a, W> {
    pub source: &'o ContentSource<'a>,
    pub clones: &'o mut CloneSearch<'a>,
    pub namespace: &'o mut Namespace<'a, TreeNames<'a>>,
    pub own: RootId,
    /// The UUID and the transaction of the subvolume that is sent.
    pub own_uuid: (Uuid, Generation),
    pub new: &'a TreeNames<'a>,
    pub output: &'o mut StreamWriter<W>,
}

/// A file that gets bytes.
#[derive(Clone, Copy)]
pub(super) struct Target<'p> {
    pub path: &'p [u8],
    pub inode: ObjectId,
    /// Where its bytes end in the new state.
    pub size: u64,
    /// Where they end at the receiver, if more are there.
    pub old_size: u64,
    pub has_checksums: bool,
}

impl<W: Write> Outlet<'_, '_, W> {
    /// Sends the bytes of an extent in a range, which ends with the file's bytes: as clones where the
    /// receiver has them, else as they are.
    pub(super) fn send(
        &mut self,
        target: Target<'_>,
        extent: &Extent,
        range: ByteRange,
    ) -> Result<(), SendError> {
        let mut at = range.start();
        while at < range.end() {
            let left = range.end() - at;
            let length = match extent.range().filter(|on_disk| !on_disk.is_hole()) {
                None => self.write(target, extent, at, left)?,
                Some(on_disk) => {
                    let start = on_disk.offset_bytes.saturating_add(at - extent.offset);
                    match self.clones.next(on_disk.address, start, left, (target.inode, at))? {
                        Next::Write(length) => self.write(target, extent, at, length)?,
                        Next::Clone(user, length) => match self.clone_from(target, user, at, length)? {
                            0 => self.write(target, extent, at, length)?,
                            cloned => cloned,
                        },
                    }
                }
            };
            at = at.saturating_add(length);
        }
        Ok(())
    }

    /// Writes bytes as they are.
    fn write(
        &mut self,
        target: Target<'_>,
        extent: &Extent,
        start: u64,
        length: u64,
    ) -> Result<u64, SendError> {
        let mut at = start;
        let end = start.saturating_add(length);
        while at < end {
            let part_end = end.min(at.saturating_add(MAX_READ_BYTES));
            let part = ByteRange::new(at, part_end).unwrap_or_default();
            let bytes = self.source.read(extent, part, target.has_checksums)?;
            self.put(target.path, at, &bytes)?;
            at = part_end;
        }
        Ok(length)
    }

    /// Puts bytes into as many commands as they take.
    pub fn put(&mut self, path: &[u8], offset: u64, bytes: &[u8]) -> Result<(), SendError> {
        let mut offset = offset;
        for data in bytes.chunks(max_write_bytes(self.output.protocol())) {
            self.output.put(&Command::Write { path, offset, data })?;
            offset += data.len() as u64;
        }
        Ok(())
    }

    /// Clones from a file; gives how many bytes, none if the receiver's kernel would refuse. A clone goes in
    /// whole sectors, but up to the ends of both files.
    fn clone_from(
        &mut self,
        target: Target<'_>,
        user: ExtentUser,
        offset: u64,
        length: u64,
    ) -> Result<u64, SendError> {
        let other = if user.root == self.own { None } else { self.clones.other(user.root) };
        let names = other.map_or(self.new, |other| &other.names);
        let Some(item) = names.item(user.inode)? else { return Ok(0) };
        let there = item.size_bytes.saturating_sub(user.file_offset);
        let is_end =
            there <= length && offset.saturating_add(there) == target.size && target.old_size <= target.size;
        let sector_bytes = u64::from(self.source.sector_bytes);
        let length = length.min(there);
        let length = if is_end { length } else { length - length % sector_bytes };
        let is_aligned = offset.is_multiple_of(sector_bytes) && user.file_offset.is_multiple_of(sector_bytes);
        if length == 0 || !is_aligned {
            return Ok(0);
        }
        let source_path = match other {
            Some(other) => other.names.path(user.inode)?,
            None => {
                let identity = self.new.facts(user.inode)?.identity;
                self.namespace.path_of_file(identity)?
            }
        };
        let (source_uuid, source_transid) = other.map_or(self.own_uuid, |other| (other.uuid, other.transid));
        self.output.put(&Command::Clone {
            path: target.path,
            offset,
            length,
            source_uuid,
            source_transid,
            source_path: &source_path,
            source_offset: user.file_offset,
        })?;
        Ok(length)
    }
}

/// Bytes of one write: as many as Linux sends.
fn max_write_bytes(protocol: Protocol) -> usize {
    match protocol {
        Protocol::V1 => 48 << 10,
        Protocol::V2 | Protocol::V3 => 128 << 10,
    }
}
