//! Commands about what a file holds.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Uuid};
use vlinder_fs::data::Allocate;
use vlinder_fs::{Caller, FsError, Inode, InodeId, WriteOrigin};

use super::ReceiveError;
use super::paths::SubvolumePaths;
use super::receiver::{Receiver, command_error};
use super::sources;
use crate::encoded::EncodedForm;
use crate::wire::{Command, CommandKind, EncodedWrite};

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
        Command::Write { offset, data, .. } => files.write_at(&caller, inode, offset, Cow::Borrowed(data)),
        Command::Clone {
            offset, length, source_uuid, source_transid, source_path, source_offset, ..
        } => {
            let source = clone_source(receiver, source_uuid, source_transid, source_path)?;
            files.clone_range(&caller, (&source, source_offset), (inode, offset), length)
        }
        Command::Fallocate { mode, offset, length, .. } => {
            let keep_size = mode & KEEP_SIZE != 0;
            let what = match mode & !KEEP_SIZE {
                0 => Allocate::Reserve { keep_size },
                PUNCH_HOLE => Allocate::PunchHole,
                ZERO_RANGE => Allocate::ZeroRange { keep_size },
                _ => return Err(ReceiveError::Unsupported { kind, what: "this mode is unknown" }),
            };
            files.allocate_file(&caller, inode, what, offset, length, WriteOrigin::Caller).map(drop)
        }
        Command::EncodedWrite(ref write) => {
            let bytes = decoded(kind, write)?;
            files.write_at(&caller, inode, write.offset, Cow::Owned(bytes))
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
    let is_own = receiver.current.as_ref().is_some_and(|current| current.uuid == uuid);
    if is_own {
        return receiver.file(kind, path);
    }
    let filesystem = receiver.filesystem;
    let root = sources::find(filesystem, uuid, transid)?;
    let root = filesystem.inode(InodeId::root_of(root))?;
    SubvolumePaths::new(root).file(filesystem, kind, path)
}

/// The bytes of the file that a compressed extent becomes.
fn decoded(kind: CommandKind, write: &EncodedWrite<'_>) -> Result<Vec<u8>, ReceiveError> {
    let form = EncodedForm::of(write).map_err(|what| ReceiveError::Unsupported { kind, what })?;
    Ok(form.decode(write.data)?)
}
