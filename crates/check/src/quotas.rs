//! The quota tree: relations of groups, and what the groups use.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaStatus, QuotaStatusFlags};
use vlinder_format::{Generation, ItemType, Key, Place, RootId};

use crate::check_state::CheckState;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::judge::Judge;
use crate::root_sets::Uncounted;
use crate::roots::Roots;
use crate::usage::{self, Counted, Usage};
use crate::walk::ItemVisitor;

/// Groups and relations that are kept, at some 150 bytes each.
const MAX_ITEMS: usize = 400_000;
/// Subvolumes of all groups together, at some 16 bytes each: a group has those of its members too.
const MAX_SUBVOLUMES: usize = 2 << 20;
/// Steps to find out what groups of several subvolumes use: some seconds.
const MAX_STEPS: usize = 1 << 27;

/// Since when simple quotas count, if they do. This is asked before the turn of the quota tree: what is wrong
/// with the blocks on the way is found later.
pub(crate) fn simple_quotas_since(judge: &Judge<'_>, roots: &Roots) -> Option<Generation> {
    let leaf = judge.leaf_of(&roots.get(RootId::QUOTA_TREE)?, &QuotaStatus::KEY)?;
    let slot = leaf.search(&QuotaStatus::KEY).ok()?;
    QuotaStatus::decode(leaf.data(slot)).ok()?.enable_generation
}

/// What the quota tree says.
#[derive(Default)]
pub(crate) struct QuotaTree {
    status: Option<QuotaStatus>,
    /// There is a status item, though it may be one that can't be decoded.
    has_status: bool,
    groups: BTreeMap<QuotaGroupId, (QuotaGroupInfo, Place)>,
    /// Which groups are related, as their items say.
    relations: BTreeMap<(QuotaGroupId, QuotaGroupId), Place>,
    /// There are more than are kept.
    is_incomplete: bool,
}

/// The subvolumes of a group.
struct Members {
    subvolumes: BTreeSet<RootId>,
    /// One way alone leads from each of them to the group.
    is_once: bool,
}

impl Members {
    /// Of a group of level 0: its own subvolume.
    fn own(group: QuotaGroupId) -> Self {
        Self { subvolumes: BTreeSet::from([RootId(group.number())]), is_once: true }
    }
}

impl ItemVisitor for QuotaTree {
    fn item(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        self.add(&item.key, item.data, item.place());
    }
}

impl QuotaTree {
    /// Takes in an item.
    fn add(&mut self, key: &Key, data: &[u8], place: Place) {
        self.has_status |= *key == QuotaStatus::KEY;
        if self.groups.len().saturating_add(self.relations.len()) >= MAX_ITEMS {
            self.is_incomplete = true;
            return;
        }
        match key.item_type {
            ItemType::QUOTA_GROUP_STATUS => self.status = QuotaStatus::decode(data).ok(),
            ItemType::QUOTA_GROUP_INFO => {
                let info = QuotaGroupInfo::decode(data);
                self.groups.extend(info.map(|info| (QuotaGroupId(key.offset), (info, place))));
            }
            ItemType::QUOTA_GROUP_RELATION => {
                let pair = (QuotaGroupId(key.objectid.0), QuotaGroupId(key.offset));
                self.relations.insert(pair, place);
            }
            _ => {}
        }
    }

    /// The tree has a status. A group and its member are of two levels, so that no group is its own member's
    /// member; both say so, and both are there.
    pub(crate) fn judge(&self, context: &mut CheckState<'_>) {
        if self.is_incomplete {
            return not_counted(context);
        }
        let count = self.groups.len().saturating_add(self.relations.len());
        if count > 0 && !self.has_status {
            let place = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
            context.find(FindingKind::QuotaStatusMissing { count }, place);
        }
        for ((group, other), place) in &self.relations {
            let is_there = |group: &QuotaGroupId| self.groups.contains_key(group);
            let reason = if !is_there(group) || !is_there(other) {
                "is of a group that is not there"
            } else if group.level() == other.level() {
                "is between groups of one level"
            } else if self.relations.contains_key(&(*other, *group)) {
                continue;
            } else {
                "is recorded in one direction alone"
            };
            context.find(FindingKind::QuotaRelation { group: *group, other: *other, reason }, *place);
        }
    }

