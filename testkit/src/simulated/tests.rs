use super::*;

fn eio() -> DeviceErrorKind {
    DeviceErrorKind::Io { errno: rustix::io::Errno::IO.raw_os_error() }
}

#[test]
fn only_flushed_and_durable_writes_survive() {
    let device = SimulatedDevice::new(8192);
    device.write_at(Physical(0), vec![1; 512]).unwrap();
    device.flush().unwrap();
    device.write_at(Physical(0), vec![2; 512]).unwrap();
    device.write_durable_at(Physical(512), vec![3; 512]).unwrap();
    device.write_at(Physical(1024), vec![4; 512]).unwrap();
    assert_eq!(device.read_at(Physical(0), 1536).unwrap()[..512], [2; 512]);
    let left = device.durable_image().read_at(Physical(0), 1536).unwrap();
    assert_eq!((left[0], left[512], left[1024]), (1, 3, 0));
    let copy = device.clone();
    copy.flush().unwrap();
    assert_eq!(copy.durable_image().read_at(Physical(1024), 1).unwrap(), [4]);
    assert_eq!(device.durable_image().read_at(Physical(1024), 1).unwrap(), [0]);
    let epochs: Vec<u64> = device
        .recording()
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Write(write) => Some(write.epoch),
            _ => None,
        })
        .collect();
    assert_eq!(epochs, [0, 1, 1, 1]);
}

#[test]
fn a_durable_write_is_not_undone_by_an_older_cached_one() {
    let device = SimulatedDevice::new(512);
    device.write_at(Physical(0), vec![1; 512]).unwrap();
    device.write_durable_at(Physical(0), vec![2; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.durable_image().read_at(Physical(0), 1).unwrap(), [2]);
}

#[test]
fn after_a_failed_flush_a_later_one_proves_nothing() {
    let device = SimulatedDevice::new(1024);
    device.write_at(Physical(0), vec![1; 512]).unwrap();
    device.fail_at(Some(Operation::Flush), 0, Repeat::Once, eio());
    assert_eq!(device.flush().unwrap_err().kind, eio());
    device.write_at(Physical(512), vec![2; 512]).unwrap();
    device.flush().unwrap();
    let left = device.durable_image().read_at(Physical(0), 1024).unwrap();
    assert_eq!((left[0], left[512]), (0, 2));
}

#[test]
fn operations_fail_at_their_number_once_or_from_there_on() {
    let device = SimulatedDevice::new(4096);
    device.fail_at(Some(Operation::Write), 1, Repeat::Once, DeviceErrorKind::HostFull);
    let results: Vec<bool> = (0..4).map(|_| device.write_at(Physical(0), vec![1]).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    device.fail_at(None, 2, Repeat::Sticky, eio());
    assert!(device.read_at(Physical(0), 1).is_ok() && device.flush().is_ok());
    assert!(device.discard(Physical(0), 1).is_err() && device.read_at(Physical(0), 1).is_err());
    assert_eq!((device.count(Operation::Write), device.count(Operation::Discard)), (4, 1));
    device.heal();
    assert!(device.read_at(Physical(0), 1).is_ok());
}

#[test]
fn sector_faults_strike_their_range_as_long_as_they_should() {
    let device = SimulatedDevice::new(1 << 16);
    device.write_at(Physical(0), vec![0x0f; 1 << 16]).unwrap();
    device.inject(Physical(512), 1, SectorFault::ReadError, Repeat::Once);
    assert!(device.read_at(Physical(0), 512).is_ok(), "the neighbour is fine");
    assert!(device.read_at(Physical(1000), 100).is_err());
    assert!(device.read_at(Physical(1000), 100).is_ok());

    device.inject(Physical(1024), 1, SectorFault::FlippedBit { byte: 3, bit: 7 }, Repeat::UntilWritten);
    for _ in 0..2 {
        assert_eq!(device.read_at(Physical(1020), 10).unwrap()[7], 0x8f);
    }
    device.write_at(Physical(1024), vec![1; 512]).unwrap();
    assert_eq!(device.read_at(Physical(1024), 4).unwrap(), [1; 4]);

    device.inject(Physical(4096), 4096, SectorFault::LostWrites, Repeat::Once);
    for expected in [0x0f, 2] {
        device.write_at(Physical(5000), vec![2]).unwrap();
        assert_eq!(device.read_at(Physical(5000), 1).unwrap(), [expected]);
    }
    device.inject(Physical(8192), 1, SectorFault::MisplacedWrites { to: Physical(16384) }, Repeat::Once);
    device.write_at(Physical(8192), vec![3]).unwrap();
    assert_eq!(device.read_at(Physical(8192), 1).unwrap(), [0x0f]);
    assert_eq!(device.read_at(Physical(16384), 1).unwrap(), [3]);
    device.inject(Physical(0), 1, SectorFault::MisplacedReads { from: Physical(16384) }, Repeat::Once);
    assert_eq!(device.read_at(Physical(0), 1).unwrap(), [3]);
    assert_eq!(device.read_at(Physical(0), 1).unwrap(), [0x0f]);
}

#[test]
fn virtual_time_passes_without_waiting() {
    let device = SimulatedDevice::new(4 << 20);
    let clock = Arc::new(FixedClock::new(vlinder_base::clock::Timestamp::EPOCH));
    let delay = Delay {
        write: Duration::from_millis(1),
        flush: Duration::from_secs(5),
        per_mebibyte: Duration::from_millis(10),
        ..Delay::default()
    };
    device.set_delay(delay, Some(clock.clone()));
    device.write_at(Physical(0), vec![0; 2 << 20]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.busy_time(), Duration::from_millis(5021));
    assert_eq!(vlinder_base::clock::Clock::monotonic(&*clock), Duration::from_millis(5021));
}
