//! Where a file has data and where holes: SEEK_DATA, SEEK_HOLE, whether a range is one hole, and the extent
//! map with fiemap's facts.
//!
//! Unflushed data are looked for only in holes and preallocated ranges, only if the file has any, and from
//! where the last search of the same open file ended.

use std::collections::HashMap;

use vlinder_extent_state::{ByteRange, Position, StateBits};
use vlinder_forest::ExtentUsers;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::{Logical, RootId};
use vlinder_transaction::{Handle, Reservation};

use crate::extent::{Content, Extent};
use crate::file_data::DELALLOC;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::sectors::MAX_FILE_SIZE;
use crate::{DataRefusal, Result, items};

/// What to seek for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first data (SEEK_DATA).
    Data,
    /// The first hole, with the end of the file as the last one (SEEK_HOLE).
    Hole,
}

/// lseek(2) for data and holes: the first offset at or after `offset` that lies in what is sought.
/// Preallocated ranges are holes. The caller holds the operation lock, shared or exclusive.
///
/// # Errors
/// [`DataRefusal::NoSuchOffset`] at or behind the end of the file, or where no data follow.
pub fn seek(store: &FileStore, node: &FileNode, cache: &OpenCache, offset: u64, what: Seek) -> Result<u64> {
    let size = node.size();
    if offset >= size {
        return Err(DataRefusal::NoSuchOffset.into());
    }
    let mut search = RunSearch::new(store, node, cache);
    let mut found = None;
    search.walk(ByteRange::new(offset, size).unwrap_or_default(), |part, kind| {
        let is_data =
            matches!(kind, Kind::Item(extent) if is_data(extent)) || matches!(kind, Kind::Unflushed);
        let wanted = is_data == (what == Seek::Data);
        if wanted {
            found = Some(part.start());
        }
        wanted
    })?;
    match (found, what) {
        (Some(offset), _) => Ok(offset),
        (None, Seek::Hole) => Ok(size),
        (None, Seek::Data) => Err(DataRefusal::NoSuchOffset.into()),
    }
}

/// Whether no sector that a range touches has space or unflushed bytes; what lies behind the end of the file
/// and has no space is a hole, too. A range that no file can have is none. The caller holds the operation
/// lock exclusively.
///
/// # Errors
/// What the trees met.
pub fn is_hole(store: &FileStore, node: &FileNode, offset: u64, length: u64) -> Result<bool> {
    let sector_size = u64::from(store.sector_size());
    let range = ByteRange::with_length(offset, length);
    let Some(range) = range.filter(|range| !range.is_empty() && range.end() <= MAX_FILE_SIZE) else {
        return Ok(false);
    };
    let start = range.start() / sector_size * sector_size;
    let sectors = ByteRange::new(start, range.end().next_multiple_of(sector_size)).unwrap_or(range);
    let (cache, mut has_space) = (OpenCache::new(), false);
    RunSearch::new(store, node, &cache).walk(sectors, |_, kind| {
        has_space = match kind {
            Kind::Nothing => false,
            Kind::Item(extent) => !extent.is_hole(),
            Kind::Unflushed => true,
        };
        has_space
    })?;
    Ok(!has_space)
}

/// What fiemap says of a run of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub length: u64,
    /// Where it begins in the file system's address space; none for unflushed and inline data. Of compressed
    /// runs, where their extent begins.
    pub logical: Option<Logical>,
    /// Not on disk yet (FIEMAP_EXTENT_DELALLOC).
    pub unflushed: bool,
    /// Space that was never written (FIEMAP_EXTENT_UNWRITTEN).
    pub preallocated: bool,
    /// The bytes lie in the tree (FIEMAP_EXTENT_DATA_INLINE).
    pub inline: bool,
    /// Compressed (FIEMAP_EXTENT_ENCODED).
    pub encoded: bool,
    /// Other files, subvolumes or places of this file refer to its extent too (FIEMAP_EXTENT_SHARED).
    pub shared: bool,
    /// The last of the file (FIEMAP_EXTENT_LAST).
    pub last: bool,
}

