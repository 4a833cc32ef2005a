//! How far a walk of a tree reads ahead of itself, and which blocks that are.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Key, Level, RootId};

use crate::wanted::{WantedBlock, child_block};

/// Pointers that one look ahead passes at most, where few blocks are wanted.
const MAX_PASSED: usize = 4096;

/// How far a cursor reads ahead of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readahead {
    /// Not at all: for a look-up of a few neighbours.
    #[default]
    None,
    /// When a block is missing, up to so many blocks behind it are read in the same batch.
    Forward(usize),
}

/// A node on the way down, and the slot that was taken.
pub(crate) type Step = (Arc<Block>, usize);

/// The missing blocks that a walk comes to after one, at most `most` of them: those of the same level below
/// all nodes that are in memory, and the nodes that have to be read before more is known. `path` leads to the
/// block. Gives the key up to which all were seen as well; none at the end of the tree.
pub(crate) fn blocks_behind(
    (tree, level): (RootId, Level),
    path: &[Step],
    most: usize,
    resident: impl Fn(&WantedBlock) -> Option<Arc<Block>>,
    mut is_wanted: impl FnMut(&WantedBlock) -> bool,
) -> (Vec<WantedBlock>, Option<Key>) {
    let mut stack: Vec<Step> =
        path.iter().map(|(node, slot)| (Arc::clone(node), slot.saturating_add(1))).collect();
    let (mut found, mut seen_to) = (Vec::new(), None);
    let mut passed = 0_usize;
    while let Some((node, slot)) = stack.last_mut() {
        if *slot >= node.len() {
            stack.pop();
            continue;
        }
        let child = child_block(tree, node, *slot);
        if found.len() >= most || passed >= MAX_PASSED {
            return (found, seen_to.or(child.first_key));
        }
        *slot = slot.saturating_add(1);
        passed = passed.saturating_add(1);
        if !is_wanted(&child) {
            continue;
        }
        match resident(&child) {
            Some(block) if child.level > level && block.level() == child.level => stack.push((block, 0)),
            Some(_) => {}
            None => {
                if child.level > level {
                    seen_to = seen_to.or(child.first_key);
                }
                found.push(child);
            }
        }
    }
    (found, seen_to)
}

/// A walk's readahead: how many blocks, and how far it has looked at each level.
#[derive(Debug)]
pub struct LookAhead {
    most: usize,
    /// By level: blocks that begin before this key were looked at; all of them, once the end was met.
    seen_to: [Option<Key>; Level::COUNT],
}

impl LookAhead {
    /// The readahead of a walk at its begin.
    #[must_use]
    pub fn new(readahead: Readahead) -> Self {
        let most = match readahead {
            Readahead::None => 0,
            Readahead::Forward(most) => most,
        };
        Self { most, seen_to: [Some(Key::MIN); Level::COUNT] }
    }

    /// How far to look behind a missing block; none if the blocks there were looked at already.
    pub(crate) fn reach(&self, wanted: &WantedBlock) -> Option<usize> {
        let seen_to = *self.seen_to.get(usize::from(wanted.level.0))?;
        let is_new = seen_to.is_some_and(|seen_to| wanted.first_key.is_some_and(|key| key >= seen_to));
        Some(self.most).filter(|most| *most > 0 && is_new)
    }

    /// Notes up to which key the blocks of a level were looked at; none for the end of the tree.
    pub(crate) fn note(&mut self, level: Level, seen_to: Option<Key>) {
        if let Some(known) = self.seen_to.get_mut(usize::from(level.0)) {
            *known = seen_to;
        }
    }
}
