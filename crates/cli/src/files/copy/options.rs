//! How a tree is copied.

/// Whether a copy shares the extents of its source, as for cp(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Reflink {
    /// Shares where that is possible.
    Auto,
    /// Fails where that is not possible.
    Always,
    /// Copies the bytes.
    Never,
}

/// What a copy keeps, makes and replaces.
#[derive(Clone, Copy, Debug)]
pub struct CopyOptions {
    /// Directories and what is below them are copied.
    pub recursive: bool,
    /// Directories, owners, modes, times, extended attributes, ACLs and hard links are kept.
    pub archive: bool,
    /// Owners, modes and times are kept.
    pub preserve: bool,
    /// Set-id bits and file capabilities are left away.
    pub drops_rights: bool,
    /// Device nodes are made on the host too.
    pub makes_devices: bool,
    /// Files that exist stay as they are.
    pub no_clobber: bool,
    /// Each file that is copied is told.
    pub verbose: bool,
    /// A file that exists gives its name to a new file, as for a move.
    pub replaces: bool,
    /// Extents are shared.
    pub reflink: Reflink,
}

impl CopyOptions {
    /// Of the copy that a move between file systems begins with.
    pub const fn of_move(drops_rights: bool, makes_devices: bool) -> Self {
        Self {
            recursive: false,
            archive: true,
            preserve: false,
            drops_rights,
            makes_devices,
            no_clobber: false,
            verbose: false,
            replaces: true,
            reflink: Reflink::Auto,
        }
    }
}
