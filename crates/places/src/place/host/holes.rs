//! Where a file of the host holds data, and where it has holes.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The next run of data at or after an offset: start and end; none where only a hole follows. On a file
/// system that knows no holes all is data.
pub(super) fn next_data(file: &File, from: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => from,
        Err(errno) => return Err(errno),
    };
    let size = || rustix::fs::fstat(file).map(|status| status.st_size.unsigned_abs());
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).or_else(|_| size())?;
    Ok((end > start).then_some((start, end)))
}
