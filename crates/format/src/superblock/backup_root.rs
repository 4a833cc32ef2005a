//! The roots of earlier commits.

use crate::layout::{Inner, Record};
use crate::record::{Field, Reserved, record};
use crate::types::{Generation, Level, Logical};

/// Backup roots in a superblock.
pub const BACKUP_ROOTS: usize = 4;

record! {
    /// Roots of an earlier commit: 168 bytes, four of them in each superblock, written round-robin.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BackupRoot in RawBackupRoot, 168 bytes {
        /// Root tree.
        tree_root: Logical,
        /// Its generation; 0 in a slot never written.
        tree_root_generation: Generation,
        /// Chunk tree.
        chunk_root: Logical,
        /// Its generation.
        chunk_root_generation: Generation,
        /// Extent tree (with block-group-tree: that tree, in older Linux).
        extent_root: Logical,
        /// Its generation.
        extent_root_generation: Generation,
        /// Top-level subvolume.
        fs_root: Logical,
        /// Its generation.
        fs_root_generation: Generation,
        /// Device tree.
        device_root: Logical,
        /// Its generation.
        device_root_generation: Generation,
        /// Checksum tree.
        checksum_root: Logical,
        /// Its generation.
        checksum_root_generation: Generation,
        /// As in the superblock then.
        total_bytes: u64,
        /// As in the superblock then.
        bytes_used: u64,
        /// As in the superblock then.
        device_count: u64,
        /// Unused.
        reserved_words: Reserved<32>,
        /// Of the root tree.
        tree_root_level: Level,
        /// Of the chunk tree.
        chunk_root_level: Level,
        /// Of the extent tree.
        extent_root_level: Level,
        /// Of the top-level subvolume.
        fs_root_level: Level,
        /// Of the device tree.
        device_root_level: Level,
        /// Of the checksum tree.
        checksum_root_level: Level,
        /// Unused.
        reserved_bytes: Reserved<10>,
    }
}

impl<const COUNT: usize> Field for [BackupRoot; COUNT] {
    type Raw = [RawBackupRoot; COUNT];
    const INNER: Inner = Inner::Many(BackupRoot::STRUCTURE);
    fn from_raw(raw: &Self::Raw) -> Self {
        raw.each_ref().map(BackupRoot::from_raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.each_ref().map(BackupRoot::to_raw)
    }
}
