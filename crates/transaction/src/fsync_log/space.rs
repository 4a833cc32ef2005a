//! The space that logs grow in. Their blocks have no items in the extent tree and queue no references: until
//! the log ends they are *reserved*, from then on *pinned* until the commit is durable.

use vlinder_format::{Logical, RootId};
use vlinder_tree::TreeError;

use super::writer::LogWriter;
use crate::promises::Reserver;
use vlinder_space::Taken;
use vlinder_space::{Charge, Purpose, ReserveAccess};

/// Logs hold at most three times as much as they leave.
const MIN_LEFT_SHARE: u64 = 3;

/// Takes addresses for blocks of a log, from the room that nobody was promised. A chunk is not made for
/// them: the log could not use it. Nor do logs take so much that others would need one: a quarter of what
/// was free before them stays, since what they have held comes back with the next commit, and a chunk
/// stays.
pub(crate) fn take_for_log(
    reserver: Reserver<'_>,
    log: &LogWriter,
    count: usize,
    into: &mut Vec<Logical>,
) -> Result<(), TreeError> {
    let no_space = TreeError::NoSpace { root: RootId::TREE_LOG, needed_bytes: 0 };
    let block_bytes = u64::from(reserver.trees().node_size());
    // By what the logs' blocks are and were.
    let log_bytes = log.held_blocks().saturating_mul(block_bytes);
    if log_bytes / MIN_LEFT_SHARE > reserver.space().available(Purpose::Metadata) {
        return Err(no_space);
    }
    // A leaf costs more than the block that it is.
    let blocks = Charge::leaves(u64::try_from(count).unwrap_or(u64::MAX));
    if !reserver.try_changes(blocks, ReserveAccess::Nothing) {
        return Err(no_space);
    }
    let goal = into.len() + count;
    let taken = loop {
        match reserver.space().take_blocks(Purpose::Metadata, goal, block_bytes, into) {
            Taken::Done => break Ok(()),
            Taken::Load(group) => match reserver.group_loader().load(group) {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            Taken::Wait => {}
            Taken::Chunk => break Err(no_space),
        }
    };
    reserver.space().reservations().unreserve(blocks);
    taken
}
