//! Making file systems: an empty one ([`raw`]), or one filled from a directory or an archive of tar, with the
//! options of `mkfs.btrfs` 6.19.
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

mod compact;
mod doubles;
mod error;
mod features;
mod inode_flags;
mod options;
mod owner_table;
mod populate;
mod progress;
pub mod raw;
mod signature;
mod source;
mod subvolumes;
mod target;
mod target_device;
mod unannounced;

use std::path::Path;
use std::time::Duration;

use vlinder_base::clock::{Clock, FixedClock, Timestamp as Moment};
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::random::{OsRandom, Random, derive};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::thread;
use vlinder_format::Uuid;
use vlinder_format::superblock::Label;
use vlinder_fs::{Filesystem, OpenOptions, Timestamp};
use vlinder_volume::Profile;

pub use error::MkfsError;
pub use features::FeatureError;
pub use inode_flags::PathFlags;
pub use options::{FormatOptions, MkfsOptions, RootDirectory};
pub use populate::Copied;
pub use progress::Progress;
pub use raw::{MkfsFeatures, ParameterError};
pub use signature::{Signature, find_signature};
pub use source::{ArchiveFault, DroppedSource, SourceError, read_source};
pub use subvolumes::{SubvolumeAccess, SubvolumeDirectory};

use raw::{MkfsParameters, MkfsUuids};
use source::{Source, SourceChoice};
use target::Target;
use unannounced::Unannounced;

/// Nodes are this long where nothing else is asked for, unless sectors are longer.
const DEFAULT_NODE_SIZE: u32 = 16384;
/// Memory for clean tree blocks while a source is copied; a quarter of it for those that wait for the commit.
const CACHE_BYTES: u64 = 512 << 20;
/// Memory for data and items that wait.
const DIRTY_BYTES: u64 = 128 << 20;
/// Nobody asks for what was copied again; what still needs an inode holds it.
const CACHED_INODES: usize = 1024;

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What went into it.
    pub parameters: MkfsParameters,
    /// Bytes of the file system.
    pub size_bytes: u64,
    /// What was copied.
    pub copied: Copied,
    /// What the user should know: what was decided otherwise than asked for, and what will not work.
    pub notes: Vec<String>,
}

/// Makes a file system on a regular file or block device. A file that does not exist is created where its
/// size is given or follows from the source, and removed again on an error. What the target held is gone with
/// the first write, after all checks.
///
/// # Errors
/// [`MkfsError`]; on one the target holds no file system.
pub fn mkfs(
    options: &MkfsOptions,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, MkfsError> {
    let mut notes = Vec::new();
    let mut parameters = decide_parameters(options, &mut notes)?;
    let time = Moment::new(parameters.time.seconds, parameters.time.nanoseconds);
    let open = |root: &RootDirectory| {
        Source::open(&SourceChoice {
            path: &root.path,
            owner: root.owner,
            owner_table: root.owner_table.as_deref(),
            latest: options.time,
            present: time,
            interrupted: &options.interrupted,
        })
    };
    let filling = options.root_directory.as_ref().map(|root| Filling::new(root, open(root)?)).transpose()?;
    let mut target = Target::open(options, target, &parameters)?;
    let Some(filling) = filling else {
        parameters.device_bytes = target.size_bytes();
        let image = raw::make(&parameters)?;
        target.clear(options.discard)?;
        image.write_to(&**target.device())?;
        target.finish_empty();
        let size_bytes = target.size_bytes();
        return Ok(Report { parameters, size_bytes, copied: Copied::default(), notes });
    };
    let (root, source) = (filling.root, &filling.source);
    if source.is_file(target.device().host_identity()?) {
        return Err(MkfsError::TargetIsSource { archive: root.path.display().to_string() });
    }
    notes.extend_from_slice(source.notes());
    let (copied, device, size_bytes) = fill(options, &filling, &parameters, &mut target, progress)?;
    // It was set while the last of it was committed.
    if options.interrupted.load(Ordering::Relaxed) {
        return Err(MkfsError::Interrupted);
    }
    target.finish(&device, size_bytes, root.shrink)?;
    parameters.device_bytes = size_bytes;
    Ok(Report { parameters, size_bytes, copied, notes })
}

/// What a file system is filled with.
struct Filling<'a> {
    root: &'a RootDirectory,
    source: Source,
    subvolumes: subvolumes::ByPath,
    inode_flags: inode_flags::FlagsByPath,
}

