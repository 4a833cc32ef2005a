//! What every implementation must do alike, and what only files can show. What needs root is tested in the
//! test kit.

use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;

use crate::{
    Backend, Data, Device, DeviceErrorKind, DeviceExt, DeviceKind, Durability, FileDevice, LockMode,
    MemoryDevice, OpenOptions, Operation, ReadOnlyDevice, Request, TemporaryDevice, Ticket,
};

const LENGTH: u64 = 1 << 20;

/// A file that goes with the test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vlinder-device-{}-{name}", std::process::id()));
        drop(std::fs::remove_file(&path));
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Some kernels forbid io_uring, and nothing that a test could install changes that: it is counted and named,
/// in the way that the test kit documents (this floor's tests can't use the kit without building it).
fn skip_io_uring(test: &str) {
    let line = format!("SKIPPED vlinder_device::tests::{test}: the kernel refuses io_uring\n");
    eprint!("{line}");
    if let Some(log) = std::env::var_os("VLINDER_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, line.as_bytes()).unwrap();
    }
}

fn with(backend: Backend) -> OpenOptions {
    OpenOptions { backend, ..OpenOptions::writer() }
}

/// One of each, with a file to keep alive.
fn all_devices(test: &str) -> Vec<(Box<dyn Device>, Option<Scratch>)> {
    let mut devices: Vec<(Box<dyn Device>, Option<Scratch>)> =
        vec![(Box::new(MemoryDevice::new(LENGTH)), None)];
    for backend in [Backend::Threads, Backend::Uring] {
        let scratch = Scratch::new(&format!("{test}-{backend:?}"));
        match FileDevice::create(&scratch.0, LENGTH, &with(backend)) {
            Ok(device) => devices.push((Box::new(device), Some(scratch))),
            // A kernel may forbid io_uring (a sysctl, seccomp): that is what the error must say, and nothing
            // else.
            Err(error) => {
                assert_eq!(backend, Backend::Uring, "{error}");
                assert!(matches!(error.kind, DeviceErrorKind::Io { .. }), "{error}");
                skip_io_uring(test);
            }
        }
    }
    for kept_bytes in [0, 1 << 20] {
        let device = TemporaryDevice::new(&std::env::temp_dir(), LENGTH).keeping(kept_bytes);
        devices.push((Box::new(device), None));
    }
    devices
}

#[test]
fn a_temporary_device_leaves_nothing_behind() {
    let scratch = Scratch::new("temporary");
    std::fs::create_dir(&scratch.0).unwrap();
    let is_empty = || std::fs::read_dir(&scratch.0).unwrap().next().is_none();
    let device = TemporaryDevice::new(&scratch.0, LENGTH);
    assert!(is_empty());
    device.write_at(Physical(5), vec![7; 3]).unwrap();
    assert!(is_empty(), "it has no name");
    assert_eq!(device.read_at(Physical(4), 5).unwrap(), [0, 7, 7, 7, 0]);
    drop(device);
    assert!(is_empty());
    std::fs::remove_dir(&scratch.0).unwrap();

    let nowhere = TemporaryDevice::new(&scratch.0, LENGTH);
    let error = nowhere.write_at(Physical(0), vec![1]).unwrap_err();
    assert!(error.to_string().contains(scratch.0.to_str().unwrap()), "{error}");
}

/// Writes of shared and own bytes over each other, reads, and holes, in batches, against plain memory.
#[test]
fn what_stays_in_memory_reads_as_a_file_does() {
    const MODEL: usize = 4096;
    let random = SeededRandom::new(7);
    let below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    for most_kept in [1, 600, 1 << 20] {
        let device = TemporaryDevice::new(&std::env::temp_dir(), MODEL as u64).keeping(most_kept);
        let mut model = vec![0; MODEL];
        for step in 0_u32..4000 {
            let mut batch = Vec::new();
            let mut wanted = Vec::new();
            // The requests of a batch lie apart.
            for part in 0..=below(3) {
                let start = part * 1024 + below(16) * 64;
                let length = (1 + below(4)) * if below(3) == 0 { 17 } else { 64 };
                let length = length.min((part + 1) * 1024 - start);
                let range = start..start + length;
                let bytes = vec![step.to_le_bytes()[0]; length];
                batch.push(match below(3) {
                    0 => Request::read(Physical(start as u64), length),
                    1 => Request::write(Physical(start as u64), bytes.clone()),
                    _ => Request::write(Physical(start as u64), Arc::<[u8]>::from(bytes.clone())),
                });
                if !matches!(batch.last(), Some(Request::Read { .. })) {
                    model[range.clone()].copy_from_slice(&bytes);
                }
                wanted.push(model[range].to_vec());
            }
            for (completion, wanted) in device.submit(batch).wait().into_iter().zip(wanted) {
                assert_eq!(completion.into_bytes().unwrap(), wanted, "{most_kept} {step}");
            }
            if below(50) == 0 {
                let start = below(MODEL - 200);
                device.discard(Physical(start as u64), 200).unwrap();
                model[start..start + 200].fill(0);
            }
        }
        assert_eq!(device.read_at(Physical(0), MODEL).unwrap(), model);
    }
}

