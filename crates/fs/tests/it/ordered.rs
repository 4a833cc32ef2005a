//! Ordered extents: what direct writes brought to the devices before its items are in the tree. Against a
//! plain array of bytes, with everything else that a file goes through in between; cut off by a commit;
//! refused by the device.

use crate::support::image;
use vlinder_base::metrics::Unit;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, MemoryDevice, Operation};
use vlinder_extent_state::ByteRange;
use vlinder_fs::data::{Allocate, Seek};
use vlinder_fs::path::{File, Files};
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::simulated::{Repeat, SimulatedDevice};
use vlinder_testkit::{Scratch, require};

const SECTOR: u64 = 4096;
/// So many extents are entered together at the latest (`MANY_EXTENTS`).
const MANY: u64 = 4096;

fn counter(files: &Files, name: &'static str) -> u64 {
    files.filesystem().engine().registry().counter(name, "", Unit::Count).get()
}

fn create(files: &Files, path: &str) -> File {
    files.options().read(true).write(true).create(true).open(path).unwrap()
}

fn quiet() -> OpenOptions {
    // Commits by age would enter what is ordered.
    OpenOptions::parse("commit=300,dirty=512M").unwrap()
}

#[test]
fn items_come_many_at_a_time_and_covered_extents_never() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("ordered-many");
    let image = image(&scratch, 512, &[]);
    let files = Files::open_with(&image, quiet()).unwrap();
    let file = create(&files, "/file");
    let random = SeededRandom::new(5);
    let sectors = MANY / 2;
    let mut expected = vec![0; (sectors * SECTOR) as usize];
    for number in 1..=MANY {
        let sector = if number == 1 { sectors - 1 } else { random.next_u64() % sectors };
        let bytes = number.to_le_bytes().repeat(SECTOR as usize / 8);
        file.write_direct(&[(sector * SECTOR, &bytes)]).unwrap();
        expected[(sector * SECTOR) as usize..][..SECTOR as usize].copy_from_slice(&bytes);
        assert_eq!(file.inode().data().unstored_bytes(), 0, "all of it is on the device");
        let entered = counter(&files, "write_back.extents");
        assert!(number == MANY || entered == 0, "write {number} has entered {entered} extents");
    }
    assert_eq!(file.inode().data().unwritten_bytes(), 0, "the last write of many enters all");
    let entered = counter(&files, "write_back.extents");
    let written = expected.chunks(SECTOR as usize).filter(|sector| sector[..8] != [0; 8]).count();
    assert_eq!(entered, written as u64, "one for each sector that was written, however often");
    drop(file);
    assert!(files.read("/file").unwrap() == expected);
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(std::fs::read(mount.path().join("file")).unwrap() == expected);
    mount.unmount().unwrap();
}

/// What is written over while it is ordered takes space until the rest is entered, so it counts too.
#[test]
fn a_large_block_written_over_and_over_takes_little_space() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    const BLOCK: usize = 1 << 20;
    const MAX_WAITING: usize = (32 << 20) / BLOCK;
    let scratch = Scratch::new("ordered-over");
    let image = image(&scratch, 512, &[]);
    let files = Files::open_with(&image, quiet()).unwrap();
    let file = create(&files, "/file");
    let mut waiting = 0;
    for number in 0..3 * MAX_WAITING {
        file.write_direct(&[(0, &vec![number as u8; BLOCK])]).unwrap();
        waiting = if file.inode().data().unwritten_bytes() == 0 { 0 } else { waiting + 1 };
        assert!(waiting < MAX_WAITING, "{waiting} extents wait, all but one of them written over");
    }
    assert_eq!(waiting, 0, "the last write of so many enters all");
    drop(file);
    let expected = vec![(3 * MAX_WAITING - 1) as u8; BLOCK];
    assert!(files.read("/file").unwrap() == expected);
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

/// What a commit finds ordered is not in the file yet, as with other unflushed data, and its space is free.
#[test]
fn a_commit_leaves_out_what_is_ordered() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("ordered-commit");
    let image = image(&scratch, 256, &[]);
    let files = Files::open_with(&image, quiet()).unwrap();
    files.write("/file", vec![1; 1 << 20]).unwrap();
    files.sync().unwrap();
    let file = files.options().read(true).write(true).open("/file").unwrap();
    for sector in [300, 301, 3, 200] {
        file.write_direct(&[(sector * SECTOR, &[2; SECTOR as usize])]).unwrap();
    }
    files.filesystem().engine().commit().unwrap();
    let cut = scratch.join("cut");
    std::fs::copy(&image, &cut).unwrap();
    btrfs_check_data(&cut).unwrap();
    let mount = KernelMount::new(&cut, "").unwrap();
    assert!(
        std::fs::read(mount.path().join("file")).unwrap() == vec![1; 1 << 20],
        "and no longer than it was"
    );
    mount.unmount().unwrap();
    drop(file);
    let expected = files.read("/file").unwrap();
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(std::fs::read(mount.path().join("file")).unwrap() == expected);
    mount.unmount().unwrap();
    assert_eq!((expected.len() as u64, expected[301 * SECTOR as usize]), (302 * SECTOR, 2));
}

