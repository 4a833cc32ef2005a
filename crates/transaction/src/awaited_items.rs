//! Items that change outside a transaction, and that the next commit takes along.

use crate::promises::Reserver;

/// The items that participants put in before the next commit.
#[derive(Clone, Copy)]
pub struct AwaitedItems<'a> {
    reserver: Reserver<'a>,
}

impl<'a> AwaitedItems<'a> {
    pub(crate) fn new(reserver: Reserver<'a>) -> Self {
        Self { reserver }
    }

    /// Items that changed outside a transaction: ordinary changes leave room for them, so that the next
    /// commit takes them. (It goes without those that find none.)
    pub fn add(&self, count: u64) {
        self.reserver.queues().work().reserve_inode_items(count);
    }

    /// Items that were awaited are in a transaction, or not needed any more.
    pub fn release(&self, count: u64) {
        self.reserver.queues().work().release_inode_items(count);
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the
    /// next commit. A caller that hears no leaves the item as it was: a commit that found no space for it
    /// could not end.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.reserver.has_room_for_item()
    }
}