impl<'a> Filling<'a> {
    fn new(root: &'a RootDirectory, source: Source) -> Result<Self, MkfsError> {
        let subvolumes = subvolumes::resolve(&source, &root.path, &root.subvolumes)?;
        let inode_flags = inode_flags::resolve(&source, &root.inode_flags)?;
        Ok(Self { root, source, subvolumes, inode_flags })
    }
}

/// Makes an empty file system, fills it, and makes the least image of it. The device that comes back holds
/// its superblocks; beside it the size of the file system.
fn fill(
    options: &MkfsOptions,
    Filling { root, source, subvolumes, inode_flags }: &Filling<'_>,
    parameters: &MkfsParameters,
    target: &mut Target,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Copied, Arc<Unannounced>, u64), MkfsError> {
    let data_end = target.data_end();
    let built = compact::build_parameters(parameters);
    let Some(layout) = compact::build_layout(&built, data_end) else {
        return Err(raw::too_small(parameters, target.size_bytes(), raw::smallest_device(parameters)?).into());
    };
    let image = raw::make_in(&built, &layout);
    target.clear(options.discard)?;
    raw::Image::clear(&**target.device())?;
    let device = Arc::new(Unannounced::new(Arc::clone(target.device()), target.scratch(), data_end));
    image.submit_blocks_to(&*device)?;
    device.set_superblocks(image.superblocks);
    let filesystem =
        Filesystem::open_devices(vec![Arc::clone(&device) as _], open_options(parameters, root))?;
    let population = populate::Population {
        filesystem: &filesystem,
        source,
        subvolumes,
        inode_flags,
        target: target.device().host_identity()?,
        size_bytes: data_end,
        threads: options.threads.unwrap_or_else(thread::available_parallelism),
        dedupe: root.dedupe,
        hides_access: options.time.is_some(),
        interrupted: &options.interrupted,
    };
    let copied = population.run(progress)?;
    progress(Progress::Committing);
    filesystem.sync().map_err(|error| populate::explain(b"", error, data_end))?;
    let size = |least| target.size_for(least, root.shrink);
    let superblocks = compact::compact(&filesystem, parameters, &*device, &size)?;
    // What was filled is not needed any more, and has no superblock from here on.
    filesystem.close()?;
    device.set_superblocks(superblocks.copies);
    Ok((copied, device, superblocks.size_bytes))
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

/// Decides what the options leave open (defaults, a random UUID, the present), and checks that all fits
/// together. The size stays 0: it comes from the target.
fn decide_parameters(options: &MkfsOptions, notes: &mut Vec<String>) -> Result<MkfsParameters, MkfsError> {
    let format = &options.format;
    let mut features = format.features;
    if features.block_group_tree && !(features.no_holes && features.free_space_tree) {
        features.block_group_tree = false;
        notes.push("block-group-tree is off, because it needs no-holes and free-space-tree".to_owned());
    }
    let page_size = rustix::param::page_size();
    if usize::try_from(format.sector_size).is_ok_and(|size| size > page_size) {
        notes.push(format!(
            "this machine's Linux can't mount it: sectors of {} bytes are larger than its pages of {page_size}",
            format.sector_size
        ));
    }
    let mixed = features.mixed_groups;
    let metadata_default = if mixed { Profile::Single } else { Profile::Dup };
    let fsid = options.uuid.unwrap_or_else(|| Uuid(OsRandom.uuid()));
    let derived = |label: &str| Uuid(derive(fsid.0, label));
    let time = options.time.unwrap_or_else(|| InodeClock::new().now());
    let node_default = if mixed { format.sector_size } else { DEFAULT_NODE_SIZE.max(format.sector_size) };
    let parameters = MkfsParameters {
        label: Label::new(&options.label)?,
        uuids: MkfsUuids {
            fsid,
            chunk_tree: derived("chunk tree"),
            device: options.device_uuid.unwrap_or_else(|| derived("device 1")),
            top_level: derived("subvolume 5"),
        },
        device_bytes: 0,
        sector_size: format.sector_size,
        node_size: format.node_size.unwrap_or(node_default),
        checksum_kind: format.checksum_kind,
        data_profile: format.data_profile.unwrap_or(Profile::Single),
        metadata_profile: format.metadata_profile.unwrap_or(metadata_default),
        features,
        time: Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds },
    };
    // What does not fit together has no smallest device.
    raw::smallest_device(&parameters)?;
    Ok(parameters)
}
