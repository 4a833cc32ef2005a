//! What a damage must lead to, and nothing else.

use std::collections::BTreeSet;

use vlinder_check::{Finding, FindingKind};
use vlinder_format::Place;

/// What must be found: some findings exactly, others by their identifiers. Of these there may be any number
/// from one on.
pub struct Expected {
    exactly: Vec<Finding>,
    others: BTreeSet<&'static str>,
}

/// Just this.
pub fn only(kind: FindingKind, place: Place) -> Expected {
    Expected { exactly: vec![Finding { kind, place }], others: BTreeSet::new() }
}

impl Expected {
    /// This, too.
    pub fn and(mut self, kind: FindingKind, place: Place) -> Self {
        self.exactly.push(Finding { kind, place });
        self
    }

    /// And of each of these kinds at least one more, but of no other kind: what follows from the damage far
    /// from it.
    pub fn besides<const N: usize>(mut self, others: [&'static str; N]) -> Self {
        self.others.extend(others);
        self
    }

    /// What is found must be what was expected, in any order.
    pub fn compare(&self, found: &[Finding]) -> Result<(), String> {
        let mut rest = found.to_vec();
        let mut missing = Vec::new();
        for expected in &self.exactly {
            match rest.iter().position(|finding| finding == expected) {
                Some(number) => drop(rest.remove(number)),
                None => missing.push(expected),
            }
        }
        let kinds: BTreeSet<&str> = rest.iter().map(|finding| finding.kind.id()).collect();
        if missing.is_empty() && kinds == self.others {
            return Ok(());
        }
        let few = &rest[..rest.len().min(8)];
        Err(format!(
            "not found: {missing:#?}\nfound besides: {kinds:?} instead of {:?}: {few:#?}",
            self.others
        ))
    }
}
