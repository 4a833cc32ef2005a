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
//! | a fsync log that was written where the younger history can't be seen | members of which one is older |
//!
//! A member that is older and contradicts nothing was away ([`Member::is_stale`](crate::Member)); so was one
//! that lacks a log which another member of its generation has.

mod search;
mod superblocks;

use vlinder_format::superblock::Superblock;
use vlinder_format::{DeviceId, Generation, Logical};

use self::search::{Evidence, Search, Sides};
use crate::error::VolumeError;
use crate::volume::Volume;

pub(crate) use self::superblocks::{SuperblockEvidence, contradiction};

/// Sees that the members tell one history, by their tree blocks. `newest` is the superblock that is believed;
/// its chunks are known or can be looked up. Says nothing where one of the histories was chosen
/// ([`OpenRules::history`](crate::OpenRules)).
///
/// # Errors
/// [`VolumeError::TwoHistories`] with the first two members that contradict each other.
pub fn refuse_two_histories(volume: &Volume, newest: &Superblock) -> Result<(), VolumeError> {
    Comparison { volume, evidence: volume.evidence(), newest }.refuse_contradiction()
}

/// A comparison of the histories that the members of a volume tell.
struct Comparison<'a> {
    volume: &'a Volume,
    evidence: &'a SuperblockEvidence,
    newest: &'a Superblock,
}

impl<'a> Comparison<'a> {
    fn refuse_contradiction(&self) -> Result<(), VolumeError> {
        let members = self.volume.members();
        if members.as_slice().len() < 2 || self.evidence.chosen.is_some() {
            return Ok(());
        }
        match self.contradicting_members() {
            Some((first, second)) => Err(members.two_histories(first, second)),
            None => Ok(()),
        }
    }

    fn contradicting_members(&self) -> Option<(DeviceId, DeviceId)> {
        let (newest, members) = (self.newest, self.volume.members());
        let current = members.iter().filter(|member| member.seed.is_none() && !member.is_stale);
        let current: Vec<DeviceId> = current.map(|member| member.id).collect();
        let sides = Sides { walked: &current, others: &current, last: newest.generation };
        let before = |generation: Generation| Generation(generation.0.saturating_sub(1));
        let found = [
            self.search(sides).beginning_at_chunk_root(newest).run(before(newest.chunk_root_generation)),
            self.search(sides).beginning_at_root(newest).run(before(newest.generation)),
        ];
        for evidence in found {
            if let Evidence::Contradiction(first, second) = evidence {
                return Some((first, second));
            }
        }
        let pasts = &self.evidence.pasts;
        self.contradicting_logs()
            .or_else(|| pasts.iter().find_map(|past| self.contradiction_with_log_of(past, &current)))
            .or_else(|| pasts.iter().find_map(|past| self.contradiction_with_past(past, &current)))
    }

    /// Compares the fsync log of a member that is older with what the current ones have there. If the member
    /// was only away since, they had its log, too, and have the log's blocks or younger ones at those places:
    /// the transaction that a log belongs to uses none of the log's blocks again.
    fn contradiction_with_log_of(
        &self,
        past: &Superblock,
        current: &[DeviceId],
    ) -> Option<(DeviceId, DeviceId)> {
        if past.log_root == Logical(0) {
            return None;
        }
        let (own, last) = ([past.device_item.device], Generation(past.generation.0.saturating_add(1)));
        let search = || self.search(Sides { walked: &own, others: current, last });
        match search().beginning_at_log(past).run(past.generation) {
            Evidence::Contradiction(first, second) => Some((second, first)),
            Evidence::Common(_) | Evidence::Nothing => {
                search().older_than(past.log_root, last).map(|other| (other, past.device_item.device))
            }
        }
    }

    /// Compares a member that is older with the current ones: first what it wrote last with what is left of
    /// it there, then what the current ones wrote until then with what it has. Then it is compared with the
    /// other older ones that go on longer.
    fn contradiction_with_past(
        &self,
        past: &Superblock,
        current: &[DeviceId],
    ) -> Option<(DeviceId, DeviceId)> {
        let (own, last) = ([past.device_item.device], past.generation);
        let common =
            match self.search_trees(past, Sides { walked: &own, others: current, last }).run(Generation(0)) {
                Evidence::Contradiction(first, second) => return Some((second, first)),
                Evidence::Common(generation) => generation,
                Evidence::Nothing => Generation(0),
            };
        if let Evidence::Contradiction(first, second) =
            self.search_trees(self.newest, Sides { walked: current, others: &own, last }).run(common)
        {
            return Some((first, second));
        }
        let going_on = self.evidence.pasts.iter().filter(|other| other.generation >= last);
        going_on.map(|other| [other.device_item.device]).filter(|other| *other != own).find_map(|other| {
            let sides = Sides { walked: &own, others: &other, last };
            match self.search_trees(past, sides).run(Generation(0)) {
                Evidence::Contradiction(first, second) => Some((second, first)),
                Evidence::Common(_) | Evidence::Nothing => None,
            }
        })
    }

    /// A search that begins nowhere.
    fn search<'s>(&self, sides: Sides<'s>) -> Search<'s>
    where
        'a: 's,
    {
        Search::new(self.volume, self.newest.tree_block_uuid(), sides)
    }

    /// A search of all trees of a superblock.
    fn search_trees<'s>(&self, walked: &Superblock, sides: Sides<'s>) -> Search<'s>
    where
        'a: 's,
    {
        self.search(sides).beginning_at_chunk_root(walked).beginning_at_root(walked).entering_trees()
    }

    /// Compares the fsync logs of members of one generation.
    fn contradicting_logs(&self) -> Option<(DeviceId, DeviceId)> {
        let (first, others) = self.evidence.logs.split_first()?;
        let contradict = |log: &Superblock, other: &Superblock| {
            let (own, others) = ([log.device_item.device], [other.device_item.device]);
            let last = Generation(self.newest.generation.0.saturating_add(1));
            let search = || self.search(Sides { walked: &own, others: &others, last });
            // A cut of power between two superblocks leaves them with different logs, but both logs were on
            // both members before.
            let lacks_log = log.log_root != other.log_root && search().lacks(log.log_root, last);
            let found = search().beginning_at_log(log).run(self.newest.generation);
            lacks_log || matches!(found, Evidence::Contradiction(..))
        };
        let other = others.iter().find(|other| contradict(first, other) || contradict(other, first))?;
        Some((first.device_item.device, other.device_item.device))
    }
}

#[cfg(test)]
mod tests;
