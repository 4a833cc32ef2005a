//! One operation, by kind. Everything that can refuse it comes before the first change, so that a prediction
//! stops there.

use rustix::io::Errno;

use super::{FileId, Model, Node, NodeKind, flag};
use crate::workload::operation::{Operation, Place};

impl Model {
    /// Carries an operation out, or only predicts whether it can be.
    pub(super) fn perform(&mut self, operation: &Operation) -> Result<(), Errno> {
        use Operation as O;
        match operation {
            O::CreateFile { directory, name, permissions, .. } => {
                self.create(*directory, name, NodeKind::File, *permissions, |_| ())
            }
            O::CreateNode { directory, name, kind, device, permissions, .. } => {
                self.create(*directory, name, *kind, *permissions, |node| {
                    if matches!(kind, NodeKind::Character | NodeKind::Block) {
                        node.device = *device;
                    }
                })
            }
            O::CreateDirectory { directory, name, permissions, .. } => {
                self.create(*directory, name, NodeKind::Directory, *permissions, |_| ())
            }
            O::CreateSymbolicLink { directory, name, target, .. } => {
                self.create(*directory, name, NodeKind::SymbolicLink, 0o777, |node| {
                    node.target.clone_from(target)
                })
            }
            O::CreateTemporary { directory, permissions, slot, .. } => {
                self.create_temporary(*directory, *permissions, *slot)
            }
            O::Link { file, directory, name } => self.link(*file, *directory, name),
            O::Unlink { directory, name } => self.unlink(*directory, name),
            O::RemoveDirectory { directory, name } => self.remove_directory(*directory, name),
            O::Rename { from, from_name, to, to_name, mode, .. } => {
                self.rename((*from, from_name), (*to, to_name), *mode)
            }
            O::Open { file, slot } => self.open_file(*file, *slot),
            O::Close { slot } => self.close(*slot),
            O::Write { file, offset, length, pattern, direct: _ } => {
                self.write(*file, *offset, *length, *pattern)
            }
            O::Append { file, length, pattern } => self.append(*file, *length, *pattern),
            O::WriteOpen { slot, offset, length, pattern } => {
                self.write_open(*slot, *offset, *length, *pattern)
            }
            O::Truncate { file, size } => self.truncate(*file, *size),
            O::Allocate { file, mode, offset, length } => self.allocate(*file, *mode, *offset, *length),
            O::CopyRange { source, source_offset, target, target_offset, length } => {
                self.copy_range((*source, *source_offset), (*target, *target_offset), *length)
            }
            O::Seek { file } | O::Read { file, .. } => self.regular(*file).map(drop),
            O::SetAttribute { file, name, value, mode } => self.set_attribute(*file, name, value, *mode),
            O::RemoveAttribute { file, name } => self.remove_attribute(*file, name),
            O::SetPermissions { file, permissions } => self.set_permissions(*file, *permissions),
            O::SetOwner { file, user, group } => self.set_owner(*file, *user, *group),
            O::SetTimes { file, modified } => self.set_times(*file, *modified),
            O::SetFlags { file, .. } => self.set_flags(*file),
            O::SetCompression { file, value } => self.set_compression(*file, value),
            O::CreateSubvolume { directory, name, .. } => self.create_subvolume(*directory, name),
            O::Snapshot { source, directory, name, read_only, .. } => {
                self.snapshot(*source, *directory, name, *read_only)
            }
            O::DeleteSubvolume { directory, name } => self.delete_subvolume(*directory, name),
            O::SetDefault { subvolume } => self.set_default(*subvolume),
            O::SetReadOnly { subvolume, read_only } => self.set_read_only(*subvolume, *read_only),
            O::Fsync { file, .. } => match self.existing(*file)?.1.kind {
                NodeKind::File | NodeKind::Directory => Ok(()),
                _ => Err(Errno::INVAL),
            },
            O::FsyncOpen { slot, .. } => self.open.get(slot).map(drop).ok_or(Errno::BADF),
            O::Clean | O::Sync => Ok(()),
        }
    }

    /// A file that is there.
    pub(super) fn existing(&self, place: Place) -> Result<(FileId, &Node), Errno> {
        let file = self.file(place).ok_or(Errno::NOENT)?;
        let node = self.node(file).ok_or(Errno::NOENT)?;
        Ok((file, node))
    }

    /// Refuses changes of a subvolume that is read-only.
    pub(super) fn writable(&self, file: FileId) -> Result<(), Errno> {
        match self.subvolumes.get(&file.root) {
            Some(subvolume) if subvolume.read_only => Err(Errno::ROFS),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// A file that may be changed: not in a read-only subvolume, without these flags.
    pub(super) fn changeable(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        self.writable(file)?;
        if node.has(forbidden) {
            return Err(Errno::PERM);
        }
        Ok((file, node))
    }

    /// A regular file.
    pub(super) fn regular(&self, place: Place) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        match node.kind {
            NodeKind::File => Ok((file, node)),
            NodeKind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// A regular file whose data may be changed.
    pub(super) fn writable_file(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        self.regular(place)?;
        self.changeable(place, flag::IMMUTABLE | forbidden)
    }
}
