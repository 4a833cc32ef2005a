//! The checksum tree: entering the checksums of data that was written, removing those of data that went.
//!
//! Several threads may do either at once. Each change is planned on what a search saw and refused as a
//! conflict if the items differ when it is applied; then it is planned again.

use vlinder_base::sync::Arc;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{ItemType, Key, Logical, ObjectId};
use vlinder_tree::{Action, Change, Edit, Position, Root, TreeError};

use crate::editor::Editor;
use crate::system_trees::SystemTrees;

/// The checksum tree of one file system.
pub(crate) struct ChecksumTree<'a> {
    pub(crate) root: &'a Arc<Root>,
    pub(crate) geometry: ChecksumGeometry,
}

/// Tries of a change that conflicts with others; each conflict means that another thread got ahead.
const ROUNDS: usize = 1000;

impl<'a> ChecksumTree<'a> {
    pub(crate) fn of(trees: &'a SystemTrees) -> Self {
        Self { root: trees.fixed().checksum.root(), geometry: trees.checksum_geometry() }
    }
}

impl ChecksumTree<'_> {
    /// Enters checksums, one for each sector from `start` on, lengthening the item before them where it ends
    /// there.
    pub(crate) fn insert(
        &self,
        editor: &mut Editor<'_>,
        start: Logical,
        checksums: &[u8],
    ) -> Result<(), TreeError> {
        let size = usize::try_from(self.geometry.checksum_size).unwrap_or(usize::MAX);
        let mut start = start;
        let mut rest = checksums;
        while !rest.is_empty() {
            let entries = self.insert_some(editor, start, rest, size)?;
            let (_, behind) = rest.split_at(entries * size);
            rest = behind;
            let bytes = u64::try_from(entries)
                .unwrap_or(u64::MAX)
                .saturating_mul(u64::from(self.geometry.sector_size));
            start = Logical(start.0 + bytes);
        }
        Ok(())
    }

    /// Enters as many checksums as one item takes; gives how many.
    fn insert_some(
        &self,
        editor: &mut Editor<'_>,
        start: Logical,
        rest: &[u8],
        size: usize,
    ) -> Result<usize, TreeError> {
        let most = self.geometry.most_entries().max(1);
        for _ in 0..ROUNDS {
            let before = editor.trees.floor(self.root, &ChecksumGeometry::key(start))?;
            let (key, present) = match before.filter(|before| self.continues(before, start)) {
                Some(before) if before.data().len() / size < most => (before.key(), before.data().to_vec()),
                _ => (ChecksumGeometry::key(start), Vec::new()),
            };
            let count = (rest.len() / size).min(most - present.len() / size);
            let (some, _) = rest.split_at(count * size);
            let whole = [present.as_slice(), some].concat();
            let lengthen = |found: Option<&[u8]>| {
                if found.unwrap_or_default() == present.as_slice() {
                    Action::Put(whole.clone())
                } else {
                    Action::Conflict
                }
            };
            match editor.edit(self.root, &[Edit::new(key, Change::Update(&lengthen))]) {
                Ok(()) => return Ok(count),
                Err(TreeError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(TreeError::Unsettled { root: self.root.id(), key: ChecksumGeometry::key(start) })
    }

    /// Whether an item's checksums end right where those from `start` on begin.
    fn continues(&self, before: &Position, start: Logical) -> bool {
        let key = before.key();
        key.item_type == ItemType::EXTENT_CHECKSUM
            && self.geometry.end(Logical(key.offset), before.data().len()) == Some(start)
    }

    /// Removes the checksums of a range, trimming the items at its borders.
    pub(crate) fn remove(
        &self,
        editor: &mut Editor<'_>,
        start: Logical,
        length: u64,
    ) -> Result<(), TreeError> {
        for _ in 0..ROUNDS {
            let changes = self.plan_removal(editor, start, length)?;
            if changes.is_empty() {
                return Ok(());
            }
            let update: Vec<_> = changes
                .iter()
                .map(|(_, seen, becomes)| {
                    move |found: Option<&[u8]>| match (found == seen.as_deref(), becomes) {
                        (false, _) => Action::Conflict,
                        (true, Some(data)) => Action::Put(data.clone()),
                        (true, None) => Action::Remove,
                    }
                })
                .collect();
            let edits: Vec<Edit<'_>> = changes
                .iter()
                .zip(&update)
                .map(|((key, ..), update)| Edit::new(*key, Change::Update(update)))
                .collect();
            match editor.edit(self.root, &edits) {
                Ok(()) => return Ok(()),
                Err(TreeError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(TreeError::Unsettled { root: self.root.id(), key: ChecksumGeometry::key(start) })
    }

    /// The items that a removal touches: key, what is there, and what becomes of it.
    #[allow(clippy::type_complexity, reason = "one list, made and used in this file")]
    fn plan_removal(
        &self,
        editor: &Editor<'_>,
        start: Logical,
        length: u64,
    ) -> Result<Vec<(Key, Option<Vec<u8>>, Option<Vec<u8>>)>, TreeError> {
        let end = start.0 + length;
        let mut changes = Vec::new();
        let is_of_data = |key: &Key| key.objectid == ObjectId::EXTENT_CHECKSUM;
        let key = ChecksumGeometry::key(start);
        let mut cursor = editor.trees.cursor_at_or_before(self.root, &key, is_of_data)?;
        while let Some((key, data)) = cursor.item() {
            if key.item_type != ItemType::EXTENT_CHECKSUM || key.offset >= end {
                break;
            }
            let item_end = key.offset + self.geometry.covered(data.len());
            if item_end > start.0 {
                let keep = |bytes: u64| self.geometry.bytes_for(bytes).unwrap_or_default();
                let (head, tail) =
                    (keep(start.0.saturating_sub(key.offset)), keep(item_end.saturating_sub(end)));
                let left = data.get(..head).filter(|left| !left.is_empty()).map(<[u8]>::to_vec);
                changes.push((key, Some(data.to_vec()), left));
                if tail > 0 {
                    let right = data.get(data.len() - tail..).unwrap_or_default().to_vec();
                    changes.push((ChecksumGeometry::key(Logical(end)), None, Some(right)));
                }
            }
            cursor.advance()?;
        }
        Ok(changes)
    }
}
