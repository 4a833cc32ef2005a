//! What is wrong with a single item of an inode, whatever other items say. Subvolumes are judged by it, and
//! logs: a replay takes items over as they are.

use vlinder_format::directory::{DirectoryEntries, DirectoryIndex, is_file_name};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem};
use vlinder_format::validate::LeafRules;
use vlinder_format::{Generation, ItemType, ObjectId};

use crate::finding::FindingKind;
use crate::item::Item;

/// Its owner and group are ids.
pub(crate) fn odd_owner(inode: ObjectId, item: &InodeItem) -> Option<FindingKind> {
    let InodeItem { user, group, .. } = *item;
    (!(user.is_id() && group.is_id())).then_some(FindingKind::InodeOwner { inode, user, group })
}

/// Symbolic links have no flags that forbid changes.
pub(crate) fn odd_flags(inode: ObjectId, item: &InodeItem) -> Option<FindingKind> {
    let is_link = item.mode.file_type() == Some(FileType::SymbolicLink);
    let is_odd = is_link && item.flags.has_any(InodeFlags::IMMUTABLE.with(InodeFlags::APPEND));
    is_odd.then_some(FindingKind::InodeOddFlags { inode, flags: item.flags })
}

/// A name that an inode says it has in a directory.
pub(crate) fn odd_reference(
    directory: ObjectId,
    child: ObjectId,
    index: DirectoryIndex,
    name: &[u8],
) -> Option<FindingKind> {
    // The root directory names itself; nobody else does.
    if directory != child {
        return unusable_name(directory, child, name);
    }
    let reason = "is not `..` in the root directory's own reference";
    let is_odd = (name, index) != (&b".."[..], DirectoryIndex(0));
    is_odd.then_some(FindingKind::Name { directory, child, reason })
}

/// A place in a directory's index where no name is listed.
pub(crate) fn odd_index(directory: ObjectId, index: DirectoryIndex) -> Option<FindingKind> {
    let is_odd = index < DirectoryIndex::FIRST;
    is_odd.then_some(FindingKind::DirectoryIndex { directory, index: index.0 })
}

/// Entries of a directory by hash, or one of its index.
pub(crate) fn odd_entries(item: &Item<'_>) -> Vec<FindingKind> {
    let directory = item.key.objectid;
    let is_index = item.key.item_type == ItemType::DIR_INDEX;
    let index = is_index.then(|| odd_index(directory, DirectoryIndex(item.key.offset))).flatten();
    let mut found = Vec::from_iter(index);
    let mut seen: Vec<&[u8]> = Vec::new();
    for entry in DirectoryEntries::new(item.data).flatten() {
        let child = entry.location.objectid;
        found.extend(unusable_name(directory, child, entry.name));
        if seen.contains(&entry.name) {
            found.push(FindingKind::Name { directory, child, reason: "stands twice in one item" });
        }
        seen.push(entry.name);
    }
    found
}

fn unusable_name(directory: ObjectId, child: ObjectId, name: &[u8]) -> Option<FindingKind> {
    let name = (!is_file_name(name)).then(|| name.escape_ascii().to_string())?;
    Some(FindingKind::NameUnusable { directory, child, name })
}

/// A file's extent, in a tree whose newest transaction is `newest`: that of the superblock, and the next one
/// in a log. `flags` are those of the inode, where they are known.
pub(crate) fn odd_extent(
    inode: ObjectId,
    extent: &FileExtent<'_>,
    flags: Option<InodeFlags>,
    rules: &LeafRules,
    newest: Generation,
) -> impl Iterator<Item = FindingKind> + use<> {
    let generation = extent.generation;
    let is_to_come = generation > newest;
    let generation = is_to_come.then_some(FindingKind::FileExtentGeneration { inode, generation });
    let reason = odd_form(extent, u64::from(rules.sector_size)).or_else(|| odd_packing(extent, flags));
    let form = reason.map(|reason| FindingKind::FileExtentForm { inode, reason });
    let ram_bytes = extent.ram_bytes;
    let size = shows_too_much(extent).then_some(FindingKind::FileExtentSize { inode, ram_bytes });
    generation.into_iter().chain(form).chain(size)
}

/// Whether an extent shows more than it has.
fn shows_too_much(extent: &FileExtent<'_>) -> bool {
    let Some(range) = extent.range() else { return false };
    let shown = range.offset_bytes.saturating_add(range.file_bytes);
    let is_plain = extent.compression == CompressionId::NONE;
    shown > extent.ram_bytes || (is_plain && !range.is_hole() && shown > range.disk_bytes)
}

/// What of an extent's item no writer writes, though its decoder knows what it means.
fn odd_form(extent: &FileExtent<'_>, sector_size: u64) -> Option<&'static str> {
    let is_plain = extent.compression == CompressionId::NONE;
    let is_long = |stored: &[u8]| {
        let stored_bytes = u64::try_from(stored.len()).unwrap_or(u64::MAX);
        stored_bytes >= sector_size || (!is_plain && extent.ram_bytes > sector_size)
    };
    match extent.content {
        FileExtentContent::Preallocated(_) if !is_plain => Some("is compressed, and was never written"),
        FileExtentContent::Inline([]) => Some("is inline, and has no bytes"),
        FileExtentContent::Inline(stored) if is_long(stored) => Some("is inline, and too long for that"),
        _ if extent.other_encoding != 0 => Some("has an encoding that nobody knows"),
        _ => None,
    }
}

/// What was packed has checksums: Linux packs nothing of an inode that has none, and `btrfs check` calls such
/// an extent bad. Inline bytes have their leaf's checksum.
fn odd_packing(extent: &FileExtent<'_>, flags: Option<InodeFlags>) -> Option<&'static str> {
    let is_packed = extent.compression != CompressionId::NONE;
    let has_none = flags.is_some_and(|flags| flags.has(InodeFlags::NODATASUM));
    let is_on_disk = matches!(extent.content, FileExtentContent::Regular(_)) && !extent.is_hole();
    (is_packed && has_none && is_on_disk).then_some("is compressed, in a file without checksums")
}

#[cfg(test)]
mod tests {
    use vlinder_format::Logical;

    use super::*;

    #[test]
    fn what_was_never_written_is_not_compressed() {
        let plain = FileExtent::preallocated(Logical(1 << 20), 4096, Generation(7));
        let odd = FileExtent { compression: CompressionId::ZSTD, ..plain };
        assert_eq!((odd_form(&plain, 4096), odd_form(&odd, 4096).is_some()), (None, true));
        let FileExtentContent::Preallocated(range) = odd.content else { panic!("{odd:?}") };
        assert_eq!(odd_form(&FileExtent { content: FileExtentContent::Regular(range), ..odd }, 4096), None);
    }

    #[test]
    fn what_is_inline_is_shorter_than_a_sector() {
        for (stored, ram_bytes, compression, is_odd) in [
            (4095, 4095, CompressionId::NONE, false),
            (4096, 4096, CompressionId::NONE, true),
            (100, 4096, CompressionId::ZSTD, false),
            (100, 4097, CompressionId::ZSTD, true),
            (4096, 4096, CompressionId::ZSTD, true),
        ] {
            let bytes = vec![7; stored];
            let extent = FileExtent { ram_bytes, compression, ..FileExtent::inline(&bytes, Generation(7)) };
            assert_eq!(odd_form(&extent, 4096).is_some(), is_odd, "{stored} bytes of {ram_bytes}");
        }
    }
}
