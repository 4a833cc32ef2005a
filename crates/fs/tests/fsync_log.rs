//! fsync: after a power cut the replay, ours and the kernel's, gives what was fsynced.

mod fsync_log_cases;
mod support;

use fsync_log_cases::{Case, Format};
use support::fsync_script::{Stage, base, remove_everything, replay, to_file};
use vlinder_base::sync::Mutex;
use vlinder_device::MemoryDevice;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::{Scratch, require};

fn recipe(format: Format, mount: &str) -> Recipe {
    let mut recipe = Recipe { device_bytes: 256 << 20, options: mount.to_owned(), ..Recipe::default() };
    match format {
        Format::Plain => {}
        Format::Holes => {
            (recipe.features.no_holes, recipe.features.block_group_tree) = (false, false);
        }
        Format::SmallNodes => recipe.node_size = 4096,
    }
    recipe
}

fn kernel_walk(image: &std::path::Path, options: &str) -> Result<String, String> {
    let mount = KernelMount::unchecked(image, options).map_err(|error| error.to_string())?;
    let entries = vlinder_testkit::walk::walk(mount.path(), &vlinder_testkit::walk::Options::default());
    Ok(vlinder_testkit::walk::render(&entries.map_err(|error| format!("{error:?}"))?))
}

/// What the kernel makes of a cut image: the same as we, and nothing to complain about.
fn judge_by_kernel(cut: &MemoryDevice, replayed: &MemoryDevice) -> Result<(), String> {
    // The images of all tests have one UUID, and the kernel mounts only one of a UUID at a time.
    static KERNEL: Mutex<()> = Mutex::new(());
    let _kernel = KERNEL.lock();
    let scratch = Scratch::in_memory("fsync-log");
    let (kernel, ours, emptied) = (scratch.join("kernel"), scratch.join("ours"), scratch.join("emptied"));
    to_file(cut, &kernel);
    to_file(replayed, &ours);
    let judge = |what: &str, image: &std::path::Path| {
        btrfs_check_data(image).map_err(|error| format!("{what}: {error}"))
    };
    judge("btrfs check after our replay", &ours)?;
    let by_kernel = kernel_walk(&kernel, "")?;
    judge("btrfs check after the kernel's replay", &kernel)?;
    let by_us = kernel_walk(&ours, "")?;
    if by_kernel != by_us {
        return Err(format!("the replays differ\nkernel:\n{by_kernel}ours:\n{by_us}"));
    }
    to_file(&remove_everything(replayed)?, &emptied);
    judge("btrfs check after removing everything", &emptied)
}

fn judge(case: &Case) -> Result<(), String> {
    let image = base(&recipe(case.format, case.mount), case.before);
    let mut stage = Stage::open(&image, case.mount);
    stage.run(case.after)?;
    let cut = stage.cut();
    let (view, replayed) = replay(&cut)?;
    let wrong = stage.judge(&view);
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    judge_by_kernel(&cut, &replayed)
}

