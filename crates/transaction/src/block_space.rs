//! The [`Space`] that trees grow in (the second of the four knots): places of tree blocks, and who refers to
//! them.

use vlinder_base::sync::Mutex;
use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::{Block, Damage, Generation, Key, Logical, Place, RootId};
use vlinder_tree::{ChildReferences, Sharing, Space, TreeError};

use crate::EngineError;
use crate::block_balance::BlockBalance;
use crate::commit_queues::CommitQueues;
use crate::extents::delayed::ExtentKind;
use crate::extents::leaf_extents::data_extents;
use crate::fsync_log::{LogWriter, take_for_log};
use crate::promises::Reserver;
use crate::shutdown::Shutdown;
use vlinder_forest::Referrer;
use vlinder_space::Purpose;
use vlinder_space::{SpaceManager, Taken};

/// What gives trees their blocks, and queues who refers to which.
///
/// Invariants:
/// 1. Each block that comes or goes changes the references of its extent and the balance of its tree in the
///    same call ([`block_created`](Space::block_created), [`block_dropped`](Space::block_dropped)), or
///    nothing is published any more ([`was_called_free`](Self::was_called_free)).
/// 2. A block of the log changes neither: the log's writer knows it.
#[derive(Clone, Copy)]
pub(crate) struct BlockSpace<'a> {
    reserver: Reserver<'a>,
    shutdown: Shutdown<'a>,
    log: &'a LogWriter,
    balance: &'a BlockBalance,
    sharing_gate: &'a Mutex<()>,
}

impl<'a> BlockSpace<'a> {
    pub(crate) fn new(
        reserver: Reserver<'a>,
        shutdown: Shutdown<'a>,
        log: &'a LogWriter,
        balance: &'a BlockBalance,
        sharing_gate: &'a Mutex<()>,
    ) -> Self {
        Self { reserver, shutdown, log, balance, sharing_gate }
    }

    /// What reserves more for the changes of a handle.
    pub(crate) fn reserver(&self) -> Reserver<'a> {
        self.reserver
    }

    fn space(&self) -> &'a SpaceManager {
        self.reserver.space()
    }

    fn queues(&self) -> &'a CommitQueues {
        self.reserver.queues()
    }

    fn node_size(&self) -> u32 {
        self.reserver.trees().node_size()
    }

    /// Gives back the address of a block that was never written.
    pub(crate) fn release_block(&self, logical: Logical) {
        self.space().unreserve(logical, u64::from(self.node_size()));
    }

    /// Whether a block that a tree lets go of lies where this transaction has made another: then its place
    /// was called free, and the two can't be told apart by their address any more. Nothing that this
    /// transaction did may be published.
    pub(crate) fn was_called_free(&self, tree: RootId, logical: Logical, generation: Generation) -> bool {
        let is_fresh = self.queues().delayed().head(logical).is_some_and(|head| head.fresh);
        let is_given_out = is_fresh && generation < self.reserver.running().generation();
        if is_given_out {
            let place = Place { tree: Some(tree), block: Some(logical), ..Place::default() };
            self.shutdown.close_after(&Damage::new(FreeSpaceFault::InUse { start: logical }, place));
        }
        is_given_out
    }
}

fn block_kind(block: &Block, owner: RootId, first_key: Key) -> ExtentKind {
    ExtentKind::TreeBlock { level: block.level(), first_key, owner }
}

fn purpose_of(root: RootId) -> Purpose {
    if root == RootId::CHUNK_TREE { Purpose::System } else { Purpose::Metadata }
}