/// Nothing is written to the file while there is memory.
#[test]
fn shared_bytes_need_no_file_while_there_is_memory() {
    let nowhere = Scratch::new("kept");
    let device = TemporaryDevice::new(&nowhere.0, LENGTH).keeping(8);
    let bytes = |count: usize| Arc::<[u8]>::from(vec![5; count]);
    device.write_at(Physical(0), bytes(8)).unwrap();
    device.write_at(Physical(0), bytes(7)).unwrap_err();
    let device = TemporaryDevice::new(&nowhere.0, LENGTH).keeping(8);
    device.write_at(Physical(0), bytes(8)).unwrap();
    device.write_at(Physical(0), bytes(8)).unwrap();
    assert_eq!(device.read_at(Physical(0), 8).unwrap(), [5; 8]);
    device.write_at(Physical(100), bytes(1)).unwrap_err();
    // What can't be written to the file stays in memory.
    device.write_at(Physical(4), vec![1]).unwrap_err();
    device.discard(Physical(2), 1).unwrap_err();
    assert_eq!(device.read_at(Physical(0), 8).unwrap(), [5; 8]);
    device.write_at(Physical(LENGTH), bytes(1)).unwrap_err();
}

#[test]
fn what_was_written_is_read_and_the_rest_is_zeros() {
    for (device, _scratch) in all_devices("what_was_written_is_read_and_the_rest_is_zeros") {
        device.write_at(Physical(65_530), vec![7_u8; 10]).unwrap();
        device.write_durable_at(Physical(LENGTH - 1), Arc::<[u8]>::from(vec![9_u8])).unwrap();
        let bytes = device.read_at(Physical(65_520), 30).unwrap();
        assert_eq!(bytes[..10], [0; 10]);
        assert_eq!(bytes[10..20], [7; 10]);
        assert_eq!(bytes[20..], [0; 10]);
        assert_eq!(device.read_at(Physical(LENGTH - 2), 2).unwrap(), [0, 9]);
        device.flush().unwrap();
    }
}

#[test]
fn a_batch_answers_each_request_in_its_place() {
    for (device, _scratch) in all_devices("a_batch_answers_each_request_in_its_place") {
        let writes: Vec<Request> = (0..500_u64)
            .map(|number| Request::Write {
                offset: Physical(number * 1000),
                data: Data::Inside(Arc::new(vec![number as u8; 1000])),
                durability: if number % 100 == 0 { Durability::Durable } else { Durability::Cached },
            })
            .collect();
        assert_eq!(device.submit(writes).wait_all().unwrap().len(), 500);
        let reads = (0..500_u64).rev().map(|number| Request::read(Physical(number * 1000), 1000)).collect();
        for (completion, number) in device.submit(reads).wait().into_iter().zip((0..500_u64).rev()) {
            assert_eq!(completion.into_bytes().unwrap(), vec![number as u8; 1000]);
        }
    }
}

