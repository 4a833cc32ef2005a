//! Writing: into memory, with the space promised.

use std::borrow::Cow;
use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeItem;
use vlinder_format::{FileOffset, Key, ObjectId};
use vlinder_transaction::{DataPromise, EngineError, PromisedData};

use super::file_data::DELALLOC;
use super::open_cache::OpenCache;
use super::read::read_whole;
use super::runs::Runs;
use super::{flush, in_place, truncate};
use crate::inode::{Inode, InodeState};
use crate::sectors::{MAX_FILE_SIZE, whole_sectors};
use crate::{Filesystem, FsError, Refusal, Result};

/// Writes bytes at an offset. They are in memory when this returns, with the space for them promised; a flush
/// puts them on disk. Bytes of an owned vector that begins at a sector border are not copied again, if it
/// ends at one or has capacity for the rest of its last sector. The size grows with what is written past the
/// end; times and set-id bits are the caller's, who holds [`Inode::operation`] exclusively, or shared for
/// whole sectors inside a file with copy-on-write.
///
/// # Errors
/// [`Refusal::NoSpace`], [`Refusal::FileTooLarge`], or what reading the sectors that are written in part met;
/// nothing is written then. Or what flushing met, to make room for what comes next: the bytes are in memory
/// then, as without an error.
pub fn write(filesystem: &Filesystem, inode: &Arc<Inode>, offset: u64, data: Cow<'_, [u8]>) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let range =
        ByteRange::with_length(offset, data.len() as u64).filter(|range| range.end() <= MAX_FILE_SIZE);
    let range = range.ok_or(Refusal::FileTooLarge)?;
    if filesystem.engine().is_host_full() && filesystem.shared().write_back.is_over_limit() {
        return Err(filesystem.engine().full_host().into());
    }
    let sectors = whole_sectors(range, u64::from(filesystem.sector_size()));
    let size = inode.size();
    if offset > size {
        let _extents = flush::lock_settled(filesystem, inode);
        truncate::zero_tail(filesystem, inode, size)?;
        truncate::drop_behind_end(filesystem, inode, size, sectors.start())?;
    }
    let promised = promise(filesystem, inode, &[sectors])?;
    put(filesystem, inode, (range, sectors), data, promised)?;
    make_room(filesystem)
}

/// Writes whole sectors at several places inside a file, as [`write`] does each in turn. As many as a batch
/// of a flush has bytes share one promise, and the file's locks. The caller holds [`Inode::operation`] at
/// least shared.
///
/// # Errors
/// As [`write`]; some of the parts are written then.
pub(crate) fn write_inside(
    filesystem: &Filesystem,
    inode: &Arc<Inode>,
    mut parts: &[(u64, &[u8])],
) -> Result<()> {
    while !parts.is_empty() {
        let mut bytes = 0;
        let fits = |(_, data): &&(u64, &[u8])| {
            bytes += data.len() as u64;
            bytes <= flush::BATCH_BYTES
        };
        let count = parts.iter().take_while(fits).count().max(1);
        let (together, others) = parts.split_at(count);
        match write_together(filesystem, inode, together) {
            // One after the other gives back what it overwrites.
            Err(error) if count > 1 && error.refusal() == Some(Refusal::NoSpace) => {
                for (offset, data) in together {
                    write(filesystem, inode, *offset, Cow::Borrowed(data))?;
                }
            }
            other => other?,
        }
        parts = others;
    }
    Ok(())
}

/// Writes whole sectors inside a file, all or none of them.
fn write_together(filesystem: &Filesystem, inode: &Arc<Inode>, parts: &[(u64, &[u8])]) -> Result<()> {
    let ranges = parts.iter().map(|(start, data)| ByteRange::with_length(*start, data.len() as u64));
    let ranges: Vec<ByteRange> = ranges.collect::<Option<_>>().ok_or(Refusal::FileTooLarge)?;
    let promised = promise(filesystem, inode, &ranges)?;
    // Before the locks are taken.
    let bytes: Vec<Vec<u8>> = parts.iter().map(|(_, data)| data.to_vec()).collect();
    put_sectors_promised(filesystem, inode, &ranges, bytes, promised, 0)?;
    make_room(filesystem)
}

/// Flushes where so much is in memory that writers have to wait, or has it done.
fn make_room(filesystem: &Filesystem) -> Result<()> {
    let write_back = &filesystem.shared().write_back;
    if write_back.is_over_limit() {
        match flush::relieve(filesystem) {
            // The bytes are in memory, and the next are refused.
            Err(error) if error.is_host_full() => {}
            relieved => relieved?,
        }
    } else if write_back.is_crowded() {
        filesystem.write_out_soon();
    }
    Ok(())
}

