//! Cutting a new file system behind its last chunk, as `mkfs.btrfs --shrink` does.
//!
//! Nobody else knows the file system yet, so its device item is changed where it lies, without a transaction:
//! the leaf gets a new checksum, and every superblock the new size.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::checksum;
use vlinder_device::{Device, DeviceExt};
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{Block, DeviceId, Physical, RootId};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_tree::Readahead;
use vlinder_volume::profile::plan_write;

use super::error::MkfsError;

const DEVICE: DeviceId = DeviceId(1);

/// Cuts the file system on this device, which nobody has open, and gives its new size. The device is as long
/// as before.
pub(super) fn shrink(device: &Arc<dyn Device>) -> Result<u64, MkfsError> {
    let filesystem = Filesystem::open_devices(vec![Arc::clone(device)], OpenOptions::read_only())?;
    let size = end_of_chunks(&filesystem)?;
    let engine = filesystem.engine();
    let superblock = engine.superblock();
    if size >= superblock.total_bytes {
        return Ok(superblock.total_bytes);
    }
    let key = DeviceItem::key(DEVICE);
    let found =
        engine.forest().trees().get(engine.reader().chunk_tree(), &key).map_err(vlinder_fs::FsError::from)?;
    let found = found.expect("the file system was just opened by this item");
    let item = DeviceItem::decode(found.data()).expect("the leaf was judged when it was read");
    let item = DeviceItem { total_bytes: size, ..item };
    let mut leaf = Block::clone(found.leaf());
    leaf.items_mut().data(found.slot()).copy_from_slice(&item.encode());
    let sum = checksum(engine.volume().geometry().checksum_kind, leaf.checksummed_bytes());
    leaf.store_checksum(sum.as_field());
    let length = u64::from(superblock.node_size);
    let chunk = engine.volume().chunks().covering(leaf.logical(), length)?;
    for place in plan_write(&chunk, leaf.logical(), length)?.places() {
        device.write_at(place.physical, leaf.bytes())?;
    }
    device.flush()?;
    write_superblocks(
        &**device,
        Superblock { total_bytes: size, device_item: item, ..superblock },
        &filesystem,
    )?;
    Ok(size)
}

/// The end of the last device extent.
fn end_of_chunks(filesystem: &Filesystem) -> Result<u64, MkfsError> {
    let engine = filesystem.engine();
    let tree = engine.tree(RootId::DEVICE_TREE).map_err(vlinder_fs::FsError::from)?;
    let first = DeviceExtent::key(DEVICE, Physical(0));
    let fail = vlinder_fs::FsError::from;
    let mut cursor =
        engine.forest().trees().cursor(tree.root(), &first, Readahead::Forward(8)).map_err(fail)?;
    let mut end = 0;
    while let Some((key, data)) = cursor.item() {
        if key.objectid != first.objectid || key.item_type != first.item_type {
            break;
        }
        let extent = DeviceExtent::decode(data).expect("the leaf was judged when it was read");
        end = end.max(key.offset + extent.length);
        cursor.advance().map_err(fail)?;
    }
    Ok(end)
}

fn write_superblocks(
    device: &dyn Device,
    mut superblock: Superblock,
    filesystem: &Filesystem,
) -> Result<(), MkfsError> {
    for backup in &mut superblock.backup_roots {
        if backup.tree_root_generation == superblock.generation {
            backup.total_bytes = superblock.total_bytes;
        }
    }
    let kind = filesystem.engine().volume().geometry().checksum_kind;
    let sum = |covered: &[u8]| *checksum(kind, covered).as_field();
    for mirror in SuperblockMirror::ALL.into_iter().rev() {
        // A copy that the cut takes away goes too, for who does not cut the device.
        if mirror.fits(superblock.total_bytes) {
            device.write_at(mirror.offset(), superblock.encode_with_checksum(mirror, sum).to_vec())?;
        } else if mirror.fits(device.length()) {
            device.write_at(mirror.offset(), vec![0; 4096])?;
        }
    }
    Ok(device.flush()?)
}
