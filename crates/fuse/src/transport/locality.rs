//! Requests of one program are answered on the processor where it runs.
//!
//! A program that waits for each answer and the thread that gives it take turns; on two processors every turn
//! wakes a sleeping one, which costs more than most answers (several times as much on a virtual machine). So
//! a thread that answers the same program again and again moves to where that program runs, and is set free
//! as soon as another asks: then there is work for more than one processor. Decision 5 has the measurements.

use std::cell::Cell;
use std::time::Duration;

use vlinder_base::affinity::{Affinity, online_processors, processor_of};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::Arc;

use super::bystander::Bystander;

/// A thread follows a program after so many requests in a row.
const STREAK: u32 = 16;
/// And looks again where the program runs after so many more; looking costs about as much as one answer.
const LOOK_AGAIN: u32 = 128;
/// Requests follow one another closely if no more lies between them.
const CLOSE: Duration = Duration::from_micros(150);

/// What the thread knows of the program that it answers.
#[derive(Clone, Copy, Default)]
struct Following {
    /// The program's thread, 0 for none.
    client: u32,
    /// Its requests in a row until the next look.
    streak: u32,
    /// Where this thread was moved.
    processor: Option<usize>,
    /// When the last of its requests came.
    last: Duration,
    /// How many followed one another closely, up to [`STREAK`].
    close: u32,
}

impl Following {
    fn note_time(&mut self, now: Duration) {
        let is_close = now.saturating_sub(self.last) < CLOSE;
        self.close = if is_close { (self.close + 1).min(STREAK) } else { 0 };
        self.last = now;
    }
}

thread_local! {
    static FOLLOWING: Cell<Following> = Cell::default();
}

/// Moves the threads that answer.
pub(super) struct Locality {
    /// The processors that they may use; nothing if there is only one, or no choice.
    allowed: Option<Affinity>,
    moves: Arc<Counter>,
    clock: SystemClock,
    bystander: Option<Bystander>,
}

impl Locality {
    /// For the threads that the running one starts.
    pub(super) fn new(registry: &Registry) -> Self {
        let allowed = Affinity::current().filter(|affinity| affinity.count() > 1);
        let clock = SystemClock::new();
        Self {
            moves: registry.counter("fuse.thread_moves", MOVES, Unit::Count),
            clock,
            bystander: Bystander::new(allowed.as_ref(), online_processors(), clock, registry),
            allowed,
        }
    }

    /// A request of which its program waits for the answer. `client` is the thread that asks; 0, which says
    /// nothing, if there is none or it is of another namespace.
    pub(super) fn note(&self, client: u32) {
        let Some(allowed) = self.allowed.as_ref().filter(|_| client != 0) else { return };
        let mut following = FOLLOWING.get();
        if client != following.client {
            self.set_free(allowed, &mut following);
            following.client = client;
        } else if following.streak < STREAK {
            following.streak += 1;
            if following.streak == STREAK {
                self.follow(allowed, &mut following);
            }
        } else {
            following.streak += 1;
            if following.streak == STREAK + LOOK_AGAIN {
                following.streak = STREAK;
                self.follow(allowed, &mut following);
            }
        }
        if let (Some(bystander), Some(processor)) = (&self.bystander, following.processor) {
            following.note_time(self.clock.monotonic());
            if following.close == STREAK {
                bystander.note(processor, following.last);
            }
        }
        FOLLOWING.set(following);
    }

    /// Whether the running thread is on the processor of the program that it answers, and that program will
    /// stay there, since the only other processor is busy.
    pub(super) fn shares_processor(&self) -> bool {
        self.bystander.is_some() && FOLLOWING.get().processor.is_some()
    }

    /// A request with so much work that its program had better go on meanwhile on another processor.
    pub(super) fn note_large(&self) {
        let Some(allowed) = &self.allowed else { return };
        let mut following = FOLLOWING.get();
        self.set_free(allowed, &mut following);
        FOLLOWING.set(following);
    }

    fn follow(&self, allowed: &Affinity, following: &mut Following) {
        let Some(processor) = processor_of(following.client) else { return };
        // Where the system forbids it, answers are as right and only later.
        if following.processor != Some(processor) && allowed.narrow_to(processor).unwrap_or(false) {
            following.processor = Some(processor);
            self.moves.increment();
        }
    }

    fn set_free(&self, allowed: &Affinity, following: &mut Following) {
        if following.processor.is_some() && allowed.restore().is_ok() {
            self.moves.increment();
        }
        *following = Following::default();
    }
}

const MOVES: &str = "threads moved to the program that they answer, or set free";

#[cfg(test)]
mod tests {
    use vlinder_base::thread;
    use vlinder_testkit::require;

    use super::*;

    /// How many processors the running thread may use.
    fn width() -> u32 {
        Affinity::current().unwrap().count()
    }

    #[test]
    fn a_thread_follows_one_program_and_is_free_for_two() {
        require!(Processors(2));
        let registry = Registry::new();
        let locality = Locality::new(&registry);
        let all = width();
        let me = std::process::id();
        let work = move || {
            (0..STREAK).for_each(|_| locality.note(me));
            assert_eq!(width(), all, "too early");
            assert!(!locality.shares_processor());
            locality.note(me);
            assert_eq!(width(), 1);
            assert_eq!(locality.shares_processor(), online_processors() == Some(2));
            (0..3 * LOOK_AGAIN).for_each(|_| locality.note(me));
            assert_eq!(width(), 1);
            locality.note(me + 1);
            assert_eq!(width(), all, "two programs");
            assert!(!locality.shares_processor());
            (0..100).for_each(|number| locality.note(me + number % 2));
            assert_eq!(width(), all);
            (0..=STREAK).for_each(|_| locality.note(me));
            assert_eq!(width(), 1);
            locality.note_large();
            assert_eq!(width(), all);
        };
        thread::spawn("locality", work).join().unwrap();
    }

    #[test]
    fn with_one_processor_nothing_is_moved() {
        let work = || {
            let all = Affinity::current().unwrap();
            assert!(all.narrow_to(processor_of(std::process::id()).unwrap()).unwrap());
            let locality = Locality::new(&Registry::new());
            (0..=STREAK + LOOK_AGAIN).for_each(|_| locality.note(std::process::id()));
            locality.note_large();
            (locality.moves.get(), width())
        };
        assert_eq!(thread::spawn("locality", work).join().unwrap(), (0, 1));
    }
}
