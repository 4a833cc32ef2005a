//! Owner, mode, times and extended attributes of what is made.

use vlinder_base::sync::Arc;
use vlinder_fs::{
    AttributeMode, FsError, GroupId, Inode, Refusal, SetAttributes, SetTime, TimesAlone, Timestamp, UserId,
};

use super::{Writer, owner_of};
use crate::mkfs::source::{Entry, Kind};

impl Writer<'_> {
    /// The times that a file has in the image.
    pub(super) fn times_of(&self, entry: &Entry) -> TimesAlone {
        let accessed = if self.population.hides_access { entry.modification_time } else { entry.access_time };
        let (access, modification) = (Some(stored(accessed)), Some(stored(entry.modification_time)));
        TimesAlone { access, modification, birth: None }
    }

    /// Sets what making the inode did not: extended attributes (an ACL changes the mode), then mode and
    /// times.
    pub(super) fn set_attributes(&mut self, inode: &Arc<Inode>, entry: &Entry) -> Result<(), FsError> {
        let filesystem = self.population.filesystem;
        let caller = owner_of(entry);
        let found = inode.state().item;
        let (user, group) = (UserId(entry.user), GroupId(entry.group));
        if (found.user, found.group) != (user, group) {
            // First, because a new owner takes set-id bits and capabilities away.
            let owner = SetAttributes { user: Some(user), group: Some(group), ..SetAttributes::default() };
            filesystem.attributes().set(&caller, inode, &owner)?;
        }
        for (name, value) in &entry.attributes {
            match filesystem.attributes().set_extended_attribute(
                &caller,
                inode,
                name,
                value,
                AttributeMode::Either,
            ) {
                Err(error) if error.refusal() == Some(Refusal::NotSupported) => {
                    self.copied.skipped_attributes += 1;
                }
                set => set?,
            }
        }
        let found = inode.state().item;
        let is_link = matches!(entry.kind, Kind::SymbolicLink(_));
        let times = self.times_of(entry);
        let permissions =
            (!is_link && found.mode.permissions() != entry.permissions).then_some(entry.permissions);
        let has_times =
            (times.access, times.modification) == (Some(found.access_time), Some(found.modification_time));
        if permissions.is_none() && has_times {
            return Ok(());
        }
        let changes = SetAttributes {
            permissions,
            access_time: times.access.map(SetTime::At),
            modification_time: times.modification.map(SetTime::At),
            ..SetAttributes::default()
        };
        filesystem.attributes().set(&caller, inode, &changes).map(drop)
    }
}

fn stored(time: vlinder_base::clock::Timestamp) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}