    fn is_simple(&self) -> bool {
        self.status.is_some_and(|status| status.flags.has(QuotaStatusFlags::SIMPLE))
    }

    /// Whether the groups' numbers are said to be right.
    fn is_consistent(&self) -> bool {
        let off = [QuotaStatusFlags::RESCAN, QuotaStatusFlags::INCONSISTENT];
        self.status.is_some_and(|status| {
            status.flags.has(QuotaStatusFlags::ON) && !off.into_iter().any(|flag| status.flags.has(flag))
        })
    }

    /// Compares what the groups say that they use with what their subvolumes refer to.
    pub(crate) fn judge_usage(&self, context: &mut CheckState<'_>, roots: &Roots, data_extents: u64) {
        if self.is_incomplete || !self.is_consistent() {
            return;
        }
        let judged = if self.is_simple() {
            self.judge_owned(context)
        } else {
            self.judge_shared(context, roots, data_extents)
        };
        if judged == Err(Uncounted::TooMany) {
            not_counted(context);
        }
    }

    /// Compares what the groups count with what their subvolumes refer to.
    fn judge_shared(
        &self,
        context: &mut CheckState<'_>,
        roots: &Roots,
        data_extents: u64,
    ) -> Result<(), Uncounted> {
        let above = self.subvolumes_of_groups()?;
        let used = usage::count(context, roots, data_extents)?;
        self.compare_shared(context, &above, &used)
    }

    /// Compares what groups count with what was counted of their subvolumes.
    fn compare_shared(
        &self,
        context: &mut CheckState<'_>,
        above: &BTreeMap<QuotaGroupId, Members>,
        used: &Counted,
    ) -> Result<(), Uncounted> {
        let steps = above.values().map(|members| used.steps_of(&members.subvolumes));
        if steps.fold(0, usize::saturating_add) > MAX_STEPS {
            return Err(Uncounted::TooMany);
        }
        self.for_each(above, |group, members, info, place| {
            let Usage { referenced, exclusive } = used.of(&members.subvolumes);
            compare(context, group, (info, place), [(referenced, referenced), (exclusive, exclusive)]);
        });
        Ok(())
    }

    /// Compares what simple quotas count with what subvolumes have made. Both numbers of a group are the
    /// same.
    fn judge_owned(&self, context: &mut CheckState<'_>) -> Result<(), Uncounted> {
        let Some(owners) = context.owners.take() else { return Ok(()) };
        let above = self.subvolumes_of_groups()?;
        self.for_each(&above, |group, members, info, place| {
            // What a subvolume had made when its group became another's member is added on each way that
            // leads up.
            if let Some(owned) = owners.of(&members.subvolumes).filter(|_| members.is_once) {
                compare(context, group, (info, place), [owned, owned]);
            }
        });
        Ok(())
    }

    /// Shows all groups, with their subvolumes.
    fn for_each(
        &self,
        above: &BTreeMap<QuotaGroupId, Members>,
        mut look: impl FnMut(QuotaGroupId, &Members, &QuotaGroupInfo, &Place),
    ) {
        for (group, (info, place)) in &self.groups {
            match above.get(group) {
                Some(members) => look(*group, members, info, place),
                None => look(*group, &Members::own(*group), info, place),
            }
        }
    }

    /// The subvolumes of each group above level 0, those of its members included. (Each of level 0 has one,
    /// and there may be many of them.)
    fn subvolumes_of_groups(&self) -> Result<BTreeMap<QuotaGroupId, Members>, Uncounted> {
        let mut found: BTreeMap<QuotaGroupId, Members> = BTreeMap::new();
        // Each way from a member to its group copies the member's subvolumes.
        let mut copied: usize = 0;
        // Members are of a lower level, and come first.
        for group in self.groups.keys().filter(|group| group.level() > 0) {
            let mut members = Members { subvolumes: BTreeSet::new(), is_once: true };
            let of_group = (*group, QuotaGroupId(0))..=(*group, QuotaGroupId(u64::MAX));
            for (_, member) in self.relations.range(of_group).map(|(pair, _)| pair) {
                if member.level() >= group.level() || !self.groups.contains_key(member) {
                    continue;
                }
                let own = (member.level() == 0).then(|| Members::own(*member));
                let Some(member) = own.as_ref().or_else(|| found.get(member)) else { continue };
                copied = copied.saturating_add(member.subvolumes.len());
                if copied > MAX_SUBVOLUMES {
                    return Err(Uncounted::TooMany);
                }
                members.is_once &= member.is_once && members.subvolumes.is_disjoint(&member.subvolumes);
                members.subvolumes.extend(member.subvolumes.iter().copied());
            }
            found.insert(*group, members);
        }
        Ok(found)
    }
}

