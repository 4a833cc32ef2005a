//! The directories between the source and the present one. Few of them are open, so that a deep source takes
//! no descriptor, and no path as long as the way down, for each of its levels.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vlinder_base::sync::Arc;

use super::directory::{SourceDirectory, join};
use super::error::SourceError;
use super::load::open_quietly;

/// Levels that stay open, those entered last.
const MAX_OPEN: usize = 8;

/// Device and number of a directory.
type Identity = (u64, u64);

/// Names of subdirectories that are not read yet, the next last.
type Rest = Vec<Vec<u8>>;

/// A directory whose subdirectories are being read.
struct Level {
    place: Place,
    /// Directories between it and the source, itself included; 0 for the source.
    depth: usize,
    rest: Rest,
}

enum Place {
    Open(Arc<SourceDirectory>),
    /// What finds it again, and what tells it from another directory.
    Closed {
        name: Vec<u8>,
        identity: Identity,
    },
}

/// Invariants:
/// 1. The level below each level on the stack is its parent or has the same parent.
/// 2. The levels from `first_open` on are open, the last one always; at most [`MAX_OPEN`] of them.
#[derive(Default)]
pub(super) struct Levels {
    stack: Vec<Level>,
    first_open: usize,
}

impl Levels {
    /// Enters a directory that lies `depth` levels below the source, with the names that are to be read in
    /// it.
    ///
    /// # Errors
    /// What the system says of a level that is closed for it.
    pub(super) fn push(
        &mut self,
        directory: Arc<SourceDirectory>,
        depth: usize,
        rest: Rest,
    ) -> Result<(), SourceError> {
        self.stack.push(Level { place: Place::Open(directory), depth, rest });
        if self.stack.len() - self.first_open > MAX_OPEN
            && let Some(level) = self.stack.get_mut(self.first_open)
        {
            level.close()?;
            self.first_open += 1;
        }
        Ok(())
    }

    /// The last level, its depth and the names that are still to be read in it; none at the end.
    pub(super) fn last(&mut self) -> Option<(&Arc<SourceDirectory>, usize, &mut Rest)> {
        let level = self.stack.last_mut()?;
        match &level.place {
            Place::Open(directory) => Some((directory, level.depth, &mut level.rest)),
            Place::Closed { .. } => unreachable!("invariant 2"),
        }
    }

    /// Leaves the last level; false where none is left.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if the level before is not where it was, and what the system says.
    pub(super) fn pop(&mut self) -> Result<bool, SourceError> {
        let left = self.stack.pop();
        let Some(level) = self.stack.last_mut() else { return Ok(false) };
        if let (Place::Closed { name, identity }, Some(left)) = (&level.place, left)
            && let Place::Open(from) = left.place
        {
            let is_sibling = level.depth == left.depth;
            let found = reopen(&from, is_sibling.then_some(name), *identity)?;
            level.place = Place::Open(Arc::new(found));
            self.first_open -= 1;
        }
        Ok(true)
    }
}

impl Level {
    fn close(&mut self) -> Result<(), SourceError> {
        if let Place::Open(directory) = &self.place {
            let identity = identity(directory.file())
                .map_err(|errno| SourceError::call(&directory.path, "stat", errno))?;
            let name = split(&directory.path).1.to_vec();
            self.place = Place::Closed { name, identity };
        }
        Ok(())
    }
}

/// Opens the directory above another one, or what is called so beside it.
fn reopen(
    from: &SourceDirectory,
    sibling: Option<&Vec<u8>>,
    expected: Identity,
) -> Result<SourceDirectory, SourceError> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let (above, _) = split(&from.path);
    let path = sibling.map_or_else(|| above.to_vec(), |name| join(above, name));
    let fail = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => SourceError::changed(&path),
        errno => SourceError::call(&path, "open", errno),
    };
    let mut file = open_quietly(from.file(), b"..", flags).map_err(fail)?;
    if let Some(name) = sibling {
        file = open_quietly(&file, name, flags).map_err(fail)?;
    }
    if identity(&file).map_err(|errno| SourceError::call(&path, "stat", errno))? != expected {
        return Err(SourceError::changed(&path));
    }
    Ok(SourceDirectory::of_host(file, path))
}

fn identity(file: &OwnedFd) -> Result<Identity, Errno> {
    rustix::fs::fstat(file).map(|status| (status.st_dev, status.st_ino))
}

/// A path's directory, empty for the source, and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let place = path.iter().rposition(|byte| *byte == b'/');
    let (above, name) = path.split_at(place.unwrap_or(0));
    (above, name.strip_prefix(b"/").unwrap_or(name))
}
