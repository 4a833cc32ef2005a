//! How a file or block device is opened.

/// What serves batches of more than one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// Threads: on cached data they are as fast as io_uring or faster (16 KiB blocks, two cores), and behind
    /// it by a sixth on cold random reads only; and no sandbox forbids them.
    #[default]
    Auto,
    /// A small pool of threads with positioned reads and writes.
    Threads,
    /// io_uring; opening fails where the kernel refuses it, or this build has no feature `io-uring`.
    Uring,
}

/// Which other openers of the device are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LockMode {
    /// Anybody: nothing is asked.
    #[default]
    None,
    /// Others that lock it shared (readers).
    Shared,
    /// Nobody else that locks. A block device is opened with O_EXCL as well, so a mounted one is refused.
    /// Together with `read_only` it keeps writers away, and tells whether readers are there already.
    Exclusive,
}

/// How to open a device.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Which other openers are accepted.
    pub lock: LockMode,
    /// What serves batches of more than one request.
    pub backend: Backend,
    /// Open it even while the kernel has it mounted. Only for tests that watch the kernel.
    pub allow_mounted: bool,
}

impl OpenOptions {
    /// For reading, shared with other readers.
    pub fn reader() -> Self {
        OpenOptions { read_only: true, lock: LockMode::Shared, ..OpenOptions::default() }
    }

    /// For writing, alone.
    pub fn writer() -> Self {
        OpenOptions { read_only: false, lock: LockMode::Exclusive, ..OpenOptions::default() }
    }
}
