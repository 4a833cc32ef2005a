//! `make matrix MINUTES=n`: images by the kernel in which every two properties meet, each judged (see
//! [`vlinder_testkit::matrix`]). Prints that all pairs are covered but for the impossible ones, which it
//! lists.
//!
//! `SEED` chooses the array and the order (default 1), `ORDER` another order, `MINUTES` how long to go on
//! (default: to the end), `ONLY` rows whose text contains it, `SHORT=1` leaves out those that take minutes,
//! `JOBS` how many at a time. Results stand in `target/matrix/seed-N.tsv`; a row that passed is not run again
//! unless `AGAIN=1`. `REPORT=FILE` writes them as a table. Exit status 1 if a row failed. A log that Linux
//! itself fails to replay is told of, and counts as neither.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::random::SeededRandom;
use vlinder_base::sync::atomic::{AtomicUsize, Ordering};
use vlinder_base::sync::{Mutex, RwLock};
use vlinder_base::thread;
use vlinder_testkit::Scratch;
use vlinder_testkit::long_run::{number, results};
use vlinder_testkit::matrix::judge::judge;
use vlinder_testkit::matrix::make::make;
use vlinder_testkit::matrix::{Coverage, FACTORS, IMPOSSIBLE, MatrixRecipe, Row, Space, shuffle};
use vlinder_testkit::require::Requirement;

const TOOLS: &[&str] = &["btrfs", "mkfs.btrfs", "xfs_io", "setfattr", "setfacl", "chattr", "perl", "losetup"];

/// The state whose rows take minutes, which `btrfs check` spends on 64K names of one inode.
const LONG_STATE: &str = "links";

/// What Linux 6.18 says where its own replay of a log gives up (`process_one_buffer`, on mixed groups): there
/// is nothing to compare a walk with.
const KERNEL_GIVES_UP: &str = "at fs/btrfs/tree-log.c:";

/// Whether a row is one of those where Linux may say that.
fn may_alarm(recipe: &MatrixRecipe) -> bool {
    recipe.state == "dirty-log" && recipe.profile().is_mixed
}

/// The line of the kernel's log that says so, if that is why a row could not be made.
fn kernel_gives_up(recipe: &MatrixRecipe, error: &str) -> Option<String> {
    let is_replay = may_alarm(recipe) && error.contains("errno=-22");
    let line = error.lines().find(|line| line.starts_with("WARNING:") && line.contains(KERNEL_GIVES_UP))?;
    is_replay.then(|| line.to_owned())
}

/// How a row ended.
#[derive(Clone)]
struct Outcome {
    seconds: f64,
    entries: usize,
    /// `written`, or why only read.
    note: String,
}

/// Rows that passed, by their text.
fn passed(file: &Path) -> BTreeMap<String, Outcome> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [recipe, seconds, entries, note] = fields.as_slice() else { return None };
        let (seconds, entries) = (seconds.parse().ok()?, entries.parse().ok()?);
        Some(((*recipe).to_owned(), Outcome { seconds, entries, note: (*note).to_owned() }))
    });
    rows.collect()
}

fn save(file: &Path, rows: &BTreeMap<String, Outcome>) {
    let line = |(recipe, Outcome { seconds, entries, note }): (&String, &Outcome)| {
        format!("{recipe}\t{seconds:.1}\t{entries}\t{note}\n")
    };
    let text: String = rows.iter().map(line).collect();
    if let Err(error) = std::fs::write(file, text) {
        println!("{}: {error}; the next run begins anew", file.display());
    }
}

fn run(recipe: &MatrixRecipe, seed: u64, clock: &SystemClock) -> Result<Outcome, String> {
    let start = clock.monotonic();
    let scratch = Scratch::in_memory("matrix");
    let made = make(recipe, scratch.path(), seed).map_err(|error| format!("can't be made: {error}"))?;
    let verdict = judge(recipe, &made)?;
    let note = verdict.only_read.map_or_else(|| "written".to_owned(), |reason| format!("read: {reason}"));
    Ok(Outcome { seconds: (clock.monotonic() - start).as_secs_f64(), entries: verdict.entries, note })
}

fn tell_coverage(rows: &[Row], coverage: Coverage) -> String {
    let mut text = format!(
        "{} images cover {} of {} pairs of values; the other {} are impossible:\n",
        rows.len(),
        coverage.covered,
        coverage.pairs,
        coverage.impossible
    );
    for pair in IMPOSSIBLE {
        let _ = writeln!(
            text,
            "- {} {} with {} {}: {}",
            pair.one.0, pair.one.1, pair.other.0, pair.other.1, pair.why
        );
    }
    text
}

