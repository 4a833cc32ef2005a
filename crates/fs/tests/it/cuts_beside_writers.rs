//! The power goes while six threads write, name and fsync files: after each of many cuts the image is sound,
//! what was fsynced by then is there, and nothing that was begun later.

use std::time::Duration;

use crate::support::check;
use crate::support::sectors::{History, SECTOR, may_have, note, sector_of, untouched, value_of};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_fs::data::Allocate;
use vlinder_fs::path::{File, Files};
use vlinder_fs::{Caller, Filesystem, OpenOptions, WriteOrigin};
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::{Scratch, SimulatedDevice, require};

const THREADS: u64 = 6;
const SECTORS: u64 = 24;
const CUTS: usize = 16;
/// Between two cuts.
const PAUSE: Duration = Duration::from_millis(40);
/// Of so many cuts one is shown to btrfs check.
const JUDGED_EVERY: usize = 8;
const IMAGE_BYTES: u64 = 256 << 20;

/// How the file system is opened.
const CASES: &[&str] = &["commit=1", "commit=1,compress=zstd,cache=1M,dirty=256K", "commit=2,nodatacow"];

/// A file that a thread changes and fsyncs all the time.
struct Changed {
    history: History,
    /// When each fsync was begun, and when it was done.
    fsyncs: Vec<(u64, u64)>,
}

/// A file that comes, gets other names, and goes.
#[derive(Clone, Debug, Default)]
struct Named {
    value: u64,
    /// When an fsync of it was done under its first name.
    fsynced: Option<u64>,
    /// When the renaming was begun, if it was.
    renamed: Option<u64>,
    /// When an fsync of it was done that was begun after the renaming.
    renaming_fsynced: Option<u64>,
    /// When a further name was asked for, if one was.
    linked: Option<u64>,
    /// When an fsync of it was done that was begun after that.
    link_fsynced: Option<u64>,
    /// When its removal was begun.
    removed: Option<u64>,
}

struct Cut {
    image: MemoryDevice,
    begun: u64,
    done: u64,
}

struct Run {
    files: Files,
    clock: AtomicU64,
    changed: Vec<Mutex<Changed>>,
    named: Vec<Mutex<Vec<Named>>>,
    is_over: AtomicBool,
}

fn changed_path(number: u64) -> String {
    format!("/changed{number}")
}

/// Two threads have their names in one directory.
fn named_path(thread: u64, kind: &str, number: usize) -> String {
    format!("/d{}/{kind}-{thread}-{number}", thread / 2)
}

impl Run {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn change(&self, number: u64, sectors: std::ops::Range<u64>, value: u64, work: impl FnOnce()) {
        let begun = self.now();
        let note = |done| {
            let mut changed = self.changed[number as usize].lock();
            note(&mut changed.history, sectors.clone(), |_| value, (begun, done));
        };
        note(u64::MAX);
        work();
        note(self.now());
    }

    fn change_file(&self, random: &SeededRandom, number: u64, file: &File) {
        let start = random.next_u64() % SECTORS;
        let sectors = start..(start + 1 + random.next_u64() % 6).min(SECTORS);
        let (offset, length) = (start * SECTOR as u64, (sectors.end - start) * SECTOR as u64);
        let (filesystem, caller, origin) =
            (self.files.filesystem(), Caller::superuser(), WriteOrigin::Caller);
        let value = self.now() | number << 48;
        let bytes: Vec<u8> = sector_of(value).repeat((sectors.end - start) as usize);
        match random.next_u64() % 10 {
            0..=2 => self.change(number, sectors, value, || file.write_at(&bytes, offset).unwrap()),
            3 => self.change(number, sectors, value, || file.write_direct(&[(offset, &bytes)]).unwrap()),
            4 => self.change(number, sectors, 0, || {
                let hole = Allocate::PunchHole;
                filesystem
                    .files()
                    .allocate_file(&caller, file.inode(), hole, offset, length, origin)
                    .unwrap();
            }),
            5 => {
                let reserve = Allocate::Reserve { keep_size: true };
                filesystem
                    .files()
                    .allocate_file(&caller, file.inode(), reserve, offset, length, origin)
                    .unwrap();
            }
            6 => self.change(number, start..SECTORS, 0, || {
                file.set_len(offset).unwrap();
                file.set_len(SECTORS * SECTOR as u64).unwrap();
            }),
            _ => {
                let begun = self.now();
                file.sync_all().unwrap();
                let done = self.now();
                self.changed[number as usize].lock().fsyncs.push((begun, done));
            }
        }
    }