/// Requests that follow one another are one call; each has its own answer all the same.
#[test]
fn requests_that_follow_one_another_are_answered_one_by_one() {
    const SECTOR: u64 = 256;
    for (device, _scratch) in all_devices("adjacent") {
        // Two runs, one of them longer than a call takes, a gap, and a request alone.
        let sectors: Vec<u64> = (0..1500).chain(1600..1610).chain([1800]).collect();
        let fill = |sector: u64| vec![(sector % 251) as u8 + 1; SECTOR as usize];
        let writes = sectors.iter().map(|sector| Request::write(Physical(sector * SECTOR), fill(*sector)));
        device.submit(writes.collect()).wait_all().unwrap();
        let read = |sector: &u64| Request::read(Physical(sector * SECTOR), SECTOR as usize);
        let completions = device.submit(sectors.iter().map(read).collect()).wait();
        for (sector, completion) in sectors.iter().zip(completions) {
            assert!(completion.into_bytes().unwrap() == fill(*sector), "sector {sector}");
        }
        let gap = device.submit(vec![read(&1550)]).wait_all().unwrap();
        assert!(gap[0].data.as_slice().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn of_requests_in_a_row_only_those_fail_that_must() {
    for backend in [Backend::Threads, Backend::Uring] {
        let scratch = Scratch::new(&format!("adjacent-faults-{backend:?}"));
        let Ok(device) = FileDevice::create(&scratch.0, LENGTH, &with(backend)) else {
            skip_io_uring("of_requests_in_a_row_only_those_fail_that_must");
            continue;
        };
        // Somebody cuts the file: the run can't be read whole, though its head can.
        std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(512 << 10).unwrap();
        let reads = (0..256).map(|sector| Request::read(Physical(sector * 4096), 4096));
        let completions = device.submit(reads.collect()).wait();
        for (sector, completion) in completions.into_iter().enumerate() {
            assert_eq!(completion.result.is_ok(), sector < 128, "sector {sector}: {:?}", completion.result);
        }
        // One that leaves the device, behind others that do not.
        let writes = (250..258).map(|sector| Request::write(Physical(sector * 4096), vec![7; 4096]));
        let completions = device.submit(writes.collect()).wait();
        for (sector, completion) in (250..).zip(completions) {
            assert_eq!(completion.result.is_ok(), sector < 256, "sector {sector}: {:?}", completion.result);
        }
    }
}

#[test]
fn several_threads_share_a_device() {
    for (device, _scratch) in all_devices("several_threads_share_a_device") {
        let device: Arc<dyn Device> = device.into();
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let device = device.clone();
                vlinder_base::thread::spawn("worker", move || {
                    for round in 0..50_u8 {
                        let place = |part: u64| Physical(worker * 65_536 + part * 512);
                        let writes =
                            (0..64).map(|part| Request::write(place(part), vec![round; 512])).collect();
                        device.submit(writes).wait_all().unwrap();
                        let reads = (0..64).map(|part| Request::read(place(part), 512)).collect();
                        for completion in device.submit(reads).wait() {
                            assert_eq!(completion.into_bytes().unwrap(), vec![round; 512]);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    }
}

#[test]
fn ranges_past_the_end_are_refused_whole_and_named() {
    for (device, _scratch) in all_devices("ranges_past_the_end_are_refused_whole_and_named") {
        let error = device.read_at(Physical(LENGTH - 1), 2).unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange { device_length: LENGTH });
        assert_eq!(
            (error.operation, error.offset, error.length_bytes),
            (Operation::Read, Physical(LENGTH - 1), 2)
        );
        let text = error.to_string();
        assert!(text.contains(&*device.describe().name) && text.contains("1048575"), "{text}");
        assert!(device.write_at(Physical(LENGTH - 1), vec![1, 2]).is_err());
        assert_eq!(
            device.read_at(Physical(LENGTH - 1), 1).unwrap(),
            [0],
            "a refused write touched the device"
        );
        assert!(device.read_at(Physical(u64::MAX), 2).is_err(), "an overflowing range");
        assert!(device.discard(Physical(1), LENGTH).is_err());
        let mixed = vec![
            Request::read(Physical(0), 1),
            Request::read(Physical(LENGTH), 1),
            Request::read(Physical(1), 1),
        ];
        let answers: Vec<bool> =
            device.submit(mixed).wait().iter().map(|answer| answer.result.is_ok()).collect();
        assert_eq!(answers, [true, false, true]);
    }
}

#[test]
fn a_discarded_range_reads_as_zeros() {
    for (device, _scratch) in all_devices("a_discarded_range_reads_as_zeros") {
        device.write_at(Physical(0), vec![5_u8; LENGTH as usize]).unwrap();
        match device.discard(Physical(1000), 200_000) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, DeviceErrorKind::Unsupported, "{error}");
                continue;
            }
        }
        let bytes = device.read_at(Physical(0), LENGTH as usize).unwrap();
        assert!(bytes[1000..201_000].iter().all(|byte| *byte == 0));
        assert!(bytes[..1000].iter().chain(&bytes[201_000..]).all(|byte| *byte == 5));
    }
}

#[test]
fn a_snapshot_of_memory_does_not_change_with_its_source() {
    let source = MemoryDevice::from_bytes(&vec![1; 200_000]);
    let copy = source.snapshot();
    source.write_at(Physical(0), vec![2; 70_000]).unwrap();
    assert_eq!(copy.read_at(Physical(0), 200_000).unwrap(), vec![1; 200_000]);
    source.resize(100);
    source.resize(1000);
    let bytes = source.read_at(Physical(0), 1000).unwrap();
    assert!(bytes[..100].iter().all(|byte| *byte == 2) && bytes[100..].iter().all(|byte| *byte == 0));
    assert!(source.read_at(Physical(0), 1001).is_err());
    assert_eq!(source.written_chunks().len(), 1);
}

#[test]
fn a_read_only_device_refuses_writes_and_passes_reads() {
    let device = ReadOnlyDevice::new(MemoryDevice::from_bytes(&[3; 10]));
    let answers =
        device.submit(vec![Request::write(Physical(0), vec![1]), Request::read(Physical(0), 1)]).wait();
    assert_eq!(answers[0].result.as_ref().unwrap_err().kind, DeviceErrorKind::ReadOnly);
    assert_eq!(answers[1].data.as_slice(), [3]);
    assert_eq!(device.discard(Physical(0), 1).unwrap_err().kind, DeviceErrorKind::ReadOnly);
    assert!(device.is_read_only());
}

#[test]
fn a_file_opened_for_reading_refuses_writes() {
    let scratch = Scratch::new("read-only");
    std::fs::write(&scratch.0, [1; 100]).unwrap();
    let device = FileDevice::open(&scratch.0, &OpenOptions::reader()).unwrap();
    assert_eq!(device.write_at(Physical(0), vec![1]).unwrap_err().kind, DeviceErrorKind::ReadOnly);
    assert_eq!(device.set_length(0).unwrap_err().kind, DeviceErrorKind::ReadOnly);
    assert_eq!(device.describe().kind, DeviceKind::RegularFile);
    assert_eq!(device.read_at(Physical(0), 100).unwrap(), [1; 100]);
}

#[test]
fn writers_are_alone_and_readers_are_not() {
    let scratch = Scratch::new("locks");
    std::fs::write(&scratch.0, [1; 100]).unwrap();
    let reader = FileDevice::open(&scratch.0, &OpenOptions::reader()).unwrap();
    let second = FileDevice::open(&scratch.0, &OpenOptions::reader()).unwrap();
    let refused = FileDevice::open(&scratch.0, &OpenOptions::writer()).unwrap_err();
    assert!(matches!(refused.kind, DeviceErrorKind::Busy { .. }), "{refused}");
    drop((reader, second));
    let writer = FileDevice::open(&scratch.0, &OpenOptions::writer()).unwrap();
    let refused = FileDevice::open(&scratch.0, &OpenOptions::reader()).unwrap_err();
    let DeviceErrorKind::Busy { holder: Some(holder) } = &refused.kind else { panic!("{refused:?}") };
    assert_eq!(holder.process_id, std::process::id());
    assert!(!holder.command.is_empty() && refused.to_string().contains(&holder.command), "{refused}");
    let unlocked = OpenOptions { read_only: true, lock: LockMode::None, ..OpenOptions::default() };
    assert!(FileDevice::open(&scratch.0, &unlocked).is_ok());
    drop(writer);
    assert!(FileDevice::open(&scratch.0, &OpenOptions::writer()).is_ok());
}

#[test]
fn a_flock_of_others_is_left_to_them() {
    let scratch = Scratch::new("flock");
    std::fs::write(&scratch.0, [1; 100]).unwrap();
    let file = std::fs::File::open(&scratch.0).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let writer = FileDevice::open(&scratch.0, &OpenOptions::writer()).unwrap();
    // Closing another descriptor of the same file takes no lock away.
    drop((std::fs::File::open(&scratch.0).unwrap(), file));
    assert!(FileDevice::open(&scratch.0, &OpenOptions::reader()).is_err());
    drop(writer);
    // One that can't write learns whether it is alone, and keeps writers away.
    let alone = OpenOptions { read_only: true, lock: LockMode::Exclusive, ..OpenOptions::default() };
    let reader = FileDevice::open(&scratch.0, &OpenOptions::reader()).unwrap();
    let refused = FileDevice::open(&scratch.0, &alone).unwrap_err();
    assert!(matches!(refused.kind, DeviceErrorKind::Busy { .. }), "{refused}");
    drop(reader);
    let first = FileDevice::open(&scratch.0, &alone).unwrap();
    assert!(FileDevice::open(&scratch.0, &OpenOptions::writer()).is_err());
    drop(first);
    assert!(FileDevice::open(&scratch.0, &OpenOptions::writer()).is_ok());
}

#[test]
fn a_file_cut_short_by_others_is_out_of_range() {
    for backend in [Backend::Threads, Backend::Uring] {
        let scratch = Scratch::new(&format!("cut-{backend:?}"));
        let Ok(device) = FileDevice::create(&scratch.0, 8192, &with(backend)) else {
            skip_io_uring("a_file_cut_short_by_others_is_out_of_range");
            continue;
        };
        std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(5000).unwrap();
        let batch = vec![Request::read(Physical(0), 4096), Request::read(Physical(4096), 4096)];
        let answers = device.submit(batch).wait();
        assert!(answers[0].result.is_ok());
        let error = answers[1].result.as_ref().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange { device_length: 5000 });
    }
}

#[test]
fn what_is_no_device_is_refused() {
    let directory = FileDevice::open(std::env::temp_dir(), &OpenOptions::reader()).unwrap_err();
    assert_eq!(directory.kind, DeviceErrorKind::WrongType);
    let null = FileDevice::open("/dev/null", &OpenOptions::reader()).unwrap_err();
    assert_eq!(null.kind, DeviceErrorKind::WrongType);
    let missing = FileDevice::open("/nonexistent/image", &OpenOptions::reader()).unwrap_err();
    assert_eq!(missing.errno(), rustix::io::Errno::NOENT.raw_os_error());
    assert!(missing.to_string().contains("/nonexistent/image"));
    let scratch = Scratch::new("exists");
    std::fs::write(&scratch.0, [1]).unwrap();
    let exists = FileDevice::create(&scratch.0, 10, &OpenOptions::writer()).unwrap_err();
    assert_eq!(exists.errno(), rustix::io::Errno::EXIST.raw_os_error());
    assert_eq!(std::fs::read(&scratch.0).unwrap(), [1], "a refused create changed the file");
}

/// Every result of the upper floors carries one inside.
#[test]
fn an_error_stays_small() {
    assert!(size_of::<crate::DeviceError>() <= 64);
}

#[test]
fn a_file_that_can_not_have_its_size_does_not_stay_behind() {
    let scratch = Scratch::new("size");
    assert!(FileDevice::create(&scratch.0, u64::MAX >> 1, &OpenOptions::writer()).is_err());
    assert!(!scratch.0.exists());
}

#[test]
fn an_unanswered_request_is_an_error_and_no_endless_wait() {
    let batch = [Request::read(Physical(0), 1), Request::write(Physical(512), vec![1])];
    let (ticket, completer) = Ticket::pending(&"gone".into(), &batch);
    let waiter = vlinder_base::thread::spawn("waiter", move || ticket.wait());
    let other = completer.clone();
    drop(completer);
    let [first, _] = batch;
    other.complete(0, first.complete(Ok(())));
    drop(other);
    let answers = waiter.join().unwrap();
    assert!(answers[0].result.is_ok());
    let error = answers[1].result.as_ref().unwrap_err();
    assert_eq!((&error.kind, error.offset), (&DeviceErrorKind::Abandoned, Physical(512)));
}

#[test]
fn a_flush_tells_that_the_file_was_cut_or_removed() {
    let scratch = Scratch::new("cut");
    let device = FileDevice::create(&scratch.0, LENGTH, &OpenOptions::writer()).unwrap();
    device.write_at(Physical(0), vec![1; 4096]).unwrap();
    device.flush().unwrap();
    let other = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    other.set_len(LENGTH - 1).unwrap();
    let error = device.flush().unwrap_err();
    assert_eq!(error.kind, DeviceErrorKind::CutShort { found_bytes: LENGTH - 1, length_bytes: LENGTH });
    other.set_len(LENGTH + 5).unwrap();
    device.flush().unwrap();
    std::fs::remove_file(&scratch.0).unwrap();
    assert_eq!(device.flush().unwrap_err().kind, DeviceErrorKind::Removed);
}

#[test]
fn a_file_that_has_taken_the_place_of_the_device_s_stays() {
    let (scratch, moved) = (Scratch::new("removed"), Scratch::new("removed-moved"));
    let device = FileDevice::create(&scratch.0, LENGTH, &OpenOptions::writer()).unwrap();
    std::fs::rename(&scratch.0, &moved.0).unwrap();
    std::fs::write(&scratch.0, b"another's").unwrap();
    device.remove(&scratch.0).unwrap();
    assert_eq!(std::fs::read(&scratch.0).unwrap(), b"another's");
    device.remove(&moved.0).unwrap();
    assert!(!moved.0.exists());
}

#[test]
fn a_file_that_never_had_a_name_is_flushed() {
    let scratch = Scratch::new("nameless");
    let file = std::fs::File::create_new(&scratch.0).unwrap();
    file.set_len(LENGTH).unwrap();
    std::fs::remove_file(&scratch.0).unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    let device = FileDevice::open(format!("/proc/self/fd/{descriptor}"), &OpenOptions::writer()).unwrap();
    device.write_at(Physical(0), vec![1; 4096]).unwrap();
    device.flush().unwrap();
}
