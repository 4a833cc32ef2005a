//! The structure of one block: what must hold before any accessor may trust it (kernel: `check_leaf`,
//! `check_node`).

use super::offsets::{
    BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN, FLAGS, GENERATION, HEADER_SIZE, ITEM_HEADER_SIZE, LEVEL,
    NRITEMS, OWNER, POINTER_SIZE, get_key, get_u32, get_u64, widen,
};
use crate::key::Key;
use crate::types::{Generation, Level, Logical, RootId};

/// The sizes of the file system that a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// Bytes of every tree block.
    pub node_size: u32,
    /// Bytes of a sector; block addresses are multiples of it.
    pub sector_size: u32,
}

/// How the structure of a block can be broken, and how it can fail to be the block that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// The bytes are not as many as a block has.
    #[error("the block has {found} bytes instead of {expected}")]
    Size {
        /// Bytes given.
        found: usize,
        /// Bytes of a block of this file system.
        expected: usize,
    },
    /// The checksum stored in the block is not that of its bytes.
    #[error("the checksum does not match the content")]
    Checksum,
    /// The block names another address as its own.
    #[error("the block claims to lie at {found}")]
    Address {
        /// Address in the header.
        found: Logical,
    },
    /// The block belongs to another file system.
    #[error("the block belongs to another file system")]
    FileSystem,
    /// The generation is not what the parent recorded.
    #[error("generation {found} where the parent recorded {expected}")]
    Generation {
        /// In the header.
        found: Generation,
        /// In the parent.
        expected: Generation,
    },
    /// The level is not one below the parent's.
    #[error("level {found} where {expected} belongs")]
    Level {
        /// In the header.
        found: Level,
        /// One below the parent.
        expected: Level,
    },
    /// The first key is not the one in the parent.
    #[error("first key {found} where the parent recorded {expected}")]
    FirstKey {
        /// In the block.
        found: Key,
        /// In the parent.
        expected: Key,
    },
    /// The owner cannot be in this tree.
    #[error("owner {found} in tree {tree}")]
    Owner {
        /// In the header.
        found: RootId,
        /// The tree that was read.
        tree: RootId,
    },
    /// No tree is that high.
    #[error("level {found} is above 7")]
    LevelTooHigh {
        /// In the header.
        found: Level,
    },
    /// A block on disk lacks the flag that every written block has.
    #[error("the written flag is not set")]
    NotWritten,
    /// More entries than fit, or none where there must be some.
    #[error("{found} entries, where 1 to {most} are possible")]
    EntryCount {
        /// In the header.
        found: u32,
        /// That fit.
        most: usize,
    },
    /// A leaf that may never be empty is.
    #[error("an empty leaf in tree {owner}, which always has items")]
    EmptyLeaf {
        /// In the header.
        owner: RootId,
    },
    /// Keys do not ascend.
    #[error("key {next} follows {key}")]
    KeyOrder {
        /// At the slot.
        key: Key,
        /// At the slot after.
        next: Key,
    },
    /// Item data do not join the data before them.
    #[error("the data end at {found}, not at {expected} where the data before begin")]
    DataEnd {
        /// Offset + size.
        found: u64,
        /// Where the previous item's data begin.
        expected: u64,
    },
    /// Item data lie over the item headers.
    #[error("the data begin at {found}, inside the item headers that end at {headers_end}")]
    DataOverHeaders {
        /// Offset of the data.
        found: u64,
        /// End of the headers.
        headers_end: u64,
    },
    /// A pointer to nowhere, or between sectors.
    #[error("pointer to {found}, which is no block address")]
    Pointer {
        /// In the node.
        found: Logical,
    },
    /// A child newer than its parent.
    #[error("pointer to generation {found} in a block of generation {own}")]
    PointerGeneration {
        /// In the pointer.
        found: Generation,
        /// In the header.
        own: Generation,
    },
}

type Finding = (BlockFault, Option<u32>);

/// The trees whose leaves are never empty (kernel: `check_leaf`).
const NEVER_EMPTY: [RootId; 6] = [
    RootId::ROOT_TREE,
    RootId::CHUNK_TREE,
    RootId::DEVICE_TREE,
    RootId::FS_TREE,
    RootId::DATA_RELOCATION_TREE,
    RootId::EXTENT_TREE,
];

