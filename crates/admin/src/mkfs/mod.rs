//! Making file systems: an empty one ([`raw`]), or one filled from a directory, with the options of `mkfs.btrfs` 6.19.
//!
//! ```standalone_crate
//! # let directory = vlinder_testkit::Scratch::new("doc");
//! # std::fs::create_dir(directory.join("tree")).unwrap();
//! # std::fs::write(directory.join("tree/file"), "content").unwrap();
//! # std::env::set_current_dir(directory.path()).unwrap();
//! use vlinder_admin::mkfs::{MkfsOptions, RootDirectory, mkfs};
//! let options = MkfsOptions {
//!     root_directory: Some(RootDirectory::new("tree")),
//!     ..MkfsOptions::default()
//! };
//! let report = mkfs(&options, "image".as_ref(), &mut |_| {})?;
//! println!("{} bytes, {} files", report.size_bytes, report.copied.inodes);
//! # assert!(vlinder_fs::path::Files::open("image").unwrap().exists("/file").unwrap());
//! # Ok::<(), vlinder_admin::mkfs::MkfsError>(())
//! ```
//!
//! The same options, source and time give the same bytes on every machine and with any number of threads, if
//! [`MkfsOptions::uuid`] is given: all other UUIDs are derived from it.

mod error;
mod features;
mod populate;
pub mod raw;
mod shrink;
mod signature;
mod size;
mod source;
mod subvolumes;
mod target;
mod unannounced;

use std::path::{Path, PathBuf};
use std::time::Duration;

use vlinder_base::clock::{Clock, FixedClock, Timestamp as Moment};
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::random::{OsRandom, Random, derive};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::thread;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::Device;
use vlinder_format::Uuid;
use vlinder_format::superblock::Label;
use vlinder_fs::{CompressOption, Filesystem, OpenOptions, Timestamp};
use vlinder_volume::Profile;

pub use error::MkfsError;
pub use features::FeatureError;
pub use populate::Copied;
pub use raw::{MkfsFeatures, ParameterError};
pub use signature::{Signature, find_signature};
pub use source::{DroppedSource, SourceError, read_source};
pub use subvolumes::{SubvolumeAccess, SubvolumeDirectory};

use raw::{MkfsParameters, MkfsUuids};
use target::Target;
use unannounced::Unannounced;

/// Nodes are this long where nothing else is asked for, unless sectors are longer.
const DEFAULT_NODE_SIZE: u32 = 16384;
/// Memory for clean tree blocks while a source is copied; a quarter of it for those that wait for the commit.
const CACHE_BYTES: u64 = 512 << 20;
/// Memory for data and items that wait.
const DIRTY_BYTES: u64 = 128 << 20;
/// Nobody asks for what was copied again; whoever still needs an inode holds it.
const CACHED_INODES: usize = 1024;

/// What to make. [`Default`] is `mkfs.btrfs IMAGE`.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The name.
    pub label: Vec<u8>,
    /// The file system's UUID; random where none is given. All other UUIDs are derived from it.
    pub uuid: Option<Uuid>,
    /// The device's UUID.
    pub device_uuid: Option<Uuid>,
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
    /// Bytes of the file system: the device's, or what the source needs.
    pub size_bytes: Option<u64>,
    /// Overwrite what the target holds.
    pub force: bool,
    /// Let go of the target's old content; without, what no block covers stays as it was.
    pub discard: bool,
    /// What to fill it with.
    pub root_directory: Option<RootDirectory>,
    /// The time of what has no other (`SOURCE_DATE_EPOCH`); the present where none is given. With it, what is copied has
    /// its time of modification as that of access, too: a copy of the source, or the same after someone has read it,
    /// gives the same image.
    pub time: Option<Moment>,
    /// Threads that read the source; as many as cores where none is given.
    pub threads: Option<usize>,
    /// Set meanwhile (by a signal, say), it ends the copying of the source with [`MkfsError::Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            label: Vec::new(),
            uuid: None,
            device_uuid: None,
            node_size: None,
            sector_size: 4096,
            checksum_kind: ChecksumKind::Crc32c,
            data_profile: None,
            metadata_profile: None,
            features: MkfsFeatures::default(),
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

/// A directory of the host that fills the new file system (`--rootdir`).
#[derive(Clone, Debug)]
pub struct RootDirectory {
    /// The directory.
    pub path: PathBuf,
    /// Compression of its files.
    pub compress: Option<CompressOption>,
    /// Directories in it that become subvolumes.
    pub subvolumes: Vec<SubvolumeDirectory>,
    /// Cut the file system, and a regular file that holds it, behind the last chunk.
    pub shrink: bool,
}

impl RootDirectory {
    /// This directory, uncompressed, in one subvolume.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), compress: None, subvolumes: Vec::new(), shrink: false }
    }
}

/// How far the making is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The source was counted, since the size depends on it: not that of a file that is long enough.
    Counted {
        /// Names to copy.
        entries: u64,
        /// Bytes of data to copy, about.
        data_bytes: u64,
    },
    /// So much was copied.
    Copied {
        /// Names.
        entries: u64,
        /// Bytes of data.
        data_bytes: u64,
    },
    /// Everything was copied and is being committed.
    Committing,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What went into it.
    pub parameters: MkfsParameters,
    /// Bytes of the file system.
    pub size_bytes: u64,
    /// What was copied.
    pub copied: Copied,
    /// What was decided otherwise than asked for, for the user to know.
    pub notes: Vec<String>,
}

