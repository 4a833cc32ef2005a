//! Superblocks: changes of a sound one, and any bytes as its array of system chunks.

use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror, SystemChunkArray};

use crate::input::Input;

/// The superblock of `tests/golden/default.img.zst`.
const SOUND: &[u8; SUPERBLOCK_SIZE] = include_bytes!("../seeds/superblock");

/// A sound superblock with changes: each a position, a length of at most 16 and the bytes.
///
/// # Panics
/// Where a law is broken.
pub fn superblock(input: &[u8]) {
    let mut input = Input(input);
    let mirror = input.of(&SuperblockMirror::ALL);
    let mut bytes = *SOUND;
    if mirror != SuperblockMirror::Primary {
        bytes[48..56].copy_from_slice(&mirror.offset().0.to_le_bytes());
    }
    while !input.is_empty() {
        let at = usize::from(input.u16()) % SUPERBLOCK_SIZE;
        let length = usize::from(input.u8() % 17).min(SUPERBLOCK_SIZE - at);
        let new = input.take(length);
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    judge(&bytes, mirror);
}

fn judge(bytes: &[u8; SUPERBLOCK_SIZE], mirror: SuperblockMirror) {
    let superblock = match Superblock::decode(bytes) {
        Ok(superblock) => superblock,
        Err(fault) => panic!("every {SUPERBLOCK_SIZE} bytes can be read: {fault}"),
    };
    assert_eq!(superblock.encode(), *bytes);
    let chunks: Result<Vec<_>, _> = superblock.system_chunks().collect();
    let read = superblock.check_for_read(mirror);
    let rescue = superblock.check_for_rescue(mirror);
    assert!(read.is_err() || rescue.is_ok(), "what can be read can be rescued");
    let write = superblock.check_for_write();
    if read.is_err() {
        return;
    }
    let (node_size, sector_size) = (superblock.node_size, superblock.sector_size);
    assert!(bytes[64..72] == *b"_BHRfS_M" && superblock.device_count != 0);
    assert!(sector_size.is_power_of_two() && (4096..=65536).contains(&sector_size));
    assert!(node_size.is_power_of_two() && (sector_size..=65536).contains(&node_size));
    for address in [superblock.root, superblock.chunk_root, superblock.log_root] {
        assert!(address.0.is_multiple_of(u64::from(sector_size)));
    }
    for level in [superblock.root_level, superblock.chunk_root_level, superblock.log_root_level] {
        assert!(level.0 < 8);
    }
    assert_eq!(u64::from_le_bytes(bytes[48..56].try_into().unwrap_or_default()), mirror.offset().0);
    match chunks {
        Ok(chunks) => assert!(!chunks.is_empty(), "something says where the chunk tree lies"),
        Err(fault) => panic!("the system chunks of an accepted superblock: {fault}"),
    }
    let _ = (write, superblock.features().unsupported_for_writing(), superblock.has_log());
}

/// Any bytes as the array of system chunks, and its size.
///
/// # Panics
/// Where a law is broken.
pub fn system_array(input: &[u8]) {
    let mut input = Input(input);
    let size = u32::from(input.u16());
    let mut array = SystemChunkArray([0; 2048]);
    let bytes = input.take(2048);
    array.0[..bytes.len()].copy_from_slice(bytes);
    let Ok(pairs) = array.iterate(size).collect::<Result<Vec<_>, _>>() else { return };
    let read: usize = pairs.iter().map(|(_, chunk)| 17 + chunk.encode().len()).sum();
    assert_eq!(read, size as usize, "all of the array is read");
    match SystemChunkArray::of(pairs.iter().map(|(start, chunk)| (*start, chunk))) {
        Ok((again, length)) => assert_eq!((length as usize, &again.0[..read]), (read, &array.0[..read])),
        Err(fault) => panic!("what was read fits: {fault}"),
    }
}
