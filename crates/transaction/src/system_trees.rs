//! The trees of the running transaction, and those among them that the engine itself uses.

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree, Referrer};
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::extent::{ExtentFault, ExtentFlags};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_space::Reservations;
use vlinder_tree::{Root, Sharing, TreeError, TreeIdentity, Trees};
use vlinder_volume::Volume;

use crate::EngineError;
use crate::commit_queues::CommitQueues;
use crate::extents::tree::ExtentTree;
use crate::free_space_records::FreeSpaceTree;
use crate::metrics::Conversions;

/// The trees that the engine itself uses.
pub(crate) struct FixedTrees {
    pub(crate) extent: Arc<OpenTree>,
    pub(crate) device: Arc<OpenTree>,
    pub(crate) checksum: Arc<OpenTree>,
    pub(crate) uuid: Option<Arc<OpenTree>>,
    /// Where quotas are on.
    pub(crate) quota: Option<Arc<OpenTree>>,
    pub(crate) free_space: Option<Arc<OpenTree>>,
    /// The tree of group items: the extent tree, or with block-group-tree its own.
    pub(crate) groups: Arc<OpenTree>,
    /// Those of the above that can't be read, where that is allowed
    /// ([`Rescue::ignores_bad_roots`](crate::Rescue::ignores_bad_roots)). What stands for them has no blocks;
    /// nothing that reads files asks it for items.
    pub(crate) bad: Vec<RootId>,
}

impl FixedTrees {
    /// The trees that describe space, each once: groups have one of their own only with feature
    /// block_group_tree.
    pub(crate) fn of_space(&self) -> impl Iterator<Item = &Arc<OpenTree>> {
        let of_groups = Some(&self.groups).filter(|groups| groups.id() != self.extent.id());
        [&self.extent, &self.checksum].into_iter().chain(of_groups).chain(&self.free_space)
    }
}

/// The arithmetic of checksum items of a volume.
pub(crate) fn checksum_geometry(volume: &Volume) -> ChecksumGeometry {
    let geometry = volume.geometry();
    ChecksumGeometry {
        sector_size: geometry.sector_size,
        checksum_size: u32::try_from(geometry.checksum_kind.size_bytes()).unwrap_or(u32::MAX),
        node_size: geometry.node_size,
    }
}

/// All trees of a file system, with what of it every tree block and item depends on.
///
/// Invariants:
/// 1. Identity, geometry and the form of extent items stay what they were when the file system was opened.
/// 2. The size of a tree that is opened is noted before anything changes there ([`tree`](Self::tree)).
pub(crate) struct SystemTrees {
    forest: Forest,
    chunk: Arc<Root>,
    fixed: FixedTrees,
    identity: TreeIdentity,
    checksums: ChecksumGeometry,
    /// Tree blocks get metadata items.
    is_skinny: bool,
    conversions: Conversions,
}

impl SystemTrees {
    pub(crate) fn new(
        forest: Forest,
        chunk: Arc<Root>,
        fixed: FixedTrees,
        identity: TreeIdentity,
        checksums: ChecksumGeometry,
        is_skinny: bool,
        conversions: Conversions,
    ) -> Self {
        Self { forest, chunk, fixed, identity, checksums, is_skinny, conversions }
    }

    pub(crate) fn forest(&self) -> &Forest {
        &self.forest
    }

    /// What reads and changes all of them.
    pub(crate) fn store(&self) -> &Trees {
        self.forest.trees()
    }

    pub(crate) fn root_tree(&self) -> &Arc<Root> {
        self.forest.root_tree()
    }

    pub(crate) fn chunk(&self) -> &Arc<Root> {
        &self.chunk
    }

    pub(crate) fn fixed(&self) -> &FixedTrees {
        &self.fixed
    }

    /// What every tree block carries.
    pub(crate) fn identity(&self) -> TreeIdentity {
        self.identity
    }

    /// The arithmetic of checksum items.
    pub(crate) fn checksum_geometry(&self) -> ChecksumGeometry {
        self.checksums
    }

    /// Bytes of a tree block.
    pub(crate) fn node_size(&self) -> u32 {
        self.checksums.node_size
    }

    pub(crate) fn extent_tree(&self) -> ExtentTree<'_> {
        ExtentTree {
            trees: self.store(),
            root: self.fixed.extent.root(),
            node_size: self.node_size(),
            skinny: self.is_skinny,
        }
    }

    /// None without the feature.
    pub(crate) fn free_space_tree(&self) -> Option<FreeSpaceTree<'_>> {
        self.fixed.free_space.as_ref().map(|tree| FreeSpaceTree {
            root: tree.root(),
            sector_size: self.checksums.sector_size,
            conversions: &self.conversions,
        })
    }

    /// The tree of a number, subvolumes included.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], or what reading its root item met.
    pub(crate) fn tree(
        &self,
        id: RootId,
        reservations: Reservations<'_>,
    ) -> Result<Arc<OpenTree>, EngineError> {
        let tree = match self.forest.open_tree(id) {
            Some(tree) => tree,
            None => {
                let tree = self.forest.tree(id)?;
                // Before anything changes there. Two threads may both find it new: then the sum is a higher
                // bound.
                reservations.note_opened(self.blocks_of_files(std::slice::from_ref(&tree)));
                tree
            }
        };
        reservations.note_levels(u64::from(tree.root().pointer().level.0) + 1);
        Ok(tree)
    }

    /// Blocks of those among some trees that hold files, by what their root items say.
    pub(crate) fn blocks_of_files(&self, trees: &[Arc<OpenTree>]) -> u64 {
        let files = trees.iter().filter(|tree| tree.id().is_shareable());
        let bytes = files.map(|tree| tree.item().bytes_used).fold(0, u64::saturating_add);
        bytes / u64::from(self.node_size())
    }

    /// References and flags of a block by its address; `owner` only for the error where it has none.
    pub(crate) fn sharing_at(
        &self,
        logical: Logical,
        owner: RootId,
        queues: &CommitQueues,
    ) -> Result<Sharing, TreeError> {
        // The extent tree moves only in the critical phase, when no handle is open, so tree and queue agree
        // here.
        let version = queues.delayed().version(logical);
        let stored = self.extent_tree().references(logical)?;
        let delayed = queues.delayed();
        let (net, fresh, becomes_full) = delayed
            .head(logical)
            .map_or((0, false, false), |head| (head.net(), head.fresh, head.becomes_full));
        if stored.is_none() && !fresh {
            let fault = ExtentFault::NoSuchReference { wanted: Referrer::Root(owner).reference(1) };
            let place = Place { tree: Some(RootId::EXTENT_TREE), block: Some(logical), ..Place::default() };
            return Err(Damage::new(fault, place).into());
        }
        let (count, flags) = stored.unwrap_or_default();
        Ok(Sharing {
            references: count.saturating_add_signed(net),
            full_back_references: becomes_full || flags.has(ExtentFlags::FULL_BACK_REFERENCE),
            version,
        })
    }

    /// Whether there is a v1 space cache of a group. Its file and its head in the root tree would outlive the
    /// group, and be taken for those of a later one at the same place; Linux removes all three together.
    pub(crate) fn has_space_cache(&self, group: Logical) -> Result<bool, TreeError> {
        let head = Key::new(ObjectId::FREE_SPACE, ItemType(0), group.0);
        Ok(self.store().get(self.root_tree(), &head)?.is_some())
    }
}