impl Space for BlockSpace<'_> {
    fn take(&self, root: RootId, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError> {
        if root == RootId::TREE_LOG {
            return take_for_log(self.reserver, self.log, count, into);
        }
        let purpose = purpose_of(root);
        let block_bytes = u64::from(self.node_size());
        let goal = into.len() + count;
        loop {
            match self.space().take_blocks(purpose, goal, block_bytes, into) {
                Taken::Done => return Ok(()),
                Taken::Load(group) => self.reserver.group_loader().load(group)?,
                Taken::Wait => {}
                Taken::Chunk => match self.reserver.chunk_maker().make_chunk(purpose) {
                    Ok(true) => {}
                    Ok(false) if self.reserver.revoke_leases() => {}
                    Ok(false) => return Err(TreeError::NoSpace { root, needed_bytes: block_bytes }),
                    Err(EngineError::Volume(error)) => return Err(error.into()),
                    Err(EngineError::Tree(error)) => return Err(error),
                    Err(_) => return Err(TreeError::NoSpace { root, needed_bytes: block_bytes }),
                },
            }
        }
    }

    fn give(&self, _: RootId, unused: &mut Vec<Logical>) {
        for logical in unused.drain(..) {
            self.space().unreserve(logical, u64::from(self.node_size()));
        }
    }

    fn sharing(&self, block: &Block) -> Result<Sharing, TreeError> {
        self.reserver.trees().sharing_at(block.logical(), block.owner(), self.queues())
    }

    fn sharing_gate(&self) -> &Mutex<()> {
        self.sharing_gate
    }

    fn sharing_holds(&self, logical: Logical, known: &Sharing) -> bool {
        self.queues().delayed().version(logical) == known.version
    }

    fn block_created(&self, root: RootId, block: &Block, first_key: &Key) {
        if root == RootId::TREE_LOG {
            return self.log.block_created(block);
        }
        let kind = block_kind(block, root, *first_key);
        let length = u64::from(self.node_size());
        self.queues().delayed().change(block.logical(), length, kind, Referrer::Root(root), 1, true);
        if root.is_shareable() {
            self.space().reservations().note_made(1);
        }
        self.balance.add(root, i64::from(self.node_size()));
    }

    fn block_dropped(&self, root: RootId, block: &Block, last: bool) -> bool {
        if root == RootId::TREE_LOG {
            if self.log.block_dropped(block) {
                self.release_block(block.logical());
            }
            return true;
        }
        let kind = block_kind(block, root, block.first_key().unwrap_or_default());
        let length = u64::from(self.node_size());
        let logical = block.logical();
        if self.was_called_free(root, logical, block.generation()) {
            return false;
        }
        let mut delayed = self.queues().delayed();
        delayed.change(logical, length, kind, Referrer::Root(root), -1, false);
        let cancelled = last && delayed.cancel_fresh(logical);
        drop(delayed);
        self.balance.add(root, -i64::from(self.node_size()));
        if cancelled {
            if root.is_shareable() {
                self.space().reservations().note_made(-1);
            }
            // Made by this transaction and never written: nothing on disk knows the address.
            self.release_block(logical);
        }
        // Even where its extent item was written in an earlier round of this commit, nobody wants its
        // content.
        last
    }

    fn share_children(&self, root: RootId, block: &Block, references: ChildReferences, add: bool) {
        let by = if add { 1 } else { -1 };
        let mut delayed = self.queues().delayed();
        if block.is_leaf() {
            for (logical, length, inode, offset) in data_extents(block) {
                let referrer = match references {
                    ChildReferences::Keyed => Referrer::File { root, inode, offset },
                    ChildReferences::Full => Referrer::ParentOfData(block.logical()),
                };
                delayed.change(logical, length, ExtentKind::Data, referrer, by, false);
            }
            return;
        }
        let level = block.level().below().unwrap_or_default();
        for child in block.children() {
            let referrer = match references {
                ChildReferences::Keyed => Referrer::Root(root),
                ChildReferences::Full => Referrer::ParentOfBlock(block.logical()),
            };
            let kind = ExtentKind::TreeBlock { level, first_key: child.key, owner: root };
            delayed.change(child.logical, u64::from(self.node_size()), kind, referrer, by, false);
        }
    }

    fn set_full_back_references(&self, block: &Block) {
        let kind = block_kind(block, block.owner(), block.first_key().unwrap_or_default());
        self.queues().delayed().set_full(block.logical(), u64::from(self.node_size()), kind);
    }
}
