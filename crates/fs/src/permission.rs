//! What a caller may do: modes, ACLs, capabilities, flags of inodes, and the borders of directories.

use vlinder_base::sync::Arc;
use vlinder_data::FileStore;
use vlinder_format::inode::{FileType, GroupId, InodeFlags, InodeItem, UserId};

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::attribute_change::CAPABILITY_NAME;
use crate::inode::Inode;
use crate::options::{OpenOptions, Owners};
use crate::subvolume::Subvolume;
use crate::{Access, Caller, Capabilities, Refusal, Result, attribute_items};

const SET_GROUP_ID: u32 = 0o2000;
const SET_USER_ID: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o010;
const STICKY: u32 = 0o1000;
const ANY_EXECUTE: u32 = 0o111;

/// What decides whether a caller may do something: the owner that files are shown with, whether ACLs count,
/// and whether anything may be changed at all.
pub struct Rights {
    store: Arc<FileStore>,
    reads_acl: bool,
    /// With `owners=me`: as whose all files are shown.
    shown_owner: Option<(UserId, GroupId)>,
}

impl Rights {
    pub(crate) fn new(store: Arc<FileStore>, options: &OpenOptions) -> Self {
        let shown_owner = (options.owners == Owners::Me).then(|| {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            (UserId(user.as_raw()), GroupId(group.as_raw()))
        });
        Self { store, reads_acl: options.acl, shown_owner }
    }

    /// Whether ACLs count.
    pub(crate) fn reads_acl(&self) -> bool {
        self.reads_acl
    }

    /// The owner that all files are shown with, if they are.
    pub(crate) fn owner_of_all(&self) -> Option<(UserId, GroupId)> {
        self.shown_owner
    }

