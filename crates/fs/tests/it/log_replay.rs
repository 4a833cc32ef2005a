//! The fsync log of Linux: the kernel makes logs, and replays a copy of each; ours must end with the same
//! trees.
//!
//! A case is two scripts, run in a mount of the kernel's with a commit between them; the second ends with
//! fsyncs. Then the image is copied under the mount, as a power cut would leave it. One copy the kernel
//! replays, one is ours.

use std::collections::BTreeMap;
use std::path::Path;

use crate::log_replay_cases::{self, Case, Outcome};
use crate::support;
use crate::support::log_maker::{copy, has_log, make_log, run};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::directory::{DirectoryEntries, DirectoryEntry};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{InodeItem, Timestamp};
use vlinder_format::quota::{QuotaStatus, QuotaStatusFlags};
use vlinder_format::root_item::RootItem;
use vlinder_format::{Generation, ItemType, Key, Logical, RootId};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::subject::own_check_all;
use vlinder_testkit::{Scratch, require};
use vlinder_tree::Readahead;

/// How often a log is tried for.
const TRIES: usize = 3;

/// All items of all subvolumes and all checksums, as text that leaves out generations, transaction numbers
/// and the times of the replay.
fn items(image: &Path, replay_begins: Timestamp) -> BTreeMap<(u64, Key), String> {
    let filesystem = Filesystem::open(&[image], OpenOptions::read_only()).unwrap();
    let engine = filesystem.engine();
    let mut roots = Vec::new();
    let mut cursor =
        engine.forest().trees().cursor(engine.forest().root_tree(), &Key::MIN, Readahead::None).unwrap();
    while let Some((key, data)) = cursor.item() {
        let is_subvolume = key.item_type == ItemType::ROOT_ITEM && RootId(key.objectid.0).is_subvolume();
        // A deleted one goes in the background, here and in the kernel, at any time after the replay.
        if is_subvolume && !RootItem::decode(data).unwrap().is_deleted() {
            roots.push(RootId(key.objectid.0));
        }
        cursor.advance().unwrap();
    }
    let mut all = BTreeMap::new();
    for id in roots {
        let tree = engine.tree(id).unwrap();
        let mut cursor = engine.forest().trees().cursor(tree.root(), &Key::MIN, Readahead::None).unwrap();
        while let Some((key, data)) = cursor.item() {
            all.insert((id.0, key), show(&key, data, replay_begins));
            cursor.advance().unwrap();
        }
    }
    let geometry = engine.checksum_geometry();
    let tree = engine.tree(RootId::CHECKSUM_TREE).unwrap();
    let mut cursor = engine.forest().trees().cursor(tree.root(), &Key::MIN, Readahead::None).unwrap();
    while let Some((key, data)) = cursor.item() {
        let bytes = data.len() / usize::try_from(geometry.covered(data.len()) / 4096).unwrap();
        for (sector, sum) in data.chunks(bytes).enumerate() {
            let address = Logical(key.offset + 4096 * sector as u64);
            all.insert((RootId::CHECKSUM_TREE.0, ChecksumGeometry::key(address)), format!("{sum:x?}"));
        }
        cursor.advance().unwrap();
    }
    all
}

fn show(key: &Key, data: &[u8], replay_begins: Timestamp) -> String {
    match key.item_type {
        ItemType::INODE_ITEM => {
            let mut item = InodeItem::decode(data).unwrap();
            item.generation = Generation(0);
            item.transaction = Generation(0);
            if (item.change_time.seconds, item.change_time.nanoseconds)
                > (replay_begins.seconds, replay_begins.nanoseconds)
            {
                item.change_time = Timestamp { seconds: i64::MAX, nanoseconds: 0 };
            }
            format!("{item:?}")
        }
        ItemType::DIR_ITEM | ItemType::DIR_INDEX | ItemType::XATTR_ITEM => DirectoryEntries::new(data)
            .map(|entry| format!("{:?}", DirectoryEntry { transaction: Generation(0), ..entry.unwrap() }))
            .collect(),
        ItemType::EXTENT_DATA => {
            format!("{:?}", FileExtent { generation: Generation(0), ..FileExtent::decode(data).unwrap() })
        }
        _ => format!("{data:x?}"),
    }
}

fn differences(kernel: &BTreeMap<(u64, Key), String>, ours: &BTreeMap<(u64, Key), String>) -> String {
    let mut text = String::new();
    for (place, item) in kernel {
        match ours.get(place) {
            None => text += &format!("{place:?}: ours lacks {item}\n"),
            Some(other) if other != item => {
                text += &format!("{place:?}:\n  kernel {item}\n  ours   {other}\n");
            }
            Some(_) => {}
        }
    }
    for (place, item) in ours.iter().filter(|(place, _)| !kernel.contains_key(place)) {
        text += &format!("{place:?}: only ours has {item}\n");
    }
    text
}

