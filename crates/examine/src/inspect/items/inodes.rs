//! Inodes and the runs of their bytes.

use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{InodeFlags, InodeItem};

use super::super::text::{Context, flags, line, timestamp};
use super::printed::Printed;

const FLAGS: [(u64, &str); 13] = [
    (InodeFlags::NODATASUM.0, "NODATASUM"),
    (InodeFlags::NODATACOW.0, "NODATACOW"),
    (InodeFlags::READONLY.0, "READONLY"),
    (InodeFlags::NOCOMPRESS.0, "NOCOMPRESS"),
    (InodeFlags::PREALLOC.0, "PREALLOC"),
    (InodeFlags::SYNC.0, "SYNC"),
    (InodeFlags::IMMUTABLE.0, "IMMUTABLE"),
    (InodeFlags::APPEND.0, "APPEND"),
    (InodeFlags::NODUMP.0, "NODUMP"),
    (InodeFlags::NOATIME.0, "NOATIME"),
    (InodeFlags::DIRSYNC.0, "DIRSYNC"),
    (InodeFlags::COMPRESS.0, "COMPRESS"),
    (InodeFlags::ROOT_ITEM_INITIALIZED.0, "ROOT_ITEM_INIT"),
];

pub fn inode(text: &mut Vec<u8>, data: &[u8], context: &Context) -> Printed {
    let inode = InodeItem::decode(data)?;
    let names = flags(inode.flags.0, &FLAGS);
    let names = if names.is_empty() { "none" } else { &names };
    line!(
        text,
        "\t\tgeneration {} transid {} size {} nbytes {}",
        inode.generation,
        inode.transaction,
        inode.size_bytes,
        inode.allocated_bytes
    );
    line!(
        text,
        "\t\tblock group {} mode {:o} links {} uid {} gid {} rdev {}",
        inode.block_group,
        inode.mode.0,
        inode.link_count,
        inode.user.0,
        inode.group.0,
        inode.device_number.0
    );
    line!(text, "\t\tsequence {} flags 0x{:x}({names})", inode.sequence, inode.flags.0);
    timestamp(text, "atime", inode.access_time, &context.zone);
    timestamp(text, "ctime", inode.change_time, &context.zone);
    timestamp(text, "mtime", inode.modification_time, &context.zone);
    timestamp(text, "otime", inode.birth_time, &context.zone);
    Ok(())
}

fn compression(id: CompressionId) -> String {
    let name = if id.is_known() { id.to_string() } else { format!("UNKNOWN.{}", id.0) };
    format!("{} ({name})", id.0)
}

pub fn file_extent(text: &mut Vec<u8>, data: &[u8]) -> Printed {
    let extent = FileExtent::decode(data)?;
    let compression = compression(extent.compression);
    match extent.content {
        FileExtentContent::Inline(bytes) => {
            line!(text, "\t\tgeneration {} type 0 (inline)", extent.generation);
            let (size, ram) = (bytes.len(), extent.ram_bytes);
            line!(text, "\t\tinline extent data size {size} ram_bytes {ram} compression {compression}");
        }
        FileExtentContent::Preallocated(range) => {
            line!(text, "\t\tgeneration {} type 2 (prealloc)", extent.generation);
            line!(text, "\t\tprealloc data disk byte {} nr {}", range.address, range.disk_bytes);
            line!(text, "\t\tprealloc data offset {} nr {}", range.offset_bytes, range.file_bytes);
        }
        FileExtentContent::Regular(range) => {
            line!(text, "\t\tgeneration {} type 1 (regular)", extent.generation);
            line!(text, "\t\textent data disk byte {} nr {}", range.address, range.disk_bytes);
            let (offset, bytes) = (range.offset_bytes, range.file_bytes);
            line!(text, "\t\textent data offset {offset} nr {bytes} ram {}", extent.ram_bytes);
            line!(text, "\t\textent compression {compression}");
        }
    }
    Ok(())
}
