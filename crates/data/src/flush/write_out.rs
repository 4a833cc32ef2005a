//! Bytes go to the devices: space is taken, everything written in one batch, checksums worked out meanwhile.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_device::Data;
use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{Charge, Handle};
use vlinder_volume::{PendingWrites, WriteRequest};

use super::file_flush::FileFlush;
use super::pipelined_batch::WritesInFlight;
use super::plan::{FlushPlan, Form, PlannedExtent};
use crate::file_store::FileStore;
use crate::runs::Runs;
use crate::written_extent::{Place, WrittenExtent, release};
use crate::{Result, checksums};

/// Bytes that one thread works out checksums of at a time.
const CHECKSUM_BYTES: usize = 256 * 1024;

/// A part of a run being flushed, shared with the readers who still see it.
struct Slice {
    run: Arc<Vec<u8>>,
    part: Range<usize>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.run[self.part.clone()]
    }
}

/// A piece with its space, before it is written.
struct AllocatedExtent {
    stored: WrittenExtent,
    at: Option<Logical>,
    data: Vec<Data>,
}

/// Stores what was planned. On an error the space that was taken is given back.
pub(super) fn write_out<'a>(
    store: &'a FileStore,
    jobs: &[FileFlush],
    plan: FlushPlan<'a>,
) -> Result<Vec<WrittenExtent>> {
    let (storing, held) = start_holding(store, jobs, plan)?;
    storing.finish_holding(store.engine(), held)
}

/// Takes space for what was planned, nothing of it in place, starts to write it, and works out its checksums
/// meanwhile. On an error the space that was taken is given back.
pub(super) fn start(store: &FileStore, jobs: &[FileFlush], plan: FlushPlan<'_>) -> Result<WritesInFlight> {
    let (storing, held) = start_holding(store, jobs, plan)?;
    assert!(held.is_none(), "what is overwritten in place is waited for");
    Ok(storing)
}

/// As [`start`], for anything. A handle that comes back has to stay open until everything is written, because
/// something is overwritten in place.
fn start_holding<'a>(
    store: &'a FileStore,
    jobs: &[FileFlush],
    plan: FlushPlan<'a>,
) -> Result<(WritesInFlight, Option<Handle<'a>>)> {
    let FlushPlan { pieces, handle } = plan;
    let overwrites = handle.is_some();
    let mut placed = Vec::with_capacity(pieces.len());
    let result = place(store, jobs, pieces, handle, &mut placed).and_then(|handle| {
        let held = handle.filter(|_| overwrites);
        Ok((submit(store, &placed)?, held))
    });
    let checksums = match &result {
        Ok((Some(_), _)) => checksums_of(store, jobs, &placed),
        Ok((None, _)) | Err(_) => Vec::new(),
    };
    let mut stored: Vec<WrittenExtent> = placed.into_iter().map(|placed| placed.stored).collect();
    for (stored, checksums) in stored.iter_mut().zip(checksums) {
        stored.checksums = checksums;
    }
    match result {
        Ok((pending, held)) => Ok((WritesInFlight { stored, pending }, held)),
        Err(error) => {
            release(store.engine(), &stored);
            Err(error)
        }
    }
}

/// Takes space for the pieces that need it; plain ones may get several extents. Gives the handle back, if one
/// was needed.
fn place<'a>(
    store: &'a FileStore,
    jobs: &[FileFlush],
    pieces: Vec<PlannedExtent>,
    handle: Option<Handle<'a>>,
    placed: &mut Vec<AllocatedExtent>,
) -> Result<Option<Handle<'a>>> {
    let needs_space = pieces.iter().any(|piece| piece.form.is_new_extent());
    let mut handle = match handle {
        None if needs_space => Some(store.begin_flush(Charge::default())?),
        other => other,
    };
    let put = |piece_job, range, place, at, data| AllocatedExtent {
        stored: WrittenExtent { job: piece_job, range, place, checksums: None },
        at,
        data,
    };
    for PlannedExtent { job, range, form } in pieces {
        let runs = &jobs[job].runs;
        match (form, &mut handle) {
            (Form::Inline { bytes, compression, ram_bytes }, _) => {
                let place = Place::Inline { bytes, compression, ram_bytes };
                placed.push(put(job, range, place, None, Vec::new()));
            }
            (Form::InPlace(logical), _) => {
                placed.push(put(job, range, Place::Present, Some(logical), slices(runs, range)));
            }
            (Form::Compressed { bytes, compression }, Some(handle)) => {
                let length = bytes.len() as u64;
                let extent = handle.allocate_data(length, length)?;
                if extent.length == length {
                    store.engine().reservations().place_data(length);
                } else {
                    // Free space is in pieces smaller than this; bytes as they are can go into several.
                    handle.release_data(extent);
                    place_plain(store, handle, runs, (job, range), placed)?;
                    continue;
                }
                let place = Place::New { extent, compression };
                placed.push(put(
                    job,
                    range,
                    place,
                    Some(extent.logical),
                    vec![Data::Inside(Arc::new(bytes))],
                ));
            }
            (Form::Plain, Some(handle)) => place_plain(store, handle, runs, (job, range), placed)?,
            (Form::Plain | Form::Compressed { .. }, None) => {
                unreachable!("a handle was opened for what needs space")
            }
        }
    }
    Ok(handle)
}

