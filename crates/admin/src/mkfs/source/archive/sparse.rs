//! The map of a sparse file: which ranges of it the archive holds. GNU tar's own form has it in the header
//! and in blocks behind that, its PAX forms in records or before the data.

use super::fault::ArchiveFault;
use super::header::number;
use super::input::{BLOCK_BYTES, Input};

/// Bytes of the longest map that is taken: some millions of ranges.
const MAX_MAP_BYTES: u64 = 64 << 20;

/// Ranges of a file, and its length.
pub(super) struct SparseMap {
    /// Offsets and lengths.
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) size: u64,
}

impl SparseMap {
    /// Of GNU tar's old form: the header's, and those of the blocks behind it, which are read.
    ///
    /// # Errors
    /// [`ArchiveFault::SparseMap`], and what reading met.
    pub(super) fn of_header(
        header: &[u8; BLOCK_BYTES],
        path: &[u8],
        input: &mut Input,
    ) -> Result<Self, ArchiveFault> {
        let fail = || ArchiveFault::SparseMap { path: path.to_vec() };
        let mut ranges = Vec::new();
        read_ranges(&header[386..482], &mut ranges).ok_or_else(fail)?;
        let size = number(&header[483..495]).and_then(|size| u64::try_from(size).ok()).ok_or_else(fail)?;
        let mut goes_on = header[482] != 0;
        let mut read_bytes = 0;
        while goes_on {
            read_bytes += BLOCK_BYTES as u64;
            if read_bytes > MAX_MAP_BYTES {
                return Err(ArchiveFault::TooLong { found: read_bytes, most: MAX_MAP_BYTES });
            }
            let block = input.block()?.ok_or(ArchiveFault::Incomplete)?;
            read_ranges(&block[..504], &mut ranges).ok_or_else(fail)?;
            goes_on = block[504] != 0;
        }
        Ok(Self { ranges, size })
    }

    /// Of the newest PAX form: decimal numbers before the data, a line each, the number of ranges first.
    /// Gives the bytes that they take, too.
    ///
    /// # Errors
    /// [`ArchiveFault::SparseMap`], and what reading met.
    pub(super) fn before_data(
        size: u64,
        stored_bytes: u64,
        path: &[u8],
        input: &mut Input,
    ) -> Result<(Self, u64), ArchiveFault> {
        let fail = || ArchiveFault::SparseMap { path: path.to_vec() };
        let mut read_bytes = 0_u64;
        let mut numbers = Vec::new();
        let mut wanted = None;
        let mut line = Vec::new();
        while wanted.is_none_or(|wanted| numbers.len() < wanted) {
            if read_bytes >= stored_bytes.min(MAX_MAP_BYTES) {
                return Err(fail());
            }
            let block = input.block()?.ok_or(ArchiveFault::Incomplete)?;
            read_bytes += BLOCK_BYTES as u64;
            for byte in block {
                match byte {
                    b'\n' => {
                        let text = std::str::from_utf8(&line).map_err(|_| fail())?;
                        let number: u64 = text.parse().map_err(|_| fail())?;
                        line.clear();
                        match wanted {
                            None => {
                                let count =
                                    usize::try_from(number).ok().and_then(|count| count.checked_mul(2));
                                wanted = Some(count.ok_or_else(fail)?);
                            }
                            Some(_) => numbers.push(number),
                        }
                        if wanted.is_some_and(|wanted| numbers.len() >= wanted) {
                            break;
                        }
                    }
                    // No number of 64 bits is longer.
                    b'0'..=b'9' if line.len() < 20 => line.push(byte),
                    _ => return Err(fail()),
                }
            }
        }
        let ranges = numbers.as_chunks::<2>().0.iter().map(|[offset, length]| (*offset, *length)).collect();
        Ok((Self { ranges, size }, read_bytes))
    }

    /// Sees that the ranges follow each other within the file, and make up the bytes that are stored.
    ///
    /// # Errors
    /// [`ArchiveFault::SparseMap`].
    pub(super) fn check(&self, stored_bytes: u64, path: &[u8]) -> Result<(), ArchiveFault> {
        let fail = || ArchiveFault::SparseMap { path: path.to_vec() };
        let (mut end, mut sum) = (0, 0_u64);
        for (offset, length) in &self.ranges {
            if *offset < end {
                return Err(fail());
            }
            end = offset.checked_add(*length).ok_or_else(fail)?;
            sum = sum.checked_add(*length).ok_or_else(fail)?;
        }
        if end > self.size || sum != stored_bytes || i64::try_from(self.size).is_err() {
            return Err(fail());
        }
        Ok(())
    }
}

/// Pairs of numbers of 12 bytes, up to one that is empty.
fn read_ranges(field: &[u8], ranges: &mut Vec<(u64, u64)>) -> Option<()> {
    for pair in field.chunks_exact(24) {
        if pair[0] == 0 {
            break;
        }
        let read = |part: &[u8]| number(part).and_then(|number| u64::try_from(number).ok());
        ranges.push((read(&pair[..12])?, read(&pair[12..])?));
    }
    Some(())
}
