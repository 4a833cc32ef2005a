//! Parts of two files that are read and compared, many in one batch.

use vlinder_codec::compress::{Compression, decompress};
use vlinder_data::{ContentSource, StoredBytes, StoredRun};
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::{Logical, ObjectId, RootId};

use super::{ContentFault, DiffError};

/// Stored bytes that are read in one batch.
const MAX_BATCH_BYTES: u64 = 8 << 20;
/// Parts that wait for each other.
const MAX_BATCH_PARTS: usize = 4096;

/// A part of both files in which each side has one extent, or zeros.
pub(super) struct Part {
    pub range: ByteRange,
    /// None for zeros.
    pub old: Option<PartBytes>,
    /// None for zeros.
    pub new: Option<PartBytes>,
}

/// Where the bytes of a part are.
pub(super) enum PartBytes {
    /// In the item.
    Item { stored: Vec<u8>, form: StoredForm },
    /// On the devices.
    Disk { run: StoredRun, form: StoredForm },
}

/// What is to be done about a range, in the order of offsets.
enum Waiting {
    /// Its bytes are to be read and compared.
    Read(Part),
    /// Bytes differ in each of its sectors.
    Differs(ByteRange),
}

impl Part {
    /// A range of the part that begins so many bytes, whole sectors, behind its start.
    fn narrowed(&self, range: ByteRange, skipped: u64) -> Self {
        let narrowed = |bytes: &PartBytes| match bytes {
            PartBytes::Disk { run, form } => {
                let start = Logical(run.start.0.saturating_add(skipped));
                let run = StoredRun { start, length: range.length_bytes(), ..*run };
                Some(PartBytes::Disk { run, form: *form })
            }
            PartBytes::Item { .. } => None,
        };
        Self { range, old: self.old.as_ref().and_then(narrowed), new: self.new.as_ref().and_then(narrowed) }
    }
}

/// How stored bytes become those of the file. Zeros follow their end.
#[derive(Clone, Copy)]
pub(super) enum StoredForm {
    /// They are those of the file, from `skip` on.
    Plain { skip: u64 },
    /// Decompressed, they are those of the file from `skip` on.
    Compressed { compression: CompressionId, decompressed_bytes: u64, skip: u64 },
}

impl PartBytes {
    /// Whether each sector of the file here is one on the devices, and has a checksum.
    fn has_plain_checksums(&self) -> bool {
        matches!(self, Self::Disk { run, form: StoredForm::Plain { skip: 0 } } if run.has_checksums)
    }

    fn run(&self) -> Option<StoredRun> {
        match self {
            Self::Item { .. } => None,
            Self::Disk { run, .. } => Some(*run),
        }
    }
}

/// The parts of one pair of files that are still to be compared, and what was found of the others.
pub(super) struct Parts<'s, 'a> {
    source: &'s ContentSource<'a>,
    /// The files, for errors.
    files: [(RootId, ObjectId); 2],
    waiting: Vec<Waiting>,
    waiting_bytes: u64,
    sectors: ChangedSectors,
}

impl<'s, 'a> Parts<'s, 'a> {
    /// For two files of which the shorter one ends at `common_bytes`.
    pub fn new(source: &'s ContentSource<'a>, files: [(RootId, ObjectId); 2], common_bytes: u64) -> Self {
        let sectors = ChangedSectors::new(u64::from(source.sector_bytes), common_bytes);
        Self { source, files, waiting: Vec::new(), waiting_bytes: 0, sectors }
    }

    /// Takes in a part, which lies behind all others.
    pub fn add(&mut self, part: Part) -> Result<(), DiffError> {
        let Some(differ) = self.judge_by_checksums(&part)? else { return self.wait(Waiting::Read(part)) };
        let sector_bytes = u64::from(self.source.sector_bytes);
        let mut at = part.range.start();
        for run in differ.chunk_by(|one, other| one == other) {
            let length = sector_bytes.saturating_mul(run.len() as u64);
            let end = at.saturating_add(length).min(part.range.end());
            let range = ByteRange::new(at, end).unwrap_or_default();
            let skipped = at - part.range.start();
            self.wait(match run.first() {
                Some(true) => Waiting::Differs(range),
                _ => Waiting::Read(part.narrowed(range, skipped)),
            })?;
            at = end;
        }
        Ok(())
    }

