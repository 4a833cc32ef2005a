//! Free space given back to the devices: all of it, nothing else, and at no moment too early.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, MemoryDevice, Operation, Request, Ticket,
};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::SimulatedDevice;
use vlinder_testkit::power_cut::{CutOptions, PowerCuts};
use vlinder_testkit::subject::{Recipe, own_check_data};

const DEVICE_BYTES: u64 = 256 << 20;

fn open(device: Arc<dyn Device>) -> Files {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    Files::new(Filesystem::open_devices(vec![device], options).unwrap(), Caller::superuser())
}

/// Bytes that do not compress and are nowhere zero.
fn content(number: u8, length: usize) -> Vec<u8> {
    let mut state = u32::from(number);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 | 1
    };
    (0..length).map(|_| next()).collect()
}

/// A file system of which every byte was written before, so that nothing reads as zeros by chance.
fn used_device() -> MemoryDevice {
    let device = Arc::new(Recipe { device_bytes: DEVICE_BYTES, ..Recipe::default() }.in_memory());
    let files = open(Arc::clone(&device) as _);
    for number in 0..20 {
        files.write(format!("/{number}"), content(number, 1 << 20)).unwrap();
    }
    files.sync().unwrap();
    files.close().unwrap();
    device.snapshot()
}

fn blocks_that_are_not_zero(device: &MemoryDevice) -> u64 {
    let mut count = 0;
    for start in (0..device.length()).step_by(1 << 20) {
        let bytes = device.read_at(Physical(start), 1 << 20).unwrap();
        count += bytes.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count() as u64;
    }
    count
}

#[test]
fn what_was_deleted_is_given_back_and_the_rest_stays() {
    let device = Arc::new(used_device());
    let files = open(Arc::clone(&device) as _);
    for number in 0..18 {
        files.remove_file(format!("/{number}")).unwrap();
    }
    let before = blocks_that_are_not_zero(&device);
    let trimmed = files.filesystem().engine().trimmer().all().unwrap();
    assert_eq!(trimmed.refused_bytes, 0);
    let space = files.filesystem().engine().space().unwrap();
    // 16 KiB blocks twice, data once; superblocks.
    let mut occupied = 64 << 10;
    let mut chunks = 0;
    for kind in &space.kinds {
        let copies = if kind.flags.has(vlinder_format::chunk::BlockGroupFlags::DUP) { 2 } else { 1 };
        occupied += kind.occupied_bytes() * copies;
        chunks += kind.total_bytes * copies;
    }
    let after = blocks_that_are_not_zero(&device);
    assert!(after * 4096 <= occupied, "{after} blocks, {occupied} bytes");
    assert!(before > after + 18 * 256, "{before} {after}");
    // The stripe length with the superblock copy is kept, and in a group of DUP what is its other copy.
    let kept = chunks - (trimmed.group_bytes + occupied - (64 << 10));
    assert!(kept <= 128 << 10, "{trimmed:?} {occupied} {chunks}");
    assert_eq!(trimmed.unallocated_bytes, DEVICE_BYTES - (1 << 20) - chunks - superblock_holes(&space));
    for number in 18..20 {
        assert!(files.read(format!("/{number}")).unwrap() == content(number, 1 << 20));
    }
    // The commit of the second has removed a chunk that was empty.
    assert!(
        files.filesystem().engine().trimmer().all().unwrap().unallocated_bytes >= trimmed.unallocated_bytes
    );
    files.close().unwrap();
    own_check_data(device).unwrap();
}

/// The copy at 64 MiB lies in what no chunk has, or in a chunk.
fn superblock_holes(space: &vlinder_transaction::SpaceReport) -> u64 {
    let allocated = space.device_bytes - space.unallocated_bytes;
    if allocated < (64 << 20) { 64 << 10 } else { 0 }
}

#[test]
fn every_state_after_a_cut_is_whole() {
    let device = Arc::new(SimulatedDevice::from_image(used_device()));
    let files = open(Arc::clone(&device) as _);
    for number in 0..8 {
        files.remove_file(format!("/{number}")).unwrap();
    }
    files.filesystem().engine().trimmer().all().unwrap();
    device.mark(1);
    files.write("/new", content(99, 300_000)).unwrap();
    files.remove_file("/8").unwrap();
    files.sync().unwrap();
    device.mark(2);
    files.filesystem().engine().trimmer().all().unwrap();
    files.write("/newer", content(98, 300_000)).unwrap();
    files.close().unwrap();
    assert!(device.count(Operation::Discard) > 4);
    let options = CutOptions { samples: 3, stride: 4, ..CutOptions::default() };
    let mut states = 0;
    for cut in PowerCuts::new(&device.recording(), options) {
        let image = Arc::new(cut.image.snapshot());
        own_check_data(Arc::clone(&image) as _)
            .unwrap_or_else(|error| panic!("{}: {error}", cut.description));
        let files = open(image);
        for number in 9..20 {
            assert!(
                files.read(format!("/{number}")).unwrap() == content(number, 1 << 20),
                "{}",
                cut.description
            );
        }
        assert!(cut.mark.is_none() || files.read("/0").is_err(), "{}", cut.description);
        if cut.mark == Some(2) {
            assert!(files.read("/new").unwrap() == content(99, 300_000), "{}", cut.description);
        }
        files.close().unwrap();
        states += 1;
    }
    assert!(states > 30, "{states}");
}

