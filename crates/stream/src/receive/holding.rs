//! Holding new files back until all is known of them, and making them together.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_format::inode::{GroupId, UserId};
use vlinder_fs::{Caller, FsError, Inode, Refusal, WriteOrigin};

use super::ReceiveError;
use super::directory_times::times_of;
use super::held_files::{HeldFile, HeldFiles};
use super::receiver::Receiver;
use crate::wire::{Command, PlacedCommand, Times, decode_gathered};

/// Why files were not made together.
enum NotTogether {
    /// Nothing came of it: the commands are to be applied one by one.
    Undone,
    /// What came of it could not be undone.
    Spoiled(ReceiveError),
}

impl Receiver<'_> {
    /// Takes a command that makes a new file, or is about the one that came last; false if the command has to
    /// be applied, after what is held.
    pub(super) fn hold(&mut self, placed: &PlacedCommand<'_>) -> bool {
        if self.current.is_none() {
            return false;
        }
        let held = match placed.command {
            Command::MakeFile { path, .. } => match self.place(placed.command.kind(), path) {
                Ok((directory, name)) => {
                    self.held.add(directory, name, path);
                    true
                }
                // The error comes again when it is applied.
                Err(_) => false,
            },
            _ if self.held.is_empty() => false,
            Command::Rename { path, to } => self.hold_rename(&placed.command, path, to),
            Command::SetTimes { path, times } => self.hold_times(&placed.command, path, times),
            ref command => {
                self.held.last(command.path().unwrap_or_default()).is_some_and(|file| file.take(command))
            }
        };
        if held {
            self.held.keep(placed, matches!(placed.command, Command::Write { .. }));
        }
        held
    }

    fn hold_rename(&mut self, command: &Command<'_>, path: &[u8], to: &[u8]) -> bool {
        if self.held.last(path).is_none() {
            return false;
        }
        match self.place(command.kind(), to) {
            Ok((directory, name)) => self.held.rename_last(directory, name, to),
            Err(_) => false,
        }
    }

    fn hold_times(&mut self, command: &Command<'_>, path: &[u8], times: Times) -> bool {
        if let Some(file) = self.held.last(path) {
            file.set_times(&times);
            return true;
        }
        match self.file(command.kind(), path) {
            Ok(directory) if directory.is_directory() => {
                self.held.set_directory_times(directory, times);
                true
            }
            _ => false,
        }
    }

    /// Applies all that is held. Nothing is held afterwards, whatever came of it.
    ///
    /// # Errors
    /// That of the first command that could not be applied and ends receiving; those before it were.
    pub(super) fn flush_held(&mut self) -> Result<(), ReceiveError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        let flushed = match self.make_together(&held) {
            Ok(()) => {
                if let Some(current) = &mut self.current {
                    current.received.add_all(held.bytes_mut());
                }
                Ok(())
            }
            Err(NotTogether::Undone) => self.apply_one_by_one(&held),
            Err(NotTogether::Spoiled(error)) => {
                // No checkpoint can be made of this: the one before is what is left.
                if let Some(current) = &mut self.current {
                    current.lacks_commands = true;
                }
                self.note_failed(&held, 0);
                Err(error)
            }
        };
        held.clear();
        self.held = held;
        flushed
    }

    fn note_failed(&mut self, held: &HeldFiles, number: usize) {
        self.failed_start = held.commands().nth(number).map(|(command, _)| command.start);
        self.outcome.progress.commands -= (held.commands().len() - number) as u64;
    }

    fn apply_one_by_one(&mut self, held: &HeldFiles) -> Result<(), ReceiveError> {
        for (number, (_, bytes)) in held.commands().enumerate() {
            let command = decode_gathered(bytes, self.protocol)?;
            if let Err(error) = self.apply_with_room(&command)
                && let Err(error) = self.bear(error)
            {
                self.note_failed(held, number);
                return Err(error);
            }
            if let Some(current) = &mut self.current {
                current.received.add(bytes);
            }
        }
        Ok(())
    }

    fn make_together(&mut self, held: &HeldFiles) -> Result<(), NotTogether> {
        if !self.first_names_are_free(held) {
            return Err(NotTogether::Undone);
        }
        let mut made = Vec::with_capacity(held.files.len());
        self.make_files(held, &mut made).or_else(|_| self.unmake(held, made.len()))
    }

    /// Whether no file has a name that one of those held was made under and lost.
    fn first_names_are_free(&self, held: &HeldFiles) -> bool {
        held.files.iter().filter_map(|file| file.made.as_ref()).all(|(directory, name)| {
            let found = self.filesystem.names().lookup(&Caller::superuser(), directory, name);
            matches!(found, Err(FsError::Refused(Refusal::NotFound)))
        })
    }

    /// Makes and fills the files; `made` has those that are there, also after an error.
    fn make_files(&mut self, held: &HeldFiles, made: &mut Vec<Arc<Inode>>) -> Result<(), ReceiveError> {
        let (filesystem, caller) = (self.filesystem, Caller::superuser());
        let Some(current) = &mut self.current else { return Ok(()) };
        for files in held.files.chunk_by(|one, other| Arc::ptr_eq(&one.directory, &other.directory)) {
            let Some(HeldFile { directory, .. }) = files.first() else { continue };
            current.times.note_change(filesystem, directory)?;
            let named: Vec<_> = files.iter().map(|file| (file.name.as_slice(), file.file)).collect();
            made.extend(filesystem.names().create_all_alone(directory, &named)?);
        }
        for (command, bytes) in held.commands() {
            let Some(inode) = command.writes_to.and_then(|file| made.get(file)) else { continue };
            if let Command::Write { offset, data, .. } = decode_gathered(bytes, self.protocol)? {
                let data = Cow::Borrowed(data);
                filesystem.files().write_file(&caller, inode, offset, data, WriteOrigin::Stream)?;
            }
        }
        for (directory, times) in &held.directory_times {
            filesystem.attributes().set(&caller, directory, &times_of(times))?;
            current.times.note_named(directory.id());
        }
        Ok(())
    }

    /// Removes the files that were made.
    fn unmake(&self, held: &HeldFiles, made: usize) -> Result<(), NotTogether> {
        for file in held.files.iter().take(made).rev() {
            let unlinked = self.filesystem.names().unlink(&Caller::superuser(), &file.directory, &file.name);
            unlinked.map_err(|error| NotTogether::Spoiled(error.into()))?;
        }
        Err(NotTogether::Undone)
    }
}

impl HeldFile {
    /// Takes a command about the file; false if it has to be applied.
    fn take(&mut self, command: &Command<'_>) -> bool {
        match *command {
            Command::Write { offset, data, .. } => {
                if !data.is_empty() {
                    self.end = self.end.max(offset.saturating_add(data.len() as u64));
                }
                true
            }
            Command::SetMode { mode, .. } => {
                self.file.permissions = (mode & 0o7777) as u32;
                true
            }
            Command::SetOwner { uid, gid, .. } => match (u32::try_from(uid), u32::try_from(gid)) {
                (Ok(user), Ok(group)) if UserId(user).is_id() && GroupId(group).is_id() => {
                    self.file.owner = Some((UserId(user), GroupId(group)));
                    true
                }
                _ => false,
            },
            // It is passed by.
            Command::SetFileAttributes { .. } => true,
            Command::Truncate { size, .. } => size == self.end,
            _ => false,
        }
    }

    fn set_times(&mut self, times: &Times) {
        let set = &mut self.file.times;
        (set.access, set.modification) = (Some(times.access), Some(times.modification));
        set.birth = times.birth.or(set.birth);
    }
}
