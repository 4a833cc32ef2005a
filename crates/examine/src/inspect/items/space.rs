//! Block groups and free space.

use vlinder_format::Key;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::free_space::FreeSpaceInfo;

use super::super::keys::key;
use super::super::text::line;
use super::devices::group_flags;
use super::printed::Printed;

pub fn block_group(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let group = BlockGroupItem::decode(data)?;
    let flags = group_flags(group.flags);
    line!(text, "\t\tblock group used {} chunk_objectid {} flags {flags}", group.used, group.chunk_object);
    Ok(())
}

pub fn info(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let info = FreeSpaceInfo::decode(data)?;
    line!(text, "\t\tfree space info extent count {} flags {}", info.extent_count, info.flags);
    Ok(())
}

/// The head of a v1 space cache, which nothing but this reads: the key of its inode, then generation, entries
/// and bitmaps, u64 each.
pub fn cache_header(text: &mut Vec<u8>, data: &[u8]) {
    let number = |at: usize| {
        let bytes = data.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    if let Some(location) = data.first_chunk::<{ Key::SIZE }>() {
        line!(text, "\t\tlocation {}", key(&Key::decode(location)));
        let (generation, entries, bitmaps) = (number(17), number(25), number(33));
        line!(text, "\t\tcache generation {generation} entries {entries} bitmaps {bitmaps}");
    }
}
