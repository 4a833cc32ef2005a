//! Bytes come into memory, with the space for them promised.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeItem;
use vlinder_format::{FileOffset, Key, ObjectId};
use vlinder_transaction::{DataReservation, EngineError, ReservedData};

use crate::file_data::DELALLOC;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::inode_state::InodeState;
use crate::make_room::make_room;
use crate::runs::Runs;
use crate::{DataError, DataRefusal, Result, own_space};

/// What stands for the data space of bytes on their way into memory; given back unless it is kept.
pub(crate) enum Promised<'a> {
    /// Their sectors have a promise already.
    Nothing,
    /// Bytes of data space.
    Space(DataReservation<'a>),
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
    pub(crate) fn keep(self, runs: u64) -> ReservedData {
        match self {
            Self::Space(mut promise) => {
                promise.keep_runs(runs);
                promise.keep()
            }
            Self::Nothing | Self::InPlace => ReservedData::default(),
        }
    }
}

fn unpromised_bytes(dirty: &Runs, sectors: &[ByteRange]) -> u64 {
    sectors.iter().map(|range| dirty.missing_bytes(*range)).sum()
}

/// Promises the data space that the sectors may need beyond what is promised to them already.
pub(crate) fn promise<'a>(
    store: &'a FileStore,
    node: &Arc<FileNode>,
    sectors: &[ByteRange],
) -> Result<Promised<'a>> {
    let new = unpromised_bytes(&node.data().unflushed().dirty, sectors);
    if new == 0 {
        return Ok(Promised::Nothing);
    }
    let engine = store.engine();
    let space = ReservedData::written(new, sectors.len() as u64);
    let (tree, keys) = (node.tree(), || item_keys(node.number(), sectors));
    match engine.reserve_data_at(tree, keys, space) {
        Ok(promise) => return Ok(Promised::Space(promise)),
        Err(error @ EngineError::NoSpace { .. }) => {
            tracing::debug!(%error, "flushing, since what waits may take less than promised");
        }
        Err(error) => return Err(error.into()),
    }
    let mut in_place = true;
    for range in sectors {
        in_place = in_place && own_space::covers(store, node, *range)?;
    }
    if in_place {
        return Ok(Promised::InPlace);
    }
    if !make_room(store)? {
        return Err(DataRefusal::NoSpace.into());
    }
    match engine.reserve_data_at(tree, keys, space) {
        Ok(promise) => Ok(Promised::Space(promise)),
        Err(EngineError::NoSpace { .. }) => Err(DataRefusal::NoSpace.into()),
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

/// Puts whole sectors into memory, each range its bytes; the file's size grows to `least_size`. The promise
/// is renewed where a flush has taken dirty bytes that it shared.
pub(crate) fn put_sectors_promised<'a>(
    store: &'a FileStore,
    node: &Arc<FileNode>,
    ranges: &[ByteRange],
    bytes: impl IntoIterator<Item = Vec<u8>>,
    mut promised: Promised<'a>,
    least_size: u64,
) -> Result<()> {
    let write_back = store.write_back();
    let states = node.data().states(write_back.state_maps(), node.id());
    loop {
        // A flush takes the bytes together with the size (see `flush::take`), so they come together too.
        let mut state = node.state();
        let mut unflushed = node.data().unflushed();
        if promised.is_enough(&unflushed.dirty, ranges) {
            for range in ranges {
                states.set(*range, DELALLOC).map_err(DataError::State)?;
            }
            let before = unflushed.dirty.bytes();
            let mut new_runs = 0;
            for (range, bytes) in ranges.iter().zip(bytes) {
                new_runs += u64::from(!unflushed.dirty.touches(*range));
                unflushed.dirty.insert(range.start(), bytes);
            }
            unflushed.promised += promised.keep(new_runs);
            let grown = unflushed.dirty.bytes() - before;
            unflushed.dirty_since.get_or_insert_with(|| store.engine().clock().monotonic());
            write_back.account(i64::try_from(grown).unwrap_or(i64::MAX));
            drop(unflushed);
            grow(store, node, &mut state, least_size);
            drop(state);
            write_back.add(node);
            return Ok(());
        }
        drop((unflushed, state));
        // What it promised is given back before more is asked for.
        drop(promised);
        promised = promise(store, node, ranges)?;
    }
}

pub(crate) fn grow(store: &FileStore, node: &Arc<FileNode>, state: &mut InodeState, least_size: u64) {
    if least_size > state.item.size_bytes {
        state.item.size_bytes = least_size;
        store.mark_dirty(node, state);
    }
}

/// Puts whole sectors into memory as unflushed, with the space for them promised.
pub(crate) fn put_sectors(store: &FileStore, node: &Arc<FileNode>, start: u64, bytes: Vec<u8>) -> Result<()> {
    let range = ByteRange::with_length(start, bytes.len() as u64).ok_or(DataRefusal::FileTooLarge)?;
    let keys = || item_keys(node.number(), &[range]);
    let space = ReservedData::written(range.length_bytes(), 1);
    let promised = match store.engine().reserve_data_at(node.tree(), keys, space) {
        Ok(promise) => Promised::Space(promise),
        Err(error) if error.is_no_space() => return Err(DataRefusal::NoSpace.into()),
        Err(error) => return Err(error.into()),
    };
    put_sectors_promised(store, node, &[range], [bytes], promised, 0)
}
