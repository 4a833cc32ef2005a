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

    /// Whether the groups' numbers are said to be right. Simple quotas count otherwise.
    fn is_consistent(&self) -> bool {
        let off = [QuotaStatusFlags::RESCAN, QuotaStatusFlags::INCONSISTENT, QuotaStatusFlags::SIMPLE];
        self.status.is_some_and(|status| {
            status.flags.has(QuotaStatusFlags::ON) && !off.into_iter().any(|flag| status.flags.has(flag))
        })
    }

    /// Compares what the groups say that they use with what their subvolumes refer to.
    pub(crate) fn judge_usage(&self, context: &mut Context<'_>, roots: &Roots, data_extents: u64) {
        if !self.is_consistent() {
            return;
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
        for (group, (info, place)) in &self.groups {
            let none = BTreeSet::new();
            let expected = used.of(of_groups.get(group).unwrap_or(&none));
            let found = Usage { referenced: info.referenced_bytes, exclusive: info.exclusive_bytes };
            for (what, found, expected) in [
                ("refers to", found.referenced, expected.referenced),
                ("alone refers to", found.exclusive, expected.exclusive),
            ] {
                if found != expected {
                    let kind = FindingKind::QuotaUsage { group: *group, what, found, expected };
                    context.find(kind, *place);
                }
            }
        }
    }

    /// The subvolumes of each group, those of its members included.
    fn subvolumes_of_groups(&self) -> BTreeMap<QuotaGroupId, BTreeSet<RootId>> {
        let mut found: BTreeMap<QuotaGroupId, BTreeSet<RootId>> = BTreeMap::new();
        // Members are of a lower level, and come first.
        for group in self.groups.keys() {
            let mut subvolumes = BTreeSet::new();
            if group.level() == 0 {
                subvolumes.insert(RootId(group.number()));
            }
            let of_group = (*group, QuotaGroupId(0))..=(*group, QuotaGroupId(u64::MAX));
            for (_, member) in self.relations.range(of_group).map(|(pair, _)| pair) {
                if member.level() < group.level() {
                    subvolumes.extend(found.get(member).into_iter().flatten().copied());
                }
            }
            found.insert(*group, subvolumes);
        }
        found
    }
}
