//! A volume: its members, its chunks, and what is the same for all of them.

use std::cmp::{Ordering, Reverse};

use vlinder_base::sync::atomic::{self, AtomicBool};
use vlinder_base::sync::{Arc, Mutex, RwLock};
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::Device;
use vlinder_format::chunk::Chunk;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::{Superblock, SuperblockFault, SuperblockMirror};
use vlinder_format::{DeviceId, Logical, Uuid};

use crate::chunk_map::ChunkMap;
use crate::chunk_source::Unread;
use crate::error::VolumeError;
use crate::gate::Gate;
use crate::health::{Healing, HealthEvent};
use crate::histories::contradiction;
use crate::kept::KeptWrites;
use crate::known_primaries::KnownPrimaries;
use crate::mapped_chunk::MappedChunk;
use crate::member::Member;
use crate::profile::{Profile, is_readable};
use crate::superblock::{self, FoundSuperblock, OpenRules, SuperblockChoice};

/// The superblock that is believed: the newest, or that of the chosen history. Of equal ones it is that of
/// the first device, in whichever order they were given.
fn believed(found: &[FoundSuperblock], history: Option<DeviceId>) -> Result<&FoundSuperblock, VolumeError> {
    let age = |found: &&FoundSuperblock| {
        let superblock = &found.superblock;
        (superblock::age(superblock), Reverse(superblock.device_item.device))
    };
    let newest = found.iter().max_by_key(age).ok_or(VolumeError::NoDevice)?;
    let Some(device) = history else { return Ok(newest) };
    let is_chosen = |found: &&FoundSuperblock| found.superblock.device_item.device == device;
    found.iter().find(is_chosen).ok_or(VolumeError::NoSuchHistory { device })
}

/// What may be done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; bad copies are not repaired.
    ReadOnly,
    /// Reads, repairs and writes.
    ReadWrite,
    /// Reads, and writes that stay in memory: the devices are only read, whatever their profiles are and
    /// whether all are there. No superblock is written; what was committed goes when the volume goes.
    InMemory {
        /// Bytes of writes that are kept at most; more are an error.
        most_bytes: u64,
    },
}

/// The sizes and the checksum kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Kind of every checksum.
    pub checksum_kind: ChecksumKind,
    /// Whether data and metadata may share chunks.
    pub mixed_groups: bool,
}

impl Geometry {
    /// That of a superblock.
    ///
    /// # Errors
    /// [`SuperblockFault::ChecksumType`].
    pub fn of(superblock: &Superblock) -> Result<Self, SuperblockFault> {
        let found = superblock.checksum_type;
        Ok(Self {
            sector_size: superblock.sector_size,
            node_size: superblock.node_size,
            checksum_kind: ChecksumKind::from_disk(found).ok_or(SuperblockFault::ChecksumType { found })?,
            mixed_groups: superblock.incompat.has(IncompatFeatures::MIXED_GROUPS),
        })
    }
}

/// An opened volume, and the superblock that it was opened by.
#[derive(Debug)]
pub struct Opened {
    /// The volume. It knows the system chunks; the others are added as the chunk tree is read.
    pub volume: Volume,
    /// The superblock that is believed.
    pub superblock: Superblock,
    /// Which copy it was read from.
    pub mirror: SuperblockMirror,
}

/// Member devices as one address space.
#[derive(Debug)]
pub struct Volume {
    pub(crate) members: Vec<Member>,
    pub(crate) chunks: ChunkMap,
    /// Where chunks that are not known are looked for.
    pub(crate) unread: RwLock<Option<Arc<Unread>>>,
    pub(crate) geometry: Geometry,
    pub(crate) gate: Arc<Gate>,
    /// What was written, with [`Access::InMemory`].
    pub(crate) kept: Option<KeptWrites>,
    /// The superblock of each member as it was last published, by device number; none before the first of a
    /// new file system.
    pub(crate) published: Mutex<Vec<Superblock>>,
    pub(crate) primaries: Mutex<KnownPrimaries>,
    read_only: AtomicBool,
    /// Whether members may be missing: chunks may then lie on devices that nobody gave.
    is_degraded: bool,
    /// The member whose history was chosen.
    pub(crate) history: Option<DeviceId>,
    /// What the superblocks of stale members say, oldest first.
    pub(crate) pasts: Vec<Superblock>,
    /// Of the other members, those that have a fsync log, with the superblock that names it.
    pub(crate) logs: Vec<Superblock>,
}

