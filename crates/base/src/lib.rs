//! The one door to everything that is not deterministic: locks, threads, channels, parallel loops, caches,
//! clocks, random numbers; and to what everything is observed with: counters, histograms, probes.
//!
//! With the feature `shuttle` (a *model run*) locks, threads, channels and caches become shuttle's, so that a
//! test can search and replay interleavings. Nobody imports these things from elsewhere, or a model run would
//! not see them.
//!
//! This crate must not know any format: no byte of a disk is interpreted here.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.

pub mod affinity;
pub mod buffers;
pub mod cache;
pub mod channel;
pub mod clock;
pub mod inode_clock;
pub mod metrics;
pub mod parallel;
pub mod random;
pub mod serial;
pub mod sync;
pub mod thread;
pub mod units;
pub mod waiting;

/// What starts a model run and replays a failed one.
#[cfg(feature = "shuttle")]
pub mod model {
    pub use shuttle::{check_dfs, check_pct, check_random, replay};
}

/// The probe crate, for the expansion of [`probe!`] alone.
#[doc(hidden)]
pub use probe as probe_crate;

/// A static trace point of provider `vlinder`: `probe!(name, argument, …)`.
///
/// A disabled probe costs one `nop`; the arguments are always evaluated and must be castable with `as isize`.
/// `bpftrace -e 'usdt:/path/to/vlinder:vlinder:name { … arg0 … }'` reads it.
#[macro_export]
macro_rules! probe {
    ($name:ident $(, $argument:expr)* $(,)?) => {
        $crate::probe_crate::probe!(vlinder, $name $(, $argument)*)
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_probe_is_a_unit_expression_and_evaluates_its_arguments() {
        let mut evaluated = 0_u64;
        let () = probe!(test_probe, {
            evaluated += 1;
            evaluated
        });
        assert_eq!(evaluated, 1);
    }
}
