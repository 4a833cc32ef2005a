//! A host that has no space for the image from its n-th write on, for every n, and then has some again: what
//! was accepted is in memory meanwhile, the image has the last commit whole, and all that was accepted is
//! stored in the end.

use crate::support::{check, image};
use vlinder_base::clock::{FixedClock, Timestamp};
use vlinder_base::sync::Arc;
use vlinder_device::{Device, DeviceErrorKind, MemoryDevice, Operation};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions, Refusal};
use vlinder_testkit::simulated::{Repeat, SimulatedDevice};
use vlinder_testkit::{Scratch, require};

const FILES: u64 = 12;
/// Files that are fsynced one by one, which writes logs.
const SYNCED: u64 = 4;

fn content(number: u64) -> Vec<u8> {
    let length = if number.is_multiple_of(3) { 900 } else { 9_000 + number as usize * 4096 };
    number.to_le_bytes().into_iter().cycle().take(length).collect()
}

fn path(number: u64) -> String {
    format!("/file {number}")
}

fn open(device: &Arc<SimulatedDevice>, clock: &Arc<FixedClock>) -> Files {
    let options = OpenOptions { clock: Arc::clone(clock) as _, ..OpenOptions::default() };
    let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(device) as _];
    Files::new(Filesystem::open_devices(devices, options).unwrap(), Caller::superuser())
}

/// Writes what is accepted; gives the numbers of these files, and whether anybody was told of a full host.
fn write_all(files: &Files) -> (Vec<u64>, bool) {
    let (mut accepted, mut is_told) = (Vec::new(), false);
    let mut note = |done: vlinder_fs::Result<()>| {
        let is_done = done.is_ok();
        if let Err(error) = done {
            assert!(error.is_host_full(), "{error}");
            assert_eq!(error.refusal(), Some(Refusal::HostFull));
            is_told = true;
        }
        is_done
    };
    for number in 0..FILES {
        if note(files.write(path(number), content(number))) {
            accepted.push(number);
            if number < SYNCED {
                let inode = files.resolve(path(number).as_ref()).unwrap();
                note(files.filesystem().maintenance().sync_inode(&inode));
            }
        }
        if number == SYNCED {
            note(files.filesystem().maintenance().commit().map(drop));
        }
    }
    note(files.filesystem().sync().map(drop));
    (accepted, is_told)
}

#[test]
fn whatever_write_finds_the_host_full_nothing_accepted_is_lost() {
    require!(LongRun, Tool("mkfs.btrfs"));
    let scratch = Scratch::new("full-host");
    let empty = std::fs::read(image(&scratch, 128, &[])).unwrap();
    let mut is_told_somewhere = false;
    for number in 0.. {
        let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&empty)));
        let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
        let files = open(&device, &clock);
        device.fail_at(Some(Operation::Write), number, Repeat::Sticky, DeviceErrorKind::HostFull);
        let (accepted, is_told) = write_all(&files);
        let filesystem = files.filesystem();
        assert_eq!(filesystem.engine().read_only_reason(), None, "write {number}");
        check(&device.durable_image()).unwrap_or_else(|found| panic!("write {number}: {found}"));
        if !is_told {
            assert!(is_told_somewhere, "no write was refused");
            break;
        }
        is_told_somewhere = true;
        let condition = filesystem.maintenance().condition();
        assert!(condition.is_host_full && condition.failed_commit.is_some(), "write {number}: {condition:?}");
        for &file in &accepted {
            assert_eq!(files.read(path(file)).unwrap(), content(file), "write {number}, file {file}");
        }
        assert!(files.write("/late", content(1)).is_err_and(|error| error.is_host_full()));
        device.heal();
        filesystem.sync().unwrap();
        let condition = filesystem.maintenance().condition();
        assert!(!condition.is_host_full && condition.held_bytes == 0, "write {number}: {condition:?}");
        assert!(condition.failed_commit.unwrap().is_over);
        files.write("/late", content(2)).unwrap();
        drop(files);
        check(&device.durable_image()).unwrap_or_else(|found| panic!("write {number}, healed: {found}"));
        let again = open(&device, &clock);
        for &file in &accepted {
            assert_eq!(again.read(path(file)).unwrap(), content(file), "write {number}, file {file} stored");
        }
        assert_eq!(again.read("/late").unwrap(), content(2));
    }
}

