//! Extended attributes: who may see and set which, and where they lie.

use vlinder_base::sync::Arc;
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::directory::{self, DirectoryEntries, DirectoryEntry, ENTRY_HEADER_SIZE, LONGEST_NAME};
use vlinder_format::inode::{FileType, InodeFlags};
use vlinder_format::{Damage, Generation, ItemType, Key, ObjectId};
use vlinder_transaction::ChangeKind;
use vlinder_tree::Readahead;

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::attribute_items;
use crate::changes::Changes;
use crate::compression_property::COMPRESSION_NAME;
use crate::compression_property::CompressionProperty;
use crate::data::begin;
use crate::inode::Inode;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, Capabilities, Filesystem, Refusal, Result};
use vlinder_transaction::Reservation;

/// The largest value that Linux takes (`XATTR_SIZE_MAX`); blocks take less.
const LARGEST_VALUE: usize = 65536;
/// What a block has beside the bytes of its only attribute: the headers of block, item and entry.
const HEADERS: usize = HEADER_SIZE + ITEM_HEADER_SIZE + ENTRY_HEADER_SIZE;
/// File capabilities, which a change of owner or content drops.
pub(crate) const CAPABILITY_NAME: &[u8] = b"security.capability";

/// Whether an attribute may, must or must not be there when it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributeMode {
    /// It may.
    #[default]
    Either,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
    /// It must and must not: always refused, as Linux does.
    CreateAndReplace,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    User,
    Trusted,
    Security,
    Acl,
    Btrfs,
}

fn family_of(name: &[u8]) -> Result<Family> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Refusal::OutOfRange.into());
    }
    if name == ACCESS_NAME || name == DEFAULT_NAME {
        return Ok(Family::Acl);
    }
    let families: [(&[u8], Family); 4] = [
        (b"user.", Family::User),
        (b"trusted.", Family::Trusted),
        (b"security.", Family::Security),
        (b"btrfs.", Family::Btrfs),
    ];
    for (prefix, family) in families {
        if let Some(rest) = name.strip_prefix(prefix) {
            return if rest.is_empty() { Err(Refusal::InvalidArgument.into()) } else { Ok(family) };
        }
    }
    Err(Refusal::NotSupported.into())
}

