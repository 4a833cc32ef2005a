//! Files by number. A file handle (name_to_handle_at(2), an NFS client) holds a node number and 32 bits of
//! generation. When the kernel no longer has the file's inode, it looks up `.` in that number, and `..` for
//! the place of a directory. It compares the generation of the reply with the handle's.
//!
//! Node numbers are relative to the mounted subvolume: on a mount of `@a` and on one of `@b` the number 257
//! stands for two files. So the generation given to the kernel stands for the subvolume too, and a handle
//! opens another subvolume's file only if 32 bits of two hashes agree by chance. The one exception is the
//! root of a mount: its number is 1 and its generation 0, whatever is mounted, because the kernel makes that
//! inode itself (`fuse_get_root_inode`, fs/fuse/inode.c).

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{FsError, Inode, InodeId, Refusal, Uuid};

use super::MountService;
use super::convert::errno;
use crate::transport::{Entry, NodeNumber, Reply};

/// The file itself.
pub(super) const SELF: &[u8] = b".";
/// The directory that a directory lies in.
pub(super) const PARENT: &[u8] = b"..";

impl MountService {
    /// The entry of the file with a number, or of the directory that it lies in; ESTALE where the file was
    /// deleted, or the number is not the one that this mount gives the file.
    pub(super) fn lookup_number(&self, node: NodeNumber, name: &[u8]) -> Reply<Entry> {
        let id = self.numbers.file(node).ok_or(Errno::STALE)?;
        // The kernel takes a reply with another number for an I/O error.
        if self.numbers.node(id) != node {
            return Err(Errno::STALE);
        }
        let inode = self.living_inode(id)?;
        if name == SELF {
            let directory = self.filesystem.lookup_parent(&inode).map_or(node, |parent| self.node(parent));
            return Ok(self.entry(&inode, directory));
        }
        if !inode.is_directory() {
            return Err(Errno::STALE);
        }
        let parent = self.filesystem.lookup_parent(&inode).map_err(|error| stale_or(&error))?;
        // That of the top-level subvolume, which lies outside of what is mounted if the kernel asks.
        if parent == id {
            return Err(Errno::STALE);
        }
        Ok(self.entry(&*self.living_inode(parent)?, self.node(parent)))
    }

    fn living_inode(&self, id: InodeId) -> Reply<Arc<Inode>> {
        let inode = self.filesystem.inode(id).map_err(|error| stale_or(&error))?;
        let is_deleted = inode.subvolume().is_deleted() || inode.state().item.link_count == 0;
        if is_deleted { Err(Errno::STALE) } else { Ok(inode) }
    }

    /// What the kernel is told as the generation of a file: the same in every reply, and after every mount.
    pub(super) fn told_generation(&self, inode: &Inode, node: NodeNumber, generation: u64) -> u64 {
        if node == NodeNumber::ROOT {
            return 0;
        }
        let id = inode.id();
        let uuid = inode.subvolume().tree().item().uuid();
        let owner = if uuid.is_nil() { hash_of(self.uuid, id.root.0) } else { hash_of(uuid, 0) };
        // A number from the table may stand for another file after the next mount.
        let file = if self.numbers.is_from_table(node) {
            mixed(mixed(owner ^ id.number.0) ^ id.absent.map_or(0, |absent| absent.0))
        } else {
            owner
        };
        u64::from(low_half(file) ^ low_half(generation))
    }
}

fn stale_or(error: &FsError) -> Errno {
    match error.refusal() {
        Some(Refusal::NotFound | Refusal::Stale) => Errno::STALE,
        _ => errno(error),
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
