//! Where the content of a file goes, with all that is asked on the way.

use std::io::Write;

use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_data::{Content, ContentSource, Extent};
use vlinder_extent_state::ByteRange;
use vlinder_forest::ExtentUser;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::{Generation, Logical, ObjectId, RootId, Uuid};

use super::clones::{CloneSearch, Next};
use crate::send::pipeline::{Form, MAX_COMPRESSED_BYTES, Output, Piece, RawBytes, max_write_bytes};
use crate::send::{Namespace, SendError, SendOptions, TreeNames};
use crate::wire::{Command, Protocol};

/// Commands that one piece of a large extent becomes: about a mebibyte.
const WRITES_OF_A_PIECE: u64 = 8;

/// The stream, and what is asked for each piece of a file.
pub(crate) struct Outlet<'o, 'a, W> {
    pub source: &'o ContentSource<'a>,
    pub clones: &'o mut CloneSearch<'a>,
    pub namespace: &'o mut Namespace<'a, TreeNames<'a>>,
    pub own: RootId,
    /// The UUID and the transaction of the subvolume that is sent.
    pub own_uuid: (Uuid, Generation),
    pub new: &'a TreeNames<'a>,
    pub options: SendOptions<'a>,
    pub output: &'o mut Output<'a, W>,
}

/// A file that gets bytes.
#[derive(Clone, Copy)]
pub(super) struct Target<'p> {
    pub path: &'p Arc<[u8]>,
    pub inode: ObjectId,
    /// Where its bytes end in the new state.
    pub size: u64,
    /// Where the receiver's file ends by now.
    pub receiver_size: u64,
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
        let mut write = |outlet: &mut Self, at, length| outlet.write(target, extent, at, length);
        self.send_or(target, extent, range, &mut write).map(drop)
    }

    /// Has the receiver clone a range of an extent, and does something else with the parts that it does not
    /// have. That gives how much of a part it did. Gives where the last clone ends, or 0.
    pub(super) fn send_or(
        &mut self,
        target: Target<'_>,
        extent: &Extent,
        range: ByteRange,
        otherwise: &mut dyn FnMut(&mut Self, u64, u64) -> Result<u64, SendError>,
    ) -> Result<u64, SendError> {
        let (mut at, mut cloned_to) = (range.start(), 0);
        while at < range.end() {
            let left = range.end() - at;
            let length = match extent.range().filter(|on_disk| !on_disk.is_hole()) {
                None => otherwise(self, at, left)?,
                Some(on_disk) => {
                    let start = on_disk.offset_bytes.saturating_add(at - extent.offset);
                    let next = self.clones.next(on_disk.address, start, left, (target.inode, at))?;
                    let sent = match next {
                        Next::Write(length) => otherwise(self, at, length)?,
                        Next::Clone(user, length) => match self.clone_from(target, user, at, length)? {
                            0 => otherwise(self, at, length)?,
                            cloned => {
                                cloned_to = at.saturating_add(cloned);
                                cloned
                            }
                        },
                    };
                    let run = ExtentUser {
                        root: self.own,
                        inode: target.inode,
                        file_offset: at,
                        extent_offset: start,
                        length_bytes: sent,
                        compressed: extent.compression != CompressionId::NONE,
                    };
                    self.clones.note_sent(on_disk.address, run);
                    sent
                }
            };
            at = at.saturating_add(length);
        }
        Ok(cloned_to)
    }

    /// Sends bytes that are nowhere at the receiver.
    fn write(
        &mut self,
        target: Target<'_>,
        extent: &Extent,
        start: u64,
        length: u64,
    ) -> Result<u64, SendError> {
        if self.options.no_data {
            self.name_range(target.path, ByteRange::with_length(start, length).unwrap_or_default())?;
            return Ok(length);
        }
        if let Some(piece) = self.encoded(target, extent, start, length) {
            self.output.send(piece)?;
            return Ok(length);
        }
        let mut at = start;
        let end = start.saturating_add(length);
        let most = max_write_bytes(self.output.protocol()).saturating_mul(WRITES_OF_A_PIECE);
        while at < end {
            let part_end = end.min(at.saturating_add(most));
            self.output.send(plain(target, extent, at, part_end - at)?)?;
            at = part_end;
        }
        Ok(length)
    }

    /// A part of a compressed extent as it is stored, if that is asked for, is no more than the bytes that it
    /// shows, and is something that the receiver's kernel takes (`btrfs_do_encoded_write`).
    fn encoded(&self, target: Target<'_>, extent: &Extent, start: u64, length: u64) -> Option<Piece> {
        let is_asked_for = self.options.compressed_data && self.output.protocol() >= Protocol::V2;
        if !is_asked_for || extent.compression == CompressionId::NONE || !target.has_checksums {
            return None;
        }
        let sector_bytes = u64::from(self.source.sector_bytes);
        let compression = encoded_compression(extent.compression, self.source.sector_bytes)?;
        let inside = start.checked_sub(extent.offset)?;
        let (raw, stored_bytes, skip) = match &extent.content {
            Content::Inline(stored) => (RawBytes::Item(stored.clone()), stored.len() as u64, inside),
            Content::Regular(on_disk) => {
                let (start, length) = (on_disk.address, on_disk.disk_bytes);
                let raw = RawBytes::Disk { start, length, has_checksums: true };
                (raw, length, on_disk.offset_bytes.checked_add(inside)?)
            }
            Content::Preallocated(_) => return None,
        };
        let end = start.checked_add(length)?;
        let decompressed_bytes = extent.ram_bytes;
        let is_shown = skip.checked_add(length).is_some_and(|end| end <= decompressed_bytes);
        let is_aligned = [start, skip].iter().all(|at| at.is_multiple_of(sector_bytes))
            && (end.is_multiple_of(sector_bytes)
                || end >= target.size && target.receiver_size <= target.size);
        let is_small = decompressed_bytes <= MAX_COMPRESSED_BYTES && stored_bytes <= MAX_COMPRESSED_BYTES;
        if !is_shown || !is_aligned || !is_small || stored_bytes == 0 || stored_bytes > length {
            return None;
        }
        let form = Form::Encoded { compression, decompressed_bytes, skip };
        Some(Piece { path: Arc::clone(target.path), offset: start, length, raw, form })
    }

    /// Whether the stream has commands for holes and preallocated ranges.
    pub fn has_holes(&self) -> bool {
        self.output.protocol() >= Protocol::V2
    }

    /// Makes a hole, or reserves space.
    pub fn fallocate(
        &mut self,
        path: &Arc<[u8]>,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<(), SendError> {
        self.output.put(&Command::Fallocate { path, mode, offset, length })
    }

    /// Names a range without its bytes.
    pub fn name_range(&mut self, path: &Arc<[u8]>, range: ByteRange) -> Result<(), SendError> {
        let (offset, length) = (range.start(), range.length_bytes());
        self.output.put(&Command::UpdateExtent { path, offset, length })
    }

    /// Writes zeros.
    pub fn write_zeros(&mut self, path: &Arc<[u8]>, range: ByteRange) -> Result<(), SendError> {
        let most = max_write_bytes(self.output.protocol());
        let mut at = range.start();
        while at < range.end() {
            let length = (range.end() - at).min(most);
            let (raw, form) = (RawBytes::Item(Vec::new()), Form::Plain { skip: 0 });
            self.output.send(Piece { path: Arc::clone(path), offset: at, length, raw, form })?;
            at += length;
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
        // A file that is being sent has at the receiver what was sent of it; reserving does not move its end.
        let is_own = user.root == self.own && user.inode == target.inode;
        let source_size = if is_own { target.receiver_size } else { item.size_bytes };
        let there = source_size.saturating_sub(user.file_offset);
        let is_end = there <= length
            && offset.saturating_add(there) == target.size
            && target.receiver_size <= target.size;
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

/// The piece that sends bytes of an extent as they read.
fn plain(target: Target<'_>, extent: &Extent, start: u64, length: u64) -> Result<Piece, SendError> {
    let inside = start.saturating_sub(extent.offset);
    let is_compressed = extent.compression != CompressionId::NONE;
    let form = |skip| match is_compressed {
        false => Form::Plain { skip },
        true => {
            let (compression, decompressed_bytes) = (extent.compression, extent.ram_bytes);
            Form::Compressed { compression, decompressed_bytes, skip }
        }
    };
    let has_checksums = target.has_checksums;
    let (raw, form) = match &extent.content {
        Content::Inline(stored) => (RawBytes::Item(stored.clone()), form(inside)),
        Content::Regular(on_disk) if is_compressed => {
            let (address, length) = (on_disk.address, on_disk.disk_bytes);
            if length > MAX_COMPRESSED_BYTES {
                return Err(SendError::CompressedTooLong { start: address, bytes: length });
            }
            let raw = RawBytes::Disk { start: address, length, has_checksums };
            (raw, form(on_disk.offset_bytes.saturating_add(inside)))
        }
        Content::Regular(on_disk) => {
            let first = on_disk.address.0.saturating_add(on_disk.offset_bytes).saturating_add(inside);
            (RawBytes::Disk { start: Logical(first), length, has_checksums }, form(0))
        }
        Content::Preallocated(_) => (RawBytes::Item(Vec::new()), Form::Plain { skip: 0 }),
    };
    Ok(Piece { path: Arc::clone(target.path), offset: start, length, raw, form })
}

/// `BTRFS_ENCODED_IO_COMPRESSION_…`; LZO is divided as the sectors are. None for what has no number.
fn encoded_compression(compression: CompressionId, sector_bytes: u32) -> Option<u32> {
    match Compression::from_disk(compression.0)? {
        Compression::Zlib => Some(1),
        Compression::Zstd => Some(2),
        Compression::Lzo => {
            let shift = sector_bytes.checked_ilog2()?.checked_sub(12)?;
            (shift <= 4).then_some(3 + shift)
        }
    }
}
