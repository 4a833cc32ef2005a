//! Attributes: showing them, changing them, and what other changes do to them (set-id bits, capabilities,
//! access times).

use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_data::{COMPRESSION_NAME, CompressionProperty, FileStore, InodeState, begin, begin_at_once};
use vlinder_format::inode::{FileType, GroupId, InodeFlags, InodeItem, Timestamp, UserId};
use vlinder_transaction::{ChangeKind, Engine, Handle, Reservation};

use crate::access_time::AccessTimeRule;
use crate::acl::{ACCESS_NAME, Acl};
use crate::attribute_change::{AttributeMode, CAPABILITY_NAME, change_attribute};
use crate::attributes::Attributes;
use crate::changes::Changes;
use crate::inode::Inode;
use crate::options::OpenOptions;
use crate::permission::Rights;
use crate::privileges::kill_privileges;
use crate::property::require_compression_feature;
use crate::room::with_room;
use crate::set_attributes::{SetAttributes, SetTime};
use crate::stamp::{Stamp, now, recently};
use crate::{Access, Caller, Capabilities, FsError, Refusal, Result, attribute_items};

const SET_GROUP_ID: u32 = 0o2000;
/// The flags that callers may set and clear.
const SETTABLE: InodeFlags = InodeFlags(
    InodeFlags::SYNC.0
        | InodeFlags::APPEND.0
        | InodeFlags::IMMUTABLE.0
        | InodeFlags::NODUMP.0
        | InodeFlags::NOATIME.0
        | InodeFlags::DIRSYNC.0
        | InodeFlags::COMPRESS.0
        | InodeFlags::NOCOMPRESS.0
        | InodeFlags::NODATACOW.0
        | InodeFlags::NODATASUM.0,
);

/// Sets the times that are to be set. `now` is asked only where it is needed: the kernel sends the times that
/// it keeps.
fn set_times(
    state: &mut InodeState,
    changes: &SetAttributes,
    recently: Timestamp,
    now: impl Fn() -> Timestamp,
) {
    if changes.change_time.is_some() && changes.modification_time.is_some() {
        state.times_came = Some(recently);
    }
    let time = |set: SetTime| match set {
        SetTime::Now => now(),
        SetTime::At(time) | SetTime::Stamped(time) => time,
    };
    state.note_change(changes.change_time.unwrap_or_else(&now));
    if let Some(set) = changes.access_time {
        state.item.access_time = time(set);
    }
    if let Some(set) = changes.modification_time {
        state.item.modification_time = time(set);
    }
}

/// The attributes of files: those of stat, extended ones, and flags.
#[derive(Clone, Copy)]
pub struct InodeAttributes<'a> {
    store: &'a Arc<FileStore>,
    rights: &'a Rights,
    access_times: &'a AccessTimeRule,
    /// How a file is compressed that has the flag for it and no property.
    compression: Compression,
}

impl<'a> InodeAttributes<'a> {
    pub(crate) fn new(
        store: &'a Arc<FileStore>,
        rights: &'a Rights,
        access_times: &'a AccessTimeRule,
        options: &OpenOptions,
    ) -> Self {
        let compression = options.compress.map_or(Compression::Zlib, |option| option.algorithm);
        Self { store, rights, access_times, compression }
    }

    pub(crate) fn engine(self) -> &'a Engine {
        self.store.engine()
    }

    pub(crate) fn store(self) -> &'a Arc<FileStore> {
        self.store
    }

    pub(crate) fn rights(self) -> &'a Rights {
        self.rights
    }
}

