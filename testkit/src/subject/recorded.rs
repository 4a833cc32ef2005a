//! A small workload on a simulated device, with the model's state at each promise, and the judgement of each
//! state that a power cut could have left.

use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_codec::checksum::{Checksum, checksum};
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::superblock::Superblock;
use vlinder_tree::CommitLease;

use super::carry_out::Subject;
use super::image::Recipe;
use super::judge::{own_check, own_check_data};
use super::log_cut::{History, judge_by_kernel};
use super::memory_image::check_image;
use super::order::OrderChecker;
use crate::power_cut::{Cut, CutOptions, PowerCuts, Summary};
use crate::require::Requirement;
use crate::simulated::Recording;
use crate::workload::{Generator, Limits, Model, Operation};
use crate::{Scratch, SimulatedDevice};

/// What is run.
#[derive(Clone, Debug)]
pub struct SmallPlan {
    /// Seeds the operations.
    pub seed: u64,
    /// The image.
    pub recipe: Recipe,
    /// The workload's bounds.
    pub limits: Limits,
    /// Commits.
    pub commits: u64,
    /// Operations before each.
    pub operations: u64,
    /// Each commit's state is leased until the next.
    pub leases: bool,
}

impl SmallPlan {
    /// Few enough operations that the power can be cut at every write.
    pub fn of_seed(seed: u64) -> Self {
        let limits = Limits {
            inodes: 60,
            bytes: 4 << 20,
            write_bytes: 128 << 10,
            file_bytes: 1 << 20,
            subvolumes: 4,
            names: 10,
            fsync_every: 0,
            direct_every: 0,
        };
        let mut recipe = Recipe { device_bytes: 256 << 20, ..Recipe::of_seed(seed) };
        // A snapshot commits by itself. Data that were written elsewhere need not be there then, but so each
        // state that may be left is one of the model's.
        recipe.options += ",flushoncommit";
        SmallPlan { seed, recipe, limits, commits: 3, operations: 12, leases: false }
    }

    /// As [`of_seed`](Self::of_seed), with fsyncs among the operations, and longer from commit to commit.
    pub fn with_fsyncs(seed: u64) -> Self {
        let mut plan = Self::of_seed(seed);
        plan.limits.fsync_every = 4;
        // The kernel takes only one file system of a UUID at a time, and other tests mount, too.
        plan.recipe.identity = seed ^ 0xf5c;
        SmallPlan { commits: 2, operations: 24, ..plan }
    }

    /// With direct writes among the others.
    #[must_use]
    pub fn with_direct_writes(mut self) -> Self {
        self.limits.direct_every = 2;
        self
    }

    /// Runs the workload, cuts the power at every write and judges each state that this could have left.
    ///
    /// # Errors
    /// What went wrong, or which state broke which promise.
    pub fn cut_everywhere(&self) -> Result<CutTotals, String> {
        let recorded = Recorded::new(self)?;
        if let Some(violation) = recorded.violations.first() {
            return Err(violation.clone());
        }
        let options = CutOptions { seed: self.seed, samples: 6, torn: 1, ..CutOptions::default() };
        let mut cuts = PowerCuts::new(&recorded.recording, options);
        let mut totals = CutTotals::default();
        let mut seen = HashSet::new();
        let has_kernel = Requirement::KernelBtrfs.is_met();
        for cut in cuts.by_ref() {
            totals.judged += 1;
            let replayed = recorded.judge(&cut)?;
            if !seen.insert(cut.hash) {
                continue;
            }
            let fail = |error: String| format!("{error}; {}", cut.description);
            own_check(Arc::new(cut.image.snapshot())).map_err(fail)?;
            if let Some(replayed) = replayed {
                totals.replayed += 1;
                own_check_data(Arc::new(replayed.snapshot()))
                    .map_err(|error| fail(format!("after the replay: {error}")))?;
                if has_kernel && cut.hash % SHOWN_TO_KERNEL_OF == 0 {
                    totals.by_kernel += 1;
                    judge_by_kernel(&recorded.scratch, &cut.image, &replayed).map_err(fail)?;
                }
            }
            // Linux's tools read no other copy where the primary superblock is torn; that the library does
            // was judged.
            let is_torn = cut.description.contains("at 65536 torn");
            if cut.hash % CHECKED_OF == 0 && !is_torn {
                totals.checked += 1;
                recorded.check(&cut)?;
            }
        }
        totals.summary = cuts.summary();
        totals.fsyncs = recorded.history.fsyncs();
        Ok(totals)
    }
}

