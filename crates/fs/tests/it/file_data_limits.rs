//! Where writing meets its limits: a full file system, failing devices, many threads.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, MemoryDevice, Operation, Request, Ticket,
};
use vlinder_fs::data::{Allocate, OpenCache, Seek};
use vlinder_fs::{Caller, Filesystem, Inode, OpenOptions, Refusal, WriteOrigin};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::simulated::Repeat;
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::{Scratch, SimulatedDevice, require};

const ROUNDS: u64 = 500;

fn make_image(scratch: &Scratch, size: u64) -> PathBuf {
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(size).unwrap();
    let output = Command::new("mkfs.btrfs").args(["-q", "-f"]).arg(&image).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    image
}

fn create(filesystem: &Filesystem, name: &str) -> Arc<Inode> {
    let root = filesystem.root().unwrap();
    filesystem.names().create_file(&Caller::superuser(), &root, name.as_bytes(), 0o644).unwrap()
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

fn read_all(filesystem: &Filesystem, inode: &Arc<Inode>) -> Vec<u8> {
    let mut bytes = vec![0; inode.size() as usize];
    let count = filesystem.files().read_at(inode, &OpenCache::new(), 0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}

#[test]
fn a_full_file_system_refuses_a_write_and_keeps_the_accepted() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("full");
    let image = make_image(&scratch, 300 << 20);
    let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let caller = Caller::superuser();
    for round in 0..3 {
        let mut files = Vec::new();
        let mut stored = 0_u64;
        'fill: for number in 0.. {
            let inode = create(&filesystem, &format!("file-{number}"));
            let mut length = 0;
            for part in 0..16_u64 {
                let bytes = noise(number * 100 + part, 1 << 20);
                match filesystem.files().write_at(&caller, &inode, part << 20, Cow::Owned(bytes)) {
                    Ok(()) => length += 1 << 20,
                    Err(error) => {
                        assert_eq!(error.refusal(), Some(Refusal::NoSpace), "{error}");
                        stored += length;
                        files.push((number, inode, length));
                        break 'fill;
                    }
                }
            }
            stored += length;
            files.push((number, inode, length));
        }
        filesystem.sync().unwrap();
        println!("round {round}: {} MiB stored", stored >> 20);
        assert!(stored > 150 << 20, "{stored}");
        btrfs_check_data(&image).unwrap();
        for (number, inode, length) in &files {
            assert_eq!(inode.size(), *length);
            let found = read_all(&filesystem, inode);
            for (part, bytes) in found.chunks(1 << 20).enumerate() {
                assert!(bytes == noise(number * 100 + part as u64, 1 << 20), "file {number}, part {part}");
            }
        }
        let root = filesystem.root().unwrap();
        for (number, ..) in files {
            filesystem.names().unlink(&caller, &root, format!("file-{number}").as_bytes()).unwrap();
        }
        filesystem.sync().unwrap();
        btrfs_check_data(&image).unwrap();
    }
}

#[test]
fn preallocated_space_can_be_written_when_nothing_else_is_left() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("reserved");
    let image = make_image(&scratch, 300 << 20);
    let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let caller = Caller::superuser();
    let reserved = create(&filesystem, "reserved");
    filesystem
        .files()
        .allocate_file(
            &caller,
            &reserved,
            Allocate::Reserve { keep_size: false },
            0,
            20 << 20,
            WriteOrigin::Caller,
        )
        .unwrap();
    let filler = create(&filesystem, "filler");
    let mut at = 0;
    while filesystem.files().write_at(&caller, &filler, at, Cow::Owned(noise(at, 1 << 20))).is_ok() {
        at += 1 << 20;
    }
    let bytes = noise(7, 20 << 20);
    for (part, bytes) in bytes.chunks(1 << 20).enumerate() {
        filesystem.files().write_at(&caller, &reserved, (part as u64) << 20, Cow::Borrowed(bytes)).unwrap();
    }
    filesystem.sync().unwrap();
    btrfs_check_data(&image).unwrap();
    assert!(read_all(&filesystem, &reserved) == bytes);
    filesystem.close().unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(fs::read(mount.path().join("reserved")).unwrap() == bytes);
    mount.unmount().unwrap();
}

