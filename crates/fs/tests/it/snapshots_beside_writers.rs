//! Snapshots taken while six threads write in every way there is: a snapshot has all that was written before
//! it began and nothing that was begun after it was there, and stays as it is, whatever is overwritten in
//! place afterwards; the files themselves lose nothing to what is written into the snapshots.

use crate::support::image;
use crate::support::sectors::{History, SECTOR, may_have, note, sector_of, untouched, value_of};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;
use vlinder_format::inode::InodeFlags;
use vlinder_fs::data::Allocate;
use vlinder_fs::path::{File, Files};
use vlinder_fs::{Caller, Filesystem, OpenOptions, WriteOrigin};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

const THREADS: u64 = 6;
const FILES_OF_THREAD: u64 = 4;
const SECTORS: u64 = 48;
const SNAPSHOTS: u64 = 12;

/// How the image is made, and how it is opened.
const CASES: &[(&[&str], &str)] = &[
    (&[], "commit=1"),
    (&["--mixed", "-n", "4096"], "cache=1M,dirty=256K,commit=1"),
    (&["-m", "dup"], "compress=zstd,commit=1"),
    (&["-n", "65536"], "nodatacow,commit=3"),
];

struct Run {
    files: Files,
    clock: AtomicU64,
    /// By thread and file.
    histories: Vec<Mutex<History>>,
    is_over: AtomicBool,
}

fn path(directory: &str, number: u64) -> String {
    format!("{directory}/file{number}")
}

impl Run {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Does something to sectors of a file, and writes down what they hold then.
    fn change(
        &self,
        number: u64,
        sectors: std::ops::Range<u64>,
        value: impl Fn(u64) -> u64,
        work: impl FnOnce(),
    ) {
        let begun = self.now();
        let note =
            |done| note(&mut self.histories[number as usize].lock(), sectors.clone(), &value, (begun, done));
        note(u64::MAX);
        work();
        note(self.now());
    }

    fn last_values(&self, number: u64) -> Vec<u64> {
        self.histories[number as usize].lock().iter().map(|changes| changes.last().unwrap().value).collect()
    }

    /// One change of one of a thread's files.
    fn step(&self, random: &SeededRandom, number: u64, file: &File) {
        let start = random.next_u64() % SECTORS;
        let sectors = start..(start + 1 + random.next_u64() % 8).min(SECTORS);
        let (offset, length) = (start * SECTOR as u64, (sectors.end - start) * SECTOR as u64);
        let (filesystem, caller, origin) =
            (self.files.filesystem(), Caller::superuser(), WriteOrigin::Caller);
        let value = self.now() | number << 48;
        let bytes: Vec<u8> = sector_of(value).repeat((sectors.end - start) as usize);
        match random.next_u64() % 12 {
            0..=4 => self.change(number, sectors, |_| value, || file.write_at(&bytes, offset).unwrap()),
            5 | 6 => {
                self.change(number, sectors, |_| value, || file.write_direct(&[(offset, &bytes)]).unwrap())
            }
            7 => self.change(
                number,
                sectors,
                |_| 0,
                || {
                    filesystem
                        .files()
                        .allocate_file(&caller, file.inode(), Allocate::PunchHole, offset, length, origin)
                        .unwrap();
                },
            ),
            8 => self.change(
                number,
                sectors,
                |_| 0,
                || {
                    let zero = Allocate::ZeroRange { keep_size: true };
                    filesystem
                        .files()
                        .allocate_file(&caller, file.inode(), zero, offset, length, origin)
                        .unwrap();
                },
            ),
            9 => {
                let reserve = Allocate::Reserve { keep_size: true };
                filesystem
                    .files()
                    .allocate_file(&caller, file.inode(), reserve, offset, length, origin)
                    .unwrap();
            }
            10 => {
                let from = random.next_u64() % (SECTORS - (sectors.end - start) + 1);
                // Linux shares no range with one that overlaps it.
                if from < sectors.end && start < from + (sectors.end - start) {
                    return;
                }
                let values = self.last_values(number);
                self.change(
                    number,
                    sectors,
                    |sector| values[(from + sector - start) as usize],
                    || {
                        let (source, target) = ((file.inode(), from * SECTOR as u64), (file.inode(), offset));
                        filesystem
                            .files()
                            .clone_range(&caller, source, target, length, WriteOrigin::Caller)
                            .unwrap();
                    },
                );
            }
            _ => file.sync_all().unwrap(),
        }
    }

    fn write(&self, thread: u64, seed: u64) {
        let random = SeededRandom::new(seed * 100 + thread);
        let numbers = thread * FILES_OF_THREAD..(thread + 1) * FILES_OF_THREAD;
        let open = |number| self.files.options().read(true).write(true).open(path("", number)).unwrap();
        let files: Vec<File> = numbers.clone().map(open).collect();
        while !self.is_over.load(Ordering::SeqCst) {
            let which = random.next_u64() % FILES_OF_THREAD;
            self.step(&random, numbers.start + which, &files[which as usize]);
        }
    }

