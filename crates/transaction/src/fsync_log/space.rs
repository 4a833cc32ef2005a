//! The space that logs grow in. Their blocks have no items in the extent tree and queue no references: until
//! the log ends they are *reserved*, from then on *pinned* until the commit is durable.

use vlinder_format::block::BLOCK_FLAG_WRITTEN;
use vlinder_format::{Block, Logical, RootId};
use vlinder_tree::TreeError;

use crate::engine::Engine;
use vlinder_space::Taken;
use vlinder_space::{Charge, Draw, Purpose};

/// Logs hold at most three times as much as they leave.
const LEAST_LEFT_SHARE: u64 = 3;

impl Engine {
    /// Takes addresses for blocks of a log, from the room that nobody was promised. A chunk is not made for
    /// them: the log could not use it. Nor do logs take so much that others would need one: a quarter of what
    /// was free before them stays, since what they have held comes back with the next commit, and a chunk
    /// stays.
    pub(crate) fn take_for_log(&self, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError> {
        let no_space = TreeError::NoSpace { root: RootId::TREE_LOG, needed_bytes: 0 };
        let block_bytes = u64::from(self.node_size());
        if self.log_bytes() / LEAST_LEFT_SHARE > self.space.available(Purpose::Metadata) {
            return Err(no_space);
        }
        // A leaf costs more than the block that it is.
        let blocks = Charge::leaves(u64::try_from(count).unwrap_or(u64::MAX));
        if !self.try_changes(blocks, Draw::Nothing) {
            return Err(no_space);
        }
        let goal = into.len() + count;
        let taken = loop {
            match self.space.take_blocks(Purpose::Metadata, goal, block_bytes, into) {
                Taken::Done => break Ok(()),
                Taken::Load(group) => match self.load_group(group) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Taken::Wait => {}
                Taken::Chunk => break Err(no_space),
            }
        };
        self.space.reservations().unpromise(blocks);
        taken
    }

    /// Bytes that logs hold until the next commit, by what their blocks are and were.
    fn log_bytes(&self) -> u64 {
        let blocks = u64::try_from(self.log.blocks.lock().addresses.len()).unwrap_or(u64::MAX);
        blocks.saturating_mul(u64::from(self.node_size()))
    }

    /// A block came to be in a log.
    pub(crate) fn log_block_created(&self, block: &Block) {
        let mut blocks = self.log.blocks.lock();
        blocks.addresses.insert(block.logical());
        blocks.count += 1;
    }

    /// A log needs a block no more. What may be on a device stays where it is: the superblock there may reach
    /// it.
    pub(crate) fn log_block_dropped(&self, block: &Block) {
        let mut blocks = self.log.blocks.lock();
        blocks.count -= 1;
        if !block.has_flag(BLOCK_FLAG_WRITTEN) && blocks.addresses.remove(&block.logical()) {
            drop(blocks);
            self.release_block(block.logical());
        }
    }
}
