//! File data by file system and inode. The work is done in `vlinder_data`, which knows neither: here its
//! types are named again for callers of this crate, and `by_inode` has its functions as they use them.

mod by_inode;

pub use by_inode::{
    allocate, clone_range, copy_range, extent_map, flush, flush_ahead, flush_all, flush_replaced,
    flush_subvolume, read, read_data, remove_all, seek, truncate, write,
};
pub use vlinder_data::{
    Allocate, BytesError, DataFault, EncodedBytes, FileData, MAX_FILE_SIZE, MappedExtent, OpenCache, Seek,
    Stretch,
};
