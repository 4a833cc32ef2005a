//! A device that watches the order of what is written: no superblock before all that it reaches is durable, and nothing
//! over what the last durable superblock reaches.
//!
//! What a superblock reaches is what its extent tree lists: every tree block and every data extent. File data written in
//! place (into preallocated extents, or of inodes without copy-on-write) are allowed: only tree blocks are guarded against
//! overwriting.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::units::Physical;
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, MemoryDevice, Operation, Request, Ticket,
};
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::{ItemType, Key, Logical, RootId};
use vlinder_transaction::{Engine, EngineOptions};
use vlinder_volume::{Access, SuperblockChoice, Volume};

use super::recorded::is_equal;
use crate::SimulatedDevice;

const PRIMARY_SUPERBLOCK: u64 = 64 << 10;
const SUPERBLOCK_BYTES: u64 = 4096;

/// The device; see the module.
pub struct OrderChecker {
    inner: Arc<SimulatedDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tree blocks that the last superblock reaches: first byte on the device, length.
    guarded: BTreeMap<u64, u64>,
    violations: Vec<String>,
    superblocks: u64,
}

/// A range of the device that a superblock reaches.
struct Reached {
    start: u64,
    length: u64,
    is_tree_block: bool,
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
                "{length} bytes at {start} overwrite the tree block at {place}, which the last superblock reaches"
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
    reached.iter().filter(|one| one.is_tree_block).map(|one| (one.start, one.length)).collect()
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
    let tree = engine.tree(RootId::EXTENT_TREE).map_err(text)?;
    let mut cursor =
        engine.trees().cursor(tree.root(), &Key::MIN, vlinder_tree::Readahead::None).map_err(text)?;
    let mut reached = Vec::new();
    while let Some((key, data)) = cursor.item() {
        let length = match key.item_type {
            ItemType::EXTENT_ITEM => Some(key.offset),
            ItemType::METADATA_ITEM => Some(u64::from(engine.node_size())),
            _ => None,
        };
        if let Some(length) = length {
            let flags = ExtentItem::decode_header(data).map_err(text)?.flags;
            let logical = Logical(key.objectid.0);
            let chunk = engine.volume().chunks().covering(logical, length).map_err(text)?;
            reached.extend(chunk.chunk.stripes.iter().map(|stripe| Reached {
                start: stripe.physical.0 + (logical.0 - chunk.logical.0),
                length,
                is_tree_block: flags.has(ExtentFlags::TREE_BLOCK),
            }));
        }
        cursor.advance().map_err(text)?;
    }
    Ok(reached)
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
