//! The superblock copies of each device.

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::superblock::{SUPERBLOCK_FLAG_METADUMP, Superblock, SuperblockMirror};
use vlinder_format::{Generation, Place};
use vlinder_volume::VolumeError;
use vlinder_volume::superblock::{FoundSuperblock, SuperblockChoice, find};

use crate::check_state::CheckState;
use crate::finding::FindingKind;

/// Which state is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The newest: nobody writes.
    Newest,
    /// One that others have left behind since: the copies may be of any later one, and be written at this
    /// moment.
    Leased,
}

/// How often a copy is read that may be read in the middle of being written.
const LOOKS: usize = 8;

fn find_copy(
    device: &dyn Device,
    mirror: SuperblockMirror,
    state: State,
) -> Result<FoundSuperblock, VolumeError> {
    let mut found = find(device, SuperblockChoice::Mirror(mirror));
    if state == State::Leased {
        for _ in 1..LOOKS {
            if found.is_ok() {
                break;
            }
            found = find(device, SuperblockChoice::Mirror(mirror));
        }
    }
    found
}

/// Reads every copy and compares it with the one that is believed.
pub(crate) fn judge(
    context: &mut CheckState<'_>,
    devices: &[Arc<dyn Device>],
    believed: &Superblock,
    state: State,
) {
    let fits = |found: Generation| match state {
        State::Newest => found == believed.generation,
        State::Leased => found >= believed.generation,
    };
    let (found, expected) = (believed.stripe_size, believed.sector_size);
    if found != expected {
        context.find(FindingKind::SuperblockStripeSize { found, expected }, Place::default());
    }
    if believed.flags & SUPERBLOCK_FLAG_METADUMP != 0 {
        context.find(FindingKind::SuperblockMetadump { flags: believed.flags }, Place::default());
    }
    for device in devices {
        for mirror in SuperblockMirror::ALL.into_iter().filter(|mirror| mirror.fits(device.length())) {
            let (name, offset) = (device.describe().name.to_string(), mirror.offset());
            let kind = match find_copy(&**device, mirror, state) {
                Ok(found) if fits(found.superblock.generation) => continue,
                // A seed stays as it was when the file system was built on it.
                Ok(found) if found.superblock.fsid != believed.fsid => continue,
                Ok(found) => FindingKind::SuperblockStale {
                    device: name,
                    offset,
                    found: found.superblock.generation,
                    expected: believed.generation,
                },
                Err(error) => FindingKind::SuperblockCopy { device: name, offset, reason: error.to_string() },
            };
            context.find(kind, Place::default());
        }
    }
}
