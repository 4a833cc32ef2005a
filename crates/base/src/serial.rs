//! Numbers that a process hands out once.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number above 0 that no other call in this process gets: what carries one can be told from everything
/// that came before it and after it. Nothing is ordered by it, so a model run need not see it.
#[must_use]
pub fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_number_comes_once() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| super::next()).collect::<Vec<_>>()))
            .collect();
        let mut all: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4000);
        assert!(all[0] > 0);
    }
}
