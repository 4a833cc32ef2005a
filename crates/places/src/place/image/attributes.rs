//! Giving attributes to a file of an image.

use vlinder_base::sync::Arc;
use vlinder_fs::{AttributeMode, Inode, Refusal, SetAttributes, SetTime};

use super::entered::EnteredDirectory;
use crate::failure::Failure;
use crate::place::attributes::Change;

/// Sets an extended attribute of a file that has a name in a directory.
pub(super) fn set_attribute(
    directory: &EnteredDirectory,
    inode: &Arc<Inode>,
    name: &[u8],
    attribute: &[u8],
    value: &[u8],
) -> Result<(), Failure> {
    let mode = AttributeMode::Either;
    directory
        .filesystem()
        .attributes()
        .set_extended_attribute(&directory.image.caller, inode, attribute, value, mode)
        .map_err(directory.fail(name))
}

/// Removes an extended attribute, if it is there.
pub(super) fn remove_attribute(
    directory: &EnteredDirectory,
    inode: &Arc<Inode>,
    name: &[u8],
    attribute: &[u8],
) -> Result<(), Failure> {
    let (filesystem, caller) = (directory.filesystem(), &directory.image.caller);
    // Asked first: the removal of what is not there would begin a transaction for each file.
    match filesystem.attributes().extended_attribute(caller, inode, attribute) {
        Ok(_) => filesystem
            .attributes()
            .remove_extended_attribute(caller, inode, attribute)
            .map_err(directory.fail(name)),
        Err(error) if matches!(error.refusal(), Some(Refusal::NoAttribute | Refusal::NotSupported)) => Ok(()),
        Err(error) => Err(directory.fail(name)(error)),
    }
}

/// Sets owner, permissions and times, in this order.
pub(super) fn change(
    directory: &EnteredDirectory,
    inode: &Arc<Inode>,
    name: &[u8],
    change: &Change,
) -> Result<(), Failure> {
    let (filesystem, caller) = (directory.filesystem(), &directory.image.caller);
    let apply = |changes: SetAttributes| {
        filesystem.attributes().set(caller, inode, &changes).map(drop).map_err(directory.fail(name))
    };
    if let Some(owner) = change.owner {
        // Alone: a change of owner takes set-id bits away, which the permissions then give back.
        apply(SetAttributes {
            user: Some(owner.user()),
            group: Some(owner.group()),
            ..SetAttributes::default()
        })?;
    }
    if change.permissions.is_some() || change.times.is_some() {
        apply(SetAttributes {
            permissions: change.permissions,
            access_time: change.times.map(|(access, _)| SetTime::At(access)),
            modification_time: change.times.map(|(_, modification)| SetTime::At(modification)),
            ..SetAttributes::default()
        })?;
    }
    Ok(())
}
