//! Extents, who refers to them, and the checksums of their data.

use vlinder_format::extent::{ExtentFlags, ExtentItem, Reference};
use vlinder_format::{ItemType, Key, ObjectId};
use vlinder_places::text::hexadecimal;

use super::super::keys::{key as key_text, object};
use super::super::text::{Context, line, put};
use super::printed::Printed;

fn flags(flags: ExtentFlags) -> String {
    let names = [
        (ExtentFlags::DATA, "DATA"),
        (ExtentFlags::TREE_BLOCK, "TREE_BLOCK"),
        (ExtentFlags::FULL_BACK_REFERENCE, "FULL_BACKREF"),
    ];
    names.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

pub fn extent(text: &mut Vec<u8>, key: &Key, data: &[u8]) -> Printed {
    let item = ExtentItem::decode(key.item_type, data)?;
    let header = &item.header;
    line!(text, "\t\trefs {} gen {} flags {}", header.references, header.generation, flags(header.flags));
    if let Some(block) = &item.tree_block {
        line!(text, "\t\ttree block {} level {}", key_text(&block.first_key), block.level);
    } else if key.item_type == ItemType::METADATA_ITEM {
        line!(text, "\t\ttree block skinny level {}", key.offset);
    }
    for reference in &item.inline {
        inline(text, reference);
    }
    Ok(())
}

fn root_name(root: vlinder_format::RootId) -> String {
    object(ObjectId(root.0), ItemType(0))
}

fn inline(text: &mut Vec<u8>, reference: &Reference) {
    put!(text, "\t\t");
    owned(text, reference);
}

fn owned(text: &mut Vec<u8>, reference: &Reference) {
    match reference {
        Reference::ExtentOwner { root } => line!(text, "extent owner root {root}"),
        Reference::TreeBlock { root } => line!(text, "tree block backref root {}", root_name(*root)),
        Reference::SharedBlock { parent } => line!(text, "shared block backref parent {parent}"),
        Reference::ExtentData(data) => {
            let (root, inode, offset) = (root_name(data.root), data.inode, data.offset);
            line!(
                text,
                "extent data backref root {root} objectid {inode} offset {offset} count {}",
                data.count
            );
        }
        Reference::SharedData { parent, count } => {
            line!(text, "shared data backref parent {parent} count {count}");
        }
    }
}

/// A reference in an item of its own: what the key says is not repeated.
pub fn reference(text: &mut Vec<u8>, key: &Key, data: &[u8]) -> Printed {
    match Reference::decode_item(key, data).transpose()? {
        Some(Reference::TreeBlock { .. }) => line!(text, "\t\ttree block backref"),
        Some(Reference::SharedBlock { .. }) => line!(text, "\t\tshared block backref"),
        Some(Reference::SharedData { count, .. }) => line!(text, "\t\tshared data backref count {count}"),
        Some(reference) => inline(text, &reference),
        None => {}
    }
    Ok(())
}

pub fn checksums(text: &mut Vec<u8>, key: &Key, data: &[u8], context: &Context) {
    let size = context.geometry.checksum_kind.size_bytes();
    let sector = u64::from(context.geometry.sector_size);
    let sums = data.chunks_exact(size);
    let length = u64::try_from(sums.len()).unwrap_or(0).saturating_mul(sector);
    let start = key.offset;
    line!(text, "\t\trange start {start} end {} length {length}", start.saturating_add(length));
    if !context.style.item_checksums {
        return;
    }
    // As many on a line as one checksum of 32 bytes is wide.
    let a_line = (16 / size).max(1);
    let mut sector_start = start;
    for row in sums.collect::<Vec<_>>().chunks(a_line) {
        let mut separator = "\t\t";
        for sum in row {
            put!(text, "{separator}[{sector_start}] 0x{}", hexadecimal(sum));
            separator = " ";
            sector_start = sector_start.saturating_add(sector);
        }
        line!(text, "");
    }
}
