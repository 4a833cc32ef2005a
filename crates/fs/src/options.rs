//! How a file system is opened. The mount options that set this have the names that Btrfs and mount(8) give
//! them: [`OPEN_OPTIONS`](crate::OPEN_OPTIONS).

use std::path::{Path, PathBuf};
use std::time::Duration;

use vlinder_base::clock::Clock;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::metrics::Registry;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::Arc;
use vlinder_codec::compress::CodecError;
use vlinder_data::{CompressOption, DataOptions};
use vlinder_format::{DeviceId, RootId};
use vlinder_partitions::{ImageName, PartitionError};
use vlinder_transaction::Disabled;

use crate::mount_option::OptionError;
use crate::rescue::RescueOptions;

/// Which subvolume is shown as the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SubvolumeChoice {
    /// The one that `set-default` named; the top level at first.
    #[default]
    Default,
    /// The one at this path from the top level.
    Path(Vec<u8>),
    /// The one of this number; 0 is the top level.
    Number(RootId),
}

/// When reading changes a file's access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Where it is not newer than the last change, or a day old (Linux's default).
    #[default]
    Relative,
    /// At each read.
    Strict,
    /// Never.
    Never,
}

/// Whose files these are, for an ordinary user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// As stored.
    #[default]
    Keep,
    /// All are shown as those of the opener, who acts as their owner; what is stored stays.
    Me,
    /// As stored, and the user who mounts acts as root: a front end makes each of that user's requests one of
    /// the superuser's, and lets no other user in.
    Root,
}

/// As Linux: `BTRFS_DEFAULT_COMMIT_INTERVAL`, fs/btrfs/fs.h.
pub(crate) const DEFAULT_COMMIT_INTERVAL: Duration = Duration::from_secs(30);

/// How to open a file system. Build it with [`OpenOptions::default`] or [`OpenOptions::parse`].
#[derive(Clone)]
pub struct OpenOptions {
    /// For reading only.
    pub read_only: bool,
    /// The first byte of the file system on its first device; 0 where only
    /// [`size_limit`](Self::size_limit) is given.
    pub offset: Option<u64>,
    /// How many bytes from there on it may have; all that follow without it.
    pub size_limit: Option<u64>,
    /// The root.
    pub subvolume: SubvolumeChoice,
    /// Compression of new data.
    pub compress: Option<CompressOption>,
    /// New files overwrite in place and have no checksums.
    pub no_data_cow: bool,
    /// New files have no checksums.
    pub no_data_sum: bool,
    /// The largest file that lies in its tree, in bytes; at most a sector.
    pub max_inline_bytes: u64,
    /// How often to commit.
    pub commit_interval: Duration,
    /// A commit follows when nothing was changed for so long, and something before; none without it. Needs
    /// [`background`](Self::background).
    pub idle_commit: Option<Duration>,
    /// A thread commits at the interval, frees the blocks of deleted subvolumes and writes data out. Without
    /// it nothing happens but what callers ask for, so that a simulation replays from its seed.
    pub background: bool,
    /// Which reads leave a trace.
    pub access_times: AccessTimes,
    /// Reads of directories leave a trace.
    pub directory_access_times: bool,
    /// Owners may delete their subvolumes (`user_subvol_rm_allowed`).
    pub user_may_delete_subvolumes: bool,
    /// POSIX ACLs are honoured.
    pub acl: bool,
    /// Freed space is discarded on the devices.
    pub discard: bool,
    /// fsync commits instead of writing a log.
    pub no_tree_log: bool,
    /// A commit writes out all data first.
    pub flush_on_commit: bool,
    /// What may be damaged (`rescue=`).
    pub rescue: RescueOptions,
    /// Devices may be missing: what the others have is read then.
    pub degraded: bool,
    /// Of devices that were written to apart from one another, the one whose history is read; nothing is
    /// written then.
    pub history: Option<DeviceId>,
    /// Whose files these are.
    pub owners: Owners,
    /// Bound of the tree blocks and inodes in memory, in bytes (`cache=`).
    pub cache_bytes: u64,
    /// How many inodes stay in memory though nobody holds them; as many as an eighth of
    /// [`cache_bytes`](Self::cache_bytes) has room for, where none is given.
    pub cached_inodes: Option<usize>,
    /// Bound of the file data that are not written yet, in bytes (`dirty=`). Pending items take a quarter as
    /// much beside.
    pub dirty_bytes: u64,
    /// Mechanisms turned off for measurement (`disable=`).
    pub disabled: Disabled,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Where counters are registered.
    pub registry: Arc<Registry>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            offset: None,
            size_limit: None,
            subvolume: SubvolumeChoice::Default,
            compress: None,
            no_data_cow: false,
            no_data_sum: false,
            max_inline_bytes: 2048,
            commit_interval: DEFAULT_COMMIT_INTERVAL,
            idle_commit: Some(Duration::from_secs(1)),
            background: true,
            access_times: AccessTimes::Relative,
            directory_access_times: true,
            user_may_delete_subvolumes: false,
            acl: true,
            discard: false,
            no_tree_log: false,
            flush_on_commit: false,
            rescue: RescueOptions::default(),
            degraded: false,
            history: None,
            owners: Owners::Keep,
            cache_bytes: 256 << 20,
            cached_inodes: None,
            dirty_bytes: 64 << 20,
            disabled: Disabled::default(),
            clock: Arc::new(InodeClock::new()),
            random: Arc::new(OsRandom),
            registry: Arc::new(Registry::default()),
        }
    }
}

impl OpenOptions {
    /// For reading only.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// The names of devices, of which the first one says which bytes of it are meant where
    /// [`offset`](Self::offset) or [`size_limit`](Self::size_limit) does.
    ///
    /// # Errors
    /// Where that name says so already, or is another file's.
    pub fn device_names<P: AsRef<Path>>(&self, paths: &[P]) -> Result<Vec<PathBuf>, PartitionError> {
        let mut names: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        if let Some(first) = names.first_mut() {
            *first = self.device_name(first)?;
        }
        Ok(names)
    }

    /// The name of the first device.
    ///
    /// # Errors
    /// As [`device_names`](Self::device_names).
    pub fn device_name(&self, path: &Path) -> Result<PathBuf, PartitionError> {
        match (self.offset, self.size_limit) {
            (None, None) => Ok(path.to_owned()),
            (offset, limit) => ImageName::range(path, offset.unwrap_or(0), limit),
        }
    }

    /// What of this concerns file data.
    pub(crate) fn data(&self) -> DataOptions {
        DataOptions {
            compress: self.compress,
            max_inline_bytes: self.max_inline_bytes,
            dirty_bytes: self.dirty_bytes,
            read_only: self.read_only,
            ignores_data_checksums: self.rescue.ignores_data_checksums,
            disabled: self.disabled,
        }
    }

    /// Whether the options go together.
    ///
    /// # Errors
    /// [`OptionError::NeedsReadOnly`], [`OptionError::NoCodec`].
    pub fn check(&self) -> Result<(), OptionError> {
        if self.rescue != RescueOptions::default() && !self.read_only {
            return Err(OptionError::NeedsReadOnly { option: "rescue=" });
        }
        if let Some(CompressOption { algorithm, .. }) = self.compress
            && !algorithm.is_built_in()
        {
            let source = CodecError::NotBuiltIn { compression: algorithm };
            return Err(OptionError::NoCodec { option: "compress", source });
        }
        Ok(())
    }
}
