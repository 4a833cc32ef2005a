//! Times of directories, which every change of a name in them moves. A directory ends with the last times
//! that its stream named, or with those that it had before, whatever came after that: Linux's streams name
//! those of the root too early at times, or not at all.

use std::collections::{HashMap, HashSet};

use vlinder_format::inode::InodeItem;
use vlinder_fs::{Caller, Filesystem, FsError, Inode, InodeId, Refusal, SetAttributes, SetTime};

use super::ReceiveError;
use crate::wire::Times;

/// The times that directories end with.
#[derive(Default)]
pub(super) struct DirectoryTimes {
    named: HashMap<InodeId, Times>,
    /// Directories in which names changed since.
    moved: HashSet<InodeId>,
}

impl DirectoryTimes {
    /// The stream names the times of a directory.
    pub fn note_named(&mut self, directory: InodeId, times: Times) {
        self.named.insert(directory, times);
        self.moved.remove(&directory);
    }

    /// A name in a directory is about to come or go.
    pub fn note_change(&mut self, directory: &Inode) {
        let item = || directory.state().item;
        self.named.entry(directory.id()).or_insert_with(|| named_by(&item()));
        self.moved.insert(directory.id());
    }

    /// Gives all directories their times back.
    pub fn restore(self, filesystem: &Filesystem) -> Result<(), ReceiveError> {
        for directory in self.moved {
            let inode = match filesystem.inode(directory) {
                // It was removed.
                Err(FsError::Refused(Refusal::NotFound)) => continue,
                found => found?,
            };
            let Some(times) = self.named.get(&directory) else { continue };
            filesystem.attributes().set(&Caller::superuser(), &inode, &times_of(times))?;
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
