//! One entry of a source: what the image is told of a file.

use vlinder_base::clock::Timestamp;

/// The bytes of a regular file.
pub(in super::super) enum Content {
    /// All of them.
    Loaded(Vec<u8>),
    /// To be read when it is written: it is large, has holes, or has other names under which it was perhaps
    /// written already.
    Unread,
}

/// What an entry is.
pub(in super::super) enum Kind {
    Regular(Content),
    Directory,
    SymbolicLink(Vec<u8>),
    /// Major and minor number.
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
    Socket,
}

/// Name and value of an extended attribute.
pub(in super::super) type Attribute = (Vec<u8>, Vec<u8>);

/// An entry of a directory.
pub(in super::super) struct Entry {
    pub(in super::super) name: Vec<u8>,
    pub(in super::super) kind: Kind,
    /// Device and number: equal for all names of an inode.
    pub(in super::super) identity: (u64, u64),
    pub(in super::super) links: u64,
    /// Set-id, sticky and permission bits.
    pub(in super::super) permissions: u32,
    pub(in super::super) user: u32,
    pub(in super::super) group: u32,
    pub(in super::super) size_bytes: u64,
    /// It takes less space than its size, so it may have holes.
    pub(in super::super) may_have_holes: bool,
    pub(in super::super) access_time: Timestamp,
    pub(in super::super) modification_time: Timestamp,
    /// The table of owners names it.
    pub(in super::super) is_in_table: bool,
    /// In the order of their names.
    pub(in super::super) attributes: Vec<Attribute>,
}
