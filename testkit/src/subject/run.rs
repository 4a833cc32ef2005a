//! A workload run on an image, with its judges.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use vlinder_base::metrics::{Registry, Value};
use vlinder_base::sync::Arc;
use vlinder_fs::OpenOptions;

use super::carry_out::Subject;
use super::image::{Recipe, open_image};
use super::judge::both_check;
use crate::walk::{self, walk};
use crate::workload::{Generator, Histogram, Limits, Model, Operation};
use crate::{Scratch, kernel};

/// The judges of the image, and when they look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judges {
    /// `btrfs check` after each commit.
    pub check: bool,
    /// The model compares all there is after every so many commits; 0 is never.
    pub compare_every: u64,
    /// The image is closed and opened again after every so many commits; 0 is never.
    pub reopen_every: u64,
    /// At the end the kernel mounts, walks and scrubs, and the library looks again afterwards.
    pub kernel: bool,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
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
    /// Judges.
    pub judges: Judges,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation.
    Do(Operation),
    /// A commit, with the judges that look then.
    Commit,
    /// The image is closed and opened again.
    Reopen,
}

/// What runs came to.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Operations by kind.
    pub histogram: Histogram,
    /// The engine's counters.
    pub counters: BTreeMap<String, u64>,
    /// Commits that were judged.
    pub commits: u64,
}

impl Totals {
    /// Adds another run's.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        for (name, count) in &other.counters {
            *self.counters.entry(name.clone()).or_default() += count;
        }
        self.commits += other.commits;
    }

    /// A counter of the engine.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or_default()
    }

    pub(super) fn add_registry(&mut self, registry: &Registry) {
        for sample in registry.snapshot() {
            if let Value::Counter(count) = sample.value {
                *self.counters.entry(sample.name.to_owned()).or_default() += count;
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}{:<24} {:>10}", self.histogram, "commits judged", self.commits)?;
        for (name, count) in &self.counters {
            writeln!(formatter, "{name:<48} {count:>10}")?;
        }
        Ok(())
    }
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run.
    pub plan: Plan,
    /// The steps up to the one that showed it, each with its number, which is also its time.
    pub steps: Vec<(u64, Step)>,
    /// What went wrong.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "seed {}, {:?}", self.plan.seed, self.plan.recipe)?;
        for (number, step) in &self.steps {
            writeln!(formatter, "  {number}: {step:?}")?;
        }
        write!(formatter, "{}", self.reason)
    }
}

impl std::error::Error for Failure {}

/// A run in progress.
pub struct Run {
    plan: Plan,
    image: PathBuf,
    _scratch: Scratch,
    subject: Option<Subject>,
    registry: Arc<Registry>,
    model: Model,
    steps: Vec<(u64, Step)>,
    totals: Totals,
}

/// When the first step happens, in seconds since 1970.
const START: i64 = 1_700_000_000;

impl Plan {
    /// Runs it whole.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub fn run(&self) -> Result<Totals, Box<Failure>> {
        let mut run = Run::new(self.clone());
        let mut generator = Generator::new(self.seed, self.limits);
        let mut number = 0;
        let done = (|| {
            for commit in 1..=self.commits {
                for _ in 0..self.operations {
                    number += 1;
                    let operation = generator.next(&mut run.model);
                    run.step(number, Step::Do(operation))?;
                }
                number += 1;
                let reopens = self.judges.reopen_every > 0 && commit % self.judges.reopen_every == 0;
                run.step(number, if reopens { Step::Reopen } else { Step::Commit })?;
            }
            run.finish()
        })();
        match done {
            Ok(()) => Ok(run.totals),
            Err(reason) => Err(Box::new(Failure { plan: self.clone(), steps: run.steps, reason })),
        }
    }

    /// Runs these steps instead of generated ones.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub fn replay(&self, steps: &[(u64, Step)]) -> Result<Totals, Box<Failure>> {
        let mut run = Run::new(self.clone());
        let done = steps.iter().try_for_each(|(number, step)| run.step(*number, step.clone()));
        match done.and_then(|()| run.finish()) {
            Ok(()) => Ok(run.totals),
            Err(reason) => Err(Box::new(Failure { plan: self.clone(), steps: run.steps, reason })),
        }
    }
}

impl Run {
    /// An empty image, opened.
    ///
    /// # Panics
    /// If it can't be made or opened.
    pub fn new(plan: Plan) -> Self {
        let scratch = Scratch::in_memory("workload");
        let image = scratch.join("image");
        plan.recipe.in_file(&image);
        let mut run = Run {
            model: Model::new(0o755, (START, 0)),
            plan,
            image,
            _scratch: scratch,
            subject: None,
            registry: Arc::new(Registry::new()),
            steps: Vec::new(),
            totals: Totals::default(),
        };
        if let Err(reason) = run.open(0).and_then(|()| run.learn_root()) {
            panic!("{:?}: {reason}", run.plan.recipe);
        }
        run
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The open file system.
    ///
    /// # Panics
    /// While it is closed.
    pub fn subject(&self) -> &Subject {
        match &self.subject {
            Some(subject) => subject,
            None => panic!("the file system is closed"),
        }
    }

    /// The image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    fn learn_root(&mut self) -> Result<(), String> {
        let root = Model::root_directory(5);
        let Some(subject) = &self.subject else { return Ok(()) };
        subject.learn(&mut self.model, &[root]).map_err(|error| error.to_string())
    }

