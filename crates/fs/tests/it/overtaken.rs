//! A snapshot that comes while bytes are on their way into preallocated space: it shares the space as
//! preallocated, so the bytes go elsewhere.

use std::time::Duration;

use crate::support::image;
use vlinder_base::metrics::Unit;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_base::units::Physical;
use vlinder_device::{Description, Device, DeviceError, DeviceExt, MemoryDevice, Request, Ticket};
use vlinder_fs::data::{Allocate, flush};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions, WriteOrigin};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

const IMAGE_BYTES: u64 = 256 << 20;
const BYTES: usize = 64 << 10;
/// What the file of the snapshot's own flush holds.
const BEFORE: u8 = 0xb0;
/// What is written to preallocated space.
const WRITTEN: u8 = 0xa0;

/// A device that lets a snapshot's flush wait for a write to preallocated space, and that write for the
/// snapshot.
struct Crossing {
    inner: MemoryDevice,
    is_flushing: AtomicBool,
    may_go_on: AtomicBool,
    is_snapshot_there: AtomicBool,
}

fn set(flag: &AtomicBool) {
    flag.store(true, Ordering::SeqCst);
}

fn wait_for(flag: &AtomicBool) {
    // A minute.
    for _ in 0..60_000 {
        if flag.load(Ordering::SeqCst) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the other thread never came so far");
}

fn writes(batch: &[Request], byte: u8) -> bool {
    batch.iter().any(|request| match request {
        Request::Write { data, .. } => data.as_slice().iter().take(4096).all(|found| *found == byte),
        Request::Read { .. } => false,
    })
}

impl Device for Crossing {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if writes(&batch, BEFORE) {
            set(&self.is_flushing);
            wait_for(&self.may_go_on);
        }
        if writes(&batch, WRITTEN) && !self.may_go_on.load(Ordering::SeqCst) {
            set(&self.may_go_on);
            wait_for(&self.is_snapshot_there);
        }
        self.inner.submit(batch)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

/// With the file of the old tree gone, nothing but the snapshot refers to the space, which holds no bytes of
/// a file: checksums of it would be those of nothing.
#[test]
fn bytes_on_their_way_into_newly_shared_space_go_elsewhere() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("overtaken");
    let image = image(&scratch, IMAGE_BYTES >> 20, &[]);
    let device = Arc::new(Crossing {
        inner: MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()),
        is_flushing: AtomicBool::new(false),
        may_go_on: AtomicBool::new(false),
        is_snapshot_there: AtomicBool::new(false),
    });
    let options = OpenOptions::parse("commit=100000").unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
    let files = Files::new(filesystem.clone(), Caller::superuser());
    files.write("/prepared", []).unwrap();
    let inode = files.resolve("/prepared".as_ref()).unwrap();
    let reserve = Allocate::Reserve { keep_size: false };
    let caller = Caller::superuser();
    filesystem.files().allocate_file(&caller, &inode, reserve, 0, BYTES as u64, WriteOrigin::Caller).unwrap();
    files.sync().unwrap();

    files.write("/before", vec![BEFORE; BYTES]).unwrap();
    let snapshot = {
        let (files, device) = (files.clone(), Arc::clone(&device));
        thread::spawn("snapshot", move || {
            files.snapshot("/", "/shot", false).unwrap();
            set(&device.is_snapshot_there);
        })
    };
    wait_for(&device.is_flushing);
    filesystem.files().write_at(&caller, &inode, 0, vec![WRITTEN; BYTES].into()).unwrap();
    flush(&filesystem, &inode).unwrap();
    snapshot.join().unwrap();

    let overtaken = filesystem.engine().registry().counter("write_back.overtaken", "", Unit::Count).get();
    assert_eq!(overtaken, 1, "the snapshot came between");
    assert!(files.read("/prepared").unwrap() == [WRITTEN; BYTES]);
    assert!(files.read("/shot/prepared").unwrap() == [0; BYTES]);
    assert!(files.read("/shot/before").unwrap() == [BEFORE; BYTES]);
    drop(inode);
    files.remove_file("/prepared").unwrap();
    files.close().unwrap();
    drop(filesystem);
    std::fs::write(&image, device.inner.read_at(Physical(0), IMAGE_BYTES as usize).unwrap()).unwrap();
    btrfs_check_data(&image).unwrap();
}