impl InodeAttributes<'_> {
    /// What `stat` shows of a file.
    #[must_use]
    pub fn of(&self, inode: &Inode) -> Attributes {
        let state = inode.state();
        let (unwritten_bytes, is_scattered) = inode.data().unwritten();
        let mut attributes = Attributes::of_item(
            inode.id(),
            inode.file_type(),
            &state.item,
            self.store.sector_size(),
            unwritten_bytes,
        );
        (attributes.user, attributes.group) = self.rights().shown_owner(&state.item);
        // One run in a file without extents is counted already, in whole sectors but for where it begins.
        let is_counted = unwritten_bytes == 0 || (state.item.allocated_bytes == 0 && !is_scattered);
        let sector_size = u64::from(self.store.sector_size().max(1));
        let whole = |bytes: u64| bytes.checked_next_multiple_of(sector_size).unwrap_or(bytes);
        let stored_bytes = whole(state.item.allocated_bytes);
        // Nothing was ever preallocated behind its end, so its extents leave no hole, and what was written
        // replaces others.
        let is_whole =
            !state.item.flags.has(InodeFlags::PREALLOC) && stored_bytes >= whole(state.item.size_bytes);
        drop(state);
        if !is_counted {
            attributes.allocated_bytes = if is_whole {
                stored_bytes
            } else {
                vlinder_data::allocated_bytes(self.store(), inode.node())
            };
        }
        attributes
    }

    /// Whether bytes of a file were written that lie in no extent yet.
    #[must_use]
    pub fn has_unflushed(&self, inode: &Inode) -> bool {
        inode.data().unwritten_bytes() > 0
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] for an owner or group that is no id; those of permissions; those of
    /// changing the size, which comes first.
    pub fn set(&self, caller: &Caller, inode: &Arc<Inode>, changes: &SetAttributes) -> Result<Attributes> {
        {
            let _operation = inode.operation.write();
            self.may_set(caller, inode, changes)?;
            if inode.is_placeholder() {
                self.set_for_now(caller, inode, changes);
                return Ok(self.of(inode));
            }
            if let Some(size) = changes.size {
                self.set_size(caller, inode, size, changes.keeps_capability)?;
            }
            if *changes
                != (SetAttributes {
                    size: changes.size,
                    opened_for_writing: changes.opened_for_writing,
                    keeps_set_id: changes.keeps_set_id,
                    keeps_capability: changes.keeps_capability,
                    ..SetAttributes::default()
                })
            {
                self.set_others_or_keep_times(caller, inode, changes)?;
            }
        }
        Ok(self.of(inode))
    }

    fn may_set(&self, caller: &Caller, inode: &Inode, changes: &SetAttributes) -> Result<()> {
        // chown(2) takes 2^32-1 as "leave it": a file of that owner could not be copied to any host with its
        // owner.
        let are_ids = changes.user.is_none_or(UserId::is_id) && changes.group.is_none_or(GroupId::is_id);
        if !are_ids {
            return Err(Refusal::InvalidArgument.into());
        }
        let item = self.rights().changeable_or_forgotten_item(inode)?;
        if changes.handed_over {
            return Ok(());
        }
        let times = [changes.access_time, changes.modification_time];
        let sets_times = times.iter().flatten().any(|time| matches!(time, SetTime::At(_)));
        let touches_times = times.iter().any(Option::is_some);
        let fixed = item.flags.has_any(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if fixed && (changes.touches_owner_or_mode() || sets_times)
            || item.flags.has(InodeFlags::IMMUTABLE) && touches_times
        {
            return Err(Refusal::NotPermitted.into());
        }
        let owner = self.rights().is_owner_or_capable(caller, &item);
        if !self.may_chown(caller, &item, changes)
            || ((changes.permissions.is_some() || sets_times) && !owner)
        {
            return Err(Refusal::NotPermitted.into());
        }
        if touches_times && !owner {
            self.rights().access(caller, inode, Access::WRITE)?;
        }
        if changes.size.is_some() {
            self.may_resize(caller, inode, &item, changes)?;
        }
        Ok(())
    }

    /// Changes a placeholder, which is in memory alone.
    fn set_for_now(&self, caller: &Caller, inode: &Inode, changes: &SetAttributes) {
        let changes = self.without_shown_owner(*changes);
        let mut item = inode.state().item;
        self.adapt(caller, inode, &mut item, &changes);
        let mut state = inode.state();
        (state.item.user, state.item.group, state.item.mode) = (item.user, item.group, item.mode);
        set_times(&mut state, &changes, recently(self.engine()), || now(self.engine()));
    }

    fn may_chown(&self, caller: &Caller, item: &InodeItem, changes: &SetAttributes) -> bool {
        let (user, group) = self.rights().shown_owner(item);
        if self.rights().owner_of_all().is_some() && !changes.sets_stored_owner {
            // What is stored stays; asking for what is shown changes nothing.
            return changes.user.is_none_or(|wanted| wanted == user)
                && changes.group.is_none_or(|wanted| wanted == group);
        }
        let capable = caller.has(Capabilities::CHOWN);
        let owns = caller.user == user;
        let user_allowed = changes.user.is_none_or(|wanted| capable || (owns && wanted == user));
        let group_allowed = changes
            .group
            .is_none_or(|wanted| capable || (owns && (wanted == group || caller.is_in_group(wanted))));
        user_allowed && group_allowed
    }

    fn may_resize(
        &self,
        caller: &Caller,
        inode: &Inode,
        item: &InodeItem,
        changes: &SetAttributes,
    ) -> Result<()> {
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Refusal::IsADirectory.into()),
            _ => return Err(Refusal::InvalidArgument.into()),
        }
        if !changes.opened_for_writing {
            self.rights().access(caller, inode, Access::WRITE)?;
        }
        if item.flags.has_any(InodeFlags::APPEND | InodeFlags::IMMUTABLE) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    fn set_size(&self, caller: &Caller, inode: &Arc<Inode>, size: u64, keeps_capability: bool) -> Result<()> {
        if !keeps_capability {
            kill_privileges(self.store(), self.rights(), caller, inode)?;
        } else if let Some(kept) = self.rights().permissions_after_write(caller, inode) {
            let changes =
                SetAttributes { permissions: Some(kept), keeps_capability, ..SetAttributes::default() };
            self.set_others_or_keep_times(caller, inode, &changes)?;
        }
        with_room(self.engine(), || Ok(vlinder_data::truncate(self.store(), inode.node(), size)?))?;
        let mut handle = begin(self.store(), Reservation::accepted(1).of(ChangeKind::Attributes))?;
        let charged = inode.charge_item(&mut handle);
        let mut state = inode.state();
        state.note_content_change(Stamp::of(&handle).time);
        match charged {
            // The file is cut already; its times wait in memory until there is room.
            Err(error) if error.refusal() == Some(Refusal::NoSpace) => self.mark_dirty(inode, &mut state),
            charged => {
                charged?;
                inode.put(&mut handle, &mut state);
            }
        }
        Ok(())
    }

    /// Times alone wait in memory where there is no room for them; no commit is made for that.
    fn set_others_or_keep_times(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
    ) -> Result<()> {
        const LEAVES: u32 = 3;
        let reservation = Reservation::items(LEAVES).of(ChangeKind::Attributes);
        if !changes.sets_times_alone() {
            return with_room(self.engine(), || {
                let handle = begin(self.store(), reservation)?;
                self.set_others(caller, inode, changes, handle)
            });
        }
        let begun = begin_at_once(self.store(), reservation).map_err(FsError::from);
        match begun.and_then(|handle| self.set_others(caller, inode, changes, handle)) {
            Err(error) if error.refusal() == Some(Refusal::NoSpace) => {
                self.keep_times(inode, changes);
                Ok(())
            }
            done => done,
        }
    }

    fn set_others(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
        mut handle: Handle<'_>,
    ) -> Result<()> {
        let changes = &self.without_shown_owner(*changes);
        let acl = match changes.permissions {
            Some(_) => self.rights().access_acl(inode)?,
            None => None,
        };
        let changes_owner = changes.user.is_some() || changes.group.is_some();
        let drops_capability = changes_owner
            && !changes.keeps_capability
            && !inode.is_directory()
            && attribute_items::of_inode(self.engine(), inode, CAPABILITY_NAME)?.is_some();
        let mut item = inode.state().item;
        self.adapt(caller, inode, &mut item, changes);
        let mut edits = Changes::new(self.engine(), inode.subvolume());
        edits.touch_inode(inode.number());
        if drops_capability {
            edits.set_attribute(
                inode.number(),
                CAPABILITY_NAME,
                None,
                AttributeMode::Either,
                handle.generation(),
            )?;
        }
        let new_acl = acl.map(|acl| {
            let mut acl = Acl::clone(&acl);
            acl.set_mode(item.mode.permissions());
            acl
        });
        if let Some(acl) = &new_acl {
            let value = acl.encode();
            edits.set_attribute(
                inode.number(),
                ACCESS_NAME,
                Some(&value),
                AttributeMode::Either,
                handle.generation(),
            )?;
        }
        edits.apply(&mut handle)?;
        self.store_item(&mut handle, inode, changes, item, new_acl);
        Ok(())
    }

    fn without_shown_owner(&self, mut changes: SetAttributes) -> SetAttributes {
        if self.rights().owner_of_all().is_some() && !changes.sets_stored_owner {
            changes.user = None;
            changes.group = None;
        }
        changes
    }

    /// Owner and mode as they will be.
    fn adapt(&self, caller: &Caller, inode: &Inode, item: &mut InodeItem, changes: &SetAttributes) {
        if changes.user.is_some() || changes.group.is_some() {
            if !inode.is_directory() && !changes.keeps_set_id {
                item.mode = item.mode.with_permissions(self.rights().without_set_id(caller, item));
            }
            item.user = changes.user.unwrap_or(item.user);
            item.group = changes.group.unwrap_or(item.group);
        }
        if let Some(permissions) = changes.permissions {
            let mut permissions = permissions;
            if !caller.is_in_group(self.rights().shown_owner(item).1) && !caller.has(Capabilities::FSETID) {
                permissions &= !SET_GROUP_ID;
            }
            item.mode = item.mode.with_permissions(permissions);
        }
    }

    fn store_item(
        &self,
        handle: &mut Handle<'_>,
        inode: &Inode,
        changes: &SetAttributes,
        item: InodeItem,
        acl: Option<Acl>,
    ) {
        let mut state = inode.state();
        (state.item.user, state.item.group, state.item.mode) = (item.user, item.group, item.mode);
        if let Some(acl) = acl {
            inode.permissions().change_access_acl(Arc::new(acl));
        }
        set_times(&mut state, changes, recently(self.engine()), || Stamp::of(handle).time);
        if let Some(birth_time) = changes.birth_time {
            state.item.birth_time = birth_time;
        }
        inode.put(handle, &mut state);
    }

    /// Sets times that find no space in a transaction: they wait in memory until there is some. Times of an
    /// inode that is there are never refused (docs/design/space.md).
    fn keep_times(&self, inode: &Arc<Inode>, changes: &SetAttributes) {
        let mut state = inode.state();
        set_times(&mut state, changes, recently(self.engine()), || now(self.engine()));
        if !state.deleted {
            self.mark_dirty(inode, &mut state);
        }
        drop(state);
        self.store().background().note_change();
    }

    /// A file was read, or a directory listed: its access time follows the options. The change waits for the
    /// commit.
    pub fn note_access(&self, inode: &Arc<Inode>) {
        self.access_times.note_access(self.store(), self.rights(), inode);
    }

    /// Notes that an inode's item changed without a transaction: the next commit takes it.
    pub(crate) fn mark_dirty(&self, inode: &Arc<Inode>, state: &mut InodeState) {
        self.store().mark_dirty(inode.node(), state);
    }

    /// Sets the flags of a file, those of [`InodeFlags`] that chattr(1) sets; others stay.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`] for others than the owner, and without a capability for append and
    /// immutable; [`Refusal::InvalidArgument`] for `nodatacow` or `nodatasum` on a file that has data, or
    /// together with compression.
    pub fn set_flags(&self, caller: &Caller, inode: &Arc<Inode>, flags: InodeFlags) -> Result<()> {
        self.change_flags(caller, inode, |_, _| Ok(flags))
    }

    /// As [`set_flags`](Self::set_flags), with flags that follow from those that the file has, which nobody
    /// else changes meanwhile. They are told with whether a regular file holds no data.
    ///
    /// # Errors
    /// As [`set_flags`](Self::set_flags), and what `change` refuses.
    pub fn change_flags(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        change: impl FnOnce(InodeFlags, bool) -> Result<InodeFlags, Refusal>,
    ) -> Result<()> {
        let _operation = inode.operation.write();
        let item = self.rights().changeable_item(inode)?;
        if !self.rights().is_owner_or_capable(caller, &item) {
            return Err(Refusal::NotPermitted.into());
        }
        let regular = inode.file_type() == FileType::Regular;
        let is_empty = regular && item.size_bytes == 0 && inode.data().may_be_forgotten();
        let flags = change(item.flags, is_empty)?;
        let wanted = InodeFlags(item.flags.0 & !SETTABLE.0 | flags.0 & SETTABLE.0);
        let changed = InodeFlags(wanted.0 ^ item.flags.0);
        if changed.has_any(InodeFlags::APPEND | InodeFlags::IMMUTABLE)
            && !caller.has(Capabilities::LINUX_IMMUTABLE)
        {
            return Err(Refusal::NotPermitted.into());
        }
        let no_data = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        if (wanted.has(InodeFlags::COMPRESS) && wanted.has_any(no_data | InodeFlags::NOCOMPRESS))
            || (regular && changed.has_any(no_data) && !is_empty)
            || !matches!(inode.file_type(), FileType::Regular | FileType::Directory)
        {
            return Err(Refusal::InvalidArgument.into());
        }
        // As Linux has it, the property follows the flag each time: the mount's algorithm, zlib without one.
        let algorithm = wanted.has(InodeFlags::COMPRESS).then_some(self.compression);
        let property = algorithm.map_or(CompressionProperty::None, CompressionProperty::Algorithm);
        let value = algorithm.map(|algorithm| algorithm.name().as_bytes());
        change_attribute(self.store(), inode, COMPRESSION_NAME, value, AttributeMode::Either, |state| {
            state.item.flags = wanted;
            if regular && wanted.has(InodeFlags::NODATACOW) {
                // Data overwritten in place can't keep their checksums right through a crash.
                state.item.flags = wanted.with(InodeFlags::NODATASUM);
            }
            state.compression = Some(property);
        })?;
        if let Some(algorithm) = algorithm {
            require_compression_feature(self.store(), algorithm)?;
        }
        Ok(())
    }
}