/// The runs of a file that overlap a range, in order, at most `limit`; neighbours that lie one behind the
/// other are one. The caller holds the operation lock, shared or exclusive.
///
/// # Errors
/// What the trees met.
pub fn extent_map(
    store: &FileStore,
    node: &FileNode,
    cache: &OpenCache,
    range: ByteRange,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    let sector_size = u64::from(store.sector_size());
    let mut mapped: Vec<MappedExtent> = Vec::new();
    let mut search = RunSearch::new(store, node, cache);
    let mut sharing = Sharing::new(store)?;
    let mut failure = None;
    // Space may be preallocated behind the end.
    let whole = ByteRange::new(range.start() / sector_size * sector_size, u64::MAX).unwrap_or(range);
    search.walk(whole, |part, kind| {
        let run = match kind {
            Kind::Nothing => return false,
            Kind::Item(extent) if extent.is_hole() => return false,
            Kind::Item(extent) => match sharing.is_shared(extent) {
                Ok(shared) => MappedExtent { shared, ..of_item(extent, part) },
                Err(error) => {
                    failure = Some(error);
                    return true;
                }
            },
            Kind::Unflushed => of_unflushed(part),
        };
        if part.start() >= range.end()
            || (mapped.len() >= limit && !mapped.last().is_some_and(|last| goes_on(last, &run)))
        {
            return true;
        }
        match mapped.last_mut().filter(|last| goes_on(last, &run)) {
            Some(last) => last.length += run.length,
            None => mapped.push(run),
        }
        false
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    let end = mapped.last().map_or(0, |last| last.offset + last.length);
    let more = items::last(store.engine(), node.tree(), node.number())?
        .is_some_and(|extent| !extent.is_hole() && extent.file_range(sector_size).end() > end);
    let unflushed_end = node.data().unflushed().end().unwrap_or(0);
    if let Some(last) = mapped.last_mut() {
        last.last = !more && unflushed_end <= end;
    }
    Ok(mapped)
}

/// Extents that are looked up under one handle: a map can have a million, and no commit comes while a handle
/// is open.
const LOOKED_UP_AT_ONCE: usize = 1024;

/// Whether others refer to the extents of a file, too; each extent is looked up once.
struct Sharing<'a> {
    store: &'a FileStore,
    /// None where a rescue goes without the extent tree: then nothing is known to be shared.
    users: Option<ExtentUsers<'a>>,
    /// No commit moves references while an extent is looked up. None where the file system is read-only.
    handle: Option<Handle<'a>>,
    /// Extents that were looked up under this handle.
    looked_up: usize,
    known: HashMap<Logical, bool>,
}

impl<'a> Sharing<'a> {
    fn new(store: &'a FileStore) -> Result<Self> {
        let mut sharing = Self { store, users: None, handle: None, looked_up: 0, known: HashMap::new() };
        sharing.begin()?;
        Ok(sharing)
    }

    /// Begins a handle and a walk, in place of those before, which end first: a commit may wait for them.
    fn begin(&mut self) -> Result<()> {
        (self.users, self.handle, self.looked_up) = (None, None, 0);
        let engine = self.store.engine();
        if engine.reader().is_bad_root(RootId::EXTENT_TREE) {
            return Ok(());
        }
        if engine.read_only_reason().is_none() {
            self.handle = Some(engine.begin(Reservation::deletion(0))?);
        }
        self.users = Some(engine.extent_user_walk(self.handle.as_ref())?);
        Ok(())
    }

    fn is_shared(&mut self, extent: &Extent) -> Result<bool> {
        let Some(range) = extent.range() else { return Ok(false) };
        if let Some(known) = self.known.get(&range.address) {
            return Ok(*known);
        }
        if self.looked_up >= LOOKED_UP_AT_ONCE {
            self.begin()?;
        }
        let Some(users) = &mut self.users else { return Ok(false) };
        let shared = users.is_shared(range.address)?;
        self.looked_up += 1;
        self.known.insert(range.address, shared);
        Ok(shared)
    }
}

fn of_unflushed(part: ByteRange) -> MappedExtent {
    MappedExtent {
        offset: part.start(),
        length: part.length_bytes(),
        logical: None,
        unflushed: true,
        preallocated: false,
        inline: false,
        encoded: false,
        shared: false,
        last: false,
    }
}

fn of_item(extent: &Extent, part: ByteRange) -> MappedExtent {
    let encoded = extent.compression != CompressionId::NONE;
    let logical = extent.range().map(|range| {
        let inside = if encoded { 0 } else { range.offset_bytes + (part.start() - extent.offset) };
        Logical(range.address.0 + inside)
    });
    MappedExtent {
        logical,
        unflushed: false,
        preallocated: extent.is_preallocated(),
        inline: extent.range().is_none(),
        encoded,
        ..of_unflushed(part)
    }
}

/// Whether a run is the continuation of the one before in every respect. Of compressed runs Linux compares
/// the same numbers, though they do not mean the same.
fn goes_on(before: &MappedExtent, run: &MappedExtent) -> bool {
    let physically = match (before.logical, run.logical) {
        (Some(one), Some(other)) => one.checked_add(before.length) == Some(other),
        (None, None) => run.unflushed,
        _ => false,
    };
    physically
        && before.offset + before.length == run.offset
        && (before.unflushed, before.preallocated, before.inline, before.encoded, before.shared)
            == (run.unflushed, run.preallocated, run.inline, run.encoded, run.shared)
}

fn is_data(extent: &Extent) -> bool {
    match &extent.content {
        Content::Inline(_) => true,
        Content::Regular(range) => !range.is_hole(),
        Content::Preallocated(_) => false,
    }
}

/// What a part of a file is.
enum Kind<'a> {
    Nothing,
    Item(&'a Extent),
    Unflushed,
}

struct RunSearch<'a> {
    store: &'a FileStore,
    node: &'a FileNode,
    cache: &'a OpenCache,
    /// There is something unflushed to look for.
    looks_for_unflushed: bool,
}

