//! Histograms whose buckets are linear inside each power of two: 16 to the octave, so that a bucket is never
//! wider than 1/16 of its values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SUB_BUCKET_BITS: u32 = 4;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
/// Values below 16 have a bucket each, then 16 buckets for each of the 60 octaves from 2^4 to 2^63.
const BUCKETS: usize = SUB_BUCKETS + (64 - SUB_BUCKET_BITS as usize) * SUB_BUCKETS;

/// How often values of each size were recorded, without locks. Nanoseconds, bytes or counts from 0 to 2^64 −
/// 1.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    minimum: AtomicU64,
    maximum: AtomicU64,
}

/// How many values lay in one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value it takes.
    pub lowest: u64,
    /// The largest value it takes.
    pub highest: u64,
    /// How many values it took.
    pub count: u64,
}

/// A histogram's numbers at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// How many values were recorded.
    pub count: u64,
    /// Their sum; wraps past 2^64.
    pub sum: u64,
    /// The smallest, 0 where none was recorded.
    pub minimum: u64,
    /// The largest, 0 where none was recorded.
    pub maximum: u64,
    /// The buckets that took any value, ascending.
    pub buckets: Vec<Bucket>,
}

fn bucket_of(value: u64) -> usize {
    if value < SUB_BUCKETS as u64 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let within = (value >> (octave - SUB_BUCKET_BITS)) as usize & (SUB_BUCKETS - 1);
    SUB_BUCKETS * (octave - SUB_BUCKET_BITS + 1) as usize + within
}

fn bounds_of(bucket: usize) -> (u64, u64) {
    if bucket < SUB_BUCKETS {
        return (bucket as u64, bucket as u64);
    }
    let shift = (bucket / SUB_BUCKETS - 1) as u32;
    let lowest = ((SUB_BUCKETS + bucket % SUB_BUCKETS) as u64) << shift;
    (lowest, lowest + ((1 << shift) - 1))
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            minimum: AtomicU64::new(u64::MAX),
            maximum: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Records one value.
    pub fn record(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        // A plain load first: both settle soon, and a read does not take the cache line from other threads.
        if value < self.minimum.load(Ordering::Relaxed) {
            self.minimum.fetch_min(value, Ordering::Relaxed);
        }
        if value > self.maximum.load(Ordering::Relaxed) {
            self.maximum.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// Records a duration in nanoseconds.
    pub fn record_duration(&self, duration: Duration) {
        self.record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records, in nanoseconds, how long the returned value lives.
    pub fn time(&self) -> Timer<'_> {
        Timer { histogram: self, start: Instant::now() }
    }

    /// Its numbers now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot::default();
        for (number, bucket) in self.buckets.iter().enumerate() {
            let count = bucket.load(Ordering::Relaxed);
            if count > 0 {
                let (lowest, highest) = bounds_of(number);
                snapshot.count += count;
                snapshot.buckets.push(Bucket { lowest, highest, count });
            }
        }
        if snapshot.count > 0 {
            snapshot.sum = self.sum.load(Ordering::Relaxed);
            snapshot.minimum = self.minimum.load(Ordering::Relaxed);
            snapshot.maximum = self.maximum.load(Ordering::Relaxed);
        }
        snapshot
    }
}

impl HistogramSnapshot {
    /// The value that a share of `quantile` (0 to 1) of the values do not exceed: exact below 16, else at
    /// most 1/16 too high and never past the maximum. 0 where none was recorded.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for bucket in &self.buckets {
            seen += bucket.count;
            if seen >= rank {
                return bucket.highest.clamp(self.minimum, self.maximum);
            }
        }
        self.maximum
    }

    /// The arithmetic mean; 0 where none was recorded.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// Records its own lifetime when dropped.
#[derive(Debug)]
#[must_use = "the time recorded is this value's lifetime"]
pub struct Timer<'a> {
    histogram: &'a Histogram,
    start: Instant,
}

impl Timer<'_> {
    /// Records nothing: there was nothing to measure.
    pub fn discard(self) {
        std::mem::forget(self);
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.histogram.record_duration(self.start.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once_and_are_narrow() {
        let mut next = 0_u64;
        for bucket in 0..BUCKETS {
            let (lowest, highest) = bounds_of(bucket);
            assert_eq!(lowest, next, "bucket {bucket}");
            assert_eq!((bucket_of(lowest), bucket_of(highest)), (bucket, bucket));
            assert!(highest - lowest <= lowest / 16);
            next = highest.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends at the largest value");
    }

    #[test]
    fn quantiles_are_within_a_sixteenth_of_the_exact_ones() {
        let histogram = Histogram::default();
        // A long tail, in an order that is not sorted.
        let mut values: Vec<u64> =
            (0..10_000_u64).map(|number| (number * 7919 % 10_000).pow(3) / 1000 + 3).collect();
        values.iter().for_each(|value| histogram.record(*value));
        values.sort_unstable();
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count, 10_000);
        assert_eq!(snapshot.sum, values.iter().sum::<u64>());
        assert_eq!((snapshot.minimum, snapshot.maximum), (values[0], values[9999]));
        for (quantile, rank) in [(0.0, 1), (0.5, 5000), (0.9, 9000), (0.99, 9900), (1.0, 10_000)] {
            let (exact, found) = (values[rank - 1], snapshot.quantile(quantile));
            assert!(found >= exact && found - exact <= exact / 16, "{quantile}: {found} for {exact}");
        }
        assert_eq!(snapshot.quantile(1.0), values[9999]);
    }

    #[test]
    fn an_empty_histogram_is_zero_and_one_value_is_every_quantile() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot(), HistogramSnapshot::default());
        assert_eq!(histogram.snapshot().quantile(0.5), 0);
        histogram.record(1_000_003);
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.quantile(0.0), snapshot.quantile(0.999)), (1_000_003, 1_000_003));
        drop(histogram.time());
        assert_eq!(histogram.snapshot().count, 2);
    }
}
