//! One command.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{DeviceNumber, FileType, GroupId, UserId};
use vlinder_fs::{
    AttributeMode, Caller, FileAlone, FsError, Inode, Refusal, RenameMode, SetAttributes, SetTime,
};

use super::content;
use super::directory_times::times_of;
use super::error::command_error;
use super::held_files::NEW_FILE_PERMISSIONS;
use super::receiver::Receiver;
use super::verity::VerityParameters;
use super::{ReceiveError, Warning};
use crate::resume::TOKEN_ATTRIBUTE;
use crate::wire::{Command, CommandKind, Node};

/// What is said of an owner that no file can have.
const TOO_LARGE: &str = "its owner has more than 32 bits";

/// What is said of a stream that names ranges without their bytes.
const WITHOUT_DATA: &str = "the stream was sent without data (--no-data), and nothing can be received from it; \
                            send it again without that";

impl Receiver<'_> {
    /// Applies a command to the subvolume that is being received.
    pub(super) fn apply(&mut self, command: &Command<'_>) -> Result<(), ReceiveError> {
        let kind = command.kind();
        let path = command.path().unwrap_or_default();
        if self.current.is_none() {
            return Err(ReceiveError::NoSubvolume { kind });
        }
        match *command {
            Command::MakeFile { .. }
            | Command::MakeDirectory { .. }
            | Command::MakeNode(_)
            | Command::MakeFifo(_)
            | Command::MakeSocket(_)
            | Command::Symlink { .. } => self.create(command, path),
            Command::Rename { to, .. } => self.rename(path, to),
            Command::Link { existing, .. } => {
                let inode = self.file(kind, existing)?;
                let (directory, name) = self.place(kind, path)?;
                let names = self.filesystem.names();
                let linked = names.link(&Caller::superuser(), &inode, &directory, name);
                linked.map_err(|error| command_error(kind, path, error))
            }
            Command::Unlink { .. } => {
                let (directory, name) = self.place(kind, path)?;
                let unlinked = self.filesystem.names().unlink(&Caller::superuser(), &directory, name);
                unlinked.map_err(|error| command_error(kind, path, error))
            }
            Command::RemoveDirectory { .. } => {
                let (directory, name) = self.place(kind, path)?;
                let removed =
                    self.filesystem.names().remove_directory(&Caller::superuser(), &directory, name);
                self.forget_paths();
                removed.map_err(|error| command_error(kind, path, error))
            }
            _ => {
                let inode = self.file(kind, path)?;
                self.change(command, kind, path, &inode)
            }
        }
    }

    fn create(&mut self, command: &Command<'_>, path: &[u8]) -> Result<(), ReceiveError> {
        let kind = command.kind();
        let (directory, name) = self.place(kind, path)?;
        let of = FileAlone::of;
        let of_node = |node: &Node<'_>, file_type| FileAlone {
            device_number: unpacked(node.device),
            ..of(file_type, (node.mode & 0o7777) as u32)
        };
        let file = match command {
            Command::MakeDirectory { .. } => of(FileType::Directory, 0o700),
            Command::Symlink { target, .. } => FileAlone { target, ..of(FileType::SymbolicLink, 0o777) },
            Command::MakeNode(node) => match node.mode & 0o170_000 {
                mode if mode == u64::from(FileType::BlockDevice.mode_bits()) => {
                    of_node(node, FileType::BlockDevice)
                }
                mode if mode == u64::from(FileType::CharacterDevice.mode_bits()) => {
                    of_node(node, FileType::CharacterDevice)
                }
                _ => {
                    return Err(ReceiveError::Unsupported { kind, what: "its mode is not that of a device" });
                }
            },
            Command::MakeFifo(node) => of_node(node, FileType::Fifo),
            Command::MakeSocket(node) => of_node(node, FileType::Socket),
            _ => of(FileType::Regular, NEW_FILE_PERMISSIONS),
        };
        let made = self.filesystem.names().create_alone(&directory, name, &file);
        made.map(drop).map_err(|error| command_error(kind, path, error))
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), ReceiveError> {
        let kind = CommandKind::Rename;
        let (from_directory, from_name) = self.place(kind, from)?;
        let (to_directory, to_name) = self.place(kind, to)?;
        let renamed = self.filesystem.names().rename(
            &Caller::superuser(),
            &from_directory,
            from_name,
            &to_directory,
            to_name,
            RenameMode::Replace,
        );
        self.forget_paths();
        renamed.map_err(|error| command_error(kind, from, error))
    }

    /// Commands about a file that is there.
    fn change(
        &mut self,
        command: &Command<'_>,
        kind: CommandKind,
        path: &[u8],
        inode: &Arc<Inode>,
    ) -> Result<(), ReceiveError> {
        let (filesystem, caller) = (self.filesystem, Caller::superuser());
        let attributes = filesystem.attributes();
        let set = |changes: SetAttributes| attributes.set(&caller, inode, &changes).map(drop);
        let done: Result<(), FsError> = match *command {
            Command::SetXattr { name: TOKEN_ATTRIBUTE, .. } if path.is_empty() => {
                self.outcome.warn(Warning::TokenAttribute);
                Ok(())
            }
            Command::RemoveXattr { name: TOKEN_ATTRIBUTE, .. } if path.is_empty() => Ok(()),
            Command::SetXattr { name, value, .. } => {
                attributes.set_extended_attribute(&caller, inode, name, value, AttributeMode::Either)
            }
            Command::RemoveXattr { name, .. } => {
                match attributes.remove_extended_attribute(&caller, inode, name) {
                    Err(FsError::Refused(Refusal::NoAttribute)) => Ok(()),
                    removed => removed,
                }
            }
            Command::SetMode { mode, .. } => {
                set(SetAttributes { permissions: Some((mode & 0o7777) as u32), ..SetAttributes::default() })
            }
            Command::SetOwner { uid, gid, .. } => {
                // Cut to 32 bits, another number could become root's.
                let narrow =
                    |id| u32::try_from(id).map_err(|_| ReceiveError::Unsupported { kind, what: TOO_LARGE });
                let (user, group) = (Some(UserId(narrow(uid)?)), Some(GroupId(narrow(gid)?)));
                // What the file keeps of set-id bits and capabilities, the stream says.
                let keeps =
                    SetAttributes { keeps_set_id: true, keeps_capability: true, ..SetAttributes::default() };
                set(SetAttributes { user, group, sets_stored_owner: true, ..keeps })
            }
            Command::SetTimes { times, .. } => {
                if let Some(current) = self.current.as_mut().filter(|_| inode.is_directory()) {
                    current.times.note_named(inode.id());
                }
                set(times_of(&times))
            }
            Command::Truncate { size, .. } => {
                // As after any write of a stream, the times are those that it says.
                let modification_time = Some(SetTime::At(inode.state().item.modification_time));
                let keeps = SetAttributes { keeps_capability: true, ..SetAttributes::default() };
                set(SetAttributes { size: Some(size), modification_time, ..keeps })
            }
            // Linux's receiver passes it by, and marks as received what has holes or old data there.
            Command::UpdateExtent { .. } => {
                return Err(ReceiveError::Unsupported { kind, what: WITHOUT_DATA });
            }
            // Linux's receiver passes it by.
            Command::SetFileAttributes { .. } => Ok(()),
            Command::EnableVerity { algorithm, block_size, salt, .. } => {
                let verity = VerityParameters::new(algorithm, block_size, salt);
                let unknown = ReceiveError::Unsupported { kind, what: "Linux has no such parameters" };
                let verity = verity.ok_or(unknown)?;
                verity.digest(filesystem, inode).map(|digest| {
                    let (path, algorithm) = (path.to_vec(), verity.algorithm());
                    self.outcome.warn(Warning::Verity { path, algorithm, digest });
                })
            }
            _ => return content::apply(self, command, kind, path, inode),
        };
        done.map_err(|error| command_error(kind, path, error))
    }

    pub(super) fn file(&mut self, kind: CommandKind, path: &[u8]) -> Result<Arc<Inode>, ReceiveError> {
        let filesystem = self.filesystem;
        let current = self.current.as_mut().ok_or(ReceiveError::NoSubvolume { kind })?;
        current.paths.file(filesystem, kind, path)
    }

    /// The directory in which a name comes or goes, and the name.
    pub(super) fn place<'p>(
        &mut self,
        kind: CommandKind,
        path: &'p [u8],
    ) -> Result<(Arc<Inode>, &'p [u8]), ReceiveError> {
        let filesystem = self.filesystem;
        let current = self.current.as_mut().ok_or(ReceiveError::NoSubvolume { kind })?;
        let (directory, name) = current.paths.place(filesystem, kind, path)?;
        current.times.note_change(filesystem, &directory)?;
        Ok((directory, name))
    }

    fn forget_paths(&mut self) {
        if let Some(current) = &mut self.current {
            current.paths.forget();
        }
    }
}

/// A device number that Linux's `new_encode_dev` packed.
fn unpacked(packed: u64) -> DeviceNumber {
    let (major, minor) = ((packed & 0xf_ff00) >> 8, packed & 0xff | packed >> 12 & 0xf_ff00);
    DeviceNumber::new(major as u32, minor as u32)
}
