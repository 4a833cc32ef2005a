//! The extents of a subvolume that are not older than a transaction (`btrfs subvolume find-new`).
//!
//! Only leaves that this or a later transaction wrote are read, so the cost follows what changed. What is
//! found is more than what changed and less: an extent is told by the transaction that made it, so a range
//! that became a hole is not found, and neither is a file of which attributes alone changed.

use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, ForestError, SubvolumeTree, visit_leaves_since};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::{Damage, Generation, ItemType, Key, Logical, ObjectId, Place, RootId};

use crate::names::{DirectoryPaths, NamesError};

/// An extent of a file, as its item tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExtent {
    /// The file.
    pub inode: ObjectId,
    /// Its path from the subvolume's root, without a slash at its beginning: by the first of its names.
    pub path: Arc<[u8]>,
    /// Where in the file the extent begins, in bytes.
    pub file_offset: u64,
    /// Bytes of the file.
    pub length_bytes: u64,
    /// Where the whole extent lies: 0 for a hole, and for bytes in the item.
    pub disk_start: Logical,
    /// The first byte shown, counted in the whole extent.
    pub offset_bytes: u64,
    /// The transaction that made the extent.
    pub generation: Generation,
    /// Whether it is compressed.
    pub is_compressed: bool,
    /// Whether it is preallocated, and reads as zeros.
    pub is_preallocated: bool,
    /// Whether its bytes are in the item.
    pub is_inline: bool,
}

/// Shows the extents of a subvolume that the transaction `since` or a later one made, in the order of inode
/// numbers and offsets, and gives the generation of the subvolume: what a later call takes to go on from
/// there. A file whose names are all beyond its first item of them is left out, as btrfs-progs does.
///
/// # Errors
/// What reading met, or the error of `each`, which ends the search.
pub fn find_new<E: From<NamesError>>(
    forest: &Forest,
    subvolume: RootId,
    since: Generation,
    mut each: impl FnMut(NewExtent) -> Result<(), E>,
) -> Result<Generation, E> {
    let open = forest.tree(subvolume).map_err(NamesError::from)?;
    let mut search = Search {
        tree: SubvolumeTree::new(forest.trees(), Arc::clone(open.root())),
        since,
        paths: DirectoryPaths::new(),
        last: None,
    };
    let mut ended = Ok(());
    let older = Generation(since.0.saturating_sub(1));
    let visited = visit_leaves_since((forest.trees(), open.root()), older, |key, data| {
        let shown = match search.extent(key, data) {
            Ok(Some(extent)) => each(extent),
            Ok(None) => Ok(()),
            Err(error) => Err(error.into()),
        };
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                ended = Err(error);
                ControlFlow::Break(())
            }
        }
    });
    visited.map_err(NamesError::from)?;
    ended?;
    Ok(open.item().generation)
}

struct Search<'a> {
    tree: SubvolumeTree<'a>,
    since: Generation,
    paths: DirectoryPaths,
    /// The last file, and its path; none where it has no name.
    last: Option<(ObjectId, Option<Arc<[u8]>>)>,
}

impl Search<'_> {
    fn extent(&mut self, key: Key, data: &[u8]) -> Result<Option<NewExtent>, NamesError> {
        if key.item_type != ItemType::EXTENT_DATA {
            return Ok(None);
        }
        let place = Place { tree: Some(self.tree.root().id()), key: Some(key), ..Place::default() };
        let item = FileExtent::decode(data)
            .map_err(|fault| NamesError::from(ForestError::from(Damage::new(fault, place))))?;
        if item.generation < self.since {
            return Ok(None);
        }
        let Some(path) = self.path(key.objectid)? else { return Ok(None) };
        let (disk_start, offset_bytes, length_bytes) = match &item.content {
            FileExtentContent::Inline(_) => (Logical(0), 0, item.ram_bytes),
            FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range) => {
                (range.address, range.offset_bytes, range.file_bytes)
            }
        };
        Ok(Some(NewExtent {
            inode: key.objectid,
            path,
            file_offset: key.offset,
            length_bytes,
            disk_start,
            offset_bytes,
            generation: item.generation,
            is_compressed: item.compression != CompressionId::NONE,
            is_preallocated: matches!(item.content, FileExtentContent::Preallocated(_)),
            is_inline: matches!(item.content, FileExtentContent::Inline(_)),
        }))
    }

    fn path(&mut self, inode: ObjectId) -> Result<Option<Arc<[u8]>>, NamesError> {
        if let Some((last, path)) = &self.last
            && *last == inode
        {
            return Ok(path.clone());
        }
        let path = match self.tree.first_name(inode)? {
            Some(stored) => {
                let joined = self.paths.join(&self.tree, (inode, stored.parent), &stored.name)?;
                Some(Arc::from(joined))
            }
            None => None,
        };
        self.last = Some((inode, path.clone()));
        Ok(path)
    }
}
