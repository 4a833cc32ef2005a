//! Which processors a thread may run on.

use std::cell::Cell;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that a thread may run on, as it found them.
#[derive(Clone, Copy, Debug)]
pub struct Affinity(CpuSet);

thread_local! {
    /// What the running thread had before it was narrowed, which is what threads that it starts are to have:
    /// the system would give them the few processors, for good.
    static BEFORE: Cell<Option<Affinity>> = const { Cell::new(None) };
    /// The one processor that it was narrowed to.
    static NARROWED_TO: Cell<Option<usize>> = const { Cell::new(None) };
}

/// What a thread that the running one starts has to restore at its start; nothing if it inherits the right
/// one.
pub(crate) fn of_new_threads() -> Option<Affinity> {
    BEFORE.get()
}

/// The processor that the running thread was narrowed to: somebody waits there for what it does. Work that it
/// leaves to another thread had better be done elsewhere ([`Aside`]).
#[must_use]
pub fn narrowed_to() -> Option<usize> {
    NARROWED_TO.get()
}

impl Affinity {
    /// That of the running thread; nothing where the system does not say, or in a model run.
    #[must_use]
    pub fn current() -> Option<Self> {
        if cfg!(feature = "shuttle") {
            return None;
        }
        sched_getaffinity(None).ok().map(Self)
    }

    /// How many processors there are in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// The first of them that is not this one.
    #[must_use]
    pub fn other_than(&self, processor: usize) -> Option<usize> {
        (0..CpuSet::MAX_CPU).find(|&other| other != processor && self.0.is_set(other))
    }

    /// Lets the running thread use all of these processors.
    ///
    /// # Errors
    /// None of them is the process's to use any more (EINVAL).
    pub fn restore(&self) -> std::io::Result<()> {
        sched_setaffinity(None, &self.0)?;
        BEFORE.set(None);
        NARROWED_TO.set(None);
        Ok(())
    }

    /// Lets the running thread use no processor but this one, if it is among these; gives whether it is.
    ///
    /// # Errors
    /// The processor is not the process's to use any more (EINVAL).
    pub fn narrow_to(&self, processor: usize) -> std::io::Result<bool> {
        if processor >= CpuSet::MAX_CPU || !self.0.is_set(processor) {
            return Ok(false);
        }
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one)?;
        BEFORE.set(Some(*self));
        NARROWED_TO.set(Some(processor));
        Ok(true)
    }

    /// Lets the running thread use all of these processors but this one, if any is left.
    fn leave_out(&self, processor: usize) -> std::io::Result<()> {
        let mut others = self.0;
        if processor < CpuSet::MAX_CPU {
            others.unset(processor);
        }
        if others.count() > 0 {
            sched_setaffinity(None, &others)?;
            BEFORE.set(Some(*self));
        }
        Ok(())
    }
}

/// The running thread, which works in the background, keeping off the processor of the thread that left it
/// the work. Where all processors are busy, Linux would run the background thread beside the thread that woke
/// it, and hold that thread up.
#[derive(Debug)]
pub struct Aside {
    all: Option<Affinity>,
    off: Option<usize>,
}

impl Aside {
    /// On no side yet.
    #[must_use]
    pub fn new() -> Self {
        Self { all: Affinity::current(), off: None }
    }

    /// Keeps off this processor from now on, or uses all for `None`. Where the system forbids it, the work is
    /// done all the same.
    pub fn keep_off(&mut self, processor: Option<usize>) {
        let Some(all) = self.all.filter(|all| all.count() > 1 && processor != self.off) else { return };
        let moved = match processor {
            Some(processor) => all.leave_out(processor),
            None => all.restore(),
        };
        if moved.is_ok() {
            self.off = processor;
        }
    }
}

impl Default for Aside {
    fn default() -> Self {
        Self::new()
    }
}

/// How many processors the machine has that are in use; nothing where the system does not say.
#[must_use]
pub fn online_processors() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    processors_in_list(text.trim())
}

/// The length of a list as `0-2,4`.
fn processors_in_list(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            (last + 1).checked_sub(first)
        })
        .sum()
}

/// The processor that a thread of the system last ran on, as `/proc/ID/stat` has it in field 39
/// (proc_pid_stat(5)).
#[must_use]
pub fn processor_of(thread: u32) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    processor_in(fields)
}

/// The field, in what follows the name in parentheses, which is field 2.
fn processor_in(fields: &str) -> Option<usize> {
    fields.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_narrowed_and_set_free_again() {
        let work = || {
            let all = Affinity::current().unwrap();
            let here = processor_of(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            assert_eq!(narrowed_to(), None);
            assert!(all.narrow_to(here).unwrap());
            assert_eq!((Affinity::current().unwrap().count(), narrowed_to()), (1, Some(here)));
            let width = || Affinity::current().unwrap().count();
            let started = crate::thread::spawn("child", width).join().unwrap();
            assert_eq!(started, all.count(), "a thread that it starts");
            let pool = crate::parallel::Pool::new(2).unwrap();
            assert_eq!(pool.map(&[1, 2, 3, 4], |_| width()), [all.count(); 4], "workers that it starts");
            assert!(!all.narrow_to(CpuSet::MAX_CPU).unwrap());
            let other = all.other_than(here);
            assert_eq!(other.is_some(), all.count() > 1);
            assert!(other.is_none_or(|other| other != here && all.narrow_to(other).unwrap()));
            all.restore().unwrap();
            assert_eq!((Affinity::current().unwrap().count(), narrowed_to()), (all.count(), None));
        };
        crate::thread::spawn("affinity", work).join().unwrap();
    }

    #[test]
    fn a_thread_that_stands_aside_leaves_one_processor_free() {
        let work = || {
            let all = Affinity::current().unwrap();
            let width = || Affinity::current().unwrap().count();
            let mut aside = Aside::new();
            for processor in (0..CpuSet::MAX_CPU).filter(|&processor| all.0.is_set(processor)) {
                aside.keep_off(Some(processor));
                assert_eq!(width(), (all.count() - 1).max(1));
                assert_eq!(Affinity::current().unwrap().0.is_set(processor), all.count() == 1);
                let started = crate::thread::spawn("child", width).join().unwrap();
                assert_eq!(started, all.count(), "a thread that it starts");
            }
            aside.keep_off(Some(CpuSet::MAX_CPU));
            assert_eq!(width(), all.count());
            aside.keep_off(None);
            assert_eq!((width(), narrowed_to()), (all.count(), None));
        };
        crate::thread::spawn("aside", work).join().unwrap();
    }

    #[test]
    fn processors_are_counted_in_a_list() {
        assert_eq!(processors_in_list("0"), Some(1));
        assert_eq!(processors_in_list("0-1"), Some(2));
        assert_eq!(processors_in_list("0-2,4,6-7"), Some(6));
        assert_eq!(processors_in_list(""), None);
        assert!(online_processors().is_none_or(|count| count > 0));
    }

    #[test]
    fn the_processor_is_the_39th_field() {
        let fields: Vec<String> = (3..=52).map(|number| number.to_string()).collect();
        assert_eq!(processor_in(&fields.join(" ")), Some(39));
        assert_eq!(processor_in("S 1 2"), None);
        assert_eq!(processor_of(u32::MAX), None);
    }
}
