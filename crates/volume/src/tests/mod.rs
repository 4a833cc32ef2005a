//! Volumes over memory, with faults.

mod memory_overlay;
mod one_reconstruction;
mod open;
mod raid;
mod reading;
mod torn;
mod unread;
mod writing;

use std::collections::BTreeSet;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, MemoryDevice, Operation, Request, Ticket,
};
use vlinder_format::chunk::{BlockGroupFlags, Chunk, STRIPE_LENGTH, Stripe};
use vlinder_format::device::DeviceItem;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::{MAGIC, Superblock, SuperblockMirror, SystemChunkArray};
use vlinder_format::{DeviceId, Generation, Level, Logical, Physical, RootId, Uuid};

use crate::*;

pub(crate) const MEBIBYTE: u64 = 1 << 20;
/// Long enough for the second superblock.
pub(crate) const LENGTH: u64 = 128 * MEBIBYTE;
/// The chunk that every test volume has: 8 MiB at this address.
pub(crate) const CHUNK: Logical = Logical(16 * MEBIBYTE);

/// What a device is told to fail.
#[derive(Default)]
struct Faults {
    reads: BTreeSet<u64>,
    writes: BTreeSet<u64>,
    unanswered_writes: BTreeSet<u64>,
    flush: bool,
    flushes: usize,
    log: Vec<(&'static str, u64)>,
}

/// A device that fails every request that touches a byte it was told to.
pub(crate) struct Faulty {
    pub(crate) inner: MemoryDevice,
    faults: Mutex<Faults>,
}

impl Faulty {
    pub(crate) fn new(length: u64) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(length), faults: Mutex::default() })
    }

    pub(crate) fn fail_reads_of(&self, byte: u64) {
        self.faults.lock().reads.insert(byte);
    }

    pub(crate) fn fail_writes_of(&self, byte: u64) {
        self.faults.lock().writes.insert(byte);
    }

    /// Writes of this byte are stored, and nobody says so.
    pub(crate) fn leave_writes_unanswered(&self, byte: u64) {
        self.faults.lock().unanswered_writes.insert(byte);
    }

    pub(crate) fn fail_flushes(&self) {
        self.faults.lock().flush = true;
    }

    pub(crate) fn heal(&self) {
        *self.faults.lock() = Faults::default();
    }

    /// Writes and flushes since the last call, in their order.
    pub(crate) fn take_log(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.faults.lock().log)
    }

    fn submit_one(&self, request: Request) -> Ticket {
        let mut faults = self.faults.lock();
        let (offset, length) = (request.offset(), request.length_bytes());
        let operation = request.operation();
        let set = match &request {
            Request::Read { .. } => &faults.reads,
            Request::Write { .. } => &faults.writes,
        };
        let fails = set.range(offset.0..offset.0 + length).next().is_some();
        if let Request::Write { durability, .. } = &request {
            let durable = *durability == vlinder_device::Durability::Durable;
            faults.log.push((if durable { "durable" } else { "write" }, offset.0));
        }
        let is_write = matches!(request, Request::Write { .. });
        let is_unanswered =
            is_write && faults.unanswered_writes.range(offset.0..offset.0 + length).next().is_some();
        drop(faults);
        if is_unanswered {
            self.inner.submit(vec![request]).wait();
            return Ticket::ready(Vec::new());
        }
        if fails {
            let error = self.inner.error(DeviceErrorKind::Io { errno: 5 }, operation, offset, length);
            return Ticket::ready(vec![request.complete(Err(error))]);
        }
        self.inner.submit(vec![request])
    }
}

