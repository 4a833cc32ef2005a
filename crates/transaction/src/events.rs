//! Targets of the events in the log that a caller of the engine is told of by an error as well, so that a
//! front end can leave them out by name. A module's own name would change when its code moves.

/// That nothing can be changed any more.
pub const LATCH_EVENTS: &str = "vlinder_transaction::latch";
/// How commits fare: one that failed, a host that is full, and that both are over.
pub const COMMIT_EVENTS: &str = "vlinder_transaction::commits";
