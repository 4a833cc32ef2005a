//! Writes that are on the device when they return: by one writer, by many at once, and when the device
//! refuses them.

use crate::support::image;
use vlinder_base::metrics::Unit;
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, MemoryDevice, Operation};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::simulated::{Repeat, SimulatedDevice};
use vlinder_testkit::{Scratch, require};

const SECTOR: usize = 4096;
const THREADS: u64 = 6;
const SECTORS_OF_EACH: u64 = 300;

/// What nothing else has: the number of a sector and of its writing, over and over.
fn bytes(sector: u64, writing: u64) -> Vec<u8> {
    [sector.to_le_bytes(), writing.to_le_bytes()].concat().repeat(SECTOR / 16)
}

fn counter(files: &Files, name: &'static str) -> u64 {
    files.filesystem().engine().registry().counter(name, "", Unit::Count).get()
}

#[test]
fn what_was_written_lies_on_the_device_before_any_commit() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("direct");
    let image = image(&scratch, 256, &[]);
    let files = Files::open(&image).unwrap();
    let file = files.options().read(true).write(true).create(true).open("/file").unwrap();
    let (commits, flushes) = (counter(&files, "transaction.commits"), counter(&files, "write_back.flushes"));
    let (first, second) = (bytes(1, 1), bytes(9, 1));
    file.write_direct(&[(4096, &first), (9 * 4096, &second)]).unwrap();
    assert_eq!(file.inode().data().unstored_bytes(), 0);
    assert_eq!(counter(&files, "transaction.commits"), commits);
    assert_eq!(counter(&files, "write_back.flushes"), flushes + 1, "parts share a flush");
    let on_disk = std::fs::read(&image).unwrap();
    for sector in [&first, &second] {
        assert!(on_disk.chunks(SECTOR).any(|found| found == sector.as_slice()));
    }
    let mut whole = vec![1; 10 * SECTOR];
    assert_eq!(file.read_at(&mut whole, 0).unwrap(), whole.len());
    assert_eq!((&whole[4096..8192], &whole[9 * 4096..]), (first.as_slice(), second.as_slice()));
    assert!(whole[..4096].iter().chain(&whole[8192..9 * 4096]).all(|byte| *byte == 0));
    // Odd borders are as good, and later parts lie over earlier ones.
    file.write_direct(&[(5000, b"odd"), (5001, b"D")]).unwrap();
    file.read_at(&mut whole[..3], 5000).unwrap();
    assert_eq!(&whole[..3], b"oDd");
    drop(file);
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

#[test]
fn many_write_one_file_at_once() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("direct-many");
    let image = image(&scratch, 512, &[]);
    let files = Files::open(&image).unwrap();
    files.write("/file", b"").unwrap();
    vlinder_base::thread::scope(|scope| {
        for thread in 0..THREADS {
            let files = &files;
            scope.spawn(move || {
                let file = files.options().read(true).write(true).open("/file").unwrap();
                for writing in 0..SECTORS_OF_EACH {
                    // The sectors of all threads lie between one another; each is written twice.
                    let sector = (writing * 7 % (SECTORS_OF_EACH / 2)) * THREADS + thread;
                    let offset = sector * SECTOR as u64;
                    file.write_direct(&[(offset, &bytes(sector, writing))]).unwrap();
                    let mut found = vec![0; SECTOR];
                    file.read_at(&mut found, offset).unwrap();
                    assert!(found == bytes(sector, writing), "thread {thread}, writing {writing}");
                }
            });
        }
    });
    let expected = files.read("/file").unwrap();
    files.close().unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(std::fs::read(mount.path().join("file")).unwrap() == expected);
    mount.unmount().unwrap();
}

#[test]
fn a_directly_written_file_is_durable_after_its_fsync() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("direct-fsync");
    let image = image(&scratch, 256, &[]);
    let filesystem = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    let file = files.options().read(true).write(true).create(true).open("/file").unwrap();
    file.sync_all().unwrap();
    file.write_direct(&[(0, &bytes(0, 7)), (8192, &bytes(2, 7))]).unwrap();
    file.sync_all().unwrap();
    let cut = scratch.join("cut");
    std::fs::copy(&image, &cut).unwrap();
    let mount = KernelMount::of(&[cut], "", &["BTRFS info (device DEVICE): start tree-log replay"]).unwrap();
    let found = std::fs::read(mount.path().join("file")).unwrap();
    assert!(found == [bytes(0, 7), vec![0; SECTOR], bytes(2, 7)].concat());
    mount.unmount().unwrap();
}

#[test]
fn a_writer_hears_that_the_device_refused_and_nothing_is_lost() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("direct-fault");
    let image = image(&scratch, 256, &[]);
    let memory = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    let device = Arc::new(SimulatedDevice::from_image(memory));
    let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(&device) as _];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    let file = files.options().read(true).write(true).create(true).open("/file").unwrap();
    file.write_direct(&[(0, &bytes(0, 1))]).unwrap();
    device.fail_at(Some(Operation::Write), 0, Repeat::Once, DeviceErrorKind::Io { errno: 5 });
    let refused = file.write_direct(&[(4096, &bytes(1, 1)), (8192, &bytes(2, 1))]).unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::IO);
    assert!(files.filesystem().engine().read_only_reason().is_none(), "nothing refers to what failed");
    assert_eq!(file.inode().data().unstored_bytes(), 8192, "the next flush tries again");
    device.heal();
    // What the next writer brings takes along what waits.
    file.write_direct(&[(12288, &bytes(3, 1))]).unwrap();
    assert_eq!(file.inode().data().unstored_bytes(), 0);
    drop(file);
    let expected: Vec<u8> = (0..4).flat_map(|sector| bytes(sector, 1)).collect();
    assert!(files.read("/file").unwrap() == expected);
    files.close().unwrap();
    std::fs::write(&image, device.live_image().read_at(Physical(0), 256 << 20).unwrap()).unwrap();
    btrfs_check_data(&image).unwrap();
}