/// What a mount does: trimming in pieces, with changes, commits and logs between them.
#[test]
fn changes_between_the_pieces_lose_nothing_at_any_cut() {
    let device = Arc::new(SimulatedDevice::from_image(used_device()));
    let files = open(Arc::clone(&device) as _);
    let (mut next, mut round, mut trimmed) = (None, 0_u8, 0);
    loop {
        files.remove_file(format!("/{}", round % 10)).unwrap();
        files.write(format!("/{}", round % 10), content(100 + round, 400_000)).unwrap();
        match round % 3 {
            0 => files.sync().unwrap(),
            1 => files.open_file(format!("/{}", round % 10)).unwrap().sync_all().unwrap(),
            _ => {}
        }
        device.mark(u64::from(round));
        let (piece, behind) = files.filesystem().engine().trimmer().piece(next).unwrap();
        trimmed += piece.group_bytes + piece.unallocated_bytes;
        (next, round) = (behind, round + 1);
        if next.is_none() {
            break;
        }
    }
    assert!(round > 4 && trimmed > DEVICE_BYTES / 2, "{round} {trimmed}");
    files.close().unwrap();
    let options = CutOptions { samples: 2, stride: 13, ..CutOptions::default() };
    let mut states = 0;
    for cut in PowerCuts::new(&device.recording(), options) {
        let image = Arc::new(cut.image.snapshot());
        own_check_data(Arc::clone(&image) as _)
            .unwrap_or_else(|error| panic!("{}: {error}", cut.description));
        let files = open(image);
        for number in 10..20 {
            let found = files.read(format!("/{number}")).unwrap();
            assert!(found == content(number, 1 << 20), "{}", cut.description);
        }
        // What was durable at the mark, and not written again since.
        let mark = cut.mark.map(|mark| mark as u8).filter(|mark| mark % 3 != 2);
        if let Some(mark) = mark {
            let found = files.read(format!("/{}", mark % 10)).unwrap();
            assert!(found == content(100 + mark, 400_000), "{} {mark}", cut.description);
        }
        files.close().unwrap();
        states += 1;
    }
    assert!(states > 30, "{states}");
}

#[test]
fn a_leased_state_is_not_given_back() {
    let device = Arc::new(used_device());
    let files = open(Arc::clone(&device) as _);
    let lease = files.filesystem().engine().lease().unwrap();
    for number in 0..10 {
        files.remove_file(format!("/{number}")).unwrap();
    }
    files.sync().unwrap();
    let held = files.filesystem().engine().trimmer().all().unwrap();
    let leased = || {
        let options = OpenOptions { background: false, ..OpenOptions::read_only() };
        let opened =
            Filesystem::open_leased(vec![Arc::clone(&device) as _], lease.superblocks().to_vec(), options);
        Files::new(opened.unwrap(), Caller::superuser())
    };
    for number in 0..20 {
        assert!(leased().read(format!("/{number}")).unwrap() == content(number, 1 << 20));
    }
    drop(lease);
    let freed = files.filesystem().engine().trimmer().all().unwrap();
    assert!(freed.group_bytes >= held.group_bytes + (10 << 20), "{held:?} {freed:?}");
    files.close().unwrap();
    own_check_data(device).unwrap();
}

#[test]
fn writers_beside_it_lose_nothing() {
    let device = Arc::new(used_device());
    let options = OpenOptions::parse("commit=1").unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    let is_over = Arc::new(AtomicBool::new(false));
    let trimmer = {
        let (files, is_over) = (files.clone(), Arc::clone(&is_over));
        thread::spawn("trimmer", move || {
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                files.filesystem().engine().trimmer().all().unwrap();
                count += 1;
            }
            count
        })
    };
    for round in 0..12_u8 {
        for number in 0..8 {
            files.write(format!("/{number}"), content(round ^ number, 700_000)).unwrap();
        }
        if round % 3 == 0 {
            files.sync().unwrap();
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let count = trimmer.join().unwrap();
    assert!(count > 2, "{count}");
    files.filesystem().engine().trimmer().all().unwrap();
    for number in 0..8 {
        assert!(files.read(format!("/{number}")).unwrap() == content(11 ^ number, 700_000), "{number}");
    }
    files.close().unwrap();
    own_check_data(device).unwrap();
}

/// A device that can't give back anything.
struct Whole(MemoryDevice);

impl Device for Whole {
    fn describe(&self) -> Description {
        self.0.describe()
    }
    fn length(&self) -> u64 {
        self.0.length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.0.submit(batch)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        Err(self.error(DeviceErrorKind::Unsupported, Operation::Discard, offset, length_bytes))
    }
}

#[test]
fn a_device_that_cannot_is_told_apart() {
    let device = Arc::new(Whole(used_device()));
    let files = open(Arc::clone(&device) as _);
    let trimmed = files.filesystem().engine().trimmer().all().unwrap();
    assert_eq!((trimmed.group_bytes, trimmed.unallocated_bytes), (0, 0));
    assert!(trimmed.refused_bytes > DEVICE_BYTES / 2);
    files.close().unwrap();
    let read_only = Filesystem::open_devices(vec![device as _], OpenOptions::read_only()).unwrap();
    assert!(read_only.engine().trimmer().all().is_err());
}
