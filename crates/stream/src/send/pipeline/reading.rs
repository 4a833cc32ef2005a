//! The requests that a batch's pieces make.

use vlinder_forest::ExpectedChecksums;
use vlinder_format::Logical;
use vlinder_volume::ReadRequest;

use super::batch::Batch;
use super::piece::RawBytes;
use crate::send::{ContentSource, SendError};

/// The bytes of a batch's pieces on the devices, each read once.
pub(super) struct StoredBytes {
    runs: Vec<(ReadRun, Vec<u8>)>,
    /// ReadRun and first byte in it, for each piece that has bytes on the devices.
    places: Vec<(usize, usize)>,
}

/// Sectors that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadRun {
    start: u64,
    end: u64,
    has_checksums: bool,
}

impl StoredBytes {
    /// Reads what the pieces need, all at once, and compares each sector with its checksum.
    ///
    /// # Errors
    /// No copy of a sector is good; a sector has no checksum.
    pub fn read(source: &ContentSource<'_>, batch: &Batch) -> Result<Self, SendError> {
        let sector_bytes = u64::from(source.sector_bytes);
        let wanted = batch.pieces().filter_map(|piece| match piece.raw {
            RawBytes::Disk { start, length, has_checksums } => {
                let end = start.0.saturating_add(length.next_multiple_of(sector_bytes));
                Some(ReadRun { start: start.0, end, has_checksums })
            }
            RawBytes::Item(_) => None,
        });
        let is_one_chunk =
            |run: ReadRun| source.volume.chunk(Logical(run.start), run.end - run.start).is_ok();
        let (runs, places) = joined(wanted, is_one_chunk);
        let expected = runs.iter().map(|run| expected(source, run)).collect::<Result<Vec<_>, _>>()?;
        let request = |run: &ReadRun| {
            let length = usize::try_from(run.end - run.start).unwrap_or(usize::MAX);
            ReadRequest { logical: Logical(run.start), length }
        };
        let requests: Vec<ReadRequest> = runs.iter().map(request).collect();
        let mut is_good = |run: usize, sector: usize, bytes: &[u8]| {
            let expected = expected.get(run).and_then(Option::as_ref);
            expected.is_none_or(|expected| expected.is_good(sector, bytes))
        };
        let answers = source.volume.submit_reads(&requests).wait_data(&mut is_good);
        let with_bytes = |(run, answer): (ReadRun, Result<_, _>)| {
            answer.map(|verified: vlinder_volume::Verified<Vec<u8>>| (run, verified.value))
        };
        let runs = runs.into_iter().zip(answers).map(with_bytes).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { runs, places })
    }

    /// The bytes of the piece of this number among those on the devices.
    pub fn of(&self, number: usize, length: u64) -> &[u8] {
        let Some((run, skip)) = self.places.get(number) else { return &[] };
        let Some((_, bytes)) = self.runs.get(*run) else { return &[] };
        let rest = bytes.get(*skip..).unwrap_or_default();
        rest.get(..usize::try_from(length).unwrap_or(usize::MAX)).unwrap_or(rest)
    }
}

fn expected(source: &ContentSource<'_>, run: &ReadRun) -> Result<Option<ExpectedChecksums>, SendError> {
    if !run.has_checksums {
        return Ok(None);
    }
    let found = source.checksums.expected(Logical(run.start), run.end - run.start)?;
    found.map(Some).map_err(SendError::MissingChecksum)
}

/// Runs of pieces that follow one another on the devices, or show the same bytes, and each piece's place.
fn joined(
    pieces: impl Iterator<Item = ReadRun>,
    is_one_chunk: impl Fn(ReadRun) -> bool,
) -> (Vec<ReadRun>, Vec<(usize, usize)>) {
    let (mut runs, mut places) = (Vec::<ReadRun>::new(), Vec::new());
    for piece in pieces {
        let last = runs.last_mut().filter(|run| {
            let follows = (run.start..=run.end).contains(&piece.start);
            follows && run.has_checksums == piece.has_checksums
        });
        let longer = last.as_ref().map(|run| ReadRun { end: run.end.max(piece.end), ..**run });
        match last.zip(longer) {
            Some((run, longer)) if *run == longer || is_one_chunk(longer) => *run = longer,
            _ => runs.push(piece),
        }
        let number = runs.len() - 1;
        let skip = runs.last().map_or(0, |run| piece.start - run.start);
        places.push((number, usize::try_from(skip).unwrap_or(usize::MAX)));
    }
    (runs, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64) -> ReadRun {
        ReadRun { start, end, has_checksums: true }
    }

    #[test]
    fn neighbours_are_one_request_within_a_chunk() {
        let bare = ReadRun { has_checksums: false, ..run(300, 310) };
        let pieces = [run(0, 100), run(100, 200), run(150, 160), run(200, 300), bare, run(10, 20)];
        let (runs, places) = joined(pieces.into_iter(), |_| true);
        assert_eq!(runs, [run(0, 300), bare, run(10, 20)]);
        assert_eq!(places, [(0, 0), (0, 100), (0, 150), (0, 200), (1, 0), (2, 0)]);
        let (runs, places) = joined(pieces.into_iter(), |run| run.end <= 200);
        assert_eq!(runs, [run(0, 200), run(200, 300), bare, run(10, 20)]);
        assert_eq!(places, [(0, 0), (0, 100), (0, 150), (1, 0), (2, 0), (3, 0)]);
    }
}
