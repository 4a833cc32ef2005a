//! How a file system is opened.

use vlinder_base::clock::Clock;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::metrics::Registry;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::Arc;
use vlinder_tree::bootstrap::Leniency;

use crate::ReadOnlyReason;

/// Mechanisms that are switched off, for measuring (`-o disable=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disabled {
    /// The cached position of seeks.
    pub seek_cache: bool,
    /// Batches of pending items across gaps.
    pub delayed_batch: bool,
    /// Skipping group items that did not change.
    pub block_group_skip: bool,
    /// Readahead for send.
    pub send_readahead: bool,
    /// Trimming state records in place.
    pub state_trim: bool,
}

/// How a file system is opened.
#[derive(Clone)]
pub struct EngineOptions {
    /// For reading only.
    pub read_only: bool,
    /// Why an fsync log is to be left as it is, if so. Otherwise the engine of a file system that has one
    /// takes no changes until the log was taken up ([`Engine::adopt_log`](crate::Engine::adopt_log)).
    pub leave_log: Option<ReadOnlyReason>,
    /// Memory for tree blocks, clean and changed, in bytes.
    pub cache_bytes: u64,
    /// Memory for what is not on disk yet, in bytes.
    pub dirty_bytes: u64,
    /// Tell the devices what was freed.
    pub discard: bool,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where UUIDs come from.
    pub random: Arc<dyn Random>,
    /// Where mechanisms count.
    pub registry: Arc<Registry>,
    /// What is switched off.
    pub disabled: Disabled,
    /// What may be damaged. Only with `read_only`, or under a log that is left.
    pub rescue: Rescue,
}

/// What a file system that is opened for reading may lack (parts of `rescue=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Trees that reading files can do without may be missing or have a root that can't be read, as with
    /// Linux's `rescue=ignorebadroots`: extent, device, checksum, UUID, free-space and block-group tree.
    pub ignores_bad_roots: bool,
    /// What is believed although it is damaged.
    pub leniency: Leniency,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            leave_log: None,
            cache_bytes: 256 << 20,
            dirty_bytes: 64 << 20,
            discard: false,
            clock: Arc::new(InodeClock::new()),
            random: Arc::new(OsRandom),
            registry: Arc::new(Registry::new()),
            disabled: Disabled::default(),
            rescue: Rescue::default(),
        }
    }
}

impl EngineOptions {
    /// Changed blocks that a transaction may gather: its predecessor's, which are being written, are as many.
    pub(crate) fn dirty_blocks_bytes(&self) -> u64 {
        self.cache_bytes / 4
    }
}
