//! Two sets compared without holding either.
//!
//! Each fact is hashed with a secret and added to a sum, once positive from the one side and once negative from the other;
//! a sum of zero means that both sides said the same (a chance of 2^-64 says so wrongly, and without the secret nobody can
//! aim at it). Sums are kept for buckets of facts, so that after a difference only the facts of the buckets that differ
//! have to be collected.

use twox_hash::XxHash64;
use vlinder_base::random::{OsRandom, Random};

/// Buckets of a ledger.
const BUCKETS: usize = 1 << 14;

/// One bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    sum: u64,
    facts: u64,
}

/// The sums of two sides.
#[derive(Debug)]
struct Ledger {
    secret: u64,
    sums: Vec<Sum>,
}

/// Which side a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// What is used.
    Claimed,
    /// What is recorded.
    Recorded,
}

impl Ledger {
    /// With nothing in it.
    fn new() -> Self {
        Self { secret: OsRandom.next_u64(), sums: vec![Sum::default(); BUCKETS] }
    }

    /// The bucket of what facts are about: those with equal `subject` are in one bucket.
    fn bucket(&self, subject: u64) -> usize {
        let hash = XxHash64::oneshot(self.secret, &subject.to_le_bytes());
        usize::try_from(hash).unwrap_or_default() % BUCKETS
    }

    /// Adds a fact, so many times.
    fn add(&mut self, side: Side, subject: u64, fact: &[u8], times: u64) {
        let bucket = self.bucket(subject);
        let hash = XxHash64::oneshot(!self.secret, fact).wrapping_mul(times);
        if let Some(sum) = self.sums.get_mut(bucket) {
            sum.facts = sum.facts.saturating_add(1);
            sum.sum = match side {
                Side::Claimed => sum.sum.wrapping_add(hash),
                Side::Recorded => sum.sum.wrapping_sub(hash),
            };
        }
    }

    /// Whether both sides said the same.
    fn is_balanced(&self) -> bool {
        self.sums.iter().all(|sum| sum.sum == 0)
    }

    /// The buckets that differ, as long as they have no more than `most` facts together (one at least); and whether those
    /// are all that differ.
    fn differing(&self, most: u64) -> (Buckets, bool) {
        let mut buckets = Buckets(vec![false; BUCKETS]);
        let mut facts = 0u64;
        for (sum, chosen) in self.sums.iter().zip(&mut buckets.0).filter(|(sum, _)| sum.sum != 0) {
            if facts > 0 && facts.saturating_add(sum.facts) > most {
                return (buckets, false);
            }
            facts = facts.saturating_add(sum.facts);
            *chosen = true;
        }
        (buckets, true)
    }
}

/// Some buckets of a ledger.
#[derive(Debug)]
struct Buckets(Vec<bool>);

impl Buckets {
    /// Whether a bucket is among them.
    fn has(&self, bucket: usize) -> bool {
        self.0.get(bucket).copied().unwrap_or(false)
    }
}

/// What two sides can say.
pub(crate) trait Fact: Copy + Ord {
    /// Its form for hashing; equal facts have equal forms.
    type Form: AsRef<[u8]>;

    /// What it is about: facts about one thing are collected together.
    fn subject(&self) -> u64;

    /// As it is hashed.
    fn form(&self) -> Self::Form;
}

/// A fact that was collected, and how often either side said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Said<T> {
    pub(crate) fact: T,
    pub(crate) claimed: u64,
    pub(crate) recorded: u64,
}

/// Facts of two sides: their sums first, then those that make the difference.
#[derive(Debug)]
pub(crate) struct Balance<T> {
    ledger: Ledger,
    wanted: Option<Buckets>,
    collected: Vec<Said<T>>,
}

/// Facts that are collected at most for an explanation, some 100 bytes each.
const MOST_COLLECTED: u64 = 500_000;

impl<T: Fact> Balance<T> {
    /// With nothing in it.
    pub(crate) fn new() -> Self {
        Self { ledger: Ledger::new(), wanted: None, collected: Vec::new() }
    }

    /// One side says something, so many times.
    pub(crate) fn add(&mut self, side: Side, fact: T, times: u64) {
        match &self.wanted {
            None => self.ledger.add(side, fact.subject(), fact.form().as_ref(), times),
            Some(buckets) if buckets.has(self.ledger.bucket(fact.subject())) => {
                let (claimed, recorded) = match side {
                    Side::Claimed => (times, 0),
                    Side::Recorded => (0, times),
                };
                self.collected.push(Said { fact, claimed, recorded });
            }
            Some(_) => {}
        }
    }

    /// Whether both sides said the same.
    pub(crate) fn is_even(&self) -> bool {
        self.ledger.is_balanced()
    }

    /// From now on facts are collected that may make the difference. Gives whether that will be all of them.
    pub(crate) fn collect(&mut self) -> bool {
        let (buckets, all) = self.ledger.differing(MOST_COLLECTED);
        self.wanted = Some(buckets);
        all
    }

    /// What was collected, each fact once, in order.
    pub(crate) fn take(&mut self) -> Vec<Said<T>> {
        let mut said = core::mem::take(&mut self.collected);
        said.sort_unstable_by_key(|said| said.fact);
        said.dedup_by(|next, kept| {
            let same = next.fact == kept.fact;
            if same {
                kept.claimed = kept.claimed.saturating_add(next.claimed);
                kept.recorded = kept.recorded.saturating_add(next.recorded);
            }
            same
        });
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_balance_in_any_order_and_others_do_not() {
        let mut ledger = Ledger::new();
        for number in 0..1000u64 {
            ledger.add(Side::Claimed, number / 3, &number.to_le_bytes(), 1 + number % 4);
        }
        for number in (0..1000u64).rev() {
            for _ in 0..1 + number % 4 {
                ledger.add(Side::Recorded, number / 3, &number.to_le_bytes(), 1);
            }
        }
        assert!(ledger.is_balanced());
        ledger.add(Side::Claimed, 7, b"one more", 1);
        assert!(!ledger.is_balanced());
        let (buckets, all) = ledger.differing(10);
        assert!(all && buckets.has(ledger.bucket(7)));
        assert!(!buckets.has(ledger.bucket(8)) || ledger.bucket(8) == ledger.bucket(7));
    }
}