    /// Which sectors of a part are known to differ by their checksums alone; none where those say nothing.
    fn judge_by_checksums(&self, part: &Part) -> Result<Option<Vec<bool>>, DiffError> {
        let sector_bytes = u64::from(self.source.sector_bytes);
        let is_told = |bytes: &Option<PartBytes>| bytes.as_ref().is_none_or(PartBytes::has_plain_checksums);
        if !part.range.start().is_multiple_of(sector_bytes) || !is_told(&part.old) || !is_told(&part.new) {
            return Ok(None);
        }
        let length = part.range.length_bytes().next_multiple_of(sector_bytes);
        let mut expected = [None, None];
        for (expected, bytes) in expected.iter_mut().zip([&part.old, &part.new]) {
            let Some(run) = bytes.as_ref().and_then(PartBytes::run) else { continue };
            // A sector without a checksum is told when it is read.
            let Ok(found) = self.source.checksums.expected(run.start, length)? else { return Ok(None) };
            *expected = Some(found);
        }
        let zeros = vec![0; to_length(sector_bytes)];
        let whole = to_length(part.range.length_bytes() / sector_bytes);
        let differs = |sector: usize| match &expected {
            // What is behind the end of the file has its part in the checksum.
            _ if sector >= whole => false,
            [Some(old), Some(new)] => old.of_sector(sector) != new.of_sector(sector),
            [Some(one), None] | [None, Some(one)] => !one.is_good(sector, &zeros),
            [None, None] => false,
        };
        Ok(Some((0..to_length(length / sector_bytes)).map(differs).collect()))
    }

    fn wait(&mut self, waiting: Waiting) -> Result<(), DiffError> {
        let Waiting::Read(part) = &waiting else {
            self.waiting.push(waiting);
            return if self.waiting.len() >= MAX_BATCH_PARTS { self.compare() } else { Ok(()) };
        };
        let runs = [&part.old, &part.new].into_iter().flatten().filter_map(PartBytes::run);
        let bytes = runs.map(|run| run.length).fold(part.range.length_bytes(), u64::saturating_add);
        self.waiting.push(waiting);
        self.waiting_bytes = self.waiting_bytes.saturating_add(bytes);
        if self.waiting_bytes >= MAX_BATCH_BYTES || self.waiting.len() >= MAX_BATCH_PARTS {
            self.compare()?;
        }
        Ok(())
    }

    /// Compares what is left, and gives the bytes of the sectors that differ.
    pub fn finish(mut self) -> Result<u64, DiffError> {
        self.compare()?;
        Ok(self.sectors.bytes)
    }

    fn compare(&mut self) -> Result<(), DiffError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let parts = || {
            waiting.iter().filter_map(|waiting| match waiting {
                Waiting::Read(part) => Some(part),
                Waiting::Differs(_) => None,
            })
        };
        let first = parts().next().map_or(0, |part| part.range.start());
        let fail = |side: usize, offset: u64, fault: ContentFault| {
            let (subvolume, inode) = self.files[side.min(1)];
            DiffError::Content { subvolume, inode, offset, fault }
        };
        let sides: [fn(&Part) -> Option<&PartBytes>; 2] =
            [|part| part.old.as_ref(), |part| part.new.as_ref()];
        let mut read = Vec::new();
        for (side, of) in sides.into_iter().enumerate() {
            let runs = parts().filter_map(of).filter_map(PartBytes::run);
            let stored = StoredBytes::read(self.source, runs);
            read.push(stored.map_err(|error| fail(side, first, error.into()))?);
        }
        let mut shown = [Shown::default(), Shown::default()];
        for waiting in &waiting {
            let part = match waiting {
                Waiting::Read(part) => part,
                Waiting::Differs(range) => {
                    self.sectors.mark(*range);
                    continue;
                }
            };
            let length = to_length(part.range.length_bytes());
            for (side, (shown, stored)) in shown.iter_mut().zip(&read).enumerate() {
                shown
                    .take(sides[side](part), stored, length, self.source.sector_bytes)
                    .map_err(|fault| fail(side, part.range.start(), fault))?;
            }
            let [old, new] = &shown;
            self.sectors.compare(part.range.start(), &old.bytes, &new.bytes);
        }
        Ok(())
    }
}

/// The bytes of one file in a part.
#[derive(Default)]
struct Shown {
    bytes: Vec<u8>,
    /// Runs taken from the batch so far.
    taken: usize,
    /// The compressed extent that was decompressed last; several parts often show one.
    last: Option<Logical>,
    decompressed: Vec<u8>,
}

