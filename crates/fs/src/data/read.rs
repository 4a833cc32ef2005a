//! Reading: what is not flushed yet, then extents, all of a request in one batch, every sector verified.

use std::collections::HashMap;

use vlinder_base::parallel;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_codec::compress::{Compression, decompress};
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::{CompressionId, ExtentRange};
use vlinder_format::inode::InodeFlags;
use vlinder_format::{Generation, Logical, RootId};
use vlinder_volume::ReadRequest;

use super::checksums::{Expected, Lookup};
use super::error::{DataError, DataFault};
use super::extent::{Content, Extent};
use super::items;
use crate::inode::{Inode, InodeId};
use crate::{Filesystem, Result};

/// Items looked at for one part of a request; what they do not cover is read in further parts.
const MOST_ITEMS: usize = 4096;

/// What an open file remembers for its next read.
#[derive(Debug, Default)]
pub struct ReadCache {
    decoded: Mutex<Option<Decoded>>,
    /// Bytes on disk that were given out unverified because their checksums can't be had.
    unverified_bytes: AtomicU64,
}

/// A compressed extent, decoded. Its space can be taken by another extent only in a later transaction.
#[derive(Clone, Debug)]
struct Decoded {
    address: Logical,
    generation: Generation,
    bytes: Arc<Vec<u8>>,
}

impl ReadCache {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes on disk that were given out although their checksums can't be had, as only a
    /// [`Salvage`](crate::salvage::Salvage) does.
    #[must_use]
    pub fn unverified_bytes(&self) -> u64 {
        self.unverified_bytes.load(Ordering::Relaxed)
    }

    fn get(&self, address: Logical, generation: Generation) -> Option<Arc<Vec<u8>>> {
        let decoded = self.decoded.lock();
        let found =
            decoded.as_ref().filter(|found| found.address == address && found.generation == generation);
        found.map(|found| Arc::clone(&found.bytes))
    }
}

/// Reads the bytes of a file from `offset` on into `target`, and gives how many: fewer than asked for only at the end of
/// the file. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// What the trees met, or a [`DataError`] for the first part of the file that no copy has.
pub fn read(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &ReadCache,
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
    cache: &ReadCache,
    offset: u64,
    target: &mut [u8],
) -> Result<()> {
    let gaps = inode.data.unflushed().copy_to(offset, target);
    let reader = Reader { filesystem, inode, cache, base: offset };
    for gap in gaps {
        let (start, end) = (to_index(offset, gap.start()), to_index(offset, gap.end()));
        reader.read_gap(gap, &mut target[start..end])?;
    }
    Ok(())
}

struct Reader<'a> {
    filesystem: &'a Filesystem,
    inode: &'a Inode,
    cache: &'a ReadCache,
    /// Offset of the first byte asked for, for errors.
    base: u64,
}

/// A part of the answer that comes from a device.
struct Piece<'t> {
    range: ByteRange,
    target: &'t mut [u8],
    extent: Extent,
    on_disk: ExtentRange,
}

/// What the devices are asked for.
struct Fetch {
    start: Logical,
    length: u64,
    /// First byte of the file that depends on it.
    offset: u64,
}

