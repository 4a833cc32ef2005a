//! The caller: the identity that permissions are judged by.

use vlinder_format::inode::{GroupId, UserId};

/// The capabilities of Linux that a file system asks about (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Capabilities {
    /// None.
    pub const NONE: Self = Self(0);
    /// CAP_CHOWN: change owners.
    pub const CHOWN: Self = Self(1);
    /// CAP_DAC_OVERRIDE: read, write and search anything, execute what has any execute bit.
    pub const DAC_OVERRIDE: Self = Self(1 << 1);
    /// CAP_DAC_READ_SEARCH: read anything, search any directory.
    pub const DAC_READ_SEARCH: Self = Self(1 << 2);
    /// CAP_FOWNER: act as any file's owner.
    pub const FOWNER: Self = Self(1 << 3);
    /// CAP_FSETID: keep set-id bits.
    pub const FSETID: Self = Self(1 << 4);
    /// CAP_LINUX_IMMUTABLE: set and clear the append and immutable flags.
    pub const LINUX_IMMUTABLE: Self = Self(1 << 5);
    /// CAP_MKNOD: make device nodes.
    pub const MKNOD: Self = Self(1 << 6);
    /// CAP_SYS_ADMIN: trusted attributes, the default subvolume.
    pub const SYS_ADMIN: Self = Self(1 << 7);
    /// CAP_SETFCAP: file capabilities.
    pub const SETFCAP: Self = Self(1 << 8);
    /// All of these.
    pub const ALL: Self = Self((1 << 9) - 1);

    /// Whether all capabilities of `other` are there.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A set of accesses to a file: read, write, execute (search, in a directory), as in the `other` bits of a
/// mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// To read a file, to list a directory.
    pub const READ: Self = Self(4);
    /// To write a file, to add and remove names in a directory (which needs search too).
    pub const WRITE: Self = Self(2);
    /// To execute a file, to look up names in a directory.
    pub const EXECUTE: Self = Self(1);

    /// Whether all of `other` are in the set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The identity that asks for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user whose permissions count (Linux's `fsuid`); owner of what is created.
    pub user: UserId,
    /// The group (`fsgid`).
    pub group: GroupId,
    /// Further groups.
    pub groups: Vec<GroupId>,
    /// Permission bits that new files do not get, unless a default ACL stands in its place.
    pub umask: u32,
    /// What exceeds the permissions of modes and ACLs.
    pub capabilities: Capabilities,
}

impl Caller {
    /// Root with every capability and umask 022.
    #[must_use]
    pub const fn superuser() -> Self {
        Self {
            user: UserId(0),
            group: GroupId(0),
            groups: Vec::new(),
            umask: 0o022,
            capabilities: Capabilities::ALL,
        }
    }

    /// A user of one group; root gets every capability, others none. The umask is 022.
    #[must_use]
    pub const fn user(user: UserId, group: GroupId) -> Self {
        let capabilities = if user.0 == 0 { Capabilities::ALL } else { Capabilities::NONE };
        Self { user, group, groups: Vec::new(), umask: 0o022, capabilities }
    }

    /// Whether the caller has all of these capabilities.
    #[must_use]
    pub const fn has(&self, capabilities: Capabilities) -> bool {
        self.capabilities.has(capabilities)
    }

    /// Whether the caller is in a group.
    #[must_use]
    pub fn is_in_group(&self, group: GroupId) -> bool {
        self.group == group || self.groups.contains(&group)
    }
}
