//! Where the chunks of a new file system lie, and how long they are: as `mkfs.btrfs` 6.2 decides.
//!
//! It starts with three single chunks at equal logical and physical addresses: 4 MiB SYSTEM at 1 MiB, 8 MiB
//! METADATA at 5 MiB, 8 MiB DATA at 13 MiB (mixed: 8 MiB DATA|METADATA at 5 MiB). A content that is to be DUP
//! gets a new chunk behind them, and its first one is given up. DUP chunks: SYSTEM 8 MiB; METADATA 256 MiB,
//! above 50 GiB 1 GiB; DATA 1 GiB. One that is longer than a tenth of the device gets half that tenth for
//! each copy, but not less than 32 MiB (METADATA) or 64 MiB (DATA).

use vlinder_format::chunk::{BlockGroupFlags, Chunk, STRIPE_LENGTH, Stripe};
use vlinder_format::{DeviceId, Logical, Physical, RootId};
use vlinder_volume::{MappedChunk, Profile};

use super::parameter_error::ParameterError;
use super::parameters::{MkfsFeatures, MkfsParameters};

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;
/// The one device.
pub(super) const DEVICE: DeviceId = DeviceId(1);

/// The chunks by logical address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Layout {
    pub(in super::super) chunks: Vec<MappedChunk>,
    /// Bytes of the device that the file system uses.
    pub(in super::super) total_bytes: u64,
}

impl Layout {
    pub(super) fn plan(parameters: &MkfsParameters) -> Result<Self, ParameterError> {
        let needed = smallest_device(parameters);
        let found = parameters.device_bytes;
        if found < needed {
            return Err(too_small(parameters, found, needed));
        }
        let total_bytes = found - found % u64::from(parameters.sector_size);
        Ok(Self { chunks: chunks(parameters, total_bytes), total_bytes })
    }

    /// The chunk that takes the blocks of a tree.
    pub(super) fn chunk_for(&self, tree: RootId) -> &MappedChunk {
        let content =
            if tree == RootId::CHUNK_TREE { BlockGroupFlags::SYSTEM } else { BlockGroupFlags::METADATA };
        let chunk = self.chunks.iter().find(|chunk| chunk.chunk.flags.has(content));
        chunk.expect("every layout has a system chunk and a metadata chunk")
    }

    /// Bytes of the device that chunks take.
    pub(in super::super) fn bytes_on_device(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.chunk.length * u64::from(chunk.profile.copies())).sum()
    }
}

/// What `mkfs.btrfs` demands (it counts as if no chunk were given up), or the end of the last chunk.
pub(super) fn smallest_device(parameters: &MkfsParameters) -> u64 {
    let copies = |profile: Profile| u64::from(profile.copies());
    let (data, metadata) = (parameters.data_profile, parameters.metadata_profile);
    let demanded = if parameters.features.mixed_groups {
        2 * (4 * MEBIBYTE + (u64::from(parameters.node_size) << 10))
    } else {
        let metadata_bytes = if metadata == Profile::Dup { 8 + 32 } else { 8 + 8 };
        let data_bytes = if data == Profile::Dup { 64 } else { 8 };
        (1 + 4 + 2 * 8 + copies(metadata) * metadata_bytes + copies(data) * data_bytes) * MEBIBYTE
    };
    // A longer device has longer chunks, up to a bound that is soon reached.
    let mut needed = demanded;
    loop {
        let ends = chunks(parameters, needed).into_iter().flat_map(|chunk| {
            let length = chunk.chunk.length;
            chunk.chunk.stripes.into_iter().map(move |stripe| stripe.physical.0 + length)
        });
        match ends.max() {
            Some(end) if end > needed => needed = end,
            _ => return needed,
        }
    }
}

