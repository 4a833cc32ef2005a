//! Readers and direct writers of one file side by side: nobody waits for the other's device, and no reader is
//! given what became of space that its file gave up meanwhile.

use std::time::Duration;

use crate::support;
use vlinder_base::metrics::Unit;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{Description, Device, DeviceError, DeviceExt, MemoryDevice, Operation, Request, Ticket};
use vlinder_fs::path::{File, Files};
use vlinder_fs::{Caller, Filesystem, OpenOptions, data};
use vlinder_testkit::eventually;
use vlinder_testkit::subject::Recipe;

const SECTOR: usize = 4096;
/// Nothing that is not held takes so long.
const LONG: Duration = Duration::from_secs(20);
/// Time enough for what is not held to come to its end.
const SHORT: Duration = Duration::from_millis(300);

/// What the sector of a file has, and nothing else: its number and that of its writing, over and over.
fn sector(number: u64, writing: u64) -> Vec<u8> {
    [u64::from_le_bytes(*b"a sector"), number, writing].map(u64::to_le_bytes).concat().repeat(SECTOR / 24 + 1)
        [..SECTOR]
        .to_vec()
}

/// A device that holds up requests for sectors with certain bytes.
struct HoldingDevice {
    inner: MemoryDevice,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    sectors: Vec<(Operation, Vec<u8>)>,
    waiting: usize,
}

impl HoldingDevice {
    fn new() -> Arc<Self> {
        let inner = Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory();
        Arc::new(Self { inner, held: Mutex::default(), changed: Condvar::new() })
    }

    fn hold(&self, operation: Operation, bytes: Vec<u8>) {
        self.held.lock().sectors.push((operation, bytes));
    }

    /// Lets everything go on of which these are the bytes.
    fn release(&self, bytes: &[u8]) {
        self.held.lock().sectors.retain(|(_, held)| held != bytes);
        self.changed.notify_all();
    }

    /// Waits until so many requests are held up.
    fn wait_for(&self, waiting: usize) {
        let mut held = self.held.lock();
        while held.waiting != waiting {
            assert!(!self.changed.wait_for(&mut held, LONG).timed_out(), "{} requests wait", held.waiting);
        }
    }

    fn pass(&self, request: &Request) {
        let bytes = match request {
            Request::Read { offset, buffer } => self.inner.read_at(*offset, buffer.len()).unwrap(),
            Request::Write { data, .. } => data.as_slice().to_vec(),
        };
        let is_held = |held: &Held| {
            held.sectors.iter().any(|(operation, sector)| {
                *operation == request.operation()
                    && bytes.chunks(SECTOR).any(|found| found == sector.as_slice())
            })
        };
        let mut held = self.held.lock();
        if is_held(&held) {
            held.waiting += 1;
            self.changed.notify_all();
            while is_held(&held) {
                self.changed.wait(&mut held);
            }
            held.waiting -= 1;
        }
    }

    /// Where a sector lies.
    fn find(&self, bytes: &[u8]) -> Physical {
        let places = (0..self.inner.length()).step_by(SECTOR).map(Physical);
        let mut found = places.filter(|place| self.inner.read_at(*place, SECTOR).unwrap() == bytes);
        let place = found.next().unwrap();
        assert_eq!(found.next(), None);
        place
    }
}

impl Device for HoldingDevice {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        batch.iter().for_each(|request| self.pass(request));
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

fn open(device: &Arc<HoldingDevice>, options: &str) -> Files {
    let options = OpenOptions::parse(&format!("commit=100000,{options}")).unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(device) as _], options).unwrap();
    Files::new(filesystem, Caller::superuser())
}

/// A file of sectors, each in an extent of its own, and all of it durable.
fn make_file(files: &Files, path: &str, sectors: u64) -> File {
    let file = files.options().read(true).write(true).create(true).open(path).unwrap();
    for number in (0..sectors).rev() {
        file.write_direct(&[(number * SECTOR as u64, &sector(number, 0))]).unwrap();
    }
    files.sync().unwrap();
    file
}

fn read(file: &File, number: u64) -> Vec<u8> {
    let mut found = vec![0; SECTOR];
    assert_eq!(file.read_at(&mut found, number * SECTOR as u64).unwrap(), SECTOR);
    found
}

