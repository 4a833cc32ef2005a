//! What a device holds already, by the magic numbers of common formats: so that nothing is overwritten by
//! mistake.

use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceError, DeviceExt};

/// Something that was found on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is, as users name it: `ext4`, `a partition table (GPT)`.
    pub name: &'static str,
    /// Byte of the device where its magic number stands.
    pub offset: u64,
}

/// Magic numbers: name, offset on the device, bytes. More specific ones first.
const MAGICS: &[(&str, u64, &[u8])] = &[
    ("btrfs", 65536 + 64, b"_BHRfS_M"),
    ("xfs", 0, b"XFSB"),
    ("bcachefs or bcache", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca]),
    ("bcachefs", 4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9]),
    ("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("erofs", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("ext2, ext3 or ext4", 1024 + 56, &[0x53, 0xef]),
    ("hfsplus", 1024, b"H+\0\x04"),
    ("hfsx", 1024, b"HX\0\x05"),
    ("apfs", 32, b"NXSB"),
    ("jfs", 32768, b"JFS1"),
    ("reiserfs", 65536 + 52, b"ReIsEr"),
    ("iso9660", 32769, b"CD001"),
    ("udf", 32769, b"BEA01"),
    ("squashfs", 0, b"hsqs"),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 8192 - 10, b"SWAPSPACE2"),
    ("swap space", 16384 - 10, b"SWAPSPACE2"),
    ("swap space", 65536 - 10, b"SWAPSPACE2"),
    ("a hibernation image", 4096 - 10, b"S1SUSPEND"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("a RAID member (md 1.1)", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a RAID member (md 1.2)", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 82, b"FAT32   "),
    ("vfat", 54, b"FAT16   "),
    ("vfat", 54, b"FAT12   "),
    ("vfat", 54, b"FAT     "),
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
];

/// ZFS uberblocks lie every 1 KiB of the second half of each label; the first label ends at 256 KiB.
const ZFS_UBERBLOCKS: core::ops::Range<u64> = (128 << 10)..(256 << 10);
const ZFS_MAGIC: u64 = 0x00ba_b10c;
/// Bytes that all magic numbers lie in.
const LOOKED_AT_BYTES: u64 = 256 << 10;

/// The first known format that is recognised on the device.
///
/// # Errors
/// The device's, when its start can't be read.
pub fn find_signature(device: &dyn Device) -> Result<Option<Signature>, DeviceError> {
    let length = usize::try_from(LOOKED_AT_BYTES.min(device.length())).unwrap_or(0);
    if length == 0 {
        return Ok(None);
    }
    Ok(find(&device.read_at(Physical(0), length)?))
}

fn find(bytes: &[u8]) -> Option<Signature> {
    let at = |offset: u64, length: usize| {
        let start = usize::try_from(offset).ok()?;
        bytes.get(start..start.checked_add(length)?)
    };
    let known = MAGICS.iter().find(|(_, offset, magic)| at(*offset, magic.len()) == Some(magic));
    if let Some((name, offset, _)) = known {
        return Some(Signature { name, offset: *offset });
    }
    for label in 0..4 {
        // LVM's label lies in one of the first four sectors: "LABELONE", its type 24 bytes further on.
        let offset = label * 512;
        if at(offset, 8) == Some(b"LABELONE") && at(offset + 24, 8) == Some(b"LVM2 001") {
            return Some(Signature { name: "an LVM physical volume", offset });
        }
    }
    let zfs = ZFS_UBERBLOCKS.step_by(1024).find(|offset| {
        at(*offset, 8)
            .is_some_and(|magic| magic == ZFS_MAGIC.to_le_bytes() || magic == ZFS_MAGIC.to_be_bytes())
    });
    if let Some(offset) = zfs {
        return Some(Signature { name: "zfs", offset });
    }
    // A boot sector's mark is a partition table only with a partition in it.
    let partitions = at(446, 64)?.chunks(16).any(|entry| entry.get(4).is_some_and(|kind| *kind != 0));
    let marked = at(510, 2) == Some(&[0x55, 0xaa]);
    (marked && partitions).then_some(Signature { name: "a partition table (MBR)", offset: 510 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magic_number_is_found_and_zeros_are_nothing() {
        assert_eq!(find(&vec![0; 262_144]), None);
        assert_eq!(find(&[]), None);
        for (name, offset, magic) in MAGICS {
            let start = usize::try_from(*offset).unwrap();
            let mut bytes = vec![0; 262_144];
            bytes[start..start + magic.len()].copy_from_slice(magic);
            assert_eq!(find(&bytes), Some(Signature { name, offset: *offset }));
            assert_eq!(find(&bytes[..start + magic.len() - 1]), None, "a cut magic number is none");
        }
    }

    #[test]
    fn partition_tables_lvm_and_zfs_need_more_than_one_field() {
        let mut bytes = vec![0; 262_144];
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(find(&bytes), None, "a boot mark alone is no partition table");
        bytes[446 + 16 + 4] = 0x83;
        assert_eq!(find(&bytes).unwrap().name, "a partition table (MBR)");
        let mut bytes = vec![0; 262_144];
        bytes[512..520].copy_from_slice(b"LABELONE");
        assert_eq!(find(&bytes), None);
        bytes[536..544].copy_from_slice(b"LVM2 001");
        assert_eq!(find(&bytes), Some(Signature { name: "an LVM physical volume", offset: 512 }));
        let mut bytes = vec![0; 262_144];
        bytes[132 << 10..(132 << 10) + 8].copy_from_slice(&ZFS_MAGIC.to_be_bytes());
        assert_eq!(find(&bytes).unwrap().name, "zfs");
    }
}