impl Filesystem {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`Refusal::NoAttribute`], [`Refusal::NotSupported`] for a name of no known family,
    /// [`Refusal::AccessDenied`].
    pub fn extended_attribute(&self, caller: &Caller, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let family = family_of(name)?;
        if inode.is_placeholder() {
            // Linux asks whether a placeholder has attributes after it looked for ACLs, of which there are
            // none.
            let is_acl = family == Family::Acl && self.options().acl;
            return Err(if is_acl { Refusal::NoAttribute } else { Refusal::NotSupported }.into());
        }
        match family {
            Family::Trusted if !caller.has(Capabilities::SYS_ADMIN) => {
                return Err(Refusal::NoAttribute.into());
            }
            Family::User if !takes_user_attributes(inode) => return Err(Refusal::NoAttribute.into()),
            Family::Acl if !self.options().acl || inode.file_type() == FileType::SymbolicLink => {
                return Err(Refusal::NotSupported.into());
            }
            Family::User | Family::Btrfs => self.access(caller, inode, Access::READ)?,
            Family::Trusted | Family::Security | Family::Acl => {}
        }
        self.read_attribute(inode, name)?.ok_or_else(|| Refusal::NoAttribute.into())
    }

    /// The names of all attributes, in the order of their hashes.
    ///
    /// # Errors
    /// What reading met.
    pub fn extended_attributes(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        if inode.is_placeholder() {
            return Ok(names);
        }
        self.for_each_attribute(inode, |entry| names.push(entry.name.to_vec()))?;
        Ok(names)
    }

    /// Sets an attribute. An ACL sets the mode too, `btrfs.compression` the flags.
    ///
    /// # Errors
    /// [`Refusal::Exists`] and [`Refusal::NoAttribute`] as the mode wants it, [`Refusal::AttributeTooLong`]
    /// where it does not fit a block, and those of permissions.
    pub fn set_extended_attribute(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        name: &[u8],
        value: &[u8],
        mode: AttributeMode,
    ) -> Result<()> {
        if value.len() > LARGEST_VALUE {
            return Err(Refusal::TooLarge.into());
        }
        let _operation = inode.operation.write();
        match self.may_set_attribute(caller, inode, name)? {
            Family::Acl => self.set_acl(caller, inode, name, value),
            Family::Btrfs => self.set_property(inode, name, value, mode),
            Family::User | Family::Trusted | Family::Security => {
                self.change_attribute(inode, name, Some(value), mode, |_| {})
            }
        }
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`Refusal::NoAttribute`], and those of permissions.
    pub fn remove_extended_attribute(&self, caller: &Caller, inode: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let _operation = inode.operation.write();
        match self.may_set_attribute(caller, inode, name)? {
            Family::Btrfs => {
                if name != COMPRESSION_NAME {
                    return Err(Refusal::InvalidArgument.into());
                }
                if !has_compression(inode) {
                    return Ok(());
                }
                self.change_attribute(inode, name, None, AttributeMode::Replace, |state| {
                    state.set_compression(CompressionProperty::None);
                })
            }
            // Linux finds nothing wrong with removing a list that is not there.
            Family::Acl => self.change_attribute(inode, name, None, AttributeMode::Either, |_| {}),
            Family::User | Family::Trusted | Family::Security => {
                self.change_attribute(inode, name, None, AttributeMode::Replace, |_| {})
            }
        }
    }

    fn may_set_attribute(&self, caller: &Caller, inode: &Inode, name: &[u8]) -> Result<Family> {
        let family = family_of(name)?;
        let item = self.changeable_or_forgotten_item(inode)?;
        if item.flags.has_any(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Refusal::NotPermitted.into());
        }
        let owner = self.is_owner_or_capable(caller, &item);
        let sticky_directory = inode.is_directory() && item.mode.0 & 0o1000 != 0;
        let allowed = match family {
            Family::User => takes_user_attributes(inode) && (!sticky_directory || owner),
            Family::Trusted => caller.has(Capabilities::SYS_ADMIN),
            Family::Security if name == CAPABILITY_NAME => caller.has(Capabilities::SETFCAP),
            Family::Security => caller.has(Capabilities::SYS_ADMIN),
            Family::Acl => owner || inode.is_placeholder(),
            Family::Btrfs => true,
        };
        if !allowed {
            return Err(Refusal::NotPermitted.into());
        }
        if matches!(family, Family::User | Family::Btrfs) {
            self.access(caller, inode, Access::WRITE)?;
        }
        if inode.is_placeholder() { Err(Refusal::NotSupported.into()) } else { Ok(family) }
    }

    fn set_acl(&self, caller: &Caller, inode: &Arc<Inode>, name: &[u8], value: &[u8]) -> Result<()> {
        if !self.options().acl || inode.file_type() == FileType::SymbolicLink {
            return Err(Refusal::NotSupported.into());
        }
        let acl = Acl::decode(value)?;
        if name == DEFAULT_NAME {
            if !inode.is_directory() {
                return if acl.is_some() { Err(Refusal::AccessDenied.into()) } else { Ok(()) };
            }
            let stored = acl.map(|acl| acl.encode());
            return self.change_attribute(inode, name, stored.as_deref(), AttributeMode::Either, |_| {});
        }
        let Some(acl) = acl else {
            return self.change_attribute(inode, name, None, AttributeMode::Either, |_| {});
        };
        let (bits, mode_says_all) = acl.mode();
        let stored = (!mode_says_all).then(|| acl.encode());
        let item = inode.state().item;
        let keeps_group_id =
            caller.is_in_group(self.shown_owner(&item).1) || caller.has(Capabilities::FSETID);
        self.change_attribute(inode, name, stored.as_deref(), AttributeMode::Either, |state| {
            let mut permissions = state.item.mode.permissions() & !0o777 | bits;
            if !keeps_group_id {
                permissions &= !0o2000;
            }
            state.item.mode = state.item.mode.with_permissions(permissions);
        })
    }

    fn set_property(&self, inode: &Arc<Inode>, name: &[u8], value: &[u8], mode: AttributeMode) -> Result<()> {
        if name != COMPRESSION_NAME {
            return Err(Refusal::InvalidArgument.into());
        }
        let property = CompressionProperty::parse(value).ok_or(Refusal::InvalidArgument)?;
        if inode.flags().has_any(InodeFlags::NODATACOW | InodeFlags::NODATASUM) {
            return Err(Refusal::InvalidArgument.into());
        }
        if !has_compression(inode) {
            return Ok(());
        }
        let stored = (!value.is_empty()).then_some(value);
        self.change_attribute(inode, name, stored, mode, |state| state.set_compression(property))?;
        if let CompressionProperty::Algorithm(algorithm) = property {
            self.require_compression_feature(algorithm)?;
        }
        Ok(())
    }

    /// Sets or removes an attribute in one transaction with what `adapt` does to the inode.
    pub(crate) fn change_attribute(
        &self,
        inode: &Arc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        mode: AttributeMode,
        adapt: impl FnOnce(&mut crate::InodeState),
    ) -> Result<()> {
        let mut handle = with_room(self.engine(), || {
            let mut handle = begin(self.store(), Reservation::items(3).of(ChangeKind::Attributes))?;
            let mut changes = Changes::new(self.engine(), inode.subvolume());
            changes.touch_inode(inode.number());
            changes.set_attribute(inode.number(), name, value, mode, handle.generation())?;
            changes.apply(&mut handle)?;
            Ok(handle)
        })?;
        let mut state = inode.state();
        state.acl = Default::default();
        state.no_capability = false;
        adapt(&mut state);
        state.note_change(Stamp::of(&handle).time);
        inode.put(&mut handle, &mut state);
        Ok(())
    }

    /// The value of an attribute, without asking who wants it.
    pub(crate) fn read_attribute(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        attribute_items::read(self.engine(), inode.subvolume().tree(), inode.number(), name)
    }

    fn for_each_attribute(&self, inode: &Inode, mut each: impl FnMut(&DirectoryEntry<'_>)) -> Result<()> {
        let tree = inode.subvolume().tree();
        let first = Key::new(inode.number(), ItemType::XATTR_ITEM, 0);
        let mut cursor = self.engine().forest().trees().cursor(tree.root(), &first, Readahead::None)?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid != inode.number() || key.item_type != ItemType::XATTR_ITEM {
                break;
            }
            for entry in DirectoryEntries::new(data) {
                each(&entry.map_err(|fault| Damage::new(fault, cursor.place()))?);
            }
            cursor.advance()?;
        }
        Ok(())
    }
}

