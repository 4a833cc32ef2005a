//! Further names of a file, and the targets of symbolic links.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, decompress};
use vlinder_data::{BytesError, DataFault, begin};
use vlinder_format::directory::DirectoryEntryType;
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent, FileExtentFault};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem};
use vlinder_format::{Damage, FileOffset, orphan};
use vlinder_transaction::{ChangeKind, Engine, Reservation};

use crate::changes::Changes;
use crate::directory::check_new_name;
use crate::directory::index::take_index;
use crate::inode::Inode;
use crate::name_view::Names;
use crate::new_file::note_names_changed;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, Refusal, Result};

/// The most names of a file (`BTRFS_LINK_MAX`).
const MAX_LINKS: u32 = 65535;
/// Items that a new name may touch.
const ITEMS: u32 = 6;

/// Gives a file one more name.
///
/// # Errors
/// [`Refusal::Exists`]; [`Refusal::CrossesSubvolumes`]; [`Refusal::TooManyLinks`];
/// [`Refusal::NotPermitted`] for a directory; and those of permissions.
pub(crate) fn link(
    names: Names<'_>,
    caller: &Caller,
    inode: &Arc<Inode>,
    directory: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    if !directory.is_directory() {
        return Err(Refusal::NotADirectory.into());
    }
    check_new_name(name)?;
    let _directory_operation = directory.operation.write();
    names.rights().access(caller, directory, Access::EXECUTE)?;
    if names.tree().find_target(directory, name)?.is_some() {
        return Err(Refusal::Exists.into());
    }
    names.rights().may_add_name(caller, directory)?;
    if inode.is_directory() {
        return Err(Refusal::NotPermitted.into());
    }
    if inode.id().root != directory.id().root {
        return Err(Refusal::CrossesSubvolumes.into());
    }
    let _operation = inode.operation.write();
    let (item, deleted, linkable) = {
        let state = inode.state();
        (state.item, state.deleted, state.linkable)
    };
    if item.flags.has_any(InodeFlags::APPEND | InodeFlags::IMMUTABLE) {
        return Err(Refusal::NotPermitted.into());
    }
    // A file that lost its last name stays lost; one that never had any may get its first.
    if deleted || (item.link_count == 0 && !linkable) {
        return Err(Refusal::NotFound.into());
    }
    if item.link_count >= MAX_LINKS {
        return Err(Refusal::TooManyLinks.into());
    }
    let mut handle = with_room(names.engine(), || {
        let mut handle = begin(names.store(), Reservation::items(ITEMS).of(ChangeKind::Names))?;
        let mut changes = Changes::new(names.engine(), directory.subvolume());
        let index = take_index(names.engine(), directory)?;
        let location = InodeItem::key(inode.number());
        let entry_type = DirectoryEntryType::from(inode.file_type());
        changes.touch_inode(inode.number());
        changes.add_reference(inode.number(), directory.number(), name, index)?;
        changes.add_entry(directory.number(), name, index, location, entry_type, handle.generation())?;
        if item.link_count == 0 {
            changes.remove_pending(orphan::key(inode.number()));
        }
        changes.apply(&mut handle)?;
        Ok(handle)
    })?;
    {
        let mut state = inode.state();
        state.item.link_count += 1;
        (state.orphan, state.linkable) = (false, false);
        state.note_change(Stamp::of(&handle).time);
        inode.put(&mut handle, &mut state);
    }
    let mut state = directory.state();
    note_names_changed(&mut state, Stamp::of(&handle), name.len(), 0);
    directory.put(&mut handle, &mut state);
    Ok(())
}

/// The target of a symbolic link: as many bytes as the link's size says, up to the first NUL. (Some
/// btrfs-convert put a NUL behind them; no link has one inside that Linux made, and Linux reads up to
/// it.)
///
/// # Errors
/// [`Refusal::InvalidArgument`] for any other file; what reading met, fewer bytes and an extent on disk among
/// it.
pub(crate) fn read_link(engine: &Engine, inode: &Inode) -> Result<Vec<u8>> {
    if inode.file_type() != FileType::SymbolicLink {
        return Err(Refusal::InvalidArgument.into());
    }
    let key = FileExtent::key(inode.number(), FileOffset(0));
    let tree = inode.subvolume().tree();
    let found = engine.forest().trees().get(tree.root(), &key)?.ok_or(Refusal::NotFound)?;
    let extent =
        FileExtent::decode(found.data()).map_err(|fault| Damage::new(fault, found.place(tree.id())))?;
    match extent.content {
        FileExtentContent::Inline(stored) => {
            let mut target = plain_target(engine, inode, &extent, stored)?.into_owned();
            let size = inode.size();
            let short = FileExtentFault::InlineSize { found: target.len() as u64, expected: size };
            match usize::try_from(size) {
                Ok(size) if size <= target.len() => target.truncate(size),
                _ => return Err(Damage::new(short, found.place(tree.id())).into()),
            }
            let end = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
            target.truncate(end);
            Ok(target)
        }
        FileExtentContent::Regular(_) | FileExtentContent::Preallocated(_) => {
            Err(Damage::new(FileExtentFault::LinkNotInline, found.place(tree.id())).into())
        }
    }
}

/// The bytes of an inline extent as they were before they were compressed. Linux compresses no target,
/// and reads those that are.
fn plain_target<'a>(
    engine: &Engine,
    inode: &Inode,
    extent: &FileExtent<'_>,
    stored: &'a [u8],
) -> Result<Cow<'a, [u8]>> {
    if extent.compression == CompressionId::NONE {
        return Ok(Cow::Borrowed(stored));
    }
    let fail = |fault| Box::new(BytesError { inode: inode.id(), offset: 0, fault });
    let method = extent.compression.0;
    let compression =
        Compression::from_disk(method).ok_or_else(|| fail(DataFault::UnknownCompression { method }))?;
    let sector_bytes = engine.sector_size() as usize;
    let length = usize::try_from(extent.ram_bytes).unwrap_or(usize::MAX).min(sector_bytes);
    let mut target = vec![0; length];
    let decoded = decompress(compression, stored, &mut target, sector_bytes);
    decoded.map_err(|error| fail(error.into()))?;
    Ok(Cow::Owned(target))
}