/// Writers try a full host themselves, as their clock allows.
#[test]
fn a_writer_goes_on_by_itself_when_the_host_has_space_again() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("full-host-retry");
    let empty = std::fs::read(image(&scratch, 128, &[])).unwrap();
    let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&empty)));
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let files = open(&device, &clock);
    device.fail_at(Some(Operation::Write), 0, Repeat::Sticky, DeviceErrorKind::HostFull);
    files.write("/held", content(1)).unwrap();
    assert!(files.filesystem().sync().is_err());
    assert!(files.write("/refused", content(1)).is_err(), "tried at once, in vain");
    let writes = device.count(Operation::Write);
    for _ in 0..5 {
        assert!(files.write("/refused", content(1)).is_err());
    }
    assert_eq!(device.count(Operation::Write), writes, "not each writer tries it");
    device.heal();
    clock.advance(std::time::Duration::from_secs(60));
    files.write("/accepted", content(2)).unwrap();
    assert_eq!(files.filesystem().maintenance().condition().held_bytes, 0);
}

/// What one time of a full host has learned about when to try it says nothing of the next, however it ended.
#[test]
fn a_full_host_is_tried_at_once_after_a_sync_that_ended() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("full-host-again");
    let empty = std::fs::read(image(&scratch, 128, &[])).unwrap();
    let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&empty)));
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let files = open(&device, &clock);
    fill_host(&device, &files);
    // Long enough that the interval between two tries is the longest.
    for _ in 0..10 {
        assert!(files.write("/refused", content(1)).is_err_and(|error| error.is_host_full()));
        clock.advance(std::time::Duration::from_secs(10));
    }
    assert!(files.write("/refused", content(1)).is_err_and(|error| error.is_host_full()));
    device.heal();
    files.filesystem().sync().unwrap();
    fill_host(&device, &files);
    device.heal();
    files.write("/accepted", content(2)).unwrap();
    assert!(!files.filesystem().maintenance().condition().is_host_full);
}

fn fill_host(device: &SimulatedDevice, files: &Files) {
    device.fail_at(Some(Operation::Write), 0, Repeat::Sticky, DeviceErrorKind::HostFull);
    files.write("/held", content(1)).unwrap();
    assert!(files.filesystem().sync().is_err_and(|error| error.is_host_full()));
}

/// A file system whose host is full, is due to be tried, and fails otherwise from then on.
fn that_fails_otherwise(empty: &[u8], fail: impl FnOnce(&SimulatedDevice, DeviceErrorKind)) -> Files {
    let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(empty)));
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let files = open(&device, &clock);
    fill_host(&device, &files);
    device.heal();
    fail(&device, DeviceErrorKind::Io { errno: rustix::io::Errno::IO.raw_os_error() });
    clock.advance(std::time::Duration::from_secs(60));
    files
}

/// Neither by the try that meets it nor later.
#[test]
fn a_failure_of_another_kind_is_not_told_as_a_full_host() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("full-host-fails");
    let empty = std::fs::read(image(&scratch, 128, &[])).unwrap();
    let mut is_read_only_somewhere = false;
    for number in 0.. {
        let files = that_fails_otherwise(&empty, |device, kind| {
            device.fail_at(Some(Operation::Write), number, Repeat::Sticky, kind);
        });
        let filesystem = files.filesystem();
        let Err(told) = files.write("/late", content(2)) else { break };
        assert!(!told.is_host_full(), "write {number}: {told}");
        let is_read_only = filesystem.engine().read_only_reason().is_some();
        is_read_only_somewhere |= is_read_only;
        for _ in 0..2 {
            let told = files.write("/later", content(2)).unwrap_err();
            assert!(!told.is_host_full(), "write {number}: {told}");
            let told = filesystem.sync().unwrap_err();
            assert!(!told.is_host_full(), "write {number}: {told}");
        }
        assert!(
            !(is_read_only && filesystem.maintenance().condition().is_host_full),
            "it waits for no space"
        );
    }
    assert!(is_read_only_somewhere, "no commit failed");
}

#[test]
fn a_failure_that_passes_is_told_as_what_it_is() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("full-host-fails-once");
    let empty = std::fs::read(image(&scratch, 128, &[])).unwrap();
    for is_full_still in [false, true] {
        let files = that_fails_otherwise(&empty, |device, kind| {
            if is_full_still {
                device.fail_at(Some(Operation::Write), 0, Repeat::Sticky, DeviceErrorKind::HostFull);
            }
            device.fail_at(Some(Operation::Write), 0, Repeat::Once, kind);
        });
        let told = files.write("/late", content(2)).unwrap_err();
        assert_eq!(told.errno(), rustix::io::Errno::IO, "{told}");
        let next = files.write("/late", content(2));
        assert_eq!(next.is_err_and(|error| error.is_host_full()), is_full_still, "it is tried at once");
    }
}
