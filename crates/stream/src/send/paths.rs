//! Paths of directories at the receiver.

use std::collections::{HashMap, HashSet};

use super::receiver_names::{Place, ReceiverNames};
use super::{Identity, Names, SendError};

/// No attribute of a command is longer.
const MAX_PATH_BYTES: usize = u16::MAX as usize;
/// Marks that are remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 16;
/// Bytes of paths that are remembered; all of them are forgotten when there are more. Each can have 64 KiB.
const MAX_REMEMBERED_BYTES: usize = 4 << 20;

/// What is known of directories.
#[derive(Default)]
pub(super) struct Paths {
    /// Paths that hold until the next directory moves.
    moving: HashMap<Identity, Vec<u8>>,
    moving_bytes: usize,
    /// Directories that are, with all that lead to them, where the new state has them. They never move again.
    placed: HashSet<Identity>,
}

impl Paths {
    /// Whether a directory is known to stay where it is.
    pub fn is_placed(&self, directory: Identity) -> bool {
        directory == Identity::ROOT || self.placed.contains(&directory)
    }

    /// A directory, and all that lead to it, are where the new state has them.
    pub fn note_placed(&mut self, directory: Identity) {
        if self.placed.len() >= MAX_REMEMBERED {
            self.placed.clear();
        }
        self.placed.insert(directory);
    }

    /// A directory moved.
    pub fn note_move(&mut self) {
        self.moving.clear();
        self.moving_bytes = 0;
    }

    /// The path of a name.
    pub fn of_place<S: Names>(
        &mut self,
        names: &ReceiverNames<'_, S>,
        place: &Place,
    ) -> Result<Vec<u8>, SendError> {
        match place {
            Place::Orphan(name) => Ok(name.clone()),
            Place::Link(link) => Ok(join(self.of_directory(names, link.parent)?, &link.name)),
        }
    }

    /// The path of a directory.
    fn of_directory<S: Names>(
        &mut self,
        names: &ReceiverNames<'_, S>,
        directory: Identity,
    ) -> Result<&[u8], SendError> {
        if directory == Identity::ROOT {
            return Ok(&[]);
        }
        if !self.moving.contains_key(&directory) {
            let path = find(&self.moving, names, directory)?;
            // The map's own bytes count, too.
            let bytes = path.len() + size_of::<(Identity, Vec<u8>)>();
            if self.moving_bytes + bytes > MAX_REMEMBERED_BYTES {
                self.note_move();
            }
            self.moving_bytes += bytes;
            self.moving.insert(directory, path);
        }
        Ok(&self.moving[&directory])
    }
}

/// Goes up until the root, an orphan, or a directory whose path is known.
fn find<S: Names>(
    known: &HashMap<Identity, Vec<u8>>,
    names: &ReceiverNames<'_, S>,
    directory: Identity,
) -> Result<Vec<u8>, SendError> {
    let (mut components, mut bytes) = (Vec::new(), 0);
    let mut current = directory;
    let start = loop {
        if current == Identity::ROOT {
            break Vec::new();
        }
        if let Some(path) = known.get(&current) {
            break path.clone();
        }
        match names.place(current)? {
            Place::Orphan(name) => break name,
            Place::Link(link) => {
                bytes += link.name.len() + 1;
                // This ends a circle, too.
                if bytes > MAX_PATH_BYTES {
                    return Err(SendError::PathTooLong { inode: directory.number });
                }
                components.push(link.name);
                current = link.parent;
            }
        }
    };
    let path = components.iter().rev().fold(start, |path, name| join(&path, name));
    if path.len() > MAX_PATH_BYTES {
        return Err(SendError::PathTooLong { inode: directory.number });
    }
    Ok(path)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, separator, name].concat()
}
