//! What sending asks of a state of a subvolume.

use vlinder_format::{Generation, ObjectId};

use super::SendError;

/// An inode, told from any other one that has or had its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The number, which is used again after a remount.
    pub number: ObjectId,
    /// The transaction that made the inode.
    pub generation: Generation,
}

impl Identity {
    /// The root directory of every subvolume: the receiver's is made with the subvolume, so that its
    /// generation says nothing.
    pub const ROOT: Self = Self { number: ObjectId::FIRST_FREE, generation: Generation(0) };
}

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The directory, in the state that the name is from.
    pub parent: Identity,
    /// The name in it.
    pub name: Vec<u8>,
}

/// What the planning of names asks about an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeFacts {
    /// Which inode.
    pub identity: Identity,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The names in one state of a subvolume. An inode without names (open when the snapshot was taken) is not
/// there, and neither is a subvolume in a directory: neither travels. The root is [`Identity::ROOT`].
pub trait Names {
    /// An inode; none if the state does not have it.
    ///
    /// # Errors
    /// What reading met.
    fn inode(&self, number: ObjectId) -> Result<Option<InodeFacts>, SendError>;

    /// All names of an inode, at least one; the root has none.
    ///
    /// # Errors
    /// What reading met; a name in a directory that is not there.
    fn links(&self, inode: Identity) -> Result<Vec<Link>, SendError>;

    /// The inode that has a name in a directory; none if nothing has it.
    ///
    /// # Errors
    /// What reading met.
    fn entry(&self, directory: Identity, name: &[u8]) -> Result<Option<InodeFacts>, SendError>;
}
