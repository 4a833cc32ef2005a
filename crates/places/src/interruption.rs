//! Signals that let a verb end in order.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicBool;

use crate::failure::{Failure, Kind};

/// The first of SIGINT, SIGTERM and SIGHUP sets `interrupted`, the second ends the process at once. Those
/// that the parent of this process has ignored (nohup(1), a shell's background) stay ignored.
///
/// # Errors
/// The system refused.
pub fn end_by_signals(interrupted: &Arc<AtomicBool>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(interrupted)))
            .map_err(|error| Failure::new(Kind::Invalid, format!("signals can't be caught: {error}")))?;
    }
    Ok(())
}