/// One of so many states is shown to `btrfs check` too.
const CHECKED_OF: u128 = 16;

/// The kernel replays the log of one of so many states that have one.
const SHOWN_TO_KERNEL_OF: u128 = 64;

/// What cutting the power everywhere came to.
#[derive(Clone, Debug, Default)]
pub struct CutTotals {
    /// States that the library opened, that were compared and that vlinder's own check accepted.
    pub judged: u64,
    /// States that `btrfs check` accepted.
    pub checked: u64,
    /// States with a log, which was replayed and judged.
    pub replayed: u64,
    /// Of these, states whose log the kernel replayed, too.
    pub by_kernel: u64,
    /// fsyncs of the workload.
    pub fsyncs: usize,
    /// How the states were made.
    pub summary: Summary,
}

impl CutTotals {
    /// Adds another run's counts, but for how its states were made.
    pub fn add(&mut self, other: &Self) {
        self.judged += other.judged;
        self.checked += other.checked;
        self.replayed += other.replayed;
        self.by_kernel += other.by_kernel;
        self.fsyncs += other.fsyncs;
    }
}

/// A workload that was run, with what it was promised.
pub struct Recorded {
    /// What the device was asked.
    pub recording: Recording,
    /// The model after each step; marks in the recording are positions here.
    models: Vec<Model>,
    /// The same with what is open, and what was fsynced.
    history: History,
    /// For each step the last one that was durable by then.
    durable: Vec<usize>,
    plan: SmallPlan,
    scratch: Scratch,
    /// Wrong orders that the device saw.
    pub violations: Vec<String>,
}

const START: i64 = 1_700_000_000;

/// Where the primary superblock lies.
const PRIMARY: Physical = Physical(64 << 10);

impl Recorded {
    /// Runs the workload; each step is marked in the record, so that a cut knows what had been promised.
    ///
    /// # Errors
    /// What went wrong without any cut.
    pub fn new(plan: &SmallPlan) -> Result<Self, String> {
        let device = Arc::new(SimulatedDevice::from_image(plan.recipe.in_memory()));
        let checker = Arc::new(OrderChecker::new(Arc::clone(&device)));
        let subject = Subject::open(Arc::clone(&checker) as _, &plan.recipe.options, plan.seed, (START, 0));
        let mut subject = subject.map_err(|error| error.to_string())?;
        let mut model = Model::new(0o755, (START, 0));
        subject.learn(&mut model, &[Model::root_directory(5)]).map_err(|error| error.to_string())?;
        let mut models = vec![closed(&model)];
        let mut durable = vec![0];
        let mut history = History::default();
        let committed = |subject: &Subject| subject.filesystem.engine().superblock().generation.0;
        history.add(&model, committed(&subject));
        let mut generator = Generator::new(plan.seed, plan.limits);
        device.mark(0);
        let mut lease: Option<CommitLease> = None;
        for commit in 1..=plan.commits {
            for operation in 0..plan.operations {
                let now = (START + (commit * 1000 + operation) as i64, 0);
                let operation = generator.next(&mut model);
                subject.set_time(now);
                let outcome = subject.carry_out(&model, &operation)?;
                let touched = model.take_in(&operation, now, &outcome);
                let touched = touched.map_err(|error| format!("{operation:?}: {error}"))?;
                subject.learn(&mut model, &touched).map_err(|error| format!("{operation:?}: {error}"))?;
                history.add(&model, committed(&subject));
                if outcome.is_ok() {
                    history.note(&operation);
                }
                let step = models.len();
                let before = *durable.last().unwrap_or(&0);
                durable.push(match operation {
                    Operation::Sync => step,
                    // It could not be logged.
                    Operation::Fsync { .. } | Operation::FsyncOpen { .. } if history.committed_in(step) => {
                        step
                    }
                    _ => before,
                });
                models.push(closed(&model));
                device.mark(step as u64);
            }
            subject.commit().map_err(|error| error.to_string())?;
            history.add(&model, committed(&subject));
            durable.push(models.len());
            models.push(closed(&model));
            device.mark(models.len() as u64 - 1);
            if plan.leases {
                let leased = subject.filesystem.engine().lease().map_err(|error| error.to_string())?;
                if let Some(before) = lease.replace(leased) {
                    before.confirm().map_err(|error| error.to_string())?;
                }
            }
        }
        let recording = device.recording();
        drop(subject);
        let violations = checker.violations();
        Ok(Recorded {
            recording,
            models,
            history,
            durable,
            plan: plan.clone(),
            scratch: Scratch::in_memory("cut"),
            violations,
        })
    }

