//! Two sets compared without holding either.
//!
//! Each fact is hashed with a secret and added to a sum, once positive from the one side and once negative
//! from the other; a sum of zero means that both sides said the same (a chance of 2^-64 says so wrongly, and
//! without the secret nobody can aim at it). Sums are kept for buckets of facts, so that after a difference
//! only the facts of the buckets that differ have to be collected.

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

    /// The bucket of a fact, and what it adds to the bucket's sum when it is said so many times.
    fn weigh(&self, side: Side, subject: u64, fact: &[u8], times: u64) -> (usize, u64) {
        let hash = XxHash64::oneshot(!self.secret, fact).wrapping_mul(times);
        let signed = match side {
            Side::Claimed => hash,
            Side::Recorded => hash.wrapping_neg(),
        };
        (self.bucket(subject), signed)
    }

    /// Adds what a fact weighs.
    fn add(&mut self, (bucket, weight): (usize, u64)) {
        if let Some(sum) = self.sums.get_mut(bucket) {
            sum.facts = sum.facts.saturating_add(1);
            sum.sum = sum.sum.wrapping_add(weight);
        }
    }

    /// Whether both sides said the same.
    fn is_balanced(&self) -> bool {
        self.sums.iter().all(|sum| sum.sum == 0)
    }

    /// The buckets that differ, as long as they have no more than `most` facts together (one at least); and
    /// whether those are all that differ.
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

/// A statement that either side, the claims or the records, can make.
pub(crate) trait Fact: Copy + Ord {
    /// Its form for hashing; equal facts have equal forms.
    type Form: AsRef<[u8]>;

    /// A number for what the statement is about, from which its bucket follows: equal for statements about
    /// one thing, and by chance for others.
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

/// What was said, made ready to be added.
#[derive(Debug)]
pub(crate) struct Prepared<T> {
    weights: Vec<(usize, u64)>,
    said: Vec<Said<T>>,
}

impl<T> Default for Prepared<T> {
    fn default() -> Self {
        Self { weights: Vec::new(), said: Vec::new() }
    }
}

/// Facts of two sides: their sums first, then those that make the difference.
#[derive(Debug)]
pub(crate) struct Balance<T> {
    ledger: Ledger,
    wanted: Option<Buckets>,
    collected: Vec<Said<T>>,
}

/// Facts that are collected at most for an explanation, some 100 bytes each.
const MAX_COLLECTED: u64 = 500_000;

impl<T: Fact> Balance<T> {
    /// With nothing in it.
    pub(crate) fn new() -> Self {
        Self { ledger: Ledger::new(), wanted: None, collected: Vec::new() }
    }

    /// One side says something, so many times.
    pub(crate) fn add(&mut self, side: Side, fact: T, times: u64) {
        let mut prepared = Prepared::default();
        self.prepare(side, fact, times, &mut prepared);
        self.add_prepared(prepared);
    }

    /// What [`add`](Self::add) does, as far as it can be done by many at once.
    pub(crate) fn prepare(&self, side: Side, fact: T, times: u64, prepared: &mut Prepared<T>) {
        match &self.wanted {
            None => {
                prepared.weights.push(self.ledger.weigh(side, fact.subject(), fact.form().as_ref(), times))
            }
            Some(buckets) if buckets.has(self.ledger.bucket(fact.subject())) => {
                let (claimed, recorded) = match side {
                    Side::Claimed => (times, 0),
                    Side::Recorded => (0, times),
                };
                prepared.said.push(Said { fact, claimed, recorded });
            }
            Some(_) => {}
        }
    }

    /// The rest of it.
    pub(crate) fn add_prepared(&mut self, mut prepared: Prepared<T>) {
        for weight in prepared.weights {
            self.ledger.add(weight);
        }
        self.collected.append(&mut prepared.said);
    }

    /// Whether both sides said the same.
    pub(crate) fn is_even(&self) -> bool {
        self.ledger.is_balanced()
    }

    /// From now on facts are collected that may make the difference. Gives whether that will be all of them.
    pub(crate) fn collect(&mut self) -> bool {
        let (buckets, all) = self.ledger.differing(MAX_COLLECTED);
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
            let weight = ledger.weigh(Side::Claimed, number / 3, &number.to_le_bytes(), 1 + number % 4);
            ledger.add(weight);
        }
        for number in (0..1000u64).rev() {
            for _ in 0..1 + number % 4 {
                let weight = ledger.weigh(Side::Recorded, number / 3, &number.to_le_bytes(), 1);
                ledger.add(weight);
            }
        }
        assert!(ledger.is_balanced());
        let weight = ledger.weigh(Side::Claimed, 7, b"one more", 1);
        ledger.add(weight);
        assert!(!ledger.is_balanced());
        let (buckets, all) = ledger.differing(10);
        assert!(all && buckets.has(ledger.bucket(7)));
        assert!(!buckets.has(ledger.bucket(8)) || ledger.bucket(8) == ledger.bucket(7));
    }
    #[test]
    fn buckets_are_chosen_until_they_have_too_many_facts() {
        let mut ledger = Ledger::new();
        let first = ledger.bucket(0);
        let other = (1..).find(|subject| ledger.bucket(*subject) != first).unwrap();
        for subject in [0, other, other] {
            let weight = ledger.weigh(Side::Claimed, subject, b"a fact", 1);
            ledger.add(weight);
        }
        let chosen = |most| {
            let (buckets, all) = ledger.differing(most);
            (buckets.0.iter().filter(|chosen| **chosen).count(), all)
        };
        assert_eq!([0, 2, 3].map(chosen), [(1, false), (1, false), (2, true)]);
    }
}
