//! Text of one tree block: header, then items or pointers.

use vlinder_format::block::{BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN};
use vlinder_format::{Block, ItemType, ObjectId};
use vlinder_places::text::hexadecimal;

use super::items;
use super::keys::{key, object};
use super::text::{Context, line, put};

/// All lines of a block.
pub fn block(text: &mut Vec<u8>, block: &Block, context: &Context) {
    header(text, block, context);
    if block.is_leaf() {
        leaf(text, block, context);
    } else {
        for child in block.children() {
            let key = key(&child.key);
            line!(text, "\t{key} block {} gen {}", child.logical, child.generation);
        }
    }
}

fn header(text: &mut Vec<u8>, block: &Block, context: &Context) {
    let (logical, items, generation) = (block.logical(), block.len(), block.generation());
    let owner = object(ObjectId(block.owner().0), ItemType(0));
    let kind = if block.is_leaf() {
        let free = block.free_bytes();
        line!(text, "leaf {logical} items {items} free space {free} generation {generation} owner {owner}");
        "leaf"
    } else {
        let (level, free) = (block.level(), block.pointer_capacity() - items);
        line!(
            text,
            "node {logical} level {level} items {items} free space {free} generation {generation} owner {owner}"
        );
        "node"
    };
    // The top byte of the field is the revision of back references.
    let bits = block.header().flags() & 0x00ff_ffff_ffff_ffff;
    let names = [(BLOCK_FLAG_WRITTEN, "WRITTEN"), (BLOCK_FLAG_RELOCATION, "RELOC")];
    let names: Vec<&str> = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    let revision = block.header().back_reference_revision().0;
    put!(text, "{kind} {logical} flags 0x{bits:x}({}) backref revision {revision}", names.join("|"));
    if context.style.header_checksums {
        let stored = &block.header().stored_checksum()[..context.geometry.checksum_kind.size_bytes()];
        put!(text, " csum 0x{}", hexadecimal(stored));
    }
    line!(text, "");
    line!(text, "fs uuid {}", block.header().fsid());
    line!(text, "chunk uuid {}", block.header().chunk_tree_uuid());
}

fn leaf(text: &mut Vec<u8>, block: &Block, context: &Context) {
    // Items' data lie one below the other, from the end of the leaf up, without gaps.
    let mut offset = block.capacity_bytes();
    for slot in 0..block.len() {
        let (item_key, data) = (block.key(slot), block.data(slot));
        offset -= data.len();
        line!(text, "\titem {slot} {} itemoff {offset} itemsize {}", key(&item_key), data.len());
        items::item(text, &item_key, data, context);
    }
}
