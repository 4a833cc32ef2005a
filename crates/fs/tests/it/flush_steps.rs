//! A flush of many files, in several batches of which one is stored while another is entered: when the device
//! refuses a write of any of them.

use crate::support::image;
use vlinder_base::metrics::Unit;
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, MemoryDevice, Operation};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_fs::data::flush_all;
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::simulated::{Repeat, SimulatedDevice};
use vlinder_testkit::{Scratch, require};

const IMAGE_BYTES: u64 = 256 << 20;
/// No more than are flushed together.
const FILES: u64 = 250;

fn content(number: u64) -> Vec<u8> {
    let length = 12_000 + number as usize * 37;
    number.to_le_bytes().into_iter().cycle().take(length).collect()
}

fn data_bytes_in_use(files: &Files) -> u64 {
    let report = files.filesystem().engine().space().unwrap();
    let data = report.kinds.iter().filter(|kind| kind.flags.has(BlockGroupFlags::DATA));
    data.map(|kind| kind.used_bytes).sum()
}

#[test]
fn a_run_behind_a_failed_batch_is_flushed_again() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("flush-steps");
    let image = image(&scratch, IMAGE_BYTES >> 20, &[]);
    let empty = std::fs::read(&image).unwrap();
    let mut entered_before = Vec::new();
    for number in [0, 1, 40, 120, 200, FILES - 1] {
        let device = Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&empty)));
        let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(&device) as _];
        let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
        let files = Files::new(filesystem, Caller::superuser());
        for file in 0..FILES {
            files.write(format!("/{file}"), content(file)).unwrap();
        }
        let extents =
            || files.filesystem().engine().registry().counter("write_back.extents", "", Unit::Count).get();
        device.fail_at(Some(Operation::Write), number, Repeat::Once, DeviceErrorKind::Io { errno: 5 });
        assert!(flush_all(files.filesystem()).is_err(), "write {number} was refused");
        entered_before.push(extents());
        assert!(extents() <= number, "nothing behind the batch of write {number} was entered");
        assert!(files.filesystem().engine().read_only_reason().is_none(), "nothing refers to what failed");
        device.heal();
        flush_all(files.filesystem()).unwrap();
        assert_eq!(extents(), FILES, "each file became one extent");
        files.filesystem().sync().unwrap();
        let whole_sectors: u64 =
            (0..FILES).map(|file| content(file).len().next_multiple_of(4096) as u64).sum();
        assert_eq!(data_bytes_in_use(&files), whole_sectors, "after write {number} was refused");
        for file in 0..FILES {
            assert!(files.read(format!("/{file}")).unwrap() == content(file));
        }
        files.close().unwrap();
        std::fs::write(&image, device.live_image().read_at(Physical(0), IMAGE_BYTES as usize).unwrap())
            .unwrap();
        btrfs_check_data(&image).unwrap();
    }
    assert_eq!(entered_before[..2], [0, 0]);
    assert!(entered_before.is_sorted() && entered_before[4] > entered_before[3], "{entered_before:?}");
}
