//! The rights to let files share what they have in common, and the files that may, as Linux judges them.

use vlinder_base::sync::Arc;
use vlinder_format::inode::InodeFlags;

use crate::inode::Inode;
use crate::permission::Rights;
use crate::{Access, Caller, Capabilities, Refusal, Result};

/// Linux: the target is open, for reading or writing, and `may_dedupe_file` (fs/remap_range.c).
pub(crate) fn require_dedupe_right(rights: &Rights, caller: &Caller, target: &Inode) -> Result<()> {
    if caller.has(Capabilities::SYS_ADMIN) || rights.access(caller, target, Access::WRITE).is_ok() {
        return Ok(());
    }
    rights.access(caller, target, Access::READ)?;
    let item = target.state().item;
    if caller.user == rights.shown_owner(&item).0 { Ok(()) } else { Err(Refusal::NotPermitted.into()) }
}

/// Runs work with two files locked against every other change, in the order of their ids.
pub(crate) fn with_both_alone<T>(
    one: &Arc<Inode>,
    other: &Arc<Inode>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (first, second) = if one.id() < other.id() { (one, other) } else { (other, one) };
    let _first = first.operation.write();
    let _second = (!Arc::ptr_eq(first, second)).then(|| second.operation.write());
    work()
}

/// Refuses a target whose extents may not be exchanged although its content stays.
pub(crate) fn require_dedupable(target: &Inode) -> Result<()> {
    let (deleted, flags) = {
        let state = target.state();
        (state.deleted, state.item.flags)
    };
    if deleted {
        return Err(Refusal::Stale.into());
    }
    if flags.has(InodeFlags::IMMUTABLE) { Err(Refusal::NotPermitted.into()) } else { Ok(()) }
}
