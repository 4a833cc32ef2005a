//! Changes of attributes, as callers ask for them.

use vlinder_format::inode::{GroupId, Timestamp, UserId};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present: a caller that may write may set it.
    Now,
    /// Another: only the owner may.
    At(Timestamp),
    /// The present as the kernel of a mount has stamped it already: judged as [`Now`](Self::Now).
    Stamped(Timestamp),
}

/// What is to be changed; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Set-id, sticky and permission bits.
    pub permissions: Option<u32>,
    /// The owner.
    pub user: Option<UserId>,
    /// The owning group.
    pub group: Option<GroupId>,
    /// The owner is the one on disk, also with `owners=me`: a stream says what its files have.
    pub sets_stored_owner: bool,
    /// The size: cut, or extended by a hole.
    pub size: Option<u64>,
    /// The size is changed through a handle open for writing, whose opener was judged then.
    pub opened_for_writing: bool,
    /// A change of owner leaves set-id bits: the kernel of a mount has seen to them.
    pub keeps_set_id: bool,
    /// A change of owner or size leaves capabilities: the kernel of a mount takes them away by itself where
    /// they have to go.
    pub keeps_capability: bool,
    /// Last access.
    pub access_time: Option<SetTime>,
    /// Last change of the data.
    pub modification_time: Option<SetTime>,
    /// Last change of the inode: only for the mount, whose kernel keeps it under the writeback cache.
    pub change_time: Option<Timestamp>,
    /// Creation: only for receivers and copies; no system call sets it.
    pub birth_time: Option<Timestamp>,
    /// These are times that the kernel of a mount kept of changes that it let pass before: they are judged by
    /// nothing, or what was written before chattr(1) forbade it would fail later.
    pub handed_over: bool,
}

impl SetAttributes {
    /// Whether nothing else is changed than times, all of which the inode's item has had before.
    pub(crate) fn sets_times_alone(&self) -> bool {
        !self.touches_owner_or_mode() && self.birth_time.is_none()
    }

    pub(crate) fn touches_owner_or_mode(&self) -> bool {
        self.permissions.is_some() || self.user.is_some() || self.group.is_some()
    }
}
