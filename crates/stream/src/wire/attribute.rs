//! The attributes that commands are made of.

use core::fmt;

macro_rules! attribute_types {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal;)*) => {
        /// What an attribute of a command says. The numbers are those of Linux's `BTRFS_SEND_A_…`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AttributeType {
            $($(#[$doc])* $kind,)*
        }

        impl AttributeType {
            /// All types, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> u16 {
                match self {
                    $(Self::$kind => $number,)*
                }
            }

            /// A word for messages.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

attribute_types! {
    /// UUID of the subvolume that is sent (16 bytes).
    Uuid = 1, "uuid";
    /// Transaction of the last change to the subvolume (8).
    Transid = 2, "transid";
    /// Inode number at the sender (8).
    Inode = 3, "inode";
    /// A size in bytes (8).
    Size = 4, "size";
    /// Type and permissions (8).
    Mode = 5, "mode";
    /// Owner (8).
    Uid = 6, "uid";
    /// Group (8).
    Gid = 7, "gid";
    /// Device number (8).
    Device = 8, "rdev";
    /// Time of the last change (12).
    ChangeTime = 9, "ctime";
    /// Time of the last change of content (12).
    ModificationTime = 10, "mtime";
    /// Time of the last access (12).
    AccessTime = 11, "atime";
    /// Time of birth (12).
    BirthTime = 12, "otime";
    /// Name of an extended attribute.
    XattrName = 13, "xattr name";
    /// Value of an extended attribute.
    XattrValue = 14, "xattr data";
    /// The file that a command is about, below the subvolume's root.
    Path = 15, "path";
    /// Where a rename leads.
    NewPath = 16, "new path";
    /// Of a link, the name that is there; of a symbolic link, its target.
    LinkPath = 17, "link path";
    /// Where in the file (8).
    FileOffset = 18, "file offset";
    /// Bytes of a file.
    Data = 19, "data";
    /// The subvolume that a clone is from (16).
    CloneUuid = 20, "clone uuid";
    /// Its transaction (8).
    CloneTransid = 21, "clone transid";
    /// The file that a clone is from.
    ClonePath = 22, "clone path";
    /// Where in that file (8).
    CloneOffset = 23, "clone offset";
    /// Bytes that are cloned (8).
    CloneLength = 24, "clone length";
    /// Mode of fallocate(2) (4).
    FallocateMode = 25, "fallocate mode";
    /// Flags of an inode (8).
    FileAttributes = 26, "file attributes";
    /// Bytes of the file that an encoded extent becomes (8).
    UnencodedFileLength = 27, "unencoded file length";
    /// Bytes that the encoded extent has when it is decoded (8).
    UnencodedLength = 28, "unencoded length";
    /// Where in the decoded bytes those of the file begin (8).
    UnencodedOffset = 29, "unencoded offset";
    /// Algorithm of an encoded extent (4).
    Compression = 30, "compression";
    /// Encryption of an encoded extent (4).
    Encryption = 31, "encryption";
    /// Hash algorithm of fs-verity (1).
    VerityAlgorithm = 32, "verity algorithm";
    /// Block size of fs-verity (4).
    VerityBlockSize = 33, "verity block size";
    /// Salt of fs-verity.
    VeritySalt = 34, "verity salt";
    /// Signature of fs-verity.
    VeritySignature = 35, "verity signature";
}

/// How many types there are, one for the number 0 that none has included.
pub(super) const TYPES: usize = AttributeType::ALL.len() + 1;

impl AttributeType {
    /// Of a number; none for one that no command has.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        let kind = *Self::ALL.get(usize::from(number.checked_sub(1)?))?;
        debug_assert_eq!(kind.number(), number, "the numbers begin with 1 and have no gap");
        Some(kind)
    }
}

impl fmt::Display for AttributeType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