/// What a reader sees of an image with a log: replayed in memory, the image unchanged.
fn walk_in_memory(cut: &Path) -> String {
    let before = std::fs::read(cut).unwrap();
    let filesystem = Filesystem::open(&[cut], OpenOptions::read_only()).unwrap();
    assert_eq!(filesystem.engine().read_only_reason(), Some(vlinder_transaction::ReadOnlyReason::Requested));
    let walk = support::walk(&filesystem);
    drop(filesystem);
    assert!(before == std::fs::read(cut).unwrap(), "reading changed the image");
    walk
}

fn kernel_walk(image: &Path) -> String {
    let mount = KernelMount::unchecked(image, "ro").unwrap();
    let options = vlinder_testkit::walk::Options { data_ranges: true, ..Default::default() };
    let entries = vlinder_testkit::walk::walk(mount.path(), &options).unwrap();
    vlinder_testkit::walk::render(&entries)
}

/// The kernel's log is silent about what we wrote: the next mount has nothing to replay.
fn kernel_is_silent(image: &Path) -> Result<(), String> {
    let mount = KernelMount::unchecked(image, "").map_err(|error| error.to_string())?;
    mount.unmount().map_err(|error| error.to_string())
}

/// Opens for writing, so that the log is replayed and orphans are deleted.
fn replay_ours(image: &Path) -> Result<String, String> {
    let filesystem = Filesystem::open(&[image], OpenOptions::default()).map_err(|error| error.to_string())?;
    if let Some(reason) = filesystem.engine().read_only_reason() {
        return Err(reason.to_string());
    }
    let walk = support::walk(&filesystem);
    filesystem.close().map_err(|error| error.to_string())?;
    Ok(walk)
}

