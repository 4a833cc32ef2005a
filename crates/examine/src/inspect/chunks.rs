//! The chunks of a file system that may be damaged.

use std::path::PathBuf;

use vlinder_format::chunk::Chunk;
use vlinder_format::{ItemType, Logical};
use vlinder_places::failure::{Failure, Kind};

use super::blocks::Blocks;
use super::walk::Walk;

/// Opens the file system on these devices, and learns its chunks as far as they can be read; with what can't
/// be.
///
/// # Errors
/// As [`Blocks::open`].
pub fn open(paths: &[PathBuf]) -> Result<(Blocks, Vec<Failure>), Failure> {
    let blocks = Blocks::open(paths)?;
    let failures = learn_chunks(&blocks);
    Ok((blocks, failures))
}

/// Walks the chunk tree and gives the volume its chunks; what can't be read is skipped and told.
fn learn_chunks(blocks: &Blocks) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut walk = Walk::new(blocks, blocks.superblock.chunk_root);
    while let Some(step) = walk.next_block() {
        let block = match step {
            Ok(block) => block,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        if !block.is_leaf() {
            continue;
        }
        for slot in 0..block.len() {
            let key = block.key(slot);
            if key.item_type != ItemType::CHUNK_ITEM {
                continue;
            }
            let added = Chunk::decode(block.data(slot))
                .map_err(|fault| Failure::new(Kind::Corruption, fault.to_string()))
                .and_then(|chunk| Ok(blocks.volume.add_chunk(Logical(key.offset), chunk)?));
            if let Err(failure) = added {
                failures.push(failure.at(format!("chunk {}", key.offset)));
            }
        }
    }
    failures
}
