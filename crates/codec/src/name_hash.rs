//! The hashes that give items their key offsets: all raw CRC-32C, see [`crc32c`](crate::checksum::crc32c()).

use crate::checksum::crc32c;

/// The seed of directory item and xattr hashes, `(u32)~1` in Linux's `btrfs_name_hash`.
const NAME_SEED: u32 = !1;

/// The key offset of a DIR_ITEM or XATTR_ITEM: the hash of the entry's name.
pub fn name_hash(name: &[u8]) -> u64 {
    u64::from(crc32c(NAME_SEED, name))
}

/// The key offset of an INODE_EXTREF: the hash of the name, seeded with the low 32 bits of the parent
/// directory's object id (Linux's `btrfs_extref_hash` passes the id to a 32-bit parameter).
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    u64::from(crc32c(parent as u32, name))
}

/// The key offset of an EXTENT_DATA_REF: who refers to a data extent, as root, inode and the file offset the
/// extent's start would have. The high hash is shifted by 31, not 32, as in Linux's `hash_extent_data_ref`.
pub fn extent_data_ref_hash(root: u64, object: u64, offset: u64) -> u64 {
    let high = crc32c(!0, &root.to_le_bytes());
    let low = crc32c(crc32c(!0, &object.to_le_bytes()), &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that Linux 6.18 wrote, as `btrfs inspect-internal dump-tree` prints them.
    #[test]
    fn the_hashes_are_the_key_offsets_that_linux_writes() {
        let long = b"a rather long name for a file, longer than sixty-four bytes altogether.txt";
        let names: [(&[u8], u64); 5] = [
            (b"default", 2_378_154_706),
            (b"s", 1_025_607_764),
            (b"hello.txt", 1_096_805_209),
            (b"d", 4_189_400_016),
            (long, 3_124_093_983),
        ];
        for (name, expected) in names {
            assert_eq!(name_hash(name), expected, "{}", name.escape_ascii());
        }
        let linked = b"extra-long-link-name-that-fills-an-inode-ref-item-270";
        assert_eq!(extref_hash(257, linked), 53_573_814);
        assert_eq!(extref_hash(257 | 1 << 32, linked), 53_573_814);
        assert_eq!(extent_data_ref_hash(5, 504, 0), 1_007_496_931_328_862_710);
        assert_eq!(extent_data_ref_hash(5, 513, 0), 1_007_496_931_336_688_361);
    }
}
