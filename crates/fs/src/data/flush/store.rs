//! Bytes go to the devices: space is taken, everything written in one batch, checksums worked out meanwhile.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_device::Data;
use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{Charge, DataExtent, Handle, Reservation};
use vlinder_volume::{PendingWrites, WriteRequest};

use super::Job;
use super::plan::{Form, Piece, Plan};
use crate::data::checksums;
use crate::data::runs::Runs;
use crate::{Filesystem, Result};

/// Bytes that one thread works out checksums of at a time.
const CHECKSUM_BYTES: usize = 256 * 1024;

/// A piece of a file whose bytes are on the devices, or in the item to come.
#[derive(Debug)]
pub(in crate::data) struct Stored {
    pub(super) job: usize,
    pub(super) range: ByteRange,
    pub(super) place: Place,
    /// Where checksums have to be entered, and which.
    pub(super) checksums: Option<(Logical, Vec<u8>)>,
}

impl Stored {
    /// Bytes that go into the file's item.
    pub(super) fn inline_bytes(&self) -> u64 {
        match &self.place {
            Place::Inline { bytes, .. } => bytes.len() as u64,
            Place::New { .. } | Place::Present => 0,
        }
    }

    /// Whether it was written to space that the file had.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.place, Place::Present)
    }

    /// Bytes of its checksums.
    pub(super) fn checksum_bytes(&self) -> u64 {
        self.checksums.as_ref().map_or(0, |(_, checksums)| checksums.len() as u64)
    }

    /// Bytes of its new extent; 0 if it has none.
    pub(super) fn new_bytes(&self) -> u64 {
        match self.place {
            Place::New { extent, .. } => extent.length,
            Place::Inline { .. } | Place::Present => 0,
        }
    }
}

/// Where bytes are.
#[derive(Debug)]
pub(in crate::data) enum Place {
    /// In the item.
    Inline { bytes: Vec<u8>, compression: CompressionId, ram_bytes: u64 },
    /// In a new extent.
    New { extent: DataExtent, compression: CompressionId },
    /// Where the file had space already.
    Present,
}

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
struct Placed {
    stored: Stored,
    at: Option<Logical>,
    data: Vec<Data>,
}

/// Pieces on their way to the devices.
#[must_use = "what is not waited for is written to space that nobody gives back"]
pub(super) struct Storing {
    stored: Vec<Stored>,
    pending: Option<PendingWrites>,
}

impl Storing {
    /// Waits until everything is on the devices. On an error the space that was taken is given back.
    pub(super) fn finish(self, filesystem: &Filesystem) -> Result<Vec<Stored>> {
        self.finish_holding(filesystem, None)
    }

    /// As [`finish`](Self::finish), with a handle that stays open until everything is written.
    fn finish_holding(self, filesystem: &Filesystem, held: Option<Handle<'_>>) -> Result<Vec<Stored>> {
        let Self { stored, pending } = self;
        let written = pending.map_or(Ok(()), PendingWrites::wait);
        // Giving back takes a handle of its own.
        drop(held);
        match written {
            Ok(()) => Ok(stored),
            Err(error) => {
                release(filesystem, &stored);
                Err(filesystem.engine().or_host_full(error.into()).into())
            }
        }
    }

    /// Gives the space back. Only once nothing is written to it any more: the next owner's bytes would be
    /// lost.
    pub(super) fn abandon(self, filesystem: &Filesystem) {
        match self.finish(filesystem) {
            Ok(stored) => release(filesystem, &stored),
            Err(error) => tracing::debug!(%error, "what could not be written was not to be kept"),
        }
    }
}

/// Stores what was planned. On an error the space that was taken is given back.
pub(super) fn store<'a>(filesystem: &'a Filesystem, jobs: &[Job], plan: Plan<'a>) -> Result<Vec<Stored>> {
    let (storing, held) = start_holding(filesystem, jobs, plan)?;
    storing.finish_holding(filesystem, held)
}

/// Takes space for what was planned, nothing of it in place, starts to write it, and works out its checksums
/// meanwhile. On an error the space that was taken is given back.
pub(super) fn start(filesystem: &Filesystem, jobs: &[Job], plan: Plan<'_>) -> Result<Storing> {
    let (storing, held) = start_holding(filesystem, jobs, plan)?;
    assert!(held.is_none(), "what is overwritten in place is waited for");
    Ok(storing)
}

