//! Where a run of data lies when stripes are mapped by a tree (feature raid-stripe-tree): key (logical,
//! RAID_STRIPE, length) in the RAID stripe tree. The data are pairs of device and physical start, one for
//! each copy or stripe. Experimental in Linux; decoded only.

use crate::features::IncompatFeatures;
use crate::key::Key;
use crate::layout::Layout;
use crate::record::{is_aligned, record};
use crate::rules::ItemContext;
use crate::types::{DeviceId, Logical, Physical};

record! {
    /// One place of a run: 16 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RaidStride in RawRaidStride, 16 bytes {
        /// The member device.
        device: DeviceId,
        /// First byte on the device.
        physical: Physical,
    }
}

/// How a RAID stripe item can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaidStripeFault {
    /// The size is not of whole places, or there is none.
    #[error("the RAID stripe item has {found} bytes, not a multiple of 16")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// The start lies between sectors.
    #[error("the RAID stripe starts at {found}, which is no multiple of the sector size")]
    Start {
        /// Object id of the key.
        found: Logical,
    },
    /// The feature is off.
    #[error("a RAID stripe item without feature raid-stripe-tree")]
    Feature,
}

/// Reads the places of an item.
///
/// # Errors
/// [`RaidStripeFault::Size`].
pub fn decode(bytes: &[u8]) -> Result<Vec<RaidStride>, RaidStripeFault> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(RaidStride::SIZE) {
        return Err(RaidStripeFault::Size { found: bytes.len() });
    }
    Ok(bytes.chunks_exact(RaidStride::SIZE).filter_map(RaidStride::read_whole).collect())
}

/// The rules for a RAID_STRIPE item of a leaf (kernel: `check_raid_stripe_extent`; also its size).
pub(crate) fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), RaidStripeFault> {
    if !is_aligned(key.objectid.0, context.rules.sector_size) {
        return Err(RaidStripeFault::Start { found: Logical(key.objectid.0) });
    }
    if !context.rules.features.incompat.has(IncompatFeatures::RAID_STRIPE_TREE) {
        return Err(RaidStripeFault::Feature);
    }
    decode(data).map(drop)
}

/// The fields of an item: its places.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.records::<RaidStride>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::key::ItemType;
    use crate::types::{Generation, ObjectId, RootId};
    use crate::validate::LeafRules;

    #[test]
    fn each_rule_has_its_fault() {
        let mut rules = LeafRules {
            sector_size: 4096,
            node_size: 16384,
            checksum_size: 4,
            generation: Generation(1),
            features: Features::default(),
            writable: true,
        };
        let key = Key::new(ObjectId(8192), ItemType::RAID_STRIPE, 4096);
        let judge = |rules: &LeafRules, key: Key, data: &[u8]| {
            check(&key, data, &ItemContext { rules, owner: RootId::RAID_STRIPE_TREE, previous: None })
        };
        assert_eq!(judge(&rules, key, &[0; 32]), Err(RaidStripeFault::Feature));
        rules.features.incompat = IncompatFeatures::RAID_STRIPE_TREE;
        judge(&rules, key, &[0; 32]).unwrap();
        assert_eq!(judge(&rules, key, &[0; 31]), Err(RaidStripeFault::Size { found: 31 }));
        assert_eq!(judge(&rules, key, &[]), Err(RaidStripeFault::Size { found: 0 }));
        let odd = Key { objectid: ObjectId(1), ..key };
        assert_eq!(judge(&rules, odd, &[0; 32]), Err(RaidStripeFault::Start { found: Logical(1) }));
        let mut bytes = [0u8; 32];
        bytes[16] = 2;
        bytes[24] = 7;
        let second = RaidStride { device: DeviceId(2), physical: Physical(7) };
        assert_eq!(decode(&bytes).unwrap()[1], second);
    }
}