/// What stands for the data space of bytes on their way into memory; given back unless it is kept.
enum Promised<'a> {
    /// Their sectors have a promise already.
    Nothing,
    /// Bytes of data space.
    Space(DataPromise<'a>),
    /// They go to where the file has space.
    InPlace,
}

impl Promised<'_> {
    /// Whether it is enough for the bytes of the sectors that have no promise yet.
    fn is_enough(&self, dirty: &Runs, sectors: &[ByteRange]) -> bool {
        match self {
            Self::Nothing => unpromised_bytes(dirty, sectors) == 0,
            Self::Space(promise) => promise.space().bytes >= unpromised_bytes(dirty, sectors),
            Self::InPlace => true,
        }
    }

    /// The space, which is the dirty bytes' from now on, with `runs` new runs among them.
    fn keep(self, runs: u64) -> PromisedData {
        match self {
            Self::Space(mut promise) => {
                promise.keep_runs(runs);
                promise.keep()
            }
            Self::Nothing | Self::InPlace => PromisedData::default(),
        }
    }
}

fn unpromised_bytes(dirty: &Runs, sectors: &[ByteRange]) -> u64 {
    sectors.iter().map(|range| dirty.missing_bytes(*range)).sum()
}

/// Promises the data space that the sectors may need beyond what is promised to them already.
fn promise<'a>(
    filesystem: &'a Filesystem,
    inode: &Arc<Inode>,
    sectors: &[ByteRange],
) -> Result<Promised<'a>> {
    let new = unpromised_bytes(&inode.data.unflushed().dirty, sectors);
    if new == 0 {
        return Ok(Promised::Nothing);
    }
    let engine = filesystem.engine();
    let space = PromisedData::written(new, sectors.len() as u64);
    let (tree, keys) = (inode.subvolume().tree(), || item_keys(inode.number(), sectors));
    match engine.promise_data_at(tree, keys, space) {
        Ok(promise) => return Ok(Promised::Space(promise)),
        Err(error @ EngineError::NoSpace { .. }) => {
            tracing::debug!(%error, "flushing, since what waits may take less than promised");
        }
        Err(error) => return Err(error.into()),
    }
    let mut in_place = true;
    for range in sectors {
        in_place = in_place && in_place::covers(filesystem, inode, *range)?;
    }
    if in_place {
        return Ok(Promised::InPlace);
    }
    if !filesystem.make_room()? {
        return Err(Refusal::NoSpace.into());
    }
    match engine.promise_data_at(tree, keys, space) {
        Ok(promise) => Ok(Promised::Space(promise)),
        Err(EngineError::NoSpace { .. }) => Err(Refusal::NoSpace.into()),
        Err(error) => Err(error.into()),
    }
}

/// Where the items lie that writing these ranges of a file changes: its own, and those of extents.
fn item_keys(inode: ObjectId, ranges: &[ByteRange]) -> Vec<Range<Key>> {
    let own = InodeItem::key(inode);
    let extents = |range: &ByteRange| {
        let key = |offset| FileExtent::key(inode, FileOffset(offset));
        key(range.start())..key(range.end())
    };
    std::iter::once(own..own.next().unwrap_or(own)).chain(ranges.iter().map(extents)).collect()
}

/// Puts a range's bytes into memory, with the rest of its sectors.
fn put(
    filesystem: &Filesystem,
    inode: &Arc<Inode>,
    (range, sectors): (ByteRange, ByteRange),
    data: Cow<'_, [u8]>,
    promised: Promised<'_>,
) -> Result<()> {
    let least_size = range.end();
    if range == sectors {
        let bytes = [data.into_owned()];
        return put_sectors_promised(filesystem, inode, &[sectors], bytes, promised, least_size);
    }
    {
        let mut state = inode.state.lock();
        let mut unflushed = inode.data.unflushed();
        if unflushed.dirty.covers(sectors) {
            unflushed.dirty.overwrite(range.start(), &data);
            unflushed.promised += promised.keep(0);
            drop(unflushed);
            grow(filesystem, inode, &mut state, least_size);
            return Ok(());
        }
    }
    let bytes = [complete(filesystem, inode, range, sectors, data)?];
    put_sectors_promised(filesystem, inode, &[sectors], bytes, promised, least_size)
}

