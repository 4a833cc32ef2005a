//! One state that is measured.

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree};

use super::counts::ReferenceCounts;
use super::deletion::{Deletion, Freed, FreedExtent, LosingTree};
use super::deletion_set::DeletionSet;
use super::error::UsageError;
use super::shared_blocks::SharedBlocks;

/// Measures what files, directories and subvolumes of one committed state take.
pub struct UsageReader<'a> {
    pub(super) forest: &'a Forest,
    pub(super) counts: ReferenceCounts<'a>,
    pub(super) shared: SharedBlocks,
    pub(super) watch: &'a dyn Fn(u64),
}

impl<'a> UsageReader<'a> {
    /// A reader of a state, which must stand still. `watch` is told of blocks as they are read: how many.
    ///
    /// # Errors
    /// What opening the extent tree met.
    pub fn new(forest: &'a Forest, watch: &'a dyn Fn(u64)) -> Result<Self, UsageError> {
        Ok(Self { forest, counts: ReferenceCounts::new(forest)?, shared: SharedBlocks::default(), watch })
    }

    /// What deleting all of a set would free. `each` is told the extents: tree blocks from the highest level
    /// on, then data, each in the order of addresses.
    ///
    /// Exact for file data; for tree blocks, where whole subvolumes go. Not counted are the blocks that
    /// directories and files of other subvolumes take, and those of the trees that all share (roots,
    /// extents, checksums).
    ///
    /// # Errors
    /// What reading met; counts that can't be right.
    pub fn freed(
        &mut self,
        set: DeletionSet,
        each: &mut dyn FnMut(FreedExtent),
    ) -> Result<Freed, UsageError> {
        let going = set.settle(self.forest)?;
        let whole = going.subvolumes.iter().map(|root| self.forest.tree(*root));
        let whole = whole.collect::<Result<Vec<Arc<OpenTree>>, _>>()?;
        let losing = going.inodes.iter().map(|(root, inodes)| {
            let tree = self.forest.tree(*root)?;
            Ok::<_, UsageError>(LosingTree { tree, inodes })
        });
        let losing = losing.collect::<Result<Vec<_>, _>>()?;
        Deletion::new((self.forest, &mut self.counts), &whole, &losing, each, self.watch).run()
    }
}