/// Makes a file system on a regular file or block device. A file that does not exist is created where its size is given
/// or follows from the source, and removed again on an error. What the target held is gone with the first write, after
/// all checks.
///
/// # Errors
/// [`MkfsError`]; on one the target holds no file system.
pub fn mkfs(
    options: &MkfsOptions,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, MkfsError> {
    let mut notes = Vec::new();
    let mut parameters = parameters(options, &mut notes)?;
    let subvolumes = match &options.root_directory {
        Some(root) => subvolumes::resolve(root)?,
        None => Default::default(),
    };
    let mut target = Target::open(options, target, &parameters, progress)?;
    loop {
        parameters.device_bytes = target.size_bytes();
        match fill(options, &parameters, &mut target, &subvolumes, progress) {
            // It was set while the last of it was committed.
            Ok(_) if options.interrupted.load(Ordering::Relaxed) => return Err(MkfsError::Interrupted),
            Ok((copied, device)) => {
                let shrinks = options.root_directory.as_ref().is_some_and(|root| root.shrink);
                let size_bytes = target.finish(device, shrinks)?;
                return Ok(Report { parameters, size_bytes, copied, notes });
            }
            // The size was an estimate, or that of a file that may grow.
            Err(MkfsError::Full { .. }) if target.grow(options, &parameters, progress)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the empty file system and fills it. The device that comes back holds its superblocks.
fn fill(
    options: &MkfsOptions,
    parameters: &MkfsParameters,
    target: &mut Target,
    subvolumes: &subvolumes::ByPath,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Copied, Arc<Unannounced>), MkfsError> {
    let image = raw::make(parameters)?;
    target.clear(options.discard)?;
    image.write_blocks_to(&**target.device())?;
    let unannounced = Arc::new(Unannounced::new(Arc::clone(target.device()), &image.superblocks));
    let Some(root) = &options.root_directory else { return Ok((Copied::default(), unannounced)) };
    let device: Arc<dyn Device> = Arc::clone(&unannounced) as _;
    let filesystem = Filesystem::open_devices(vec![device], open_options(parameters, root))?;
    let population = populate::Population {
        filesystem: &filesystem,
        source: &root.path,
        subvolumes,
        target: target.device().host_identity()?,
        size_bytes: parameters.device_bytes,
        threads: options.threads.unwrap_or_else(thread::available_parallelism),
        hides_access: options.time.is_some(),
        interrupted: &options.interrupted,
    };
    let copied = population.run(progress)?;
    progress(Progress::Committing);
    filesystem.close().map_err(|error| populate::explain(b"", error, parameters.device_bytes))?;
    Ok((copied, unannounced))
}

/// How the new file system is opened for being filled: nothing in it may depend on the machine or the moment.
fn open_options(parameters: &MkfsParameters, root: &RootDirectory) -> OpenOptions {
    let Timestamp { seconds, nanoseconds } = parameters.time;
    OpenOptions {
        compress: root.compress,
        // As mkfs.btrfs has it: what fits a sector lies in its tree.
        max_inline_bytes: u64::from(parameters.sector_size) - 1,
        commit_interval: Duration::from_secs(u64::from(u32::MAX)),
        idle_commit: None,
        cache_bytes: CACHE_BYTES,
        cached_inodes: Some(CACHED_INODES),
        dirty_bytes: DIRTY_BYTES,
        // Nobody calls fsync here, so nothing has to be noted for it.
        no_tree_log: true,
        clock: Arc::new(FixedClock::new(Moment { seconds, nanoseconds })),
        random: Arc::new(DerivedRandom { seed: parameters.uuids.fsid, next: AtomicU64::new(0) }),
        ..OpenOptions::default()
    }
}

/// Random numbers that follow from the file system's UUID.
struct DerivedRandom {
    seed: Uuid,
    next: AtomicU64,
}

impl Random for DerivedRandom {
    fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(16) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            part.copy_from_slice(&derive(self.seed.0, &format!("random {number}"))[..part.len()]);
        }
    }
}

/// What the options say about the file system; its size comes from the target.
fn parameters(options: &MkfsOptions, notes: &mut Vec<String>) -> Result<MkfsParameters, MkfsError> {
    let mut features = options.features;
    if features.block_group_tree && !(features.no_holes && features.free_space_tree) {
        features.block_group_tree = false;
        notes.push("block-group-tree is off, because it needs no-holes and free-space-tree".to_owned());
    }
    let page_size = rustix::param::page_size();
    if usize::try_from(options.sector_size).is_ok_and(|size| size > page_size) {
        notes.push(format!(
            "this machine's Linux can't mount it: sectors of {} bytes are larger than its pages of {page_size}",
            options.sector_size
        ));
    }
    let mixed = features.mixed_groups;
    let metadata_default = if mixed { Profile::Single } else { Profile::Dup };
    let fsid = options.uuid.unwrap_or_else(|| Uuid(OsRandom.uuid()));
    let derived = |label: &str| Uuid(derive(fsid.0, label));
    let time = options.time.unwrap_or_else(|| InodeClock::new().now());
    let node_default = if mixed { options.sector_size } else { DEFAULT_NODE_SIZE.max(options.sector_size) };
    let parameters = MkfsParameters {
        label: Label::new(&options.label)?,
        uuids: MkfsUuids {
            fsid,
            chunk_tree: derived("chunk tree"),
            device: options.device_uuid.unwrap_or_else(|| derived("device 1")),
            top_level: derived("subvolume 5"),
        },
        device_bytes: 0,
        sector_size: options.sector_size,
        node_size: options.node_size.unwrap_or(node_default),
        checksum_kind: options.checksum_kind,
        data_profile: options.data_profile.unwrap_or(Profile::Single),
        metadata_profile: options.metadata_profile.unwrap_or(metadata_default),
        features,
        time: Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds },
    };
    raw::smallest_device(&parameters)?;
    Ok(parameters)
}
