//! Flushes that leave their last batch under way: what happens to its files meanwhile, when the device
//! refuses it, and from several threads.

use std::collections::BTreeMap;

use crate::support::image;
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, MemoryDevice, Operation};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_fs::data::{flush_ahead, flush_all};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::simulated::{Repeat, SimulatedDevice};
use vlinder_testkit::{Scratch, require};

const IMAGE_BYTES: u64 = 256 << 20;
const SECTOR: usize = 4096;

fn content(number: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(12_000 + number * 37).collect()
}

fn open(bytes: &[u8]) -> (Arc<SimulatedDevice>, Files) {
    let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(bytes)));
    let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(&device) as _];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    (device, Files::new(filesystem, Caller::superuser()))
}

fn data_bytes_in_use(files: &Files) -> u64 {
    let report = files.filesystem().engine().space().unwrap();
    let data = report.kinds.iter().filter(|kind| kind.flags.has(BlockGroupFlags::DATA));
    data.map(|kind| kind.used_bytes).sum()
}

/// Bytes of all files that no item refers to yet.
fn unwritten_bytes(files: &Files, names: &[String]) -> u64 {
    let of = |name: &String| files.open_file(name).unwrap().inode().data().unwritten_bytes();
    names.iter().map(of).sum()
}

type Expected = BTreeMap<String, Vec<u8>>;

/// The space of files that nothing was written over in part.
fn whole_sectors(expected: &Expected) -> u64 {
    expected.values().map(|bytes| bytes.len().next_multiple_of(SECTOR) as u64).sum()
}

/// Everything is as expected, here and for the kernel; gives the bytes of data in use.
fn judge(scratch: &Scratch, device: &SimulatedDevice, files: Files, expected: &Expected) -> u64 {
    for (name, bytes) in expected {
        assert!(files.read(name).unwrap() == *bytes, "{name}");
    }
    files.filesystem().sync().unwrap();
    let in_use = data_bytes_in_use(&files);
    files.close().unwrap();
    let image = scratch.join("judged.img");
    std::fs::write(&image, device.live_image().read_at(Physical(0), IMAGE_BYTES as usize).unwrap()).unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    for (name, bytes) in expected {
        assert!(std::fs::read(mount.path().join(name.trim_start_matches('/'))).unwrap() == *bytes, "{name}");
    }
    in_use
}

