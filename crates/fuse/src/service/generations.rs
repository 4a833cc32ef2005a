//! The generations that the kernel is told of files, which it puts into file handles beside the node number.
//!
//! Node numbers are relative to the mounted subvolume: on a mount of `@a` and on one of `@b` the number 257
//! stands for two files. So the generation given to the kernel stands for the subvolume too, and a handle
//! opens another subvolume's file only if 32 bits of two hashes agree by chance. The one exception is the
//! root of a mount: its number is 1 and its generation 0, whatever is mounted, because the kernel makes that
//! inode itself (`fuse_get_root_inode`, fs/fuse/inode.c).

use vlinder_fs::{Filesystem, Inode, Standing, Uuid};

use crate::transport::NodeNumber;

/// The generations of a file system's files.
pub(super) struct Generations {
    /// That of the file system, for subvolumes without one.
    uuid: Uuid,
}

impl Generations {
    /// Those of a file system.
    pub(super) fn of(filesystem: &Filesystem) -> Self {
        Self { uuid: Standing::of(filesystem).uuid() }
    }

    /// What the kernel is told as the generation of a file: the same in every reply, and after every mount.
    /// `is_lasting` is false for a number that may stand for another file after the next mount.
    pub(super) fn told(&self, inode: &Inode, node: NodeNumber, is_lasting: bool, generation: u64) -> u64 {
        if node == NodeNumber::ROOT {
            return 0;
        }
        let id = inode.id();
        let uuid = inode.subvolume().uuid();
        let owner = if uuid.is_nil() { hash_of(self.uuid, id.root.0) } else { hash_of(uuid, 0) };
        let file = if is_lasting {
            owner
        } else {
            mixed(mixed(owner ^ id.number.0) ^ id.absent.map_or(0, |absent| absent.0))
        };
        u64::from(low_half(file) ^ low_half(generation))
    }
}

/// A hash that stays the same from version to version, since NFS clients keep what is made of it.
fn hash_of(uuid: Uuid, number: u64) -> u64 {
    let value = u128::from_le_bytes(uuid.0);
    let halves = [value, value >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
    halves.into_iter().fold(mixed(number), |hash, half| mixed(hash ^ half))
}

/// The mixing function of `SplitMix64`.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn low_half(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_subvolume_never_changes() {
        let uuid = Uuid(std::array::from_fn(|index| u8::try_from(index).unwrap()));
        assert_eq!(hash_of(uuid, 0), 13_685_358_115_931_031_676);
        assert_eq!(hash_of(uuid, 256), 13_906_634_303_351_624_779);
    }

    #[test]
    fn near_subvolumes_without_uuid_and_near_generations_differ() {
        let mut seen = std::collections::HashSet::new();
        for root in 256..356_u64 {
            for generation in 0..100_u64 {
                seen.insert(low_half(hash_of(Uuid([7; 16]), root)) ^ low_half(generation));
            }
        }
        assert_eq!(seen.len(), 10_000);
    }
}