/// A file and the bytes that it must have.
struct Pair {
    file: File,
    bytes: Vec<u8>,
}

impl Pair {
    fn resize(&mut self, least: u64) {
        if self.bytes.len() < least as usize {
            self.bytes.resize(least as usize, 0);
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.resize(offset + bytes.len() as u64);
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn check(&self) {
        let mut found = vec![7; self.bytes.len() + 10];
        let count = self.file.read_at(&mut found, 0).unwrap();
        found.truncate(count);
        assert_eq!(found.len(), self.bytes.len());
        let wrong = found.iter().zip(&self.bytes).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "first wrong byte");
    }
}

/// One step of a file's life; direct writes more than all others.
fn step(files: &Files, random: &SeededRandom, pair: &mut Pair, step: usize) {
    const SPACE: u64 = 160 * SECTOR;
    let filesystem = files.filesystem();
    let offset = random.next_u64() % SPACE;
    let length = random.next_u64() % (5 * SECTOR) + 1;
    let bytes: Vec<u8> = (0..length).map(|at| (step as u64 * 31 + at / 64) as u8).collect();
    let aligned = offset / SECTOR * SECTOR;
    let inode = Arc::clone(pair.file.inode());
    match random.next_u64() % 24 {
        0 => {
            pair.file.set_len(offset).unwrap();
            pair.bytes.resize(offset as usize, 0);
        }
        1 => pair.file.sync_all().unwrap(),
        2 => files.sync().unwrap(),
        3 => {
            let _operation = inode.operation.write();
            vlinder_fs::data::allocate(filesystem, &inode, Allocate::PunchHole, offset, length).unwrap();
            let end = (offset + length).min(pair.bytes.len() as u64);
            if offset < end {
                pair.bytes[offset as usize..end as usize].fill(0);
            }
        }
        4 if pair.bytes.len() as u64 >= aligned + 4 * SECTOR => {
            let _operation = inode.operation.write();
            vlinder_fs::data::clone_range(filesystem, &inode, aligned, &inode, SPACE + aligned, 4 * SECTOR)
                .unwrap();
            let copy = pair.bytes[aligned as usize..][..4 * SECTOR as usize].to_vec();
            pair.put(SPACE + aligned, &copy);
        }
        5 => {
            let map = pair.file.extent_map(ByteRange::new(0, 1 << 40).unwrap(), usize::MAX).unwrap();
            let end = map.iter().map(|extent| extent.offset + extent.length).max().unwrap_or(0);
            assert!(end <= (pair.bytes.len() as u64).next_multiple_of(SECTOR));
        }
        6 if !pair.bytes.is_empty() => {
            let at = offset % pair.bytes.len() as u64;
            if let Ok(data) = pair.file.seek_from(at, Seek::Data) {
                assert!(
                    pair.bytes[at as usize..data as usize].iter().all(|byte| *byte == 0),
                    "a hole is no data"
                );
            }
        }
        // Whole sectors inside the file, which share a promise and the locks; some over others, the later one
        // the newer.
        7..=9 if pair.bytes.len() as u64 >= aligned + 8 * SECTOR => {
            let sectors: Vec<(u64, Vec<u8>)> = (0..4)
                .map(|part| {
                    let at = aligned + random.next_u64() % 6 * SECTOR;
                    (at, vec![(step + part) as u8; part % 3 * SECTOR as usize])
                })
                .collect();
            let parts: Vec<(u64, &[u8])> = sectors.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
            pair.file.write_direct(&parts).unwrap();
            sectors.iter().for_each(|(at, bytes)| pair.put(*at, bytes));
        }
        10..=12 => {
            pair.file.write_at(&bytes, offset).unwrap();
            pair.put(offset, &bytes);
        }
        _ => {
            let second = vec![step as u8; SECTOR as usize];
            pair.file.write_direct(&[(offset, &bytes), (aligned, &second)]).unwrap();
            pair.put(offset, &bytes);
            pair.put(aligned, &second);
        }
    }
}

fn live(options: &str, seed: u64) {
    let scratch = Scratch::new("ordered-random");
    let image = image(&scratch, 256, &[]);
    let options = OpenOptions::parse(&format!("commit=300,{options}")).unwrap();
    let files = Files::open_with(&image, options).unwrap();
    let mut pair = Pair { file: create(&files, "/file"), bytes: Vec::new() };
    let random = SeededRandom::new(seed);
    for number in 0..1500 {
        step(&files, &random, &mut pair, number);
        if number % 16 == 0 {
            pair.check();
        }
        if number == 700 {
            files.snapshot("/", "/snapshot", false).unwrap();
            let snapshot = files.read("/snapshot/file").unwrap();
            assert!(snapshot == pair.bytes, "a snapshot has what was ordered");
        }
    }
    pair.check();
    let Pair { file, bytes } = pair;
    drop(file);
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
    let files = Files::open(&image).unwrap();
    assert!(files.read("/file").unwrap() == bytes);
    files.close().unwrap();
}

#[test]
fn random_lives_equal_an_array_of_bytes() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for (seed, options) in
        ["", "compress=zstd", "compress-force=lzo,dirty=1M", "nodatacow"].into_iter().enumerate()
    {
        live(options, seed as u64);
    }
}

