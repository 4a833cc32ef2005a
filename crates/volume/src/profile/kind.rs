//! The profiles: their names, their bits, and how many copies each has.

use vlinder_format::chunk::BlockGroupFlags;

/// How a chunk is replicated or striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// Striped, no redundancy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies.
    Raid1c3,
    /// Four copies.
    Raid1c4,
    /// Striped over mirrored pairs.
    Raid10,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Dup,
        Self::Raid0,
        Self::Raid1,
        Self::Raid1c3,
        Self::Raid1c4,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
    ];

    /// The profile of a chunk's type; none where more than one is set.
    pub const fn of(flags: BlockGroupFlags) -> Option<Self> {
        Some(match flags.profile() {
            BlockGroupFlags(0) => Self::Single,
            BlockGroupFlags::DUP => Self::Dup,
            BlockGroupFlags::RAID0 => Self::Raid0,
            BlockGroupFlags::RAID1 => Self::Raid1,
            BlockGroupFlags::RAID1C3 => Self::Raid1c3,
            BlockGroupFlags::RAID1C4 => Self::Raid1c4,
            BlockGroupFlags::RAID10 => Self::Raid10,
            BlockGroupFlags::RAID5 => Self::Raid5,
            BlockGroupFlags::RAID6 => Self::Raid6,
            _ => return None,
        })
    }

    /// Its bit in a chunk's type; none set for single.
    pub const fn flags(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags(0),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid1c3 => BlockGroupFlags::RAID1C3,
            Self::Raid1c4 => BlockGroupFlags::RAID1C4,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// Its name, as options and listings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "DUP",
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid1c3 => "RAID1C3",
            Self::Raid1c4 => "RAID1C4",
            Self::Raid10 => "RAID10",
            Self::Raid5 => "RAID5",
            Self::Raid6 => "RAID6",
        }
    }

    /// The profile of a name in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name().eq_ignore_ascii_case(name))
    }

    /// How many copies of each byte can be read; parity counts as one more way to get it.
    pub const fn copies(self) -> u8 {
        match self {
            Self::Single | Self::Raid0 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 | Self::Raid5 => 2,
            Self::Raid1c3 | Self::Raid6 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// Stripes that one device takes of a new chunk.
    pub const fn stripes_on_device(self) -> u64 {
        match self {
            Self::Dup => 2,
            _ => 1,
        }
    }

    /// Whether chunks of this profile can be written; all can be read.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Single | Self::Dup)
    }
}

impl core::fmt::Display for Profile {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.pad(self.name())
    }
}
