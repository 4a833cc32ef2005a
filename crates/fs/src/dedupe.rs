//! Sharing of what two files have in common, with the rights that Linux asks for.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, InodeFlags};

use crate::file::FileContent;
use crate::inode::Inode;
use crate::permission::Rights;
use crate::room::with_room;
use crate::{Access, Caller, Capabilities, Refusal, Result};

impl FileContent<'_> {
    /// Makes a range of one file share the extents of another's if both show the same bytes
    /// (FIDEDUPERANGE); gives whether they do. Content and times stay as they are, and a read-only snapshot
    /// may be the target.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] where a border is not aligned or behind the end of a file, where ranges
    /// of one file overlap, or where only one of the files has checksums; [`Refusal::NotPermitted`] for a
    /// caller who may not write the target, does not own it and is no administrator, and for an immutable
    /// target; [`Refusal::AccessDenied`] for one who may not read the source; [`Refusal::ReadOnly`] where the
    /// whole file system is; what reading and the trees met.
    pub fn dedupe_range(
        &self,
        caller: &Caller,
        (source, source_offset): (&Arc<Inode>, u64),
        (target, target_offset): (&Arc<Inode>, u64),
        length: u64,
    ) -> Result<bool> {
        if self.store().is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        for file in [source, target] {
            match file.file_type() {
                FileType::Regular => {}
                FileType::Directory => return Err(Refusal::IsADirectory.into()),
                _ => return Err(Refusal::InvalidArgument.into()),
            }
        }
        self.rights().access(caller, source, Access::READ)?;
        require_dedupe_right(self.rights(), caller, target)?;
        with_both_alone(source, target, || {
            let (deleted, flags) = {
                let state = target.state();
                (state.deleted, state.item.flags)
            };
            if deleted {
                return Err(Refusal::Stale.into());
            }
            if flags.has(InodeFlags::IMMUTABLE) {
                return Err(Refusal::NotPermitted.into());
            }
            let _noting = self.store().background().noting();
            with_room(self.engine(), || {
                let (from, to) = (source.node(), target.node());
                let store = self.store();
                Ok(vlinder_data::dedupe_range(store, from, source_offset, to, target_offset, length)?)
            })
        })
    }
}

/// Linux: the target is open, for reading or writing, and `may_dedupe_file` (fs/remap_range.c).
fn require_dedupe_right(rights: &Rights, caller: &Caller, target: &Inode) -> Result<()> {
    if caller.has(Capabilities::SYS_ADMIN) || rights.access(caller, target, Access::WRITE).is_ok() {
        return Ok(());
    }
    rights.access(caller, target, Access::READ)?;
    let item = target.state().item;
    if caller.user == rights.shown_owner(&item).0 { Ok(()) } else { Err(Refusal::NotPermitted.into()) }
}

/// Runs work with two files locked against every other change, in the order of their ids.
fn with_both_alone<T>(one: &Arc<Inode>, other: &Arc<Inode>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (first, second) = if one.id() < other.id() { (one, other) } else { (other, one) };
    let _first = first.operation.write();
    let _second = (!Arc::ptr_eq(first, second)).then(|| second.operation.write());
    work()
}
