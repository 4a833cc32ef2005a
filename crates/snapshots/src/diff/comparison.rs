//! The items of two trees that differ, gathered by inode.

use vlinder_base::sync::Arc;
use vlinder_data::ContentSource;
use vlinder_forest::{Difference, Forest, compare};
use vlinder_format::{ItemType, Key, ObjectId};
use vlinder_tree::{Readahead, Root};

use super::inode_turn::InodeTurn;
use super::state::{State, States};
use super::subvolume_entries::SubvolumeEntries;
use super::{Change, DiffError, OldNew};

/// Tree blocks that are read in one batch, ahead of where they are needed.
const BLOCKS_AHEAD: usize = 256;

/// Two subvolumes of one state that stands still.
pub struct Comparison<'a> {
    /// The state that both are read in.
    pub forest: &'a Forest,
    /// Their trees.
    pub roots: OldNew<Arc<Root>>,
    /// Where the bytes of files are read.
    pub source: ContentSource<'a>,
    /// Reads each tree block when it is needed, and none ahead.
    pub no_readahead: bool,
}

/// Shows each thing that is not the same in both subvolumes: inodes in the order of their numbers, what was
/// removed before what was added in its place, then subvolumes in the order of theirs.
///
/// # Errors
/// What reading met, or the error of `each`, which ends the comparison.
pub fn diff<E: From<DiffError>>(
    comparison: &Comparison<'_>,
    each: impl FnMut(Change) -> Result<(), E>,
) -> Result<(), E> {
    let (trees, roots) = (comparison.forest.trees(), &comparison.roots);
    let readahead = if comparison.no_readahead { Readahead::None } else { Readahead::Forward(BLOCKS_AHEAD) };
    let state = |root: &Arc<Root>| State::new(comparison.forest, root);
    let mut gathering = ChangeCollector {
        source: &comparison.source,
        states: States { old: state(&roots.old), new: state(&roots.new) },
        each,
        turn: None,
        subvolumes: SubvolumeEntries::default(),
    };
    compare((trees, &roots.old), (trees, &roots.new), readahead, |key, difference| {
        gathering.note(key, difference).map_err(Ended)
    })
    .map_err(|Ended(error)| error)?;
    gathering.finish()
}

/// What ended the comparison of the trees.
struct Ended<E>(E);

impl<E: From<DiffError>> From<vlinder_forest::ForestError> for Ended<E> {
    fn from(error: vlinder_forest::ForestError) -> Self {
        Self(DiffError::from(error).into())
    }
}

struct ChangeCollector<'a, F> {
    source: &'a ContentSource<'a>,
    states: States<'a>,
    each: F,
    /// The inode whose items come.
    turn: Option<InodeTurn>,
    subvolumes: SubvolumeEntries,
}

impl<F> ChangeCollector<'_, F> {
    /// Takes an item that is not the same in both trees.
    fn note<E: From<DiffError>>(&mut self, key: Key, difference: Difference<'_>) -> Result<(), E>
    where
        F: FnMut(Change) -> Result<(), E>,
    {
        let number = key.objectid;
        if number < ObjectId::FIRST_FREE || number > ObjectId::LAST_FREE {
            return Ok(());
        }
        if self.turn.as_ref().is_none_or(|turn| turn.number() != number) {
            self.end_turn()?;
            self.turn = Some(InodeTurn::begin(&self.states, number)?);
        }
        let Some(turn) = &mut self.turn else { return Ok(()) };
        match key.item_type {
            ItemType::XATTR_ITEM => turn.note_attributes(&self.states, key, difference)?,
            ItemType::EXTENT_DATA => turn.note_extent((&self.states, self.source), key, difference)?,
            ItemType::DIR_ITEM => {
                self.subvolumes.note(turn.directories(), &self.states, key, difference)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn end_turn<E: From<DiffError>>(&mut self) -> Result<(), E>
    where
        F: FnMut(Change) -> Result<(), E>,
    {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        for change in turn.end(&mut self.states, self.source)? {
            (self.each)(change)?;
        }
        Ok(())
    }

    fn finish<E: From<DiffError>>(mut self) -> Result<(), E>
    where
        F: FnMut(Change) -> Result<(), E>,
    {
        self.end_turn()?;
        for change in self.subvolumes.into_changes(&mut self.states)? {
            (self.each)(change)?;
        }
        Ok(())
    }
}