/// Judges all cases of a group whose name has what `FSYNC_LOG_CASE` says, if that is set.
fn judge_all(cases: &[Case]) {
    let wanted = std::env::var("FSYNC_LOG_CASE").unwrap_or_default();
    let mut wrong = String::new();
    for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
        if let Err(text) = judge(case) {
            wrong += &format!("== {}\n{text}\n", case.name);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

macro_rules! groups {
    ($($name:ident: $cases:expr;)*) => {$(
        #[test]
        fn $name() {
            require!(KernelBtrfs, Tool("btrfs"));
            judge_all($cases);
        }
    )*};
}

groups! {
    content_of_files_is_as_it_was_fsynced: fsync_log_cases::FILES;
    attributes_are_as_they_were_fsynced: fsync_log_cases::ATTRIBUTES;
    links_are_as_they_were_fsynced: fsync_log_cases::LINKS;
    thousands_of_links_are_as_they_were_fsynced: fsync_log_cases::MANY_LINKS;
    renamed_files_are_where_they_were_fsynced: fsync_log_cases::RENAMES;
    directories_are_as_they_were_fsynced: fsync_log_cases::DIRECTORIES;
    logs_of_subvolumes_stand_beside_each_other: fsync_log_cases::SUBVOLUMES;
}

/// What every sequence starts from.
const SEQUENCES_BEFORE: &str =
    "mkdir A; mkdir B; mkdir A/C; write A/foo 0 16384 1; write B/foo 0 5000 2; touch A/C/baz";

/// The operations of the sequences, over a few names in two directories and one below.
const OPERATIONS: &[&str] = &[
    "write A/bar 0 5000 9",
    "mkdir B/C",
    "ln A/foo B/bar",
    "ln A/foo A/bar",
    "rm A/foo",
    "rm B/foo",
    "mv A/foo A/bar",
    "mv A/foo B/bar",
    "mv A/foo B/foo",
    "mv A/C B/C",
    "mv B A/C/B",
    "mv A D",
    "exchange A/foo B/foo",
    "write A/foo 4096 8192 3",
    "write A/foo 16384 5000 4",
    "truncate A/foo 3000",
    "punch A/foo 4096 6000",
    "falloc-keep A/foo 16384 8192",
    "clone A/foo 0 B/foo 8192 8192",
    "symlink target A/bar",
    "setfattr A/foo user.a 5",
    "rmdir B/C",
];

/// What is fsynced, where it is there.
const TARGETS: &[&str] = &[".", "A", "B", "A/C", "B/C", "D", "A/foo", "B/foo", "A/bar", "B/bar", "D/foo"];

/// Runs operations, each of which may be refused, an fsync between them if one is given, and one at the end; then the cut.
/// None where the last fsync has nothing to do, or commits.
fn sequence(
    image: &MemoryDevice,
    operations: &[&str],
    between: Option<&str>,
    target: &str,
) -> Option<Result<(), String>> {
    let mut stage = Stage::open(image, "");
    for (number, operation) in operations.iter().enumerate() {
        stage.run(&format!("?{operation}")).unwrap();
        if number == 0
            && let Some(between) = between
        {
            stage.sync_any(between);
        }
    }
    if !stage.sync_any(target) {
        return None;
    }
    let cut = stage.cut();
    Some(replay(&cut).and_then(|(view, replayed)| {
        let wrong = stage.judge(&view);
        if !wrong.is_empty() {
            return Err(wrong.join("\n"));
        }
        let emptied = remove_everything(&replayed)?;
        for image in [&replayed, &emptied] {
            support::check(image)?;
        }
        Ok(())
    }))
}

/// A sequence in words.
fn told(operations: &[&str], between: Option<&str>, target: &str) -> String {
    format!("{operations:?}, fsync {between:?} after the first, fsync {target} at the end")
}

#[test]
fn every_sequence_of_one_or_two_operations_is_as_it_was_fsynced() {
    let image = base(&recipe(Format::Plain, ""), SEQUENCES_BEFORE);
    let share: usize = std::env::var("FSYNC_LOG_SHARE").map_or(40, |text| text.parse().unwrap());
    let (mut wrong, mut judged, mut number) = (Vec::new(), 0, 0);
    for first in OPERATIONS {
        for second in std::iter::once(&"").chain(OPERATIONS) {
            let operations: Vec<&str> = [*first, *second].into_iter().filter(|one| !one.is_empty()).collect();
            for target in TARGETS {
                for between in std::iter::once(None).chain(TARGETS.iter().map(|one| Some(*one))) {
                    number += 1;
                    // All of one operation or without an fsync between two; a share of the rest.
                    if between.is_some() && (operations.len() == 1 || number % share != 0) {
                        continue;
                    }
                    match sequence(&image, &operations, between, target) {
                        Some(Err(error)) => {
                            wrong.push(format!("{}\n{error}", told(&operations, between, target)))
                        }
                        Some(Ok(())) => judged += 1,
                        None => {}
                    }
                }
            }
        }
    }
    println!("{judged} sequences");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        judged + wrong.len(),
        wrong[..wrong.len().min(12)].join("\n\n")
    );
    assert!(judged > 1500, "only {judged} sequences ended in a log");
}

/// Longer sequences, sampled, with several fsyncs; a share is judged by the kernel, too.
#[test]
fn longer_sequences_are_as_they_were_fsynced() {
    use vlinder_base::random::{Random, SeededRandom};
    require!(KernelBtrfs, Tool("btrfs"));
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (first, count) = (number("FSYNC_LOG_SEED", 1), number("FSYNC_LOG_SEEDS", 300));
    let formats = [Format::Plain, Format::Holes, Format::SmallNodes];
    let images = formats.map(|format| base(&recipe(format, ""), SEQUENCES_BEFORE));
    let mut logs = 0;
    for seed in first..first + count {
        let random = SeededRandom::new(seed);
        let below = |most: usize| (random.next_u64() % most as u64) as usize;
        let mut stage = Stage::open(&images[below(3)], "");
        let mut script = Vec::new();
        for _ in 0..3 + below(8) {
            if below(3) == 0 {
                let target = TARGETS[below(TARGETS.len())];
                stage.sync_any(target);
                script.push(format!("fsync {target}"));
            } else {
                let operation = OPERATIONS[below(OPERATIONS.len())];
                stage.run(&format!("?{operation}")).unwrap();
                script.push(operation.to_owned());
            }
        }
        for _ in 0..20 {
            let target = TARGETS[below(TARGETS.len())];
            if stage.sync_any(target) {
                script.push(format!("fsync {target}"));
                break;
            }
        }
        if stage.ended_in_log().is_err() {
            continue;
        }
        logs += 1;
        let cut = stage.cut();
        let judged = replay(&cut).and_then(|(view, replayed)| {
            let wrong = stage.judge(&view);
            if !wrong.is_empty() {
                return Err(wrong.join("\n"));
            }
            if seed % 5 == 0 { judge_by_kernel(&cut, &replayed) } else { support::check(&replayed) }
        });
        if let Err(error) = judged {
            panic!("seed {seed}: {}\n{error}", script.join("; "));
        }
    }
    println!("{logs} logs of {count} sequences");
    assert!(logs > count / 2, "only {logs} of {count} ended in a log");
}
