//! What a partition is said to hold: types of the UEFI specification, of the Discoverable Partitions
//! Specification, and the bytes that MBRs have.

use std::fmt;

/// The type that a table gives a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// Of a GPT: a GUID, as it lies on disk (the first three groups are little-endian).
    Guid([u8; 16]),
    /// Of an MBR.
    Number(u8),
}

/// GUIDs as they are written, with what they are called.
const GUIDS: &[(u128, &str)] = &[
    (0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, "EFI system"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "extended boot loader"),
    (0x0fc63daf_8483_4772_8e79_3d69d8477de4, "Linux"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, "Linux root (x86-64)"),
    (0xb921b045_1df0_41c3_af44_4c6f280d3fae, "Linux root (ARM64)"),
    (0x8484680c_9521_48c6_9c11_b0720656f69e, "Linux /usr (x86-64)"),
    (0xb0e01050_ee5f_4390_949a_9101b17104e9, "Linux /usr (ARM64)"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, "Linux srv"),
    (0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, "Linux var"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "LVM"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "RAID"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "LUKS"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft basic data"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
];

const NUMBERS: &[(u8, &str)] = &[
    (0x01, "FAT"),
    (0x04, "FAT"),
    (0x06, "FAT"),
    (0x0b, "FAT"),
    (0x0c, "FAT"),
    (0x0e, "FAT"),
    (0x07, "NTFS or exFAT"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "LVM"),
    (0xee, "GPT protective"),
    (0xef, "EFI system"),
    (0xfd, "RAID"),
];

impl PartitionKind {
    /// Whether it holds logical partitions (Linux's `is_extended_partition`, block/partitions/msdos.c).
    pub(crate) fn is_extended(self) -> bool {
        matches!(self, Self::Number(0x05 | 0x0f | 0x85))
    }
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guid(bytes) => {
                let guid = written(*bytes);
                match GUIDS.iter().find(|(known, _)| *known == guid) {
                    Some((_, name)) => formatter.write_str(name),
                    None => write!(formatter, "type {}", hyphenated(guid)),
                }
            }
            Self::Number(_) if self.is_extended() => formatter.write_str("extended"),
            Self::Number(number) => match NUMBERS.iter().find(|(known, _)| known == number) {
                Some((_, name)) => formatter.write_str(name),
                None => write!(formatter, "type {number:02x}"),
            },
        }
    }
}

/// The number whose hexadecimal digits are the written GUID.
fn written(bytes: [u8; 16]) -> u128 {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let mut ordered = [d, c, b, a, f, e, h, g, 0, 0, 0, 0, 0, 0, 0, 0];
    if let Some(tail) = ordered.last_chunk_mut::<8>() {
        *tail = rest;
    }
    u128::from_be_bytes(ordered)
}

fn hyphenated(guid: u128) -> String {
    let digits = format!("{guid:032x}");
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| digits.get(group).unwrap_or_default().to_owned()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_and_unknown_ones_their_number() {
        let efi =
            [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];
        assert_eq!(PartitionKind::Guid(efi).to_string(), "EFI system");
        let mut other = efi;
        other[15] = 0;
        let shown = PartitionKind::Guid(other).to_string();
        assert_eq!(shown, "type c12a7328-f81f-11d2-ba4b-00a0c93ec900");
        assert_eq!(PartitionKind::Number(0x83).to_string(), "Linux");
        assert_eq!(PartitionKind::Number(0x0f).to_string(), "extended");
        assert_eq!(PartitionKind::Number(0x0a).to_string(), "type 0a");
    }
}