/// Checks size, level, counts, key order, item data and pointers. An unwritten block (in memory) passes only
/// in [`Block::validate`](super::Block::validate) right before its flag is set by the writer, never here from
/// disk.
pub(super) fn validate(bytes: &[u8], rules: &BlockRules) -> Result<(), Finding> {
    let expected = widen(rules.node_size);
    if bytes.len() != expected || expected <= HEADER_SIZE {
        return Err((BlockFault::Size { found: bytes.len(), expected }, None));
    }
    let level = Level(bytes.get(LEVEL).copied().unwrap_or(u8::MAX));
    if level.index() >= Level::COUNT {
        return Err((BlockFault::LevelTooHigh { found: level }, None));
    }
    if get_u64(bytes, FLAGS) & BLOCK_FLAG_WRITTEN == 0 {
        return Err((BlockFault::NotWritten, None));
    }
    let count = get_u32(bytes, NRITEMS);
    if level == Level::LEAF { validate_leaf(bytes, count) } else { validate_node(bytes, count, rules) }
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "count is bounded by the block's size before it is multiplied"
)]
fn validate_leaf(bytes: &[u8], count: u32) -> Result<(), Finding> {
    let capacity = bytes.len() - HEADER_SIZE;
    let most = capacity / ITEM_HEADER_SIZE;
    if widen(count) > most {
        return Err((BlockFault::EntryCount { found: count, most }, None));
    }
    if count == 0 {
        let owner = RootId(get_u64(bytes, OWNER));
        // A relocation tree's blocks name the tree that they copy, which may be one of these, and may be
        // empty.
        let is_relocated = get_u64(bytes, FLAGS) & BLOCK_FLAG_RELOCATION != 0;
        if !is_relocated && (owner.0 == 0 || NEVER_EMPTY.contains(&owner)) {
            return Err((BlockFault::EmptyLeaf { owner }, None));
        }
        return Ok(());
    }
    let headers_end = u64::from(count) * 25;
    // No item has the smallest key: there is no item type 0.
    let mut previous = Key::MIN;
    let mut data_end = u64::try_from(capacity).unwrap_or(u64::MAX);
    for slot in 0..count {
        let start = HEADER_SIZE + widen(slot) * ITEM_HEADER_SIZE;
        let key = get_key(bytes, start);
        if previous >= key {
            return Err((BlockFault::KeyOrder { key: previous, next: key }, Some(slot)));
        }
        previous = key;
        let offset = u64::from(get_u32(bytes, start + Key::SIZE));
        let end = offset + u64::from(get_u32(bytes, start + Key::SIZE + 4));
        if end != data_end {
            return Err((BlockFault::DataEnd { found: end, expected: data_end }, Some(slot)));
        }
        if offset < headers_end {
            return Err((BlockFault::DataOverHeaders { found: offset, headers_end }, Some(slot)));
        }
        data_end = offset;
    }
    Ok(())
}

#[allow(
    clippy::arithmetic_side_effects,
    reason = "count is bounded by the block's size before it is multiplied"
)]
fn validate_node(bytes: &[u8], count: u32, rules: &BlockRules) -> Result<(), Finding> {
    let most = (bytes.len() - HEADER_SIZE) / POINTER_SIZE;
    if count == 0 || widen(count) > most {
        return Err((BlockFault::EntryCount { found: count, most }, None));
    }
    let own = Generation(get_u64(bytes, GENERATION));
    let mut previous: Option<Key> = None;
    for slot in 0..count {
        let start = HEADER_SIZE + widen(slot) * POINTER_SIZE;
        let key = get_key(bytes, start);
        if let Some(before) = previous
            && before >= key
        {
            return Err((BlockFault::KeyOrder { key: before, next: key }, Some(slot)));
        }
        previous = Some(key);
        let logical = Logical(get_u64(bytes, start + Key::SIZE));
        if logical.0 == 0 || !logical.0.is_multiple_of(u64::from(rules.sector_size.max(1))) {
            return Err((BlockFault::Pointer { found: logical }, Some(slot)));
        }
        let generation = Generation(get_u64(bytes, start + Key::SIZE + 8));
        if generation > own {
            return Err((BlockFault::PointerGeneration { found: generation, own }, Some(slot)));
        }
    }
    Ok(())
}
