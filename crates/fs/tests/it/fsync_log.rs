//! fsync: after a power cut the replay, ours and the kernel's, gives what was fsynced.

use std::borrow::Cow;

use crate::fsync_log_cases::{self, Case, Format};
use crate::support;
use crate::support::fsync_script::{Stage, base, remove_everything, replay, to_file};
use vlinder_base::sync::Mutex;
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::superblock::Superblock;
use vlinder_fs::Caller;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::power_cut::{CutOptions, PowerCuts};
use vlinder_testkit::simulated::Recording;
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
    "mv A/C/baz B/baz; ?rmdir A/C",
    "rm A/C/baz; ?rmdir A/C",
    "rm A/foo; ?rmdir A",
    "mv A/foo B/bar; ?rmdir A",
];

/// Operations beside a subvolume, for longer sequences.
const SUBVOLUME_OPERATIONS: &[&str] =
    &["delete A/C/S; ?rm A/C/baz; ?rmdir A/C", "mv A/C/S B/S", "exchange A/C/S A/foo", "subvolume B/S"];

/// What is fsynced, where it is there.
const TARGETS: &[&str] = &[".", "A", "B", "A/C", "B/C", "D", "A/foo", "B/foo", "A/bar", "B/bar", "D/foo"];

/// Runs operations, each of which may be refused, an fsync between them if one is given, and one at the end;
/// then the cut. None where the last fsync has nothing to do, or commits.
fn sequence(
    image: &MemoryDevice,
    operations: &[&str],
    between: Option<&str>,
    target: &str,
) -> Option<Result<(), String>> {
    let mut stage = Stage::open(image, "flushoncommit");
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
    require!(LongRun);
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
    let with_subvolume = format!("{SEQUENCES_BEFORE}; subvolume A/C/S");
    let images = [SEQUENCES_BEFORE, &with_subvolume]
        .map(|before| formats.map(|format| base(&recipe(format, ""), before)))
        .concat();
    let operations = [OPERATIONS, SUBVOLUME_OPERATIONS].concat();
    let mut logs = 0;
    for seed in first..first + count {
        let random = SeededRandom::new(seed);
        let below = |most: usize| (random.next_u64() % most as u64) as usize;
        // An fsync that commits leaves what was written and not fsynced unless it is told so.
        let mut stage = Stage::open(&images[below(6)], "flushoncommit");
        let mut script = Vec::new();
        for _ in 0..3 + below(8) {
            if below(3) == 0 {
                let target = TARGETS[below(TARGETS.len())];
                stage.sync_any(target);
                script.push(format!("fsync {target}"));
            } else {
                let operation = operations[below(operations.len())];
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

/// Small work with fsyncs of every kind, and what is committed before.
const SMALL_WORK: [(&str, &str); 3] = [
    (
        "mkdir A; write A/foo 0 16384 1; touch A/bar",
        "write A/foo 4096 4096 2; fsync A/foo; mv A/bar bar; write new 0 9000 3; fsync new; ln new A/new; rm bar; fsync A",
    ),
    (
        "mkdir A; mkdir B; write A/foo 0 4096 1",
        "write A/foo.new 0 5000 2; fsync A/foo.new; mv A/foo.new A/foo; fsync A; mv A/foo B/foo; fsync B/foo; write A/foo 0 100 5; fsync A/foo",
    ),
    (
        "subvolume S; write S/foo 0 8192 1; write foo 0 8192 2",
        "write S/foo 0 4096 3; fsync S/foo; truncate foo 3000; fsync foo; punch S/foo 4096 4096; fsync S/foo; sync; write foo 0 10 6",
    ),
];

/// Runs small work; each fsync that has ended is a mark in the record.
fn recorded(before: &str, after: &str) -> Stage {
    let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), before), "");
    for command in after.split(';') {
        stage.run(command).unwrap();
        if command.trim().starts_with("fsync") {
            stage.device.mark(stage.fsyncs.len() as u64);
        }
    }
    stage
}

/// Judges the states that cuts leave; gives how many there are.
fn judge_cuts(stage: &Stage, recording: &Recording, options: CutOptions) -> Result<u64, String> {
    let mut cuts = PowerCuts::new(recording, options);
    for cut in cuts.by_ref() {
        let promised = usize::try_from(cut.mark.unwrap_or_default()).unwrap();
        let judged = replay(&cut.image).and_then(|(view, replayed)| {
            let wrong = stage.judge_first(&view, promised);
            if wrong.is_empty() { support::check(&replayed) } else { Err(wrong.join("\n")) }
        });
        judged.map_err(|error| format!("{}\n{error}", cut.description))?;
    }
    Ok(cuts.summary().distinct_images)
}

#[test]
fn a_cut_at_every_write_of_an_fsync_leaves_what_was_promised() {
    for (before, after) in SMALL_WORK {
        let stage = recorded(before, after);
        let options = CutOptions { samples: 6, ..CutOptions::default() };
        match judge_cuts(&stage, &stage.device.recording(), options) {
            Ok(states) => assert!(states > 30, "only {states} states"),
            Err(error) => panic!("{after}: {error}"),
        }
    }
}

#[test]
fn every_flush_of_an_fsync_and_its_superblock_are_needed() {
    let (before, after) = SMALL_WORK[0];
    let stage = recorded(before, after);
    let recording = stage.device.recording();
    let options = || CutOptions { samples: 6, torn: 0, ..CutOptions::default() };
    assert_eq!(recording.flushes(), 3, "one for each fsync");
    for number in 0..recording.flushes() {
        let left_out = judge_cuts(&stage, &recording.without_flush(number), options());
        assert!(left_out.is_err(), "flush {number} is not missed");
    }
    let cached = judge_cuts(&stage, &recording.without_durable_writes(), options());
    assert!(cached.is_err(), "the durable superblock is not missed");
}

#[test]
fn after_a_failed_fsync_no_later_one_reports_what_is_lost() {
    use vlinder_device::{DeviceErrorKind, Operation};
    use vlinder_testkit::simulated::Repeat;
    let (before, after) = SMALL_WORK[0];
    let image = base(&recipe(Format::Plain, ""), before);
    for operation in [Operation::Write, Operation::Flush] {
        for repeat in [Repeat::Once, Repeat::Sticky] {
            for number in 0..60 {
                let mut stage = Stage::open(&image, "");
                stage.device.fail_at(Some(operation), number, repeat, DeviceErrorKind::Io { errno: 5 });
                let mut failed = false;
                for command in after.split(';').map(str::trim) {
                    match command.strip_prefix("fsync ") {
                        Some(path) => failed |= !stage.try_sync(path),
                        None => stage.run(&format!("?{command}")).unwrap(),
                    }
                }
                stage.device.heal();
                let (view, _) = replay(&stage.cut())
                    .unwrap_or_else(|error| panic!("{operation:?} {number} {repeat:?}: {error}"));
                let wrong = stage.judge_first(&view, stage.fsyncs.len());
                assert!(wrong.is_empty(), "{operation:?} {number} {repeat:?}: {}", wrong.join("\n"));
                if !failed {
                    break;
                }
            }
        }
    }
}

fn counter(stage: &Stage, name: &'static str) -> u64 {
    use vlinder_base::metrics::Unit;
    stage.filesystem.engine().registry().counter(name, "", Unit::Count).get()
}

#[test]
fn fsyncs_at_the_same_time_ride_with_one_another() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 12;
    let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), "mkdir A"), "");
    let filesystem = &stage.filesystem;
    let directory =
        filesystem.names().lookup(&support::root_user(), &filesystem.root().unwrap(), b"A").unwrap();
    let work = |thread: u64| {
        for round in 0..ROUNDS {
            let name = format!("{thread}-{round}");
            let caller = support::root_user();
            let file = filesystem.names().create_file(&caller, &directory, name.as_bytes(), 0o644).unwrap();
            let bytes = vec![thread as u8 + 1; 5000];
            filesystem.files().write_at(&caller, &file, 0, bytes.into()).unwrap();
            filesystem.maintenance().sync_inode(&file).unwrap();
        }
    };
    vlinder_base::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
    stage.ended_in_log().unwrap();
    stage.history = vec![support::fsync_script::View::of(&stage.filesystem)];
    let (syncs, writes, rides) = (
        counter(&stage, "fsync_log.syncs"),
        counter(&stage, "fsync_log.writes"),
        counter(&stage, "fsync_log.rides"),
    );
    println!("{syncs} fsyncs, {writes} written, {rides} rode");
    assert_eq!((syncs, counter(&stage, "fsync_log.full_commits")), (THREADS * ROUNDS, 0));
    assert_eq!(writes + rides, syncs);
    let (view, replayed) = replay(&stage.cut()).unwrap();
    assert_eq!(view.names, stage.history[0].names);
    let content = |view: &support::fsync_script::View| -> Vec<_> {
        view.inodes.iter().map(|(number, seen)| (*number, seen.content.clone())).collect()
    };
    assert_eq!(content(&view), content(&stage.history[0]));
    support::check(&replayed).unwrap();
}

