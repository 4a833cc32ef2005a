//! What becomes of set-id bits and capabilities of a file when its data or owner change.
//!
//! The kernel leaves set-id bits to the server (`FUSE_HANDLE_KILLPRIV_V2`), and so asks for no extended
//! attribute at each write. Of the caller's rights it tells this:
//!
//! | request | what the kernel tells | where the rest is from |
//! |---|---|---|
//! | write | whether the caller has CAP_FSETID | /proc: whether it is in the file's group |
//! | truncate, fallocate, copy | nothing (the flag of truncate does not come through the library) | /proc: both |
//! | chown | nothing | /proc: both |
//! | chown of neither owner nor group | a change time and nothing else (`fuse_setattr`, fs/fuse/dir.c, drops the mode) | /proc: both |
//!
//! /proc is asked for files with a set-id bit alone. A process that can't be seen there is taken for one
//! without capabilities and further groups. With `killpriv=kernel` the kernel does all that itself, and no
//! bit is dropped here.

use std::path::Path;

use vlinder_fs::{Caller, Capabilities, Filesystem, GroupId, Inode, SetAttributes};

use super::convert::judged;
use crate::transport::{AttributeChanges, Requester, WriteOrigin};

const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
/// The user namespace that the system has from its start (`PROC_USER_INIT_INO`, include/linux/proc_ns.h).
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// The side that drops set-id bits when a file changes.
#[derive(Clone, Copy)]
pub(super) struct Privileges {
    /// It is the kernel, and not the server.
    kernel_kills: bool,
}

impl Privileges {
    /// `kernel_kills` where the kernel drops set-id bits of files that change itself.
    pub(super) const fn new(kernel_kills: bool) -> Self {
        Self { kernel_kills }
    }

    /// Whether the kernel drops set-id bits itself.
    pub(super) const fn are_killed_by_kernel(self) -> bool {
        self.kernel_kills
    }

    /// The caller of a change of a file's data other than write(2).
    pub(super) fn changer(self, requester: Requester, inode: &Inode) -> Caller {
        if self.kernel_kills {
            let caller = judged(requester, 0);
            Caller { capabilities: caller.capabilities.with(Capabilities::FSETID), ..caller }
        } else if inode.has_set_id() {
            Process::of(requester).judged(requester)
        } else {
            judged(requester, 0)
        }
    }

    /// The caller of write(2).
    pub(super) fn writer(requester: Requester, inode: &Inode, origin: WriteOrigin) -> Caller {
        if !origin.kills_privileges {
            let caller = judged(requester, 0);
            return Caller { capabilities: caller.capabilities.with(Capabilities::FSETID), ..caller };
        }
        let mut caller = judged(requester, 0);
        if inode.has_set_id() {
            caller.groups = Process::of(requester).groups;
        }
        caller.capabilities = caller.capabilities.without(Capabilities::FSETID);
        caller
    }

    /// The caller of a change of attributes, which is completed by what the kernel has left out.
    pub(super) fn attribute_changer(
        self,
        filesystem: &Filesystem,
        requester: Requester,
        inode: &Inode,
        changes: &AttributeChanges,
        set: &mut SetAttributes,
    ) -> Caller {
        if changes.mode.is_some() && changes.size_bytes.is_none() {
            // The kernel has seen to the set-group-id bit of a new mode already.
            let caller = judged(requester, 0);
            return Caller { capabilities: caller.capabilities.with(Capabilities::FSETID), ..caller };
        }
        if !changes.is_change_time_alone() || self.kernel_kills || !inode.has_set_id() {
            return self.changer(requester, inode);
        }
        let process = Process::of(requester);
        let mut caller = process.judged(requester);
        // The kernel judged the owner with the mode left out, too.
        if !process.has(CAP_FOWNER) {
            caller.capabilities = caller.capabilities.without(Capabilities::FOWNER);
        }
        set.permissions = filesystem.rights().permissions_without_set_id(&caller, inode);
        caller
    }
}

/// As [`judged`], with the further groups and the right to keep set-id bits as the process has them, for the
/// places where they decide what becomes of a set-id bit.
pub(super) fn judged_by_process(requester: Requester) -> Caller {
    Process::of(requester).judged(requester)
}

/// What /proc shows of a process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    groups: Vec<GroupId>,
    /// Those that count for the whole system: none in a user namespace.
    capabilities: u64,
}

impl Process {
    fn of(requester: Requester) -> Self {
        let directory = format!("/proc/{}", requester.process);
        let Ok(status) = std::fs::read_to_string(format!("{directory}/status")) else {
            return Self::default();
        };
        let found = Self::shown_by(&status);
        if is_in_first_user_namespace(Path::new(&directory)) {
            found
        } else {
            Self { capabilities: 0, ..found }
        }
    }

    fn shown_by(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let groups = field("Groups:").split_whitespace().filter_map(|group| group.parse().ok());
        let capabilities = u64::from_str_radix(field("CapEff:").trim(), 16).unwrap_or_default();
        Self { groups: groups.map(GroupId).collect(), capabilities }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    fn judged(&self, requester: Requester) -> Caller {
        let mut caller = judged(requester, 0);
        caller.capabilities = if self.has(CAP_FSETID) {
            caller.capabilities.with(Capabilities::FSETID)
        } else {
            caller.capabilities.without(Capabilities::FSETID)
        };
        caller.groups.clone_from(&self.groups);
        caller
    }
}

/// Only root may read which namespace the process of another user is in; all may read its table of users.
fn is_in_first_user_namespace(process: &Path) -> bool {
    match std::fs::read_link(process.join("ns/user")) {
        Ok(namespace) => namespace == Path::new(FIRST_USER_NAMESPACE),
        Err(_) => std::fs::read_to_string(process.join("uid_map"))
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_read_of_a_status() {
        let status = "Name:\tcat\nUid:\t1\t1\t1\t1\nGroups:\t7 4294967294 \nCapEff:\t0000000000000010\n";
        let process = Process::shown_by(status);
        assert_eq!(process.groups, [GroupId(7), GroupId(4_294_967_294)]);
        assert!(process.has(CAP_FSETID) && !process.has(CAP_FOWNER));
        assert_eq!(Process::shown_by("Groups:\t\nCapEff:\t-1\n"), Process::default());
    }

    #[test]
    fn a_process_that_is_not_there_has_nothing() {
        let nobody = Requester { user: 0, group: 0, process: 0, acts_as_root: false };
        assert_eq!(Process::of(nobody), Process::default());
        assert!(!judged_by_process(nobody).has(Capabilities::FSETID));
    }
}
