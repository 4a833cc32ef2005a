//! Walking the blocks of one tree: depth first, or level by level. Each block is visited once; a block that
//! is reached again, or that lies on another level than its parent says, belongs to a damaged tree, and is
//! told and left out. So a walk ends, whatever the bytes say.

use std::collections::{HashSet, VecDeque};

use vlinder_format::{Block, Generation, Level, Logical};
use vlinder_places::failure::{Failure, Kind};

use super::blocks::Blocks;

/// In which order blocks come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The root, then each level from left to right.
    #[default]
    Levels,
    /// Each block before its children.
    Depth,
}

/// A block to come, and what its parent says of it.
struct Pending {
    logical: Logical,
    expected: Option<(Level, Generation)>,
}

/// A walk under way.
pub struct Walk<'a> {
    blocks: &'a Blocks,
    order: Order,
    pending: VecDeque<Pending>,
    seen: HashSet<Logical>,
}

impl<'a> Walk<'a> {
    /// A walk of the tree whose root block lies here, level by level.
    pub fn new(blocks: &'a Blocks, root: Logical) -> Self {
        Self::in_order(blocks, root, Order::Levels)
    }

    /// A walk in this order.
    pub fn in_order(blocks: &'a Blocks, root: Logical, order: Order) -> Self {
        let pending = VecDeque::from([Pending { logical: root, expected: None }]);
        Self { blocks, order, pending, seen: HashSet::new() }
    }

    /// The next block, or why it is left out; none at the end.
    pub fn next_block(&mut self) -> Option<Result<Block, Failure>> {
        let pending = self.pending.pop_front()?;
        Some(self.visit(&pending))
    }

    fn visit(&mut self, pending: &Pending) -> Result<Block, Failure> {
        let place = format!("tree block {}", pending.logical);
        let broken = |text: String| Failure::new(Kind::Corruption, text).at(&place);
        if !self.seen.insert(pending.logical) {
            return Err(broken("the tree reaches it twice".to_owned()));
        }
        let block = self.blocks.read(pending.logical)?;
        if let Some((level, generation)) = pending.expected {
            if block.level() != level {
                return Err(broken(format!("level {}, where its parent says {level}", block.level())));
            }
            if block.generation() != generation {
                let found = block.generation();
                return Err(broken(format!("generation {found}, where its parent says {generation}")));
            }
        }
        if let Some(level) = block.level().below().filter(|_| !block.is_leaf()) {
            let children = block
                .children()
                .map(|child| Pending { logical: child.logical, expected: Some((level, child.generation)) });
            match self.order {
                Order::Levels => self.pending.extend(children),
                Order::Depth => {
                    let children: Vec<Pending> = children.collect();
                    for child in children.into_iter().rev() {
                        self.pending.push_front(child);
                    }
                }
            }
        }
        Ok(block)
    }
}
