//! Replay of the fsync log, Linux's and our own, when a file system is opened.
//!
//! A log tree holds copies of the items of the inodes that were fsynced since the last commit, beside items
//! that say which part of a directory it speaks for. What it says is put into the subvolume's tree in stages,
//! each over all logs, so that no item is needed before it is there:
//!
//! 1. the log's blocks and the extents that only it knows are kept from being taken
//!    ([`Engine::adopt_log`]);
//! 2. [`inodes`]: what was deleted goes (attributes, names within the log's ranges), inode items are put in,
//!    extents behind the end of a file go;
//! 3. [`directories`]: names, of inodes that the log does not hold themselves;
//! 4. everything else: [`attributes`], [`references`] with their names, [`extents`] with their checksums;
//! 5. [`link_counts`]: of every inode that was touched, the names are counted; what has none becomes an
//!    orphan.
//!
//! All of them look things up in the log ([`logged_items`]) and change the subvolume ([`subvolume`]); what
//! changes a name does so through [`names`].
//!
//! Then one commit makes it durable and ends the log. Until then nothing is written, so a log that cannot be
//! replayed leaves the image as it was. What is done, and in which order, is as Linux does it
//! (`fs/btrfs/tree-log.c`), since the trees afterwards are to be the same.

mod attributes;
mod directories;
mod error;
mod extents;
mod inodes;
mod link_counts;
mod logged_items;
mod names;
mod references;
mod subvolume;

pub(crate) use error::ReplayError;

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::inode::{InodeItem, Timestamp};
use vlinder_format::{Damage, ItemType, Key, ObjectId};
use vlinder_transaction::{ChangeKind, Engine, EngineOptions, FsyncLog, ReadOnlyReason, Rescue, Reservation};
use vlinder_volume::{Access, Opened, VolumeError};

use crate::Result;
use attributes::AttributeReplay;
use directories::DirectoryReplay;
use extents::ExtentReplay;
use inodes::InodeReplay;
use logged_items::LoggedItems;
use references::ReferenceReplay;
use subvolume::ReplayedSubvolume;

/// Opens devices as a volume once more.
type Reopen<'a> = &'a dyn Fn(Vec<Arc<dyn Device>>, Access) -> Result<Opened, VolumeError>;

/// Opens the engine of a file system that has a log, and replays it: on the devices; or, for a reader and
/// where the devices can't be written, in memory. A log that cannot be replayed is left, and the state
/// without it opened for reading, with the reason.
///
/// # Errors
/// Those of opening a file system that has no log.
pub(crate) fn open_engine(
    devices: &[Arc<dyn Device>],
    opened: Opened,
    reopen: Reopen<'_>,
    options: EngineOptions,
) -> Result<Arc<Engine>> {
    let replayed = if options.read_only {
        in_memory(devices, reopen, &options, ReadOnlyReason::Requested)
    } else {
        on_devices(devices, opened, reopen, &options)
    };
    let error = match replayed {
        Ok(engine) => return Ok(engine),
        Err(error) => error,
    };
    tracing::error!(%error, "the fsync log could not be replayed");
    let opened = reopen(devices.to_vec(), Access::ReadOnly)?;
    let leave_log = Some(ReadOnlyReason::LogReplay(error.to_string()));
    Ok(Engine::open(opened, EngineOptions { leave_log, read_only: false, ..options })?)
}

fn on_devices(
    devices: &[Arc<dyn Device>],
    opened: Opened,
    reopen: Reopen<'_>,
    options: &EngineOptions,
) -> Result<Arc<Engine>, ReplayError> {
    let engine = Engine::open(opened, options.clone())?;
    match engine.read_only_reason() {
        None | Some(ReadOnlyReason::Log) => {
            replay(&engine)?;
            Ok(engine)
        }
        Some(reason) => {
            drop(engine);
            in_memory(devices, reopen, options, reason)
        }
    }
}

/// Replays for someone who only reads, for this reason. What that changes stays in memory.
fn in_memory(
    devices: &[Arc<dyn Device>],
    reopen: Reopen<'_>,
    options: &EngineOptions,
    reason: ReadOnlyReason,
) -> Result<Arc<Engine>, ReplayError> {
    // The blocks that replaying may change, and those of the trees that describe space.
    let most_bytes = 2 * most_changed_bytes(options);
    let opened = reopen(devices.to_vec(), Access::InMemory { most_bytes })?;
    // Where something is damaged nothing is changed, not even in memory.
    let rescue = Rescue::default();
    let options = EngineOptions { read_only: false, discard: false, rescue, ..options.clone() };
    let engine = Engine::open(opened, options)?;
    replay(&engine)?;
    engine.end_changes(reason);
    Ok(engine)
}

