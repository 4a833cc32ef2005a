//! What images of the matrix differ in.

use super::covering::{Factor, Impossible};

/// Profiles of data and metadata, and what they need.
#[derive(Clone, Copy, Debug)]
pub struct Profiles {
    /// The value of the factor.
    pub name: &'static str,
    /// Of data; also of metadata where these are mixed.
    pub data: &'static str,
    /// Of metadata.
    pub metadata: &'static str,
    /// Data and metadata share block groups.
    pub is_mixed: bool,
    /// Devices.
    pub devices: usize,
    /// How many of them may be missing.
    pub may_miss: usize,
}

const fn profiles(
    name: &'static str,
    data: &'static str,
    metadata: &'static str,
    devices: usize,
    may_miss: usize,
) -> Profiles {
    Profiles { name, data, metadata, is_mixed: false, devices, may_miss }
}

const fn mixed(name: &'static str, profile: &'static str) -> Profiles {
    Profiles { name, data: profile, metadata: profile, is_mixed: true, devices: 1, may_miss: 0 }
}

/// All that the matrix has.
pub const PROFILES: &[Profiles] = &[
    profiles("single/single", "single", "single", 1, 0),
    profiles("single/dup", "single", "dup", 1, 0),
    profiles("dup/dup", "dup", "dup", 1, 0),
    mixed("mixed-single", "single"),
    mixed("mixed-dup", "dup"),
    profiles("raid0/raid0", "raid0", "raid0", 2, 0),
    profiles("raid1/raid1", "raid1", "raid1", 2, 1),
    profiles("raid1c3/raid1c3", "raid1c3", "raid1c3", 3, 2),
    profiles("raid1c4/raid1c4", "raid1c4", "raid1c4", 4, 3),
    profiles("raid10/raid10", "raid10", "raid10", 4, 1),
    profiles("raid5/raid5", "raid5", "raid5", 3, 1),
    profiles("raid6/raid6", "raid6", "raid6", 4, 2),
    profiles("raid5/raid1", "raid5", "raid1", 3, 1),
];

/// What images differ in. Those of features begin with the older way, as far as there is one.
pub const FACTORS: &[Factor] = &[
    Factor { name: "checksum", values: &["crc32c", "xxhash", "sha256", "blake2"] },
    Factor { name: "nodes", values: &["4k", "8k", "16k", "32k", "64k"] },
    Factor {
        name: "profiles",
        values: &[
            "single/single",
            "single/dup",
            "dup/dup",
            "mixed-single",
            "mixed-dup",
            "raid0/raid0",
            "raid1/raid1",
            "raid1c3/raid1c3",
            "raid1c4/raid1c4",
            "raid10/raid10",
            "raid5/raid5",
            "raid6/raid6",
            "raid5/raid1",
        ],
    },
    Factor { name: "skinny", values: &["off", "on"] },
    Factor { name: "extref", values: &["off", "on"] },
    Factor { name: "no-holes", values: &["off", "on"] },
    Factor { name: "space", values: &["none", "v1", "tree", "tree+groups"] },
    Factor {
        name: "options",
        values: &[
            "defaults",
            "compress=zlib",
            "compress=lzo",
            "compress-force=zstd",
            "nodatacow",
            "nodatasum",
            "max_inline=0",
            "max_inline=2048,compress-force=lzo",
        ],
    },
    Factor {
        name: "state",
        values: &[
            "fresh",
            "full",
            "aged",
            "degraded",
            "snapshots",
            "orphans",
            "dirty-log",
            "collisions",
            "links",
            "inline",
            "preallocated",
            "reflinks",
            "half-dropped",
        ],
    },
];

/// What can't be together.
pub const IMPOSSIBLE: &[Impossible] = &[
    Impossible {
        one: ("space", "tree+groups"),
        other: ("no-holes", "off"),
        why: "the block-group tree needs no-holes (the kernel refuses it otherwise)",
    },
    nodes("mixed-single", "8k"),
    nodes("mixed-single", "16k"),
    nodes("mixed-single", "32k"),
    nodes("mixed-single", "64k"),
    nodes("mixed-dup", "8k"),
    nodes("mixed-dup", "16k"),
    nodes("mixed-dup", "32k"),
    nodes("mixed-dup", "64k"),
    degraded("single/single"),
    degraded("single/dup"),
    degraded("dup/dup"),
    degraded("mixed-single"),
    degraded("mixed-dup"),
    degraded("raid0/raid0"),
];

const fn nodes(profile: &'static str, size: &'static str) -> Impossible {
    let why = "mixed block groups have nodes as large as sectors";
    Impossible { one: ("profiles", profile), other: ("nodes", size), why }
}

const fn degraded(profile: &'static str) -> Impossible {
    let why = "a profile without redundancy bears no missing device";
    Impossible { one: ("profiles", profile), other: ("state", "degraded"), why }
}

#[cfg(test)]
mod tests {
    use super::super::covering::Space;
    use super::*;

    #[test]
    fn the_profiles_are_the_factors_and_every_seed_covers_all_pairs() {
        let factor = FACTORS.iter().find(|factor| factor.name == "profiles").unwrap();
        let names: Vec<&str> = PROFILES.iter().map(|one| one.name).collect();
        assert_eq!(factor.values, names);
        let space = Space::new(FACTORS, IMPOSSIBLE);
        for seed in 1..3 {
            let rows = space.cover(seed);
            let coverage = space.coverage(&rows);
            assert!(coverage.is_complete(), "{coverage:?}");
            assert!(rows.len() >= 120, "{} rows", rows.len());
        }
    }

    #[test]
    fn what_can_not_be_degraded_is_what_bears_no_missing_device() {
        for one in PROFILES {
            let is_excluded = IMPOSSIBLE
                .iter()
                .any(|pair| pair.one == ("profiles", one.name) && pair.other == ("state", "degraded"));
            assert_eq!(is_excluded, one.may_miss == 0, "{}", one.name);
        }
    }
}