#[test]
fn on_a_full_disk_what_was_fsynced_is_there() {
    require!(LongRun);
    let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), "mkdir A"), "");
    stage.is_watched = false;
    let mut synced = Vec::new();
    for number in 0..400 {
        let path = format!("A/{number}");
        let written = stage.run(&format!("write {path} 0 1048576 {}", number % 250 + 1));
        if written.is_err() || !stage.try_sync(&path) {
            break;
        }
        synced.push((path, (number % 250 + 1) as u8));
    }
    assert!(synced.len() > 100 && synced.len() < 400, "{} files fitted", synced.len());
    assert!(counter(&stage, "fsync_log.full_commits_new_chunk") > 0);
    let cut = stage.cut();
    let (_, replayed) = replay(&cut).unwrap();
    let after = Stage::open(&replayed, "");
    for (path, byte) in &synced {
        assert!(after.content(path).is_some_and(|content| content == vec![*byte; 1 << 20]), "{path}");
    }
    support::check(&replayed).unwrap();
}

/// Of the last commit are its attributes; that a name is all that it lacks is no reason to log it without the
/// rest.
#[test]
fn a_committed_temporary_file_gets_its_name_as_fsynced() {
    require!(KernelBtrfs, Tool("btrfs"));
    let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), ""), "");
    stage.run("tmpfile . held; write held 0 8192 1; setfattr held user.a 1; sync").unwrap();
    // The history begins at that commit.
    assert!(!stage.sync_any("held"));
    stage.run("chmod held 600").unwrap();
    assert!(stage.sync_any("held"));
    stage.run("ln held foo").unwrap();
    assert!(stage.sync_any("."));
    judge_cut(&stage);
    assert!(stage.sync_any("foo"));
    judge_cut(&stage);
}

