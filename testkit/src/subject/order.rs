//! A device that watches the order of what is written: no superblock before all that it reaches is durable,
//! and nothing over what the last durable superblock reaches.
//!
//! What a superblock reaches is what its extent tree lists: every tree block and every data extent; and if it
//! names an fsync log, every block of that, and the data extents that its items refer to. File data written
//! in place (into preallocated extents, or of inodes without copy-on-write) are allowed: only tree blocks are
//! guarded against overwriting, and extents that only the log knows.

use std::collections::{BTreeMap, HashSet};

use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::units::Physical;
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, MemoryDevice, Operation, Request, Ticket,
};
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{InodeFlags, InodeItem};
use vlinder_format::root_item::RootItem;
use vlinder_format::{Generation, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_transaction::{Engine, EngineOptions};
use vlinder_tree::{Root, RootPointer, WantedBlock};
use vlinder_volume::{Access, SuperblockChoice, Volume};

use super::memory_image::is_equal;
use crate::SimulatedDevice;

const PRIMARY_SUPERBLOCK: u64 = 64 << 10;
const SUPERBLOCK_BYTES: u64 = 4096;

/// The device; see the module.
pub struct OrderChecker {
    inner: Arc<SimulatedDevice>,
    state: Mutex<OrderState>,
}

#[derive(Default)]
struct OrderState {
    /// Tree blocks that the last superblock reaches, and data of its log: first byte on the device, length.
    guarded: BTreeMap<u64, u64>,
    violations: Vec<String>,
    superblocks: u64,
}

/// A range of the device that a superblock reaches.
struct Reached {
    start: u64,
    length: u64,
    is_guarded: bool,
}

impl OrderChecker {
    /// Watches this device, which holds a file system.
    pub fn new(inner: Arc<SimulatedDevice>) -> Self {
        let checker = OrderChecker { inner, state: Mutex::default() };
        let reached = reach(&checker.inner.live_image()).unwrap_or_default();
        checker.state.lock().guarded = guard(&reached);
        checker
    }

    /// What was done in a wrong order.
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    /// How many superblocks were looked at.
    pub fn superblocks(&self) -> u64 {
        self.state.lock().superblocks
    }

    /// Whether a write may happen now.
    fn judge(&self, request: &Request) -> Result<(), String> {
        let Request::Write { data, .. } = request else { return Ok(()) };
        let (start, length) = (request.offset().0, request.length_bytes());
        if start == PRIMARY_SUPERBLOCK && length == SUPERBLOCK_BYTES {
            return self.judge_superblock(data.as_slice());
        }
        let state = self.state.lock();
        let below = state.guarded.range(..start + length).next_back();
        match below.filter(|(place, size)| *place + *size > start) {
            Some((place, _)) => Err(format!(
                "{length} bytes at {start} overwrite what lies at {place} and the last superblock reaches"
            )),
            None => Ok(()),
        }
    }

    fn judge_superblock(&self, bytes: &[u8]) -> Result<(), String> {
        let (live, durable) = (self.inner.live_image(), self.inner.durable_image());
        let with_superblock = |image: MemoryDevice| {
            let written = image.write_at(Physical(PRIMARY_SUPERBLOCK), bytes.to_vec());
            written.map(|()| image).map_err(|error| error.to_string())
        };
        let live = with_superblock(live)?;
        let reached =
            reach(&live).map_err(|error| format!("what the superblock reaches can't be read: {error}"))?;
        let missing = reached.iter().find(|one| !is_equal(&live, &durable, one.start, one.length));
        let mut state = self.state.lock();
        state.superblocks += 1;
        state.guarded = guard(&reached);
        match missing {
            Some(one) => Err(format!(
                "a superblock is written before the {} bytes at {} that it reaches are flushed",
                one.length, one.start
            )),
            None => Ok(()),
        }
    }
}

fn guard(reached: &[Reached]) -> BTreeMap<u64, u64> {
    reached.iter().filter(|one| one.is_guarded).map(|one| (one.start, one.length)).collect()
}

/// Everything that the superblock of an image reaches, with every copy.
fn reach(image: &MemoryDevice) -> Result<Vec<Reached>, String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let opened =
        Volume::open(vec![Arc::new(image.snapshot())], SuperblockChoice::default(), Access::ReadOnly)
            .map_err(text)?;
    let engine =
        Engine::open(opened, EngineOptions { read_only: true, ..EngineOptions::default() }).map_err(text)?;
    // A reader has not read all chunks and groups yet.
    engine.space().map_err(text)?;
    let tree = engine.tree(RootId::EXTENT_TREE).map_err(text)?;
    let mut cursor = engine
        .forest()
        .trees()
        .cursor(tree.root(), &Key::MIN, vlinder_tree::Readahead::None)
        .map_err(text)?;
    let mut reached = Vec::new();
    while let Some((key, data)) = cursor.item() {
        let length = match key.item_type {
            ItemType::EXTENT_ITEM => Some(key.offset),
            ItemType::METADATA_ITEM => Some(u64::from(engine.volume().geometry().node_size)),
            _ => None,
        };
        if let Some(length) = length {
            let flags = ExtentItem::decode_header(data).map_err(text)?.flags;
            let is_guarded = flags.has(ExtentFlags::TREE_BLOCK);
            reached.extend(copies(&engine, Logical(key.objectid.0), length, is_guarded)?);
        }
        cursor.advance().map_err(text)?;
    }
    reached.extend(reach_of_log(&engine)?);
    Ok(reached)
}

