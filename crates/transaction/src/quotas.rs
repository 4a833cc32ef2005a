//! Quotas. vlinder counts for no quota group: a commit says that what the groups are said to use is out of
//! date, as Linux does where it could not count, and a rescan by Linux (`btrfs quota rescan`) puts it right.
//! Limits do not hold meanwhile.

use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaGroupLimit, QuotaStatus, QuotaStatusFlags};
use vlinder_format::{Damage, Logical, RootId};
use vlinder_tree::{Change, Edit, Trees};

use crate::EngineError;
use crate::drain::Drain;
use crate::handle::Handle;
use vlinder_forest::OpenTree;

/// The state of quotas; none where the tree does not say.
pub(crate) fn quota_status(trees: &Trees, tree: &OpenTree) -> Result<Option<QuotaStatus>, EngineError> {
    let Some(found) = trees.get(tree.root(), &QuotaStatus::KEY)? else { return Ok(None) };
    let status = QuotaStatus::decode(found.data());
    Ok(Some(status.map_err(|fault| Damage::new(fault, found.place(tree.id())))?))
}

impl Drain<'_> {
    /// Says, as part of a commit, that usage is out of date.
    pub(crate) fn mark_quotas(&mut self) -> Result<(), EngineError> {
        let Some(tree) = &self.core.trees().fixed().quota else { return Ok(()) };
        let Some(status) = quota_status(self.core.trees().store(), tree)? else { return Ok(()) };
        let flags = (status.flags.0 | QuotaStatusFlags::INCONSISTENT.0) & !QuotaStatusFlags::RESCAN.0;
        let marked = QuotaStatus {
            // That of the commit, or Linux would take it for one that knew nothing of quotas, and complain.
            generation: self.handle.generation(),
            // A rescan that goes on from where it was would miss what changed behind it, and call the result
            // right.
            flags: QuotaStatusFlags(flags),
            rescan_progress: Logical(0),
            ..status
        };
        self.handle.editor.put(tree.root(), QuotaStatus::KEY, &marked.encode())?;
        Ok(())
    }
}

impl Handle<'_> {
    /// Enters the quota group of a new subvolume, as Linux does: without it a rescan would not count it.
    pub(crate) fn add_quota_group(&mut self, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = &self.core.trees().fixed().quota else { return Ok(()) };
        let group = QuotaGroupId::of_subvolume(subvolume);
        let info = QuotaGroupInfo { generation: self.generation(), ..QuotaGroupInfo::default() }.encode();
        let limit = QuotaGroupLimit::default().encode();
        let edits = [
            Edit::new(QuotaGroupInfo::key(group), Change::Put(&info)),
            Edit::new(QuotaGroupLimit::key(group), Change::Put(&limit)),
        ];
        Ok(self.editor.edit(tree.root(), &edits)?)
    }
}