/// Compares a group's two numbers with what they are at least and at most.
fn compare(
    context: &mut CheckState<'_>,
    group: QuotaGroupId,
    (info, place): (&QuotaGroupInfo, &Place),
    bounds: [(u64, u64); 2],
) {
    let found = [("refers to", info.referenced_bytes), ("alone refers to", info.exclusive_bytes)].into_iter();
    for ((what, found), (least, most)) in found.zip(bounds) {
        if !(least..=most).contains(&found) {
            let kind = FindingKind::QuotaUsage { group, what, found, expected: most };
            context.find(kind, *place);
        }
    }
}

fn not_counted(context: &mut CheckState<'_>) {
    let place = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
    context.find(FindingKind::QuotaNotCounted {}, place);
}

#[cfg(test)]
mod tests {
    use vlinder_format::quota::relation_key;

    use super::*;
    use crate::check_state::tests::with_context;
    use crate::report::Finding;
    use crate::root_sets::Run;

    /// A chain of groups over as many members.
    fn chain(levels: u64, members: u64) -> QuotaTree {
        let mut tree = QuotaTree::default();
        let group = |level: u64| QuotaGroupId(level << 48);
        let below = (0..members).map(|member| (QuotaGroupId(256 + member), group(1)));
        for (member, group) in below.chain((1..levels).map(|level| (group(level), group(level + 1)))) {
            for (one, other) in [(member, group), (group, member)] {
                tree.groups.insert(one, (QuotaGroupInfo::default(), Place::default()));
                tree.relations.insert((one, other), Place::default());
            }
        }
        tree
    }

    #[test]
    fn a_group_has_the_subvolumes_of_its_members_up_to_a_bound() {
        let found = chain(500, 1_000).subvolumes_of_groups().unwrap();
        assert!(found.values().all(|members| members.subvolumes.len() == 1_000));
        assert_eq!(found.len(), 500);
        assert_eq!(chain(3_000, 1_000).subvolumes_of_groups().map(drop), Err(Uncounted::TooMany));
    }
    #[test]
    fn more_than_is_kept_is_not_counted() {
        let mut tree = QuotaTree::default();
        let above = QuotaGroupId(1 << 48);
        for number in 0..=u64::try_from(MAX_ITEMS).unwrap() {
            assert!(!tree.is_incomplete, "{number}");
            tree.add(&relation_key(QuotaGroupId(number), above), &[], Place::default());
        }
        assert_eq!((tree.is_incomplete, tree.relations.len()), (true, MAX_ITEMS));
        with_context(|context| {
            tree.judge(context);
            tree.judge_usage(context, &Roots::default(), 0);
            let place = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
            assert_eq!(context.report.findings, [Finding { kind: FindingKind::QuotaNotCounted {}, place }]);
        });
    }

    #[test]
    fn groups_of_many_that_share_in_many_ways_are_not_counted() {
        // Sets of two, each of subvolumes that nobody else has.
        let alone = core::iter::once(RootId(5)).chain((0..1_000).map(|number| RootId(256 + number)));
        let run = |first| Run { first, end: first + 1 };
        let shared = (0..300_000).map(|number| ([run(0), run(2 + number % 900)].into(), 4096));
        let used = Counted::new(alone.map(|subvolume| (subvolume, 0)).collect(), shared.collect());
        with_context(|context| {
            let few = chain(5, 1_000);
            let above = few.subvolumes_of_groups().unwrap();
            assert_eq!(few.compare_shared(context, &above, &used), Ok(()));
            // None of the groups says that it uses anything.
            assert!(!context.report.findings.is_empty());
            context.report.findings.clear();
            let many = chain(500, 1_000);
            let above = many.subvolumes_of_groups().unwrap();
            assert_eq!(many.compare_shared(context, &above, &used), Err(Uncounted::TooMany));
            assert_eq!(context.report.findings, []);
        });
    }
}
