//! Reading bytes wherever they are: what is not flushed yet, then what is on disk, without a lock as long as
//! nothing of the file changes.

use vlinder_extent_state::ByteRange;

use crate::Result;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::reader::Reader;
use crate::sectors::whole_sectors;

/// Reads bytes of a file without a look at the size: what lies behind the end of the file is zeros, or what
/// preallocation and partial sectors hold there.
pub(crate) fn read_whole(
    store: &FileStore,
    node: &FileNode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<()> {
    let reader = Reader { store, node, cache, base: offset };
    match reader.read_while_nothing_changes(target) {
        Some(result) => result,
        None => reader.read_locked(target),
    }
}

impl Reader<'_> {
    /// Reads without a lock; none if extents were entered into the file meanwhile, or are being entered: then
    /// items may have been looked up in the middle of that, and what they referred to may be another file's
    /// by the time it was read.
    fn read_while_nothing_changes(&self, target: &mut [u8]) -> Option<Result<()>> {
        let version = self.node.data().version();
        let unflushed = self.node.data().unflushed();
        let gaps = if unflushed.is_empty() { None } else { Some(unflushed.copy_to(self.base, target)) };
        drop(unflushed);
        let result = match (gaps, version) {
            (Some(gaps), _) if gaps.is_empty() => return Some(Ok(())),
            (_, None) => return None,
            (None, Some(version)) if self.may_read_ahead() => {
                let range = ByteRange::with_length(self.base, target.len() as u64)?;
                self.read_with_more(version, range, target)
            }
            (None, _) => self.read_range(ByteRange::with_length(self.base, target.len() as u64)?, target),
            (Some(gaps), _) => self.read_gaps(gaps, target),
        };
        (self.node.data().version() == version).then_some(result)
    }

    /// Reads with the range locked.
    fn read_locked(&self, target: &mut [u8]) -> Result<()> {
        let write_back = self.store.write_back();
        write_back.metrics.locked_reads.increment();
        let range = ByteRange::with_length(self.base, target.len() as u64).unwrap_or_default();
        let sectors = whole_sectors(range, u64::from(self.store.sector_size()));
        let _range = self.node.data().lock_range(write_back.state_maps(), self.id(), sectors)?;
        let gaps = self.node.data().unflushed().copy_to(self.base, target);
        self.read_gaps(gaps, target)
    }
}
