//! Commands about what a file holds.

use std::borrow::Cow;
use std::collections::hash_map::Entry;

use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_format::{Generation, Uuid};
use vlinder_fs::data::{Allocate, EncodedBytes};
use vlinder_fs::{Caller, FsError, Inode, InodeId, WriteOrigin};

use super::ReceiveError;
use super::error::command_error;
use super::paths::SubvolumePaths;
use super::receiver::Receiver;
use super::sources;
use crate::encoded::EncodedForm;
use crate::wire::{Command, CommandKind, EncodedWrite};

/// Subvolumes that are remembered to clone from; all of them are forgotten when there are more.
const MAX_CLONE_SOURCES: usize = 16;
/// Bits of fallocate(2): keep the size, punch a hole, write zeros.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

pub(super) fn apply(
    receiver: &mut Receiver<'_>,
    command: &Command<'_>,
    kind: CommandKind,
    path: &[u8],
    inode: &Arc<Inode>,
) -> Result<(), ReceiveError> {
    let (filesystem, caller) = (receiver.filesystem, Caller::superuser());
    let files = filesystem.files();
    let done: Result<(), FsError> = match *command {
        Command::Write { offset, data, .. } => {
            files.write_file(&caller, inode, offset, Cow::Borrowed(data), WriteOrigin::Stream).map(drop)
        }
        Command::Clone {
            offset, length, source_uuid, source_transid, source_path, source_offset, ..
        } => {
            let source = clone_source(receiver, source_uuid, source_transid, source_path)?;
            files.clone_range(&caller, (&source, source_offset), (inode, offset), length, WriteOrigin::Stream)
        }
        Command::Fallocate { mode, offset, length, .. } => {
            let keep_size = mode & KEEP_SIZE != 0;
            let what = match mode & !KEEP_SIZE {
                0 => Allocate::Reserve { keep_size },
                PUNCH_HOLE => Allocate::PunchHole,
                ZERO_RANGE => Allocate::ZeroRange { keep_size },
                _ => return Err(ReceiveError::Unsupported { kind, what: "this mode is unknown" }),
            };
            files.allocate_file(&caller, inode, what, offset, length, WriteOrigin::Stream).map(drop)
        }
        Command::EncodedWrite(ref write) => {
            let decoded = decoded(kind, write)?;
            let sector_bytes = filesystem.sector_size() as usize;
            match decoded.as_extent(write, sector_bytes) {
                Some(bytes) => files.write_encoded(&caller, inode, &bytes, WriteOrigin::Stream),
                None => {
                    let bytes = Cow::Borrowed(decoded.shown(write));
                    files.write_file(&caller, inode, write.offset, bytes, WriteOrigin::Stream)
                }
            }
            .map(drop)
        }
        _ => return Err(ReceiveError::Unsupported { kind, what: "this version can't apply it" }),
    };
    done.map_err(|error| command_error(kind, path, error))
}

fn clone_source(
    receiver: &mut Receiver<'_>,
    uuid: Uuid,
    transid: Generation,
    path: &[u8],
) -> Result<Arc<Inode>, ReceiveError> {
    let kind = CommandKind::Clone;
    let filesystem = receiver.filesystem;
    let current = receiver.current.as_mut().ok_or(ReceiveError::NoSubvolume { kind })?;
    if current.sent().0 == uuid {
        return current.paths.file(filesystem, kind, path);
    }
    if current.clone_sources.len() >= MAX_CLONE_SOURCES {
        current.clone_sources.clear();
    }
    let paths = match current.clone_sources.entry((uuid, transid)) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => {
            let root = sources::find(filesystem, uuid, transid)?;
            place.insert(SubvolumePaths::new(filesystem.inode(InodeId::root_of(root))?))
        }
    };
    paths.file(filesystem, kind, path)
}

/// A compressed extent, decompressed.
struct DecodedExtent {
    compression: Compression,
    /// What LZO was divided by.
    sector_bytes: usize,
    bytes: Vec<u8>,
    /// Its compressed form decompresses to all of them.
    is_whole: bool,
}

impl DecodedExtent {
    /// The bytes of the file that it becomes.
    fn shown(&self, write: &EncodedWrite<'_>) -> &[u8] {
        let (start, length) = (write.unencoded_offset as usize, write.file_length as usize);
        &self.bytes[start..start + length]
    }

    /// It as an extent of a file, if all of it is shown there but what fills up the last sector.
    fn as_extent<'a>(&'a self, write: &EncodedWrite<'a>, sector_bytes: usize) -> Option<EncodedBytes<'a>> {
        let plain = self.shown(write);
        let is_extent = self.is_whole
            && write.unencoded_offset == 0
            && plain.len().next_multiple_of(sector_bytes) == self.bytes.len()
            && self.bytes[plain.len()..].iter().all(|byte| *byte == 0)
            && (self.compression != Compression::Lzo || self.is_lzo_of(write.data, sector_bytes));
        let (offset, compression, encoded) = (write.offset, self.compression, write.data);
        is_extent.then_some(EncodedBytes { offset, plain, compression, encoded })
    }
}

impl DecodedExtent {
    /// Whether LZO is divided by these sectors, and has none to spare: Linux refuses it then.
    fn is_lzo_of(&self, encoded: &[u8], sector_bytes: usize) -> bool {
        let length = encoded.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        let sectors = |bytes: usize| bytes.div_ceil(sector_bytes);
        self.sector_bytes == sector_bytes && length.map(sectors) == Some(sectors(encoded.len()))
    }
}

/// Decompresses an extent. Where its stream ends early zeros follow, as Linux reads it.
fn decoded(kind: CommandKind, write: &EncodedWrite<'_>) -> Result<DecodedExtent, ReceiveError> {
    let form = EncodedForm::of(write).map_err(|what| ReceiveError::Unsupported { kind, what })?;
    let mut bytes = vec![0; form.unencoded_bytes as usize];
    let decompressed = form.decompress_to(write.data, &mut bytes)?;
    let is_whole = decompressed == bytes.len();
    Ok(DecodedExtent { compression: form.compression, sector_bytes: form.sector_bytes, bytes, is_whole })
}
