//! Answers requests about extended attributes.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::AttributeMode;

use super::convert::{errno, judged};
use super::mounted::Mounted;
use super::parts::Parts;
use super::privileges::judged_by_process;
use crate::transport::{ExtendedAttributeService, NodeNumber, Reply, Requester};

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const XATTR_BOTH: i32 = XATTR_CREATE | XATTR_REPLACE;

/// Extended attributes of files.
pub struct ExtendedAttributes {
    mounted: Arc<Mounted>,
}

impl ExtendedAttributes {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self { mounted: parts.mounted.clone() }
    }
}

impl ExtendedAttributeService for ExtendedAttributes {
    fn set_extended_attribute(
        &self,
        requester: Requester,
        node: NodeNumber,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Reply<()> {
        let mode = match flags {
            0 => AttributeMode::Either,
            XATTR_CREATE => AttributeMode::Create,
            XATTR_REPLACE => AttributeMode::Replace,
            XATTR_BOTH => AttributeMode::CreateAndReplace,
            _ => return Err(Errno::INVAL),
        };
        let is_acl = name.starts_with(b"system.posix_acl_");
        let caller = if is_acl { judged_by_process(requester) } else { judged(requester, 0) };
        let inode = self.mounted.inode(node)?;
        self.mounted.with_room(|| {
            let filesystem = self.mounted.filesystem();
            filesystem
                .attributes()
                .set_extended_attribute(&caller, &inode, name, value, mode)
                .map_err(|error| errno(&error))
        })?;
        if is_acl && requester.acts_as_root {
            // The kernel knows nothing of ACLs on such a mount: that one changes the mode, it has to be told.
            self.mounted.attributes_changed(inode.id());
        }
        Ok(())
    }

    fn extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<Vec<u8>> {
        let inode = self.mounted.inode(node)?;
        self.mounted
            .filesystem()
            .attributes()
            .extended_attribute(&judged(requester, 0), &inode, name)
            .map_err(|error| errno(&error))
    }

    fn extended_attributes(&self, node: NodeNumber) -> Reply<Vec<u8>> {
        let inode = self.mounted.inode(node)?;
        let names = self
            .mounted
            .filesystem()
            .attributes()
            .extended_attributes(&inode)
            .map_err(|error| errno(&error))?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    fn remove_extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<()> {
        let inode = self.mounted.inode(node)?;
        let removed = self.mounted.filesystem().attributes().remove_extended_attribute(
            &judged(requester, 0),
            &inode,
            name,
        );
        removed.map_err(|error| errno(&error))
    }
}
