//! What `btrfs check` alone finds fault with, and why that is no blind spot.

/// A reason for which `btrfs check` may complain where vlinder does not.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// What it is called.
    pub name: &'static str,
    /// What `btrfs check` says.
    pub line: &'static str,
    /// What is harmless about it, with the place in Linux.
    pub why: &'static str,
}

/// All of them: at most ten.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "simple quotas",
        line: "unsupported option features (10000)",
        why: "btrfs-progs 6.2 is older than simple quotas, which Linux mounts since 6.7 \
              (BTRFS_FEATURE_INCOMPAT_SIMPLE_QUOTA in BTRFS_FEATURE_INCOMPAT_SUPP); without a quota tree they count nothing",
    },
    Exception {
        name: "rescan under way",
        line: "Qgroup rescan is running, qgroups will not be printed.",
        why: "it is said of what is left out, and the program ends with 0; Linux goes on with the rescan at the next mount \
              (btrfs_qgroup_rescan_resume)",
    },
    Exception {
        name: "rescan due",
        line: "Rescan hasn't been initialzied, a difference in qgroup accounting is expected",
        why: "it is said of counts that are marked as not right (BTRFS_QGROUP_STATUS_FLAG_INCONSISTENT), and the program ends \
              with 0; Linux mounts them, warns (btrfs_read_qgroup_config) and counts on until the user asks for a rescan",
    },
];

/// More would be a judge of its own.
const _: () = assert!(EXCEPTIONS.len() <= 10, "an exception is a reason, not a habit");

/// The exception that covers what was said of a change.
pub(super) fn of(lines: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| lines.contains(exception.line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_told_by_its_line() {
        let said =
            "couldn't open because of unsupported option features (10000).\nERROR: cannot open file system";
        assert_eq!(of(said).map(|exception| exception.name), Some("simple quotas"));
        assert!(of("couldn't open because of unsupported option features (30000).").is_none());
        assert!(of("owner ref check failed [30408704 4096]").is_none());
    }
}
