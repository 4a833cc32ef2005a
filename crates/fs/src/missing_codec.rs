//! Data that would have to be compressed by an algorithm that this program was built without are refused when
//! they are written. They are flushed later, when no caller could be told.

use vlinder_codec::compress::{CodecError, Compression};
use vlinder_data::{BytesError, CompressionProperty, DataFault, FileStore, compression_property};
use vlinder_format::inode::InodeFlags;

use crate::options::OpenOptions;
use crate::{Inode, Result};

/// Refuses a write to a file whose new data are compressed by an algorithm that was not built in.
///
/// # Errors
/// [`CodecError::NotBuiltIn`]; what reading the file's property met.
pub(crate) fn refuse_without_codec(
    store: &FileStore,
    options: &OpenOptions,
    inode: &Inode,
    offset: u64,
) -> Result<()> {
    if Compression::ALL.iter().all(|algorithm| algorithm.is_built_in()) {
        return Ok(());
    }
    let flags = inode.state().item.flags;
    let plain = InodeFlags::NODATACOW | InodeFlags::NODATASUM | InodeFlags::NOCOMPRESS;
    if flags.has_any(plain) {
        return Ok(());
    }
    let by_option = options.compress.map(|option| option.algorithm);
    let by_flag = flags.has(InodeFlags::COMPRESS).then_some(Compression::Zlib);
    let algorithm = match compression_property(store, inode.node())? {
        CompressionProperty::Algorithm(algorithm) => Some(algorithm),
        CompressionProperty::None | CompressionProperty::Never => by_option.or(by_flag),
    };
    match algorithm.filter(|algorithm| !algorithm.is_built_in()) {
        None => Ok(()),
        Some(compression) => {
            let fault = DataFault::Codec(CodecError::NotBuiltIn { compression });
            Err(BytesError { inode: inode.id(), offset, fault }.into())
        }
    }
}
