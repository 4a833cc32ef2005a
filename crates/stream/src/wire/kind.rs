//! The kinds of commands.

use core::fmt;

use super::Protocol;

macro_rules! command_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $since:ident;)*) => {
        /// What a command does. The numbers are those of `enum btrfs_send_cmd`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CommandKind {
            $($(#[$doc])* $kind,)*
        }

        impl CommandKind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> u16 {
                match self {
                    $(Self::$kind => $number,)*
                }
            }

            /// As `btrfs receive --dump` calls it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The first version of the stream that has it.
            #[must_use]
            pub fn since(self) -> Protocol {
                match self {
                    $(Self::$kind => Protocol::$since,)*
                }
            }
        }
    };
}

command_kinds! {
    /// A new subvolume begins: all that follows makes it.
    Subvolume = 1, "subvol", V1;
    /// A new subvolume begins as a snapshot of one that the receiver has.
    Snapshot = 2, "snapshot", V1;
    /// An empty regular file.
    MakeFile = 3, "mkfile", V1;
    /// An empty directory.
    MakeDirectory = 4, "mkdir", V1;
    /// A device.
    MakeNode = 5, "mknod", V1;
    /// A named pipe.
    MakeFifo = 6, "mkfifo", V1;
    /// A socket.
    MakeSocket = 7, "mksock", V1;
    /// A symbolic link.
    Symlink = 8, "symlink", V1;
    /// A name becomes another one.
    Rename = 9, "rename", V1;
    /// A further name of a file.
    Link = 10, "link", V1;
    /// A name goes.
    Unlink = 11, "unlink", V1;
    /// An empty directory goes.
    RemoveDirectory = 12, "rmdir", V1;
    /// An extended attribute is set.
    SetXattr = 13, "set_xattr", V1;
    /// An extended attribute goes.
    RemoveXattr = 14, "remove_xattr", V1;
    /// Bytes of a file.
    Write = 15, "write", V1;
    /// A range of a file shares the extents of another range.
    Clone = 16, "clone", V1;
    /// The size of a file.
    Truncate = 17, "truncate", V1;
    /// Permissions.
    SetMode = 18, "chmod", V1;
    /// Owner and group.
    SetOwner = 19, "chown", V1;
    /// Times.
    SetTimes = 20, "utimes", V1;
    /// The end of the stream.
    End = 21, "end", V1;
    /// In a stream without data: a range of a file is another one than in the parent.
    UpdateExtent = 22, "update_extent", V1;
    /// Preallocation, or a hole.
    Fallocate = 23, "fallocate", V2;
    /// The flags of an inode that `chattr` sets.
    SetFileAttributes = 24, "fileattr", V2;
    /// Bytes of a file as the file system stores them: compressed.
    EncodedWrite = 25, "encoded_write", V2;
    /// A file is put under fs-verity.
    EnableVerity = 26, "enable_verity", V3;
}

impl CommandKind {
    /// Of a number; none for one that this program does not know.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        let kind = *Self::ALL.get(usize::from(number.checked_sub(1)?))?;
        debug_assert_eq!(kind.number(), number, "the numbers begin with 1 and have no gap");
        Some(kind)
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
