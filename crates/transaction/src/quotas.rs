//! Quotas. vlinder counts for no quota group: a commit says that what the groups are said to use is out of
//! date, as Linux does where it could not count, and a rescan by Linux (`btrfs quota rescan`) puts it right.
//! Limits do not hold meanwhile.

use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaGroupLimit, QuotaStatus, QuotaStatusFlags};
use vlinder_format::{Damage, Logical, RootId};
use vlinder_tree::{Change, Edit, TreeError, Trees};

use crate::EngineError;
use crate::editor::Editor;
use vlinder_forest::OpenTree;

/// The state of quotas; none where the tree does not say.
pub(crate) fn quota_status(trees: &Trees, tree: &OpenTree) -> Result<Option<QuotaStatus>, EngineError> {
    let Some(found) = trees.get(tree.root(), &QuotaStatus::KEY)? else { return Ok(None) };
    let status = QuotaStatus::decode(found.data());
    Ok(Some(status.map_err(|fault| Damage::new(fault, found.place(tree.id())))?))
}

/// Says, as part of a commit, that usage is out of date.
pub(crate) fn mark_inconsistent(editor: &mut Editor<'_>, tree: &OpenTree) -> Result<(), EngineError> {
    let Some(status) = quota_status(editor.trees, tree)? else { return Ok(()) };
    let flags = (status.flags.0 | QuotaStatusFlags::INCONSISTENT.0) & !QuotaStatusFlags::RESCAN.0;
    let marked = QuotaStatus {
        // That of the commit, or Linux would take it for one that knew nothing of quotas, and complain.
        generation: editor.generation,
        // A rescan that goes on from where it was would miss what changed behind it, and call the result
        // right.
        flags: QuotaStatusFlags(flags),
        rescan_progress: Logical(0),
        ..status
    };
    Ok(editor.put(tree.root(), QuotaStatus::KEY, &marked.encode())?)
}

/// Enters the quota group of a new subvolume, as Linux does: without it a rescan would not count it.
pub(crate) fn add_quota_group(
    editor: &mut Editor<'_>,
    tree: &OpenTree,
    subvolume: RootId,
) -> Result<(), TreeError> {
    let group = QuotaGroupId::of_subvolume(subvolume);
    let info = QuotaGroupInfo { generation: editor.generation, ..QuotaGroupInfo::default() }.encode();
    let limit = QuotaGroupLimit::default().encode();
    let edits = [
        Edit::new(QuotaGroupInfo::key(group), Change::Put(&info)),
        Edit::new(QuotaGroupLimit::key(group), Change::Put(&limit)),
    ];
    editor.edit(tree.root(), &edits)
}