/// Everything that is wrong about one case.
fn judge(case: &Case<'_>) -> Result<(), String> {
    let scratch = Scratch::in_memory("log-replay");
    let outcome_of = |cut: &Path| if has_log(cut) { Outcome::Log } else { Outcome::Commit };
    let (mut cut, mut replay_begins) = make_log(&scratch, case.mkfs, case.mount, case.before, case.after);
    for _ in 0..TRIES {
        if outcome_of(&cut) == Outcome::Log || case.outcome != Outcome::Log {
            break;
        }
        // Work that the kernel does in the background can make any fsync commit.
        (cut, replay_begins) = make_log(&scratch, case.mkfs, case.mount, case.before, case.after);
    }
    let outcome = outcome_of(&cut);
    if outcome != case.outcome && case.outcome != Outcome::Either {
        return Err(format!("fsync ended with a {outcome:?}\n"));
    }
    // What the kernel wrote is nothing to complain of.
    own_check_all(&[&cut])?;
    let (kernel, ours) = (scratch.join("kernel"), scratch.join("ours"));
    copy(&cut, &kernel);
    copy(&cut, &ours);
    {
        let mount = KernelMount::unchecked(&kernel, "noatime").map_err(|error| error.to_string())?;
        run(mount.path(), "find . -ls > /dev/null");
    }
    let walked = replay_ours(&ours)?;
    assert!(!has_log(&ours), "the log is still there");
    let mut wrong = String::new();
    if let Err(error) = btrfs_check_data(&ours) {
        wrong += &format!("{error}\n");
    }
    wrong += &differences(&items(&kernel, replay_begins), &items(&ours, replay_begins));
    if wrong.is_empty() && kernel_walk(&kernel) != kernel_walk(&ours) {
        wrong += "the walks differ\n";
    }
    if outcome == Outcome::Log && walk_in_memory(&cut) != walked {
        wrong += "a reader sees something else\n";
    }
    if wrong.is_empty()
        && let Err(error) = kernel_is_silent(&ours)
    {
        wrong += &error;
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Judges all cases of a group whose name has what `LOG_REPLAY_CASE` says, if that is set.
fn judge_all(cases: &[Case<'_>]) {
    let wanted = std::env::var("LOG_REPLAY_CASE").unwrap_or_default();
    let mut wrong = String::new();
    for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
        if let Err(text) = judge(case) {
            wrong += &format!("== {}\n{text}", case.name);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Some work over few names in few directories, in the words of the scripts; what is refused is refused.
fn random_work(random: &SeededRandom, operations: u64) -> String {
    let below = |most: u64| random.next_u64() % most;
    let directory = || ["A", "A/s", "B", "."][below(4) as usize];
    let name = || format!("{}/{}", directory(), ["f", "g", "h", "k", "l"][below(5) as usize]);
    let mut script = String::new();
    for number in 0..operations {
        let (one, other, place) = (name(), name(), below(40) * 1500);
        script += &match below(20) {
            0..3 => format!("write {one} {place} {} {}", 1 + below(30_000), below(250)),
            3 => format!("touch {one}"),
            4 => format!("rm -f {one}"),
            5 | 6 => format!("ln {one} {other}"),
            7 | 8 => format!("mv -T {one} {other}"),
            9 => format!("exchange {one} {other}"),
            10 => format!("mkdir {}", ["A/s", "A/f", "B/k", "B"][below(4) as usize]),
            11 => format!("rmdir {}", ["A/s", "A/f", "B/k", "B"][below(4) as usize]),
            12 => format!("truncate -c -s {place} {one}"),
            13 => format!("test -f {one} && io {one} 'fpunch {place} {}'", 1 + below(20_000)),
            14 => format!("test -f {one} && io {one} 'falloc -k {place} {}'", 1 + below(90_000)),
            15 => format!("setfattr -n user.a{} -v {number} {one}", below(3)),
            16 => format!("setfattr -x user.a{} {one}", below(3)),
            17 => format!("test -f {one} && cp --reflink=always {one} {other}"),
            18 => format!("fsync {one}"),
            _ => format!("fsync {}", directory()),
        };
        script += " 2> /dev/null || true\n";
    }
    script
}

/// Judges logs of random work. Before the commit is as much as after it.
#[test]
fn random_work_is_replayed_as_the_kernel_does() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"), Tool("setfattr"));
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (first, count) = (number("LOG_REPLAY_SEED", 1), number("LOG_REPLAY_SEEDS", 10));
    let mut wrong = String::new();
    for seed in first..first + count {
        let random = SeededRandom::new(seed);
        let before = format!("mkdir -p A/s B; {}", random_work(&random, 25));
        let after = format!("{} fsync A", random_work(&random, 25));
        let case = Case {
            name: "random",
            mkfs: if seed % 3 == 0 { log_replay_cases::WITH_HOLES } else { log_replay_cases::PLAIN },
            mount: "",
            before: &before,
            after: &after,
            outcome: Outcome::Either,
        };
        if let Err(text) = judge(&case) {
            wrong += &format!("== seed {seed}\n{text}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// What Linux says of quotas that it is told are out of date, and while it counts.
const QUOTA_LINES: &[&str] = &[
    "BTRFS info (device DEVICE): start tree-log replay",
    "BTRFS info (device DEVICE): qgroup scan *",
    "BTRFS info (device DEVICE): quota *",
];

fn quotas_are_out_of_date(image: &Path) -> bool {
    let filesystem = Filesystem::open(&[image], OpenOptions::read_only()).unwrap();
    let tree = filesystem.engine().tree(RootId::QUOTA_TREE).unwrap();
    let found = filesystem.engine().forest().trees().get(tree.root(), &QuotaStatus::KEY).unwrap().unwrap();
    QuotaStatus::decode(found.data()).unwrap().flags.has(QuotaStatusFlags::INCONSISTENT)
}

/// Linux counts as it replays. vlinder says that the counts are out of date, and a rescan makes them exact.
#[test]
fn a_log_is_replayed_beside_quotas_and_linux_rescans_them() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"));
    let before = "btrfs quota enable .; btrfs -q subvolume create sub; write sub/f 0 300k; write a 0 100k
        btrfs qgroup limit 40M sub; sync -f .; btrfs quota rescan -w . > /dev/null; sync -f .";
    let after =
        "write a 50k 200k 3; fsync a; write new 0 90k; fsync new; truncate -s 5000 sub/f; fsync sub/f";
    let scratch = Scratch::in_memory("log-replay-quotas");
    let (mut cut, mut replay_begins) = make_log(&scratch, log_replay_cases::PLAIN, "", before, after);
    for _ in 0..TRIES {
        if !has_log(&cut) {
            (cut, replay_begins) = make_log(&scratch, log_replay_cases::PLAIN, "", before, after);
        }
    }
    assert!(has_log(&cut), "every fsync committed");
    let (kernel, ours) = (scratch.join("kernel"), scratch.join("ours"));
    copy(&cut, &kernel);
    copy(&cut, &ours);
    let mount = KernelMount::of(&[&kernel], "noatime", QUOTA_LINES).unwrap();
    run(mount.path(), "find . -ls > /dev/null");
    mount.unmount().unwrap();
    assert!(!quotas_are_out_of_date(&kernel));
    let walked = replay_ours(&ours).unwrap();
    assert!(!has_log(&ours) && quotas_are_out_of_date(&ours));
    assert_eq!(differences(&items(&kernel, replay_begins), &items(&ours, replay_begins)), "");
    assert_eq!(walk_in_memory(&cut), walked);
    let mount = KernelMount::of(&[&ours], "", QUOTA_LINES).unwrap();
    run(mount.path(), "btrfs quota rescan -w . > /dev/null");
    mount.unmount().unwrap();
    assert!(!quotas_are_out_of_date(&ours));
    // It compares every group with what it counts itself.
    btrfs_check_data(&ours).unwrap();
    vlinder_testkit::subject::own_check_all(&[&ours]).unwrap();
}

macro_rules! groups {
    ($($name:ident: $cases:expr;)*) => {$(
        #[test]
        fn $name() {
            require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"), Tool("setfattr"));
            judge_all($cases);
        }
    )*};
}

groups! {
    files_and_their_extents_are_replayed_as_the_kernel_does: log_replay_cases::EXTENTS;
    names_and_links_are_replayed_as_the_kernel_does: log_replay_cases::LINKS;
    renames_are_replayed_as_the_kernel_does: log_replay_cases::RENAMES;
    directories_are_replayed_as_the_kernel_does: log_replay_cases::DIRECTORIES;
    attributes_and_inodes_are_replayed_as_the_kernel_does: log_replay_cases::ATTRIBUTES;
    several_subvolumes_and_formats_are_replayed_as_the_kernel_does: log_replay_cases::FORMATS;
}
