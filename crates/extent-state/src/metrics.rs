use vlinder_base::metrics::{Counter, Histogram, Registry, Unit};
use vlinder_base::sync::Arc;

/// What the maps of one file system count together.
#[derive(Debug)]
pub struct Metrics {
    /// Records looked at by any call.
    pub records_visited: Arc<Counter>,
    /// Records made: each is an insertion into the ordered map.
    pub records_allocated: Arc<Counter>,
    /// Records removed from the ordered map.
    pub records_removed: Arc<Counter>,
    /// Waiters woken.
    pub wake_ups: Arc<Counter>,
    /// How long clearing bits takes, with the wait for the map's own lock.
    pub clear_time: Arc<Histogram>,
}

impl Metrics {
    /// The metrics under their names in `registry`.
    pub fn new(registry: &Registry) -> Arc<Self> {
        let counter = |name, help| registry.counter(name, help, Unit::Count);
        Arc::new(Self {
            records_visited: counter("extent_state.records_visited", "state records looked at"),
            records_allocated: counter("extent_state.records_allocated", "state records made"),
            records_removed: counter("extent_state.records_removed", "state records removed"),
            wake_ups: counter("extent_state.wake_ups", "threads woken that waited for bits of a range"),
            clear_time: registry.histogram(
                "extent_state.clear_time_ns",
                "time to clear state bits of a range",
                Unit::Nanoseconds,
            ),
        })
    }
}