impl Device for Faulty {
    fn describe(&self) -> Description {
        self.inner.describe()
    }
    fn length(&self) -> u64 {
        self.inner.length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::ready(batch.into_iter().flat_map(|request| self.submit_one(request).wait()).collect())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let mut faults = self.faults.lock();
        faults.flushes += 1;
        faults.log.push(("flush", 0));
        if faults.flush {
            let name = self.describe().name;
            return Err(DeviceError::whole(DeviceErrorKind::Io { errno: 5 }, Operation::Flush, &name));
        }
        self.inner.flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}

/// A chunk of 8 MiB with stripes at these places of device 1.
pub(crate) fn chunk(flags: BlockGroupFlags, physicals: &[u64]) -> Chunk {
    let stripes = physicals
        .iter()
        .map(|physical| Stripe {
            device: DeviceId(1),
            physical: Physical(*physical),
            device_uuid: Uuid([4; 16]),
        })
        .collect();
    Chunk {
        length: 8 * MEBIBYTE,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags,
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes: 1,
        stripes,
    }
}

pub(crate) const GEOMETRY: Geometry = Geometry {
    sector_size: 4096,
    node_size: 16384,
    checksum_kind: ChecksumKind::Crc32c,
    mixed_groups: false,
};

/// A volume with one DUP metadata chunk, its copies at 32 and 48 MiB.
pub(crate) fn dup_volume(device: &Arc<Faulty>, access: Access) -> Volume {
    let member = Member::new(DeviceId(1), Uuid([4; 16]), LENGTH, Arc::clone(device) as Arc<dyn Device>);
    let volume = Volume::new(vec![member], GEOMETRY, access);
    let flags = BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP);
    volume.add_chunk(CHUNK, chunk(flags, &[32 * MEBIBYTE, 48 * MEBIBYTE])).unwrap();
    volume
}

/// A superblock that passes the checks, for a device of [`LENGTH`] bytes.
pub(crate) fn superblock(generation: u64) -> Superblock {
    let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
    let system = chunk(BlockGroupFlags::SYSTEM, &[MEBIBYTE]);
    let (array, size) = SystemChunkArray::of([(Logical(MEBIBYTE), &system)]).unwrap();
    superblock.fsid = Uuid([7; 16]);
    superblock.location = SuperblockMirror::Primary.offset();
    superblock.flags = 1;
    superblock.magic = MAGIC;
    superblock.generation = Generation(generation);
    superblock.root = Logical(5 * MEBIBYTE + generation * 16384);
    superblock.chunk_root = Logical(MEBIBYTE);
    superblock.bytes_used = 6 * 16384;
    superblock.total_bytes = LENGTH;
    superblock.device_count = 1;
    superblock.sector_size = 4096;
    superblock.node_size = 16384;
    superblock.leaf_size = 16384;
    superblock.stripe_size = 4096;
    superblock.incompat = IncompatFeatures::MIXED_BACKREF;
    superblock.uuid_tree_generation = Generation(generation);
    superblock.system_chunk_array = array;
    superblock.system_array_size = size;
    superblock.device_item = DeviceItem {
        device: DeviceId(1),
        total_bytes: LENGTH,
        uuid: Uuid([4; 16]),
        fsid: Uuid([7; 16]),
        ..DeviceItem::default()
    };
    for back in 0..4u64 {
        let Some(of) = generation.checked_sub(back) else { continue };
        let slot = &mut superblock.backup_roots[(of % 4) as usize];
        slot.tree_root = Logical(5 * MEBIBYTE + of * 16384);
        slot.tree_root_generation = Generation(of);
        slot.tree_root_level = Level(0);
    }
    superblock
}

pub(crate) fn encode(superblock: &Superblock, mirror: SuperblockMirror) -> [u8; 4096] {
    superblock.encode_with_checksum(mirror, |covered| *checksum(ChecksumKind::Crc32c, covered).as_field())
}

/// Puts a superblock to its place.
pub(crate) fn put(device: &dyn Device, superblock: &Superblock, mirror: SuperblockMirror) {
    device.write_at(mirror.offset(), encode(superblock, mirror).to_vec()).unwrap();
}

/// The bytes of copy 0 or 1 of an address in the test chunk.
pub(crate) fn copy_of(device: &Faulty, logical: Logical, mirror: u64, length: usize) -> Vec<u8> {
    let physical = 32 * MEBIBYTE + mirror * 16 * MEBIBYTE + (logical.0 - CHUNK.0);
    device.inner.read_at(Physical(physical), length).unwrap()
}

/// The place of copy 0 or 1 of an address in the test chunk.
pub(crate) fn place_of(logical: Logical, mirror: u64) -> u64 {
    32 * MEBIBYTE + mirror * 16 * MEBIBYTE + (logical.0 - CHUNK.0)
}
