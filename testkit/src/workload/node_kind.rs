//! Types of files.

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    SymbolicLink,
    /// FIFO.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    Character,
    /// Block device.
    Block,
}

impl NodeKind {
    /// The bits of the mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::Character => 0o020_000,
            Self::Directory => 0o040_000,
            Self::Block => 0o060_000,
            Self::File => 0o100_000,
            Self::SymbolicLink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}
