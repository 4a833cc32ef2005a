//! The power is cut at every write of small workloads: each state opens, equals the last commit that was
//! reported durable or what was in flight, and passes `btrfs check`.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::units::Physical;
use vlinder_device::{Description, Device, DeviceError, Request, Ticket};
use vlinder_format::superblock::Superblock;
use vlinder_testkit::power_cut::{CutOptions, PowerCuts};
use vlinder_testkit::simulated::{Event, LoggedWrite, Recording};
use vlinder_testkit::subject::{CutTotals, OrderChecker, Recipe, Recorded, SmallPlan, Subject};
use vlinder_testkit::{SimulatedDevice, require};

/// See [`every_flush_and_every_superblock_of_an_fsync_is_needed`].
const AWAKE_SEED: u64 = 19;

fn record(plan: &SmallPlan) -> Recorded {
    match Recorded::new(plan) {
        Ok(recorded) => recorded,
        Err(error) => panic!("seed {}: {error}", plan.seed),
    }
}

#[test]
fn every_state_after_a_cut_is_one_that_was_promised() {
    require!(LongRun, Tool("btrfs"));
    // The last three: a range of a file that is written where it lies is zeroed; a snapshot shares a leaf
    // with two orphans; a file that is written where it lies has lost its name and is written on.
    for seed in (1..=6).chain([2_340_379, 696_358, 2_763_547]) {
        match SmallPlan::of_seed(seed).cut_everywhere() {
            Ok(totals) => println!("seed {seed}: {totals:?}"),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

#[test]
fn with_discards_every_state_after_a_cut_was_promised() {
    require!(LongRun, Tool("btrfs"));
    let mut discards = 0;
    for seed in 21..=23 {
        let mut plan = SmallPlan::of_seed(seed);
        plan.recipe.options += ",discard";
        let events = record(&plan).recording.events;
        discards += events.iter().filter(|event| matches!(event, Event::Discard { .. })).count();
        match plan.cut_everywhere() {
            Ok(totals) => println!("seed {seed}: {totals:?}"),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(discards > 30, "only {discards} discards");
}

#[test]
fn under_leases_every_state_after_a_cut_was_promised() {
    require!(LongRun, Tool("btrfs"));
    for seed in [2, 22] {
        let mut plan = SmallPlan { leases: true, commits: 4, ..SmallPlan::of_seed(seed) };
        plan.recipe.options += ",discard";
        match plan.cut_everywhere() {
            Ok(totals) => println!("seed {seed}: {totals:?}"),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
}

/// The seeds: `FSYNC_SEEDS=FIRST..LAST` for others. The later ones found files without a name that got one
/// after an fsync (117, 314), names that were a subvolume's (289, 361), and a compression that only the log
/// knew (1001).
#[test]
fn with_fsyncs_every_state_after_a_cut_keeps_what_they_promised() {
    require!(LongRun, Tool("btrfs"), KernelBtrfs);
    let asked = std::env::var("FSYNC_SEEDS").ok().map(|text| {
        let (first, end) = text.split_once("..").unwrap();
        (first.parse().unwrap()..end.parse().unwrap()).collect()
    });
    let seeds: Vec<u64> = asked.unwrap_or_else(|| vec![1, 2, 3, 117, 289, 314, 361, 1001]);
    let (mut failures, mut sum) = (0, CutTotals::default());
    for seed in &seeds {
        match SmallPlan::with_fsyncs(*seed).cut_everywhere() {
            Ok(totals) => {
                println!("seed {seed}: {totals:?}");
                sum.add(&totals);
            }
            Err(error) => {
                println!("seed {seed} FAILED: {error}");
                failures += 1;
            }
        }
    }
    println!("{} seeds: {sum:?}", seeds.len());
    assert_eq!(failures, 0);
    assert!(sum.fsyncs > 5 * seeds.len() && sum.by_kernel > 0 && sum.replayed > 50 * seeds.len() as u64);
}

#[test]
fn with_direct_writes_every_state_after_a_cut_was_promised() {
    require!(LongRun, Tool("btrfs"), KernelBtrfs);
    for seed in 21..24 {
        let plain = SmallPlan::of_seed(seed).with_direct_writes().cut_everywhere();
        let synced = SmallPlan::with_fsyncs(seed).with_direct_writes().cut_everywhere();
        for totals in [plain, synced] {
            println!("seed {seed}: {:?}", totals.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
        }
    }
}

/// Whether some state of this record breaks a promise.
fn breaks(recorded: &Recorded, recording: &Recording) -> bool {
    let options = CutOptions { samples: 6, torn: 0, ..CutOptions::default() };
    PowerCuts::new(recording, options).any(|cut| recorded.judge(&cut).is_err())
}

#[test]
fn every_flush_and_the_durable_superblock_are_needed() {
    let recorded = record(&SmallPlan::of_seed(1));
    let recording = &recorded.recording;
    assert!(!breaks(&recorded, recording));
    assert!(recording.flushes() >= 3, "one for each commit");
    for number in 0..recording.flushes() {
        assert!(breaks(&recorded, &recording.without_flush(number)), "flush {number} is not missed");
    }
    assert!(breaks(&recorded, &recording.without_durable_writes()), "the durable superblock is not missed");
}

/// The numbers of the writes of a superblock that names a log.
fn log_superblocks(recording: &Recording) -> Vec<usize> {
    let writes = recording.events.iter().filter_map(|event| match event {
        Event::Write(write) => Some(write),
        _ => None,
    });
    let names_log = |write: &LoggedWrite| {
        let is_primary = write.offset == Physical(64 << 10);
        is_primary && Superblock::decode(&write.bytes).is_ok_and(|superblock| superblock.log_root.0 != 0)
    };
    writes.enumerate().filter(|(_, write)| names_log(write)).map(|(number, _)| number).collect()
}

#[test]
fn every_flush_and_every_superblock_of_an_fsync_is_needed() {
    // Of each of its fsyncs something is promised that none before has promised.
    let recorded = record(&SmallPlan { commits: 1, operations: 16, ..SmallPlan::with_fsyncs(AWAKE_SEED) });
    let recording = &recorded.recording;
    assert!(!breaks(&recorded, recording));
    for number in 0..recording.flushes() {
        assert!(breaks(&recorded, &recording.without_flush(number)), "flush {number} is not missed");
    }
    let logs = log_superblocks(recording);
    assert!(logs.len() >= 3, "only {} logs", logs.len());
    for lost in logs {
        let mut numbers = 0..;
        let without = recording.without_writes(|_| numbers.next() == Some(lost));
        assert!(breaks(&recorded, &without), "write {lost}, a superblock that names a log, is not missed");
    }
}

/// Leaves out the flush with a number.
struct WithoutFlush {
    inner: Arc<dyn Device>,
    number: u64,
    seen: AtomicU64,
}

impl Device for WithoutFlush {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.seen.fetch_add(1, Ordering::Relaxed) == self.number { Ok(()) } else { self.inner.flush() }
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

/// Makes a directory and commits, through a device that leaves out this flush; gives what the order checker
/// saw.
fn violations_without(number: u64) -> Vec<String> {
    let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::default() };
    let device = Arc::new(SimulatedDevice::from_image(recipe.in_memory()));
    let checker = Arc::new(OrderChecker::new(device));
    let device = Arc::new(WithoutFlush { inner: Arc::clone(&checker) as _, number, seen: AtomicU64::new(0) });
    let subject = Subject::open(device, "", 1, (0, 0)).unwrap();
    let root = subject.filesystem.root().unwrap();
    subject.filesystem.names().create_directory(subject.caller(), &root, b"d", 0o755).unwrap();
    let committed = subject.commit();
    assert!(checker.superblocks() > 0);
    let violations = checker.violations();
    assert_eq!(committed.is_err(), !violations.is_empty());
    violations
}

#[test]
fn a_superblock_before_its_flushed_blocks_is_refused() {
    let violations = violations_without(0);
    assert!(violations[0].contains("before the"), "{violations:?}");
    assert_eq!(violations_without(u64::MAX), [""; 0]);
}