#[test]
fn files_of_a_batch_under_way_are_read_and_changed_as_any_other() {
    require!(Root, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("under-way");
    let empty = std::fs::read(image(&scratch, IMAGE_BYTES >> 20, &[])).unwrap();
    let (device, files) = open(&empty);
    let mut expected = Expected::new();
    let names: Vec<String> = (0..12).map(|number| format!("/{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        files.write(name, content(number)).unwrap();
        expected.insert(name.clone(), content(number));
    }
    let all_bytes = unwritten_bytes(&files, &names);
    flush_ahead(files.filesystem()).unwrap();
    assert_eq!(unwritten_bytes(&files, &names), all_bytes, "nobody has waited for it");
    for (name, bytes) in &expected {
        assert!(files.read(name).unwrap() == *bytes, "{name}");
    }
    assert_eq!(unwritten_bytes(&files, &names), all_bytes, "nor does a reader");
    // Once something else is under way, all that was is in the tree.
    files.write("/next", content(12)).unwrap();
    expected.insert("/next".to_owned(), content(12));
    flush_ahead(files.filesystem()).unwrap();
    assert_eq!(unwritten_bytes(&files, &names), 0);
    // Each of these meets its own file under way.
    let again = |number: usize, expected: &mut Expected| {
        let name = &names[number];
        let file = files.options().read(true).write(true).open(name).unwrap();
        let bytes = expected.get_mut(name).unwrap();
        bytes[..SECTOR].fill(7);
        file.write_at(&bytes[..SECTOR], 0).unwrap();
        flush_ahead(files.filesystem()).unwrap();
        assert_eq!(file.inode().data().unwritten_bytes(), SECTOR as u64, "{name} is under way");
        file
    };
    for round in [1, 2] {
        let file = again(0, &mut expected);
        file.write_at(&vec![round; 2 * SECTOR], 0).unwrap();
        flush_ahead(files.filesystem()).unwrap();
        expected.get_mut("/0").unwrap()[..2 * SECTOR].fill(round);
        let file = again(1, &mut expected);
        file.set_len(5000 * u64::from(round)).unwrap();
        expected.get_mut("/1").unwrap().resize(5000 * usize::from(round), 0);
        let file = again(2, &mut expected);
        file.write_direct(&[(0, &[round; SECTOR])]).unwrap();
        expected.get_mut("/2").unwrap()[..SECTOR].fill(round);
        let file = again(3, &mut expected);
        file.sync_all().unwrap();
        assert_eq!(file.inode().data().unwritten_bytes(), 0);
        again(4, &mut expected);
        flush_all(files.filesystem()).unwrap();
        assert_eq!(unwritten_bytes(&files, &names), 0);
        again(5, &mut expected);
        files.filesystem().engine().commit().unwrap();
    }
    drop(again(6, &mut expected));
    files.remove_file("/6").unwrap();
    expected.remove("/6");
    judge(&scratch, &device, files, &expected);
}

/// The background's commits flush only what nobody holds, and that is what is under way, too.
#[test]
fn a_commit_that_flushes_takes_what_is_under_way() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("under-way-commit");
    let image = image(&scratch, IMAGE_BYTES >> 20, &[]);
    let options = OpenOptions { flush_on_commit: true, ..OpenOptions::default() };
    let files = Files::open_with(&image, options).unwrap();
    files.write("/file", content(1)).unwrap();
    flush_ahead(files.filesystem()).unwrap();
    let unwritten = || files.open_file("/file").unwrap().inode().data().unwritten_bytes();
    assert!(unwritten() > 0, "nobody has waited for it");
    files.filesystem().engine().commit().unwrap();
    assert_eq!(unwritten(), 0);
    files.close().unwrap();
}

#[test]
fn a_failed_batch_is_written_again_and_no_space_is_lost() {
    require!(Root, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("under-way-fails");
    let empty = std::fs::read(image(&scratch, IMAGE_BYTES >> 20, &[])).unwrap();
    for ends_with_next in [true, false] {
        let (device, files) = open(&empty);
        let mut expected = Expected::new();
        for number in 0..20 {
            files.write(format!("/{number}"), content(number)).unwrap();
            expected.insert(format!("/{number}"), content(number));
        }
        device.fail_at(Some(Operation::Write), 7, Repeat::Once, DeviceErrorKind::Io { errno: 5 });
        flush_ahead(files.filesystem()).unwrap();
        files.write("/next", content(20)).unwrap();
        expected.insert("/next".to_owned(), content(20));
        if ends_with_next {
            assert!(flush_ahead(files.filesystem()).is_err(), "whoever comes next hears of it");
        }
        device.heal();
        assert!(files.filesystem().engine().read_only_reason().is_none(), "nothing refers to what failed");
        flush_all(files.filesystem()).unwrap();
        assert_eq!(judge(&scratch, &device, files, &expected), whole_sectors(&expected));
    }
}

#[test]
fn threads_that_flush_the_same_files_end_and_lose_nothing() {
    const ROUNDS: usize = 60;
    require!(Root, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("under-way-threads");
    let empty = std::fs::read(image(&scratch, IMAGE_BYTES >> 20, &[])).unwrap();
    let (device, files) = open(&empty);
    let lengths = |number: usize| (3 + number % 5) * SECTOR;
    let names: Vec<String> = (0..16).map(|number| format!("/{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        files.write(name, vec![0; lengths(number)]).unwrap();
    }
    let write_each = |thread: usize, round: usize, step: &dyn Fn(usize)| {
        for number in (thread..names.len()).step_by(4) {
            let file = files.options().read(true).write(true).open(&names[number]).unwrap();
            let bytes = vec![round as u8; lengths(number)];
            match thread {
                0 | 1 => file.write_at(&bytes, 0).unwrap(),
                2 => file.write_direct(&[(0, &bytes)]).unwrap(),
                _ => {
                    file.set_len(SECTOR as u64).unwrap();
                    file.write_at(&bytes, 0).unwrap();
                }
            }
            step(number);
        }
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let (files, write_each) = (&files, &write_each);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    write_each(thread, round, &|number| match (thread + number + round) % 7 {
                        0..3 => flush_ahead(files.filesystem()).unwrap(),
                        3 => flush_all(files.filesystem()).unwrap(),
                        4 => files.open_file(format!("/{number}")).unwrap().sync_all().unwrap(),
                        5 => drop(files.filesystem().engine().commit().unwrap()),
                        _ => {}
                    });
                }
            });
        }
    });
    let expected = names
        .iter()
        .enumerate()
        .map(|(number, name)| (name.clone(), vec![ROUNDS as u8; lengths(number)]))
        .collect();
    assert_eq!(judge(&scratch, &device, files, &expected), whole_sectors(&expected));
}