    /// Opens what a cut left, and compares it with what must and may be there. Without a log that is the
    /// state of the last commit that was reported durable, or a later one up to the operation that was in
    /// flight. With one it is what [`History::judge`] says, and the image after the replay is given.
    ///
    /// # Errors
    /// It does not open, or is none of these.
    pub fn judge(&self, cut: &Cut) -> Result<Option<Arc<MemoryDevice>>, String> {
        let step = cut.mark.unwrap_or(0) as usize;
        let fail = |error: String| format!("{error}; {}", cut.description);
        let logged = self.primary(&cut.image).filter(|superblock| superblock.log_root.0 != 0);
        let image = Arc::new(cut.image.snapshot());
        let open = Subject::open(Arc::clone(&image) as _, &self.plan.recipe.options, 1, (START, 0));
        let subject = open.map_err(|error| fail(format!("it does not open: {error}")))?;
        if let Some(reason) = subject.filesystem.engine().read_only_reason() {
            return Err(fail(format!("it opens read-only: {reason}")));
        }
        let Some(superblock) = logged else {
            self.compare(&subject, step).map_err(fail)?;
            self.history.judge_without_log(&subject, self.durable[step], step).map_err(fail)?;
            return Ok(None);
        };
        let generation = superblock.generation.0;
        if self.history.last_of(generation) < self.durable[step] {
            return Err(fail(format!("the commit of step {} is lost", self.durable[step])));
        }
        self.history
            .judge(&subject, generation, step)
            .map_err(|error| fail(format!("with a log: {error}")))?;
        subject.close().map_err(|error| fail(error.to_string()))?;
        Ok(Some(image))
    }

    /// The primary superblock, unless it is torn: then it is not used, and no other names a log.
    fn primary(&self, image: &MemoryDevice) -> Option<Superblock> {
        let bytes: [u8; 4096] = image.read_at(PRIMARY, 4096).ok()?.try_into().ok()?;
        let superblock = Superblock::decode(&bytes).ok()?;
        let kind = self.plan.recipe.checksum_kind;
        let expected = checksum(kind, Superblock::checksummed_bytes(&bytes));
        expected.matches(&Checksum::from_field(superblock.checksum), kind).then_some(superblock)
    }

    /// It is one of the states that may be there after a step had ended.
    fn compare(&self, subject: &Subject, step: usize) -> Result<(), String> {
        // The difference to the newest state that it may be says most.
        let mut newest = String::new();
        let states = self.durable[step]..=(step + 1).min(self.models.len() - 1);
        // What is written in place changes the state of the last commit, too, also where its file has lost
        // its name and is held open: so the versions of such a file are taken from before everybody let go.
        let versions: Vec<&Model> = self.history.models(*states.start(), *states.end()).collect();
        for state in states {
            match subject.compare_after_cut(&self.models[state], &versions) {
                Ok(()) => return Ok(()),
                Err(error) => newest = error.to_string(),
            }
        }
        Err(format!("it is no state between {} and {}: {newest}", self.durable[step], step + 1))
    }

    /// Asks `btrfs check` about what a cut left.
    ///
    /// # Errors
    /// Its complaints.
    pub fn check(&self, cut: &Cut) -> Result<(), String> {
        check_image(&self.scratch, &cut.image).map_err(|error| format!("{error}; {}", cut.description))
    }
}

/// The model as it is once everybody has let go.
fn closed(model: &Model) -> Model {
    let mut model = model.clone();
    model.close_all();
    model
}