/// Every copy of a range.
fn copies(engine: &Engine, logical: Logical, length: u64, is_guarded: bool) -> Result<Vec<Reached>, String> {
    let chunk = engine.volume().chunks().covering(logical, length).map_err(|error| error.to_string())?;
    let within = logical.0 - chunk.logical.0;
    let copy = |stripe: &vlinder_format::chunk::Stripe| Reached {
        start: stripe.physical.0 + within,
        length,
        is_guarded,
    };
    Ok(chunk.chunk.stripes.iter().map(copy).collect())
}

/// What the fsync log of an image reaches.
fn reach_of_log(engine: &Engine) -> Result<Vec<Reached>, String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let superblock = engine.superblock();
    if !superblock.has_log() {
        return Ok(Vec::new());
    }
    let generation = superblock.generation.next();
    let log = |logical, level| {
        Root::new(RootId::TREE_LOG, RootPointer { logical, generation, level }, Generation(0))
    };
    let mut reached = Vec::new();
    let mut data: Vec<(ObjectId, Reached)> = Vec::new();
    let mut in_place = HashSet::new();
    let mut waiting = vec![WantedBlock::root(&log(superblock.log_root, superblock.log_root_level))];
    while let Some(wanted) = waiting.pop() {
        let block = engine.forest().trees().block(&wanted).map_err(text)?;
        reached.extend(copies(
            engine,
            wanted.logical,
            u64::from(engine.volume().geometry().node_size),
            true,
        )?);
        for slot in 0..block.len() {
            let key = block.key(slot);
            if !block.is_leaf() {
                waiting.push(WantedBlock::child(RootId::TREE_LOG, &block, slot));
            } else if key.item_type == ItemType::ROOT_ITEM {
                let item = RootItem::decode(block.data(slot)).map_err(text)?;
                waiting.push(WantedBlock::root(&log(item.address, item.level)));
            } else if key.item_type == ItemType::EXTENT_DATA {
                let item = FileExtent::decode(block.data(slot)).map_err(text)?;
                let Some(range) = item.range().filter(|range| !range.is_hole()) else { continue };
                // What is preallocated may still be written in place.
                let is_new = engine
                    .forest()
                    .trees()
                    .get(engine.tree(RootId::EXTENT_TREE).map_err(text)?.root(), &extent_key(&range))
                    .map_err(text)?
                    .is_none();
                let is_guarded = is_new && matches!(item.content, FileExtentContent::Regular(_));
                if is_new {
                    let start = Logical(range.address.0 + range.offset_bytes);
                    let shown = if item.compression == CompressionId::NONE {
                        (start, range.file_bytes)
                    } else {
                        (range.address, range.disk_bytes)
                    };
                    let copies = copies(engine, shown.0, shown.1, is_guarded)?;
                    data.extend(copies.into_iter().map(|copy| (key.objectid, copy)));
                }
            } else if key.item_type == ItemType::INODE_ITEM {
                let item = InodeItem::decode(block.data(slot)).map_err(text)?;
                if item.flags.has(InodeFlags::NODATACOW) {
                    in_place.insert(key.objectid);
                }
            }
        }
    }
    let guard = |(inode, copy): (ObjectId, Reached)| {
        let is_guarded = copy.is_guarded && !in_place.contains(&inode);
        Reached { is_guarded, ..copy }
    };
    reached.extend(data.into_iter().map(guard));
    Ok(reached)
}

fn extent_key(range: &vlinder_format::file_extent::ExtentRange) -> Key {
    Key::new(ObjectId(range.address.0), ItemType::EXTENT_ITEM, range.disk_bytes)
}

impl Device for OrderChecker {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let judged = batch.into_iter().map(|request| match self.judge(&request) {
            Ok(()) => Ok(request),
            Err(violation) => {
                self.state.lock().violations.push(violation);
                let kind = DeviceErrorKind::Io { errno: rustix::io::Errno::IO.raw_os_error() };
                let error = self.error(kind, Operation::Write, request.offset(), request.length_bytes());
                Err(request.complete(Err(error)))
            }
        });
        // In order, one by one: a superblock in a batch must find what came before it.
        let completions = judged.flat_map(|judged| match judged {
            Ok(request) => self.inner.submit(vec![request]).wait(),
            Err(completion) => vec![completion],
        });
        Ticket::ready(completions.collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, length_bytes)
    }
}
