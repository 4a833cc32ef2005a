//! The system's limits of a process.

use signal_hook::consts::SIGXFSZ;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicBool;

/// A write past the limit of a file's size (`ulimit -f`) fails with EFBIG, which is told like any failure of
/// a device, instead of ending the process: a mount would lose what it owes, and a verb would leave a file
/// behind. Programs that this one starts have the system's way again.
pub fn outlive_file_size() {
    // Where no handler can be had, all is as the system has it.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
