//! Making file systems.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vlinder_admin::mkfs as inner;

use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::error_kind::ErrorKind;
use crate::format_choices::{Checksum, Profile};
use crate::time::timestamp;
use crate::uuid::Uuid;

/// What file system to make: empty, or filled from a directory of the host.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # std::fs::create_dir(scratch.join("tree"))?;
/// # std::fs::write(scratch.join("tree/file"), "content")?;
/// # let (tree, path) = (scratch.join("tree"), scratch.join("disk.img"));
/// use vlinder::MkfsOptions;
///
/// let report = MkfsOptions::new().label("data").source_directory(&tree).make(&path)?;
/// println!("{} files in {} bytes", report.files(), report.size_bytes());
/// # Ok(())
/// # }
/// ```
///
/// The same options, source and [time](Self::time) give the same bytes on every machine, if a
/// [UUID](Self::uuid) is given: all other UUIDs are derived from it.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    options: inner::MkfsOptions,
    source: Option<PathBuf>,
    compression: Option<Compression>,
    subvolumes: Vec<inner::SubvolumeDirectory>,
    shrink: bool,
    dedupe: bool,
    inode_flags: Vec<inner::PathFlags>,
    owner: Option<(u32, u32)>,
    owner_table: Option<PathBuf>,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct MkfsReport(inner::Report);

