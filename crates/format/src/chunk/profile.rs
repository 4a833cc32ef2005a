//! The profiles: one table of what Linux knows of each (`btrfs_raid_array`, fs/btrfs/volumes.c), and what
//! follows from it.

use super::flags::BlockGroupFlags;

/// How a chunk is replicated or striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Striped, no redundancy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Two copies on one device.
    Dup,
    /// Striped over mirrored pairs.
    Raid10,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
    /// Three copies on three devices.
    Raid1c3,
    /// Four copies on four devices.
    Raid1c4,
}

/// A row of the table of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileFacts {
    /// Whose row this is.
    pub profile: Profile,
    /// Its name, as listings of btrfs-progs have it; options and the kernel write it in small letters.
    pub name: &'static str,
    /// Its bit in a chunk's type; none set for single.
    pub flags: BlockGroupFlags,
    /// How often each byte is stored, parity left out (`ncopies`).
    pub copies: u8,
    /// Stripes of parity in each row (`nparity`).
    pub parities: u8,
    /// Stripes that hold the same bytes in a striped profile (`sub_stripes`).
    pub sub_stripes: u16,
    /// Stripes that one device takes of a chunk (`dev_stripes`).
    pub stripes_per_device: u16,
    /// Devices that a chunk takes at least (`devs_min`).
    pub min_devices: u16,
    /// Devices that a chunk takes at most, none where it takes all that there are (`devs_max`).
    pub max_devices: Option<u16>,
    /// Devices that may be lost without loss of data (`tolerated_failures`).
    pub tolerated_failures: u8,
}

/// What the rows of the other profiles differ from.
const SINGLE: ProfileFacts = ProfileFacts {
    profile: Profile::Single,
    name: "single",
    flags: BlockGroupFlags(0),
    copies: 1,
    parities: 0,
    sub_stripes: 1,
    stripes_per_device: 1,
    min_devices: 1,
    max_devices: Some(1),
    tolerated_failures: 0,
};

/// The profiles in the order of their bits, which is that of Linux's table.
pub static PROFILES: [ProfileFacts; 9] = [
    SINGLE,
    ProfileFacts {
        profile: Profile::Raid0,
        name: "RAID0",
        flags: BlockGroupFlags::RAID0,
        max_devices: None,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid1,
        name: "RAID1",
        flags: BlockGroupFlags::RAID1,
        copies: 2,
        min_devices: 2,
        max_devices: Some(2),
        tolerated_failures: 1,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Dup,
        name: "DUP",
        flags: BlockGroupFlags::DUP,
        copies: 2,
        stripes_per_device: 2,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid10,
        name: "RAID10",
        flags: BlockGroupFlags::RAID10,
        copies: 2,
        sub_stripes: 2,
        min_devices: 2,
        max_devices: None,
        tolerated_failures: 1,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid5,
        name: "RAID5",
        flags: BlockGroupFlags::RAID5,
        parities: 1,
        min_devices: 2,
        max_devices: None,
        tolerated_failures: 1,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid6,
        name: "RAID6",
        flags: BlockGroupFlags::RAID6,
        parities: 2,
        min_devices: 3,
        max_devices: None,
        tolerated_failures: 2,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid1c3,
        name: "RAID1C3",
        flags: BlockGroupFlags::RAID1C3,
        copies: 3,
        min_devices: 3,
        max_devices: Some(3),
        tolerated_failures: 2,
        ..SINGLE
    },
    ProfileFacts {
        profile: Profile::Raid1c4,
        name: "RAID1C4",
        flags: BlockGroupFlags::RAID1C4,
        copies: 4,
        min_devices: 4,
        max_devices: Some(4),
        tolerated_failures: 3,
        ..SINGLE
    },
];

impl ProfileFacts {
    /// Whether a chunk's bytes go over its stripes in turn; else each stripe is a whole copy of the chunk.
    #[must_use]
    pub const fn is_striped(&self) -> bool {
        self.max_devices.is_none()
    }

