//! Reading what is on disk: the items of a range, their bytes in one batch, every sector verified.

use vlinder_base::parallel;
use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, decompress};
use vlinder_extent_state::ByteRange;
use vlinder_forest::ExpectedChecksums;
use vlinder_format::RootId;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;
use vlinder_volume::{MappedBy, ReadRequest};

use crate::Result;
use crate::bytes_error::{BytesError, DataFault};
use crate::extent::{Content, Extent};
use crate::fetch::{Fetch, Fetched, Fetches, MAX_BYTES, Source, Started};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::held::HeldPart;
use crate::ids::InodeId;
use crate::open_cache::{Decoded, OpenCache};
use crate::pieces::{ReadPiece, pieces_of};

/// Items looked at for one part of a request; what they do not cover is read in further parts.
const MAX_ITEMS: usize = 4096;

pub(crate) struct Reader<'a> {
    pub(crate) store: &'a FileStore,
    pub(crate) node: &'a FileNode,
    pub(crate) cache: &'a OpenCache,
    /// Offset of the first byte asked for, for errors.
    pub(crate) base: u64,
}

impl Reader<'_> {
    /// Reads the ranges that are on disk into their places in `target`.
    pub(crate) fn read_gaps(&self, gaps: Vec<ByteRange>, target: &mut [u8]) -> Result<()> {
        for gap in gaps {
            let place = &mut target[to_index(self.base, gap.start())..to_index(self.base, gap.end())];
            self.read_range(gap, place)?;
        }
        Ok(())
    }

    /// Whether more than was asked for may be read of a file of which nothing is unflushed.
    pub(crate) fn may_read_ahead(&self) -> bool {
        let salvages = self.store.engine().options().rescue.leniency.salvages;
        !salvages && self.store.write_back().caches_seeks()
    }

    /// Reads a range of the items.
    pub(crate) fn read_range(&self, gap: ByteRange, mut target: &mut [u8]) -> Result<()> {
        let mut at = gap.start();
        while let Some(rest) = ByteRange::new(at, gap.end()).filter(|rest| !rest.is_empty()) {
            let (extents, end) = self.items(rest)?;
            let (now, later) = std::mem::take(&mut target).split_at_mut(to_index(at, end));
            let part = ByteRange::new(at, end).unwrap_or_default();
            let pieces = pieces_of(part, extents, u64::MAX, u64::from(self.store.sector_size()));
            let fetched = self.finish(self.start(pieces, MAX_BYTES, &mut Vec::new())?)?;
            self.deliver(part, &fetched, now)?;
            target = later;
            at = end;
        }
        Ok(())
    }

    /// The items of a range, not many more than [`MAX_ITEMS`], and up to where they are all.
    pub(crate) fn items(&self, range: ByteRange) -> Result<(Vec<Extent>, u64)> {
        let sector_size = u64::from(self.store.sector_size());
        let mut extents = Vec::new();
        let mut at = range.start();
        while at < range.end() && extents.len() < MAX_ITEMS {
            let wanted = usize::try_from((range.end() - at) / sector_size).unwrap_or(usize::MAX);
            let window = self.cache.window(self.store, self.node, at, wanted)?;
            let inside = window.extents_from(at, sector_size);
            extents.extend(inside.iter().take_while(|extent| extent.offset < range.end()).cloned());
            at = window.complete_to;
        }
        Ok((extents, at.min(range.end())))
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

    /// Asks the devices for all pieces in one batch, at most so many bytes at a time, into buffers that were
    /// used before.
    pub(crate) fn start(
        &self,
        pieces: Vec<ReadPiece>,
        most_bytes: u64,
        buffers: &mut Vec<Vec<u8>>,
    ) -> Result<Started> {
        let volume = self.store.engine().volume();
        let sector_size = u64::from(self.store.sector_size());
        let fetches = Fetches::plan(pieces, most_bytes, sector_size, volume, |piece| self.decoded(piece));
        let expected = self.expected(&fetches.all)?;
        let requests = fetches.all.iter().map(|fetch| {
            let length = usize::try_from(fetch.length).unwrap_or(0);
            (ReadRequest { logical: fetch.start, length }, MappedBy::AnyChunk)
        });
        let reads = volume.submit_reads_into(requests, buffers).keep();
        Ok(Started { fetches, expected, reads })
    }

    /// Waits for the devices, and verifies what they bring sector by sector.
    pub(crate) fn finish(&self, started: Started) -> Result<Fetched> {
        let Started { fetches, expected, reads } = started;
        let volume = self.store.engine().volume();
        let results = volume.attend(reads).wait_data(&mut |request, sector, bytes| {
            let expected = expected.get(request).and_then(Option::as_ref);
            expected.is_none_or(|expected| expected.is_good(sector, bytes))
        });
        let mut all = Vec::with_capacity(results.len());
        for (result, fetch) in results.into_iter().zip(&fetches.all) {
            match result {
                Ok(verified) => all.push(verified.value),
                Err(error) => return Err(self.fetch_error(fetch, error.into()).into()),
            }
        }
        Ok(Fetched { pieces: fetches.pieces, bytes: all })
    }

    /// The extent of a piece, if it is the one that was decoded last.
    fn decoded(&self, piece: &ReadPiece) -> Option<Arc<Vec<u8>>> {
        let bytes = self.cache.decoded(piece.extent.range()?.address, piece.extent.generation)?;
        decoded_part(piece, &bytes).is_some().then_some(bytes)
    }

    /// The checksums that belong to each part of what is fetched; none for what is not to be verified.
    fn expected(&self, fetches: &[Fetch]) -> Result<Vec<Option<ExpectedChecksums>>> {
        let engine = self.store.engine();
        let ignored = self.store.options().ignores_data_checksums;
        if ignored || self.node.flags().has(InodeFlags::NODATASUM) {
            return Ok(Vec::new());
        }
        let salvages = engine.options().rescue.leniency.salvages;
        // As on Linux, a checksum tree that rescue= does without verifies nothing.
        if engine.reader().is_bad_root(RootId::CHECKSUM_TREE) {
            fetches.iter().for_each(|fetch| self.cache.note_unverified(fetch.length));
            return Ok(Vec::new());
        }
        let lookup = engine.reader().checksum_lookup()?;
        let mut all = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            let expected = match lookup.expected(fetch.start, fetch.length) {
                Ok(Ok(expected)) => Some(expected),
                _ if salvages => {
                    self.cache.note_unverified(fetch.length);
                    None
                }
                Ok(Err(missing)) => return Err(self.fetch_error(fetch, missing.into()).into()),
                Err(error) => return Err(error.into()),
            };
            all.push(expected);
        }
        Ok(all)
    }

    /// Copies and decodes what was read of `part` to its places in `target`, on several cores where there is
    /// much to decode.
    fn deliver(&self, part: ByteRange, fetched: &Fetched, target: &mut [u8]) -> Result<()> {
        let last = fetched.last_to_decode();
        let mut to_decode = Vec::new();
        let (mut rest, mut at) = (target, part.start());
        for (number, (piece, source)) in fetched.pieces.iter().enumerate() {
            let (hole, behind) = rest.split_at_mut(to_index(at, piece.range.start()));
            hole.fill(0);
            let (now, behind) = behind.split_at_mut(to_index(piece.range.start(), piece.range.end()));
            (rest, at) = (behind, piece.range.end());
            match source {
                Source::Fetched(fetch, start) if !piece.is_compressed() => {
                    now.copy_from_slice(&fetched.bytes[*fetch][*start..*start + now.len()]);
                }
                _ => to_decode.push((number, now)),
            }
        }
        rest.fill(0);
        let decode = |(number, now): (usize, &mut [u8])| {
            let (piece, source) = &fetched.pieces[number];
            self.decode_piece(piece, source, &fetched.bytes, Some(number) == last, now)
        };
        parallel::map_vec(to_decode, decode).into_iter().collect()
    }

    /// What was read as it is to be held: bytes that are not compressed in the buffers into which they were
    /// read.
    pub(crate) fn decode_parts(&self, fetched: Fetched) -> Result<(Vec<HeldPart>, Vec<Vec<u8>>)> {
        let last = fetched.last_to_decode();
        let mut parts = Vec::with_capacity(fetched.pieces.len());
        let mut to_decode = Vec::new();
        for (number, (piece, source)) in fetched.pieces.iter().enumerate() {
            let (buffer, start) = match source {
                Source::Fetched(fetch, start) if !piece.is_compressed() => (*fetch, *start),
                _ => {
                    to_decode.push(number);
                    (fetched.bytes.len() + to_decode.len() - 1, 0)
                }
            };
            parts.push(HeldPart { range: piece.range, buffer, start });
        }
        let decoded = parallel::map_vec(to_decode, |number| {
            let (piece, source) = &fetched.pieces[number];
            let mut bytes = vec![0; usize::try_from(piece.range.length_bytes()).unwrap_or(0)];
            let decoded = self.decode_piece(piece, source, &fetched.bytes, Some(number) == last, &mut bytes);
            decoded.map(|()| bytes)
        });
        let decoded: Vec<Vec<u8>> = decoded.into_iter().collect::<Result<_>>()?;
        Ok((parts, fetched.into_plain_bytes().chain(decoded).collect()))
    }

    /// Brings the bytes of a piece that do not lie in what was fetched as they are.
    fn decode_piece(
        &self,
        piece: &ReadPiece,
        source: &Source,
        bytes: &[Vec<u8>],
        keep: bool,
        target: &mut [u8],
    ) -> Result<()> {
        match (source, &piece.extent.content) {
            (Source::Fetched(fetch, _), _) => self.deliver_decoded(piece, &bytes[*fetch], keep, target),
            (Source::Decoded(bytes), _) => {
                target.copy_from_slice(decoded_part(piece, bytes).unwrap_or_default());
                Ok(())
            }
            (Source::Inline, Content::Inline(bytes)) => {
                self.copy_inline(&piece.extent, bytes, piece.range, target)
            }
            (Source::Inline, _) => unreachable!("only an inline extent has its bytes in its item"),
        }
    }

    /// Decodes an extent into the answer: straight, if the answer has all of what is shown of it, else by way
    /// of the cache, for the reads that will go on from there.
    fn deliver_decoded(
        &self,
        piece: &ReadPiece,
        compressed: &[u8],
        keep: bool,
        target: &mut [u8],
    ) -> Result<()> {
        let Some(on_disk) = piece.extent.range() else { return Ok(()) };
        if piece.offset_in_extent() == 0 && piece.range.length_bytes() == on_disk.file_bytes {
            return self.decode(&piece.extent, compressed, target);
        }
        let mut bytes = vec![0; usize::try_from(piece.extent.ram_bytes).unwrap_or(0)];
        self.decode(&piece.extent, compressed, &mut bytes)?;
        let bytes = Arc::new(bytes);
        // What an item shows of its extent lies inside; else it was refused.
        if let Some(found) = decoded_part(piece, &bytes) {
            target.copy_from_slice(found);
        }
        if keep {
            let (address, generation) = (on_disk.address, piece.extent.generation);
            self.cache.keep_decoded(Decoded { address, generation, bytes });
        }
        Ok(())
    }

    fn decode(&self, extent: &Extent, compressed: &[u8], target: &mut [u8]) -> Result<()> {
        let sector_bytes = self.store.sector_size() as usize;
        let method = extent.compression.0;
        let compression = Compression::from_disk(method)
            .ok_or_else(|| self.error(extent.offset, DataFault::UnknownCompression { method }))?;
        decompress(compression, compressed, target, sector_bytes)
            .map(|_| ())
            .map_err(|error| self.error(extent.offset, error.into()).into())
    }

    fn fetch_error(&self, fetch: &Fetch, fault: DataFault) -> BytesError {
        self.error(fetch.offset_of(&fault), fault)
    }

    fn error(&self, offset: u64, fault: DataFault) -> BytesError {
        BytesError { inode: self.id(), offset: offset.max(self.base), fault }
    }

    pub(crate) fn id(&self) -> InodeId {
        self.node.id()
    }
}

/// The bytes of a piece in its decoded extent; none if they are not all there.
fn decoded_part<'b>(piece: &ReadPiece, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let start = usize::try_from(piece.offset_in_extent()).ok()?;
    let length = usize::try_from(piece.range.length_bytes()).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

/// From an offset to a later one inside the same buffer.
pub(crate) fn to_index(from: u64, to: u64) -> usize {
    (to - from) as usize
}
