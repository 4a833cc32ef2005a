//! The list of targets.

use vlinder_format::ItemType;

use crate::{blocks, codecs, items, partitions, streams, superblocks};

/// Something that takes any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// The first byte of its inputs. It is never given to another target, or the regression files lose their
    /// meaning.
    pub number: u8,
    /// What it is called, and the directory of its regression files.
    pub name: &'static str,
    /// What it is part of in the table of figures.
    pub group: Group,
    /// Takes the input behind the first byte. It panics where something is wrong.
    pub run: fn(&[u8]),
}

/// The parts of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Items of leaves.
    Items,
    /// Other structures, and changes of blocks.
    Structures,
    /// Compression and checksums.
    Codecs,
    /// Whole file systems.
    Images,
}

impl Group {
    /// What it is called on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::Structures => "structures",
            Self::Codecs => "codecs",
            Self::Images => "images",
        }
    }
}

const fn target(number: u8, name: &'static str, group: Group, run: fn(&[u8])) -> Target {
    Target { number, name, group, run }
}

macro_rules! item_targets {
    ($($item_type:ident $name:literal;)*) => {
        /// Each item type's number on disk is its target's number.
        const ITEMS: &[Target] = &[
            $(target(ItemType::$item_type.0, $name, Group::Items, items::run::<{ ItemType::$item_type.0 }>),)*
        ];
    };
}

item_targets! {
    INODE_ITEM "inode-item";
    INODE_REF "inode-ref";
    INODE_EXTREF "inode-extref";
    XATTR_ITEM "xattr-item";
    VERITY_DESCRIPTOR_ITEM "verity-descriptor";
    VERITY_MERKLE_ITEM "verity-merkle";
    ORPHAN_ITEM "orphan-item";
    DIR_LOG_ITEM "dir-log-item";
    DIR_LOG_INDEX "dir-log-index";
    DIR_ITEM "dir-item";
    DIR_INDEX "dir-index";
    EXTENT_DATA "extent-data";
    EXTENT_CHECKSUM "extent-csum";
    ROOT_ITEM "root-item";
    ROOT_BACKREF "root-backref";
    ROOT_REF "root-ref";
    EXTENT_ITEM "extent-item";
    METADATA_ITEM "metadata-item";
    EXTENT_OWNER_REF "extent-owner-ref";
    TREE_BLOCK_REF "tree-block-ref";
    EXTENT_DATA_REF "extent-data-ref";
    SHARED_BLOCK_REF "shared-block-ref";
    SHARED_DATA_REF "shared-data-ref";
    BLOCK_GROUP_ITEM "block-group-item";
    FREE_SPACE_INFO "free-space-info";
    FREE_SPACE_EXTENT "free-space-extent";
    FREE_SPACE_BITMAP "free-space-bitmap";
    DEVICE_EXTENT "dev-extent";
    DEVICE_ITEM "dev-item";
    CHUNK_ITEM "chunk-item";
    RAID_STRIPE "raid-stripe";
    QUOTA_GROUP_STATUS "qgroup-status";
    QUOTA_GROUP_INFO "qgroup-info";
    QUOTA_GROUP_LIMIT "qgroup-limit";
    QUOTA_GROUP_RELATION "qgroup-relation";
    TEMPORARY_ITEM "temporary-item";
    PERSISTENT_ITEM "persistent-item";
    DEVICE_REPLACE "dev-replace";
    UUID_SUBVOLUME "uuid-subvol";
    UUID_RECEIVED_SUBVOLUME "uuid-received-subvol";
    STRING_ITEM "string-item";
}

const OTHERS: &[Target] = &[
    target(2, "superblock", Group::Structures, superblocks::superblock),
    target(3, "system-array", Group::Structures, superblocks::system_array),
    target(4, "block", Group::Structures, blocks::raw),
    target(5, "block-edit", Group::Structures, blocks::edits),
    target(6, "stream", Group::Structures, streams::run),
    target(7, "stream-edit", Group::Structures, streams::edit),
    target(8, "resume-token", Group::Structures, streams::token),
    target(9, "stream-resume", Group::Structures, streams::resume),
    target(10, "partition-table", Group::Structures, partitions::table),
    target(20, "zlib-read", Group::Codecs, codecs::zlib_read),
    target(21, "lzo-read", Group::Codecs, codecs::lzo_read),
    target(22, "zstd-read", Group::Codecs, codecs::zstd_read),
    target(23, "zlib-write", Group::Codecs, codecs::zlib_write),
    target(25, "lzo-write", Group::Codecs, codecs::lzo_write),
    target(26, "zstd-write", Group::Codecs, codecs::zstd_write),
    target(27, "checksums", Group::Codecs, codecs::checksums),
];

/// The targets that need the engine.
const ENGINE_NAMES: [&str; 3] = ["image", "operations", "receive"];

#[cfg(feature = "engine")]
const ENGINE: &[Target] = &[
    target(40, ENGINE_NAMES[0], Group::Images, crate::images::run),
    target(41, ENGINE_NAMES[1], Group::Images, crate::operations::run),
    target(42, ENGINE_NAMES[2], Group::Images, crate::receiving::run),
];
#[cfg(not(feature = "engine"))]
const ENGINE: &[Target] = &[];

/// All targets.
pub fn all() -> impl Iterator<Item = &'static Target> {
    ITEMS.iter().chain(OTHERS).chain(ENGINE)
}

/// What can be listed without the engine: names and groups, those of the images too.
pub fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    let known = ITEMS.iter().chain(OTHERS).map(|target| (target.name, target.group.name()));
    known.chain(ENGINE_NAMES.map(|name| (name, Group::Images.name())))
}

/// The names of all targets.
pub fn names() -> Vec<&'static str> {
    all().map(|target| target.name).collect()
}

/// The target of a name.
pub fn by_name(name: &str) -> Option<&'static Target> {
    all().find(|target| target.name == name)
}

/// Gives an input to the target that its first byte names; false where there is none.
///
/// # Panics
/// Where the target finds something wrong.
pub fn run(input: &[u8]) -> bool {
    let Some((number, rest)) = input.split_first() else { return false };
    let Some(target) = all().find(|target| target.number == *number) else { return false };
    (target.run)(rest);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_or_name_means_two_targets() {
        let mut numbers: Vec<u8> = all().map(|target| target.number).collect();
        let mut names = names();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((numbers.len(), names.len()), (count, count));
    }

    #[test]
    fn every_item_type_of_the_format_is_a_target() {
        let named = (0..=u8::MAX).filter(|number| ItemType(*number).name().is_some());
        let missing: Vec<u8> =
            named.filter(|number| !ITEMS.iter().any(|target| target.number == *number)).collect();
        assert_eq!(missing, Vec::<u8>::new());
    }
}
