//! Whether the members tell one history.

use vlinder_codec::checksum::{Checksum, checksum};
use vlinder_format::{Block, Generation, Logical};
use vlinder_volume::{MappedBy, ReadRequest, VolumeError};

use crate::context::Context;

/// Sees that all good copies of the root blocks that the superblock names are the same.
///
/// # Errors
/// [`VolumeError::TwoHistories`].
pub(crate) fn refuse_two(context: &Context<'_>) -> Result<(), VolumeError> {
    let superblock = context.judge.superblock;
    let roots = [
        (superblock.chunk_root, superblock.chunk_root_generation, MappedBy::SystemChunks),
        (superblock.root, superblock.generation, MappedBy::AnyChunk),
    ];
    let length = usize::try_from(context.judge.block_rules.node_size).unwrap_or(usize::MAX);
    for (logical, generation, by) in roots {
        let request = ReadRequest { logical, length };
        let mut is_good = |bytes: &[u8]| is_committed(context, bytes, logical, generation);
        // A block that lies nowhere is told of where it is read.
        if let Ok(Some((first, second))) = context.judge.volume.differing_copies(request, by, &mut is_good) {
            return Err(context.judge.volume.two_histories(first, second));
        }
    }
    Ok(())
}

fn is_committed(context: &Context<'_>, bytes: &[u8], logical: Logical, generation: Generation) -> bool {
    let Some((field, covered)) = bytes.split_first_chunk::<32>() else { return false };
    let kind = context.judge.checksum_kind;
    if !Checksum::from_field(*field).matches(&checksum(kind, covered), kind) {
        return false;
    }
    let block = Block::parse(bytes.into(), &context.judge.block_rules);
    block.is_ok_and(|block| block.logical() == logical && block.generation() == generation)
}
