//! Files by number. A file handle (name_to_handle_at(2), an NFS client) holds a node number and 32 bits of
//! generation. When the kernel no longer has the file's inode, it looks up `.` in that number, and `..` for
//! the place of a directory. It compares the generation of the reply ([`generations`](super::generations))
//! with the handle's.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{FsError, Inode, InodeId, Refusal};

use super::convert::errno;
use super::mounted::{Mounted, visible};
use super::shown::Shown;
use crate::transport::{Entry, NodeNumber, Reply};

/// The file itself.
const SELF: &[u8] = b".";
/// The directory that a directory lies in.
const PARENT: &[u8] = b"..";

/// Looks up files by number.
pub(super) struct ExportedFiles {
    mounted: Arc<Mounted>,
    shown: Arc<Shown>,
}

impl ExportedFiles {
    pub(super) fn new(mounted: Arc<Mounted>, shown: Arc<Shown>) -> Self {
        Self { mounted, shown }
    }

    /// Whether the lookup of this name is one by number.
    pub(super) fn is_asked_by(name: &[u8]) -> bool {
        matches!(name, SELF | PARENT)
    }

    /// The entry of the file with a number, or of the directory that it lies in; ESTALE where the file was
    /// deleted, or the number is not the one that this mount gives the file.
    pub(super) fn lookup(&self, node: NodeNumber, name: &[u8]) -> Reply<Entry> {
        let (filesystem, nodes) = (self.mounted.filesystem(), self.mounted.nodes());
        let id = nodes.id(node)?;
        // The kernel takes a reply with another number for an I/O error.
        if nodes.node(id) != node {
            return Err(Errno::STALE);
        }
        let inode = self.living_inode(id)?;
        if name == SELF {
            let directory =
                filesystem.names().lookup_parent(&inode).map_or(node, |parent| nodes.node(parent));
            return Ok(self.shown.entry(&inode, directory));
        }
        if !inode.is_directory() {
            return Err(Errno::STALE);
        }
        let parent = filesystem.names().lookup_parent(&inode).map_err(|error| stale_or(&error))?;
        // That of the top-level subvolume, which lies outside of what is mounted if the kernel asks.
        if parent == id {
            return Err(Errno::STALE);
        }
        Ok(self.shown.entry(&*self.living_inode(parent)?, nodes.node(parent)))
    }

    fn living_inode(&self, id: InodeId) -> Reply<Arc<Inode>> {
        let inode = visible(self.mounted.filesystem().inode(id).map_err(|error| stale_or(&error))?)?;
        if inode.is_deleted() { Err(Errno::STALE) } else { Ok(inode) }
    }
}

fn stale_or(error: &FsError) -> Errno {
    match error.refusal() {
        Some(Refusal::NotFound | Refusal::Stale) => Errno::STALE,
        _ => errno(error),
    }
}
