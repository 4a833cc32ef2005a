//! What may be damaged in a file system that is read all the same.

use vlinder_transaction::Rescue;
use vlinder_tree::bootstrap::Leniency;

/// A part of `rescue=`.
#[derive(Debug)]
pub struct RescuePart {
    /// Its names, the long one first.
    pub names: &'static [&'static str],
    /// What it does, in one sentence without a capital and a full stop.
    pub help: &'static str,
    add: fn(&mut RescueOptions),
}

/// All parts of `rescue=`.
pub const RESCUE_PARTS: &[RescuePart] = &[
    RescuePart {
        names: &["usebackuproot"],
        help: "show an earlier commit if the last can't be read",
        add: |rescue| rescue.uses_backup_roots = true,
    },
    RescuePart {
        names: &["nologreplay"],
        help: "show the last commit without the fsync log",
        add: |rescue| rescue.leaves_log = true,
    },
    RescuePart {
        names: &["ignorebadroots", "ibadroots"],
        help: "do without the extent, checksum, device, UUID, free-space and block-group tree; without a \
               checksum tree data are not verified",
        add: |rescue| rescue.ignores_bad_roots = true,
    },
    RescuePart {
        names: &["ignoredatacsums", "idatacsums"],
        help: "give data out unverified",
        add: |rescue| rescue.ignores_data_checksums = true,
    },
    RescuePart {
        names: &["ignoremetacsums", "imetacsums"],
        help: "take tree blocks whose checksum is wrong",
        add: |rescue| rescue.ignores_block_checksums = true,
    },
    RescuePart {
        names: &["ignoresuperflags", "isuperflags"],
        help: "take a superblock with unknown flags",
        add: |rescue| rescue.ignores_super_flags = true,
    },
    RescuePart {
        names: &["all"],
        help: "all of these but usebackuproot",
        add: |rescue| {
            *rescue = RescueOptions { uses_backup_roots: rescue.uses_backup_roots, ..RescueOptions::all() };
        },
    },
];

/// What belongs behind `rescue=`.
pub(crate) const RESCUE_LIST: &str = "part of rescue=: all, ignorebadroots, ignoredatacsums, ignoremetacsums, \
                                      ignoresuperflags, nologreplay or usebackuproot";

/// What may be damaged, by the parts of `rescue=` (Linux: `fs/btrfs/super.c`, `disk-io.c`, `block-group.c`).
/// All need `ro`; Linux lets `usebackuproot` alone be given without, and then writes on from the older state:
/// here nothing is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RescueOptions {
    /// `usebackuproot`: the state of an earlier commit is shown where that of the last can't be read.
    pub uses_backup_roots: bool,
    /// `nologreplay`: an fsync log is left as it is; shown is the state of the last commit.
    pub leaves_log: bool,
    /// `ignorebadroots`, `ibadroots`: the extent, device, checksum, UUID, free-space and block-group tree may
    /// be missing or have a root block that can't be read. Without a checksum tree data are given out
    /// unverified. The space in use is not known then.
    pub ignores_bad_roots: bool,
    /// `ignoredatacsums`, `idatacsums`: data are given out as they are.
    pub ignores_data_checksums: bool,
    /// `ignoremetacsums`, `imetacsums`: a tree block of which no copy has its checksum is taken, if nothing
    /// else is wrong with it.
    pub ignores_block_checksums: bool,
    /// `ignoresuperflags`, `isuperflags`: flags of the superblock that are not known count for nothing.
    pub ignores_super_flags: bool,
}

impl RescueOptions {
    /// All parts that `rescue=all` stands for. `usebackuproot` is none of them, as on Linux.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            uses_backup_roots: false,
            leaves_log: true,
            ignores_bad_roots: true,
            ignores_data_checksums: true,
            ignores_block_checksums: true,
            ignores_super_flags: true,
        }
    }

    /// Adds parts by their names, joined by colons.
    pub(crate) fn add(&mut self, parts: &str) -> Option<()> {
        parts.split(':').try_for_each(|part| {
            let known = RESCUE_PARTS.iter().find(|known| known.names.contains(&part))?;
            (known.add)(self);
            Some(())
        })
    }

    pub(crate) const fn of_engine(self) -> Rescue {
        let leniency = Leniency { ignores_checksums: self.ignores_block_checksums, salvages: false };
        Rescue { ignores_bad_roots: self.ignores_bad_roots, leniency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_each_part() {
        for part in RESCUE_PARTS {
            assert!(RESCUE_LIST.contains(part.names[0]), "{}", part.names[0]);
        }
    }
}
