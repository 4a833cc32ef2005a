//! Chunks against block groups, device extents and devices.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::{DeviceId, ItemType, Logical, Physical, Place, RootId};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::walk::{ItemVisitor, walk};

/// A chunk with the place of its item.
pub(crate) struct FoundChunk {
    pub(crate) chunk: Chunk,
    /// Bytes of the extents that were found in it.
    pub(crate) used: u64,
    place: Place,
}

/// A block group, as its item says.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) length: u64,
    flags: BlockGroupFlags,
    used: u64,
    place: Place,
}

/// A run of a device that belongs to a chunk.
struct FoundDeviceExtent {
    chunk: Logical,
    length: u64,
    place: Place,
}

/// Everything that says where logical addresses lie.
#[derive(Default)]
pub(crate) struct Layout {
    pub(crate) chunks: BTreeMap<Logical, FoundChunk>,
    pub(crate) groups: BTreeMap<Logical, Group>,
    /// Groups whose items could not be used.
    faulty_groups: BTreeSet<Logical>,
    devices: BTreeMap<DeviceId, (DeviceItem, Place)>,
    device_extents: BTreeMap<(DeviceId, Physical), FoundDeviceExtent>,
}

impl Layout {
    /// The chunk that an address lies in.
    pub(crate) fn chunk_of(&mut self, logical: Logical) -> Option<(Logical, &mut FoundChunk)> {
        let (start, found) = self.chunks.range_mut(..=logical).next_back()?;
        let end = start.checked_add(found.chunk.length)?;
        (logical < end).then_some((*start, found))
    }

    /// Takes in a block group's item, wherever it is found.
    pub(crate) fn add_group(&mut self, item: &Item<'_>) {
        let (length, place) = (item.key.offset, item.place());
        self.groups.extend(BlockGroupItem::decode(item.data).map(
            |BlockGroupItem { used, flags, .. }| {
                (Logical(item.key.objectid.0), Group { length, flags, used, place })
            },
        ));
    }
}

impl Layout {
    /// A block group's item that breaks a rule.
    pub(crate) fn pass_over_group(&mut self, item: &Item<'_>) {
        self.faulty_groups.insert(Logical(item.key.objectid.0));
    }

    /// Whether a group is there, and not known.
    pub(crate) fn is_faulty_group(&self, logical: Logical) -> bool {
        self.faulty_groups.contains(&logical)
    }
}

/// Takes chunks and devices from the chunk tree.
struct ChunkTree<'a>(&'a mut Layout);

impl ItemVisitor for ChunkTree<'_> {
    fn item(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        let place = item.place();
        match item.key.item_type {
            ItemType::CHUNK_ITEM => {
                let found = Chunk::decode(item.data).map(|chunk| FoundChunk { chunk, used: 0, place });
                self.0.chunks.extend(found.map(|found| (Logical(item.key.offset), found)));
            }
            ItemType::DEVICE_ITEM => {
                let found = DeviceItem::decode(item.data);
                self.0.devices.extend(found.map(|device| (device.device, (device, place))));
            }
            _ => {}
        }
    }
}

/// Takes device extents from the device tree.
pub(crate) struct DeviceTree<'a> {
    layout: &'a mut Layout,
    /// Device, and where the extent before ends.
    end: Option<(DeviceId, u64)>,
}

impl<'a> DeviceTree<'a> {
    pub(crate) fn new(layout: &'a mut Layout) -> Self {
        Self { layout, end: None }
    }
}

impl ItemVisitor for DeviceTree<'_> {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        if item.key.item_type != ItemType::DEVICE_EXTENT {
            return;
        }
        let Ok(extent) = DeviceExtent::decode(item.data) else { return };
        let device = DeviceId(item.key.objectid.0);
        let start = item.key.offset;
        if let Some((_, end)) = self.end.filter(|(before, end)| *before == device && *end > start) {
            context.find(FindingKind::ExtentOverlap { previous_end: Logical(end) }, item.place());
        }
        self.end = Some((device, start.saturating_add(extent.length)));
        let found =
            FoundDeviceExtent { chunk: extent.chunk_offset, length: extent.length, place: item.place() };
        self.layout.device_extents.insert((device, Physical(start)), found);
    }
}

/// Reads the chunk tree and gives the volume its chunks.
pub(crate) fn read(context: &mut CheckState<'_>) -> Layout {
    let mut layout = Layout::default();
    let tree = CheckedTree {
        id: RootId::CHUNK_TREE,
        logical: context.judge.superblock.chunk_root,
        generation: context.judge.superblock.chunk_root_generation,
        level: context.judge.superblock.chunk_root_level,
        has_references: true,
        dropped_to: None,
        last_snapshot: None,
    };
    walk(context, &tree, &mut ChunkTree(&mut layout));
    for (logical, found) in &layout.chunks {
        context.reached.add_chunk(*logical, found.chunk.length);
        context.relocated.add_chunk(*logical, found.chunk.length);
        context.judge.full.add_chunk(*logical, found.chunk.length);
        context.judge.shared.add_chunk(*logical, found.chunk.length);
        if let Err(error) = context.judge.volume.add_chunk(*logical, found.chunk.clone()) {
            context.find(FindingKind::Chunk { logical: *logical, reason: error.to_string() }, found.place);
        }
    }
    for chunk in context.judge.volume.unreadable_chunks() {
        context.find(FindingKind::ChunkUnreadable { logical: chunk.logical }, Place::default());
    }
    for chunk in context.judge.volume.stale_chunks() {
        context.find(FindingKind::ChunkStale { logical: chunk.logical }, Place::default());
    }
    for (logical, chunk) in context.judge.superblock.system_chunks().flatten() {
        if layout.chunks.get(&logical).is_none_or(|found| !found.chunk.is_same_as(&chunk)) {
            context.find(FindingKind::SystemChunk { logical }, Place::default());
        }
    }
    layout
}

