//! Member devices and the runs of them that chunks take.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{is_aligned, record};
use crate::rules::ItemContext;
use crate::types::{DeviceId, Generation, Logical, ObjectId, RootId, Uuid};

record! {
    /// A member device: 98 bytes.
    ///
    /// Key (1, DEV_ITEM, device) in the chunk tree; the device's own also in its superblock. Sizes are bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DeviceItem in RawDeviceItem, 98 bytes {
        /// Its number in the file system.
        device: DeviceId,
        /// Bytes of the device that the file system may use; 0 while the device is being removed.
        total_bytes: u64,
        /// Bytes of the device that chunks take.
        bytes_used: u64,
        /// Best alignment of I/O.
        io_align: u32,
        /// Best width of I/O.
        io_width: u32,
        /// Smallest unit of I/O.
        sector_size: u32,
        /// Unused (`type`).
        device_type: u64,
        /// Unused.
        generation: Generation,
        /// Unused: first byte of the device that may be allocated.
        start_offset: u64,
        /// Unused.
        device_group: u32,
        /// Unused.
        seek_speed: u8,
        /// Unused.
        bandwidth: u8,
        /// The device's own UUID.
        uuid: Uuid,
        /// The file system's UUID (the metadata UUID where that feature is on).
        fsid: Uuid,
    }
}

record! {
    /// A run of a device that belongs to a chunk: 48 bytes.
    ///
    /// Key (device, DEV_EXTENT, physical) in the device tree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceExtent in RawDeviceExtent, 48 bytes {
        /// The chunk tree: always 3.
        chunk_tree: RootId,
        /// Object id of the chunk's key: always 256.
        chunk_object: ObjectId,
        /// The chunk's logical start.
        chunk_offset: Logical,
        /// Bytes on the device.
        length: u64,
        /// The chunk tree's UUID; not checked by Linux.
        chunk_tree_uuid: Uuid,
    }
}

/// How a device item or device extent can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The item has another size.
    #[error("the device item or extent has {found} bytes instead of {expected}")]
    Size {
        /// Bytes of the item.
        found: usize,
        /// Bytes that it must have.
        expected: usize,
    },
    /// The key's object id is not that of device items.
    #[error("a device item under key object {found} instead of 1")]
    KeyObject {
        /// In the key.
        found: ObjectId,
    },
    /// The number in the item is not the number in the key.
    #[error("the device item says device {found}, its key device {expected}")]
    DeviceId {
        /// In the item.
        found: DeviceId,
        /// In the key.
        expected: DeviceId,
    },
    /// More bytes are used than there are.
    #[error("{bytes_used} bytes of the device's {total_bytes} are used")]
    BytesUsed {
        /// In the item.
        bytes_used: u64,
        /// In the item.
        total_bytes: u64,
    },
    /// The device extent names another chunk tree than 3 and 256.
    #[error("the device extent belongs to chunk tree {tree}, object {object}")]
    ChunkTree {
        /// In the item.
        tree: RootId,
        /// In the item.
        object: ObjectId,
    },
    /// Start, length or chunk lie between sectors, or the length is 0.
    #[error("the device extent at {physical}, length {length}, chunk {chunk} is not of whole sectors")]
    Alignment {
        /// Offset of the key.
        physical: u64,
        /// In the item.
        length: u64,
        /// In the item.
        chunk: Logical,
    },
    /// The extent ends past the last address, or over the next one.
    #[error("the device extent at {physical} ends over the one at {next}")]
    Overlap {
        /// Start of the earlier extent.
        physical: u64,
        /// Start of the later extent (2^64 - 1 if it is the end of all addresses).
        next: u64,
    },
}