    /// What all files below a directory hold.
    fn values(&self, directory: &str) -> Vec<Vec<u64>> {
        let of_file = |number| {
            let bytes = self.files.read(path(directory, number)).unwrap();
            let what = path(directory, number);
            bytes.chunks(SECTOR).map(|sector| value_of(sector, &what)).collect()
        };
        (0..THREADS * FILES_OF_THREAD).map(of_file).collect()
    }

    /// Each sector of a snapshot that was begun and done at these times holds what it may.
    fn judge(&self, values: &[Vec<u64>], (begun, done): (u64, u64), what: &str) {
        for (number, of_file) in values.iter().enumerate() {
            may_have(
                &self.histories[number].lock(),
                of_file,
                (begun, done),
                &format!("{what}, file {number}"),
            );
        }
    }

    /// Takes snapshots, looks at each at once, and writes into every other; gives what each has to hold.
    fn take_snapshots(&self, seed: u64, what: &str) -> Vec<Vec<Vec<u64>>> {
        let random = SeededRandom::new(seed * 100 + 99);
        let mut taken = Vec::new();
        for snapshot in 0..SNAPSHOTS {
            let directory = format!("/shot{snapshot}");
            let begun = self.now();
            self.files.snapshot("/", &directory, snapshot % 2 == 0).unwrap();
            let done = self.now();
            let mut values = self.values(&directory);
            self.judge(&values, (begun, done), &format!("{what}, {directory}"));
            for _ in 0..(snapshot % 2) * 30 {
                let (number, sector) =
                    (random.next_u64() % (THREADS * FILES_OF_THREAD), random.next_u64() % SECTORS);
                let value = self.now() | 0xff << 56;
                let file = self.files.options().write(true).open(path(&directory, number)).unwrap();
                file.write_at(&sector_of(value), sector * SECTOR as u64).unwrap();
                values[number as usize][sector as usize] = value;
            }
            taken.push(values);
        }
        taken
    }
}

/// Files of every kind, whole from the start: each sector holds zeros.
fn make_files(run: &Run) {
    for number in 0..THREADS * FILES_OF_THREAD {
        let file = run.files.create(path("", number)).unwrap();
        if number % FILES_OF_THREAD == 1 {
            let (caller, inode) = (Caller::superuser(), file.inode());
            run.files.filesystem().attributes().set_flags(&caller, inode, InodeFlags::NODATACOW).unwrap();
        }
        let (filesystem, length) = (run.files.filesystem(), SECTORS * SECTOR as u64);
        if number % FILES_OF_THREAD == 3 {
            file.set_len(length).unwrap();
            continue;
        }
        let reserve = Allocate::Reserve { keep_size: false };
        filesystem
            .files()
            .allocate_file(&Caller::superuser(), file.inode(), reserve, 0, length, WriteOrigin::Caller)
            .unwrap();
    }
}

fn run(case: &(&[&str], &str), seed: u64) {
    let (mkfs, options) = case;
    let what = format!("{mkfs:?}, {options}, seed {seed}");
    let scratch = Scratch::in_memory("snapshots-beside");
    let image = image(&scratch, 512, mkfs);
    let open = || {
        let filesystem = Filesystem::open(&[&image], OpenOptions::parse(options).unwrap()).unwrap();
        Files::new(filesystem, Caller::superuser())
    };
    let run = Arc::new(Run {
        files: open(),
        clock: AtomicU64::new(1),
        histories: (0..THREADS * FILES_OF_THREAD).map(|_| Mutex::new(untouched(SECTORS))).collect(),
        is_over: AtomicBool::new(false),
    });
    make_files(&run);
    let writers: Vec<_> = (0..THREADS)
        .map(|number| {
            let run = Arc::clone(&run);
            thread::spawn(format!("writer{number}"), move || run.write(number, seed))
        })
        .collect();
    let taken = run.take_snapshots(seed, &what);
    run.is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let last: Vec<Vec<u64>> = (0..THREADS * FILES_OF_THREAD).map(|number| run.last_values(number)).collect();
    let compare = |run: &Run, when: &str| {
        assert!(run.values("") == last, "{what}, {when}: a file lost what was written");
        for (number, values) in taken.iter().enumerate() {
            assert!(
                run.values(&format!("/shot{number}")) == *values,
                "{what}, {when}: snapshot {number} changed"
            );
        }
    };
    compare(&run, "before closing");
    let Ok(run) = Arc::try_unwrap(run) else { panic!("the writers have ended") };
    run.files.close().unwrap();
    let again = Run {
        files: open(),
        clock: AtomicU64::new(1),
        histories: Vec::new(),
        is_over: AtomicBool::new(true),
    };
    compare(&again, "after closing");
    again.files.close().unwrap();
    btrfs_check_data(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn snapshots_beside_writers_have_what_was_there_and_keep_it() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let number = |name: &str, otherwise: u64| {
        std::env::var(name)
            .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    let (first, seeds) = (number("VLINDER_SEED", 1), number("VLINDER_SEEDS", 1));
    for seed in first..first + seeds {
        for case in CASES {
            run(case, seed);
        }
    }
}
