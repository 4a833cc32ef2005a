//! The quota tree: relations of groups, and what the groups use.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaStatus, QuotaStatusFlags};
use vlinder_format::{ItemType, Place, RootId};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::roots::Roots;
use crate::usage::{self, Usage};
use crate::walk::{Item, ItemVisitor};

/// What the quota tree says.
#[derive(Default)]
pub(crate) struct QuotaTree {
    status: Option<QuotaStatus>,
    groups: BTreeMap<QuotaGroupId, (QuotaGroupInfo, Place)>,
    /// Which groups are related, as their items say.
    relations: BTreeMap<(QuotaGroupId, QuotaGroupId), Place>,
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
        if !self.is_consistent() {
            return;
        }
        if self.is_simple() {
            return self.judge_owned(context);
        }
        let of_groups = self.subvolumes_of_groups();
        let used = match usage::count(context, roots, data_extents) {
            Ok(counted) => counted,
            Err(usage::Uncounted::Damaged) => return,
            Err(usage::Uncounted::TooMany) => {
                let place = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
                return context.find(FindingKind::QuotaNotCounted {}, place);
            }
        };
        let none = Members::default();
        for group in self.groups.keys() {
            let Usage { referenced, exclusive } = used.of(&of_groups.get(group).unwrap_or(&none).subvolumes);
            self.compare(context, *group, [(referenced, referenced), (exclusive, exclusive)]);
        }
    }

    /// Compares what simple quotas count with what subvolumes have made. Both numbers of a group are the same.
    fn judge_owned(&self, context: &mut Context<'_>) {
        let Some(owners) = context.owners.take() else { return };
        for (group, members) in self.subvolumes_of_groups() {
            // What a subvolume had made when its group became another's member is added on each way that leads up.
            if let Some(owned) = owners.of(&members.subvolumes).filter(|_| members.is_once) {
                self.compare(context, group, [owned, owned]);
            }
        }
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
    fn subvolumes_of_groups(&self) -> BTreeMap<QuotaGroupId, Members> {
        let mut found: BTreeMap<QuotaGroupId, Members> = BTreeMap::new();
        // Members are of a lower level, and come first.
        for group in self.groups.keys() {
            let mut members = Members { subvolumes: BTreeSet::new(), is_once: true };
            if group.level() == 0 {
                members.subvolumes.insert(RootId(group.number()));
            }
            let of_group = (*group, QuotaGroupId(0))..=(*group, QuotaGroupId(u64::MAX));
            for (_, member) in self.relations.range(of_group).map(|(pair, _)| pair) {
                if let Some(member) = found.get(member).filter(|_| member.level() < group.level()) {
                    members.is_once &= member.is_once && members.subvolumes.is_disjoint(&member.subvolumes);
                    members.subvolumes.extend(member.subvolumes.iter().copied());
                }
            }
            found.insert(*group, members);
        }
        found
    }
}