#[test]
fn data_that_a_device_refused_stay_until_a_flush_stores_them() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("fault");
    let image = make_image(&scratch, 256 << 20);
    let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
    let filesystem =
        Filesystem::open_devices(vec![Arc::clone(&device) as Arc<dyn Device>], OpenOptions::default())
            .unwrap();
    let caller = Caller::superuser();
    let inode = create(&filesystem, "file");
    filesystem.sync().unwrap();
    let bytes = noise(3, 5 << 20);
    filesystem.files().write_at(&caller, &inode, 0, Cow::Borrowed(&bytes)).unwrap();
    device.fail_at(Some(Operation::Write), 0, Repeat::Once, DeviceErrorKind::Io { errno: 5 });
    let error = vlinder_fs::data::flush(&filesystem, &inode).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO);
    assert!(filesystem.engine().read_only_reason().is_none(), "nothing on disk refers to what failed");
    assert!(read_all(&filesystem, &inode) == bytes);
    assert_eq!(inode.data().unwritten_bytes(), 5 << 20);
    device.heal();
    filesystem.sync().unwrap();
    assert_eq!(inode.data().unwritten_bytes(), 0);
    assert!(read_all(&filesystem, &inode) == bytes);
    filesystem.close().unwrap();
    let whole = device.live_image().read_at(Physical(0), 256 << 20).unwrap();
    fs::write(&image, whole).unwrap();
    btrfs_check_data(&image).unwrap();
}

