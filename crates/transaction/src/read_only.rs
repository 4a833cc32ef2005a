//! Why a file system opens for reading only: it was asked for, or the file system has what vlinder would not
//! keep right if it wrote.

use vlinder_base::sync::Arc;
use vlinder_format::device::DeviceItem;
use vlinder_format::device_replace::DeviceReplace;
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::quota::QuotaStatusFlags;
use vlinder_format::superblock::{SUPERBLOCK_FLAG_SEEDING, Superblock};
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId};
use vlinder_tree::{Root, Trees};
use vlinder_volume::Volume;

use crate::options::EngineOptions;
use crate::quotas::quota_status;
use crate::system_trees::FixedTrees;
use crate::{EngineError, ReadOnlyReason};

/// What the options, the superblock and the devices given have against writing.
pub(crate) fn reason_in_superblock(
    superblock: &Superblock,
    volume: &Volume,
    options: &EngineOptions,
) -> Option<ReadOnlyReason> {
    // Why a replay failed tells more than that nothing may be written since.
    if let Some(failed @ ReadOnlyReason::LogReplay(_)) = reason_in_log(superblock, options) {
        return Some(failed);
    }
    if options.read_only {
        return Some(ReadOnlyReason::Requested);
    }
    let in_memory = volume.keeps_writes_in_memory();
    if !in_memory && let Some(reason) = reason_in_members(superblock, volume) {
        return Some(reason);
    }
    let features = superblock.features();
    let features = match in_memory {
        true => features.unsupported_for_changes_in_memory(),
        false => features.unsupported_for_writing(),
    };
    if !features.is_empty() {
        return Some(ReadOnlyReason::Features(features));
    }
    let free_space_tree = CompatReadOnlyFeatures::FREE_SPACE_TREE;
    let valid = CompatReadOnlyFeatures::FREE_SPACE_TREE_VALID;
    if superblock.compat_read_only.has(free_space_tree) && !superblock.compat_read_only.has(valid) {
        return Some(ReadOnlyReason::Features(vec!["a free-space tree that is not valid".into()]));
    }
    if in_memory {
        return None;
    }
    if superblock.flags & SUPERBLOCK_FLAG_SEEDING != 0 {
        return Some(ReadOnlyReason::Seed);
    }
    if volume.members().has_seed() {
        return Some(ReadOnlyReason::Sprout);
    }
    (superblock.device_count > 1).then_some(ReadOnlyReason::SeveralDevices)
}

/// Why nothing may be written to these devices, where changes that stay in memory are harmless.
fn reason_in_members(superblock: &Superblock, volume: &Volume) -> Option<ReadOnlyReason> {
    if volume.is_degraded() {
        return Some(ReadOnlyReason::Degraded);
    }
    if volume.is_read_only() {
        return Some(ReadOnlyReason::DeviceReadOnly);
    }
    if superblock.incompat.has(IncompatFeatures::SIMPLE_QUOTA) {
        return Some(ReadOnlyReason::Quotas);
    }
    None
}

/// A log is replayed before anything else is written, unless it is to be left.
pub(crate) fn reason_in_log(superblock: &Superblock, options: &EngineOptions) -> Option<ReadOnlyReason> {
    superblock.has_log().then(|| options.leave_log.clone().unwrap_or(ReadOnlyReason::Log))
}

/// A chunk of a profile that is only read.
pub(crate) fn reason_in_chunks(volume: &Volume) -> Option<ReadOnlyReason> {
    // What is written to memory alone lies under no profile.
    if volume.keeps_writes_in_memory() {
        return None;
    }
    let chunks = volume.chunks().snapshot();
    let foreign = chunks.iter().find(|chunk| !chunk.profile.is_writable())?;
    Some(ReadOnlyReason::Profile(foreign.profile.to_string()))
}

/// Simple quotas, and work that Linux left unfinished.
pub(crate) fn reason_in_trees(
    trees: &Trees,
    root_tree: &Arc<Root>,
    fixed: &FixedTrees,
    in_memory: bool,
) -> Result<Option<ReadOnlyReason>, EngineError> {
    if !in_memory
        && let Some(tree) = &fixed.quota
        && quota_status(trees, tree)?.is_some_and(|status| status.flags.has(QuotaStatusFlags::SIMPLE))
    {
        return Ok(Some(ReadOnlyReason::Quotas));
    }
    if fixed.bad.is_empty()
        && let Some(found) = trees.get(fixed.device.root(), &DeviceReplace::KEY)?
    {
        let replace = DeviceReplace::decode(found.data())
            .map_err(|fault| Damage::new(fault, found.place(fixed.device.id())))?;
        if replace.is_unfinished() {
            return Ok(Some(ReadOnlyReason::UnfinishedReplace));
        }
    }
    // Relocation trees share blocks as snapshots do, and what is changed in memory alone does not reach them.
    if in_memory {
        return Ok(None);
    }
    // A balance between two chunks has only its item, which stays for Linux to go on from.
    let relocation = ObjectId(RootId::TREE_RELOCATION.0);
    let found = trees.ceiling(root_tree, &Key::new(relocation, ItemType::ROOT_ITEM, 0))?;
    let has_trees = found.is_some_and(|found| found.key().objectid == relocation);
    Ok(has_trees.then_some(ReadOnlyReason::UnfinishedRelocation))
}

/// A commit copies a device's item into its superblock: one that claims more than the device has would keep
/// the file system from ever being opened again.
pub(crate) fn reason_in_devices(items: &[DeviceItem], volume: &Volume) -> Option<ReadOnlyReason> {
    items.iter().find_map(|item| {
        let found = volume.member(item.device)?.device.length();
        let (device, claimed) = (item.device, item.total_bytes);
        (claimed > found).then_some(ReadOnlyReason::DeviceSize { device, claimed, found })
    })
}