    fn open(&mut self, number: u64) -> Result<(), String> {
        let device = open_image(&self.image, self.plan.recipe.device_bytes);
        let mut options = OpenOptions::parse(&self.plan.recipe.options).map_err(|error| error.to_string())?;
        self.registry = Arc::new(Registry::new());
        options.registry = Arc::clone(&self.registry);
        let seed = self.plan.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let subject = Subject::open_with(device, options, seed, time_of(number));
        self.subject = Some(subject.map_err(|error| format!("opening failed: {error}"))?);
        match self.subject().filesystem.engine().read_only_reason() {
            Some(reason) => Err(format!("it opens read-only: {reason}")),
            None => Ok(()),
        }
    }

    /// Takes one step. A panic of the library is an error like others.
    ///
    /// # Errors
    /// What went wrong.
    pub fn step(&mut self, number: u64, step: Step) -> Result<(), String> {
        self.steps.push((number, step.clone()));
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take(number, &step)));
        taken.unwrap_or_else(|cause| {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no text");
            Err(format!("panic: {text}"))
        })
    }

    fn take(&mut self, number: u64, step: &Step) -> Result<(), String> {
        match step {
            Step::Do(operation) => self.carry_out(number, operation),
            Step::Commit => {
                self.subject().commit().map_err(|error| format!("the commit failed: {error}"))?;
                self.judge()
            }
            Step::Reopen => {
                self.close()?;
                self.model.close_all();
                if self.plan.judges.check {
                    both_check(&self.image)?;
                }
                self.open(number)?;
                self.compare()?;
                self.totals.commits += 1;
                Ok(())
            }
        }
    }

    fn carry_out(&mut self, number: u64, operation: &Operation) -> Result<(), String> {
        let now = time_of(number);
        let Some(subject) = &mut self.subject else { return Err("the file system is closed".to_owned()) };
        subject.set_time(now);
        let outcome = subject.carry_out(&self.model, operation)?;
        self.totals.histogram.count(operation.kind(), outcome.is_ok());
        let touched = self.model.take_in(operation, now, &outcome).map_err(|error| error.to_string())?;
        subject.learn(&mut self.model, &touched).map_err(|error| error.to_string())
    }

    fn judge(&mut self) -> Result<(), String> {
        if self.plan.judges.check {
            both_check(&self.image)?;
        }
        self.totals.commits += 1;
        let every = self.plan.judges.compare_every;
        if every > 0 && self.totals.commits.is_multiple_of(every) { self.compare() } else { Ok(()) }
    }

    fn compare(&self) -> Result<(), String> {
        self.subject().compare(&self.model).map_err(|error| error.to_string())
    }

    fn close(&mut self) -> Result<(), String> {
        self.totals.add_registry(&self.registry);
        let subject = self.subject.take();
        subject.map_or(Ok(()), Subject::close).map_err(|error| format!("closing failed: {error}"))
    }

    /// The last commit and the last judges.
    ///
    /// # Errors
    /// What went wrong.
    pub fn finish(&mut self) -> Result<(), String> {
        let number = self.steps.last().map_or(0, |(number, _)| number + 1);
        self.step(number, Step::Reopen)?;
        self.close()?;
        if !self.plan.judges.kernel {
            return Ok(());
        }
        self.ask_kernel().map_err(|error| format!("the kernel does not agree: {error}"))?;
        self.step(number + 1, Step::Reopen)?;
        self.close()
    }

    /// The kernel mounts, walks and scrubs, and is silent about it.
    fn ask_kernel(&self) -> Result<(), String> {
        let text = |error: kernel::JudgeError| error.to_string();
        let mount = kernel::KernelMount::new(&self.image, "subvolid=5").map_err(text)?;
        let found = walk(mount.path(), &walk::Options::default()).map_err(|error| error.to_string())?;
        let (expected, placeholders) = self.model.walk();
        let found: Vec<_> = found.into_iter().filter(|entry| !placeholders.contains(&entry.path)).collect();
        walk::compare(&walk::render(&expected), &walk::render(&found)).map_err(|error| error.to_string())?;
        mount.scrub().map_err(text)?;
        mount.unmount().map_err(text)
    }
}

fn time_of(number: u64) -> (i64, u32) {
    (START + number as i64, (number % 1000) as u32 * 1_000_000)
}
