//! What is to be made, as its caller says.

use std::path::PathBuf;

use vlinder_base::clock::Timestamp as Moment;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicBool;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::Uuid;
use vlinder_fs::CompressOption;
use vlinder_volume::Profile;

use super::inode_flags::PathFlags;
use super::raw::MkfsFeatures;
use super::subvolumes::SubvolumeDirectory;

/// What to make. [`Default`] is `mkfs.btrfs IMAGE`.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The label: at most 255 bytes.
    pub label: Vec<u8>,
    /// The file system's UUID; random where none is given. All other UUIDs are derived from it.
    pub uuid: Option<Uuid>,
    /// The device's UUID.
    pub device_uuid: Option<Uuid>,
    /// What the disk format leaves open.
    pub format: FormatOptions,
    /// Bytes of the file system: the device's, or what the source needs and a quarter of it. A regular file
    /// that is filled from a source becomes longer where that needs more.
    pub size_bytes: Option<u64>,
    /// Overwrite what the target holds.
    pub force: bool,
    /// Discard what the target held before. If false, old bytes stay wherever the new file system has none.
    pub discard: bool,
    /// What to fill it with.
    pub root_directory: Option<RootDirectory>,
    /// The time of what has no other (`SOURCE_DATE_EPOCH`); the present where none is given. With it, nothing
    /// that is copied has a later time, and its time of modification is that of access, too: a copy of the
    /// source, or the same after someone has read it, gives the same image.
    pub time: Option<Moment>,
    /// Threads that read the source; as many as cores where none is given.
    pub threads: Option<usize>,
    /// Set meanwhile (by a signal, say), it ends the copying of the source with
    /// [`MkfsError::Interrupted`](super::MkfsError::Interrupted).
    pub interrupted: Arc<AtomicBool>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            label: Vec::new(),
            uuid: None,
            device_uuid: None,
            format: FormatOptions::default(),
            size_bytes: None,
            force: false,
            discard: true,
            root_directory: None,
            time: None,
            threads: None,
            interrupted: Arc::default(),
        }
    }
}

/// What the disk format leaves open: sizes, checksums, profiles, features.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Bytes of a tree block: 16 KiB, or a sector if that is longer or groups are mixed.
    pub node_size: Option<u32>,
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Kind of every checksum.
    pub checksum_kind: ChecksumKind,
    /// Of data: single.
    pub data_profile: Option<Profile>,
    /// Of metadata and system: DUP, or single if groups are mixed.
    pub metadata_profile: Option<Profile>,
    /// Features; block-group-tree is left out with a note where what it needs is off.
    pub features: MkfsFeatures,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            node_size: None,
            sector_size: 4096,
            checksum_kind: ChecksumKind::Crc32c,
            data_profile: None,
            metadata_profile: None,
            features: MkfsFeatures::default(),
        }
    }
}

/// A directory of the host, or an archive of tar, that fills the new file system (`--rootdir`).
#[derive(Clone, Debug)]
pub struct RootDirectory {
    /// The directory or archive; `-` is an archive on standard input.
    pub path: PathBuf,
    /// Compression of its files.
    pub compress: Option<CompressOption>,
    /// Directories in it that become subvolumes.
    pub subvolumes: Vec<SubvolumeDirectory>,
    /// Make the file system, and a regular file that holds it, no longer than its content needs, whatever
    /// size was given.
    pub shrink: bool,
    /// Store files with the same bytes once.
    pub dedupe: bool,
    /// Files and directories that get flags of Btrfs (`--inode-flags`).
    pub inode_flags: Vec<PathFlags>,
    /// User and group of everything, in place of the source's (`--owner`).
    pub owner: Option<(u32, u32)>,
    /// A table of owners, modes and device nodes as genext2fs takes it (`--owner-table`); it counts before
    /// `owner`.
    pub owner_table: Option<PathBuf>,
}

impl RootDirectory {
    /// This directory or archive, uncompressed, in one subvolume.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            compress: None,
            subvolumes: Vec::new(),
            shrink: false,
            dedupe: false,
            inode_flags: Vec::new(),
            owner: None,
            owner_table: None,
        }
    }
}
