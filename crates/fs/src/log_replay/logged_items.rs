//! The log of one subvolume, as it is looked up while it is replayed.

use vlinder_base::sync::Arc;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::directory::{self, DirectoryIndex};
use vlinder_format::inode_ref::{self, find, find_extended};
use vlinder_format::log::DirectoryLogRange;
use vlinder_format::{Damage, Fault, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_transaction::{DataExtent, Engine, FsyncLog};
use vlinder_tree::{Cursor, Position, Readahead, Root};

use super::ReplayError;

/// The items of one log.
#[derive(Clone, Copy)]
pub(super) struct LoggedItems<'r> {
    engine: &'r Engine,
    tree: &'r Arc<Root>,
    /// The logs of all subvolumes: which extents are new.
    whole_log: &'r FsyncLog,
}

impl<'r> LoggedItems<'r> {
    pub(super) fn new(engine: &'r Engine, tree: &'r Arc<Root>, whole_log: &'r FsyncLog) -> Self {
        Self { engine, tree, whole_log }
    }

    fn item(&self, key: &Key) -> Result<Option<Position>, ReplayError> {
        Ok(self.engine.forest().trees().get(self.tree, key)?)
    }

    /// Whether there is an entry of a name under a key: of an attribute, or of a directory by index.
    pub(super) fn has_entry(&self, key: &Key, name: &[u8]) -> Result<bool, ReplayError> {
        let Some(logged) = self.item(key)? else { return Ok(false) };
        let entry = directory::find(logged.data(), name).map_err(|fault| self.damage(*key, fault))?;
        Ok(entry.is_some())
    }

    /// Whether the item of references under a key holds a name.
    pub(super) fn has_name(&self, key: &Key, parent: ObjectId, name: &[u8]) -> Result<bool, ReplayError> {
        let Some(logged) = self.item(key)? else { return Ok(false) };
        let found = if key.item_type == ItemType::INODE_EXTREF {
            find_extended(logged.data(), parent, name).map(|found| found.is_some())
        } else {
            find(logged.data(), name).map(|found| found.is_some())
        };
        Ok(found.map_err(|fault| self.damage(*key, fault))?)
    }

    /// Whether there is the reference of an inode to a name. Linux looks for an extended one under the number
    /// of the directory instead of the hash, so it finds none but by chance; what is added for that reason
    /// goes again when the reference is replayed. To end with the same items the same is done here.
    pub(super) fn has_reference(
        &self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
    ) -> Result<bool, ReplayError> {
        let extended = Key::new(inode, ItemType::INODE_EXTREF, parent.0);
        Ok(self.has_name(&inode_ref::key(inode, parent), parent, name)?
            || self.has_name(&extended, parent, name)?)
    }

    /// The first and last index of what the log speaks for of a directory, from an index on: a range that
    /// began before may go on there.
    pub(super) fn directory_range(
        &self,
        directory: ObjectId,
        from: DirectoryIndex,
    ) -> Result<Option<(DirectoryIndex, DirectoryIndex)>, ReplayError> {
        let trees = self.engine.forest().trees();
        let key = DirectoryLogRange::key(directory, from);
        let is_own = |found: &Position| {
            found.key().objectid == directory && found.key().item_type == ItemType::DIR_LOG_INDEX
        };
        let covers =
            |found: &Position| DirectoryLogRange::decode(found.data()).is_ok_and(|range| range.last >= from);
        let found = match trees.floor(self.tree, &key)?.filter(is_own).filter(covers) {
            Some(found) => Some(found),
            None => trees.ceiling(self.tree, &key)?.filter(is_own),
        };
        let Some(found) = found else { return Ok(None) };
        let range = DirectoryLogRange::decode(found.data())
            .map_err(|fault| Damage::new(fault, found.place(RootId::TREE_LOG)))?;
        Ok(Some((from.max(DirectoryIndex(found.key().offset)), range.last)))
    }

    /// Whether an extent is known to the logs alone.
    pub(super) fn is_new(&self, extent: DataExtent) -> bool {
        self.whole_log.is_new(extent)
    }

    /// Calls `replace` with all checksums of the bytes from `start` up to `end`: where they start, the bytes
    /// that they cover, the checksums.
    pub(super) fn each_checksums(
        &self,
        start: u64,
        end: u64,
        mut replace: impl FnMut(Logical, u64, &[u8]) -> Result<(), ReplayError>,
    ) -> Result<(), ReplayError> {
        let trees = self.engine.forest().trees();
        let geometry = self.engine.checksum_geometry();
        let first = ChecksumGeometry::key(Logical(start));
        let before = trees.floor(self.tree, &first)?;
        let from = before.map(|found| found.key()).filter(|key| key.item_type == ItemType::EXTENT_CHECKSUM);
        let mut cursor = trees.cursor(self.tree, &from.unwrap_or(first), Readahead::None)?;
        while let Some((key, data)) = cursor.item() {
            if key.item_type != ItemType::EXTENT_CHECKSUM || key.offset >= end {
                break;
            }
            let item_end = key.offset.saturating_add(geometry.covered(data.len()));
            let (part_start, part_end) = (start.max(key.offset), end.min(item_end));
            if part_start < part_end {
                let skipped = geometry.bytes_for(part_start - key.offset).unwrap_or(usize::MAX);
                let taken = geometry.bytes_for(part_end - part_start).unwrap_or(usize::MAX);
                let sums = skipped.checked_add(taken).and_then(|end| data.get(skipped..end));
                replace(Logical(part_start), part_end - part_start, sums.unwrap_or_default())?;
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// All items, from the first on.
    pub(super) fn walk(&self) -> Result<Cursor<'r>, ReplayError> {
        Ok(self.engine.forest().trees().cursor(self.tree, &Key::MIN, Readahead::Forward(16))?)
    }

    /// Something wrong about an item.
    pub(super) fn damage(&self, key: Key, fault: impl Into<Fault>) -> Damage {
        Damage::new(fault, Place { tree: Some(RootId::TREE_LOG), key: Some(key), ..Place::default() })
    }
}
