//! What can be wrong with bytes on disk: one documented kind for each rule, and the place where it was found.
//!
//! Each item family has its own enum of faults in its own module; [`Fault`] gathers them.

use core::fmt;

use crate::key::Key;
use crate::types::{Logical, RootId};

/// What is wrong. Every family names its own kinds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A tree block's header, item table or pointers.
    #[error(transparent)]
    Block(#[from] crate::block::BlockFault),
    /// A block group item.
    #[error(transparent)]
    BlockGroup(#[from] crate::block_group::BlockGroupFault),
    /// Checksums of data.
    #[error(transparent)]
    ChecksumItem(#[from] crate::checksum_item::ChecksumItemFault),
    /// A chunk item.
    #[error(transparent)]
    Chunk(#[from] crate::chunk::ChunkFault),
    /// The state of an interrupted balance.
    #[error(transparent)]
    Balance(#[from] crate::balance::BalanceFault),
    /// An item of the fsync log.
    #[error(transparent)]
    Log(#[from] crate::log::LogFault),
    /// An orphan.
    #[error(transparent)]
    Orphan(#[from] crate::orphan::OrphanFault),
    /// An item of the quota tree.
    #[error(transparent)]
    Quota(#[from] crate::quota::QuotaFault),
    /// A subvolume by its UUID.
    #[error(transparent)]
    UuidItem(#[from] crate::uuid_item::UuidItemFault),
    /// An item of a file under fs-verity.
    #[error(transparent)]
    Verity(#[from] crate::verity::VerityFault),
    /// A name in a directory, or an extended attribute.
    #[error(transparent)]
    Directory(#[from] crate::directory::DirectoryFault),
    /// A run of a file's bytes.
    #[error(transparent)]
    FileExtent(#[from] crate::file_extent::FileExtentFault),
    /// An inode item.
    #[error(transparent)]
    Inode(#[from] crate::inode::InodeFault),
    /// A reference from an inode to its names.
    #[error(transparent)]
    InodeReference(#[from] crate::inode_ref::InodeReferenceFault),
    /// A root item.
    #[error(transparent)]
    RootItem(#[from] crate::root_item::RootItemFault),
    /// A reference between subvolumes.
    #[error(transparent)]
    RootReference(#[from] crate::root_ref::RootReferenceFault),
    /// The state of a device replacement.
    #[error(transparent)]
    DeviceReplace(#[from] crate::device_replace::DeviceReplaceFault),
    /// A device's error counters.
    #[error(transparent)]
    DeviceStatistics(#[from] crate::device_statistics::DeviceStatisticsFault),
    /// An extent item, or a reference to an extent.
    #[error(transparent)]
    Extent(#[from] crate::extent::ExtentFault),
    /// A record of free space.
    #[error(transparent)]
    FreeSpace(#[from] crate::free_space::FreeSpaceFault),
    /// Where a stripe lies.
    #[error(transparent)]
    RaidStripe(#[from] crate::raid_stripe::RaidStripeFault),
    /// A device item or device extent.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceFault),
    /// The superblock.
    #[error(transparent)]
    Superblock(#[from] crate::superblock::SuperblockFault),
}

/// Where a fault was found, as far as it is known, in the words that the inspection verbs accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The tree that was being read.
    pub tree: Option<RootId>,
    /// The block.
    pub block: Option<Logical>,
    /// The slot in the block.
    pub slot: Option<u32>,
    /// The key of the item.
    pub key: Option<Key>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(tree) = self.tree {
            write!(formatter, "tree {tree}")?;
            separator = ", ";
        }
        if let Some(block) = self.block {
            write!(formatter, "{separator}block {block}")?;
            separator = ", ";
        }
        if let Some(slot) = self.slot {
            write!(formatter, "{separator}slot {slot}")?;
            separator = ", ";
        }
        if let Some(key) = self.key {
            write!(formatter, "{separator}key {key}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            formatter.write_str("unknown place")?;
        }
        Ok(())
    }
}

/// A fault at a place: what readers return when the bytes on disk break a rule of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct Damage {
    /// What is wrong.
    pub fault: Fault,
    /// Where. In a box, because every result of reading carries this type.
    pub place: Box<Place>,
}

impl Damage {
    /// A fault at a place.
    pub fn new(fault: impl Into<Fault>, place: Place) -> Self {
        Self { fault: fault.into(), place: Box::new(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ItemType;
    use crate::types::ObjectId;

    #[test]
    fn a_place_is_told_as_far_as_it_is_known() {
        let key = Key::new(ObjectId(257), ItemType::INODE_ITEM, 0);
        let place =
            Place { tree: Some(RootId(5)), block: Some(Logical(4096)), slot: Some(3), key: Some(key) };
        assert_eq!(
            place.to_string(),
            format!("tree {}, block {}, slot 3, key {key}", RootId(5), Logical(4096))
        );
        let place = Place { slot: Some(3), ..Place::default() };
        assert_eq!(place.to_string(), "slot 3");
        assert_eq!(Place::default().to_string(), "unknown place");
    }
}
