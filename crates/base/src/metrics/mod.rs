//! Counters, gauges and histograms, owned by one file system each, not by the process.
//!
//! A mechanism asks the [`Registry`] once for its metrics, keeps the `Arc`s and records without locks. Names
//! are `part.what` with the unit last where it is not a plain count: `delayed_items.insert_batches`,
//! `delayed_items.insert_time_ns`.

mod histogram;

pub use histogram::{Bucket, Histogram, HistogramSnapshot, Timer};

use crate::sync::{Arc, Mutex};
// Never shuttle's: metrics order nothing, and each of their steps would double the interleavings of a model
// run.
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `amount` more; wraps past 2^64.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds, or with a negative amount subtracts.
    pub fn add(&self, amount: i64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a metric's numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// The unit as OpenMetrics and our JSON write it; empty for plain counts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Nanoseconds => "nanoseconds",
            Self::Bytes => "bytes",
        }
    }
}

#[derive(Clone, Debug)]
enum Metric {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>),
}

#[derive(Clone, Debug)]
struct Entry {
    name: &'static str,
    help: &'static str,
    unit: Unit,
    metric: Metric,
}

/// The metrics of one file system.
#[derive(Debug, Default)]
pub struct Registry {
    entries: Mutex<Vec<Entry>>,
}

/// One metric's values at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, as `part.what`.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// What its numbers count.
    pub unit: Unit,
    /// Its numbers.
    pub value: Value,
}

/// The numbers of one metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a [`Counter`].
    Counter(u64),
    /// Of a [`Gauge`].
    Gauge(i64),
    /// Of a [`Histogram`].
    Histogram(HistogramSnapshot),
}

impl Registry {
    /// A registry without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counter of this name, made at the first call.
    ///
    /// # Panics
    /// If the name belongs to another kind of metric, which is a mistake in the program.
    pub fn counter(&self, name: &'static str, help: &'static str, unit: Unit) -> Arc<Counter> {
        match self.entry(name, help, unit, || Metric::Counter(Arc::default())) {
            Metric::Counter(counter) => counter,
            other => panic!("metric {name} is no counter but {other:?}"),
        }
    }

    /// The gauge of this name, made at the first call.
    ///
    /// # Panics
    /// If the name belongs to another kind of metric, which is a mistake in the program.
    pub fn gauge(&self, name: &'static str, help: &'static str, unit: Unit) -> Arc<Gauge> {
        match self.entry(name, help, unit, || Metric::Gauge(Arc::default())) {
            Metric::Gauge(gauge) => gauge,
            other => panic!("metric {name} is no gauge but {other:?}"),
        }
    }

    /// The histogram of this name, made at the first call.
    ///
    /// # Panics
    /// If the name belongs to another kind of metric, which is a mistake in the program.
    pub fn histogram(&self, name: &'static str, help: &'static str, unit: Unit) -> Arc<Histogram> {
        match self.entry(name, help, unit, || Metric::Histogram(Arc::default())) {
            Metric::Histogram(histogram) => histogram,
            other => panic!("metric {name} is no histogram but {other:?}"),
        }
    }

    fn entry(
        &self,
        name: &'static str,
        help: &'static str,
        unit: Unit,
        make: impl FnOnce() -> Metric,
    ) -> Metric {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
            return entry.metric.clone();
        }
        let metric = make();
        entries.push(Entry { name, help, unit, metric: metric.clone() });
        metric
    }

    /// The values of all metrics, by name. Each is exact, but they are not of one instant: recording goes on
    /// meanwhile.
    pub fn snapshot(&self) -> Vec<Sample> {
        let mut entries = self.entries.lock().clone();
        entries.sort_by_key(|entry| entry.name);
        entries
            .into_iter()
            .map(|Entry { name, help, unit, metric }| {
                let value = match metric {
                    Metric::Counter(counter) => Value::Counter(counter.get()),
                    Metric::Gauge(gauge) => Value::Gauge(gauge.get()),
                    Metric::Histogram(histogram) => Value::Histogram(histogram.snapshot()),
                };
                Sample { name, help, unit, value }
            })
            .collect()
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_registry_gives_one_metric_for_one_name_and_sorted_samples() {
        let registry = Registry::new();
        registry.counter("delayed_items.insert_batches", "Batches.", Unit::Count).add(2);
        registry.counter("delayed_items.insert_batches", "Batches.", Unit::Count).increment();
        registry.gauge("cache.bytes", "Held.", Unit::Bytes).set(-4);
        registry.gauge("cache.bytes", "Held.", Unit::Bytes).add(1);
        registry.histogram("commit.time_ns", "Commits.", Unit::Nanoseconds).record(5);
        let samples = registry.snapshot();
        let names: Vec<_> = samples.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["cache.bytes", "commit.time_ns", "delayed_items.insert_batches"]);
        assert_eq!(samples[0].value, Value::Gauge(-3));
        assert_eq!(samples[2].value, Value::Counter(3));
        let Value::Histogram(commits) = &samples[1].value else { panic!("{:?}", samples[1]) };
        assert_eq!((commits.count, commits.sum, commits.maximum), (1, 5, 5));
    }

    #[test]
    #[should_panic(expected = "is no counter")]
    fn one_name_is_one_kind() {
        let registry = Registry::new();
        registry.gauge("x.y", "", Unit::Count);
        registry.counter("x.y", "", Unit::Count);
    }
}
