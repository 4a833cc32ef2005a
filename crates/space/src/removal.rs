//! Which groups go: those that are idle, of whose kind another stays, and whose room nothing needs.

use vlinder_format::Logical;
use vlinder_format::chunk::BlockGroupFlags;

use crate::charge::Charge;
use crate::demand::{ReserveAccess, Wanted};
use crate::group_range::GroupRange;
use crate::groups::{Group, Purpose};
use crate::ledger::State;
use crate::manager::SpaceManager;

/// A group that the committer removes.
#[derive(Clone, Copy, Debug)]
pub struct GroupUse {
    /// Where it lies.
    pub range: GroupRange,
    /// What it is for, and its profile.
    pub flags: vlinder_format::chunk::BlockGroupFlags,
}

impl SpaceManager {
    /// Idle groups that may go: one of each kind stays, be it full (as in Linux, `btrfs_delete_unused_bgs`).
    /// Whether the room of one is needed is judged when it is its turn ([`SpaceManager::close_idle`]).
    pub fn removable_groups(&self) -> Vec<GroupUse> {
        let state = self.ledger().state.lock();
        let is_idle = |group: &&Group| group.is_idle() && group.committed_used == Some(0);
        let open = || state.groups.iter().filter(|group| !group.closed);
        let idle = open().filter(is_idle).map(|group| GroupUse { range: group.range, flags: group.flags });
        let mut removable: Vec<GroupUse> = idle.collect();
        if removable.is_empty() {
            return removable;
        }
        // Of each kind, of which there are few: how many groups there are beside the one that stays.
        let mut spare: Vec<(BlockGroupFlags, usize)> = Vec::new();
        for group in open() {
            match spare.iter_mut().find(|(flags, _)| *flags == group.flags) {
                Some((_, count)) => *count += 1,
                None => spare.push((group.flags, 0)),
            }
        }
        removable.retain(|group| {
            let count = spare.iter_mut().find(|(flags, count)| *flags == group.flags && *count > 0);
            count.map(|(_, count)| *count -= 1).is_some()
        });
        removable
    }

    /// Nothing more is taken from a group. False if something was meanwhile, or if its room is needed, which
    /// on the devices is free only once the transaction that removes it is durable: for promises, for what
    /// `waiting` changes take of the commit under way, or for the chunk tree, to which `system_bytes` stay.
    pub fn close_idle(&self, start: Logical, waiting: Charge, system_bytes: u64) -> bool {
        let mut state = self.ledger().up_to_date();
        let may_go = state.may_remove(start, waiting, system_bytes);
        if may_go {
            state.groups.close(start);
        }
        may_go
    }

    /// Whether [`close_idle`](Self::close_idle) would close a group now.
    pub fn may_remove(&self, start: Logical, waiting: Charge, system_bytes: u64) -> bool {
        self.ledger().up_to_date().may_remove(start, waiting, system_bytes)
    }

    /// A group that was closed goes. Nothing of it waits to be free: every pinned range lies in a group.
    pub fn remove_group(&self, start: Logical) {
        let group = self.ledger().state.lock().groups.remove(start);
        assert!(group.is_none_or(|group| group.is_idle()), "the group at {start} goes with space in use");
    }
}

impl State {
    /// Whether an idle group may go; see [`SpaceManager::close_idle`].
    fn may_remove(&mut self, start: Logical, waiting: Charge, system_bytes: u64) -> bool {
        let Some(group) = self.groups.get_mut(start).filter(|group| group.is_idle()) else { return false };
        let (flags, room) = (group.flags, group.available());
        let mut without = self.promises.needs(ReserveAccess::Nothing, waiting, Wanted::default());
        let needs = without;
        if flags.has(BlockGroupFlags::DATA) {
            without.data = without.data.saturating_add(room);
        } else if flags.has(BlockGroupFlags::METADATA) {
            without.metadata = without.metadata.saturating_add(room);
        }
        let system_left = self.groups.available(Purpose::System).saturating_sub(room);
        let is_needed = self.lacking(without) != self.lacking(needs)
            || (flags.has(BlockGroupFlags::SYSTEM) && system_left < system_bytes);
        !is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::{BLOCK, BLOCKS, GROUP, neighbours, place};

    #[test]
    fn one_group_of_each_kind_stays() {
        let (data, metadata) = (BlockGroupFlags::DATA, BlockGroupFlags::METADATA);
        let starts = |groups: &[(BlockGroupFlags, u64)]| -> Vec<u64> {
            let removable = neighbours(groups).removable_groups();
            removable.iter().map(|group| (group.range.start.0 - GROUP.start.0) / GROUP.length).collect()
        };
        assert_eq!(starts(&[(data, 0), (metadata, 0)]), [] as [u64; 0]);
        assert_eq!(starts(&[(data, 0), (metadata, 1), (data, 0), (metadata, 0), (data, 0)]), [0, 2, 3]);
        assert_eq!(starts(&[(data, BLOCKS), (data, 0)]), [1], "a full one, too, is the one that stays");
        let many: Vec<(BlockGroupFlags, u64)> = (0..50_000).map(|_| (data, 0)).collect();
        assert_eq!(starts(&many).len(), many.len() - 1);
    }

    #[test]
    fn a_group_stays_whose_room_the_commit_needs() {
        let metadata = BlockGroupFlags::METADATA;
        let closes = |waiting_blocks| {
            let space = neighbours(&[(metadata, BLOCKS / 4), (metadata, 0)]);
            let waiting = Charge { blocks: waiting_blocks, ..Charge::default() };
            space.close_idle(place(1), waiting, 0)
        };
        let beside =
            neighbours(&[(metadata, BLOCKS / 4)]).reservations().price_of_commit_bytes(Charge::default());
        assert!(beside < GROUP.length / 4 * 3, "a commit alone finds room in the other group");
        assert!(closes(0));
        assert!(!closes(BLOCKS / 2));
    }

    #[test]
    fn a_system_group_stays_whose_room_the_chunk_tree_needs() {
        let system = BlockGroupFlags::SYSTEM;
        for (used, closes) in [(BLOCKS, false), (BLOCKS - 3, false), (BLOCKS - 4, true), (1, true)] {
            let space = neighbours(&[(system, used), (system, 0)]);
            assert_eq!(space.removable_groups().len(), 1);
            assert_eq!(space.close_idle(place(1), Charge::default(), 4 * BLOCK), closes, "{used}");
        }
    }
}
