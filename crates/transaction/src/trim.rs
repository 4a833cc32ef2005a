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

use vlinder_space::{GroupRange, Taken};

use crate::EngineError;
use crate::engine_core::EngineCore;

/// Bytes of a group that are given back under one hold of the space manager's lock.
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

/// Gives back what is free. The caller has committed.
pub(crate) fn trim(core: &EngineCore) -> Result<Trimmed, EngineError> {
    core.latch().check_writable()?;
    core.load_space(Err)?;
    let mut trimmed = Trimmed::default();
    for chunk in core.volume().chunks().snapshot() {
        trim_group(core, GroupRange { start: chunk.logical, length: chunk.chunk.length }, &mut trimmed)?;
    }
    let _no_chunk_is_made = core.chunks().begin_making();
    for (device, start, length) in core.chunks().unallocated_ranges() {
        let told = match core.volume().keeps_writes_in_memory() {
            true => 0,
            false => core.volume().members().discard(device, start, length)?,
        };
        trimmed.unallocated_bytes += told;
        trimmed.refused_bytes += length - told;
    }
    Ok(trimmed)
}

fn trim_group(core: &EngineCore, group: GroupRange, trimmed: &mut Trimmed) -> Result<(), EngineError> {
    let mut from = group.start.0;
    loop {
        let discard = |logical, length| core.volume().discard(logical, length);
        match core.space().with_free_piece(group, from, PIECE_BYTES, discard) {
            Err(Taken::Load(group)) => core.group_loader().load(group)?,
            Err(_) | Ok(None) => return Ok(()),
            Ok(Some((end, discarded))) => {
                let discarded = discarded?;
                trimmed.group_bytes += discarded.told_bytes;
                trimmed.refused_bytes += discarded.refused_bytes;
                from = end;
            }
        }
    }
}
