//! The quota tree: relations of groups, and what the groups use.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaStatus, QuotaStatusFlags};
use vlinder_format::{ItemType, Place, RootId};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::roots::Roots;
use crate::usage::{self, Uncounted, Usage};
use crate::walk::{Item, ItemVisitor};

/// Groups and relations that are kept, at some 150 bytes each.
const MOST_ITEMS: usize = 400_000;
/// Subvolumes of all groups together, at some 16 bytes each: a group has those of its members too.
const MOST_SUBVOLUMES: usize = 2 << 20;
/// Steps to find out what groups of several subvolumes use: some seconds.
const MOST_STEPS: usize = 1 << 27;

/// What the quota tree says.
#[derive(Default)]
pub(crate) struct QuotaTree {
    status: Option<QuotaStatus>,
    groups: BTreeMap<QuotaGroupId, (QuotaGroupInfo, Place)>,
    /// Which groups are related, as their items say.
    relations: BTreeMap<(QuotaGroupId, QuotaGroupId), Place>,
    /// There are more than are kept.
    is_incomplete: bool,
}

/// The subvolumes of a group.
#[derive(Default)]
struct Members {
    subvolumes: BTreeSet<RootId>,
    /// One way alone leads from each of them to the group.
    is_once: bool,
}

impl ItemVisitor for QuotaTree {
    fn item(&mut self, _: &mut Context<'_>, item: &Item<'_>) {
        if self.groups.len().saturating_add(self.relations.len()) >= MOST_ITEMS {
            self.is_incomplete = true;
            return;
        }
        match item.key.item_type {
            ItemType::QUOTA_GROUP_STATUS => self.status = QuotaStatus::decode(item.data).ok(),
            ItemType::QUOTA_GROUP_INFO => {
                if let Ok(info) = QuotaGroupInfo::decode(item.data) {
                    self.groups.insert(QuotaGroupId(item.key.offset), (info, item.place()));
                }
            }
            ItemType::QUOTA_GROUP_RELATION => {
                let pair = (QuotaGroupId(item.key.objectid.0), QuotaGroupId(item.key.offset));
                self.relations.insert(pair, item.place());
            }
            _ => {}
        }
    }
}

impl QuotaTree {
    /// A group and its member are of two levels, so that no group is its own member's member; and both say so.
    pub(crate) fn judge(&self, context: &mut Context<'_>) {
        if self.is_incomplete {
            return not_counted(context);
        }
        for ((group, other), place) in &self.relations {
            let reason = if group.level() == other.level() {
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
    pub(crate) fn judge_usage(&self, context: &mut Context<'_>, roots: &Roots, data_extents: u64) {
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
        context: &mut Context<'_>,
        roots: &Roots,
        data_extents: u64,
    ) -> Result<(), Uncounted> {
        let of_groups = self.subvolumes_of_groups()?;
        let used = usage::count(context, roots, data_extents)?;
        let steps = of_groups.values().map(|members| used.steps_of(&members.subvolumes));
        if steps.fold(0, usize::saturating_add) > MOST_STEPS {
            return Err(Uncounted::TooMany);
        }
        let none = Members::default();
        for group in self.groups.keys() {
            let Usage { referenced, exclusive } = used.of(&of_groups.get(group).unwrap_or(&none).subvolumes);
            self.compare(context, *group, [(referenced, referenced), (exclusive, exclusive)]);
        }
        Ok(())
    }

    /// Compares what simple quotas count with what subvolumes have made. Both numbers of a group are the same.
    fn judge_owned(&self, context: &mut Context<'_>) -> Result<(), Uncounted> {
        let Some(owners) = context.owners.take() else { return Ok(()) };
        for (group, members) in self.subvolumes_of_groups()? {
            // What a subvolume had made when its group became another's member is added on each way that leads up.
            if let Some(owned) = owners.of(&members.subvolumes).filter(|_| members.is_once) {
                self.compare(context, group, [owned, owned]);
            }
        }
        Ok(())
    }

    /// Compares a group's two numbers with what they are at least and at most.
    fn compare(&self, context: &mut Context<'_>, group: QuotaGroupId, bounds: [(u64, u64); 2]) {
        let Some((info, place)) = self.groups.get(&group) else { return };
        let found =
            [("refers to", info.referenced_bytes), ("alone refers to", info.exclusive_bytes)].into_iter();
        for ((what, found), (least, most)) in found.zip(bounds) {
            if !(least..=most).contains(&found) {
                let kind = FindingKind::QuotaUsage { group, what, found, expected: most };
                context.find(kind, *place);
            }
        }
    }

    /// The subvolumes of each group, those of its members included.
    fn subvolumes_of_groups(&self) -> Result<BTreeMap<QuotaGroupId, Members>, Uncounted> {
        let mut found: BTreeMap<QuotaGroupId, Members> = BTreeMap::new();
        // Each way from a member to its group copies the member's subvolumes.
        let mut copied: usize = 0;
        // Members are of a lower level, and come first.
        for group in self.groups.keys() {
            let mut members = Members { subvolumes: BTreeSet::new(), is_once: true };
            if group.level() == 0 {
                members.subvolumes.insert(RootId(group.number()));
            }
            let of_group = (*group, QuotaGroupId(0))..=(*group, QuotaGroupId(u64::MAX));
            for (_, member) in self.relations.range(of_group).map(|(pair, _)| pair) {
                if let Some(member) = found.get(member).filter(|_| member.level() < group.level()) {
                    copied = copied.saturating_add(member.subvolumes.len());
                    if copied > MOST_SUBVOLUMES {
                        return Err(Uncounted::TooMany);
                    }
                    members.is_once &= member.is_once && members.subvolumes.is_disjoint(&member.subvolumes);
                    members.subvolumes.extend(member.subvolumes.iter().copied());
                }
            }
            found.insert(*group, members);
        }
        Ok(found)
    }
}

fn not_counted(context: &mut Context<'_>) {
    let place = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
    context.find(FindingKind::QuotaNotCounted {}, place);
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(found.values().all(|members| [1, 1_000].contains(&members.subvolumes.len())));
        assert_eq!(found.len(), 1_500);
        assert_eq!(chain(3_000, 1_000).subvolumes_of_groups().map(drop), Err(Uncounted::TooMany));
    }
}
