//! Gives back to the devices what the last commit leaves free (Linux: `btrfs_trim_fs`,
//! fs/btrfs/extent-tree.c): free ranges of block groups, and what no chunk has, but for the reserved start of
//! each device and the superblock copies.
//!
//! Invariants:
//! 1. Nothing is given back that the superblock on disk reaches, or a leased state. A free range is neither
//!    pinned nor reserved, and pins end when a superblock is durable that reaches the range no more.
//! 2. Nothing is given back while a thread may take it: a piece of a group is discarded under the lock of the
//!    space manager, and what no chunk has while no chunk is made.
//!
//! Trees of backup roots lie in free space as soon as the commit is durable that leaves them, here as on
//! Linux: what `rescue=usebackuproot` could still have found is gone then.

use vlinder_base::units::Physical;
use vlinder_format::{DeviceId, Logical};
use vlinder_space::{GroupRange, Taken};

use crate::EngineError;
use crate::engine_core::EngineCore;

/// Bytes that are given back under one hold of a lock: a thread that wants space waits no longer than the
/// host needs for them.
const PIECE_BYTES: u64 = 64 << 20;

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of the devices in block groups.
    pub group_bytes: u64,
    /// Bytes of the devices that no chunk has.
    pub unallocated_bytes: u64,
    /// Free bytes of devices that can't give back any.
    pub refused_bytes: u64,
}

impl Trimmed {
    /// Counts what a later piece gave back.
    pub fn add(&mut self, other: Self) {
        self.group_bytes = self.group_bytes.saturating_add(other.group_bytes);
        self.unallocated_bytes = self.unallocated_bytes.saturating_add(other.unallocated_bytes);
        self.refused_bytes = self.refused_bytes.saturating_add(other.refused_bytes);
    }
}

/// Where trimming goes on: block groups come first, by address, then what no chunk has. Each value is sound:
/// what is free is looked up when the piece is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimPosition {
    /// In the block groups, at or behind this address.
    Groups(Logical),
    /// In what no chunk has, on this device at or behind this byte, or on a device of a higher number.
    Unallocated(DeviceId, Physical),
}

impl TrimPosition {
    /// Where trimming begins.
    const START: Self = Self::Groups(Logical(0));
}

/// Gives free space back to the devices: files of the host lose the blocks that hold nothing.
#[derive(Clone, Copy)]
pub struct Trimmer<'a> {
    core: &'a EngineCore,
}

impl<'a> Trimmer<'a> {
    pub(crate) fn new(core: &'a EngineCore) -> Self {
        Self { core }
    }

    /// Commits, and gives back what is free then.
    ///
    /// # Errors
    /// As [`Engine::commit`](crate::Engine::commit); what reading free space met; a device's, but not that it
    /// can't give back anything ([`Trimmed::refused_bytes`]).
    pub fn all(self) -> Result<Trimmed, EngineError> {
        let (mut trimmed, mut next) = self.piece(None)?;
        while next.is_some() {
            let (piece, behind) = self.piece(next)?;
            trimmed.add(piece);
            next = behind;
        }
        Ok(trimmed)
    }

    /// Gives back the first free piece at or behind a position, and tells where to go on; none at the end. To
    /// begin, without a position, is to commit first. Between two pieces the file system may change.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn piece(self, from: Option<TrimPosition>) -> Result<(Trimmed, Option<TrimPosition>), EngineError> {
        let core = self.core;
        if from.is_none() {
            core.commit()?;
        }
        core.latch().check_writable()?;
        core.load_space(Err)?;
        match from.unwrap_or(TrimPosition::START) {
            TrimPosition::Groups(logical) => trim_group(core, logical),
            TrimPosition::Unallocated(device, start) => trim_unallocated(core, device, start),
        }
    }
}

fn trim_group(core: &EngineCore, from: Logical) -> Result<(Trimmed, Option<TrimPosition>), EngineError> {
    let Some(chunk) = core.volume().chunks().at_or_behind(from) else {
        return Ok((Trimmed::default(), Some(TrimPosition::Unallocated(DeviceId(0), Physical(0)))));
    };
    let group = GroupRange { start: chunk.logical, length: chunk.chunk.length };
    loop {
        let discard = |logical, length| core.volume().discard(logical, length);
        match core.space().with_free_piece(group, from.0, PIECE_BYTES, discard) {
            Err(Taken::Load(group)) => core.group_loader().load(group)?,
            Err(_) | Ok(None) => return Ok((Trimmed::default(), Some(TrimPosition::Groups(chunk.end())))),
            Ok(Some((end, discarded))) => {
                let discarded = discarded?;
                let trimmed = Trimmed {
                    group_bytes: discarded.told_bytes,
                    unallocated_bytes: 0,
                    refused_bytes: discarded.refused_bytes,
                };
                return Ok((trimmed, Some(TrimPosition::Groups(Logical(end)))));
            }
        }
    }
}

fn trim_unallocated(
    core: &EngineCore,
    device: DeviceId,
    from: Physical,
) -> Result<(Trimmed, Option<TrimPosition>), EngineError> {
    let _no_chunk_is_made = core.chunks().begin_making();
    let Some((device, start, length)) = core.chunks().unallocated_from(device, from) else {
        return Ok((Trimmed::default(), None));
    };
    let length = length.min(PIECE_BYTES);
    let told = match core.volume().keeps_writes_in_memory() {
        true => 0,
        false => core.volume().members().discard(device, start, length)?,
    };
    let trimmed = Trimmed { group_bytes: 0, unallocated_bytes: told, refused_bytes: length - told };
    Ok((trimmed, Some(TrimPosition::Unallocated(device, Physical(start.0.saturating_add(length))))))
}
