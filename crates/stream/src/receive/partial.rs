//! Subvolumes that are not received whole.
//!
//! While `NAME` is received, its commands are applied to the writable subvolume `NAME.vlinder-partial`.
//! Checkpoints are read-only snapshots of that, `NAME.vlinder-checkpoint-0` and `-1` in turn. The root of
//! each has the attribute [`TOKEN_ATTRIBUTE`]: a token, a space, and the name. A checkpoint holds exactly
//! what its token says, because both are of one commit; the partial subvolume holds that at least. Reasons:
//! docs/design/receive.md.

use vlinder_base::sync::Arc;
use vlinder_format::RootId;
use vlinder_fs::{Caller, Filesystem, FsError, Inode, InodeId, Refusal};

use super::ReceiveError;
use super::partial_subvolume::{PartialPart, PartialSubvolume};
use crate::resume::{ResumeToken, TOKEN_ATTRIBUTE};

const PARTIAL_SUFFIX: &[u8] = b".vlinder-partial";
const CHECKPOINT_SUFFIXES: [&[u8]; 2] = [b".vlinder-checkpoint-0", b".vlinder-checkpoint-1"];
/// The longest name of a file.
const MAX_NAME_BYTES: usize = 255;

/// The partial subvolumes in a directory.
///
/// # Errors
/// What reading met.
pub fn partial_subvolumes(
    filesystem: &Filesystem,
    directory: &Inode,
) -> Result<Vec<PartialSubvolume>, ReceiveError> {
    let mut found: Vec<PartialSubvolume> = Vec::new();
    for subvolume in filesystem.subvolumes().all()? {
        if subvolume.is_deleted || subvolume.parent != Some(directory.id()) {
            continue;
        }
        let is_checkpoint = CHECKPOINT_SUFFIXES.iter().any(|suffix| subvolume.name.ends_with(suffix));
        if subvolume.is_read_only != is_checkpoint || !subvolume.received_uuid.is_nil() {
            continue;
        }
        let mark = mark_of(filesystem, subvolume.id)?;
        let stem = subvolume.name.strip_suffix(PARTIAL_SUFFIX);
        let (token, name) = match (mark, stem) {
            (Some((token, name)), _) => (Some(token), name),
            // A power cut came before its token.
            (None, Some(stem)) => (None, stem.to_vec()),
            (None, None) => continue,
        };
        // Snapshots that somebody made of these have the mark too, and are that person's.
        if !is_name_of(&subvolume.name, &name) {
            continue;
        }
        let part = PartialPart { id: subvolume.id, name: subvolume.name, is_checkpoint, token };
        match found.iter_mut().find(|partial| partial.name == name) {
            Some(partial) => partial.parts.push(part),
            None => found.push(PartialSubvolume { name, token: None, parts: vec![part] }),
        }
    }
    found.iter_mut().for_each(PartialSubvolume::judge);
    Ok(found)
}

/// Whether a receiver that makes `name` makes subvolumes of this name.
fn is_name_of(found: &[u8], name: &[u8]) -> bool {
    found == name
        || found == partial_name(name)
        || checkpoint_names(name).iter().any(|checkpoint| found == checkpoint)
}

/// The names that the parts of a partial subvolume can have.
#[must_use]
pub fn partial_subvolume_names(name: &[u8]) -> Vec<Vec<u8>> {
    let mut names = vec![name.to_vec(), partial_name(name)];
    names.extend(checkpoint_names(name));
    names
}

/// Removes a partial subvolume, with its checkpoints. Their space is free once the thread in the background,
/// or [`finish_deletions`](vlinder_fs::Maintenance::finish_deletions), has walked over them.
///
/// # Errors
/// [`ReceiveError::NoSuchPartial`]; what removing met.
pub fn discard(filesystem: &Filesystem, directory: &Arc<Inode>, name: &[u8]) -> Result<(), ReceiveError> {
    let all = partial_subvolumes(filesystem, directory)?;
    let partial = all.iter().find(|partial| partial.name == name);
    let partial = partial.ok_or_else(|| ReceiveError::NoSuchPartial { name: name.to_vec() })?;
    refuse_under_way(filesystem, partial)?;
    remove_parts(filesystem, directory, partial.parts.iter())
}

/// Refuses what another receiver works on.
///
/// # Errors
/// [`ReceiveError::UnderWay`]; what reading met.
pub(super) fn refuse_under_way(
    filesystem: &Filesystem,
    partial: &PartialSubvolume,
) -> Result<(), ReceiveError> {
    for part in &partial.parts {
        if filesystem.inode(InodeId::root_of(part.id))?.subvolume().is_being_received() {
            return Err(ReceiveError::UnderWay { name: partial.name.clone() });
        }
    }
    Ok(())
}

/// Removes subvolumes of a partial one.
pub(super) fn remove_parts<'p>(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    parts: impl Iterator<Item = &'p PartialPart>,
) -> Result<(), ReceiveError> {
    for part in parts {
        filesystem.subvolumes().delete(&Caller::superuser(), directory, &part.name)?;
    }
    Ok(())
}

/// Whether what has the name of a checkpoint is one that a receive of `name` made.
///
/// # Errors
/// What reading met.
pub(super) fn is_own_checkpoint(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    checkpoint: &[u8],
    name: &[u8],
) -> Result<bool, ReceiveError> {
    let id = match filesystem.names().lookup(&Caller::superuser(), directory, checkpoint) {
        Err(FsError::Refused(Refusal::NotFound)) => return Ok(false),
        found => found?.id(),
    };
    if id != InodeId::root_of(id.root) || id.root == directory.id().root {
        return Ok(false);
    }
    let information = filesystem.subvolumes().information(id.root)?;
    if !information.is_read_only || !information.received_uuid.is_nil() {
        return Ok(false);
    }
    Ok(mark_of(filesystem, id.root)?.is_some_and(|(_, marked)| marked == name))
}

/// The name of the subvolume in which `name` is received.
pub(super) fn partial_name(name: &[u8]) -> Vec<u8> {
    with_suffix(name, PARTIAL_SUFFIX)
}

/// The names of the checkpoints of `name`.
pub(super) fn checkpoint_names(name: &[u8]) -> [Vec<u8>; 2] {
    CHECKPOINT_SUFFIXES.map(|suffix| with_suffix(name, suffix))
}

/// A name with a suffix, cut where it would be too long.
fn with_suffix(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let kept = name.len().min(MAX_NAME_BYTES - suffix.len());
    [&name[..kept], suffix].concat()
}

/// What the attribute of a partial subvolume's root holds.
pub(super) fn encode_mark(token: &ResumeToken, name: &[u8]) -> Vec<u8> {
    [token.to_string().as_bytes(), b" ", name].concat()
}

/// The token of a subvolume, and the name that it will have, if its root has both.
fn mark_of(filesystem: &Filesystem, id: RootId) -> Result<Option<(ResumeToken, Vec<u8>)>, ReceiveError> {
    let root = filesystem.inode(InodeId::root_of(id))?;
    let attributes = filesystem.attributes();
    let mark = match attributes.extended_attribute(&Caller::superuser(), &root, TOKEN_ATTRIBUTE) {
        Err(FsError::Refused(Refusal::NoAttribute)) => return Ok(None),
        mark => mark?,
    };
    let Some(space) = mark.iter().position(|byte| *byte == b' ') else { return Ok(None) };
    let (token, name) = (std::str::from_utf8(&mark[..space]), mark[space + 1..].to_vec());
    Ok(token.ok().and_then(|token| token.parse().ok()).map(|token| (token, name)))
}