/// Replays the log, if there is one to be replayed, and commits.
fn replay(engine: &Engine) -> Result<(), ReplayError> {
    let Some(log) = engine.adopt_log()? else {
        if let Some(reason) = engine.read_only_reason() {
            tracing::warn!(%reason, "the fsync log is not replayed: nothing can be changed");
        }
        return Ok(());
    };
    let mut replay = Replay::new(engine, &log)?;
    for stage in [Stage::Inodes, Stage::Names, Stage::Rest] {
        for number in 0..log.subvolumes.len() {
            replay.run(stage, number)?;
        }
    }
    replay.handle.finish_log(&log)?;
    drop(replay);
    let generation = engine.commit()?;
    tracing::info!(%generation, subvolumes = log.subvolumes.len(), "the fsync log was replayed");
    Ok(())
}

/// All changes are one transaction, which is held in memory until its commit.
fn most_changed_bytes(options: &EngineOptions) -> u64 {
    options.cache_bytes / 4
}

/// What is done in one walk over a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Inodes,
    Names,
    Rest,
}

/// The replay of all logs.
struct Replay<'a> {
    engine: &'a Engine,
    log: &'a FsyncLog,
    handle: vlinder_transaction::Handle<'a>,
    /// Of each subvolume, the inodes whose names are to be counted.
    touched: Vec<BTreeSet<ObjectId>>,
    /// The change time of inodes that lose a name.
    now: Timestamp,
}

impl<'a> Replay<'a> {
    fn new(engine: &'a Engine, log: &'a FsyncLog) -> Result<Self, ReplayError> {
        // What the replay takes is not known before; a full file system must be openable.
        let handle = engine.begin(Reservation::accepted(1).of(ChangeKind::LogReplay))?;
        let touched = log.subvolumes.iter().map(|_| BTreeSet::new()).collect();
        let now = handle.time();
        Ok(Self { engine, log, handle, touched, now })
    }

    /// One stage of one log.
    fn run(&mut self, stage: Stage, number: usize) -> Result<(), ReplayError> {
        let (Some(subvolume), Some(touched)) =
            (self.log.subvolumes.get(number), self.touched.get_mut(number))
        else {
            return Ok(());
        };
        let mut target =
            ReplayedSubvolume::new(self.engine, &mut self.handle, &subvolume.tree, touched, self.now);
        let log = LoggedItems::new(self.engine, &subvolume.log, self.log);
        run_stage(stage, &mut target, log)?;
        if stage == Stage::Rest {
            link_counts::settle(&mut target, log)?;
        }
        Ok(())
    }
}

/// Walks a log. The items of an inode without names are left out: it would be deleted again.
fn run_stage<'r>(
    stage: Stage,
    subvolume: &mut ReplayedSubvolume<'r, '_>,
    log: LoggedItems<'r>,
) -> Result<(), ReplayError> {
    let engine = subvolume.engine();
    let most = most_changed_bytes(engine.options());
    let mut is_left_out = false;
    let mut cursor = log.walk()?;
    while let Some((key, data)) = cursor.item() {
        if key.item_type == ItemType::INODE_ITEM {
            let item = InodeItem::decode(data).map_err(|fault| Damage::new(fault, cursor.place()))?;
            is_left_out = item.link_count == 0;
        }
        if !is_left_out {
            replay_item(stage, subvolume, log, key, data)?;
            let changed = engine.forest().trees().dirty_bytes();
            if changed > most {
                return Err(ReplayError::TooLarge { changed_bytes: changed, most_bytes: most });
            }
        }
        cursor.advance()?;
    }
    Ok(())
}

/// What one item brings, if this is its stage.
fn replay_item<'r>(
    stage: Stage,
    subvolume: &mut ReplayedSubvolume<'r, '_>,
    log: LoggedItems<'r>,
    key: Key,
    data: &[u8],
) -> Result<(), ReplayError> {
    match (stage, key.item_type) {
        (Stage::Inodes, ItemType::INODE_ITEM) => InodeReplay::new(subvolume, log).replay(key.objectid, data),
        (Stage::Names, ItemType::DIR_INDEX) => DirectoryReplay::new(subvolume, log).replay(&key, data),
        (Stage::Rest, ItemType::XATTR_ITEM) => AttributeReplay::new(subvolume, log).replay(key, data),
        (Stage::Rest, ItemType::INODE_REF | ItemType::INODE_EXTREF) => {
            ReferenceReplay::new(subvolume, log).replay(key, data)
        }
        (Stage::Rest, ItemType::EXTENT_DATA) => ExtentReplay::new(subvolume, log).replay(key, data),
        _ => Ok(()),
    }
}
