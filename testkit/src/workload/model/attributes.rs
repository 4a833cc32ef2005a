//! Attributes: owner, mode, times, flags, extended attributes.

use rustix::io::Errno;

use super::acl::{ACCESS, Acl, DEFAULT};
use super::node::flag;
use super::state::ModelState;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{Place, SetMode};

const FIXED: u64 = flag::IMMUTABLE | flag::APPEND;

/// Operations that change attributes.
pub(super) struct AttributeOperations<'m> {
    state: &'m mut ModelState,
}

impl<'m> AttributeOperations<'m> {
    pub(super) fn new(state: &'m mut ModelState) -> Self {
        Self { state }
    }

    pub(super) fn set_attribute(
        &mut self,
        place: Place,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
    ) -> Result<(), Errno> {
        let (file, node) = self.state.changeable(place, FIXED)?;
        let is_plain = matches!(node.kind, NodeKind::File | NodeKind::Directory);
        if name.starts_with(b"user.") && !is_plain {
            return Err(Errno::PERM);
        }
        if name == ACCESS || name == DEFAULT {
            return self.set_acl(place, name, value);
        }
        match (mode, node.attributes.contains_key(name)) {
            (SetMode::Create, true) => return Err(Errno::EXIST),
            (SetMode::Replace, false) => return Err(Errno::NODATA),
            _ => {}
        }
        if !self.state.is_trial() {
            self.state.change(file).attributes.insert(name.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn set_acl(&mut self, place: Place, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let (file, node) = self.state.existing(place)?;
        if node.kind == NodeKind::SymbolicLink {
            return Err(Errno::OPNOTSUPP);
        }
        if name == DEFAULT && node.kind != NodeKind::Directory {
            return Err(Errno::ACCESS);
        }
        let acl = Acl::decode(value).ok_or(Errno::INVAL)?;
        if self.state.is_trial() {
            return Ok(());
        }
        let node = self.state.change(file);
        if name == ACCESS {
            node.permissions = node.permissions & !0o777 | acl.mode();
            if acl.is_only_mode() {
                node.attributes.remove(name);
                return Ok(());
            }
        }
        node.attributes.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    pub(super) fn remove_attribute(&mut self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let (file, node) = self.state.changeable(place, FIXED)?;
        let is_plain = matches!(node.kind, NodeKind::File | NodeKind::Directory);
        if name.starts_with(b"user.") && !is_plain {
            return Err(Errno::PERM);
        }
        let is_acl = name == ACCESS || name == DEFAULT;
        if !node.attributes.contains_key(name) && !is_acl {
            return Err(Errno::NODATA);
        }
        if !self.state.is_trial() {
            // Removing an ACL that is not there succeeds.
            self.state.change(file).attributes.remove(name);
        }
        Ok(())
    }

    pub(super) fn set_permissions(&mut self, place: Place, permissions: u32) -> Result<(), Errno> {
        let (file, _) = self.state.changeable(place, FIXED)?;
        if !self.state.is_trial() {
            let node = self.state.change(file);
            node.permissions = permissions;
            if let Some(mut acl) = node.attributes.get(ACCESS).and_then(|value| Acl::decode(value)) {
                acl.set_mode(permissions);
                node.attributes.insert(ACCESS.to_vec(), acl.encode());
            }
        }
        Ok(())
    }

    pub(super) fn set_owner(
        &mut self,
        place: Place,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<(), Errno> {
        let (file, _) = self.state.changeable(place, FIXED)?;
        if self.state.is_trial() {
            return Ok(());
        }
        let node = self.state.change(file);
        node.user = user.unwrap_or(node.user);
        node.group = group.unwrap_or(node.group);
        if node.kind != NodeKind::Directory {
            node.permissions &= !0o4000;
            if node.permissions & 0o010 != 0 {
                node.permissions &= !0o2000;
            }
        }
        Ok(())
    }

    pub(super) fn set_times(&mut self, place: Place, modified: (i64, u32)) -> Result<(), Errno> {
        let (file, _) = self.state.changeable(place, FIXED)?;
        if !self.state.is_trial() {
            self.state.change(file).modified = Some(modified);
        }
        Ok(())
    }

    pub(super) fn set_flags(&mut self, place: Place) -> Result<(), Errno> {
        // What becomes of the flags depends on type and size; they are learned, and must not change
        // afterwards.
        let (file, node) = self.state.changeable(place, 0)?;
        if !matches!(node.kind, NodeKind::File | NodeKind::Directory) {
            return Err(Errno::OPNOTSUPP);
        }
        if !self.state.is_trial() {
            let node = self.state.change(file);
            node.flags = None;
            node.compression = None;
        }
        Ok(())
    }

    pub(super) fn set_compression(&mut self, place: Place, value: &[u8]) -> Result<(), Errno> {
        let (file, node) = self.state.changeable(place, FIXED)?;
        if node.has(flag::NODATACOW | flag::NODATASUM) {
            return Err(Errno::INVAL);
        }
        // On what has no data of its own Linux takes the property and keeps nothing.
        if matches!(node.kind, NodeKind::File | NodeKind::Directory) && !self.state.is_trial() {
            let node = self.state.change(file);
            node.flags = None;
            node.compression = Some(value.to_vec());
        }
        Ok(())
    }
}