impl Volume {
    /// Opens the file system that lies on all of these devices: reads and judges every superblock copy,
    /// checks that the devices belong together, that none is missing or too short, and adds the system
    /// chunks.
    ///
    /// # Errors
    /// [`VolumeError::Superblock`] where the believed copy breaks a rule, and those that name a device.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        choice: SuperblockChoice,
        access: Access,
    ) -> Result<Opened, VolumeError> {
        Self::open_by(devices, OpenRules { choice, ..OpenRules::default() }, access)
    }

    /// As [`Volume::open`], as strictly as these rules say: where members may be missing,
    /// [`Volume::unreadable_chunks`] tells what is not there.
    ///
    /// # Errors
    /// As there.
    pub fn open_by(
        devices: Vec<Arc<dyn Device>>,
        rules: OpenRules,
        access: Access,
    ) -> Result<Opened, VolumeError> {
        let found: Result<Vec<FoundSuperblock>, VolumeError> =
            devices.iter().map(|device| superblock::find_by(&**device, rules)).collect();
        Self::assemble(devices, &found?, access, rules)
    }

    /// Opens a committed state, for reading, by the superblocks that a lease of it names: one for each
    /// device, in the same order. What the devices' own superblocks say meanwhile does not matter.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_leased(
        devices: Vec<Arc<dyn Device>>,
        superblocks: Vec<Superblock>,
    ) -> Result<Opened, VolumeError> {
        if devices.len() != superblocks.len() {
            let count = |length| u64::try_from(length).unwrap_or(u64::MAX);
            return Err(VolumeError::DeviceCount {
                found: count(devices.len()),
                expected: count(superblocks.len()),
            });
        }
        let mirror = SuperblockMirror::Primary;
        let found: Vec<FoundSuperblock> =
            superblocks.into_iter().map(|superblock| FoundSuperblock { superblock, mirror }).collect();
        Self::assemble(devices, &found, Access::ReadOnly, OpenRules::default())
    }

    fn assemble(
        devices: Vec<Arc<dyn Device>>,
        found: &[FoundSuperblock],
        access: Access,
        rules: OpenRules,
    ) -> Result<Opened, VolumeError> {
        let newest = believed(found, rules.history)?;
        let (superblock, mirror) = (newest.superblock.clone(), newest.mirror);
        let mut members = Vec::with_capacity(devices.len());
        let mut published = Vec::with_capacity(devices.len());
        let (mut pasts, mut logs) = (Vec::new(), Vec::new());
        for (device, found) in devices.into_iter().zip(found) {
            let mut member = superblock::member(device, &found.superblock, &superblock, rules.salvages)?;
            if member.is_stale {
                pasts.push(found.superblock.clone());
            } else if member.seed.is_none() && found.superblock.log_root != Logical(0) {
                logs.push(found.superblock.clone());
            }
            member.is_stale |= rules.history.is_some_and(|history| history != member.id);
            published.push(match member.seed {
                Some(_) => found.superblock.clone(),
                None => Superblock { device_item: found.superblock.device_item, ..superblock.clone() },
            });
            members.push(member);
        }
        published.sort_by_key(|superblock| superblock.device_item.device);
        pasts.sort_by_key(|past| (past.generation, past.device_item.device));
        logs.sort_by_key(|log| log.device_item.device);
        members.sort_by_key(|member: &Member| member.id);
        let is_degraded = check_members(&members, &superblock, rules.may_miss)?;
        let access = match access {
            Access::ReadWrite if is_degraded || rules.history.is_some() => Access::ReadOnly,
            access => access,
        };
        let name =
            members.first().map(|member| member.device.describe().name.to_string()).unwrap_or_default();
        let refuse = |fault| VolumeError::Superblock { device: name.clone(), fault, usable_copy: None };
        let geometry = Geometry::of(&superblock).map_err(refuse)?;
        let volume =
            Self { is_degraded, history: rules.history, pasts, logs, ..Self::new(members, geometry, access) };
        if let Some((first, second)) = contradiction(found).filter(|_| rules.history.is_none()) {
            return Err(volume.two_histories(first.device_item.device, second.device_item.device));
        }
        *volume.published.lock() = published;
        if access == Access::ReadWrite {
            let mut primaries = KnownPrimaries::read(&volume.members);
            for found in found.iter().filter(|found| found.mirror == SuperblockMirror::Primary) {
                primaries.believe(found.superblock.device_item.device, &found.superblock);
            }
            *volume.primaries.lock() = primaries;
        }
        for entry in superblock.system_chunks() {
            let added = entry
                .map_err(|fault| refuse(fault.into()))
                .and_then(|(logical, chunk)| volume.add_chunk(logical, chunk));
            match added {
                // What it maps can't be read, and is told of where it is met; what other chunks map can.
                Err(_) if rules.salvages => {}
                other => other?,
            }
        }
        Ok(Opened { volume, superblock, mirror })
    }

    /// A volume of these members without any chunk: what a new file system starts from.
    pub fn new(members: Vec<Member>, geometry: Geometry, access: Access) -> Self {
        let kept = match access {
            Access::InMemory { most_bytes } => Some(KeptWrites::new(geometry.sector_size, most_bytes)),
            Access::ReadOnly | Access::ReadWrite => None,
        };
        Self {
            kept,
            members,
            chunks: ChunkMap::default(),
            unread: RwLock::default(),
            geometry,
            gate: Arc::default(),
            published: Mutex::default(),
            primaries: Mutex::default(),
            read_only: AtomicBool::new(access == Access::ReadOnly),
            is_degraded: false,
            history: None,
            pasts: Vec::new(),
            logs: Vec::new(),
        }
    }

    /// Whether members are missing.
    pub const fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// The known chunks of which some bytes can't be had from the members that are there.
    pub fn unreadable_chunks(&self) -> Vec<Arc<MappedChunk>> {
        if !self.is_degraded {
            // No chunk is known that names a device which is not there.
            return Vec::new();
        }
        let is_there = |device: DeviceId| self.member(device).is_some();
        self.chunks.snapshot().into_iter().filter(|chunk| !is_readable(chunk, is_there)).collect()
    }

    /// The known chunks of which some bytes are had only from members that were away ([`Member::is_stale`]):
    /// what has no checksums there may be old.
    pub fn stale_chunks(&self) -> Vec<Arc<MappedChunk>> {
        if !self.members.iter().any(|member| member.is_stale) {
            return Vec::new();
        }
        let is_there = |device: DeviceId| self.member(device).is_some();
        let is_current = |device: DeviceId| self.member(device).is_some_and(|member| !member.is_stale);
        let is_stale =
            |chunk: &Arc<MappedChunk>| is_readable(chunk, is_there) && !is_readable(chunk, is_current);
        self.chunks.snapshot().into_iter().filter(is_stale).collect()
    }

    /// Sizes and checksum kind.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The member devices by number.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the file system was built on a seed.
    pub fn has_seed(&self) -> bool {
        self.members.iter().any(|member| member.seed.is_some())
    }

    /// Whether tree blocks may carry this UUID beside the file system's own: blocks of a seed do.
    pub fn is_seed_block_uuid(&self, uuid: Uuid) -> bool {
        self.members.iter().any(|member| member.seed.is_some_and(|seed| seed.tree_block_uuid == uuid))
    }

    /// The member of a number.
    pub fn member(&self, device: DeviceId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == device)
    }

    /// Bytes that the file system may use on all members.
    pub fn total_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.total_bytes).fold(0, u64::saturating_add)
    }

    /// The chunks that are known: all, unless they are looked for one by one ([`Volume::look_up_chunks`]).
    pub const fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// Adds a chunk, from the chunk tree or newly made. Adding an equal one again is no error.
    ///
    /// # Errors
    /// Where the chunk breaks its rules, overlaps another, or lies where no member has bytes.
    pub fn add_chunk(&self, logical: Logical, chunk: Chunk) -> Result<(), VolumeError> {
        chunk
            .check(logical, self.geometry.sector_size, self.geometry.mixed_groups)
            .map_err(|source| VolumeError::Chunk { logical, source })?;
        let flags = chunk.flags;
        let broken =
            VolumeError::Chunk { logical, source: vlinder_format::chunk::ChunkFault::Flags { found: flags } };
        let profile = Profile::of(flags).ok_or(broken.clone())?;
        let length = chunk.stripe_bytes().ok_or(broken)?;
        for stripe in &chunk.stripes {
            let end = stripe.physical.checked_add(length);
            let member = self.member(stripe.device);
            if member.is_none() && self.is_degraded {
                continue;
            }
            if member.zip(end).is_none_or(|(member, end)| end.0 > member.total_bytes) {
                let (device, physical) = (stripe.device, stripe.physical);
                return Err(VolumeError::ChunkPlace { logical, device, physical, length });
            }
        }
        self.chunks.insert(MappedChunk { logical, chunk, profile })
    }

    /// Forgets the chunk that starts here; true if there was one.
    pub fn remove_chunk(&self, logical: Logical) -> bool {
        self.chunks.remove(logical).is_some()
    }

    /// The superblock of each member as it was last published, by device number: the committed state.
    pub fn published_superblocks(&self) -> Vec<Superblock> {
        self.published.lock().clone()
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(atomic::Ordering::Acquire)
    }

    /// Whether writes stay in memory ([`Access::InMemory`]).
    pub const fn keeps_writes_in_memory(&self) -> bool {
        self.kept.is_some()
    }

    /// Refuses all writes and repairs from now on: after an error that leaves the disk's state unsure.
    pub fn make_read_only(&self) {
        self.read_only.store(true, atomic::Ordering::Release);
    }

    /// The error counters of a member, those loaded included.
    pub fn statistics(&self, device: DeviceId) -> Option<DeviceStatistics> {
        self.member(device).map(|member| member.health.statistics())
    }

    /// What was healed on a member and by it since it was opened.
    pub fn healing(&self, device: DeviceId) -> Option<Healing> {
        self.member(device).map(|member| member.health.healing())
    }

    /// The error that two members hold different histories.
    #[must_use]
    pub fn two_histories(&self, first: DeviceId, second: DeviceId) -> VolumeError {
        let named = |device| {
            let member = self.member(device);
            (device, member.map(|member| member.device.describe().name.to_string()).unwrap_or_default())
        };
        VolumeError::TwoHistories { first: named(first), second: named(second) }
    }

    /// Adds the counters that the device tree stored to those of this opening. For use once, when the tree is
    /// read.
    pub fn load_statistics(&self, device: DeviceId, stored: &DeviceStatistics) {
        if let Some(member) = self.member(device) {
            member.health.load(stored);
        }
    }

    /// The members whose counters changed since the last call: their items must be written by the next
    /// commit.
    pub fn take_changed_statistics(&self) -> Vec<(DeviceId, DeviceStatistics)> {
        let changed = self.members.iter().filter(|member| member.health.take_changed());
        changed.map(|member| (member.id, member.health.statistics())).collect()
    }

    /// Counts an error that a caller found (a wrong generation or checksum in bytes that this volume gave
    /// it).
    pub fn record(&self, device: DeviceId, event: HealthEvent) {
        if let Some(member) = self.member(device) {
            member.health.record(event);
        }
    }
}

/// Checks that these are the members of a file system; gives whether some are missing, if that `may` be.
fn check_members(members: &[Member], superblock: &Superblock, may_miss: bool) -> Result<bool, VolumeError> {
    for (left, right) in members.iter().zip(members.iter().skip(1)) {
        if left.id == right.id {
            return Err(VolumeError::DuplicateDevice { device: left.id });
        }
    }
    let found = u64::try_from(members.len()).unwrap_or(u64::MAX);
    let expected = superblock.device_count;
    match found.cmp(&expected) {
        Ordering::Equal => Ok(false),
        Ordering::Less if may_miss => Ok(true),
        Ordering::Greater if is_whole_without_stale(members, expected) => {
            let stale = members.iter().filter(|member| member.is_stale);
            let removed =
                stale.map(|member| (member.id, member.device.describe().name.to_string())).collect();
            Err(VolumeError::RemovedDevices { expected, removed })
        }
        _ => Err(VolumeError::DeviceCount { found, expected }),
    }
}

/// Whether the members of the newest state are as many as it has devices.
fn is_whole_without_stale(members: &[Member], expected: u64) -> bool {
    let current = members.iter().filter(|member| !member.is_stale).count();
    u64::try_from(current) == Ok(expected)
}
