//! Answers requests about what is shown of a file or of the whole file system.

use rustix::io::Errno;
use vlinder_base::sync::{Arc, OnceLock};
use vlinder_device::{CHECKSUM_QUESTION_COMMAND, MOUNT_NAME_COMMAND};
use vlinder_fs::InodeFlags;

use super::convert::{errno, judged, timestamp_of};
use super::durability::{Durability, is_synchronous};
use super::flags::FlagRequests;
use super::gate::{Admission, Gate};
use super::mounted::Mounted;
use super::parts::Parts;
use super::privileges::Privileges;
use super::shown::Shown;
use super::unplaced::UnplacedBytes;
use crate::transport::{
    AttributeChanges, AttributeService, Deferred, HandleNumber, NodeAttributes, NodeNumber, Reply, Requester,
    SetTime, Statistics,
};

/// Attributes of files.
pub struct FileAttributes {
    mounted: Arc<Mounted>,
    shown: Arc<Shown>,
    gate: Arc<Gate>,
    admission: Arc<Admission>,
    unplaced: Arc<UnplacedBytes>,
    durability: Arc<Durability>,
    privileges: Privileges,
    flags: FlagRequests,
    /// What a program is told that asks the mount for the name of its control socket.
    told_name: OnceLock<Vec<u8>>,
}

impl FileAttributes {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            shown: parts.shown.clone(),
            gate: parts.gate.clone(),
            unplaced: parts.unplaced.clone(),
            durability: parts.durability.clone(),
            privileges: parts.privileges,
            admission: Arc::new(Admission::new(
                parts.mounted.clone(),
                parts.gate.clone(),
                parts.shown.clone(),
                parts.unplaced.clone(),
            )),
            flags: FlagRequests::new(parts.mounted.clone(), parts.change_times.clone()),
            told_name: OnceLock::new(),
        }
    }

    /// A program that asks the mount is told this name of its control socket.
    pub(super) fn tell_name(&self, name: &[u8]) {
        if let Some(answer) = vlinder_device::encode_mount_name(name) {
            let _ = self.told_name.set(answer);
        }
    }
}

impl AttributeService for FileAttributes {
    fn attributes(&self, node: NodeNumber) -> Reply<NodeAttributes> {
        self.shown.of_node(node)
    }

    fn attributes_by_handle(&self, node: NodeNumber, handle: HandleNumber, answer: Deferred<NodeAttributes>) {
        self.admission.admit(node, handle, answer);
    }

    fn set_attributes(
        &self,
        requester: Requester,
        node: NodeNumber,
        changes: &AttributeChanges,
    ) -> Reply<NodeAttributes> {
        let inode = match self.mounted.inode(node) {
            // After the last name of a file went, the kernel still sends the times that it kept.
            Err(Errno::STALE) if changes.is_only_times() => return Ok(NodeAttributes::of_deleted(node.0)),
            other => other?,
        };
        let time = |set: SetTime| match set {
            SetTime::Now => vlinder_fs::SetTime::Now,
            SetTime::At(time) if changes.is_stamped_by_kernel() => {
                vlinder_fs::SetTime::Stamped(timestamp_of(time))
            }
            SetTime::At(time) => vlinder_fs::SetTime::At(timestamp_of(time)),
        };
        let mut set = vlinder_fs::SetAttributes {
            permissions: changes.mode.map(|mode| mode & 0o7777),
            user: changes.user.map(vlinder_fs::UserId),
            group: changes.group.map(vlinder_fs::GroupId),
            sets_stored_owner: false,
            size: changes.size_bytes,
            opened_for_writing: changes.handle.is_some(),
            access_time: changes.access_time.map(time),
            modification_time: changes.modification_time.map(time),
            change_time: changes.change_time.map(timestamp_of),
            birth_time: None,
            handed_over: changes.is_handed_over(),
            keeps_set_id: self.privileges.are_killed_by_kernel(),
            // The kernel removes the attribute, where that has to go, before it asks for the change.
            keeps_capability: true,
        };
        let filesystem = self.mounted.filesystem();
        let caller = self.privileges.attribute_changer(filesystem, requester, &inode, changes, &mut set);
        let turn = set.size.and_then(|_| self.unplaced.turn());
        let attributes = filesystem.attributes().set(&caller, &inode, &set).map_err(|error| errno(&error))?;
        if let Some(size) = set.size {
            self.unplaced.drop_range(inode.id(), size, u64::MAX);
        }
        drop(turn);
        if set.handed_over && is_synchronous(&inode) {
            self.durability.sync(&inode)?;
        }
        self.gate.shut_after_reply(&inode);
        Ok(self.shown.attributes(attributes))
    }

    fn control(&self, requester: Requester, node: NodeNumber, command: u32, data: &[u8]) -> Reply<Vec<u8>> {
        if command == MOUNT_NAME_COMMAND {
            return self.told_name.get().cloned().ok_or(Errno::NOTTY);
        }
        let inode = self.mounted.inode(node)?;
        if command == CHECKSUM_QUESTION_COMMAND {
            return Ok(vec![u8::from(!inode.flags().has(InodeFlags::NODATASUM))]);
        }
        self.flags.answer(&judged(requester, 0), &inode, command, data)
    }

    fn statistics(&self) -> Reply<Statistics> {
        self.mounted.nodes().deleter().settle();
        let full = self.mounted.filesystem().statistics().map_err(|error| errno(&error))?;
        Ok(Statistics {
            block_size: full.block_size,
            blocks: full.blocks,
            free_blocks: full.free_blocks,
            available_blocks: full.available_blocks,
            longest_name: full.longest_name,
        })
    }
}