    /// Whether a caller may access a file so; with an empty set, whether it is there.
    ///
    /// # Errors
    /// [`Refusal::AccessDenied`]; [`Refusal::ReadOnly`] or [`Refusal::NotPermitted`] for writing what takes
    /// no changes.
    pub fn access(&self, caller: &Caller, inode: &Inode, access: Access) -> Result<()> {
        let item = inode.state().item;
        if access.has(Access::WRITE) {
            let on_disk =
                matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::SymbolicLink);
            if on_disk && !inode.is_placeholder() {
                self.check_writable(inode.subvolume())?;
            }
            if item.flags.has(InodeFlags::IMMUTABLE) {
                return Err(Refusal::NotPermitted.into());
            }
        }
        if self.mode_allows(caller, inode, &item, access)?
            || capable_of(caller, inode.file_type(), &item, access)
        {
            return Ok(());
        }
        Err(Refusal::AccessDenied.into())
    }

    fn mode_allows(&self, caller: &Caller, inode: &Inode, item: &InodeItem, access: Access) -> Result<bool> {
        let grants = |shift: u32| item.mode.0 >> shift & access.0 == access.0;
        let (user, group) = self.shown_owner(item);
        if caller.user == user {
            return Ok(grants(6));
        }
        // Without group bits a mask allows nothing, so a list needs no look.
        if item.mode.0 & 0o070 != 0
            && let Some(acl) = self.access_acl(inode)?
        {
            return Ok(acl.allows(caller, group, access));
        }
        Ok(if caller.is_in_group(group) { grants(3) } else { grants(0) })
    }

    /// The owner as callers see it.
    pub(crate) fn shown_owner(&self, item: &InodeItem) -> (UserId, GroupId) {
        self.shown_owner.unwrap_or((item.user, item.group))
    }

    /// Whether a caller is a file's owner or may act as such.
    pub(crate) fn is_owner_or_capable(&self, caller: &Caller, item: &InodeItem) -> bool {
        caller.user == self.shown_owner(item).0 || caller.has(Capabilities::FOWNER)
    }

    /// The list that governs access.
    pub(crate) fn access_acl(&self, inode: &Inode) -> Result<Option<Arc<Acl>>> {
        let (known, look) = {
            let cache = inode.permissions();
            (cache.access_acl(), cache.look())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let read = self.read_acl(inode, ACCESS_NAME)?;
        inode.permissions().remember_access_acl(look, read.clone());
        Ok(read)
    }

    /// The list that new files begin with.
    pub(crate) fn default_acl(&self, directory: &Inode) -> Result<Option<Arc<Acl>>> {
        let (known, look) = {
            let cache = directory.permissions();
            (cache.default_acl(), cache.look())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let read = self.read_acl(directory, DEFAULT_NAME)?;
        directory.permissions().remember_default_acl(look, read.clone());
        Ok(read)
    }

    fn read_acl(&self, inode: &Inode, name: &[u8]) -> Result<Option<Arc<Acl>>> {
        if !self.reads_acl || inode.is_placeholder() || inode.file_type() == FileType::SymbolicLink {
            return Ok(None);
        }
        let Some(value) = attribute_items::of_inode(self.store.engine(), inode, name)? else {
            return Ok(None);
        };
        Ok(Acl::decode(&value)?.map(Arc::new))
    }

    /// Whether a caller may add a name to a directory. A placeholder takes none.
    pub(crate) fn may_add_name(&self, caller: &Caller, directory: &Inode) -> Result<()> {
        // A directory that was removed may still be open, or await its deletion; it takes no names any more.
        let is_dead = {
            let state = directory.state();
            state.deleted || state.item.link_count == 0
        };
        if is_dead {
            return Err(Refusal::NotFound.into());
        }
        self.access(caller, directory, Access::WRITE.with(Access::EXECUTE))?;
        if directory.is_placeholder() { Err(Refusal::NotPermitted.into()) } else { Ok(()) }
    }

    /// As [`may_add_name`](Self::may_add_name), for a new file: of a placeholder, Linux says that regular
    /// files are denied (`vfs_create`, fs/namei.c) and others not permitted.
    pub(crate) fn may_make(&self, caller: &Caller, directory: &Inode, file_type: FileType) -> Result<()> {
        match self.may_add_name(caller, directory) {
            Err(error)
                if directory.is_placeholder()
                    && file_type == FileType::Regular
                    && error.refusal() == Some(Refusal::NotPermitted) =>
            {
                Err(Refusal::AccessDenied.into())
            }
            judged => judged,
        }
    }

    /// Whether a caller may remove the name of a file from a directory (Linux: `may_delete`).
    pub(crate) fn may_remove_name(&self, caller: &Caller, directory: &Inode, victim: &Inode) -> Result<()> {
        self.access(caller, directory, Access::WRITE.with(Access::EXECUTE))?;
        let parent = directory.state().item;
        if parent.flags.has(InodeFlags::APPEND) {
            return Err(Refusal::NotPermitted.into());
        }
        let item = victim.state().item;
        if parent.mode.0 & STICKY != 0 && caller.user != self.shown_owner(&parent).0 {
            let owns = self.is_owner_or_capable(caller, &item);
            if !owns {
                return Err(Refusal::NotPermitted.into());
            }
        }
        if item.flags.has_any(InodeFlags::APPEND | InodeFlags::IMMUTABLE) && !victim.is_placeholder() {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// Refuses changes of what is read-only.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`], or [`Refusal::Stale`] in a deleted subvolume.
    pub fn check_writable(&self, subvolume: &Subvolume) -> Result<()> {
        if subvolume.is_deleted() {
            return Err(Refusal::Stale.into());
        }
        if self.store.is_read_only() || subvolume.is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        Ok(())
    }

    /// As [`check_writable`](Self::check_writable), for a change of a file's own data and attributes: an open
    /// file outlives its subvolume.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_file_writable(&self, inode: &Inode) -> Result<()> {
        let subvolume = inode.subvolume();
        if subvolume.is_deleted() && inode.is_open() {
            let is_read_only = self.store.is_read_only() || subvolume.is_read_only();
            return if is_read_only { Err(Refusal::ReadOnly.into()) } else { Ok(()) };
        }
        self.check_writable(subvolume)
    }

    /// As [`changeable_item`](Self::changeable_item); of a placeholder, whose changes are taken and
    /// forgotten, even in a subvolume that is read-only, as on Linux.
    pub(crate) fn changeable_or_forgotten_item(&self, inode: &Inode) -> Result<InodeItem> {
        if inode.is_placeholder() { Ok(inode.state().item) } else { self.changeable_item(inode) }
    }

    /// The item of an inode whose attributes are to be changed.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] for a placeholder, those of [`check_writable`](Self::check_writable), and
    /// [`Refusal::NotFound`] where the inode is gone.
    pub(crate) fn changeable_item(&self, inode: &Inode) -> Result<InodeItem> {
        if inode.is_placeholder() {
            return Err(Refusal::NotPermitted.into());
        }
        self.check_file_writable(inode)?;
        let state = inode.state();
        if state.deleted { Err(Refusal::NotFound.into()) } else { Ok(state.item) }
    }

    /// The permission bits that a file has and those that a change of its data leaves, if that or its
    /// capabilities have to change.
    pub(crate) fn privileges_to_drop(&self, caller: &Caller, inode: &Inode) -> Result<Option<(u32, u32)>> {
        let permissions = inode.state().item.mode.permissions();
        let kept = self.permissions_after_write(caller, inode).unwrap_or(permissions);
        let drops_capability = self.has_capability_attribute(inode)?;
        Ok((kept != permissions || drops_capability).then_some((permissions, kept)))
    }

    /// The permission bits that a change of its data leaves a file, if others than it has.
    pub(crate) fn permissions_after_write(&self, caller: &Caller, inode: &Inode) -> Option<u32> {
        if caller.has(Capabilities::FSETID) { None } else { self.permissions_without_set_id(caller, inode) }
    }

    /// What a change of owner leaves of a file's permission bits: no set-user-id, and set-group-id only where
    /// the group can't execute the file and the caller is in it or may keep it (`setattr_should_drop_sgid`,
    /// fs/attr.c).
    pub(crate) fn without_set_id(&self, caller: &Caller, item: &InodeItem) -> u32 {
        let permissions = item.mode.permissions() & !SET_USER_ID;
        let may_keep = caller.is_in_group(self.shown_owner(item).1) || caller.has(Capabilities::FSETID);
        if permissions & GROUP_EXECUTE == 0 && may_keep { permissions } else { permissions & !SET_GROUP_ID }
    }

    /// The permission bits that a change of owner by the caller would leave a file, if others than it has.
    #[must_use]
    pub fn permissions_without_set_id(&self, caller: &Caller, inode: &Inode) -> Option<u32> {
        let item = inode.state().item;
        let kept = self.without_set_id(caller, &item);
        (!inode.is_directory() && kept != item.mode.permissions()).then_some(kept)
    }

    /// Whether a file has capabilities; that it has none is remembered, for this is asked at each write.
    fn has_capability_attribute(&self, inode: &Inode) -> Result<bool> {
        let (has_none, look) = {
            let cache = inode.permissions();
            (cache.has_no_capability(), cache.look())
        };
        if has_none {
            return Ok(false);
        }
        let found = attribute_items::of_inode(self.store.engine(), inode, CAPABILITY_NAME)?.is_some();
        if !found {
            inode.permissions().remember_no_capability(look);
        }
        Ok(found)
    }
}

/// The group and permissions of a new file: those of a set-group-id directory are inherited.
pub(crate) fn inherited_group(
    caller: &Caller,
    directory: &InodeItem,
    file_type: FileType,
    mut permissions: u32,
) -> (GroupId, u32) {
    if directory.mode.0 & SET_GROUP_ID == 0 {
        return (caller.group, permissions);
    }
    if file_type == FileType::Directory {
        permissions |= SET_GROUP_ID;
    } else if permissions & (SET_GROUP_ID | 0o010) == SET_GROUP_ID | 0o010
        && !caller.is_in_group(directory.group)
        && !caller.has(Capabilities::FSETID)
    {
        permissions &= !SET_GROUP_ID;
    }
    (directory.group, permissions)
}

/// What capabilities allow beyond modes.
fn capable_of(caller: &Caller, file_type: FileType, item: &InodeItem, access: Access) -> bool {
    let read_search = caller.has(Capabilities::DAC_READ_SEARCH);
    let override_all = caller.has(Capabilities::DAC_OVERRIDE);
    if file_type == FileType::Directory {
        return override_all || (read_search && !access.has(Access::WRITE));
    }
    if access == Access::READ && read_search {
        return true;
    }
    override_all && (!access.has(Access::EXECUTE) || item.mode.0 & ANY_EXECUTE != 0)
}
