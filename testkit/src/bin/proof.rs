//! `make proof MINUTES=n`: for as long as asked, seed after seed, a workload judged after every commit, two
//! small ones with the power cut at every write (the second with fsyncs and direct writes, of which every cut
//! must leave what the fsyncs promised), and every so many seeds one that is large and a disk that is filled
//! and emptied.
//!
//! `SEED` is where to begin (default: where the last run ended, as `target/proof/next-seed` has it), `COUNT`
//! how many seeds at most, `COMMITS` and `OPERATIONS` how long each is, `BYTES` how much all files may have,
//! `BULK` and `FULL` every how many seeds a large one and a full disk come (0 for none), `ROUNDS` how often
//! the disk is filled, `SHRINK` how many seconds a failure may be made shorter. A failure is printed as the
//! shortest list of steps that still shows it, and written to `target/proof/seed-N.txt`; the exit status is 1
//! then.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_testkit::long_run::{number, results};
use vlinder_testkit::require::Requirement;
use vlinder_testkit::subject::{Bulk, FullDisk, Judges, Load, Plan, Recipe, SmallPlan, Totals, shrink};
use vlinder_testkit::workload::Limits;

/// What the environment says of a run.
struct Bounds {
    minutes: u64,
    seed: Option<u64>,
    count: u64,
    commits: u64,
    operations: u64,
    bytes: u64,
    bulk_every: u64,
    full_every: u64,
    rounds: u64,
    shrink: Duration,
}

impl Bounds {
    fn from_environment() -> Result<Self, String> {
        let or = |name: &str, default: u64| number(name).map(|number| number.unwrap_or(default));
        Ok(Self {
            minutes: or("MINUTES", 15)?,
            seed: number("SEED")?,
            count: or("COUNT", u64::MAX)?,
            commits: or("COMMITS", 50)?,
            operations: or("OPERATIONS", 200)?,
            bytes: or("BYTES", 96 << 20)?,
            bulk_every: or("BULK", 8)?,
            full_every: or("FULL", 4)?,
            rounds: or("ROUNDS", 10)?,
            shrink: Duration::from_secs(or("SHRINK", 120)?),
        })
    }
}

fn next_seed(directory: &Path) -> u64 {
    let stored = std::fs::read_to_string(directory.join("next-seed")).ok();
    stored.and_then(|text| text.trim().parse().ok()).unwrap_or(1)
}

fn plan(seed: u64, bounds: &Bounds) -> Plan {
    let has_kernel = Requirement::KernelBtrfs.is_met();
    Plan {
        seed,
        recipe: Recipe::of_seed(seed),
        limits: Limits { bytes: bounds.bytes, fsync_every: 25, direct_every: 4, ..Limits::default() },
        commits: bounds.commits,
        operations: bounds.operations,
        judges: Judges { check: true, compare_every: 5, reopen_every: 7, kernel: has_kernel },
    }
}

/// The workload of a seed; a failure is made as short as it gets and written down.
fn run(seed: u64, bounds: &Bounds, directory: &Path) -> Result<Totals, String> {
    plan(seed, bounds).run().map_err(|failure| {
        println!("seed {seed} failed after {} steps: {}", failure.steps.len(), failure.reason);
        let report = shrink(&failure, bounds.shrink).to_string();
        let file = directory.join(format!("seed-{seed}.txt"));
        match std::fs::write(&file, &report) {
            Ok(()) => format!("{report}\nwritten to {}", file.display()),
            Err(error) => format!("{report}\n{}: {error}", file.display()),
        }
    })
}

/// Whether it is the turn of what comes every so many seeds.
fn is_turn(seed: u64, every: u64) -> bool {
    every > 0 && seed.is_multiple_of(every)
}

/// All that a seed stands for.
fn prove(seed: u64, bounds: &Bounds, directory: &Path) -> Result<Totals, String> {
    let mut totals = run(seed, bounds, directory)?;
    let cuts = SmallPlan::of_seed(seed).cut_everywhere().map_err(|error| format!("power cut: {error}"))?;
    println!("seed {seed}: {} states after a power cut, {} shown to btrfs check", cuts.judged, cuts.checked);
    let cuts = SmallPlan::with_fsyncs(seed).with_direct_writes().cut_everywhere();
    let cuts = cuts.map_err(|error| format!("power cut, with fsyncs: {error}"))?;
    println!(
        "seed {seed}: {} states after a power cut with {} fsyncs, {} of them with a log, {} replayed by the kernel, too",
        cuts.judged, cuts.fsyncs, cuts.replayed, cuts.by_kernel
    );
    if is_turn(seed, bounds.full_every) {
        let load = Load::ALL[(seed / 4 % 3) as usize];
        let rounds = bounds.rounds;
        let files = FullDisk { image_bytes: 256 << 20, load, first: seed, rounds }.run()?;
        println!("seed {seed}: a disk filled with {files} files ({load:?}) and emptied {rounds} times");
    }
    if is_turn(seed, bounds.bulk_every) {
        totals.merge(&Bulk::long(seed).run().map_err(|error| format!("the large workload: {error}"))?);
    }
    Ok(totals)
}

fn main() -> ExitCode {
    match proof() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// The whole run; what ended it.
fn proof() -> Result<(), String> {
    let bounds = Bounds::from_environment()?;
    if !Requirement::Tool("btrfs").is_met() {
        return Err("the proof needs btrfs-progs, whose check judges every commit".to_owned());
    }
    if !Requirement::KernelBtrfs.is_met() {
        println!("without root and the kernel's btrfs no image is mounted, walked and scrubbed at the end");
    }
    let directory = results("proof")?;
    let clock = SystemClock::new();
    let end = clock.monotonic().saturating_add(Duration::from_secs(bounds.minutes.saturating_mul(60)));
    let first = bounds.seed.unwrap_or_else(|| next_seed(&directory));
    let last = first.saturating_add(bounds.count);
    let mut totals = Totals::default();
    let mut seed = first;
    while clock.monotonic() < end && seed < last {
        totals.merge(&prove(seed, &bounds, &directory).map_err(|error| format!("seed {seed}: {error}"))?);
        println!("seed {seed} is sound");
        seed += 1;
        if let Err(error) = std::fs::write(directory.join("next-seed"), seed.to_string()) {
            println!("{}: {error}; the next run begins anew", directory.display());
        }
    }
    println!("{totals}");
    println!("seeds {first} to {} are sound", seed.saturating_sub(1));
    Ok(())
}