    /// How many stripes of a chunk hold bytes that no other has, of so many; 1 where each is a whole copy.
    /// None where there are too few for copies or parity.
    #[must_use]
    pub fn data_stripes(&self, stripe_count: u16) -> Option<u16> {
        if !self.is_striped() {
            return Some(1);
        }
        stripe_count.checked_sub(u16::from(self.parities))?.checked_div(u16::from(self.copies))
    }

    /// Whether a chunk of the profile may have so many stripes, so many of which hold the same bytes. (Linux
    /// reads the chunk's `sub_stripes` in RAID10 alone.)
    pub(super) fn allows(&self, stripe_count: u16, sub_stripes: u16) -> bool {
        let stripes_of = |devices: u16| devices.saturating_mul(self.stripes_per_device);
        let fits = stripe_count >= stripes_of(self.min_devices)
            && self.max_devices.is_none_or(|devices| stripe_count <= stripes_of(devices));
        let is_paired = self.sub_stripes == 1
            || sub_stripes == self.sub_stripes && stripe_count.is_multiple_of(self.sub_stripes);
        fits && is_paired
    }
}

impl Profile {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Raid0,
        Self::Raid1,
        Self::Dup,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
        Self::Raid1c3,
        Self::Raid1c4,
    ];

    /// The profile of a chunk's type; none where more than one is set.
    #[must_use]
    pub fn of(flags: BlockGroupFlags) -> Option<Self> {
        let row = PROFILES.iter().find(|row| row.flags == flags.profile());
        row.map(|row| row.profile)
    }

    /// Its row of the table.
    #[must_use]
    pub const fn facts(self) -> &'static ProfileFacts {
        let [single, raid0, raid1, dup, raid10, raid5, raid6, raid1c3, raid1c4] = &PROFILES;
        match self {
            Self::Single => single,
            Self::Raid0 => raid0,
            Self::Raid1 => raid1,
            Self::Dup => dup,
            Self::Raid10 => raid10,
            Self::Raid5 => raid5,
            Self::Raid6 => raid6,
            Self::Raid1c3 => raid1c3,
            Self::Raid1c4 => raid1c4,
        }
    }

    /// Its bit in a chunk's type; none set for single.
    #[must_use]
    pub const fn flags(self) -> BlockGroupFlags {
        self.facts().flags
    }

    /// Its name, as listings have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The profile of a name in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let row = PROFILES.iter().find(|row| row.name.eq_ignore_ascii_case(name));
        row.map(|row| row.profile)
    }

    /// How often each byte is stored, parity left out.
    #[must_use]
    pub const fn copies(self) -> u8 {
        self.facts().copies
    }

    /// Whether chunks of this profile are written here; all are read.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Single | Self::Dup)
    }
}

impl core::fmt::Display for Profile {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.pad(self.name())
    }
}

impl BlockGroupFlags {
    /// How often the profile stores each byte, parity left out (Linux: `btrfs_bg_type_to_factor`); 1 where
    /// more than one profile is set.
    #[must_use]
    pub fn copies(self) -> u64 {
        Profile::of(self).map_or(1, |profile| u64::from(profile.copies()))
    }

    /// How many stripes of parity a row of the profile has; 0 where more than one profile is set.
    #[must_use]
    pub fn parities(self) -> u64 {
        Profile::of(self).map_or(0, |profile| u64::from(profile.facts().parities))
    }
}