/// Extents whose items can't be entered are dirty again: nothing is lost, and an fsync tells.
#[test]
fn what_cannot_be_entered_is_written_again() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("ordered-fault");
    let image = image(&scratch, 512, &[]);
    let sectors = 6000;
    {
        let files = Files::open(&image).unwrap();
        let file = create(&files, "/file");
        // More items than one leaf has.
        for sector in 0..sectors {
            file.write_at(&[1; SECTOR as usize], sector * 2 * SECTOR).unwrap();
        }
        drop(file);
        files.close().unwrap();
    }
    let memory = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    let device = Arc::new(SimulatedDevice::from_image(memory));
    let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(&device) as _];
    let files = Files::new(Filesystem::open_devices(devices, quiet()).unwrap(), Caller::superuser());
    let file = files.options().read(true).write(true).open("/file").unwrap();
    let size = (2 * sectors - 1) * SECTOR;
    let mut expected = vec![0; size as usize];
    expected.chunks_mut(SECTOR as usize).step_by(2).for_each(|sector| sector.fill(1));
    file.write_direct(&[(size, &[3; SECTOR as usize])]).unwrap();
    file.write_direct(&[(4 * SECTOR, &[3; SECTOR as usize]), (9000 * SECTOR, &[4; SECTOR as usize])])
        .unwrap();
    assert_eq!(file.inode().data().unstored_bytes(), 0);
    // No leaf with items of the file was read yet.
    device.fail_at(Some(Operation::Read), 0, Repeat::Sticky, DeviceErrorKind::Io { errno: 5 });
    assert_eq!(file.sync_all().unwrap_err().errno(), rustix::io::Errno::IO);
    assert_eq!(file.inode().data().unstored_bytes(), 3 * SECTOR, "it is dirty again");
    assert!(files.filesystem().engine().read_only_reason().is_none(), "no item refers to what was stored");
    device.heal();
    file.sync_all().unwrap();
    assert_eq!(file.inode().data().unwritten_bytes(), 0);
    drop(file);
    expected.extend([3; SECTOR as usize]);
    expected[4 * SECTOR as usize..][..SECTOR as usize].fill(3);
    expected[9000 * SECTOR as usize..][..SECTOR as usize].fill(4);
    assert!(files.read("/file").unwrap() == expected);
    files.close().unwrap();
    std::fs::write(&image, device.live_image().read_at(Physical(0), 512 << 20).unwrap()).unwrap();
    btrfs_check_data(&image).unwrap();
}

/// Writers enter what others stored while these go on; readers always see the newest.
#[test]
fn writers_go_on_while_one_of_them_enters() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    const THREADS: u64 = 4;
    const EACH: u64 = 3 * MANY / 2;
    let scratch = Scratch::new("ordered-threads");
    let image = image(&scratch, 1024, &[]);
    let files = Files::open_with(&image, quiet()).unwrap();
    drop(create(&files, "/file"));
    vlinder_base::thread::scope(|scope| {
        for thread in 0..THREADS {
            let files = &files;
            scope.spawn(move || {
                let random = SeededRandom::new(thread);
                let file = files.options().read(true).write(true).open("/file").unwrap();
                let mut last = vec![0_u64; 1000];
                for number in 1..=EACH {
                    let place = random.next_u64() % 1000;
                    let bytes = (number << 8 | thread).to_le_bytes().repeat(SECTOR as usize / 8);
                    file.write_direct(&[((place * THREADS + thread) * SECTOR, &bytes)]).unwrap();
                    last[place as usize] = number << 8 | thread;
                    let looked = random.next_u64() % 1000;
                    let mut found = [0; SECTOR as usize];
                    let count = file.read_at(&mut found, (looked * THREADS + thread) * SECTOR).unwrap();
                    let found = u64::from_le_bytes(found[..8].try_into().unwrap());
                    assert!(count == 0 || found == last[looked as usize], "thread {thread}, write {number}");
                }
            });
        }
    });
    let commits = counter(&files, "transaction.commits");
    let expected = files.read("/file").unwrap();
    files.close().unwrap();
    assert!(commits < 50, "{commits} commits");
    btrfs_check_data(&image).unwrap();
    let files = Files::open(&image).unwrap();
    assert!(files.read("/file").unwrap() == expected);
    files.close().unwrap();
}