#[test]
fn many_threads_write_read_and_flush_at_once() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("threads");
    let image = make_image(&scratch, 1 << 30);
    let filesystem = Filesystem::open(&[&image], OpenOptions::parse("dirty=4m,commit=1").unwrap()).unwrap();
    let shared = create(&filesystem, "shared");
    let threads: Vec<_> = (0..6_u64)
        .map(|number| {
            let (filesystem, shared) = (filesystem.clone(), Arc::clone(&shared));
            thread::spawn("writer", move || {
                let caller = Caller::superuser();
                let own = create(&filesystem, &format!("own-{number}"));
                for round in 0..60_u64 {
                    // Each has its own part of the shared file, at no sector border.
                    let at = (number * 60 + round) * 50_000 + 7;
                    let bytes = noise(at, 50_000);
                    filesystem.files().write_at(&caller, &shared, at, Cow::Borrowed(&bytes)).unwrap();
                    filesystem
                        .files()
                        .write_at(&caller, &own, round * 9000, Cow::Owned(noise(round, 9000)))
                        .unwrap();
                    let mut found = vec![0; 50_000];
                    filesystem.files().read_at(&shared, &OpenCache::new(), at, &mut found).unwrap();
                    assert!(found == bytes, "thread {number} round {round}");
                    match round % 20 {
                        7 => vlinder_fs::data::flush(&filesystem, &shared).unwrap(),
                        13 => drop(filesystem.sync().unwrap()),
                        17 => vlinder_fs::data::flush(&filesystem, &own).unwrap(),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for part in 0..360_u64 {
        let mut found = vec![0; 50_000];
        filesystem.files().read_at(&shared, &OpenCache::new(), part * 50_000 + 7, &mut found).unwrap();
        assert!(found == noise(part * 50_000 + 7, 50_000), "part {part}");
    }
    filesystem.close().unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    let found = fs::read(mount.path().join("shared")).unwrap();
    assert_eq!(found.len(), 360 * 50_000 + 7);
    for (part, bytes) in found[7..].chunks(50_000).enumerate() {
        assert!(bytes == noise(part as u64 * 50_000 + 7, 50_000), "part {part} in the kernel");
    }
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

/// A walk over data and holes visits a bounded number of state records a seek, however large the file is.
#[test]
fn seeking_through_unflushed_data_visits_few_states() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("seek");
    let image = make_image(&scratch, 1 << 30);
    let mut per_seek = Vec::new();
    for (option, files) in [("", [500_u64, 4000]), ("disable=seek_cache", [500, 4000])] {
        for sectors in files {
            let filesystem = Filesystem::open(&[&image], OpenOptions::parse(option).unwrap()).unwrap();
            let inode = create(&filesystem, &format!("sparse-{option}-{sectors}"));
            let caller = Caller::superuser();
            for sector in 0..sectors {
                filesystem
                    .files()
                    .write_at(&caller, &inode, sector * 8192, Cow::Owned(vec![1; 4096]))
                    .unwrap();
            }
            let visited = || {
                let samples = filesystem.engine().registry().snapshot();
                let sample =
                    samples.into_iter().find(|sample| sample.name == "delalloc.states_visited").unwrap();
                match sample.value {
                    vlinder_base::metrics::Value::Counter(count) => count,
                    other => panic!("{other:?}"),
                }
            };
            let before = visited();
            let cache = OpenCache::new();
            let (mut at, mut seeks) = (0, 0_u64);
            while let Ok(start) = filesystem.files().seek(&inode, &cache, at, Seek::Data) {
                at = filesystem.files().seek(&inode, &cache, start, Seek::Hole).unwrap();
                assert_eq!(at - start, 4096);
                seeks += 2;
            }
            assert_eq!(seeks, 2 * sectors);
            per_seek.push((visited() - before) as f64 / seeks as f64);
            filesystem.close().unwrap();
        }
    }
    println!("states visited a seek: {per_seek:?} (cached small, large; not cached small, large)");
    assert!(per_seek[1] <= 4.0 && per_seek[1] <= per_seek[0] * 1.1, "{per_seek:?}");
}

/// A device on which something happens when it is flushed for the first time: when all of a commit is written
/// but its superblock.
struct AtFlush {
    inner: Arc<SimulatedDevice>,
    work: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What a power cut leaves right after.
    cut: Mutex<Option<MemoryDevice>>,
}

impl Device for AtFlush {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let work = self.work.lock().take();
        let is_first = work.is_some();
        if let Some(work) = work {
            thread::spawn("between", work).join().unwrap();
        }
        self.inner.flush()?;
        if is_first {
            *self.cut.lock() = Some(self.inner.durable_image().snapshot());
        }
        Ok(())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

/// A clone that is gone since the last commit comes back with a power cut, and must not show what was written
/// to its source since: in the transaction that took it away, and while that is being committed.
#[test]
fn what_the_last_commit_shares_is_not_overwritten_in_place() {
    for while_committing in [false, true] {
        let recipe = Recipe { device_bytes: 256 << 20, options: "nodatacow".to_owned(), ..Recipe::default() };
        let device = Arc::new(AtFlush {
            inner: Arc::new(SimulatedDevice::from_image(recipe.in_memory())),
            work: Mutex::default(),
            cut: Mutex::default(),
        });
        let open = |device: Arc<dyn Device>| {
            let options = OpenOptions::parse("commit=100000,nodatacow").unwrap();
            Filesystem::open_devices(vec![device], options).unwrap()
        };
        let filesystem = open(Arc::clone(&device) as _);
        let inode = create(&filesystem, "file");
        let (source, clone) = (noise(1, 12_288), 1 << 20);
        filesystem.files().write_at(&Caller::superuser(), &inode, 0, Cow::Owned(source.clone())).unwrap();
        filesystem
            .files()
            .clone_range(&Caller::superuser(), (&inode, 4096), (&inode, clone), 8192, WriteOrigin::Caller)
            .unwrap();
        filesystem.sync().unwrap();
        vlinder_fs::data::truncate(&filesystem, &inode, 12_288).unwrap();
        let overwrite = {
            let (filesystem, inode, byte) = (filesystem.clone(), Arc::clone(&inode), !source[4911]);
            move || {
                filesystem
                    .files()
                    .write_at(&Caller::superuser(), &inode, 4911, Cow::Owned(vec![byte]))
                    .unwrap();
                vlinder_fs::data::flush(&filesystem, &inode).unwrap();
            }
        };
        if while_committing {
            *device.work.lock() = Some(Box::new(overwrite));
            filesystem.engine().commit().unwrap();
        } else {
            overwrite();
            *device.work.lock() = Some(Box::new(|| {}));
            device.flush().unwrap();
        }
        let cut = device.cut.lock().take().unwrap();
        let filesystem = open(Arc::new(SimulatedDevice::from_image(cut)));
        let root = filesystem.root().unwrap();
        let found = filesystem.names().lookup(&Caller::superuser(), &root, b"file").unwrap();
        let bytes = read_all(&filesystem, &found);
        assert!(bytes[clone as usize..] == source[4096..], "while committing: {while_committing}");
    }
}

/// Bytes leave memory when a flush has put them into the tree: who seeks meanwhile finds them in the one or
/// in the other. More threads seek than there are processors, so that some are interrupted between the two.
#[test]
fn seeking_beside_a_flush_misses_no_data() {
    require!(LongRun);
    let scratch = Scratch::in_memory("seek-flush");
    let image = make_image(&scratch, 300 << 20);
    let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let caller = Caller::superuser();
    let inode = create(&filesystem, "file");
    let seekers = 2 * thread::available_parallelism();
    for round in 0..ROUNDS {
        let at = (1 + round % 7) << 20;
        vlinder_fs::data::truncate(&filesystem, &inode, 0).unwrap();
        filesystem.files().write_at(&caller, &inode, at, Cow::Owned(noise(round, 4096))).unwrap();
        let is_flushed = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..seekers {
                scope.spawn(|| {
                    let cache = OpenCache::new();
                    while !is_flushed.load(Ordering::Relaxed) {
                        let data = filesystem.files().seek(&inode, &cache, 0, Seek::Data).unwrap();
                        let hole = filesystem.files().seek(&inode, &cache, at, Seek::Hole).unwrap();
                        assert_eq!((data, hole), (at, at + 4096), "round {round}");
                    }
                });
            }
            scope.spawn(|| {
                vlinder_fs::data::flush(&filesystem, &inode).unwrap();
                is_flushed.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// The size on disk waits for unflushed bytes; when they are dropped, nothing is left to wait for.
#[test]
fn the_size_stays_when_a_hole_takes_all_that_was_unflushed() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for mkfs in ["no-holes", "^no-holes"] {
        let scratch = Scratch::new("size");
        let image = scratch.join("image");
        File::create(&image).unwrap().set_len(300 << 20).unwrap();
        let made = Command::new("mkfs.btrfs").args(["-q", "-f", "-O", mkfs]).arg(&image).output().unwrap();
        assert!(made.status.success());
        let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
        let caller = Caller::superuser();
        let inode = create(&filesystem, "file");
        filesystem.files().write_at(&caller, &inode, 100_000, Cow::Owned(vec![1; 8192])).unwrap();
        filesystem
            .files()
            .allocate_file(&caller, &inode, Allocate::PunchHole, 90_000, 30_000, WriteOrigin::Caller)
            .unwrap();
        let other = create(&filesystem, "other");
        filesystem.files().write_at(&caller, &other, 50_000, Cow::Owned(vec![1; 100_000])).unwrap();
        vlinder_fs::data::truncate(&filesystem, &other, 40_960).unwrap();
        filesystem.close().unwrap();
        btrfs_check_data(&image).unwrap();
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        let root = filesystem.root().unwrap();
        for (name, size) in [("file", 108_192), ("other", 40_960)] {
            let inode = filesystem.names().lookup(&caller, &root, name.as_bytes()).unwrap();
            assert_eq!(read_all(&filesystem, &inode), vec![0; size], "{name} with {mkfs}");
        }
    }
}

#[test]
fn a_copy_that_finds_no_more_space_tells_how_much_was_copied() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("partial-copy");
    let image = make_image(&scratch, 300 << 20);
    let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let caller = Caller::superuser();
    let source = create(&filesystem, "source");
    for part in 0..16_u64 {
        filesystem.files().write_at(&caller, &source, part << 20, noise(part, 1 << 20).into()).unwrap();
    }
    filesystem.sync().unwrap();
    let fill = |number: u64| {
        let filler = create(&filesystem, &format!("filler{number}"));
        filesystem.files().write_at(&caller, &filler, 0, noise(100 + number, 1 << 20).into())
    };
    let full = (0..).find(|number| fill(*number).is_err()).unwrap();
    let root = filesystem.root().unwrap();
    for number in full - 5..=full {
        filesystem.names().unlink(&caller, &root, format!("filler{number}").as_bytes()).unwrap();
    }
    filesystem.sync().unwrap();
    let target = create(&filesystem, "target");
    // Of another phase, so that nothing can be shared.
    let copy = |done: u64| {
        let origin = WriteOrigin::Caller;
        filesystem.files().copy_file_range(&caller, (&source, 1000 + done), (&target, done), 15 << 20, origin)
    };
    let copied = copy(0).unwrap().length_bytes;
    assert!((1 << 20..15 << 20).contains(&copied), "{copied}");
    assert_eq!(target.size(), copied);
    assert_eq!(copy(copied).unwrap_err().refusal(), Some(Refusal::NoSpace));
    assert_eq!(read_all(&filesystem, &target), read_all(&filesystem, &source)[1000..][..copied as usize]);
}
