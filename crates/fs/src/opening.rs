//! Opening a file system: devices, engine, log replay, the subvolume that is shown, work in the background.

use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::RootId;
use vlinder_format::superblock::Superblock;
use vlinder_transaction::{Engine, EngineOptions, ReadOnlyReason};
use vlinder_volume::{MappedChunk, OpenRules, Opened, Volume};

use crate::options::OpenOptions;
use crate::subvolume::default::choose_subvolume;
use crate::{Filesystem, FsError, Refusal, Result, SubvolumeChoice};

/// Unreadable chunks that are named one by one.
const CHUNKS_NAMED: usize = 16;

impl Filesystem {
    /// Opens the file system on these files or block devices, or on partitions of them
    /// ([`ImageName`](vlinder_partitions::ImageName)): bootstrap, space, log replay, orphans.
    ///
    /// # Errors
    /// What the devices, the superblock, the trees or the options say.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: OpenOptions) -> Result<Self> {
        let how = if options.read_only {
            vlinder_device::OpenOptions::reader()
        } else {
            vlinder_device::OpenOptions::writer()
        };
        let mut devices: Vec<Arc<dyn Device>> = Vec::with_capacity(paths.len());
        for path in options.device_names(paths)? {
            devices.push(vlinder_partitions::open(&path, &how)?);
        }
        Self::open_devices(devices, options)
    }

    /// As [`open`](Self::open), on devices of any make.
    ///
    /// # Errors
    /// As there.
    pub fn open_devices(devices: Vec<Arc<dyn Device>>, options: OpenOptions) -> Result<Self> {
        options.check()?;
        let access = if options.read_only {
            vlinder_volume::Access::ReadOnly
        } else {
            vlinder_volume::Access::ReadWrite
        };
        let rules = OpenRules {
            may_miss: options.degraded,
            history: options.history,
            ignores_flags: options.rescue.ignores_super_flags,
            ..OpenRules::default()
        };
        let reopen = |devices, access| Volume::open_by(devices, rules, access);
        let opened = reopen(devices.clone(), access)?;
        let superblock = opened.superblock.clone();
        let last = if !superblock.has_log() || options.rescue.leaves_log {
            Self::open_volume(opened, options.clone())
        } else {
            let engine_options = engine_options(&options);
            crate::log_replay::open_engine(&devices, opened, &reopen, engine_options)
                .and_then(|engine| Self::with_engine(engine, options.clone()))
        };
        let filesystem = match last {
            // What the caller asked for and is not there is not damaged.
            Err(error) if options.rescue.uses_backup_roots && error.errno() == rustix::io::Errno::IO => {
                crate::backup_roots::open(&superblock, error, &|superblock| {
                    let opened = reopen(devices.clone(), access)?;
                    Self::open_volume(Opened { superblock, ..opened }, options.clone())
                })?
            }
            other => other?,
        };
        warn_of_members(filesystem.engine());
        if filesystem.engine().reader().is_bad_root(RootId::CHECKSUM_TREE) {
            tracing::warn!("the checksum tree can't be read: data are given out unverified");
        }
        Ok(filesystem)
    }

    /// Opens a committed state, for reading, that another process has leased to this one
    /// ([`CommitLease`](vlinder_tree::CommitLease)): the one of these superblocks, one for each device in the
    /// same order. What is read is worth nothing if the lease is revoked meanwhile.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_leased(
        devices: Vec<Arc<dyn Device>>,
        superblocks: Vec<Superblock>,
        options: OpenOptions,
    ) -> Result<Self> {
        options.check()?;
        let options = OpenOptions { read_only: true, ..options };
        Self::open_volume(Volume::open_leased(devices, superblocks)?, options)
    }

    fn open_volume(opened: Opened, options: OpenOptions) -> Result<Self> {
        let leave_log = Some(ReadOnlyReason::Log);
        let engine_options = EngineOptions { leave_log, ..engine_options(&options) };
        Self::with_engine(Engine::open(opened, engine_options)?, options)
    }

    fn with_engine(engine: Arc<Engine>, options: OpenOptions) -> Result<Self> {
        let choice = options.subvolume.clone();
        let filesystem = Self::assemble(engine, options);
        let root = choose_subvolume(filesystem.names(), &choice)?;
        filesystem.tree().show(root);
        match filesystem.inodes().subvolume(root) {
            Err(error)
                if error.refusal() == Some(Refusal::NotFound) && choice == SubvolumeChoice::Default =>
            {
                return Err(FsError::NoDefaultSubvolume { subvolume: root });
            }
            other => other?,
        };
        if filesystem.engine().read_only_reason().is_none() {
            filesystem.maintenance().take_part();
            if filesystem.options().background {
                filesystem.start_background()?;
            }
        }
        Ok(filesystem)
    }
}

pub(crate) fn engine_options(options: &OpenOptions) -> EngineOptions {
    EngineOptions {
        read_only: options.read_only,
        leave_log: None,
        cache_bytes: options.cache_bytes,
        dirty_bytes: options.dirty_bytes,
        discard: options.discard,
        clock: Arc::clone(&options.clock),
        random: Arc::clone(&options.random),
        registry: Arc::clone(&options.registry),
        disabled: options.disabled,
        rescue: options.rescue.of_engine(),
    }
}

/// Names the members that are missing or stale, and what can't be read without them.
fn warn_of_members(engine: &Engine) {
    let volume = engine.volume();
    for member in volume.members().iter().filter(|member| member.is_stale) {
        let name = member.device.describe().name;
        tracing::warn!(
            "{name}: device {} was away when the others were written to; what it has is used where no other copy is good",
            member.id
        );
    }
    for device in engine.missing_devices() {
        tracing::warn!("device {device} is missing; what is only there can't be read");
    }
    warn_of_chunks(&volume.unreadable_chunks(), "can't be read whole");
    if volume.members().iter().any(|member| member.is_stale) {
        // A chunk that can't be read is told of where somebody wants to read it.
        let _ = volume.load_chunks();
    }
    let stale = "is had only from a device that was away: data without checksums may be old";
    warn_of_chunks(&volume.stale_chunks(), stale);
}

/// Names chunks that something is wrong with, the first few one by one.
fn warn_of_chunks(chunks: &[Arc<MappedChunk>], what: &str) {
    for chunk in chunks.iter().take(CHUNKS_NAMED) {
        let (start, length, kind) = (chunk.logical, chunk.chunk.length, chunk.chunk.flags);
        tracing::warn!("the chunk of {length} bytes at {start} ({kind}) {what}");
    }
    if let Some(more) = chunks.len().checked_sub(CHUNKS_NAMED).filter(|more| *more > 0) {
        tracing::warn!("of {more} more chunks the same is true");
    }
}
