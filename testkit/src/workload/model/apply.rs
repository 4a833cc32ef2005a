//! One operation, by kind. Everything that can refuse it comes before the first change, so that a prediction
//! stops there.

use rustix::io::Errno;

use super::attributes::AttributeOperations;
use super::data::DataOperations;
use super::names::NameOperations;
use super::node::Node;
use super::rename::RenameOperation;
use super::state::ModelState;
use super::subvolumes::SubvolumeOperations;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::Operation;

/// Refuses what fsync does not take.
fn check_syncable(node: &Node) -> Result<(), Errno> {
    match node.kind {
        NodeKind::File | NodeKind::Directory => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// Carries an operation out, or only predicts whether it can be.
pub(super) fn perform(state: &mut ModelState, operation: &Operation) -> Result<(), Errno> {
    use Operation as O;
    match operation {
        O::CreateFile { directory, name, permissions, .. } => {
            NameOperations::new(state).create(*directory, name, NodeKind::File, *permissions)
        }
        O::CreateNode { directory, name, kind, device, permissions, .. } => {
            NameOperations::new(state).create_special(*directory, name, (*kind, *device), *permissions)
        }
        O::CreateDirectory { directory, name, permissions, .. } => {
            NameOperations::new(state).create(*directory, name, NodeKind::Directory, *permissions)
        }
        O::CreateSymbolicLink { directory, name, target, .. } => {
            NameOperations::new(state).create_symbolic_link(*directory, name, target)
        }
        O::CreateTemporary { directory, permissions, slot, .. } => {
            NameOperations::new(state).create_temporary(*directory, *permissions, *slot)
        }
        O::Link { file, directory, name } => NameOperations::new(state).link(*file, *directory, name),
        O::Unlink { directory, name } => NameOperations::new(state).unlink(*directory, name),
        O::RemoveDirectory { directory, name } => {
            NameOperations::new(state).remove_directory(*directory, name)
        }
        O::Rename { from, from_name, to, to_name, mode, .. } => {
            RenameOperation::new(state).rename((*from, from_name), (*to, to_name), *mode)
        }
        O::Open { file, slot } => NameOperations::new(state).open_file(*file, *slot),
        O::Close { slot } => NameOperations::new(state).close(*slot),
        O::Write { file, offset, length, pattern, direct: _ } => {
            DataOperations::new(state).write(*file, *offset, *length, *pattern)
        }
        O::Append { file, length, pattern } => DataOperations::new(state).append(*file, *length, *pattern),
        O::WriteOpen { slot, offset, length, pattern } => {
            DataOperations::new(state).write_open(*slot, *offset, *length, *pattern)
        }
        O::Truncate { file, size } => DataOperations::new(state).truncate(*file, *size),
        O::Allocate { file, mode, offset, length } => {
            DataOperations::new(state).allocate(*file, *mode, *offset, *length)
        }
        O::CopyRange { source, source_offset, target, target_offset, length } => DataOperations::new(state)
            .copy_range((*source, *source_offset), (*target, *target_offset), *length),
        O::Seek { file } | O::Read { file, .. } => state.regular(*file).map(drop),
        O::SetAttribute { file, name, value, mode } => {
            AttributeOperations::new(state).set_attribute(*file, name, value, *mode)
        }
        O::RemoveAttribute { file, name } => AttributeOperations::new(state).remove_attribute(*file, name),
        O::SetPermissions { file, permissions } => {
            AttributeOperations::new(state).set_permissions(*file, *permissions)
        }
        O::SetOwner { file, user, group } => AttributeOperations::new(state).set_owner(*file, *user, *group),
        O::SetTimes { file, modified } => AttributeOperations::new(state).set_times(*file, *modified),
        O::SetFlags { file, .. } => AttributeOperations::new(state).set_flags(*file),
        O::SetCompression { file, value } => AttributeOperations::new(state).set_compression(*file, value),
        O::CreateSubvolume { directory, name, .. } => {
            SubvolumeOperations::new(state).create(*directory, name)
        }
        O::Snapshot { source, directory, name, read_only, .. } => {
            SubvolumeOperations::new(state).snapshot(*source, *directory, name, *read_only)
        }
        O::DeleteSubvolume { directory, name } => SubvolumeOperations::new(state).delete(*directory, name),
        O::SetDefault { subvolume } => SubvolumeOperations::new(state).set_default(*subvolume),
        O::SetReadOnly { subvolume, read_only } => {
            SubvolumeOperations::new(state).set_read_only(*subvolume, *read_only)
        }
        O::Fsync { file, .. } => state.existing(*file).and_then(|(_, node)| check_syncable(node)),
        O::FsyncOpen { slot, .. } => state.open_files().check_open(*slot).map(drop),
        O::Clean | O::Sync => Ok(()),
    }
}
