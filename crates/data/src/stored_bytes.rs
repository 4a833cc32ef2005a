//! Bytes of extents as they are stored, of a state that stands still: many runs in one batch, every sector
//! verified.

use vlinder_forest::{ChecksumLookup, ExpectedChecksums, ForestError, MissingChecksum};
use vlinder_format::Logical;
use vlinder_volume::{ReadRequest, Verified, Volume, VolumeError};

/// Where the bytes of files are read, each sector compared with its checksum.
pub struct ContentSource<'a> {
    /// The devices.
    pub volume: &'a Volume,
    /// The checksums of the state that is read.
    pub checksums: ChecksumLookup<'a>,
    /// Bytes of a sector.
    pub sector_bytes: u32,
}

/// Stored bytes that are wanted. Whole sectors are read, for their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRun {
    /// An address that begins a sector.
    pub start: Logical,
    /// Bytes.
    pub length: u64,
    /// Whether the sectors have checksums.
    pub has_checksums: bool,
}

/// Bytes on the devices, each read once, for several runs.
pub struct StoredBytes {
    requests: Vec<(ReadRun, Vec<u8>)>,
    /// The request and the first byte in it, for each run.
    places: Vec<(usize, usize)>,
}

/// Why stored bytes can't be had.
#[derive(Debug, thiserror::Error)]
pub enum StoredBytesError {
    /// The checksum tree could not be read.
    #[error(transparent)]
    Forest(#[from] ForestError),
    /// No copy of a sector is good.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A sector has no checksum, and its file says that it has.
    #[error("the data at {} have no checksum; check the file system", .0.logical)]
    MissingChecksum(MissingChecksum),
}

/// Sectors that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadRun {
    start: u64,
    end: u64,
    has_checksums: bool,
}

impl StoredBytes {
    /// Reads what the runs need, all at once, and compares each sector with its checksum.
    ///
    /// # Errors
    /// No copy of a sector is good; a sector has no checksum.
    pub fn read(
        source: &ContentSource<'_>,
        runs: impl Iterator<Item = StoredRun>,
    ) -> Result<Self, StoredBytesError> {
        let sector_bytes = u64::from(source.sector_bytes);
        let wanted = runs.map(|StoredRun { start, length, has_checksums }| {
            let end = start.0.saturating_add(length.next_multiple_of(sector_bytes));
            ReadRun { start: start.0, end, has_checksums }
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
        let with_bytes = |(run, answer): (ReadRun, Result<Verified<Vec<u8>>, VolumeError>)| {
            answer.map(|verified| (run, verified.value))
        };
        let requests = runs.into_iter().zip(answers).map(with_bytes).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { requests, places })
    }

    /// The bytes of the run of this number, in the order in which the runs were given.
    pub fn of(&self, number: usize, length: u64) -> &[u8] {
        let Some((request, skip)) = self.places.get(number) else { return &[] };
        let Some((_, bytes)) = self.requests.get(*request) else { return &[] };
        let rest = bytes.get(*skip..).unwrap_or_default();
        rest.get(..usize::try_from(length).unwrap_or(usize::MAX)).unwrap_or(rest)
    }
}

fn expected(
    source: &ContentSource<'_>,
    run: &ReadRun,
) -> Result<Option<ExpectedChecksums>, StoredBytesError> {
    if !run.has_checksums {
        return Ok(None);
    }
    let found = source.checksums.expected(Logical(run.start), run.end - run.start)?;
    found.map(Some).map_err(StoredBytesError::MissingChecksum)
}

/// Requests for runs that follow one another on the devices, or show the same bytes, and each run's place.
fn joined(
    runs: impl Iterator<Item = ReadRun>,
    is_one_chunk: impl Fn(ReadRun) -> bool,
) -> (Vec<ReadRun>, Vec<(usize, usize)>) {
    let (mut requests, mut places) = (Vec::<ReadRun>::new(), Vec::new());
    for run in runs {
        let last = requests.last_mut().filter(|request| {
            let follows = (request.start..=request.end).contains(&run.start);
            follows && request.has_checksums == run.has_checksums
        });
        let longer = last.as_ref().map(|request| ReadRun { end: request.end.max(run.end), ..**request });
        match last.zip(longer) {
            Some((request, longer)) if *request == longer || is_one_chunk(longer) => *request = longer,
            _ => requests.push(run),
        }
        let number = requests.len() - 1;
        let skip = requests.last().map_or(0, |request| run.start - request.start);
        places.push((number, usize::try_from(skip).unwrap_or(usize::MAX)));
    }
    (requests, places)
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
        let wanted = [run(0, 100), run(100, 200), run(150, 160), run(200, 300), bare, run(10, 20)];
        let (runs, places) = joined(wanted.into_iter(), |_| true);
        assert_eq!(runs, [run(0, 300), bare, run(10, 20)]);
        assert_eq!(places, [(0, 0), (0, 100), (0, 150), (0, 200), (1, 0), (2, 0)]);
        let (runs, places) = joined(wanted.into_iter(), |run| run.end <= 200);
        assert_eq!(runs, [run(0, 200), run(200, 300), bare, run(10, 20)]);
        assert_eq!(places, [(0, 0), (0, 100), (0, 150), (1, 0), (2, 0), (3, 0)]);
    }
}
