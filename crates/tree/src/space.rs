//! What a tree asks of the manager of space: free addresses, and which trees share a block (the second of the
//! four knots).

use vlinder_base::sync::Mutex;
use vlinder_format::{Block, Key, Logical, RootId};

use crate::TreeError;

/// How often a block is referenced, as of some moment in this transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// References to the block, pending ones included.
    pub references: u64,
    /// The block's children are referenced by its address (`FULL_BACKREF`), not by its owner's root.
    pub full_back_references: bool,
    /// Changes with each change of this block's references.
    pub version: u64,
}

/// What a copy of a block changes of the references of each of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyEffect {
    /// Each child gets one more: the block stays for others.
    Added,
    /// Each child's goes, and one of another kind comes: the block was left by those whose root its
    /// children's references name.
    Renamed,
}

impl Sharing {
    /// What a copy of the block changes of its children's references; none where these stay as they are.
    /// `inherited` says that the block's parent is copied first, beside the old one, which adds a reference
    /// to the block.
    #[must_use]
    pub fn effect_of_copy(&self, inherited: bool) -> Option<CopyEffect> {
        let is_shared = self.references.saturating_add(u64::from(inherited)) > 1;
        match (is_shared, self.full_back_references) {
            (true, _) => Some(CopyEffect::Added),
            (false, true) => Some(CopyEffect::Renamed),
            (false, false) => None,
        }
    }
}

/// How a block's children are referenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildReferences {
    /// By the root that owns the block.
    Keyed,
    /// By the address of the block itself.
    Full,
}

/// Free addresses and sharing, as trees need them.
///
/// `take` and `sharing` may read from devices and are called with no lock held. All others are called in the
/// apply phase, under a root's lock: in memory, short, and infallible.
pub trait Space: Send + Sync {
    /// Takes `count` free addresses for blocks of a tree.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`], or what reading the free space met.
    fn take(&self, root: RootId, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError>;

    /// Gives back addresses that were taken and not used.
    fn give(&self, root: RootId, unused: &mut Vec<Logical>);

    /// How often a block is referenced.
    ///
    /// # Errors
    /// What reading the extent tree met.
    fn sharing(&self, block: &Block) -> Result<Sharing, TreeError>;

    /// A block is going to be copied, which has an effect on the references of its children. Called in the
    /// plan phase, where a refusal changes nothing; once for each block of an edit, and the copy need not
    /// come.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`], or what reading met.
    fn charge_copy(&self, _root: RootId, _block: &Block, _effect: CopyEffect) -> Result<(), TreeError> {
        Ok(())
    }

    /// Held from the moment that known sharing is confirmed until the apply phase that relies on it ends.
    fn sharing_gate(&self) -> &Mutex<()>;

    /// Whether what was learned of a block still holds. Called with the gate held.
    fn sharing_holds(&self, logical: Logical, known: &Sharing) -> bool;

    /// A block came to be in a tree; one keyed reference is added for it.
    fn block_created(&self, root: RootId, block: &Block, first_key: &Key);

    /// A tree lets go of its reference to a block; `last` says that it was the only one. Gives whether the
    /// block's content is needed no more: if it is changed and not written yet, it never will be.
    fn block_dropped(&self, root: RootId, block: &Block, last: bool) -> bool;

    /// Adds (or with `add` false drops) one reference to each child of a block: blocks below a node, data
    /// extents below a leaf.
    fn share_children(&self, root: RootId, block: &Block, references: ChildReferences, add: bool);

    /// From now on a block's children are referenced by its address.
    fn set_full_back_references(&self, block: &Block);
}
