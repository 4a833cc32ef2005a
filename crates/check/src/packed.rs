//! Compressed extents that wait to be unpacked.

use vlinder_format::file_extent::CompressionId;
use vlinder_format::{Key, Logical, Place, RootId};

use crate::sorted::{Record, take};

/// A compressed extent, and the item of a file that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed {
    pub(crate) address: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) ram_bytes: u64,
    pub(crate) compression: CompressionId,
    pub(crate) tree: RootId,
    pub(crate) leaf: Logical,
    pub(crate) slot: u32,
    pub(crate) key: Key,
}

impl Packed {
    /// Where the item lies.
    pub(crate) fn place(&self) -> Place {
        Place { tree: Some(self.tree), block: Some(self.leaf), slot: Some(self.slot), key: Some(self.key) }
    }

    fn is_same_extent(&self, other: &Self) -> bool {
        let extent =
            |packed: &Self| (packed.address, packed.disk_bytes, packed.ram_bytes, packed.compression);
        extent(self) == extent(other)
    }
}

impl Record for Packed {
    const BYTES: usize = <[u64; 5]>::BYTES + 5 + Key::SIZE;

    fn encode(&self, bytes: &mut Vec<u8>) {
        [self.address, self.disk_bytes, self.ram_bytes, self.tree.0, self.leaf.0].encode(bytes);
        bytes.push(self.compression.0);
        bytes.extend_from_slice(&self.slot.to_le_bytes());
        bytes.extend_from_slice(&self.key.encode());
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let [address, disk_bytes, ram_bytes, tree, leaf] =
            <[u64; 5]>::decode(&take::<{ <[u64; 5]>::BYTES }>(&mut rest));
        let [compression] = take(&mut rest);
        let (slot, key) = (u32::from_le_bytes(take(&mut rest)), Key::decode(&take(&mut rest)));
        Self {
            address,
            disk_bytes,
            ram_bytes,
            compression: CompressionId(compression),
            tree: RootId(tree),
            leaf: Logical(leaf),
            slot,
            key,
        }
    }

    /// One of the files is enough to say where the extent is shown.
    fn absorb(&mut self, next: &Self) -> bool {
        self.is_same_extent(next)
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::{ItemType, ObjectId};

    use super::*;

    #[test]
    fn what_is_listed_comes_back_from_its_bytes() {
        let packed = Packed {
            address: 0x0102_0304_0506_0708,
            disk_bytes: 0x1112_1314,
            ram_bytes: 0x2122_2324,
            compression: CompressionId(3),
            tree: RootId(0x3132_3334_3536_3738),
            leaf: Logical(0x4142_4344_4546_4748),
            slot: 0x5152_5354,
            key: Key::new(ObjectId(7), ItemType::EXTENT_DATA, 4096),
        };
        let mut bytes = Vec::new();
        packed.encode(&mut bytes);
        assert_eq!((bytes.len(), Packed::decode(&bytes)), (Packed::BYTES, packed));
        let other = Packed { slot: 1, leaf: Logical(0), ..packed };
        assert!(packed.clone().absorb(&other) && !packed.clone().absorb(&Packed { ram_bytes: 1, ..other }));
    }
}