/// As [`start`], for anything. A handle that comes back has to stay open until everything is written, because
/// something is overwritten in place.
fn start_holding<'a>(
    filesystem: &'a Filesystem,
    jobs: &[Job],
    plan: Plan<'a>,
) -> Result<(Storing, Option<Handle<'a>>)> {
    let Plan { pieces, handle } = plan;
    let overwrites = handle.is_some();
    let mut placed = Vec::with_capacity(pieces.len());
    let result = place(filesystem, jobs, pieces, handle, &mut placed).and_then(|handle| {
        let held = handle.filter(|_| overwrites);
        Ok((submit(filesystem, &placed)?, held))
    });
    let checksums = match &result {
        Ok((Some(_), _)) => checksums_of(filesystem, jobs, &placed),
        Ok((None, _)) | Err(_) => Vec::new(),
    };
    let mut stored: Vec<Stored> = placed.into_iter().map(|placed| placed.stored).collect();
    for (stored, checksums) in stored.iter_mut().zip(checksums) {
        stored.checksums = checksums;
    }
    match result {
        Ok((pending, held)) => Ok((Storing { stored, pending }, held)),
        Err(error) => {
            release(filesystem, &stored);
            Err(error)
        }
    }
}

/// Gives back the space of pieces that no item refers to.
pub(super) fn release(filesystem: &Filesystem, stored: &[Stored]) {
    let taken: Vec<DataExtent> = stored
        .iter()
        .filter_map(|stored| match stored.place {
            Place::New { extent, .. } => Some(extent),
            Place::Inline { .. } | Place::Present => None,
        })
        .collect();
    if taken.is_empty() {
        return;
    }
    filesystem.engine().displace_promised_data(taken.iter().map(|extent| extent.length).sum());
    match filesystem.engine().begin(Reservation::accepted(0)) {
        Ok(mut handle) => taken.into_iter().for_each(|extent| handle.release_data(extent)),
        // The file system is read-only then; the space is free again when it is opened the next time.
        Err(error) => tracing::debug!(%error, "space of data that could not be written stays taken"),
    }
}

/// Takes space for the pieces that need it; plain ones may get several extents. Gives the handle back, if one
/// was needed.
fn place<'a>(
    filesystem: &'a Filesystem,
    jobs: &[Job],
    pieces: Vec<Piece>,
    handle: Option<Handle<'a>>,
    placed: &mut Vec<Placed>,
) -> Result<Option<Handle<'a>>> {
    let needs_space = pieces.iter().any(|piece| piece.form.is_new_extent());
    let mut handle = match handle {
        None if needs_space => Some(super::begin(filesystem, Charge::default())?),
        other => other,
    };
    let put = |piece_job, range, place, at, data| Placed {
        stored: Stored { job: piece_job, range, place, checksums: None },
        at,
        data,
    };
    for Piece { job, range, form } in pieces {
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
                    filesystem.engine().place_promised_data(length);
                } else {
                    // Free space is in pieces smaller than this; bytes as they are can go into several.
                    handle.release_data(extent);
                    place_plain(filesystem, handle, runs, (job, range), placed)?;
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
            (Form::Plain, Some(handle)) => place_plain(filesystem, handle, runs, (job, range), placed)?,
            (Form::Plain | Form::Compressed { .. }, None) => {
                unreachable!("a handle was opened for what needs space")
            }
        }
    }
    Ok(handle)
}

fn place_plain(
    filesystem: &Filesystem,
    handle: &mut Handle<'_>,
    runs: &Runs,
    (job, range): (usize, ByteRange),
    placed: &mut Vec<Placed>,
) -> Result<()> {
    let sector_size = u64::from(filesystem.sector_size());
    let mut at = range.start();
    while at < range.end() {
        let extent = handle.allocate_data(sector_size, range.end() - at)?;
        filesystem.engine().place_promised_data(extent.length);
        let part = ByteRange::with_length(at, extent.length).unwrap_or(range);
        let place = Place::New { extent, compression: CompressionId::NONE };
        placed.push(Placed {
            stored: Stored { job, range: part, place, checksums: None },
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
fn submit(filesystem: &Filesystem, placed: &[Placed]) -> Result<Option<PendingWrites>> {
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
    Ok(Some(filesystem.engine().volume().submit_writes(requests)?))
}

/// The checksums of each piece that needs some.
fn checksums_of(filesystem: &Filesystem, jobs: &[Job], placed: &[Placed]) -> Vec<PieceChecksums> {
    let sector_bytes = filesystem.sector_size() as usize;
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut part_counts = Vec::with_capacity(placed.len());
    for piece in placed {
        let first = parts.len();
        let has_checksums = !jobs[piece.stored.job].inode.flags().has(InodeFlags::NODATASUM);
        if piece.at.is_some() && has_checksums {
            parts.extend(piece.data.iter().flat_map(|data| data.as_slice().chunks(CHECKSUM_BYTES)));
        }
        part_counts.push(parts.len() - first);
    }
    let kind = filesystem.engine().checksum_kind();
    let mut checksums = checksums::of_pieces(kind, &parts, sector_bytes).into_iter();
    let mut by_piece = Vec::with_capacity(placed.len());
    for (piece, count) in placed.iter().zip(part_counts) {
        let joined: Vec<u8> = checksums.by_ref().take(count).flatten().collect();
        by_piece.push(piece.at.filter(|_| count > 0).map(|at| (at, joined)));
    }
    by_piece
}