/// Compares all that was taken in, when every tree has been read.
pub(crate) fn judge(context: &mut CheckState<'_>, layout: &Layout) {
    judge_groups(context, layout);
    judge_stripes(context, layout);
    judge_devices(context, layout);
}

fn judge_groups(context: &mut CheckState<'_>, layout: &Layout) {
    for (logical, found) in &layout.chunks {
        if !layout.groups.contains_key(logical) && !layout.is_faulty_group(*logical) {
            context.find(FindingKind::ChunkWithoutGroup { logical: *logical }, found.place);
        }
    }
    for (logical, group) in &layout.groups {
        let logical = *logical;
        let chunk = layout.chunks.get(&logical).map(|found| &found.chunk);
        if chunk.is_none_or(|chunk| chunk.length != group.length || chunk.flags != group.flags) {
            context.find(FindingKind::GroupWithoutChunk { logical }, group.place);
        }
        let expected = layout.chunks.get(&logical).map_or(0, |found| found.used);
        if group.used != expected {
            let found = group.used;
            context.find(FindingKind::GroupUsed { logical, found, expected }, group.place);
        }
    }
    let used = layout.chunks.values().map(|found| found.used).fold(0, u64::saturating_add);
    if context.judge.superblock.bytes_used != used {
        let found = context.judge.superblock.bytes_used;
        context.find(FindingKind::SuperblockBytesUsed { found, expected: used }, Place::default());
    }
}

fn judge_stripes(context: &mut CheckState<'_>, layout: &Layout) {
    let mut belonging = BTreeMap::new();
    for (logical, found) in &layout.chunks {
        let length = found.chunk.stripe_bytes().unwrap_or(0);
        for stripe in &found.chunk.stripes {
            let (device, physical) = (stripe.device, stripe.physical);
            let extent = layout.device_extents.get(&(device, physical));
            if extent.is_none_or(|extent| extent.chunk != *logical || extent.length != length) {
                let kind = FindingKind::StripeWithoutDeviceExtent { logical: *logical, device, physical };
                context.find(kind, found.place);
            }
            if layout.devices.get(&device).is_some_and(|(item, _)| item.uuid != stripe.device_uuid) {
                context.find(FindingKind::StripeDeviceUuid { logical: *logical, device }, found.place);
            }
            belonging.insert((device, physical), *logical);
        }
    }
    for ((device, physical), extent) in &layout.device_extents {
        if belonging.get(&(*device, *physical)) != Some(&extent.chunk) {
            let kind = FindingKind::DeviceExtentWithoutStripe {
                logical: extent.chunk,
                device: *device,
                physical: *physical,
            };
            context.find(kind, extent.place);
        }
    }
}

fn judge_devices(context: &mut CheckState<'_>, layout: &Layout) {
    let mut total = 0u64;
    for (device, (item, place)) in &layout.devices {
        let device = *device;
        total = total.saturating_add(item.total_bytes);
        let extents = layout.device_extents.range((device, Physical(0))..=(device, Physical(u64::MAX)));
        let mut used = 0u64;
        for ((_, physical), extent) in extents {
            used = used.saturating_add(extent.length);
            let end = physical.0.saturating_add(extent.length);
            if end > item.total_bytes {
                let device_bytes = item.total_bytes;
                let kind = FindingKind::DeviceExtentOutside { device, end, device_bytes };
                context.find(kind, extent.place);
            }
        }
        judge_device(context, item, *place);
        if item.bytes_used != used {
            context.find(FindingKind::DeviceUsed { device, found: item.bytes_used, expected: used }, *place);
        }
        if !item.total_bytes.is_multiple_of(u64::from(context.judge.rules.sector_size)) {
            let (found, reason) = (item.total_bytes, "which is no multiple of the sector size");
            context.find(FindingKind::DeviceSize { device, found, reason }, *place);
        }
    }
    for device in open_devices(context) {
        if !layout.devices.contains_key(&device) {
            context.find(FindingKind::DeviceMissing { device }, Place::default());
        }
    }
    if context.judge.superblock.total_bytes != total {
        let found = context.judge.superblock.total_bytes;
        context.find(FindingKind::SuperblockTotalBytes { found, expected: total }, Place::default());
    }
}

/// A device's item says what the device's own superblock says.
fn judge_device(context: &mut CheckState<'_>, item: &DeviceItem, place: Place) {
    let device = item.device;
    let Some(member) = context.judge.volume.member(device) else {
        return context.find(FindingKind::DeviceAbsent { device }, place);
    };
    let fsid = member.seed.map_or(context.judge.superblock.tree_block_uuid(), |seed| seed.fsid);
    let (uuid, total_bytes) = (member.uuid, member.total_bytes);
    // One that was away, and a seed, keep the superblock that they had.
    let is_current = !member.is_stale && member.seed.is_none();
    if uuid != item.uuid || fsid != item.fsid {
        context.find(FindingKind::DeviceUuid { device }, place);
    }
    if is_current && total_bytes != item.total_bytes {
        let (found, reason) = (item.total_bytes, "another size than its superblock says");
        context.find(FindingKind::DeviceSize { device, found, reason }, place);
    }
}

/// The devices that are open.
fn open_devices(state: &CheckState<'_>) -> Vec<DeviceId> {
    state.judge.volume.members().iter().map(|member| member.id).collect()
}
