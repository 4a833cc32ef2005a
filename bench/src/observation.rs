//! What is counted of a run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is counted of a run beside its time.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Observation {
    /// Nothing.
    Nothing,
    /// The counters of a mount's server, read outside of the time.
    Counters,
    /// Calls that ask for memory in these programs and libraries. It slows them down: the time is not to be
    /// used.
    Allocations(Vec<PathBuf>),
}
