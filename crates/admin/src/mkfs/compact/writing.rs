//! The blocks of a planned image written to their places.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, DeviceExt, Request};
use vlinder_format::features::Features;
use vlinder_format::{Block, Key, Level, Physical, RootId};
use vlinder_volume::MappedChunk;
use vlinder_volume::profile::plan_write;

use super::data_groups::DataGroup;
use super::sources::{Filled, PlannedTree};
use crate::mkfs::MkfsError;
use crate::mkfs::raw::{PlannedBlock, Sealing};

/// Blocks that are written together.
const BATCH_BLOCKS: usize = 64;
/// Bytes that are copied at a time.
const COPIED_BYTES: u64 = 1 << 20;

/// Writes all blocks of all trees, and every copy.
pub(super) fn write_trees(
    filled: &Filled<'_>,
    trees: &BTreeMap<RootId, PlannedTree>,
    chunks: &[MappedChunk],
    features: Features,
    device: &dyn Device,
) -> Result<(), MkfsError> {
    let sealing = Sealing { parameters: filled.parameters, generation: filled.generation, features };
    for (root, tree) in trees {
        let mut writer = TreeWriter {
            sealing: &sealing,
            root: *root,
            chunks,
            device,
            waiting: Vec::with_capacity(BATCH_BLOCKS),
        };
        let leaves = tree.blocks.partition_point(|block| block.level == Level::LEAF);
        let mut leaf = Leaf::default();
        let mut next = tree.blocks[..leaves].iter();
        let mut failed = None;
        tree.source.visit(filled.filesystem, |key, data| {
            if failed.is_none() {
                leaf.add(key, data);
                if leaf.is_whole(next.as_slice()) {
                    failed = next.next().and_then(|planned| writer.write_leaf(planned, &mut leaf).err());
                }
            }
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        // A tree without items has one empty leaf.
        for planned in next {
            assert!(planned.content.is_empty(), "{root} has fewer items than it was planned with");
            writer.write_leaf(planned, &mut leaf)?;
        }
        for planned in &tree.blocks[leaves..] {
            writer.write(sealing.node(*root, planned, &tree.blocks))?;
        }
        writer.flush()?;
    }
    Ok(())
}

/// Items of a leaf that is being gathered, without an allocation for each.
#[derive(Default)]
struct Leaf {
    bytes: Vec<u8>,
    items: Vec<(Key, std::ops::Range<usize>)>,
}

impl Leaf {
    fn add(&mut self, key: Key, data: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        self.items.push((key, start..self.bytes.len()));
    }

    /// Whether it has all items of the first of these leaves.
    fn is_whole(&self, planned: &[PlannedBlock]) -> bool {
        planned.first().is_some_and(|leaf| leaf.content.len() == self.items.len())
    }
}

struct TreeWriter<'a> {
    sealing: &'a Sealing<'a>,
    root: RootId,
    chunks: &'a [MappedChunk],
    device: &'a dyn Device,
    waiting: Vec<Request>,
}

impl TreeWriter<'_> {
    fn write_leaf(&mut self, planned: &PlannedBlock, leaf: &mut Leaf) -> Result<(), MkfsError> {
        let items: Vec<(Key, &[u8])> =
            leaf.items.iter().map(|(key, range)| (*key, &leaf.bytes[range.clone()])).collect();
        let block = self.sealing.leaf(self.root, planned, &items);
        leaf.bytes.clear();
        leaf.items.clear();
        self.write(block)
    }

    fn write(&mut self, block: Block) -> Result<(), MkfsError> {
        let (logical, length) = (block.logical(), u64::from(self.sealing.parameters.node_size));
        let chunk = self.chunks.iter().find(|chunk| chunk.contains(logical, length));
        let chunk = chunk.expect("a tree block is planned inside of a chunk");
        let plan = plan_write(chunk, logical, length)?;
        let bytes: Arc<[u8]> = Arc::from(block.bytes());
        self.waiting.extend(plan.places().map(|place| Request::write(place.physical, Arc::clone(&bytes))));
        if self.waiting.len() >= BATCH_BLOCKS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), MkfsError> {
        self.device.submit(std::mem::take(&mut self.waiting)).wait_all()?;
        Ok(())
    }
}

/// Moves the second copy of a group of data whose chunk was cut to where the chunk has it now.
pub(super) fn move_second_copy(
    group: &DataGroup,
    chunks: &[MappedChunk],
    device: &dyn Device,
) -> Result<(), MkfsError> {
    let Some(chunk) = chunks.iter().find(|chunk| chunk.logical == group.chunk.logical) else { return Ok(()) };
    let copies = group.chunk.chunk.stripes.iter().zip(&chunk.chunk.stripes).skip(1);
    for (from, to) in copies.filter(|(from, to)| from.physical != to.physical) {
        // The copy moves towards the start, so that what is still to be read is never overwritten.
        assert!(to.physical < from.physical, "a cut chunk is shorter");
        let mut done = 0;
        let length = group.least_length();
        while done < length {
            let bytes = usize::try_from(COPIED_BYTES.min(length - done)).unwrap_or(usize::MAX);
            let data = device.read_at(Physical(from.physical.0 + done), bytes)?;
            device.write_at(Physical(to.physical.0 + done), data)?;
            done += COPIED_BYTES;
        }
    }
    Ok(())
}