fn write(file: &File, number: u64, writing: u64) {
    file.write_direct(&[(number * SECTOR as u64, &sector(number, writing))]).unwrap();
}

fn locked_reads(files: &Files) -> u64 {
    files.filesystem().engine().registry().counter("data.locked_reads", "", Unit::Count).get()
}

/// Opens the same file again, for another thread.
fn reopen(files: &Files, path: &str) -> File {
    files.options().read(true).write(true).open(path).unwrap()
}

/// Runs what must not wait for what is held up.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let work = thread::spawn("in-time", move || {
        work();
        is_done.store(true, Ordering::Release);
    });
    eventually("nothing that this waits for is held up", || done.load(Ordering::Acquire));
    work.join().unwrap();
}

/// While a read waits for its device, its sector is written over, the new extent is entered and committed,
/// and the old one's space taken by another file.
#[test]
fn a_waiting_reader_delays_no_writer_and_gets_its_own_bytes() {
    for options in ["", "nodatasum"] {
        let device = HoldingDevice::new();
        let files = open(&device, options);
        let file = make_file(&files, "/file", 16);
        let other = make_file(&files, "/other", 1);
        let place = device.find(&sector(5, 0));
        device.hold(Operation::Read, sector(5, 0));
        let reader = {
            let file = reopen(&files, "/file");
            thread::spawn("reader", move || read(&file, 5))
        };
        device.wait_for(1);
        // What the reader waits for is what it will get: the device has not looked yet.
        let (beside, filesystem) = (reopen(&files, "/file"), files.filesystem().clone());
        in_time(move || {
            write(&beside, 6, 1);
            write(&beside, 5, 1);
            data::flush(&filesystem, beside.inode()).unwrap();
            filesystem.engine().commit().unwrap();
        });
        for writing in 1.. {
            assert!(writing < 60_000, "nobody gets the space");
            write(&other, 0, writing << 32);
            if device.inner.read_at(place, SECTOR).unwrap() != sector(5, 0) {
                break;
            }
        }
        device.release(&sector(5, 0));
        assert!(reader.join().unwrap() == sector(5, 1), "{options}");
        assert!(read(&file, 6) == sector(6, 1));
        drop((file, other));
        files.close().unwrap();
        support::check(&device.inner).unwrap();
    }
}

/// While a flush of the file goes on, readers lock what they read: a flush that enters extents waits for
/// them, where the range is theirs.
#[test]
fn a_writer_of_an_extent_waits_for_readers_of_what_it_replaces() {
    let device = HoldingDevice::new();
    let files = open(&device, "");
    let file = make_file(&files, "/file", 64);
    let flush = |number: u64| {
        let (file, filesystem) = (reopen(&files, "/file"), files.filesystem().clone());
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let writer = reopen(&files, "/file");
        in_time(move || writer.write_at(&sector(number, 1), number * SECTOR as u64).unwrap());
        let flush = thread::spawn("flush", move || {
            data::flush(&filesystem, file.inode()).unwrap();
            is_done.store(true, Ordering::Release);
        });
        (done, flush)
    };
    let read_in_thread = |number: u64| {
        let file = reopen(&files, "/file");
        thread::spawn("reader", move || read(&file, number))
    };
    let before = locked_reads(&files);
    // A flush under way, so that the file's items may be changing.
    device.hold(Operation::Write, sector(9, 1));
    let (_, first) = flush(9);
    device.wait_for(1);
    assert!(read(&file, 30) == sector(30, 0), "a reader waits for nobody");
    assert_eq!(locked_reads(&files), before + 1);
    device.hold(Operation::Read, sector(40, 0));
    let reader = read_in_thread(40);
    device.wait_for(2);
    device.release(&sector(9, 1));
    first.join().unwrap();
    // The reader's own sector.
    let (done, second) = flush(40);
    thread::sleep(SHORT);
    assert!(!done.load(Ordering::Acquire), "an extent is replaced that somebody reads");
    assert!(read(&file, 41) == sector(41, 0) && read(&file, 40) == sector(40, 1));
    device.release(&sector(40, 0));
    assert!(reader.join().unwrap() == sector(40, 0), "what it was when the read began");
    second.join().unwrap();
    assert!(read(&file, 40) == sector(40, 1));
    drop(file);
    files.close().unwrap();
    support::check(&device.inner).unwrap();
}

