//! `make judges`: small changes to images of the kernel's, each shown to `vlinder check`, and to
//! `btrfs check` where that finds nothing: what is clean for vlinder must be clean for `btrfs check` (see
//! [`vlinder_testkit::judges`]).
//!
//! `SEED` is the first change (default 1), `COUNT` how many there are at most, `MINUTES` how long to go on,
//! `JOBS` how many at a time (default 2), `ALL=1` shows each change to both. Of eleven changes one is of two
//! places. `EVERY_BIT=1` draws nothing: it changes each bit of each kind of field of each image once, in a
//! field that `SEED` chooses (ten minutes). Exit status 1 where `btrfs check` alone complained, for no
//! reason that is listed, or vlinder panicked.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::thread;
use vlinder_testkit::judges::{Bench, Change, ChangeableImage, EXCEPTIONS, RECIPES, Verdict};
use vlinder_testkit::long_run::number;
use vlinder_testkit::require::Requirement;

/// Of so many changes one is of two places.
const TWO_PLACES_EVERY: u64 = 11;

/// What was counted.
#[derive(Default)]
struct Tally {
    /// Verdicts of changes of one place, and of two.
    verdicts: BTreeMap<(bool, &'static str), u64>,
    exceptions: BTreeMap<&'static str, u64>,
    /// Blind spots: what was changed, and what was said of it, by the recipe and the number of the change.
    missed: Vec<(u64, &'static str, String, String)>,
}

struct Work {
    subjects: Vec<(&'static str, ChangeableImage)>,
    next: AtomicU64,
    last: u64,
    /// With it each bit of each kind once, in fields that this seed chooses.
    bits_seed: Option<u64>,
    end: Duration,
    asks_always: bool,
    clock: SystemClock,
    tally: Mutex<Tally>,
}

impl Work {
    fn change(&self, seed: u64) -> (usize, bool, Change) {
        if let Some(bits_seed) = self.bits_seed {
            let (number, bit) = self.bit(seed);
            return (number, false, self.subjects[number].1.one_bit(bit, bits_seed));
        }
        let number = usize::try_from(seed % self.subjects.len() as u64).unwrap_or(0);
        let is_double = (seed / self.subjects.len() as u64).is_multiple_of(TWO_PLACES_EVERY);
        let subject = &self.subjects[number].1;
        let change = if is_double { subject.two_places(seed) } else { subject.one_byte(seed) };
        (number, is_double, change)
    }

    /// Of all bits of all images this one: the image, and the bit there.
    fn bit(&self, number: u64) -> (usize, usize) {
        let mut rest = usize::try_from(number).unwrap_or(0);
        let mut image = 0;
        while rest >= self.subjects[image].1.bits() {
            rest -= self.subjects[image].1.bits();
            image += 1;
        }
        (image, rest)
    }

    fn go_on(&self) -> Result<(), String> {
        let benches: std::io::Result<Vec<Bench>> =
            self.subjects.iter().map(|(_, subject)| Bench::new(subject)).collect();
        let benches = benches.map_err(|error| error.to_string())?;
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.last || self.clock.monotonic() >= self.end {
                return Ok(());
            }
            let (number, is_double, change) = self.change(seed);
            let verdict = benches[number].judge(&change, self.asks_always)?;
            self.tally.lock().add(seed, self.subjects[number].0, is_double, change, verdict);
        }
    }
}

impl Tally {
    fn add(&mut self, seed: u64, recipe: &'static str, is_double: bool, change: Change, verdict: Verdict) {
        let name = match &verdict {
            Verdict::BothClean => "both clean",
            Verdict::BothComplain => "both complain",
            Verdict::OursAlone => "vlinder alone complains",
            Verdict::Ours => "vlinder complains, btrfs check not asked",
            Verdict::Excepted(_) => "btrfs check alone complains, excepted",
            Verdict::TheirsAlone(_) => "btrfs check alone complains",
            Verdict::Panicked => "vlinder panicked",
        };
        *self.verdicts.entry((is_double, name)).or_default() += 1;
        match verdict {
            Verdict::Excepted(exception) => *self.exceptions.entry(exception).or_default() += 1,
            Verdict::TheirsAlone(lines) => self.missed.push((seed, recipe, change.name, lines)),
            Verdict::Panicked => self.missed.push((seed, recipe, change.name, "vlinder panicked".to_owned())),
            _ => {}
        }
    }

    fn tell(&self) {
        for ((is_double, name), count) in &self.verdicts {
            println!("{count:8} changes of {}: {name}", if *is_double { "two places" } else { "one byte" });
        }
        for (name, count) in &self.exceptions {
            println!("{count:8} excepted: {name}");
        }
        for (seed, recipe, change, lines) in &self.missed {
            println!("MISSED {seed} ({recipe}): {change}");
            lines.lines().take(6).for_each(|line| println!("    {line}"));
        }
    }
}

fn main() -> ExitCode {
    match judges() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// The whole run; whether nothing was missed.
fn judges() -> Result<bool, String> {
    let minutes = number("MINUTES")?.unwrap_or(u64::MAX / 60);
    let first = number("SEED")?.unwrap_or(1);
    let last = number("COUNT")?.map_or(u64::MAX, |count| first.saturating_add(count));
    let asks_always = number("ALL")?.is_some();
    let jobs = number("JOBS")?.unwrap_or(2).max(1);
    if !Requirement::KernelBtrfs.is_met() || !Requirement::Tool("btrfs").is_met() {
        return Err(
            "the judges need root, the kernel's btrfs, which makes their images, and btrfs-progs".to_owned()
        );
    }
    let mut subjects = Vec::new();
    for recipe in RECIPES {
        let image = recipe.make().map_err(|error| format!("{}: {error}", recipe.name))?;
        subjects.push((recipe.name, ChangeableImage::new(&image)));
    }
    for (name, subject) in &subjects {
        let (kinds, doubled) = subject.counts();
        println!("{name}: {kinds} kinds of fields, {doubled} pairs of kinds hold the same");
    }
    let bits_seed = number("EVERY_BIT")?.map(|_| first);
    let (first, last) = match bits_seed {
        Some(_) => (0, subjects.iter().map(|(_, subject)| subject.bits() as u64).sum()),
        None => (first, last),
    };
    if bits_seed.is_some() {
        println!("{last} bits of all kinds");
    }
    let clock = SystemClock::new();
    let end = clock.monotonic().saturating_add(Duration::from_secs(minutes.saturating_mul(60)));
    let (next, tally) = (AtomicU64::new(first), Mutex::default());
    let work = Work { subjects, next, last, bits_seed, end, asks_always, clock, tally };
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                let ended = work.go_on();
                failures.lock().extend(ended.err());
            });
        }
    });
    let tally = work.tally.into_inner();
    tally.tell();
    let failures = failures.into_inner();
    failures.iter().for_each(|failure| println!("FAILED: {failure}"));
    println!("{} exceptions are listed", EXCEPTIONS.len());
    Ok(tally.missed.is_empty() && failures.is_empty())
}