impl MkfsOptions {
    /// What `mkfs.btrfs IMAGE` makes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the file system.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<OsStr>) -> Self {
        self.options.label = label.as_ref().as_bytes().to_vec();
        self
    }

    /// The UUID of the file system; random without this.
    #[must_use]
    pub fn uuid(mut self, uuid: Uuid) -> Self {
        self.options.uuid = Some(uuid.inner());
        self
    }

    /// Bytes of the file system; without this, the target's length or what the source needs.
    #[must_use]
    pub fn size_bytes(mut self, bytes: u64) -> Self {
        self.options.size_bytes = Some(bytes);
        self
    }

    /// Bytes of a tree block: 16 KiB.
    #[must_use]
    pub fn node_bytes(mut self, bytes: u32) -> Self {
        self.options.format.node_size = Some(bytes);
        self
    }

    /// Bytes of a sector: 4 KiB.
    #[must_use]
    pub fn sector_bytes(mut self, bytes: u32) -> Self {
        self.options.format.sector_size = bytes;
        self
    }

    /// The checksum of every block and sector.
    #[must_use]
    pub fn checksum(mut self, checksum: Checksum) -> Self {
        self.options.format.checksum_kind = checksum.inner();
        self
    }

    /// How often data are stored: once.
    #[must_use]
    pub fn data_profile(mut self, profile: Profile) -> Self {
        self.options.format.data_profile = Some(profile.inner());
        self
    }

    /// How often metadata are stored: twice.
    #[must_use]
    pub fn metadata_profile(mut self, profile: Profile) -> Self {
        self.options.format.metadata_profile = Some(profile.inner());
        self
    }

    /// Applies features as `mkfs.btrfs -O` takes them, after what was chosen before:
    /// `^block-group-tree,mixed-bg`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown name, or one of what can't be made yet.
    pub fn features(mut self, list: &str) -> Result<Self> {
        let applied = self.options.format.features.apply(list);
        applied.map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        Ok(self)
    }

    /// Overwrite what the target holds.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.options.force = force;
        self
    }

    /// A directory of the host that fills the file system, with owners, modes, attributes, links and holes.
    #[must_use]
    pub fn source_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.source = Some(path.into());
        self
    }

    /// How the files of the source are compressed; not at all without this.
    #[must_use]
    pub fn compress(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// A directory, by its path below the source, that becomes a subvolume.
    #[must_use]
    pub fn subvolume(self, path: impl Into<PathBuf>) -> Self {
        self.with_subvolume(path.into(), inner::SubvolumeAccess::ReadWrite, false)
    }

    /// As [`subvolume`](Self::subvolume), one that takes no changes.
    #[must_use]
    pub fn read_only_subvolume(self, path: impl Into<PathBuf>) -> Self {
        self.with_subvolume(path.into(), inner::SubvolumeAccess::ReadOnly, false)
    }

    /// As [`subvolume`](Self::subvolume), the one that is shown as the root.
    #[must_use]
    pub fn default_subvolume(self, path: impl Into<PathBuf>) -> Self {
        self.with_subvolume(path.into(), inner::SubvolumeAccess::ReadWrite, true)
    }

    fn with_subvolume(mut self, path: PathBuf, access: inner::SubvolumeAccess, is_default: bool) -> Self {
        self.subvolumes.push(inner::SubvolumeDirectory { path, access, is_default });
        self
    }

    /// Make the file system, and the file that holds it, no longer than what the source needs.
    #[must_use]
    pub fn shrink(mut self, shrink: bool) -> Self {
        self.shrink = shrink;
        self
    }

    /// Store files of the source with the same bytes once.
    #[must_use]
    pub fn dedupe(mut self, dedupe: bool) -> Self {
        self.dedupe = dedupe;
        self
    }

    /// A file or directory of the source whose data are overwritten in place and have no checksums, with all
    /// below it (`nodatacow`).
    #[must_use]
    pub fn no_data_cow(mut self, path: impl Into<PathBuf>) -> Self {
        self.inode_flags.push(inner::PathFlags { path: path.into(), no_data_cow: true, no_data_sum: true });
        self
    }

    /// User and group of everything in the image, in place of the source's.
    #[must_use]
    pub fn owner(mut self, user: u32, group: u32) -> Self {
        self.owner = Some((user, group));
        self
    }

    /// A file that says owners, modes and device nodes, a line a path, as genext2fs takes it. It counts
    /// before [`owner`](Self::owner), and makes what the source does not have.
    #[must_use]
    pub fn owner_table(mut self, table: impl Into<PathBuf>) -> Self {
        self.owner_table = Some(table.into());
        self
    }

    /// The time of what has no other; the present without this. With it, nothing that is copied has a later
    /// time, and its time of modification is that of access, too, so that a copy of the source gives the same
    /// image.
    #[must_use]
    pub fn time(mut self, time: SystemTime) -> Self {
        let time = timestamp(time);
        let moment = vlinder_base::clock::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
        self.options.time = Some(moment);
        self
    }

    /// How many threads read the source; as many as processors without this.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = Some(threads);
        self
    }

    /// Makes the file system on a regular file or block device. A file that does not exist is created where
    /// its size is given or follows from the source, and removed again on an error. What the target held is
    /// gone with the first write, after all checks.
    ///
    /// # Errors
    /// On an error the target holds no file system. [`ErrorKind::AlreadyExists`] where it holds something and
    /// [`force`](Self::force) was not given; [`ErrorKind::Busy`] where it is in use;
    /// [`ErrorKind::InvalidInput`] for choices that do not go together; [`ErrorKind::NoSpace`] where the
    /// source does not fit.
    pub fn make(&self, target: impl AsRef<Path>) -> Result<MkfsReport> {
        let root_directory = self.root_directory()?;
        let options = inner::MkfsOptions { root_directory, ..self.options.clone() };
        let made = inner::mkfs(&options, target.as_ref(), &mut |_| {});
        made.map(MkfsReport).map_err(|error| Error::of_mkfs(&error))
    }

    fn root_directory(&self) -> Result<Option<inner::RootDirectory>> {
        let Some(path) = self.source.clone() else {
            let has_owners =
                self.owner.is_some() || self.owner_table.is_some() || !self.inode_flags.is_empty();
            let is_plain = self.compression.is_none() && self.subvolumes.is_empty();
            let is_plain = is_plain && !(has_owners || self.shrink || self.dedupe);
            let what = "compression, subvolumes, flags, owners, shrinking and shared files are of what is copied; give a source directory";
            return if is_plain { Ok(None) } else { Err(Error::new(ErrorKind::InvalidInput, what)) };
        };
        Ok(Some(inner::RootDirectory {
            path,
            compress: self.compression.map(Compression::option),
            subvolumes: self.subvolumes.clone(),
            shrink: self.shrink,
            dedupe: self.dedupe,
            inode_flags: self.inode_flags.clone(),
            owner: self.owner,
            owner_table: self.owner_table.clone(),
        }))
    }
}

impl MkfsReport {
    /// Bytes of the file system.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// The file system's UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.0.parameters.uuids.fsid.0)
    }

    /// Files, directories and others that were copied.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.0.copied.inodes
    }

    /// Bytes of files that were copied, without holes.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.0.copied.data_bytes
    }

    /// What was decided otherwise than asked for, a sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }
}