/// Puts whole sectors into memory, each range its bytes; the file's size grows to `least_size`. The promise
/// is renewed where a flush has taken dirty bytes that it shared.
fn put_sectors_promised<'a>(
    filesystem: &'a Filesystem,
    inode: &Arc<Inode>,
    ranges: &[ByteRange],
    bytes: impl IntoIterator<Item = Vec<u8>>,
    mut promised: Promised<'a>,
    least_size: u64,
) -> Result<()> {
    let write_back = &filesystem.shared().write_back;
    let states = inode.data.states(write_back, inode.id());
    loop {
        // A flush takes the bytes together with the size (see `flush::take`), so they come together too.
        let mut state = inode.state.lock();
        let mut unflushed = inode.data.unflushed();
        if promised.is_enough(&unflushed.dirty, ranges) {
            for range in ranges {
                states.set(*range, DELALLOC).map_err(FsError::State)?;
            }
            let before = unflushed.dirty.bytes();
            let mut new_runs = 0;
            for (range, bytes) in ranges.iter().zip(bytes) {
                new_runs += u64::from(!unflushed.dirty.touches(*range));
                unflushed.dirty.insert(range.start(), bytes);
            }
            unflushed.promised += promised.keep(new_runs);
            let grown = unflushed.dirty.bytes() - before;
            unflushed.dirty_since.get_or_insert_with(|| filesystem.engine().clock().monotonic());
            write_back.account(i64::try_from(grown).unwrap_or(i64::MAX));
            drop(unflushed);
            grow(filesystem, inode, &mut state, least_size);
            drop(state);
            write_back.add(inode);
            return Ok(());
        }
        drop((unflushed, state));
        // What it promised is given back before more is asked for.
        drop(promised);
        promised = promise(filesystem, inode, ranges)?;
    }
}

fn grow(filesystem: &Filesystem, inode: &Arc<Inode>, state: &mut InodeState, least_size: u64) {
    if least_size > state.item.size_bytes {
        state.item.size_bytes = least_size;
        filesystem.mark_dirty(inode, state);
    }
}

/// Puts whole sectors into memory as unflushed, with the space for them promised.
pub(crate) fn put_sectors(
    filesystem: &Filesystem,
    inode: &Arc<Inode>,
    start: u64,
    bytes: Vec<u8>,
) -> Result<()> {
    let range = ByteRange::with_length(start, bytes.len() as u64).ok_or(Refusal::FileTooLarge)?;
    let keys = || item_keys(inode.number(), &[range]);
    let space = PromisedData::written(range.length_bytes(), 1);
    let promised = match filesystem.engine().promise_data_at(inode.subvolume().tree(), keys, space) {
        Ok(promise) => Promised::Space(promise),
        Err(error) if error.is_no_space() => return Err(Refusal::NoSpace.into()),
        Err(error) => return Err(error.into()),
    };
    put_sectors_promised(filesystem, inode, &[range], [bytes], promised, 0)
}

/// The sectors with the new bytes in them and the old ones around.
fn complete(
    filesystem: &Filesystem,
    inode: &Inode,
    range: ByteRange,
    sectors: ByteRange,
    data: Cow<'_, [u8]>,
) -> Result<Vec<u8>> {
    let length = sectors.length_bytes() as usize;
    let head = (range.start() - sectors.start()) as usize;
    let mut whole = match data {
        Cow::Owned(bytes) if head == 0 && bytes.capacity() >= length => bytes,
        data => {
            let mut whole = Vec::with_capacity(length);
            if head > 0 {
                let old = old_sector(filesystem, inode, sectors.start())?;
                whole.extend_from_slice(&old[..head]);
            }
            whole.extend_from_slice(&data);
            whole
        }
    };
    if range.end() >= inode.size() {
        whole.resize(length, 0);
    } else if range.end() < sectors.end() {
        let sector_size = u64::from(filesystem.sector_size());
        let old = old_sector(filesystem, inode, sectors.end() - sector_size)?;
        whole.extend_from_slice(&old[old.len() - (length - whole.len())..]);
    }
    Ok(whole)
}

/// A sector as readers see it, zeros behind the end of the file.
pub(crate) fn old_sector(filesystem: &Filesystem, inode: &Inode, start: u64) -> Result<Vec<u8>> {
    let mut sector = vec![0; filesystem.sector_size() as usize];
    let inside = usize::try_from(inode.size().saturating_sub(start)).unwrap_or(usize::MAX).min(sector.len());
    if inside > 0 {
        read_whole(filesystem, inode, &OpenCache::new(), start, &mut sector)?;
        sector[inside..].fill(0);
    }
    Ok(sector)
}