/// A writer of a part of a sector reads the rest of it first, and is alone.
#[test]
fn no_part_of_a_sector_is_lost_to_who_writes_another() {
    const WRITERS: u64 = 4;
    let device = HoldingDevice::new();
    let files = open(&device, "");
    let file = make_file(&files, "/file", 8);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = reopen(&files, "/file");
            scope.spawn(move || {
                for turn in 0..1000_u64 {
                    let (at, bytes) =
                        (turn % 8 * SECTOR as u64 + writer * 512, turn.to_le_bytes().repeat(64));
                    file.write_direct(&[(at, &bytes)]).unwrap();
                    let mut found = vec![0; bytes.len()];
                    file.read_at(&mut found, at).unwrap();
                    assert!(found == bytes, "writer {writer}, turn {turn}: {:?}", &found[..8]);
                }
            });
        }
    });
    for number in 0..8 {
        assert!(read(&file, number)[2048..] == sector(number, 0)[2048..], "nobody wrote there");
    }
}

/// Several writers and readers of one file, commits, and files that come and go so that space finds new
/// owners: a reader finds each sector whole, of the right number, and no older than the last writing that was
/// done when it began.
#[test]
fn readers_beside_writers_find_no_bytes_that_were_not_there() {
    const SECTORS: u64 = 512;
    const WRITES: u64 = 6000;
    for options in ["", "nodatasum,dirty=32M", "compress-force=lzo"] {
        let device = HoldingDevice::new();
        let files = open(&device, options);
        drop(make_file(&files, "/file", SECTORS));
        let written: Vec<AtomicU64> = (0..SECTORS).map(|_| AtomicU64::new(0)).collect();
        let (left, stop) = (AtomicU64::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            for writer in 0..2 {
                let (file, written, left, stop) = (reopen(&files, "/file"), &written, &left, &stop);
                scope.spawn(move || {
                    let random = SeededRandom::new(writer);
                    for writing in 1..=WRITES {
                        // Each sector has one writer.
                        let number = random.next_u64() % (SECTORS / 2) * 2 + writer;
                        write(&file, number, writing);
                        written[number as usize].store(writing, Ordering::Release);
                    }
                    stop.store(left.fetch_sub(1, Ordering::AcqRel) == 1, Ordering::Release);
                });
            }
            for reader in 0..2 {
                let (file, written, stop) = (reopen(&files, "/file"), &written, &stop);
                scope.spawn(move || {
                    let random = SeededRandom::new(100 + reader);
                    while !stop.load(Ordering::Acquire) {
                        let (first, count) = (random.next_u64() % (SECTORS - 8), 1 + random.next_u64() % 8);
                        let least: Vec<u64> = (first..first + count)
                            .map(|number| written[number as usize].load(Ordering::Acquire))
                            .collect();
                        let mut found = vec![0; count as usize * SECTOR];
                        file.read_at(&mut found, first * SECTOR as u64).unwrap();
                        for (at, (found, least)) in found.chunks(SECTOR).zip(least).enumerate() {
                            let number = first + at as u64;
                            let writing = u64::from_le_bytes(found[16..24].try_into().unwrap());
                            assert!(found == sector(number, writing), "sector {number}: {:?}", &found[..24]);
                            assert!(writing >= least, "sector {number}: writing {writing}, {least} was done");
                        }
                    }
                });
            }
            let (files, stop) = (&files, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    files.sync().unwrap();
                    files.write("/passing", [0xEE; 64 * SECTOR]).unwrap();
                    files.filesystem().engine().commit().unwrap();
                    files.remove_file("/passing").unwrap();
                }
            });
        });
        println!("{options}: {} reads locked their range", locked_reads(&files));
        assert!(locked_reads(&files) > 0, "{options}");
        files.close().unwrap();
        support::check(&device.inner).unwrap();
    }
}
