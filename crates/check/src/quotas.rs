//! The quota tree: relations of groups. What the groups count is not judged yet.

use std::collections::BTreeMap;

use vlinder_format::quota::QuotaGroupId;
use vlinder_format::{ItemType, Place};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::walk::{Item, Visitor};

/// Which groups are related, as their items say.
#[derive(Default)]
pub(crate) struct QuotaTree(BTreeMap<(QuotaGroupId, QuotaGroupId), Place>);

impl Visitor for QuotaTree {
    fn item(&mut self, _: &mut Context<'_>, item: &Item<'_>) {
        if item.key.item_type == ItemType::QUOTA_GROUP_RELATION {
            let pair = (QuotaGroupId(item.key.objectid.0), QuotaGroupId(item.key.offset));
            self.0.insert(pair, item.place());
        }
    }
}

impl QuotaTree {
    /// A group and its member are of two levels, so that no group is its own member's member; and both say so.
    pub(crate) fn judge(&self, context: &mut Context<'_>) {
        for ((group, other), place) in &self.0 {
            let reason = if group.level() == other.level() {
                "is between groups of one level"
            } else if self.0.contains_key(&(*other, *group)) {
                continue;
            } else {
                "is recorded in one direction alone"
            };
            context.find(FindingKind::QuotaRelation { group: *group, other: *other, reason }, *place);
        }
    }
}
