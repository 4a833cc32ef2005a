//! Two histories of one file system: members that were written to apart from one another.
//!
//! Mirrors of which each was mounted without the other go on alone. Afterwards the superblocks and trees of
//! both are valid, and contradict one another: joined, they would give blocks of both. This shows it:
//!
//! | evidence | of |
//! |---|---|
//! | two superblocks of one generation say different things | any members |
//! | two superblocks remember different roots of one generation (their backup roots) | members of which one is older |
//! | two good copies of one block of the root or chunk tree, of one generation, differ | members that a copy lies on each |
//! | blocks of one history, where the other could have none ([`search`]) | members of which one is older |
//! | fsync logs of which each was written where the other can't be seen | members of one generation |
//!
//! A member that is older and contradicts nothing was away ([`Member::is_stale`](crate::Member)); so was one
//! that lacks a log which another member of its generation has.

mod search;
mod superblocks;

use vlinder_format::superblock::Superblock;
use vlinder_format::{DeviceId, Generation};

use self::search::{Evidence, Search, Sides};
use crate::error::VolumeError;
use crate::member::Member;
use crate::volume::Volume;

pub(crate) use self::superblocks::contradiction;

impl Volume {
    /// Sees that the members tell one history, by their tree blocks. `newest` is the superblock that is
    /// believed; its chunks are known or can be looked up. Says nothing where one of the histories was chosen
    /// ([`OpenRules::history`](crate::OpenRules)).
    ///
    /// # Errors
    /// [`VolumeError::TwoHistories`] with the first two members that contradict each other.
    pub fn refuse_two_histories(&self, newest: &Superblock) -> Result<(), VolumeError> {
        if self.members.len() < 2 || self.history.is_some() {
            return Ok(());
        }
        match self.contradicting_members(newest) {
            Some((first, second)) => Err(self.two_histories(first, second)),
            None => Ok(()),
        }
    }

    fn contradicting_members(&self, newest: &Superblock) -> Option<(DeviceId, DeviceId)> {
        let current: Vec<DeviceId> =
            self.own_members().filter(|member| !member.is_stale).map(|member| member.id).collect();
        let sides = Sides { walked: &current, others: &current, last: newest.generation };
        let search = || Search::new(self, newest.tree_block_uuid(), sides);
        let before = |generation: Generation| Generation(generation.0.saturating_sub(1));
        let found = [
            search().beginning_at_chunk_root(newest).run(before(newest.chunk_root_generation)),
            search().beginning_at_root(newest).run(before(newest.generation)),
        ];
        for evidence in found {
            if let Evidence::Contradiction(first, second) = evidence {
                return Some((first, second));
            }
        }
        self.contradicting_logs(newest).or_else(|| {
            self.pasts.iter().find_map(|past| self.contradiction_with_past(newest, past, &current))
        })
    }

    /// Compares a member that is older with the current ones: first what it wrote last with what is left of
    /// it there, then what the current ones wrote until then with what it has. Then it is compared with the
    /// other older ones that go on longer.
    fn contradiction_with_past(
        &self,
        newest: &Superblock,
        past: &Superblock,
        current: &[DeviceId],
    ) -> Option<(DeviceId, DeviceId)> {
        let (own, last) = ([past.device_item.device], past.generation);
        let common = match self
            .search_trees(newest, past, Sides { walked: &own, others: current, last })
            .run(Generation(0))
        {
            Evidence::Contradiction(first, second) => return Some((second, first)),
            Evidence::Common(generation) => generation,
            Evidence::Nothing => Generation(0),
        };
        if let Evidence::Contradiction(first, second) =
            self.search_trees(newest, newest, Sides { walked: current, others: &own, last }).run(common)
        {
            return Some((first, second));
        }
        let going_on = self.pasts.iter().filter(|other| other.generation >= last);
        going_on.map(|other| [other.device_item.device]).filter(|other| *other != own).find_map(|other| {
            let sides = Sides { walked: &own, others: &other, last };
            match self.search_trees(newest, past, sides).run(Generation(0)) {
                Evidence::Contradiction(first, second) => Some((second, first)),
                Evidence::Common(_) | Evidence::Nothing => None,
            }
        })
    }

    /// A search of all trees of a superblock.
    fn search_trees<'a>(&'a self, newest: &Superblock, walked: &Superblock, sides: Sides<'a>) -> Search<'a> {
        let search = Search::new(self, newest.tree_block_uuid(), sides);
        search.beginning_at_chunk_root(walked).beginning_at_root(walked).entering_trees()
    }

    /// Compares the fsync logs of members of one generation.
    fn contradicting_logs(&self, newest: &Superblock) -> Option<(DeviceId, DeviceId)> {
        let (first, others) = self.logs.split_first()?;
        let contradict = |log: &Superblock, other: &Superblock| {
            let (own, others) = ([log.device_item.device], [other.device_item.device]);
            let last = Generation(newest.generation.0.saturating_add(1));
            let search =
                || Search::new(self, newest.tree_block_uuid(), Sides { walked: &own, others: &others, last });
            // A cut of power between two superblocks leaves them with different logs, but both logs were on
            // both members before.
            let lacks_log = log.log_root != other.log_root && search().lacks(log.log_root, last);
            let found = search().beginning_at_log(log).run(newest.generation);
            lacks_log || matches!(found, Evidence::Contradiction(..))
        };
        let other = others.iter().find(|other| contradict(first, other) || contradict(other, first))?;
        Some((first.device_item.device, other.device_item.device))
    }

    fn own_members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.seed.is_none())
    }
}

#[cfg(test)]
mod tests;