/// What a run came to, with those before it.
struct Results {
    seed: u64,
    /// What is covered, in words.
    coverage: String,
    /// The texts of all rows.
    all: Vec<String>,
    done: BTreeMap<String, Outcome>,
    failed: Vec<String>,
    given_up: Vec<(String, String)>,
}

fn report(path: &Path, results: &Results) -> std::io::Result<()> {
    let Results { seed, coverage, all, done: rows, failed, given_up } = results;
    let mut text = String::from(
        "# The matrix\n\nMade by `make matrix REPORT=FILE` (as root): images by the kernel, each walked by the kernel and by vlinder with the \
         same result, judged clean by `vlinder check` and `btrfs check`, and, where the last column says *written*, then changed by \
         vlinder, judged again, mounted by the kernel with the same options and a silent log, walked equal, changed by the kernel, scrubbed and \
         judged once more. How is told in [testing](design/testing.md).\n\n",
    );
    let seconds: f64 = rows.values().map(|one| one.seconds).sum();
    let written = rows.values().filter(|one| one.note == "written").count();
    let _ = writeln!(
        text,
        "Seed {seed}: {} passed, {written} of them written to; {seconds:.0} s of work in all. {coverage}",
        rows.len()
    );
    let is_known = |recipe: &&String| {
        rows.contains_key(*recipe)
            || failed.contains(*recipe)
            || given_up.iter().any(|(known, _)| known == *recipe)
    };
    let not_run: Vec<String> = all.iter().filter(|recipe| !is_known(recipe)).cloned().collect();
    for (what, list) in [("Failed in this run:", failed), ("Not run to their end:", &not_run)] {
        if !list.is_empty() {
            let _ = writeln!(text, "{what}");
            list.iter().for_each(|recipe| text.push_str(&format!("- {recipe}\n")));
            text.push('\n');
        }
    }
    if !given_up.is_empty() {
        let _ = writeln!(
            text,
            "Linux does not replay the log that it left itself, so that there is no walk to compare with:"
        );
        given_up.iter().for_each(|(recipe, line)| text.push_str(&format!("- {recipe}: `{line}`\n")));
        text.push('\n');
    }
    text.push_str("| image | entries | s | |\n|---|---|---|---|\n");
    for (recipe, Outcome { seconds, entries, note }) in rows {
        let _ = writeln!(text, "| {recipe} | {entries} | {seconds:.1} | {note} |");
    }
    std::fs::write(path, text)
}

/// What the workers share.
struct Work {
    recipes: Vec<MatrixRecipe>,
    next: AtomicUsize,
    seed: u64,
    end: Option<Duration>,
    file: PathBuf,
    done: Mutex<BTreeMap<String, Outcome>>,
    failed: Mutex<Vec<String>>,
    /// Rows whose log Linux does not replay, with what it says.
    given_up: Mutex<Vec<(String, String)>>,
    /// Written by a row that may raise an alarm: the kernel's names no device, and would be taken for the
    /// neighbour's.
    alone: RwLock<()>,
    clock: SystemClock,
}

impl Work {
    fn go_on(&self) {
        loop {
            let position = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(recipe) = self.recipes.get(position) else { return };
            if self.end.is_some_and(|end| self.clock.monotonic() >= end) {
                return;
            }
            let text = recipe.to_string();
            let outcome = if may_alarm(recipe) {
                let _alone = self.alone.write();
                run(recipe, self.seed.wrapping_add(position as u64), &self.clock)
            } else {
                let _beside = self.alone.read();
                run(recipe, self.seed.wrapping_add(position as u64), &self.clock)
            };
            match outcome {
                Ok(outcome) => {
                    println!(
                        "passed in {:.1} s: {text}: {} entries, {}",
                        outcome.seconds, outcome.entries, outcome.note
                    );
                    let mut done = self.done.lock();
                    done.insert(text, outcome);
                    save(&self.file, &done);
                }
                Err(error) => match kernel_gives_up(recipe, &error) {
                    Some(line) => {
                        println!("Linux does not replay its own log: {text}\n{line}");
                        self.given_up.lock().push((text, line));
                    }
                    None => {
                        println!("FAILED: {text}\n{error}");
                        self.failed.lock().push(text);
                    }
                },
            }
        }
    }
}

