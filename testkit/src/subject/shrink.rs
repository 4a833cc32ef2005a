//! Makes the list of steps that shows a failure short.

use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};

use super::run::{Failure, Step};

/// Leaves out steps as long as something still goes wrong and time is left. The result fails, though perhaps
/// for another reason.
pub fn shrink(failure: &Failure, time: Duration) -> Failure {
    let clock = SystemClock::new();
    let end = clock.monotonic() + time;
    let mut best = failure.clone();
    let mut length = best.steps.len() / 2;
    while length > 0 {
        let mut start = 0;
        while start < best.steps.len() {
            if clock.monotonic() > end {
                return best;
            }
            let mut steps: Vec<(u64, Step)> = best.steps.clone();
            steps.drain(start..(start + length).min(steps.len()));
            match best.plan.replay(&steps) {
                Err(shorter) if shorter.steps.len() < best.steps.len() && is_alike(&shorter, failure) => {
                    best = *shorter
                }
                _ => start += length,
            }
        }
        length /= 2;
    }
    best
}

/// Whether two failures begin with the same words, numbers apart.
fn is_alike(one: &Failure, other: &Failure) -> bool {
    let head = |failure: &Failure| {
        let words = failure.reason.split(|character: char| !character.is_alphabetic());
        words.filter(|word| !word.is_empty()).take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    head(one) == head(other)
}