/// With the data of the fsync that it had without a name, and no later ones.
#[test]
fn a_new_temporary_file_gets_its_name_as_fsynced() {
    require!(KernelBtrfs, Tool("btrfs"));
    let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), "mkdir A"), "");
    stage.run("tmpfile . held; write held 0 8192 1; setfattr held user.a 1; chmod held 640").unwrap();
    assert!(stage.sync_any("held"));
    stage.run("chmod held 600; write held 0 10 2; ln held A/foo").unwrap();
    assert!(stage.sync_any("A"));
    let cut = stage.cut();
    judge_cut(&stage);
    let after = Stage::open(&replay(&cut).unwrap().1, "");
    assert_eq!(after.content("A/foo"), Some(vec![1; 8192]));
    let (_, seen) = after.history[0].inodes.iter().find(|(_, seen)| !seen.xattrs.is_empty()).unwrap();
    assert_eq!((seen.mode & 0o777, seen.xattrs.len()), (0o640, 1));
}

/// What the last cut leaves is as promised, to us and to the kernel.
fn judge_cut(stage: &Stage) {
    let cut = stage.cut();
    let (view, replayed) = replay(&cut).unwrap();
    assert_eq!(stage.judge(&view), [""; 0]);
    judge_by_kernel(&cut, &replayed).unwrap();
}