impl core::fmt::Display for BlockGroupFlags {
    /// As btrfs-progs prints it: `METADATA|DUP`, `DATA|single`.
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        const CONTENTS: [(BlockGroupFlags, &str); 4] = [
            (BlockGroupFlags::DATA, "DATA"),
            (BlockGroupFlags::SYSTEM, "SYSTEM"),
            (BlockGroupFlags::METADATA, "METADATA"),
            (BlockGroupFlags::METADATA_REMAP, "METADATA_REMAP"),
        ];
        let profiles = PROFILES.iter().map(|row| (row.flags, row.name));
        let names = CONTENTS.into_iter().chain(profiles).chain([(BlockGroupFlags::REMAPPED, "REMAPPED")]);
        let mut separator = "";
        let mut unknown = self.0;
        for (flag, name) in names {
            if self.0 & flag.0 != 0 {
                write!(formatter, "{separator}{name}")?;
                separator = "|";
                unknown &= !flag.0;
            }
        }
        if unknown != 0 {
            write!(formatter, "{separator}UNKNOWN 0x{unknown:x}")?;
            separator = "|";
        }
        if self.profile().0 == 0 {
            write!(formatter, "{separator}{}", Profile::Single.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row as mkfs.btrfs(8), PROFILES, and Linux's `btrfs_raid_array` have it: name, bit, copies,
    /// parities, sub-stripes, stripes per device, least and most devices, tolerated failures.
    #[test]
    fn the_table_has_linuxs_figures() {
        let expected = [
            ("single", 0, 1, 0, 1, 1, 1, Some(1), 0),
            ("RAID0", 1 << 3, 1, 0, 1, 1, 1, None, 0),
            ("RAID1", 1 << 4, 2, 0, 1, 1, 2, Some(2), 1),
            ("DUP", 1 << 5, 2, 0, 1, 2, 1, Some(1), 0),
            ("RAID10", 1 << 6, 2, 0, 2, 1, 2, None, 1),
            ("RAID5", 1 << 7, 1, 1, 1, 1, 2, None, 1),
            ("RAID6", 1 << 8, 1, 2, 1, 1, 3, None, 2),
            ("RAID1C3", 1 << 9, 3, 0, 1, 1, 3, Some(3), 2),
            ("RAID1C4", 1 << 10, 4, 0, 1, 1, 4, Some(4), 3),
        ];
        let row = |row: &ProfileFacts| {
            let (devices, failures) = ((row.min_devices, row.max_devices), row.tolerated_failures);
            let stripes = (row.sub_stripes, row.stripes_per_device);
            (
                row.name,
                row.flags.0,
                row.copies,
                row.parities,
                stripes.0,
                stripes.1,
                devices.0,
                devices.1,
                failures,
            )
        };
        assert_eq!(PROFILES.each_ref().map(row), expected);
    }

    #[test]
    fn every_profile_finds_its_row_by_bit_and_name() {
        for row in &PROFILES {
            assert_eq!(row.profile.facts(), row);
            assert_eq!(Profile::of(row.flags.with(BlockGroupFlags::DATA)), Some(row.profile));
            assert_eq!(Profile::from_name(&row.name.to_lowercase()), Some(row.profile));
        }
        assert_eq!(Profile::of(BlockGroupFlags(0b11 << 3)), None);
        let bits = PROFILES.iter().fold(BlockGroupFlags(0), |bits, row| bits.with(row.flags));
        assert_eq!(bits, BlockGroupFlags::PROFILE_MASK);
        assert_eq!(PROFILES.each_ref().map(|row| row.profile), Profile::ALL);
    }

    #[test]
    fn stripes_of_data_are_what_copies_and_parity_leave() {
        let stripes = |profile: Profile| [0, 1, 2, 4].map(|count| profile.facts().data_stripes(count));
        for whole in [Profile::Single, Profile::Dup, Profile::Raid1, Profile::Raid1c3, Profile::Raid1c4] {
            assert_eq!(stripes(whole), [Some(1); 4]);
        }
        assert_eq!(stripes(Profile::Raid0), [Some(0), Some(1), Some(2), Some(4)]);
        assert_eq!(stripes(Profile::Raid10), [Some(0), Some(0), Some(1), Some(2)]);
        assert_eq!(stripes(Profile::Raid5), [None, Some(0), Some(1), Some(3)]);
        assert_eq!(stripes(Profile::Raid6), [None, None, Some(0), Some(2)]);
    }
}
