//! That a look which somebody asks for begins after that, though there is one look at a time.

use vlinder_base::sync::atomic::{AtomicU64, Ordering};

/// Who asks for a look while another thread is at one does not wait: that thread looks once more. What its first look found was
/// read before, and is not the last to be published.
#[derive(Default)]
pub(super) struct Looks {
    /// How often was asked since the thread that looks began; 0 if none does.
    asked: AtomicU64,
}

impl Looks {
    /// Has a look that begins after this call, by this thread or by the one that is at it.
    pub(super) fn ask(&self, mut look: impl FnMut()) {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let end = End(self);
        let mut answered = 1;
        loop {
            look();
            match self.asked.compare_exchange(answered, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(asked) => answered = asked,
            }
        }
        std::mem::forget(end);
    }
}

/// A look that panics does not keep others from looking.
struct End<'a>(&'a Looks);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.asked.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_look_that_is_asked_for_during_another_follows_it() {
        let looks = Looks::default();
        let mut read = Vec::new();
        let mut room = 5;
        looks.ask(|| {
            read.push(room);
            if room == 5 {
                // As from other threads: a write failed after the room was read.
                room = 0;
                looks.ask(|| panic!("there is a look already"));
                looks.ask(|| panic!("there is a look already"));
            }
        });
        assert_eq!(read, [5, 0], "one look for both");
        looks.ask(|| read.push(7));
        assert_eq!(read, [5, 0, 7]);
    }

    #[test]
    fn a_look_that_panics_is_not_the_last() {
        let looks = Looks::default();
        assert!(catch_unwind(AssertUnwindSafe(|| looks.ask(|| panic!("on purpose")))).is_err());
        let mut count = 0;
        looks.ask(|| count += 1);
        assert_eq!(count, 1);
    }
}
