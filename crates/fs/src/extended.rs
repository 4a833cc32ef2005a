//! Extended attributes: who may see and set which, and where they lie.

use vlinder_base::sync::Arc;
use vlinder_data::{COMPRESSION_NAME, CompressionProperty};
use vlinder_format::directory::LONGEST_NAME;
use vlinder_format::inode::{FileType, InodeFlags};

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::attribute_change::{AttributeMode, CAPABILITY_NAME, change_attribute};
use crate::inode::Inode;
use crate::metadata::InodeAttributes;
use crate::property::require_compression_feature;
use crate::{Access, Caller, Capabilities, Refusal, Result, attribute_items};

/// The largest value that Linux takes (`XATTR_SIZE_MAX`); blocks take less.
const LARGEST_VALUE: usize = 65536;
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

impl InodeAttributes<'_> {
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
            let is_acl = family == Family::Acl && self.rights().reads_acl();
            return Err(if is_acl { Refusal::NoAttribute } else { Refusal::NotSupported }.into());
        }
        match family {
            Family::Trusted if !caller.has(Capabilities::SYS_ADMIN) => {
                return Err(Refusal::NoAttribute.into());
            }
            Family::User if !takes_user_attributes(inode) => return Err(Refusal::NoAttribute.into()),
            Family::Acl if !self.rights().reads_acl() || inode.file_type() == FileType::SymbolicLink => {
                return Err(Refusal::NotSupported.into());
            }
            Family::User | Family::Btrfs => self.rights().access(caller, inode, Access::READ)?,
            Family::Trusted | Family::Security | Family::Acl => {}
        }
        attribute_items::of_inode(self.engine(), inode, name)?.ok_or_else(|| Refusal::NoAttribute.into())
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
        attribute_items::for_each(self.engine(), inode, |entry| names.push(entry.name.to_vec()))?;
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
                change_attribute(self.store(), inode, name, Some(value), mode, |_| {})
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
                change_attribute(self.store(), inode, name, None, AttributeMode::Replace, |state| {
                    state.set_compression(CompressionProperty::None);
                })
            }
            // Linux finds nothing wrong with removing a list that is not there.
            Family::Acl => change_attribute(self.store(), inode, name, None, AttributeMode::Either, |_| {}),
            Family::User | Family::Trusted | Family::Security => {
                change_attribute(self.store(), inode, name, None, AttributeMode::Replace, |_| {})
            }
        }
    }

    fn may_set_attribute(&self, caller: &Caller, inode: &Inode, name: &[u8]) -> Result<Family> {
        let family = family_of(name)?;
        let item = self.rights().changeable_or_forgotten_item(inode)?;
        if item.flags.has_any(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Refusal::NotPermitted.into());
        }
        let owner = self.rights().is_owner_or_capable(caller, &item);
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
            self.rights().access(caller, inode, Access::WRITE)?;
        }
        if inode.is_placeholder() { Err(Refusal::NotSupported.into()) } else { Ok(family) }
    }

    fn set_acl(&self, caller: &Caller, inode: &Arc<Inode>, name: &[u8], value: &[u8]) -> Result<()> {
        if !self.rights().reads_acl() || inode.file_type() == FileType::SymbolicLink {
            return Err(Refusal::NotSupported.into());
        }
        let acl = Acl::decode(value)?;
        if name == DEFAULT_NAME {
            if !inode.is_directory() {
                return if acl.is_some() { Err(Refusal::AccessDenied.into()) } else { Ok(()) };
            }
            let stored = acl.map(|acl| acl.encode());
            return change_attribute(
                self.store(),
                inode,
                name,
                stored.as_deref(),
                AttributeMode::Either,
                |_| {},
            );
        }
        let Some(acl) = acl else {
            return change_attribute(self.store(), inode, name, None, AttributeMode::Either, |_| {});
        };
        let (bits, mode_says_all) = acl.mode();
        let stored = (!mode_says_all).then(|| acl.encode());
        let item = inode.state().item;
        let keeps_group_id =
            caller.is_in_group(self.rights().shown_owner(&item).1) || caller.has(Capabilities::FSETID);
        change_attribute(self.store(), inode, name, stored.as_deref(), AttributeMode::Either, |state| {
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
        change_attribute(self.store(), inode, name, stored, mode, |state| state.set_compression(property))?;
        if let CompressionProperty::Algorithm(algorithm) = property {
            require_compression_feature(self.store(), algorithm)?;
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
