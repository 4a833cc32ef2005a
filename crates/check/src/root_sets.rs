//! Sets of subvolumes, each kept once. A set is a list of runs of positions in the list of subvolumes: what
//! snapshots share that were made one after the other is shared by neighbours, so that a thousand of them
//! have sets of few runs.

use std::collections::HashMap;

use vlinder_base::sync::Arc;

/// Runs in all sets together, at 8 bytes each and as much again to find them.
const MAX_RUNS: usize = 4 << 20;
/// What a set takes beside its runs, as so many of them.
const RUNS_OF_A_SET: usize = 12;
/// Unions that are remembered.
const MAX_UNIONS: usize = 1 << 19;
/// Subvolumes, at some 60 bytes each. Each has a group where quotas count, and of these no more are kept.
const MAX_SUBVOLUMES: usize = 400_000;

/// Why nothing could be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// Something could not be read, which has been found already; or a subvolume is half deleted.
    Damaged,
    /// There are too many different sets of subvolumes that share extents, quota groups, or members of
    /// groups.
    TooMany,
}

/// A set, by its place in the table.
pub(crate) type SetId = u32;

/// Positions from the first up to the end, which is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Run {
    fn one(position: u32) -> Self {
        Self { first: position, end: position.saturating_add(1) }
    }

    /// How many positions there are in it.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.end.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }
}

/// Runs in order, each at least one position behind the one before.
pub(crate) type Runs = Arc<[Run]>;

/// All sets that were met. The first are those of one subvolume each.
pub(crate) struct RootSets {
    subvolumes: SetId,
    /// Of two members and more.
    sets: Vec<Runs>,
    known: HashMap<Runs, SetId>,
    unions: HashMap<(SetId, SetId), SetId>,
    runs: usize,
}

impl RootSets {
    pub(crate) fn new(subvolumes: usize) -> Result<Self, Uncounted> {
        if subvolumes > MAX_SUBVOLUMES {
            return Err(Uncounted::TooMany);
        }
        let subvolumes = SetId::try_from(subvolumes).map_err(|_| Uncounted::TooMany)?;
        Ok(Self { subvolumes, sets: Vec::new(), known: HashMap::new(), unions: HashMap::new(), runs: 0 })
    }

    /// The most subvolumes that there may be.
    pub(crate) const fn most_subvolumes() -> usize {
        MAX_SUBVOLUMES
    }

    /// Those of several subvolumes, in the order of their numbers.
    pub(crate) fn into_shared(self) -> Vec<Runs> {
        self.sets
    }

    fn of(&mut self, set: Vec<Run>) -> Result<SetId, Uncounted> {
        if let [only] = *set
            && only.len() == 1
        {
            return Ok(only.first);
        }
        let set: Runs = set.into();
        if let Some(id) = self.known.get(&set) {
            return Ok(*id);
        }
        self.runs = self.runs.saturating_add(set.len()).saturating_add(RUNS_OF_A_SET);
        let id = SetId::try_from(self.sets.len()).ok().and_then(|number| self.subvolumes.checked_add(number));
        let id = id.filter(|_| self.runs <= MAX_RUNS).ok_or(Uncounted::TooMany)?;
        self.sets.push(Arc::clone(&set));
        self.known.insert(set, id);
        Ok(id)
    }

    /// The runs of a set.
    fn get(&self, id: SetId) -> Runs {
        let shared = id.checked_sub(self.subvolumes);
        let shared = shared.and_then(|number| self.sets.get(usize::try_from(number).ok()?));
        shared.map_or_else(|| [Run::one(id)].into(), Arc::clone)
    }

    /// The set of what is in either.
    pub(crate) fn union(&mut self, left: SetId, right: SetId) -> Result<SetId, Uncounted> {
        if left == right {
            return Ok(left);
        }
        let pair = (left.min(right), left.max(right));
        if let Some(id) = self.unions.get(&pair) {
            return Ok(*id);
        }
        let id = self.of(joined(&self.get(left), &self.get(right)))?;
        // What is forgotten is only worked out again.
        if self.unions.len() >= MAX_UNIONS {
            self.unions.clear();
        }
        self.unions.insert(pair, id);
        Ok(id)
    }
}

/// The runs of what is in either of two sets.
fn joined(left: &[Run], right: &[Run]) -> Vec<Run> {
    let mut both: Vec<Run> = left.iter().chain(right).copied().collect();
    both.sort_unstable_by_key(|run| run.first);
    let mut joined: Vec<Run> = Vec::with_capacity(both.len());
    for run in both {
        match joined.last_mut() {
            Some(last) if run.first <= last.end => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(sets: &RootSets, id: SetId) -> Vec<u32> {
        sets.get(id).iter().flat_map(|run| run.first..run.end).collect()
    }

    #[test]
    fn sets_are_joined_and_kept_once() {
        let mut sets = RootSets::new(9).unwrap();
        let both = sets.union(1, 2).unwrap();
        assert!(both >= 9 && members(&sets, both) == [1, 2] && members(&sets, 2) == [2]);
        assert_eq!(sets.union(2, 1), Ok(both));
        let left = sets.union(both, 7).unwrap();
        let far = sets.union(2, 7).unwrap();
        assert_eq!((sets.union(1, far), members(&sets, left)), (Ok(left), vec![1, 2, 7]));
        assert_eq!(sets.get(left).len(), 2, "two runs");
        assert_eq!((sets.union(2, 2), sets.union(left, both)), (Ok(2), Ok(left)));
        assert_eq!(RootSets::new(MAX_SUBVOLUMES + 1).map(drop), Err(Uncounted::TooMany));
    }

    #[test]
    fn a_set_is_what_a_plain_set_is() {
        use vlinder_base::random::{Random, SeededRandom};
        let random = SeededRandom::new(11);
        let mut sets = RootSets::new(40).unwrap();
        let mut plain: Vec<(SetId, std::collections::BTreeSet<u32>)> =
            (0..40).map(|number| (number, [number].into())).collect();
        for _ in 0..3_000 {
            let pick = || usize::try_from(random.next_u64()).unwrap_or(0) % plain.len();
            let ((left, one), (right, other)) = (&plain[pick()], &plain[pick()]);
            let union: std::collections::BTreeSet<u32> = one | other;
            let id = sets.union(*left, *right).unwrap();
            assert!(members(&sets, id).iter().eq(&union));
            if union.len() < 12 {
                plain.push((id, union));
            }
        }
        for (id, set) in &plain {
            let same: Vec<SetId> =
                plain.iter().filter(|(_, other)| other == set).map(|(id, _)| *id).collect();
            assert!(same.iter().all(|other| other == id), "{set:?} has the numbers {same:?}");
        }
    }

    #[test]
    fn what_neighbours_share_takes_little() {
        let mut sets = RootSets::new(3_000).unwrap();
        for first in (0..2_000).step_by(7) {
            let mut set = first;
            for position in first..first + 1_000 {
                set = sets.union(set, position).unwrap();
            }
        }
        assert!(sets.runs < MAX_RUNS);
        assert!(sets.unions.len() <= MAX_UNIONS);
    }

    #[test]
    fn sets_of_too_many_runs_are_too_many() {
        let mut sets = RootSets::new(300_000).unwrap();
        let mut set = 0;
        let mut last = Ok(0);
        for position in (2..300_000).step_by(2) {
            last = sets.union(set, position);
            match last {
                Ok(id) => set = id,
                Err(_) => break,
            }
        }
        assert_eq!(last, Err(Uncounted::TooMany));
    }
}
