//! What a command does to the files of a subvolume.

use vlinder_base::sync::Arc;
use vlinder_format::Uuid;
use vlinder_format::inode::FileType;

use super::content::{Content, EncodedExtent, MAX_FILE_BYTES, Run, RunSource, StreamPlace};
use super::error::CommandFault;
use super::inode::{FileBody, FileId, StreamInode};
use super::tree::{self, FileTree};
use crate::encoded::EncodedForm;
use crate::wire::{Command, PlacedCommand};

/// Bits of fallocate(2): keep the size, punch a hole, write zeros.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;
/// The attribute that a change of owner takes away, as it does at the receiver.
const CAPABILITIES: &[u8] = b"security.capability";

/// Where the source of a clone lies.
pub(super) enum CloneSource {
    /// In the subvolume that is being made.
    Own,
    /// In one that was given before.
    Given(FileTree),
    /// In one that was not given.
    Missing(Uuid),
}

/// Carries out a command about a file; `input` is the number of the input that it comes from, and `source`
/// where a clone is from.
pub(super) fn apply(
    tree: &mut FileTree,
    placed: &PlacedCommand<'_>,
    input: u32,
    source: CloneSource,
) -> Result<(), CommandFault> {
    let path = placed.command.path().unwrap_or_default();
    let special = |file_type, device| StreamInode::new(FileBody::Special(file_type, device));
    match placed.command {
        Command::MakeFile { .. } => tree.create(path, tree::regular()),
        Command::MakeDirectory { .. } => tree.create(path, tree::directory()),
        Command::MakeNode(node) => {
            // As the receiver takes them.
            let is_block = node.mode & 0o170_000 == u64::from(FileType::BlockDevice.mode_bits());
            let file_type = if is_block { FileType::BlockDevice } else { FileType::CharacterDevice };
            tree.create(path, special(file_type, node.device))
        }
        Command::MakeFifo(_) => tree.create(path, special(FileType::Fifo, 0)),
        Command::MakeSocket(_) => tree.create(path, special(FileType::Socket, 0)),
        Command::Symlink { target, .. } => tree.create(path, tree::symbolic_link(target)),
        Command::Rename { to, .. } => tree.rename(path, to),
        Command::Link { existing, .. } => tree.link(path, existing),
        Command::Unlink { .. } => tree.unlink(path),
        Command::RemoveDirectory { .. } => tree.remove_directory(path),
        _ => {
            let file = tree.file(path)?;
            change(tree, file, placed, input, source)
        }
    }
}

/// Commands about a file that is there.
fn change(
    tree: &mut FileTree,
    file: FileId,
    placed: &PlacedCommand<'_>,
    input: u32,
    source: CloneSource,
) -> Result<(), CommandFault> {
    let place = |part: &[u8]| {
        // No command is longer than 1 MiB.
        StreamPlace { input, offset: placed.place_of(part), bytes: part.len() as u32 }
    };
    match placed.command {
        Command::SetXattr { name, value, .. } => tree.table.get_mut(file).set_xattr(name, place(value)),
        Command::RemoveXattr { name, .. } => tree.table.get_mut(file).remove_xattr(name),
        Command::SetMode { mode, .. } => {
            tree.table.get_mut(file).permissions = Some((mode & 0o7777) as u16);
        }
        Command::SetOwner { uid, gid, .. } => {
            let narrow = |id| u32::try_from(id).map_err(|_| CommandFault::OwnerTooLarge);
            let owner = (narrow(uid)?, narrow(gid)?);
            let inode = tree.table.get_mut(file);
            inode.owner = Some(owner);
            inode.remove_xattr(CAPABILITIES);
        }
        Command::SetTimes { times, .. } => {
            tree.table.get_mut(file).times = Some((times.access, times.modification));
        }
        Command::Write { offset, data, .. } => {
            let from = RunSource::Plain { input, offset: placed.place_of(data) };
            write(tree.content(file)?, offset, Run { bytes: data.len() as u64, source: from })?;
        }
        Command::EncodedWrite(encoded) => {
            let form = EncodedForm::of(&encoded).map_err(CommandFault::Encoded)?;
            let extent = EncodedExtent { place: place(encoded.data), form };
            let run = Run { bytes: encoded.file_length, source: RunSource::Encoded(Arc::new(extent), 0) };
            write(tree.content(file)?, encoded.offset, run)?;
        }
        Command::UpdateExtent { offset, length, .. } => {
            write(tree.content(file)?, offset, Run { bytes: length, source: RunSource::NotSent })?;
        }
        Command::Truncate { size, .. } if size > MAX_FILE_BYTES => return Err(CommandFault::TooLong),
        Command::Truncate { size, .. } => tree.content(file)?.truncate(size),
        Command::Fallocate { mode, offset, length, .. } => {
            allocate(tree.content(file)?, mode, offset, length)?;
        }
        Command::Clone { offset, length, source_path, source_offset, .. } => {
            let range = ClonedRange { offset, length, source_path, source_offset };
            clone_range(tree, file, &range, source)?;
        }
        // What Linux's receiver passes by, and what says nothing about content.
        _ => {}
    }
    Ok(())
}

fn end_of(offset: u64, length: u64) -> Result<u64, CommandFault> {
    offset.checked_add(length).filter(|end| *end <= MAX_FILE_BYTES).ok_or(CommandFault::TooLong)
}

fn write(content: &mut Content, offset: u64, run: Run) -> Result<(), CommandFault> {
    end_of(offset, run.bytes)?;
    content.write(offset, run);
    Ok(())
}

fn allocate(content: &mut Content, mode: u32, offset: u64, length: u64) -> Result<(), CommandFault> {
    let end = end_of(offset, length)?;
    match mode & !KEEP_SIZE {
        0 => {}
        PUNCH_HOLE | ZERO_RANGE => content.punch(offset, length),
        _ => return Err(CommandFault::UnknownMode),
    }
    if mode & (KEEP_SIZE | PUNCH_HOLE) == 0 {
        content.extend(end);
    }
    Ok(())
}

struct ClonedRange<'a> {
    offset: u64,
    length: u64,
    source_path: &'a [u8],
    source_offset: u64,
}

fn clone_range(
    tree: &mut FileTree,
    file: FileId,
    range: &ClonedRange<'_>,
    source: CloneSource,
) -> Result<(), CommandFault> {
    let (end, source_end) = (end_of(range.offset, range.length)?, end_of(range.source_offset, range.length)?);
    // A copy of the source's content shares all of it.
    let content = match source {
        CloneSource::Own => {
            let from = tree.file(range.source_path).map_err(source_fault)?;
            if from == file && range.offset < source_end && range.source_offset < end {
                return Err(CommandFault::Overlaps);
            }
            tree.content(from)?.clone()
        }
        CloneSource::Given(mut other) => {
            let from = other.file(range.source_path).map_err(source_fault)?;
            other.content(from)?.clone()
        }
        CloneSource::Missing(uuid) => Content::of_missing(uuid),
    };
    if content.size().is_some_and(|size| source_end > size) {
        return Err(CommandFault::SourceTooShort);
    }
    tree.content(file)?.clone_range(range.offset, &content, range.source_offset, range.length);
    Ok(())
}

fn source_fault(fault: CommandFault) -> CommandFault {
    if fault == CommandFault::NotFound { CommandFault::NoSource } else { fault }
}
