//! What write(2) has to tell of bytes that the kernel had taken and that found no room.
//!
//! As Linux's `errseq_t` has it for fsync(2): refusals are numbered, and each open file knows the number up
//! to which its writer was told. Linux reports an error to a file opened later only if no descriptor has seen
//! it; write(2) here does not, because none of the refused bytes came through that file.
//!
//! Invariants:
//! 1. Each open file of which bytes are refused is told once of all refusals since it was told last, whatever
//!    other open files of the same inode were told ([`Refusals::take`]). Bytes that were kept and have found
//!    their place since count no more.
//! 2. A file that is opened after a refusal is not told of it ([`Refusals::last`]).
//! 3. What is known of an inode goes with its last writer, whether the gate is shut then or not
//!    ([`Refusals::forget`]).

use std::collections::HashMap;

use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_fs::InodeId;

/// The refusals of all files.
#[derive(Default)]
pub(super) struct Refusals {
    last: AtomicU64,
    files: Mutex<HashMap<InodeId, Newest>>,
}

/// The number of an inode's newest refusal whose bytes are kept, and of the newest whose bytes are lost; 0
/// for none.
#[derive(Default)]
struct Newest {
    kept: u64,
    lost: u64,
}

/// Up to which refusal the writer of an open file was told.
pub(in crate::service) struct Told(AtomicU64);

impl Told {
    fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Refusals {
    /// The number of the newest refusal of any file.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// For a file that is opened now.
    pub(super) fn told_at_opening(&self) -> Told {
        Told(AtomicU64::new(self.last()))
    }

    /// Bytes of a file found no room, and are kept or lost. `retract` is done before another thread can
    /// see fewer refusals than this.
    pub(super) fn note(&self, id: InodeId, is_kept: bool, retract: impl FnOnce()) {
        let mut files = self.files.lock();
        let number = self.last() + 1;
        let newest = files.entry(id).or_default();
        *(if is_kept { &mut newest.kept } else { &mut newest.lost }) = number;
        self.last.store(number, Ordering::Release);
        retract();
    }

    /// Does something that no refusal is to come between, unless one came after the one with that number;
    /// whether it was done.
    pub(super) fn do_unless_newer(&self, number: u64, publish: impl FnOnce()) -> bool {
        let _files = self.files.lock();
        let is_newest = self.last() == number;
        if is_newest {
            publish();
        }
        is_newest
    }

    /// Whether there is something that an open file's writer may have to be told.
    pub(super) fn has_news(&self, id: InodeId, told: &Told) -> bool {
        let files = self.files.lock();
        files.get(&id).is_some_and(|newest| newest.kept.max(newest.lost) > told.number())
    }

    /// Whether an open file's writer has to be told now; then it has been. All kept bytes of refusals up to
    /// `placed` have found their place.
    pub(super) fn take(&self, id: InodeId, told: &Told, placed: u64) -> bool {
        let mut files = self.files.lock();
        let Some(newest) = files.get_mut(&id) else { return false };
        if newest.kept <= placed {
            newest.kept = 0;
        }
        let number = newest.kept.max(newest.lost);
        if number == 0 {
            files.remove(&id);
        }
        told.0.fetch_max(number, Ordering::Relaxed) < number
    }

    /// A file has no writer any more.
    pub(super) fn forget(&self, id: InodeId) {
        if self.last() > 0 {
            self.files.lock().remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use vlinder_fs::{ObjectId, RootId};

    use super::*;

    const FILE: InodeId = InodeId::new(RootId(5), ObjectId(257));
    const NONE: u64 = 0;

    fn note(refusals: &Refusals, is_kept: bool) {
        refusals.note(FILE, is_kept, || ());
    }

    #[test]
    fn each_open_file_is_told_once() {
        let refusals = Refusals::default();
        let [first, second] = [refusals.told_at_opening(), refusals.told_at_opening()];
        assert!(!refusals.has_news(FILE, &first) && !refusals.take(FILE, &first, NONE));
        note(&refusals, true);
        note(&refusals, false);
        for told in [&first, &second] {
            assert!(refusals.has_news(FILE, told));
            assert!(refusals.take(FILE, told, NONE));
            assert!(!refusals.has_news(FILE, told) && !refusals.take(FILE, told, NONE));
        }
        note(&refusals, true);
        assert!(refusals.take(FILE, &second, NONE) && refusals.take(FILE, &first, NONE));
    }

    #[test]
    fn a_file_that_is_opened_later_is_not_told() {
        let refusals = Refusals::default();
        note(&refusals, false);
        let later = refusals.told_at_opening();
        assert!(!refusals.has_news(FILE, &later) && !refusals.take(FILE, &later, NONE));
        note(&refusals, false);
        assert!(refusals.take(FILE, &later, NONE));
    }

    #[test]
    fn bytes_that_found_their_place_are_not_told_of() {
        let refusals = Refusals::default();
        let told = refusals.told_at_opening();
        note(&refusals, true);
        assert!(!refusals.take(FILE, &told, refusals.last()));
        assert!(refusals.is_empty());
        let placed = refusals.last();
        note(&refusals, true);
        assert!(refusals.take(FILE, &told, placed), "it came after they were placed");
        note(&refusals, false);
        assert!(refusals.take(FILE, &told, refusals.last()), "lost bytes find no place");
    }

    #[test]
    fn nothing_is_left_of_a_file_without_writers() {
        let refusals = Refusals::default();
        let told = refusals.told_at_opening();
        note(&refusals, false);
        refusals.forget(FILE);
        assert!(refusals.is_empty() && !refusals.take(FILE, &told, NONE));
    }

    #[test]
    fn what_was_found_before_a_refusal_is_not_published_after_it() {
        let refusals = Refusals::default();
        let before = refusals.last();
        assert!(refusals.do_unless_newer(before, || ()));
        let mut is_retracted = false;
        refusals.note(FILE, true, || is_retracted = true);
        assert!(is_retracted);
        assert!(!refusals.do_unless_newer(before, || panic!("it is outdated")));
    }
}