impl DeviceItem {
    /// Where the item of a device lies.
    pub const fn key(device: DeviceId) -> Key {
        Key::new(ObjectId::DEVICE_ITEMS, ItemType::DEVICE_ITEM, device.0)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`DeviceFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DeviceFault> {
        Self::read_whole(bytes).ok_or(DeviceFault::Size { found: bytes.len(), expected: Self::SIZE })
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// Checks the item against its key (kernel: `check_dev_item`).
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(&self, key: &Key) -> Result<(), DeviceFault> {
        if key.objectid != ObjectId::DEVICE_ITEMS {
            return Err(DeviceFault::KeyObject { found: key.objectid });
        }
        if self.device.0 != key.offset {
            return Err(DeviceFault::DeviceId { found: self.device, expected: DeviceId(key.offset) });
        }
        if self.bytes_used > self.total_bytes {
            return Err(DeviceFault::BytesUsed {
                bytes_used: self.bytes_used,
                total_bytes: self.total_bytes,
            });
        }
        Ok(())
    }
}

impl DeviceExtent {
    /// Where the extent of a device at a physical offset lies.
    pub const fn key(device: DeviceId, physical: crate::types::Physical) -> Key {
        Key::new(ObjectId(device.0), ItemType::DEVICE_EXTENT, physical.0)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`DeviceFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DeviceFault> {
        Self::read_whole(bytes).ok_or(DeviceFault::Size { found: bytes.len(), expected: Self::SIZE })
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// Checks the extent against its key and the item before it (kernel: `check_dev_extent_item`; also that
    /// the length is not 0 and the end is an address).
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(
        &self,
        key: &Key,
        previous: Option<(&Key, &Self)>,
        sector_size: u32,
    ) -> Result<(), DeviceFault> {
        if self.chunk_tree != RootId::CHUNK_TREE || self.chunk_object != ObjectId::FIRST_CHUNK_TREE {
            return Err(DeviceFault::ChunkTree { tree: self.chunk_tree, object: self.chunk_object });
        }
        let aligned = [key.offset, self.length, self.chunk_offset.0]
            .into_iter()
            .all(|value| is_aligned(value, sector_size));
        if !aligned || self.length == 0 {
            return Err(DeviceFault::Alignment {
                physical: key.offset,
                length: self.length,
                chunk: self.chunk_offset,
            });
        }
        if key.offset.checked_add(self.length).is_none() {
            return Err(DeviceFault::Overlap { physical: key.offset, next: u64::MAX });
        }
        if let Some((before, extent)) = previous
            && before.objectid == key.objectid
            && before.offset.checked_add(extent.length).is_none_or(|end| end > key.offset)
        {
            return Err(DeviceFault::Overlap { physical: before.offset, next: key.offset });
        }
        Ok(())
    }
}

/// The rules for a DEV_ITEM of a leaf.
pub(crate) fn check_item(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), DeviceFault> {
    DeviceItem::decode(data)?.check(key)
}

/// The rules for a DEV_EXTENT of a leaf.
pub(crate) fn check_extent(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), DeviceFault> {
    let before = match &context.previous {
        Some((before, data)) if before.item_type == ItemType::DEVICE_EXTENT => {
            Some((before, DeviceExtent::decode(data)?))
        }
        _ => None,
    };
    let before = before.as_ref().map(|(key, extent)| (*key, extent));
    DeviceExtent::decode(data)?.check(key, before, context.rules.sector_size)
}

/// The fields of a device item.
pub(crate) fn lay_out_item(layout: &mut Layout<'_>) {
    layout.record::<DeviceItem>();
}

/// The fields of a device extent.
pub(crate) fn lay_out_extent(layout: &mut Layout<'_>) {
    layout.record::<DeviceExtent>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Physical;
    use proptest::prelude::*;

    #[test]
    fn device_items_keep_their_rules() {
        let item =
            DeviceItem { device: DeviceId(2), total_bytes: 100, bytes_used: 100, ..DeviceItem::default() };
        let key = DeviceItem::key(DeviceId(2));
        item.check(&key).unwrap();
        let wrong = Key { offset: 3, ..key };
        assert_eq!(
            item.check(&wrong),
            Err(DeviceFault::DeviceId { found: DeviceId(2), expected: DeviceId(3) })
        );
        let wrong = Key { objectid: ObjectId(2), ..key };
        assert_eq!(item.check(&wrong), Err(DeviceFault::KeyObject { found: ObjectId(2) }));
        let item = DeviceItem { bytes_used: 101, ..item };
        assert_eq!(item.check(&key), Err(DeviceFault::BytesUsed { bytes_used: 101, total_bytes: 100 }));
        assert_eq!(DeviceItem::decode(&[0; 97]), Err(DeviceFault::Size { found: 97, expected: 98 }));
    }

    #[test]
    fn device_extents_keep_their_rules() {
        let extent = DeviceExtent {
            chunk_tree: RootId::CHUNK_TREE,
            chunk_object: ObjectId::FIRST_CHUNK_TREE,
            chunk_offset: Logical(1 << 20),
            length: 1 << 20,
            chunk_tree_uuid: Uuid::NIL,
        };
        let first = DeviceExtent::key(DeviceId(1), Physical(1 << 20));
        let second = DeviceExtent::key(DeviceId(1), Physical(2 << 20));
        extent.check(&first, None, 4096).unwrap();
        extent.check(&second, Some((&first, &extent)), 4096).unwrap();
        let long = DeviceExtent { length: (1 << 20) + 4096, ..extent };
        assert_eq!(
            extent.check(&second, Some((&first, &long)), 4096),
            Err(DeviceFault::Overlap { physical: 1 << 20, next: 2 << 20 })
        );
        let other_device = DeviceExtent::key(DeviceId(2), Physical(1 << 20));
        extent.check(&other_device, Some((&first, &long)), 4096).unwrap();
        let odd = DeviceExtent { chunk_object: ObjectId(1), ..extent };
        assert_eq!(
            odd.check(&first, None, 4096),
            Err(DeviceFault::ChunkTree { tree: RootId::CHUNK_TREE, object: ObjectId(1) })
        );
        for odd in [
            DeviceExtent { length: 0, ..extent },
            DeviceExtent { length: 1, ..extent },
            DeviceExtent { chunk_offset: Logical(7), ..extent },
        ] {
            let fault =
                DeviceFault::Alignment { physical: 1 << 20, length: odd.length, chunk: odd.chunk_offset };
            assert_eq!(odd.check(&first, None, 4096), Err(fault));
        }
        let last = DeviceExtent::key(DeviceId(1), Physical(u64::MAX - 4095));
        assert_eq!(
            extent.check(&last, None, 4096),
            Err(DeviceFault::Overlap { physical: u64::MAX - 4095, next: u64::MAX })
        );
    }

    proptest! {
        #[test]
        fn bytes_come_back(item in any::<[[u8; 32]; 4]>()) {
            let bytes = item.concat();
            prop_assert_eq!(&DeviceItem::decode(&bytes[..98]).unwrap().encode()[..], &bytes[..98]);
            prop_assert_eq!(&DeviceExtent::decode(&bytes[..48]).unwrap().encode()[..], &bytes[..48]);
        }
    }
}