/// The rows that this run is about; without those that take minutes where it is a short one.
fn chosen(
    space: &Space,
    rows: &[Row],
    done: &BTreeMap<String, Outcome>,
    is_short: bool,
) -> Vec<MatrixRecipe> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let is_chosen = |recipe: &MatrixRecipe| {
        let text = recipe.to_string();
        text.contains(&only) && !done.contains_key(&text) && !(is_short && recipe.state == LONG_STATE)
    };
    rows.iter().map(|row| MatrixRecipe::of(space, row)).filter(is_chosen).collect()
}

fn main() -> ExitCode {
    match matrix() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// The whole run; whether no row failed.
fn matrix() -> Result<bool, String> {
    let seed = number("SEED")?.unwrap_or(1);
    let order = number("ORDER")?.unwrap_or(seed);
    let minutes = number("MINUTES")?;
    let jobs = number("JOBS")?.unwrap_or(2).max(1);
    let (runs_again, is_short) = (number("AGAIN")?.is_some(), number("SHORT")?.is_some());
    let tools = TOOLS.iter().map(|name| Requirement::Tool(name));
    let missing: Vec<String> = std::iter::once(Requirement::KernelBtrfs)
        .chain(tools)
        .filter(|one| !one.is_met())
        .map(|one| one.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(format!("the matrix {}", missing.join(", ")));
    }
    let space = Space::new(FACTORS, IMPOSSIBLE);
    let mut rows = space.cover(seed);
    let coverage = space.coverage(&rows);
    let told = tell_coverage(&rows, coverage);
    println!("{told}");
    if !coverage.is_complete() {
        return Err("not all pairs are covered".to_owned());
    }
    shuffle(&mut rows, &SeededRandom::new(order));
    let file = results("matrix")?.join(format!("seed-{seed}.tsv"));
    let done = if runs_again { BTreeMap::new() } else { passed(&file) };
    let recipes = chosen(&space, &rows, &done, is_short);
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let end = minutes.map(|minutes| start.saturating_add(Duration::from_secs(minutes.saturating_mul(60))));
    let work = Work {
        recipes,
        next: AtomicUsize::new(0),
        seed,
        end,
        file,
        done: Mutex::new(done),
        failed: Mutex::default(),
        given_up: Mutex::default(),
        alone: RwLock::default(),
        clock,
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| work.go_on());
        }
    });
    let results = Results {
        seed,
        coverage: told,
        all: rows.iter().map(|row| MatrixRecipe::of(&space, row).to_string()).collect(),
        done: work.done.into_inner(),
        failed: work.failed.into_inner(),
        given_up: work.given_up.into_inner(),
    };
    let seconds = (work.clock.monotonic() - start).as_secs();
    println!(
        "{} of {} images passed (seed {seed}), {} failed, of {} Linux does not replay its own log; this run took {seconds} s",
        results.done.len(),
        results.all.len(),
        results.failed.len(),
        results.given_up.len()
    );
    if let Some(path) = std::env::var_os("REPORT").filter(|path| !path.is_empty())
        && let Err(error) = report(Path::new(&path), &results)
    {
        return Err(format!("{}: {error}", Path::new(&path).display()));
    }
    Ok(results.failed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_own_replay_of_mixed_groups_excuses_a_row() {
        let space = Space::new(FACTORS, IMPOSSIBLE);
        let recipes: Vec<MatrixRecipe> =
            space.cover(1).iter().map(|row| MatrixRecipe::of(&space, row)).collect();
        let find = |profiles: &str, state: &str| {
            recipes.iter().find(|one| one.profiles == profiles && one.state == state).unwrap()
        };
        let line = "WARNING: CPU: 0 PID: 9 at fs/btrfs/tree-log.c:463 process_one_buffer+0x2ef/0x300";
        let error =
            format!("can't be made: mount failed\n{line}\nBTRFS: error in process_one_buffer:463: errno=-22");
        assert_eq!(kernel_gives_up(find("mixed-dup", "dirty-log"), &error).as_deref(), Some(line));
        assert_eq!(kernel_gives_up(find("single/dup", "dirty-log"), &error), None);
        assert_eq!(kernel_gives_up(find("mixed-dup", "aged"), &error), None);
        assert_eq!(kernel_gives_up(find("mixed-dup", "dirty-log"), "vlinder walks otherwise"), None);
    }
}