impl Shown {
    fn take(
        &mut self,
        part: Option<&PartBytes>,
        stored: &StoredBytes,
        length: usize,
        sector_bytes: u32,
    ) -> Result<(), ContentFault> {
        self.bytes.clear();
        let (raw, address, form) = match part {
            None => {
                self.bytes.resize(length, 0);
                return Ok(());
            }
            Some(PartBytes::Item { stored, form }) => (&stored[..], None, *form),
            Some(PartBytes::Disk { run, form }) => {
                self.taken = self.taken.saturating_add(1);
                (stored.of(self.taken.saturating_sub(1), run.length), Some(run.start), *form)
            }
        };
        let (from, skip) = match form {
            StoredForm::Plain { skip } => (raw, skip),
            StoredForm::Compressed { compression, decompressed_bytes, skip } => {
                self.decompress(address, raw, (compression, decompressed_bytes), sector_bytes)?;
                (&self.decompressed[..], skip)
            }
        };
        let from = from.get(to_length(skip)..).unwrap_or_default();
        self.bytes.extend_from_slice(from.get(..length).unwrap_or(from));
        self.bytes.resize(length, 0);
        Ok(())
    }

    fn decompress(
        &mut self,
        address: Option<Logical>,
        raw: &[u8],
        (method, length): (CompressionId, u64),
        sector_bytes: u32,
    ) -> Result<(), ContentFault> {
        if address.is_some() && self.last == address {
            return Ok(());
        }
        let unknown = ContentFault::UnknownCompression { method: method.0 };
        let compression = Compression::from_disk(method.0).ok_or(unknown)?;
        self.last = None;
        self.decompressed.clear();
        self.decompressed.resize(to_length(length), 0);
        decompress(compression, raw, &mut self.decompressed, to_length(u64::from(sector_bytes)))?;
        self.last = address;
        Ok(())
    }
}

/// The sectors in which bytes differ, in the order of their offsets.
struct ChangedSectors {
    sector_bytes: u64,
    /// The end of the shorter file: what is behind it is not compared.
    common_bytes: u64,
    /// Bytes of the sectors that differ.
    bytes: u64,
    /// The end of the last of them.
    counted_to: u64,
}

impl ChangedSectors {
    fn new(sector_bytes: u64, common_bytes: u64) -> Self {
        Self { sector_bytes, common_bytes, bytes: 0, counted_to: 0 }
    }

    /// Compares bytes that both files have at an offset.
    fn compare(&mut self, mut offset: u64, mut old: &[u8], mut new: &[u8]) {
        while !old.is_empty() && offset < self.common_bytes {
            let sector_end = offset.saturating_add(self.sector_bytes - offset % self.sector_bytes);
            let end = sector_end.min(self.common_bytes);
            let length = to_length(end - offset).min(old.len()).min(new.len());
            let ((is, old_rest), (becomes, new_rest)) = (old.split_at(length), new.split_at(length));
            if is != becomes {
                self.mark(ByteRange::new(offset, end).unwrap_or_default());
            }
            (old, new, offset) = (old_rest, new_rest, end);
        }
    }

    /// Bytes differ in each sector of a range.
    fn mark(&mut self, range: ByteRange) {
        let start = range.start() - range.start() % self.sector_bytes;
        let end = range.end().checked_next_multiple_of(self.sector_bytes);
        let end = end.map_or(self.common_bytes, |end| end.min(self.common_bytes));
        self.bytes = self.bytes.saturating_add(end.saturating_sub(start.max(self.counted_to)));
        self.counted_to = self.counted_to.max(end);
    }
}

fn to_length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_that_differ_are_counted_once() {
        let mut sectors = ChangedSectors::new(4096, 10_000);
        let (zeros, mut other) = (vec![0; 8192], vec![0; 8192]);
        sectors.compare(0, &zeros, &other);
        assert_eq!(sectors.bytes, 0);
        other[4095] = 1;
        sectors.compare(0, &zeros, &other);
        sectors.compare(0, &zeros, &other);
        assert_eq!(sectors.bytes, 4096);
        other[1] = 1;
        // The last sector ends with the file; what is behind does not count.
        sectors.compare(8192, &zeros[..4096], &other[..4096]);
        assert_eq!(sectors.bytes, 4096 + 1808);
        let mut sectors = ChangedSectors::new(4096, 8193);
        other[0] = 0;
        sectors.compare(8192, &zeros[..4096], &other[..4096]);
        assert_eq!(sectors.bytes, 0);
    }
}
