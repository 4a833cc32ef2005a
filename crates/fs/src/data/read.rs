//! Reading: what is not flushed yet, then extents, all of a request in one batch, every sector verified.

use vlinder_base::parallel;
use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, decompress};
use vlinder_extent_state::ByteRange;
use vlinder_format::RootId;
use vlinder_format::file_extent::{CompressionId, ExtentRange};
use vlinder_format::inode::InodeFlags;
use vlinder_volume::ReadRequest;

use super::checksums::{Expected, Lookup};
use super::error::{DataError, DataFault};
use super::extent::{Content, Extent};
use super::fetch::{Fetch, Fetches};
use super::open_cache::{Decoded, OpenCache};
use super::read_ahead::Held;
use super::write::whole_sectors;
use crate::inode::{Inode, InodeId};
use crate::{Filesystem, Result};

/// Items looked at for one part of a request; what they do not cover is read in further parts.
const MOST_ITEMS: usize = 4096;

/// Reads the bytes of a file from `offset` on into `target`, and gives how many: fewer than asked for only at the end of
/// the file. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// What the trees met, or a [`DataError`] for the first part of the file that no copy has.
pub fn read(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<usize> {
    let size = inode.size();
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let length = target.len().min(left);
    if inode.flags().has(InodeFlags::VERITY) {
        super::verity::read_verified(filesystem, inode, cache, offset, &mut target[..length])?;
    } else {
        read_whole(filesystem, inode, cache, offset, &mut target[..length])?;
    }
    Ok(length)
}

/// As [`read`], without a look at the size: what lies behind the end of the file is zeros, or what preallocation and
/// partial sectors hold there.
pub(crate) fn read_whole(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<()> {
    let reader = Reader { filesystem, inode, cache, base: offset };
    match reader.read_while_nothing_changes(target) {
        Some(result) => result,
        None => reader.read_locked(target),
    }
}

struct Reader<'a> {
    filesystem: &'a Filesystem,
    inode: &'a Inode,
    cache: &'a OpenCache,
    /// Offset of the first byte asked for, for errors.
    base: u64,
}

/// A part of the answer that comes from a device.
pub(super) struct Piece<'t> {
    pub(super) range: ByteRange,
    pub(super) target: &'t mut [u8],
    pub(super) extent: Extent,
    pub(super) on_disk: ExtentRange,
}

/// Whether bytes that follow those asked for may be read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    Allowed,
    Never,
}

