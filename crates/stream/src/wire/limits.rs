//! Sizes on the wire.

/// Bytes of a command's head: length (4), kind (2), checksum (4).
pub(crate) const COMMAND_HEAD_BYTES: usize = 10;

/// The most bytes of attributes that a command may have. Linux's own commands have at most 64 KiB in version
/// 1 and 144 KiB after it; what claims more is refused before anything is allocated for it.
pub const MAX_COMMAND_BYTES: usize = 1 << 20;