    fn note_named(&self, thread: u64, number: usize, change: impl FnOnce(&mut Named)) {
        change(&mut self.named[thread as usize].lock()[number]);
    }

    /// The life of a file, or the first part of it.
    fn name_file(&self, random: &SeededRandom, thread: u64) {
        let value = self.now() | 1 << 60;
        let number = {
            let mut named = self.named[thread as usize].lock();
            named.push(Named { value, ..Named::default() });
            named.len() - 1
        };
        let path = |kind| named_path(thread, kind, number);
        self.files.write(path("new"), sector_of(value)).unwrap();
        let file = self.files.open_file(path("new")).unwrap();
        let may = || random.next_u64().is_multiple_of(2);
        if may() {
            file.sync_all().unwrap();
            self.note_named(thread, number, |named| named.fsynced = Some(self.now()));
        }
        let is_renamed = may();
        if is_renamed {
            self.note_named(thread, number, |named| named.renamed = Some(self.now()));
            self.files.rename(path("new"), path("renamed")).unwrap();
            if may() {
                file.sync_all().unwrap();
                self.note_named(thread, number, |named| named.renaming_fsynced = Some(self.now()));
            }
        }
        if may() {
            self.note_named(thread, number, |named| named.linked = Some(self.now()));
            self.files.hard_link(path(if is_renamed { "renamed" } else { "new" }), path("link")).unwrap();
            if may() {
                file.sync_all().unwrap();
                self.note_named(thread, number, |named| named.link_fsynced = Some(self.now()));
            }
        }
        if may() {
            self.note_named(thread, number, |named| named.removed = Some(self.now()));
            for kind in ["new", "renamed", "link"] {
                let _ = self.files.remove_file(path(kind));
            }
        }
    }

    fn write(&self, thread: u64, seed: u64) {
        let random = SeededRandom::new(seed * 100 + thread);
        let file = self.files.options().read(true).write(true).open(changed_path(thread)).unwrap();
        while !self.is_over.load(Ordering::SeqCst) {
            match random.next_u64() % 40 {
                0..=3 => self.name_file(&random, thread),
                4 if random.next_u64().is_multiple_of(8) => self.files.sync().unwrap(),
                _ => self.change_file(&random, thread, &file),
            }
        }
    }

