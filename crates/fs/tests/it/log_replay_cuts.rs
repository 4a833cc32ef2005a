//! The power is cut at every write of a replay: afterwards the log is still there, on the state of the commit
//! before it, and is replayed whole; or it was replayed whole.

use crate::support;
use crate::support::log_maker::make_log;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::power_cut::{Cut, CutOptions, PowerCuts};
use vlinder_testkit::simulated::Recording;
use vlinder_testkit::subject::{Recipe, check_image, own_check};
use vlinder_testkit::walk::compare;
use vlinder_testkit::{Scratch, SimulatedDevice, require};

/// One of so many states is replayed for writing; one of its square is shown to `btrfs check`.
const WRITTEN_OF: u128 = 8;

fn writable() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn open(image: &MemoryDevice, options: OpenOptions) -> Result<Filesystem, String> {
    let device: Arc<dyn Device> = Arc::new(image.snapshot());
    Filesystem::open_devices(vec![device], options).map_err(|error| error.to_string())
}

fn same(expected: &str, filesystem: &Filesystem) -> Result<(), String> {
    compare(expected, &support::walk(filesystem)).map_err(|error| error.to_string())
}

fn last_commit() -> OpenOptions {
    OpenOptions { read_only: true, ..OpenOptions::parse("rescue=nologreplay").unwrap() }
}

/// A replay, with what is right before it and after it.
struct Replayed {
    recording: Recording,
    committed: String,
    replayed: String,
}

/// What a state is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    HasLog,
    IsReplayed,
}

impl Replayed {
    /// Opens an image that has a log, which replays it.
    fn new(image: &MemoryDevice) -> Self {
        let committed = support::walk(&open(image, last_commit()).unwrap());
        let device = Arc::new(SimulatedDevice::from_image(image.snapshot()));
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], writable()).unwrap();
        assert_eq!(filesystem.engine().read_only_reason(), None);
        let recording = device.recording();
        let replayed = support::walk(&filesystem);
        assert!(compare(&committed, &replayed).is_err(), "the log has nothing new");
        Self { recording, committed, replayed }
    }

    fn judge(&self, cut: &Cut) -> Result<State, String> {
        let told = |what: &str, error: String| format!("{what}: {error}; {}", cut.description);
        let last = open(&cut.image, last_commit()).map_err(|error| told("without the log", error))?;
        let (state, expected) = match last.engine().superblock().has_log() {
            true => (State::HasLog, &self.committed),
            false => (State::IsReplayed, &self.replayed),
        };
        same(expected, &last).map_err(|error| told("without the log", error))?;
        let reader = open(&cut.image, OpenOptions::read_only()).map_err(|error| told("a reader", error))?;
        same(&self.replayed, &reader).map_err(|error| told("a reader", error))?;
        own_check(Arc::new(cut.image.snapshot())).map_err(|error| told("check", error))?;
        Ok(state)
    }

    /// Replays what a cut left once more, for good.
    fn judge_again(&self, cut: &Cut) -> Result<(), String> {
        let told = |error: String| format!("replayed again: {error}; {}", cut.description);
        let device = Arc::new(cut.image.snapshot());
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], writable())
            .map_err(|error| told(error.to_string()))?;
        if let Some(reason) = filesystem.engine().read_only_reason() {
            return Err(told(reason.to_string()));
        }
        same(&self.replayed, &filesystem).map_err(told)?;
        filesystem.close().map_err(|error| told(error.to_string()))?;
        if open(&device, last_commit()).map_err(told)?.engine().superblock().has_log() {
            return Err(told("the log is still there".to_owned()));
        }
        own_check(Arc::new(device.snapshot())).map_err(told)
    }

    fn cut_everywhere(&self) {
        let scratch = Scratch::in_memory("replay-cuts");
        let samples = std::env::var("REPLAY_CUT_SAMPLES").map_or(4, |text| text.parse().unwrap());
        let options = CutOptions { samples, torn: 1, all_subsets_up_to: 4, ..CutOptions::default() };
        let mut counts = [0_u64; 4];
        let mut cuts = PowerCuts::new(&self.recording, options);
        for cut in cuts.by_ref() {
            let state = self.judge(&cut).unwrap();
            counts[usize::from(state == State::IsReplayed)] += 1;
            if cut.hash % WRITTEN_OF == 0 || state == State::IsReplayed {
                self.judge_again(&cut).unwrap();
                counts[2] += 1;
            }
            // Linux's tools read no other copy where the primary superblock is torn.
            let is_torn = cut.description.contains("at 65536 torn");
            if cut.hash % (WRITTEN_OF * WRITTEN_OF) == 0 && !is_torn {
                check_image(&scratch, &cut.image).unwrap();
                counts[3] += 1;
            }
        }
        println!(
            "still with the log, replayed, replayed again, shown to btrfs check: {counts:?}; {:?}",
            cuts.summary()
        );
        assert!(counts[..3].iter().all(|count| *count > 0), "{counts:?}");
    }

    fn breaks(&self, recording: &Recording) -> bool {
        let options = CutOptions { samples: 6, torn: 0, all_subsets_up_to: 4, ..CutOptions::default() };
        PowerCuts::new(recording, options).any(|cut| self.judge(&cut).is_err())
    }
}

/// An image with a log of vlinder's own.
fn own_log() -> MemoryDevice {
    let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::default() };
    let device = Arc::new(SimulatedDevice::from_image(recipe.in_memory()));
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], writable()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    files.create_dir("/d").unwrap();
    for number in 0..20 {
        files.write(format!("/d/{number}"), vec![number; 3000 + 700 * usize::from(number)]).unwrap();
    }
    files.sync().unwrap();
    let fsync = |path: &str| files.open_file(path).unwrap().sync_all().unwrap();
    files.write("/new", vec![7; 90_000]).unwrap();
    fsync("/new");
    files.hard_link("/d/1", "/d/another").unwrap();
    files.remove_file("/d/2").unwrap();
    files.rename("/d/3", "/renamed").unwrap();
    fsync("/renamed");
    files.options().write(true).open("/d/4").unwrap().write_at(&[9; 20_000], 1000).unwrap();
    for path in ["/d/4", "/d/another"] {
        fsync(path);
    }
    device.durable_image()
}

#[test]
fn a_cut_during_a_replay_leaves_the_log_or_all_that_it_says() {
    require!(Tool("btrfs"));
    let replayed = Replayed::new(&own_log());
    replayed.cut_everywhere();
    // The test proves itself: without the flush before the superblock, or with a superblock that is not
    // durable, some state is neither.
    for number in 0..replayed.recording.flushes() {
        assert!(replayed.breaks(&replayed.recording.without_flush(number)), "flush {number} is not missed");
    }
}

#[test]
fn a_cut_replay_of_linuxs_log_leaves_the_log_or_all_of_it() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("replay-cuts");
    let before = "mkdir d; for i in $(seq 40); do echo $i > d/$i; done; write a 0 100k; btrfs -q subvolume create sub; write sub/f 0 50k";
    let after = "write a 20k 30k 3; fsync a; unlink d/3; mv d/4 moved; fsync moved d; truncate -s 5000 sub/f; fsync sub/f";
    for _ in 0..3 {
        let (cut, _) = make_log(&scratch, &[], "", before, after);
        if support::log_maker::has_log(&cut) {
            let image = MemoryDevice::from_bytes(&std::fs::read(&cut).unwrap());
            return Replayed::new(&image).cut_everywhere();
        }
    }
    panic!("every fsync committed");
}