impl Reader<'_> {
    /// Reads a range that is on disk as a whole.
    fn read_gap(&self, gap: ByteRange, mut target: &mut [u8]) -> Result<()> {
        let mut at = gap.start();
        while let Some(rest) = ByteRange::new(at, gap.end()).filter(|rest| !rest.is_empty()) {
            let engine = self.filesystem.engine();
            let tree = self.inode.subvolume().tree();
            let items = items::load(engine, tree, self.inode.number(), rest, MOST_ITEMS)?;
            let end = items.complete_to.max(at + 1).min(gap.end());
            let (now, later) = std::mem::take(&mut target).split_at_mut(to_index(at, end));
            let part = ByteRange::new(at, end).unwrap_or_default();
            self.read_items(part, now, items.extents)?;
            target = later;
            at = end;
        }
        Ok(())
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
        // Several runs may show parts of one compressed extent, which is read once.
        let mut fetches: Vec<Fetch> = Vec::new();
        let mut compressed: HashMap<Logical, usize> = HashMap::new();
        let mut fetch_of = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let fetch = self.fetch_for(piece);
            let is_compressed = piece.extent.compression != CompressionId::NONE;
            let number = match compressed.get(&fetch.start) {
                Some(number) if is_compressed && fetches[*number].length == fetch.length => *number,
                _ => {
                    if is_compressed {
                        compressed.insert(fetch.start, fetches.len());
                    }
                    fetches.push(fetch);
                    fetches.len() - 1
                }
            };
            fetch_of.push(number);
        }
        let bytes = self.fetch(&fetches)?;
        self.deliver(pieces, &fetches, &fetch_of, &bytes)
    }

    /// Answers the pieces that lie in the extent decoded last, and removes them from the list.
    fn serve_from_cache(&self, pieces: &mut Vec<Piece<'_>>) {
        pieces.retain_mut(|piece| {
            if piece.extent.compression == CompressionId::NONE {
                return true;
            }
            let Some(bytes) = self.cache.get(piece.on_disk.address, piece.extent.generation) else {
                return true;
            };
            !copy_decoded(piece, &bytes)
        });
    }

    /// What has to be read for a piece: the sectors that it touches, or a compressed extent as a whole.
    fn fetch_for(&self, piece: &Piece<'_>) -> Fetch {
        let on_disk = &piece.on_disk;
        if piece.extent.compression != CompressionId::NONE {
            return Fetch { start: on_disk.address, length: on_disk.disk_bytes, offset: piece.range.start() };
        }
        let sector_size = u64::from(self.filesystem.sector_size());
        let first = piece.range.start() / sector_size * sector_size;
        // Runs end at sector borders, so rounding up stays inside.
        let end = piece.range.end().div_ceil(sector_size) * sector_size;
        let skipped = on_disk.offset_bytes + (first - piece.extent.offset);
        Fetch { start: Logical(on_disk.address.0 + skipped), length: end - first, offset: first }
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
                Err(error) => return Err(self.error(fetch.offset, error.into()).into()),
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
            fetches.iter().for_each(|fetch| self.note_unverified(fetch));
            return Ok(Vec::new());
        }
        let lookup = Lookup::new(engine)?;
        let mut all = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            let expected = match lookup.expected(fetch.start, fetch.length) {
                Ok(Ok(expected)) => Some(expected),
                _ if salvages => {
                    self.note_unverified(fetch);
                    None
                }
                Ok(Err(fault)) => return Err(self.error(fetch.offset, fault).into()),
                Err(error) => return Err(error),
            };
            all.push(expected);
        }
        Ok(all)
    }

    fn note_unverified(&self, fetch: &Fetch) {
        self.cache.unverified_bytes.fetch_add(fetch.length, Ordering::Relaxed);
    }

    /// Copies and decodes what was read to its places, on several cores where there is much to decode.
    fn deliver(
        &self,
        pieces: Vec<Piece<'_>>,
        fetches: &[Fetch],
        fetch_of: &[usize],
        bytes: &[Vec<u8>],
    ) -> Result<()> {
        let last_compressed =
            pieces.iter().rposition(|piece| piece.extent.compression != CompressionId::NONE);
        let mut to_decode = Vec::new();
        for (number, piece) in pieces.into_iter().enumerate() {
            let fetch = fetch_of[number];
            if piece.extent.compression != CompressionId::NONE {
                to_decode.push((piece, fetch, Some(number) == last_compressed));
                continue;
            }
            let start = to_index(fetches[fetch].offset, piece.range.start());
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
            *self.cache.decoded.lock() = Some(Decoded { address, generation, bytes });
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
