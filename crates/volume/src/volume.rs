//! A volume: its members, its chunks, and what is the same for all of them.

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, RwLock};
use vlinder_device::Device;
use vlinder_format::chunk::{Chunk, Profile};
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{DeviceId, Logical};

use crate::chunk_lookup::ChunkLookup;
use crate::chunk_map::ChunkMap;
use crate::chunk_source::{ChunkSource, MappedBy};
use crate::error::VolumeError;
use crate::geometry::Geometry;
use crate::histories::{SuperblockEvidence, contradiction};
use crate::known_primaries::KnownPrimaries;
use crate::mapped_chunk::MappedChunk;
use crate::member::Member;
use crate::members::Members;
use crate::memory_overlay::MemoryOverlay;
use crate::opening::Assembly;
use crate::profile::is_readable;
use crate::publication::Publication;
use crate::repair_gate::RepairGate;
use crate::superblock::{self, FoundSuperblock, OpenRules, SuperblockChoice};

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
    /// Requests that began keep the members that they took.
    members: RwLock<Members>,
    chunks: ChunkLookup,
    geometry: Geometry,
    repair_gate: Arc<RepairGate>,
    /// What was written, with [`Access::InMemory`].
    memory_overlay: Option<MemoryOverlay>,
    publication: Publication,
    read_only: AtomicBool,
    /// Whether members may be missing: chunks may then lie on devices that nobody gave.
    is_degraded: bool,
    evidence: SuperblockEvidence,
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
        let assembly = Assembly::of(devices, found, rules)?;
        let access = match access {
            Access::ReadWrite if assembly.is_degraded || rules.history.is_some() => Access::ReadOnly,
            access => access,
        };
        let first = assembly.members.iter().next();
        let name = first.map(|member| member.device.describe().name.to_string()).unwrap_or_default();
        let refuse = |fault| VolumeError::Superblock { device: name.clone(), fault, usable_copy: None };
        let geometry = Geometry::of(&assembly.superblock).map_err(refuse)?;
        if let Some((first, second)) = contradiction(found).filter(|_| rules.history.is_none()) {
            let (first, second) = (first.device_item.device, second.device_item.device);
            return Err(assembly.members.two_histories(first, second));
        }
        let primaries = match access {
            Access::ReadWrite => assembly.known_primaries(found),
            Access::ReadOnly | Access::InMemory { .. } => KnownPrimaries::default(),
        };
        let Assembly { members, superblock, mirror, published, evidence, is_degraded } = assembly;
        let publication = Publication::new(published, primaries);
        let volume =
            Self { is_degraded, evidence, publication, ..Self::of_members(members, geometry, access) };
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
        Self::of_members(Members::new(members), geometry, access)
    }

    fn of_members(members: Members, geometry: Geometry, access: Access) -> Self {
        let memory_overlay = match access {
            Access::InMemory { most_bytes } => Some(MemoryOverlay::new(geometry.sector_size, most_bytes)),
            Access::ReadOnly | Access::ReadWrite => None,
        };
        Self {
            memory_overlay,
            members: RwLock::new(members),
            chunks: ChunkLookup::default(),
            geometry,
            repair_gate: Arc::default(),
            publication: Publication::default(),
            read_only: AtomicBool::new(access == Access::ReadOnly),
            is_degraded: false,
            evidence: SuperblockEvidence::default(),
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
        let members = self.members();
        let is_there = |device: DeviceId| members.get(device).is_some();
        self.chunks().snapshot().into_iter().filter(|chunk| !is_readable(chunk, is_there)).collect()
    }

    /// The known chunks of which some bytes are had only from members that were away ([`Member::is_stale`]):
    /// what has no checksums there may be old.
    pub fn stale_chunks(&self) -> Vec<Arc<MappedChunk>> {
        let members = self.members();
        if !members.has_stale() {
            return Vec::new();
        }
        let is_there = |device: DeviceId| members.get(device).is_some();
        let is_current = |device: DeviceId| members.get(device).is_some_and(|member| !member.is_stale);
        let is_stale =
            |chunk: &Arc<MappedChunk>| is_readable(chunk, is_there) && !is_readable(chunk, is_current);
        self.chunks().snapshot().into_iter().filter(is_stale).collect()
    }

    /// Sizes and checksum kind.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The member devices as they are now, by number.
    pub fn members(&self) -> Members {
        self.members.read().clone()
    }

    /// The member of a number, as it is now.
    pub fn member(&self, device: DeviceId) -> Option<Arc<Member>> {
        self.members.read().get(device).cloned()
    }

    /// What was written and stays in memory, with [`Access::InMemory`].
    pub(crate) const fn memory_overlay(&self) -> Option<&MemoryOverlay> {
        self.memory_overlay.as_ref()
    }

    /// What keeps repairs and writes apart.
    pub(crate) const fn repair_gate(&self) -> &Arc<RepairGate> {
        &self.repair_gate
    }

    /// What is published on the members.
    pub(crate) const fn publication(&self) -> &Publication {
        &self.publication
    }

    /// What the members' superblocks tell of histories.
    pub(crate) const fn evidence(&self) -> &SuperblockEvidence {
        &self.evidence
    }

    /// The chunks that are known: all, unless they are looked for one by one ([`Volume::look_up_chunks`]).
    pub const fn chunks(&self) -> &ChunkMap {
        self.chunks.known()
    }

    /// From now on looks for chunks that are not known where an address needs them. Those that are known now
    /// are all that the source may read through.
    pub fn look_up_chunks(&self, source: Arc<dyn ChunkSource>) {
        self.chunks.look_in(source);
    }

    /// Makes sure that all chunks are known.
    ///
    /// # Errors
    /// What reading them met; which are known then is unsure, and they are still looked for one by one.
    pub fn load_chunks(&self) -> Result<(), VolumeError> {
        self.chunks.load(&mut |logical, chunk| self.add_chunk(logical, chunk))
    }

    /// The chunk that covers a whole range, looked for if it is not known yet.
    ///
    /// # Errors
    /// [`VolumeError::Unmapped`]; [`VolumeError::Request`] for a range of no bytes; what looking for it met.
    pub fn chunk(&self, logical: Logical, length: u64) -> Result<Arc<MappedChunk>, VolumeError> {
        self.chunks.find(logical, length, &mut |logical, chunk| self.add_chunk(logical, chunk))
    }

    pub(crate) fn chunk_by(
        &self,
        by: MappedBy,
        logical: Logical,
        length: u64,
    ) -> Result<Arc<MappedChunk>, VolumeError> {
        self.chunks.find_by(by, logical, length, &mut |logical, chunk| self.add_chunk(logical, chunk))
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
        let members = self.members();
        for stripe in &chunk.stripes {
            let end = stripe.physical.checked_add(length);
            let member = members.get(stripe.device);
            if member.is_none() && self.is_degraded {
                continue;
            }
            if member.zip(end).is_none_or(|(member, end)| end.0 > member.total_bytes) {
                let (device, physical) = (stripe.device, stripe.physical);
                return Err(VolumeError::ChunkPlace { logical, device, physical, length });
            }
        }
        self.chunks().insert(MappedChunk { logical, chunk, profile })
    }

    /// Forgets the chunk that starts here; true if there was one.
    pub fn remove_chunk(&self, logical: Logical) -> bool {
        self.chunks().remove(logical).is_some()
    }

    /// The superblock of each member as it was last published, by device number: the committed state.
    pub fn published_superblocks(&self) -> Vec<Superblock> {
        self.publication.committed()
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Whether writes stay in memory ([`Access::InMemory`]).
    pub const fn keeps_writes_in_memory(&self) -> bool {
        self.memory_overlay.is_some()
    }

    /// Refuses all writes and repairs from now on: after an error that leaves the disk's state unsure.
    pub fn make_read_only(&self) {
        self.read_only.store(true, Ordering::Release);
    }
}
