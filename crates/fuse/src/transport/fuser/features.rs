//! What is asked of the kernel when it says hello.

use ::fuser::{InitFlags, KernelConfig};

use crate::transport::{LARGEST_TRANSFER, Settings};

/// Requests that the kernel sends on its own account (write-back, readahead) at a time.
const MAX_BACKGROUND: u16 = 64;

/// Asks for features and sizes; those that the kernel lacks are done without.
pub(super) fn ask_for(config: &mut KernelConfig, settings: Settings) {
    let mut wanted = InitFlags::FUSE_ASYNC_READ
        // Handles lead to files that the kernel forgot.
        | InitFlags::FUSE_EXPORT_SUPPORT
        // Without it an asynchronous direct write would wait for the one before.
        | InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_BIG_WRITES
        | InitFlags::FUSE_MAX_PAGES
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_CACHE_SYMLINKS
        // Default ACLs stand in place of the umask, so the kernel must not apply it first.
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_EXPLICIT_INVAL_DATA
        | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
    // With it the kernel asks for the ACLs of each file that it judges, and an answer that there are none on
    // this mount would be the error of the call.
    if settings.acls {
        wanted |= InitFlags::FUSE_POSIX_ACL;
    }
    if settings.writeback {
        wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
    }
    for flag in wanted.iter() {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!(?flag, "the kernel lacks a FUSE feature");
        }
    }
    // Writes through the cache do not show whether the kernel has the first version. Without the second the
    // kernel drops set-id bits itself, and asks for security.capability at each write.
    if !settings.kernel_kills_privileges
        && config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2).is_err()
    {
        tracing::debug!("the kernel drops set-id bits itself");
    }
    // The bounds are the crate's, and both are inside.
    let _ = config.set_max_write(LARGEST_TRANSFER);
    let _ = config.set_max_background(MAX_BACKGROUND);
    let _ = config.set_max_readahead(LARGEST_TRANSFER).or_else(|most| config.set_max_readahead(most));
}