/// The superblock that names a log is that of the commit before.
#[test]
fn a_compression_that_only_the_log_knows_is_noted_by_the_replay() {
    use vlinder_format::features::IncompatFeatures;
    for (algorithm, feature) in
        [("lzo", IncompatFeatures::COMPRESS_LZO), ("zstd", IncompatFeatures::COMPRESS_ZSTD)]
    {
        // As an attribute, and as the extents of a file that has it no more.
        for after in ["", "write foo 0 65536 1; flush foo; setfattr foo btrfs.compression no;"] {
            let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), "touch foo"), "");
            stage.run(&format!("setfattr foo btrfs.compression {algorithm}; {after} fsync foo")).unwrap();
            let cut = stage.cut();
            let noted = |image: &MemoryDevice| {
                let bytes = image.read_at(vlinder_base::units::Physical(64 << 10), 4096).unwrap();
                Superblock::decode(&bytes).unwrap().incompat.has(feature)
            };
            assert!(!noted(&cut), "{algorithm} {after}");
            assert!(noted(&replay(&cut).unwrap().1), "{algorithm} {after}");
        }
    }
}

#[test]
fn full_commits_are_counted_by_their_reason() {
    for (before, after, reason) in [
        ("", "subvolume S; touch S/foo; commit-fsync S/foo", "fsync_log.full_commits_subvolume"),
        ("mkdir A; subvolume A/S", "delete A/S; commit-fsync A", "fsync_log.full_commits_subvolume_name"),
        (
            "subvolume S",
            "delete S; mkdir S; touch S/f; commit-fsync S/f",
            "fsync_log.full_commits_subvolume_name",
        ),
        ("subvolume S; mkdir A", "exchange A S; commit-fsync S", "fsync_log.full_commits_subvolume_name"),
        ("mkdir A; touch A/f", "mv A/f f; rmdir A; commit-fsync f", "fsync_log.full_commits_directory_gone"),
    ] {
        let mut stage = Stage::open(&base(&recipe(Format::Plain, ""), before), "");
        stage.run(after).unwrap();
        assert_eq!((counter(&stage, "fsync_log.full_commits"), counter(&stage, reason)), (1, 1), "{reason}");
    }
}

#[test]
fn many_fsyncs_take_no_chunk_that_data_could_have_had() {
    require!(LongRun);
    let image = base(&Recipe { device_bytes: 512 << 20, ..Recipe::default() }, "");
    let stage = Stage::open(&image, "commit=300");
    let filesystem = &stage.filesystem;
    let metadata = || {
        let groups = filesystem.engine().space().unwrap().kinds;
        let of_metadata = groups.iter().filter(|kind| kind.flags.has(BlockGroupFlags::METADATA));
        of_metadata.map(|kind| kind.total_bytes).sum::<u64>()
    };
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    let file = filesystem.names().create_file(&caller, &root, b"file", 0o644).unwrap();
    filesystem.sync().unwrap();
    let before = metadata();
    for _ in 0..4000 {
        filesystem.files().append(&caller, &file, Cow::Borrowed(&[1; 8192])).unwrap();
        filesystem.maintenance().sync_inode(&file).unwrap();
    }
    assert_eq!(metadata(), before);
    assert!(counter(&stage, "fsync_log.full_commits_no_space") > 0);
}
