//! What a caller may do: modes, ACLs, capabilities, flags of inodes, and the borders of directories.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, GroupId, InodeFlags, InodeItem, UserId};

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::inode::Inode;
use crate::{Access, Caller, Capabilities, Filesystem, Refusal, Result};

const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const ANY_EXECUTE: u32 = 0o111;

impl Filesystem {
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
        self.shared().shown_owner.unwrap_or((item.user, item.group))
    }

    /// Whether a caller is a file's owner or may act as such.
    pub(crate) fn is_owner_or_capable(&self, caller: &Caller, item: &InodeItem) -> bool {
        caller.user == self.shown_owner(item).0 || caller.has(Capabilities::FOWNER)
    }

    /// The list that governs access.
    pub(crate) fn access_acl(&self, inode: &Inode) -> Result<Option<Arc<Acl>>> {
        if let Some(known) = &inode.state().acl.access {
            return Ok(known.clone());
        }
        let read = self.read_acl(inode, ACCESS_NAME)?;
        inode.state().acl.access.get_or_insert_with(|| read.clone());
        Ok(read)
    }

    /// The list that new files begin with.
    pub(crate) fn default_acl(&self, directory: &Inode) -> Result<Option<Arc<Acl>>> {
        if let Some(known) = &directory.state().acl.default {
            return Ok(known.clone());
        }
        let read = self.read_acl(directory, DEFAULT_NAME)?;
        directory.state().acl.default.get_or_insert_with(|| read.clone());
        Ok(read)
    }

    fn read_acl(&self, inode: &Inode, name: &[u8]) -> Result<Option<Arc<Acl>>> {
        if !self.options().acl || inode.is_placeholder() || inode.file_type() == FileType::SymbolicLink {
            return Ok(None);
        }
        let Some(value) = self.read_attribute(inode, name)? else { return Ok(None) };
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

    /// The group and permissions of a new file: those of a set-group-id directory are inherited.
    pub(crate) fn inherited_group(
        &self,
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
