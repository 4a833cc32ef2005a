//! Which files are made durable: mostly those that something just happened to, and the directories of their
//! names.

use super::{Generator, SLOTS};
use crate::workload::model::Model;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{OpenSlot, Operation, Place};

/// How many files the last operations are remembered by.
const RECENT: usize = 6;

impl Generator {
    pub(super) fn fsync(&mut self, model: &Model) -> Operation {
        let data_only = self.choice.chance(1, 4);
        if self.choice.chance(1, 10) {
            let slot = self.choice.below(SLOTS.into()) as OpenSlot;
            return Operation::FsyncOpen { slot, data_only };
        }
        let recent: Vec<Place> = self.recent.iter().copied().collect();
        let file = match self.choice.below(8) {
            0..=4 => self.choice.of(&recent).copied().unwrap_or_default(),
            5 => self.directory(model),
            6 => self.find(model, |kind| matches!(kind, NodeKind::File | NodeKind::Directory)),
            _ => self.file(model),
        };
        Operation::Fsync { file, data_only }
    }

    pub(super) fn note_recent(&mut self, operation: &Operation) {
        if self.limits.fsync_every == 0 {
            return;
        }
        for place in places(operation) {
            self.recent.push_back(place);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }
}

/// The files and directories that an operation changes, the one that it makes among them.
fn places(operation: &Operation) -> Vec<Place> {
    use Operation as O;
    let mut places = match operation {
        O::CreateFile { directory, .. }
        | O::CreateNode { directory, .. }
        | O::CreateDirectory { directory, .. }
        | O::CreateSymbolicLink { directory, .. }
        | O::CreateTemporary { directory, .. }
        | O::Unlink { directory, .. }
        | O::RemoveDirectory { directory, .. }
        | O::CreateSubvolume { directory, .. }
        | O::DeleteSubvolume { directory, .. } => vec![*directory],
        O::Link { file, directory, .. } => vec![*file, *directory],
        O::Rename { from, to, .. } => vec![*from, *to],
        O::CopyRange { target, .. } => vec![*target],
        O::Write { file, .. }
        | O::Append { file, .. }
        | O::Truncate { file, .. }
        | O::Allocate { file, .. }
        | O::SetAttribute { file, .. }
        | O::RemoveAttribute { file, .. }
        | O::SetPermissions { file, .. }
        | O::SetOwner { file, .. }
        | O::SetTimes { file, .. }
        | O::SetFlags { file, .. }
        | O::SetCompression { file, .. } => vec![*file],
        _ => Vec::new(),
    };
    if let (Some(token), Some(directory)) = (operation.made(), places.first()) {
        places.push(Place { subvolume: directory.subvolume, object: token });
    }
    places
}
