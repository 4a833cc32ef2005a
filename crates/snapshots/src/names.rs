//! Paths in a subvolume, from the names that its inodes have.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_forest::{ForestError, SubvolumeTree};
use vlinder_format::inode::InodeItem;
use vlinder_format::{ObjectId, RootId};

/// Directories whose paths are remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 14;

/// Bytes of the remembered paths; all of them are forgotten when there are more.
const MAX_REMEMBERED_BYTES: usize = 4 << 20;

/// A longer path is taken for one that goes in a circle. No system call takes more than 4096 bytes.
const MAX_PATH_BYTES: usize = 1 << 20;

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// The tree could not be read.
    #[error(transparent)]
    Forest(#[from] ForestError),
    /// A name is in a directory that is not there, or that is no directory.
    #[error(
        "subvolume {subvolume}: inode {inode} has a name in inode {directory}, which is no directory; \
         check the file system"
    )]
    NoDirectory {
        /// The subvolume.
        subvolume: RootId,
        /// What has the name.
        inode: ObjectId,
        /// What should be a directory.
        directory: ObjectId,
    },
    /// An inode counts names and has none.
    #[error("subvolume {subvolume}: inode {inode} has no name; check the file system")]
    NoName {
        /// The subvolume.
        subvolume: RootId,
        /// The inode.
        inode: ObjectId,
    },
    /// A path that never ends at the root directory, or is too long to tell that from.
    #[error(
        "subvolume {subvolume}: the path of inode {inode} has more than {MAX_PATH_BYTES} bytes, or goes in \
         a circle; check the file system"
    )]
    PathTooLong {
        /// The subvolume.
        subvolume: RootId,
        /// The directory.
        inode: ObjectId,
    },
}

/// The paths of directories of a subvolume that stands still. What is remembered is bounded.
pub(crate) struct DirectoryPaths {
    known: HashMap<ObjectId, Arc<[u8]>>,
    bytes: usize,
}

impl DirectoryPaths {
    pub fn new() -> Self {
        Self { known: HashMap::new(), bytes: 0 }
    }

    /// The path of a name in a directory, without a slash at its beginning.
    pub fn join(
        &mut self,
        tree: &SubvolumeTree<'_>,
        (inode, directory): (ObjectId, ObjectId),
        name: &[u8],
    ) -> Result<Vec<u8>, NamesError> {
        let above = self.of_directory(tree, (inode, directory))?;
        if above.is_empty() {
            return Ok(name.to_vec());
        }
        Ok([&above[..], b"/", name].concat())
    }

    /// The path of a directory in which an inode has a name; empty for the root directory.
    fn of_directory(
        &mut self,
        tree: &SubvolumeTree<'_>,
        (inode, directory): (ObjectId, ObjectId),
    ) -> Result<Arc<[u8]>, NamesError> {
        let subvolume = tree.root().id();
        let (mut components, mut bytes) = (Vec::new(), 0_usize);
        let (mut below, mut at) = (inode, directory);
        let above = loop {
            if at == ObjectId::FIRST_FREE {
                break Arc::from(&b""[..]);
            }
            if let Some(known) = self.known.get(&at) {
                break Arc::clone(known);
            }
            let item = tree.inode(at)?.filter(|item| item.mode.is_directory() && is_named(item));
            item.ok_or(NamesError::NoDirectory { subvolume, inode: below, directory: at })?;
            let stored = tree.names(at)?.into_iter().next();
            let stored = stored.ok_or(NamesError::NoName { subvolume, inode: at })?;
            bytes = bytes.saturating_add(stored.name.len()).saturating_add(1);
            if bytes > MAX_PATH_BYTES {
                return Err(NamesError::PathTooLong { subvolume, inode: directory });
            }
            components.push(stored.name);
            (below, at) = (at, stored.parent);
        };
        if components.is_empty() {
            return Ok(above);
        }
        components.reverse();
        let below = components.join(&b'/');
        let path: Arc<[u8]> =
            if above.is_empty() { below.into() } else { [&above[..], b"/", &below].concat().into() };
        if path.len() > MAX_PATH_BYTES {
            return Err(NamesError::PathTooLong { subvolume, inode: directory });
        }
        self.remember(directory, &path);
        Ok(path)
    }

    fn remember(&mut self, directory: ObjectId, path: &Arc<[u8]>) {
        if self.known.len() >= MAX_REMEMBERED || self.bytes >= MAX_REMEMBERED_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(path.len());
        self.known.insert(directory, Arc::clone(path));
    }
}

/// Whether an inode has names. One without (open when the snapshot was taken) is no file of the snapshot.
pub(crate) fn is_named(item: &InodeItem) -> bool {
    item.link_count > 0
}