/// That a device is too short for these parameters, with the options that need less.
pub(in super::super) fn too_small(parameters: &MkfsParameters, found: u64, needed: u64) -> ParameterError {
    let (data, metadata) = (parameters.data_profile, parameters.metadata_profile);
    let (single, mixed) = (Profile::Single, parameters.features.mixed_groups);
    let with = |data_profile, metadata_profile, mixed_groups| {
        let features = MkfsFeatures { mixed_groups, ..parameters.features };
        let node_size = if mixed_groups { parameters.sector_size } else { parameters.node_size };
        MkfsParameters { data_profile, metadata_profile, features, node_size, ..parameters.clone() }
    };
    let mut choices =
        vec![("-d single -m single", with(single, single, mixed)), ("--mixed", with(single, single, true))];
    if !mixed {
        choices.insert(0, ("-m single", with(data, single, false)));
        choices.insert(0, ("-d single", with(single, metadata, false)));
    }
    let mut smaller: Vec<(&'static str, u64)> = Vec::new();
    for (option, other) in choices {
        let size = smallest_device(&other);
        if size < smaller.last().map_or(needed, |(_, least)| *least) {
            smaller.push((option, size));
        }
    }
    ParameterError::DeviceTooSmall { found, needed, data, metadata, smaller }
}

/// Hands out the address space and the device, both from 1 MiB on.
struct Planner<'a> {
    parameters: &'a MkfsParameters,
    logical: u64,
    physical: u64,
    chunks: Vec<MappedChunk>,
}

impl Planner<'_> {
    fn add(&mut self, content: BlockGroupFlags, profile: Profile, length: u64) {
        let (logical, physical) = (Logical(self.logical), Physical(self.physical));
        self.chunks.push(chunk_at(self.parameters, content, profile, logical, physical, length));
        self.logical += length;
        self.physical += length * u64::from(profile.copies());
    }
}

/// A chunk of `length` bytes at `logical`, whose copies lie one behind the other from `physical` on.
pub(in super::super) fn chunk_at(
    parameters: &MkfsParameters,
    content: BlockGroupFlags,
    profile: Profile,
    logical: Logical,
    physical: Physical,
    length: u64,
) -> MappedChunk {
    let stripes = (0..u64::from(profile.copies())).map(|copy| Stripe {
        device: DEVICE,
        physical: Physical(physical.0 + copy * length),
        device_uuid: parameters.uuids.device,
    });
    let stripe_io = u32::try_from(STRIPE_LENGTH).unwrap_or(u32::MAX);
    let chunk = Chunk {
        length,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags: content.with(profile.flags()),
        io_align: stripe_io,
        io_width: stripe_io,
        sector_size: parameters.sector_size,
        sub_stripes: profile.facts().sub_stripes,
        stripes: stripes.collect(),
    };
    MappedChunk { logical, chunk, profile }
}

fn chunks(parameters: &MkfsParameters, total_bytes: u64) -> Vec<MappedChunk> {
    let (data, metadata) = (BlockGroupFlags::DATA, BlockGroupFlags::METADATA);
    let system = BlockGroupFlags::SYSTEM;
    let contents = if parameters.features.mixed_groups {
        vec![(system, parameters.metadata_profile), (data.with(metadata), parameters.data_profile)]
    } else {
        vec![
            (system, parameters.metadata_profile),
            (metadata, parameters.metadata_profile),
            (data, parameters.data_profile),
        ]
    };
    let mut planner = Planner { parameters, logical: MEBIBYTE, physical: MEBIBYTE, chunks: Vec::new() };
    for (content, _) in &contents {
        let length = if *content == system { 4 * MEBIBYTE } else { 8 * MEBIBYTE };
        planner.add(*content, Profile::Single, length);
    }
    for (content, profile) in &contents {
        if *profile == Profile::Dup {
            planner.chunks.retain(|chunk| chunk.chunk.flags != *content);
            planner.add(*content, Profile::Dup, dup_length(*content, total_bytes));
        }
    }
    planner.chunks
}

/// The length of a DUP chunk.
fn dup_length(content: BlockGroupFlags, total_bytes: u64) -> u64 {
    let (usual, most, least) = if content.has(BlockGroupFlags::SYSTEM) {
        (8 * MEBIBYTE, 16 * MEBIBYTE, MEBIBYTE)
    } else if content.has(BlockGroupFlags::DATA) {
        (GIBIBYTE, 10 * GIBIBYTE, 64 * MEBIBYTE)
    } else {
        let usual = if total_bytes > 50 * GIBIBYTE { GIBIBYTE } else { 256 * MEBIBYTE };
        (usual, usual, 32 * MEBIBYTE)
    };
    let most = most.min(total_bytes / 10);
    let length = if usual > most { most / 2 } else { usual };
    length.max(least) / STRIPE_LENGTH * STRIPE_LENGTH
}
