//! Times of directories, which every change of a name in them moves. A directory ends with the last times
//! that its stream named, or with those that it had before, whatever came after that: Linux's streams name
//! those of the root too early at times, or not at all.

use std::collections::HashMap;

use vlinder_format::inode::InodeItem;
use vlinder_fs::{Caller, Filesystem, FsError, Inode, InodeId, Refusal, SetAttributes, SetTime};

use super::ReceiveError;
use crate::wire::Times;

/// Directories that are remembered; all get their times back when there are more.
const MAX_REMEMBERED: usize = 1 << 16;

/// The times that directories end with.
#[derive(Default)]
pub(super) struct DirectoryTimes {
    /// Of directories in which names changed since they had these.
    moved: HashMap<InodeId, Times>,
}

impl DirectoryTimes {
    /// The stream names the times of a directory, which it has from now on.
    pub fn note_named(&mut self, directory: InodeId) {
        self.moved.remove(&directory);
    }

    /// A name in a directory is about to come or go.
    pub fn note_change(&mut self, filesystem: &Filesystem, directory: &Inode) -> Result<(), ReceiveError> {
        if !self.moved.contains_key(&directory.id()) {
            if self.moved.len() >= MAX_REMEMBERED {
                self.restore(filesystem)?;
            }
            let times = named_by(&directory.state().item);
            self.moved.insert(directory.id(), times);
        }
        Ok(())
    }

    /// Gives all directories their times back.
    pub fn restore(&mut self, filesystem: &Filesystem) -> Result<(), ReceiveError> {
        for (directory, times) in std::mem::take(&mut self.moved) {
            let inode = match filesystem.inode(directory) {
                // It was removed.
                Err(FsError::Refused(Refusal::NotFound)) => continue,
                found => found?,
            };
            filesystem.attributes().set(&Caller::superuser(), &inode, &times_of(&times))?;
        }
        Ok(())
    }
}

fn named_by(item: &InodeItem) -> Times {
    Times {
        access: item.access_time,
        modification: item.modification_time,
        change: item.change_time,
        birth: None,
    }
}

/// The change of attributes that sets times.
pub(super) fn times_of(times: &Times) -> SetAttributes {
    SetAttributes {
        access_time: Some(SetTime::At(times.access)),
        modification_time: Some(SetTime::At(times.modification)),
        birth_time: times.birth,
        ..SetAttributes::default()
    }
}
