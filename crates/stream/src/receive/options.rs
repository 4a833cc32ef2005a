//! How streams are received.

/// Bytes of a stream between two checkpoints. Each costs a commit.
const CHECKPOINT_BYTES: u64 = 256 << 20;

/// How streams are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// The name of the subvolume that is made, in place of the one in the stream.
    pub name: Option<Vec<u8>>,
    /// Receiving ends when this many commands could not be applied; with 0, never. What lacks a command is
    /// never marked as received: nothing could be received on top of it.
    pub max_errors: u64,
    /// The first end command ends all, and what follows in the input stays there.
    pub ends_at_end_command: bool,
    /// After so many bytes of a stream, what was received survives a power cut.
    pub checkpoint_bytes: u64,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { name: None, max_errors: 1, ends_at_end_command: false, checkpoint_bytes: CHECKPOINT_BYTES }
    }
}
