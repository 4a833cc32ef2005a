//! What happens to names at the receiver.

/// A change of the receiver's names. Paths are as the receiver has them when its turn comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A new inode gets its first name. What kind it is, the inode says.
    Create {
        /// Its name.
        path: Vec<u8>,
        /// Which inode.
        inode: super::Identity,
        /// The directory in which the name is made.
        directory: super::Identity,
    },
    /// A name becomes another one.
    Rename {
        /// What goes.
        from: Vec<u8>,
        /// What comes.
        to: Vec<u8>,
    },
    /// A further name.
    Link {
        /// The new one.
        path: Vec<u8>,
        /// One that is there.
        existing: Vec<u8>,
    },
    /// A name of a file goes.
    Unlink {
        /// The name.
        path: Vec<u8>,
    },
    /// An empty directory goes.
    RemoveDirectory {
        /// Its name.
        path: Vec<u8>,
    },
}