/// Whether the property of compression means something: on other files Linux takes it and keeps nothing
/// (`prop_compression_ignore`, fs/btrfs/props.c).
fn has_compression(inode: &Inode) -> bool {
    matches!(inode.file_type(), FileType::Regular | FileType::Directory)
}

/// Only files and directories: on others a mode does not say who may write.
fn takes_user_attributes(inode: &Inode) -> bool {
    matches!(inode.file_type(), FileType::Regular | FileType::Directory)
}

impl Changes<'_> {
    /// Sets or removes an attribute of an inode.
    ///
    /// # Errors
    /// As the mode wants it [`Refusal::Exists`] or [`Refusal::NoAttribute`]; [`Refusal::AttributeTooLong`]
    /// where it does not fit.
    pub(crate) fn set_attribute(
        &mut self,
        inode: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: AttributeMode,
        transaction: Generation,
    ) -> Result<()> {
        let key = directory::attribute_key(inode, name);
        let mut item = self.current(&key)?.unwrap_or_default();
        let was_there = directory::remove(&mut item, name).map_err(|fault| self.damage(key, fault))?;
        match (mode, was_there) {
            (AttributeMode::Create | AttributeMode::CreateAndReplace, true) => {
                return Err(Refusal::Exists.into());
            }
            (AttributeMode::Replace | AttributeMode::CreateAndReplace, false) => {
                return Err(Refusal::NoAttribute.into());
            }
            _ => {}
        }
        if let Some(value) = value {
            if HEADERS + name.len() + value.len() > self.node_size() {
                return Err(Refusal::AttributeTooLong.into());
            }
            let entry = DirectoryEntry::attribute(name, value, transaction);
            let collides = !item.is_empty();
            entry.append_to(&mut item);
            if collides && self.grows_too_large(item.len()) {
                return Err(Refusal::AttributeTooLong.into());
            }
        } else if !was_there {
            return Ok(());
        }
        self.put_rest(key, item);
        Ok(())
    }
}