impl Reader<'_> {
    /// Reads without a lock; none if extents were entered into the file meanwhile, or are being entered: then items may have
    /// been looked up in the middle of that, and what they referred to may be another file's by the time it was read.
    fn read_while_nothing_changes(&self, target: &mut [u8]) -> Option<Result<()>> {
        let version = self.inode.data.version();
        let gaps = self.inode.data.unflushed().copy_to(self.base, target);
        if gaps.is_empty() {
            return Some(Ok(()));
        }
        version?;
        let result = self.read_gaps(gaps, target, Ahead::Allowed);
        (self.inode.data.version() == version).then_some(result)
    }

    /// Reads with the range locked.
    fn read_locked(&self, target: &mut [u8]) -> Result<()> {
        let write_back = &self.filesystem.shared().write_back;
        write_back.metrics.locked_reads.increment();
        let range = ByteRange::with_length(self.base, target.len() as u64).unwrap_or_default();
        let sectors = whole_sectors(self.filesystem, range);
        let _range = self.inode.data.lock_range(write_back, self.id(), sectors)?;
        let gaps = self.inode.data.unflushed().copy_to(self.base, target);
        self.read_gaps(gaps, target, Ahead::Never)
    }

    /// Reads the ranges that are on disk into their places in `target`.
    fn read_gaps(&self, gaps: Vec<ByteRange>, target: &mut [u8], ahead: Ahead) -> Result<()> {
        for gap in gaps {
            let place = &mut target[to_index(self.base, gap.start())..to_index(self.base, gap.end())];
            match ahead {
                Ahead::Allowed => self.read_gap(gap, place)?,
                Ahead::Never => self.read_range(gap, place)?,
            }
        }
        Ok(())
    }

    /// Reads a range that is on disk as a whole, from what was read ahead or with what follows.
    fn read_gap(&self, gap: ByteRange, target: &mut [u8]) -> Result<()> {
        match self.inode.data.version() {
            Some(version) if self.may_read_ahead() => {
                let planned = {
                    let mut ahead = self.cache.ahead.lock();
                    if ahead.copy(version, gap, target) {
                        return Ok(());
                    }
                    ahead.plan(gap, self.inode.size()).map(|range| (range, ahead.take_held()))
                };
                let budget = &self.filesystem.shared().read_ahead;
                let held =
                    planned.and_then(|(range, used)| Some((range, Held::new(version, range, budget, used)?)));
                match held {
                    Some((range, held)) => self.read_with_more(gap, target, range, held),
                    None => self.read_range(gap, target),
                }
            }
            _ => self.read_range(gap, target),
        }
    }

    /// Nothing of the file may be unflushed: what the coming bytes replace may be another file's by the time it is read.
    fn may_read_ahead(&self) -> bool {
        let salvages = self.filesystem.engine().options().rescue.leniency.salvages;
        !salvages && self.filesystem.shared().write_back.caches_seeks() && self.inode.data.may_be_forgotten()
    }

    /// Reads a range and more into `held`. What follows and can't be read is nobody's concern yet.
    fn read_with_more(
        &self,
        gap: ByteRange,
        target: &mut [u8],
        range: ByteRange,
        mut held: Held,
    ) -> Result<()> {
        if self.read_range(range, held.bytes_mut()).is_err() {
            self.cache.ahead.lock().give_up();
            return self.read_range(gap, target);
        }
        target.copy_from_slice(&held.bytes_mut()[..target.len()]);
        self.filesystem.shared().write_back.metrics.read_ahead.increment();
        self.cache.ahead.lock().keep(held);
        Ok(())
    }

    /// Reads a range of the items.
    fn read_range(&self, gap: ByteRange, mut target: &mut [u8]) -> Result<()> {
        let mut at = gap.start();
        while let Some(rest) = ByteRange::new(at, gap.end()).filter(|rest| !rest.is_empty()) {
            let (extents, end) = self.items(rest)?;
            let (now, later) = std::mem::take(&mut target).split_at_mut(to_index(at, end));
            let part = ByteRange::new(at, end).unwrap_or_default();
            self.read_items(part, now, extents)?;
            target = later;
            at = end;
        }
        Ok(())
    }

    /// The items of a range, not many more than [`MOST_ITEMS`], and up to where they are all.
    fn items(&self, range: ByteRange) -> Result<(Vec<Extent>, u64)> {
        let sector_size = u64::from(self.filesystem.sector_size());
        let mut extents = Vec::new();
        let mut at = range.start();
        while at < range.end() && extents.len() < MOST_ITEMS {
            let wanted = usize::try_from((range.end() - at) / sector_size).unwrap_or(usize::MAX);
            let window = self.cache.window(self.filesystem, self.inode, at, wanted)?;
            let inside = window.extents_from(at, sector_size);
            extents.extend(inside.iter().take_while(|extent| extent.offset < range.end()).cloned());
            at = window.complete_to;
        }
        Ok((extents, at.min(range.end())))
    }

    /// Fills `target`, which is `part` of the file, from these items.
    fn read_items(&self, part: ByteRange, target: &mut [u8], extents: Vec<Extent>) -> Result<()> {
        let sector_size = u64::from(self.filesystem.sector_size());
        let mut pieces = Vec::new();
        let mut rest = target;
        let mut at = part.start();
        for extent in extents {
            let Some(run) = extent.file_range(sector_size).intersection(part) else { continue };
            // Overlapping items are damage that only a check tells; here the first one counts.
            let Some(run) = ByteRange::new(run.start().max(at), run.end()).filter(|run| !run.is_empty())
            else {
                continue;
            };
            let (hole, behind) = rest.split_at_mut(to_index(at, run.start()));
            hole.fill(0);
            let (now, behind) = behind.split_at_mut(to_index(run.start(), run.end()));
            rest = behind;
            at = run.end();
            let on_disk = match &extent.content {
                Content::Inline(bytes) => {
                    self.copy_inline(&extent, bytes, run, now)?;
                    None
                }
                Content::Regular(range) if !range.is_hole() => Some(*range),
                Content::Regular(_) | Content::Preallocated(_) => {
                    now.fill(0);
                    None
                }
            };
            if let Some(on_disk) = on_disk {
                pieces.push(Piece { range: run, target: now, extent, on_disk });
            }
        }
        rest.fill(0);
        if pieces.is_empty() { Ok(()) } else { self.read_pieces(pieces) }
    }

    fn copy_inline(&self, extent: &Extent, bytes: &[u8], run: ByteRange, target: &mut [u8]) -> Result<()> {
        let mut decoded = Vec::new();
        let bytes = if extent.compression == CompressionId::NONE {
            bytes
        } else {
            decoded.resize(usize::try_from(extent.ram_bytes).unwrap_or(0), 0);
            self.decode(extent, bytes, &mut decoded)?;
            &decoded
        };
        let start = to_index(extent.offset, run.start()).min(bytes.len());
        let found = &bytes[start..(start + target.len()).min(bytes.len())];
        target[..found.len()].copy_from_slice(found);
        target[found.len()..].fill(0);
        Ok(())
    }

    /// Reads all pieces in one batch.
    fn read_pieces(&self, mut pieces: Vec<Piece<'_>>) -> Result<()> {
        self.serve_from_cache(&mut pieces);
        if pieces.is_empty() {
            return Ok(());
        }
        let volume = self.filesystem.engine().volume();
        let fetches = Fetches::plan(&pieces, u64::from(self.filesystem.sector_size()), volume);
        let bytes = self.fetch(&fetches.all)?;
        self.deliver(pieces, &fetches.places, &bytes)
    }

    /// Answers the pieces that lie in the extent decoded last, and removes them from the list.
    fn serve_from_cache(&self, pieces: &mut Vec<Piece<'_>>) {
        pieces.retain_mut(|piece| {
            if piece.extent.compression == CompressionId::NONE {
                return true;
            }
            let Some(bytes) = self.cache.decoded(piece.on_disk.address, piece.extent.generation) else {
                return true;
            };
            !copy_decoded(piece, &bytes)
        });
    }

    /// Reads from the devices, verified sector by sector.
    fn fetch(&self, fetches: &[Fetch]) -> Result<Vec<Vec<u8>>> {
        let expected = self.expected(fetches)?;
        let requests: Vec<ReadRequest> = fetches
            .iter()
            .map(|fetch| ReadRequest {
                logical: fetch.start,
                length: usize::try_from(fetch.length).unwrap_or(0),
            })
            .collect();
        let volume = self.filesystem.engine().volume();
        let results = volume.submit_reads(&requests).wait_data(&mut |request, sector, bytes| {
            let expected = expected.get(request).and_then(Option::as_ref);
            expected.is_none_or(|expected| expected.is_good(sector, bytes))
        });
        let mut all = Vec::with_capacity(results.len());
        for (result, fetch) in results.into_iter().zip(fetches) {
            match result {
                Ok(verified) => all.push(verified.value),
                Err(error) => return Err(self.fetch_error(fetch, error.into()).into()),
            }
        }
        Ok(all)
    }

    /// The checksums that belong to each part of what is fetched; none for what is not to be verified.
    fn expected(&self, fetches: &[Fetch]) -> Result<Vec<Option<Expected>>> {
        let engine = self.filesystem.engine();
        let ignored = self.filesystem.options().rescue.ignores_data_checksums;
        if ignored || self.inode.flags().has(InodeFlags::NODATASUM) {
            return Ok(Vec::new());
        }
        let salvages = engine.options().rescue.leniency.salvages;
        // As on Linux, a checksum tree that rescue= does without verifies nothing.
        if engine.is_bad_root(RootId::CHECKSUM_TREE) {
            fetches.iter().for_each(|fetch| self.cache.note_unverified(fetch.length));
            return Ok(Vec::new());
        }
        let lookup = Lookup::new(engine)?;
        let mut all = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            let expected = match lookup.expected(fetch.start, fetch.length) {
                Ok(Ok(expected)) => Some(expected),
                _ if salvages => {
                    self.cache.note_unverified(fetch.length);
                    None
                }
                Ok(Err(fault)) => return Err(self.fetch_error(fetch, fault).into()),
                Err(error) => return Err(error),
            };
            all.push(expected);
        }
        Ok(all)
    }

    /// Copies and decodes what was read to its places, on several cores where there is much to decode.
    fn deliver(&self, pieces: Vec<Piece<'_>>, places: &[(usize, usize)], bytes: &[Vec<u8>]) -> Result<()> {
        let last_compressed =
            pieces.iter().rposition(|piece| piece.extent.compression != CompressionId::NONE);
        let mut to_decode = Vec::new();
        for (number, piece) in pieces.into_iter().enumerate() {
            let (fetch, start) = places[number];
            if piece.extent.compression != CompressionId::NONE {
                to_decode.push((piece, fetch, Some(number) == last_compressed));
                continue;
            }
            let length = piece.target.len();
            piece.target.copy_from_slice(&bytes[fetch][start..start + length]);
        }
        parallel::map_vec(to_decode, |(piece, fetch, keep)| self.deliver_decoded(piece, &bytes[fetch], keep))
            .into_iter()
            .collect()
    }

    /// Decodes an extent into the answer: straight, if the answer has all of what is shown of it, else by way of the
    /// cache, for the reads that will go on from there.
    fn deliver_decoded(&self, mut piece: Piece<'_>, compressed: &[u8], keep: bool) -> Result<()> {
        let run = piece.on_disk.file_bytes;
        let from_start = piece.on_disk.offset_bytes == 0 && piece.range.start() == piece.extent.offset;
        if from_start && piece.range.length_bytes() == run {
            let (extent, target) = (&piece.extent, &mut *piece.target);
            return self.decode(extent, compressed, target);
        }
        let mut bytes = vec![0; usize::try_from(piece.extent.ram_bytes).unwrap_or(0)];
        self.decode(&piece.extent, compressed, &mut bytes)?;
        let bytes = Arc::new(bytes);
        copy_decoded(&mut piece, &bytes);
        if keep {
            let (address, generation) = (piece.on_disk.address, piece.extent.generation);
            self.cache.keep_decoded(Decoded { address, generation, bytes });
        }
        Ok(())
    }

    fn decode(&self, extent: &Extent, compressed: &[u8], target: &mut [u8]) -> Result<()> {
        let sector_bytes = self.filesystem.sector_size() as usize;
        let method = extent.compression.0;
        let compression = Compression::from_disk(method)
            .ok_or_else(|| self.error(extent.offset, DataFault::UnknownCompression { method }))?;
        decompress(compression, compressed, target, sector_bytes)
            .map(|_| ())
            .map_err(|error| self.error(extent.offset, error.into()).into())
    }

    fn fetch_error(&self, fetch: &Fetch, fault: DataFault) -> DataError {
        self.error(fetch.offset_of(&fault), fault)
    }

    fn error(&self, offset: u64, fault: DataFault) -> DataError {
        DataError { inode: self.id(), offset: offset.max(self.base), fault }
    }

    fn id(&self) -> InodeId {
        self.inode.id()
    }
}

/// Copies a piece out of its decoded extent; false if it is not all there.
fn copy_decoded(piece: &mut Piece<'_>, bytes: &[u8]) -> bool {
    let start = piece.on_disk.offset_bytes + (piece.range.start() - piece.extent.offset);
    let Some(found) =
        usize::try_from(start).ok().and_then(|start| bytes.get(start..start + piece.target.len()))
    else {
        return false;
    };
    piece.target.copy_from_slice(found);
    true
}

/// From an offset to a later one inside the same buffer.
fn to_index(from: u64, to: u64) -> usize {
    (to - from) as usize
}