impl<'a> RunSearch<'a> {
    fn new(store: &'a FileStore, node: &'a FileNode, cache: &'a OpenCache) -> Self {
        let looks_for_unflushed = !node.data().may_be_forgotten();
        Self { store, node, cache, looks_for_unflushed }
    }

    /// Shows the parts of a range in order until `visit` says that it has seen enough.
    fn walk(&mut self, range: ByteRange, mut visit: impl FnMut(ByteRange, Kind<'_>) -> bool) -> Result<()> {
        let sector_size = u64::from(self.store.sector_size());
        let mut at = range.start();
        // The first run behind `at`, if there is one; looked for again when it was passed.
        let mut unflushed = ByteRange::new(at, at);
        while let Some(rest) = ByteRange::new(at, range.end()).filter(|rest| !rest.is_empty()) {
            // Before the items: bytes leave memory after their items came, so who looks in this order misses
            // neither.
            if unflushed.is_some_and(|run| run.end() <= at) {
                unflushed = self.find_unflushed(rest);
            }
            let window = self.cache.window(self.store, self.node, at, 0)?;
            let known_to = unflushed.map_or(u64::MAX, ByteRange::end);
            let until = window.complete_to.min(known_to).min(range.end());
            for extent in window.extents_from(at, sector_size) {
                let part = extent.file_range(sector_size).intersection(rest);
                let Some(part) = part.and_then(|part| ByteRange::new(part.start().max(at), part.end()))
                else {
                    continue;
                };
                if part.start() >= until {
                    break;
                }
                if show_hole(at, part.start(), None, unflushed, &mut visit) {
                    return Ok(());
                }
                // Data are shown whole, though something unflushed may begin inside.
                let (end, enough) = if is_data(extent) {
                    (part.end(), visit(part, Kind::Item(extent)))
                } else {
                    let end = part.end().min(until);
                    (end, show_hole(part.start(), end, Some(extent), unflushed, &mut visit))
                };
                if enough {
                    return Ok(());
                }
                at = end;
            }
            if show_hole(at, until, None, unflushed, &mut visit) {
                return Ok(());
            }
            at = at.max(until);
        }
        Ok(())
    }

    fn find_unflushed(&self, range: ByteRange) -> Option<ByteRange> {
        if !self.looks_for_unflushed {
            return None;
        }
        let states = self.node.data().states_if_any()?;
        let write_back = self.store.write_back();
        let mut kept = self.cache.position.lock();
        let mut position = if write_back.caches_seeks() { *kept } else { Position::default() };
        let before = position.visited();
        let found = states.find_run(range, DELALLOC, StateBits::EMPTY, u64::MAX, &mut position);
        write_back.metrics.states_visited.add(position.visited() - before);
        *kept = position;
        found
    }
}

/// Shows a hole or preallocated part, and what is unflushed in it.
fn show_hole(
    start: u64,
    end: u64,
    extent: Option<&Extent>,
    unflushed: Option<ByteRange>,
    visit: &mut impl FnMut(ByteRange, Kind<'_>) -> bool,
) -> bool {
    let Some(whole) = ByteRange::new(start, end).filter(|whole| !whole.is_empty()) else { return false };
    let unflushed = unflushed.and_then(|run| run.intersection(whole));
    let hole_end = unflushed.map_or(end, ByteRange::start);
    let hole = ByteRange::new(start, hole_end).filter(|hole| !hole.is_empty());
    let kind = extent.map_or(Kind::Nothing, Kind::Item);
    hole.is_some_and(|hole| visit(hole, kind)) || unflushed.is_some_and(|run| visit(run, Kind::Unflushed))
}
