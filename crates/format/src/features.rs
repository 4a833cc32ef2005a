//! Feature flags of the superblock: three sets of bits that say what a program must know.
//!
//! | set | an unknown bit means |
//! |---|---|
//! | compat | nothing: the file system may be read and written |
//! | compat_ro | it may be read only |
//! | incompat | it may not be opened |
//!
//! Names are those of `/sys/fs/btrfs/features`; btrfs-progs prints them in capitals. Unknown bits are kept.

use core::fmt;

use crate::record::wrapped;

/// One known bit of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureName {
    /// The single bit.
    pub bit: u64,
    /// As in sysfs.
    pub name: &'static str,
    /// As `mkfs -O` takes it, where it does.
    pub option: Option<&'static str>,
}

macro_rules! feature_set {
    ($(#[$doc:meta])* $set:ident, $label:literal {
        $($(#[$feature_doc:meta])* $feature:ident = $bit:literal, $name:literal $(, $option:literal)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $set(pub u64);

        wrapped! { $set => u64; }

        impl $set {
            $($(#[$feature_doc])* pub const $feature: Self = Self(1 << $bit);)*

            /// Every bit that has a name, lowest first.
            pub const NAMES: &'static [FeatureName] = &[
                $(FeatureName { bit: 1 << $bit, name: $name, option: feature_set!(@option $($option)?) },)*
            ];

            /// No feature.
            pub const NONE: Self = Self(0);

            /// Whether every bit of `features` is set.
            pub const fn has(self, features: Self) -> bool {
                self.0 & features.0 == features.0
            }

            /// With the bits of `features` set.
            #[must_use]
            pub const fn with(self, features: Self) -> Self {
                Self(self.0 | features.0)
            }

            /// With the bits of `features` cleared.
            #[must_use]
            pub const fn without(self, features: Self) -> Self {
                Self(self.0 & !features.0)
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Of the bits that mkfs's option -O can set, the names that it takes, lowest first.
            pub fn option_names(self) -> impl Iterator<Item = &'static str> {
                Self::NAMES.iter().filter(move |known| self.0 & known.bit != 0).filter_map(|known| known.option)
            }

            /// The names of all bits, lowest first; a bit without a name is `SET_bit_N`.
            pub fn names(self) -> Vec<String> {
                (0..64u32)
                    .map(|number| (number, 1u64.wrapping_shl(number)))
                    .filter(|(_, bit)| self.0 & bit != 0)
                    .map(|(number, bit)| match Self::NAMES.iter().find(|known| known.bit == bit) {
                        Some(known) => known.name.to_owned(),
                        None => format!(concat!($label, "_bit_{}"), number),
                    })
                    .collect()
            }
        }

        impl fmt::Display for $set {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.names().join(", "))
            }
        }
    };
    (@option $option:literal) => { Some($option) };
    (@option) => { None };
}

feature_set! {
    /// Features that any program may ignore. None is defined.
    CompatFeatures, "compat" {}
}

feature_set! {
    /// Features that a program must know to write.
    CompatReadOnlyFeatures, "compat_ro" {
        /// Free space is kept in a tree of its own.
        FREE_SPACE_TREE = 0, "free_space_tree", "free-space-tree";
        /// The free-space tree is up to date; without this bit it must be rebuilt before a write.
        FREE_SPACE_TREE_VALID = 1, "free_space_tree_valid";
        /// There are files under fs-verity.
        VERITY = 2, "verity";
        /// Block-group items are kept in a tree of their own.
        BLOCK_GROUP_TREE = 3, "block_group_tree", "block-group-tree";
    }
}

feature_set! {
    /// Features that a program must know to read.
    IncompatFeatures, "incompat" {
        /// Back references of mixed kinds, in every file system since 2009.
        MIXED_BACKREF = 0, "mixed_backref";
        /// Another subvolume than the top level may be the default.
        DEFAULT_SUBVOL = 1, "default_subvol";
        /// Data and metadata share block groups.
        MIXED_GROUPS = 2, "mixed_groups", "mixed-bg";
        /// There may be extents compressed with LZO.
        COMPRESS_LZO = 3, "compress_lzo";
        /// There may be extents compressed with zstd.
        COMPRESS_ZSTD = 4, "compress_zstd";
        /// Nodes may be larger than a page.
        BIG_METADATA = 5, "big_metadata";
        /// Names of an inode may overflow into extended references.
        EXTENDED_IREF = 6, "extended_iref", "extref";
        /// There may be chunks of RAID5 or RAID6.
        RAID56 = 7, "raid56", "raid56";
        /// Tree blocks have metadata items instead of extent items.
        SKINNY_METADATA = 8, "skinny_metadata", "skinny-metadata";
        /// Holes in files have no items.
        NO_HOLES = 9, "no_holes", "no-holes";
        /// Tree blocks carry the metadata UUID, not the file system's.
        METADATA_UUID = 10, "metadata_uuid";
        /// There may be chunks of RAID1C3 or RAID1C4.
        RAID1C34 = 11, "raid1c34", "raid1c34";
        /// The devices are zoned.
        ZONED = 12, "zoned", "zoned";
        /// The experimental second form of the extent tree.
        EXTENT_TREE_V2 = 13, "extent_tree_v2", "extent-tree-v2";
        /// Data stripes are mapped by a tree.
        RAID_STRIPE_TREE = 14, "raid_stripe_tree", "raid-stripe-tree";
        /// Simple quotas: extents carry their owner.
        SIMPLE_QUOTA = 16, "simple_quota", "squota";
        /// Chunks may be mapped through a tree of remappings (experimental).
        REMAP_TREE = 17, "remap_tree", "remap-tree";
    }
}

impl CompatReadOnlyFeatures {
    /// What vlinder keeps right when it writes.
    pub const SUPPORTED_FOR_WRITING: Self =
        Self::FREE_SPACE_TREE.with(Self::FREE_SPACE_TREE_VALID).with(Self::BLOCK_GROUP_TREE);
}

impl IncompatFeatures {
    /// What vlinder keeps right when it writes.
    pub const SUPPORTED_FOR_WRITING: Self = Self::MIXED_BACKREF
        .with(Self::DEFAULT_SUBVOL)
        .with(Self::MIXED_GROUPS)
        .with(Self::COMPRESS_LZO)
        .with(Self::COMPRESS_ZSTD)
        .with(Self::BIG_METADATA)
        .with(Self::EXTENDED_IREF)
        .with(Self::SKINNY_METADATA)
        .with(Self::NO_HOLES)
        .with(Self::METADATA_UUID);

    /// What vlinder reads. Profiles that it can't read yet are refused by chunk, not by these bits.
    pub const SUPPORTED_FOR_READING: Self =
        Self::SUPPORTED_FOR_WRITING.with(Self::RAID56).with(Self::RAID1C34).with(Self::SIMPLE_QUOTA);
}

/// The three sets of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compat: CompatFeatures,
    /// Must be known to write.
    pub compat_read_only: CompatReadOnlyFeatures,
    /// Must be known to read.
    pub incompat: IncompatFeatures,
}

impl Features {
    /// The features that forbid reading; empty if the file system can be read.
    pub const fn unsupported_for_reading(&self) -> IncompatFeatures {
        self.incompat.without(IncompatFeatures::SUPPORTED_FOR_READING)
    }

    /// The names of the features that forbid writing (those that forbid reading among them).
    pub fn unsupported_for_writing(&self) -> Vec<String> {
        let mut names = self.incompat.without(IncompatFeatures::SUPPORTED_FOR_WRITING).names();
        let read_only = self.compat_read_only.without(CompatReadOnlyFeatures::SUPPORTED_FOR_WRITING);
        names.extend(read_only.names());
        names
    }

    /// The names of the features that forbid changes even where these stay in memory. Those that are about
    /// profiles, accounts or sealed files do not: nothing that is kept beyond the process would be wrong.
    pub fn unsupported_for_changes_in_memory(&self) -> Vec<String> {
        let mut names = self.unsupported_for_reading().names();
        let harmless = CompatReadOnlyFeatures::SUPPORTED_FOR_WRITING.with(CompatReadOnlyFeatures::VERITY);
        names.extend(self.compat_read_only.without(harmless).names());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_named_by_number_and_known_ones_by_name() {
        let set = IncompatFeatures(1 << 40).with(IncompatFeatures::NO_HOLES);
        assert_eq!(set.names(), ["no_holes", "incompat_bit_40"]);
        assert_eq!(CompatFeatures(1).names(), ["compat_bit_0"]);
        assert_eq!(CompatReadOnlyFeatures(1 << 63).to_string(), "compat_ro_bit_63");
    }

    #[test]
    fn what_is_not_supported_is_told_apart_for_reading_and_writing() {
        let mut features = Features {
            incompat: IncompatFeatures::MIXED_BACKREF.with(IncompatFeatures::SIMPLE_QUOTA),
            compat_read_only: CompatReadOnlyFeatures::VERITY.with(CompatReadOnlyFeatures::FREE_SPACE_TREE),
            ..Features::default()
        };
        assert!(features.unsupported_for_reading().is_empty());
        assert_eq!(features.unsupported_for_writing(), ["simple_quota", "verity"]);
        assert_eq!(features.unsupported_for_changes_in_memory(), [""; 0]);
        features.incompat = features.incompat.with(IncompatFeatures::EXTENT_TREE_V2);
        features.compat_read_only = CompatReadOnlyFeatures(1 << 40);
        assert_eq!(features.unsupported_for_reading().names(), ["extent_tree_v2"]);
        assert_eq!(features.unsupported_for_changes_in_memory(), ["extent_tree_v2", "compat_ro_bit_40"]);
    }

    #[test]
    fn every_name_belongs_to_one_bit() {
        for (position, known) in IncompatFeatures::NAMES.iter().enumerate() {
            assert_eq!(known.bit.count_ones(), 1);
            assert!(
                IncompatFeatures::NAMES[..position]
                    .iter()
                    .all(|other| other.bit < known.bit && other.name != known.name)
            );
        }
    }
}