    fn judge(&self, cut: &Cut, is_shown_to_progs: bool, what: &str) -> Result<(), String> {
        check(&cut.image)?;
        let image = Arc::new(cut.image.snapshot());
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&image) as _], OpenOptions::default())
            .map_err(|error| error.to_string())?;
        let files = Files::new(filesystem, Caller::superuser());
        for number in 0..THREADS {
            let what = format!("{what}, file {number}");
            let mut bytes = files.read(changed_path(number)).map_err(|error| error.to_string())?;
            bytes.resize(SECTORS as usize * SECTOR, 0);
            let values: Vec<u64> = bytes.chunks(SECTOR).map(|sector| value_of(sector, &what)).collect();
            let changed = self.changed[number as usize].lock();
            let synced = changed.fsyncs.iter().filter(|(_, done)| *done < cut.begun);
            let kept = synced.map(|(begun, _)| *begun).max().unwrap_or(1);
            may_have(&changed.history, &values, (kept, cut.done), &what);
            self.judge_names(&files, number, cut)?;
        }
        files.close().map_err(|error| error.to_string())?;
        check(&image)?;
        if is_shown_to_progs {
            let scratch = Scratch::in_memory("cuts-beside");
            let bytes =
                image.read_at(Physical(0), IMAGE_BYTES as usize).map_err(|error| error.to_string())?;
            std::fs::write(scratch.join("image"), &bytes).map_err(|error| error.to_string())?;
            btrfs_check(&scratch.join("image")).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn judge_names(&self, files: &Files, thread: u64, cut: &Cut) -> Result<(), String> {
        let is_before = |time: Option<u64>| time.is_some_and(|time| time < cut.begun);
        let may_be = |time: Option<u64>| time.is_some_and(|time| time < cut.done);
        for (number, named) in self.named[thread as usize].lock().iter().enumerate() {
            if may_be(named.removed) {
                continue;
            }
            let has = |kind| {
                let found = files.read(named_path(thread, kind, number));
                found.is_ok_and(|bytes| bytes == sector_of(named.value))
            };
            let (new, renamed, link) = (has("new"), has("renamed"), has("link"));
            let is_kept = if is_before(named.renaming_fsynced) {
                renamed && !new
            } else {
                !is_before(named.fsynced) || new || (renamed && may_be(named.renamed))
            };
            let is_linked = (link || !is_before(named.link_fsynced)) && (!link || may_be(named.linked));
            if !is_kept || !is_linked {
                return Err(format!(
                    "file {number} of thread {thread} at {} to {}: new {new}, renamed {renamed}, link {link}: {named:?}",
                    cut.begun, cut.done
                ));
            }
        }
        Ok(())
    }
}

fn run(options: &str, seed: u64) {
    let recipe = Recipe { device_bytes: IMAGE_BYTES, options: options.to_owned(), ..Recipe::default() };
    let device = Arc::new(SimulatedDevice::from_image(recipe.in_memory()));
    let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(&device) as _];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::parse(options).unwrap()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    (0..THREADS.div_ceil(2)).for_each(|number| files.create_dir(format!("/d{number}")).unwrap());
    for number in 0..THREADS {
        files.create(changed_path(number)).unwrap().set_len(SECTORS * SECTOR as u64).unwrap();
    }
    files.sync().unwrap();
    let new_file = || Mutex::new(Changed { history: untouched(SECTORS), fsyncs: Vec::new() });
    let run = Arc::new(Run {
        files,
        clock: AtomicU64::new(1),
        changed: (0..THREADS).map(|_| new_file()).collect(),
        named: (0..THREADS).map(|_| Mutex::default()).collect(),
        is_over: AtomicBool::new(false),
    });
    let writers: Vec<_> = (0..THREADS)
        .map(|number| {
            let run = Arc::clone(&run);
            thread::spawn(format!("writer{number}"), move || run.write(number, seed))
        })
        .collect();
    let cuts: Vec<Cut> = (0..CUTS)
        .map(|_| {
            thread::sleep(PAUSE);
            let begun = run.now();
            let image = device.durable_image().snapshot();
            Cut { image, begun, done: run.now() }
        })
        .collect();
    run.is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for (number, cut) in cuts.iter().enumerate() {
        let what = format!("{options}, seed {seed}, cut {number}");
        let is_shown = number % JUDGED_EVERY == 0;
        run.judge(cut, is_shown, &what).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    let Ok(run) = Arc::try_unwrap(run) else { panic!("the writers have ended") };
    run.files.close().unwrap();
}

#[test]
fn what_threads_fsynced_is_there_after_any_cut() {
    require!(LongRun, Tool("btrfs"));
    let number = |name: &str, otherwise: u64| {
        std::env::var(name)
            .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    let (first, seeds) = (number("VLINDER_SEED", 1), number("VLINDER_SEEDS", 1));
    for seed in first..first + seeds {
        for options in CASES {
            run(options, seed);
        }
    }
}
