//! What is restored, and what is left out.

use clap::Args;

/// What a restoration makes, keeps and replaces.
#[derive(Args, Debug)]
pub struct RestoreOptions {
    /// Restore snapshots too.
    #[arg(short, long)]
    pub snapshots: bool,
    /// Restore extended attributes. For root, file capabilities too: where others made the image, give
    /// --no-setid.
    #[arg(short, long = "xattr")]
    pub xattr: bool,
    /// Restore owners, modes and times. For root, set-id bits too: where others made the image, give
    /// --no-setid.
    #[arg(short, long)]
    pub metadata: bool,
    /// With -m or -x: leave out set-id bits and file capabilities.
    #[arg(long = "no-setid")]
    pub drops_rights: bool,
    /// Restore symbolic links.
    #[arg(short = 'S', long = "symlink", alias = "symlinks")]
    pub symlinks: bool,
    /// Make device nodes, fifos and sockets too.
    #[arg(long = "devices")]
    pub makes_devices: bool,
    /// Go on past errors: it always does; taken for the sake of btrfs-progs' habits.
    #[arg(short, long)]
    pub ignore_errors: bool,
    /// Replace files that exist.
    #[arg(short, long)]
    pub overwrite: bool,
}
