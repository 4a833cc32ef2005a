//! How large an item may become that is added to.

use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};

/// Whether an item of so many bytes is more than an addition may make in blocks of `node_size` bytes: Linux
/// wants room for a second item header.
pub(crate) fn grows_too_large(bytes: usize, node_size: usize) -> bool {
    bytes + 2 * ITEM_HEADER_SIZE > node_size - HEADER_SIZE
}