fn place_plain(
    store: &FileStore,
    handle: &mut Handle<'_>,
    runs: &Runs,
    (job, range): (usize, ByteRange),
    placed: &mut Vec<AllocatedExtent>,
) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let mut at = range.start();
    while at < range.end() {
        let extent = handle.allocate_data(sector_size, range.end() - at)?;
        store.engine().reservations().place_data(extent.length);
        let part = ByteRange::with_length(at, extent.length).unwrap_or(range);
        let place = Place::New { extent, compression: CompressionId::NONE };
        placed.push(AllocatedExtent {
            stored: WrittenExtent { job, range: part, place, checksums: None },
            at: Some(extent.logical),
            data: slices(runs, part),
        });
        at = part.end();
    }
    Ok(())
}

/// The bytes of a range, run by run, without a copy.
fn slices(runs: &Runs, range: ByteRange) -> Vec<Data> {
    let mut slices = Vec::new();
    for (start, run) in runs.overlapping_shared(range) {
        let Some(whole) = ByteRange::with_length(start, run.len() as u64) else { continue };
        let Some(part) = whole.intersection(range) else { continue };
        if part == whole {
            slices.push(Data::Inside(Arc::clone(run) as _));
            continue;
        }
        let part = (part.start() - start) as usize..(part.end() - start) as usize;
        slices.push(Data::Inside(Arc::new(Slice { run: Arc::clone(run), part })));
    }
    slices
}

type PieceChecksums = Option<(Logical, Vec<u8>)>;

/// Starts to write everything; nothing where all of it goes into items.
fn submit(store: &FileStore, placed: &[AllocatedExtent]) -> Result<Option<PendingWrites>> {
    let mut requests = Vec::new();
    for piece in placed {
        let Some(mut logical) = piece.at else { continue };
        for data in &piece.data {
            requests.push(WriteRequest { logical, data: data.clone() });
            logical = Logical(logical.0 + data.as_slice().len() as u64);
        }
    }
    if requests.is_empty() {
        return Ok(None);
    }
    Ok(Some(store.engine().volume().submit_writes(requests)?))
}

/// The checksums of each piece that needs some.
fn checksums_of(store: &FileStore, jobs: &[FileFlush], placed: &[AllocatedExtent]) -> Vec<PieceChecksums> {
    let sector_bytes = store.sector_size() as usize;
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut part_counts = Vec::with_capacity(placed.len());
    for piece in placed {
        let first = parts.len();
        let has_checksums = !jobs[piece.stored.job].node.flags().has(InodeFlags::NODATASUM);
        if piece.at.is_some() && has_checksums {
            parts.extend(piece.data.iter().flat_map(|data| data.as_slice().chunks(CHECKSUM_BYTES)));
        }
        part_counts.push(parts.len() - first);
    }
    let kind = store.engine().volume().geometry().checksum_kind;
    let mut checksums = checksums::of_pieces(kind, &parts, sector_bytes).into_iter();
    let mut by_piece = Vec::with_capacity(placed.len());
    for (piece, count) in placed.iter().zip(part_counts) {
        let joined: Vec<u8> = checksums.by_ref().take(count).flatten().collect();
        by_piece.push(piece.at.filter(|_| count > 0).map(|at| (at, joined)));
    }
    by_piece
}
