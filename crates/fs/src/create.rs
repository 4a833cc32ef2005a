//! Making files of every type.

use vlinder_base::sync::Arc;
use vlinder_data::begin;
use vlinder_format::inode::{DeviceNumber, FileType, GroupId, UserId};
use vlinder_format::orphan;
use vlinder_transaction::{ChangeKind, Reservation};

use crate::changes::Changes;
use crate::directory::check_new_name;
use crate::inode::Inode;
use crate::name_view::Names;
use crate::new_file::{Inheritance, NewFile, TimesAlone, note_names_changed, prepare, remember};
use crate::open::OpenInode;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, Capabilities, Refusal, Result};

/// Items that making a file may touch: its inode, reference, extent and three attributes, the two entries of
/// its name, and the directory's inode.
const ITEMS: u32 = 10;

/// An empty regular file to be made beside others by [`Names::create_files`].
#[derive(Clone, Copy, Debug)]
pub struct NewFileName<'a> {
    /// The caller that makes it, and owns it.
    pub caller: &'a Caller,
    /// Its name.
    pub name: &'a [u8],
    /// Permission bits, as [`Names::create_file`] takes them.
    pub permissions: u32,
    /// Its times; the present where none are said.
    pub times: TimesAlone,
}

/// A file to be made by [`Names::create_alone`], with what it has from the first.
#[derive(Clone, Copy, Debug)]
pub struct FileAlone<'a> {
    /// Its type.
    pub file_type: FileType,
    /// Permission bits, set-id and sticky ones among them; no umask cuts them.
    pub permissions: u32,
    /// For a device node, the device.
    pub device_number: DeviceNumber,
    /// For a symbolic link, its target.
    pub target: &'a [u8],
    /// The owner that is stored, also with `owners=me`; the superuser if none is said.
    pub owner: Option<(UserId, GroupId)>,
    /// Its times; the present where none are said.
    pub times: TimesAlone,
}

impl FileAlone<'_> {
    /// A file of a type with nothing but permissions.
    #[must_use]
    pub fn of(file_type: FileType, permissions: u32) -> Self {
        Self {
            file_type,
            permissions,
            device_number: DeviceNumber::default(),
            target: b"",
            owner: None,
            times: TimesAlone::default(),
        }
    }
}

/// What is to be made under which name.
#[derive(Clone, Copy)]
struct NewName<'a> {
    caller: &'a Caller,
    name: &'a [u8],
    new: NewFile<'a>,
}

impl Names<'_> {
    /// Makes an empty regular file.
    ///
    /// # Errors
    /// [`Refusal::Exists`], and those of permissions, names and space.
    pub fn create_file(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        permissions: u32,
    ) -> Result<Arc<Inode>> {
        self.make(caller, directory, name, NewFile::of(FileType::Regular, permissions))
    }

    /// Makes empty regular files in one directory, in their order, with one change of the tree; all or none.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file), of any of them. [`Refusal::NoSpace`] also where there is room
    /// for each of them alone, since together they need more for the worst case.
    pub fn create_files(&self, directory: &Arc<Inode>, files: &[NewFileName<'_>]) -> Result<Vec<Arc<Inode>>> {
        let named = files.iter().map(|file| NewName {
            caller: file.caller,
            name: file.name,
            new: NewFile { times: file.times, ..NewFile::of(FileType::Regular, file.permissions) },
        });
        let named: Vec<NewName<'_>> = named.collect();
        with_room(self.engine(), || self.make_all(directory, &named))
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file).
    pub fn create_directory(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        permissions: u32,
    ) -> Result<Arc<Inode>> {
        self.make(caller, directory, name, NewFile::of(FileType::Directory, permissions & 0o1777))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file); [`Refusal::NameTooLong`] for a target of a sector or more.
    pub fn create_symbolic_link(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        target: &[u8],
    ) -> Result<Arc<Inode>> {
        self.check_target(target)?;
        let new = NewFile { target, ..NewFile::of(FileType::SymbolicLink, 0o777) };
        self.make(caller, directory, name, new)
    }

    /// Makes a regular file, fifo, socket or device node (the last needs a capability).
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file); [`Refusal::InvalidArgument`] for a directory or a symbolic
    /// link.
    pub fn create_node(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        file_type: FileType,
        permissions: u32,
        device_number: DeviceNumber,
    ) -> Result<Arc<Inode>> {
        match file_type {
            FileType::Regular | FileType::Fifo | FileType::Socket => {
                self.make(caller, directory, name, NewFile::of(file_type, permissions))
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                let is_whiteout =
                    file_type == FileType::CharacterDevice && device_number == DeviceNumber::default();
                if !is_whiteout && !caller.has(Capabilities::MKNOD) {
                    return Err(Refusal::NotPermitted.into());
                }
                let new = NewFile { device_number, ..NewFile::of(file_type, permissions) };
                self.make(caller, directory, name, new)
            }
            FileType::Directory => Err(Refusal::NotPermitted.into()),
            FileType::SymbolicLink => Err(Refusal::InvalidArgument.into()),
        }
    }

    /// Makes a file of any type for the superuser, to which its directory passes on nothing but flags:
    /// neither group nor ACLs nor the property of compression. So a receiver makes files, which have what
    /// their stream says.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file), and as
    /// [`create_symbolic_link`](Self::create_symbolic_link).
    pub fn create_alone(
        &self,
        directory: &Arc<Inode>,
        name: &[u8],
        file: &FileAlone<'_>,
    ) -> Result<Arc<Inode>> {
        let new = self.new_alone(file)?;
        self.make(&Caller::superuser(), directory, name, new)
    }

    /// As [`create_alone`](Self::create_alone), for files in one directory, in their order, with one change
    /// of the tree; all or none.
    ///
    /// # Errors
    /// As there, of any of them. [`Refusal::NoSpace`] also where there is room for each of them alone, since
    /// together they need more for the worst case.
    pub fn create_all_alone(
        &self,
        directory: &Arc<Inode>,
        files: &[(&[u8], FileAlone<'_>)],
    ) -> Result<Vec<Arc<Inode>>> {
        let caller = Caller::superuser();
        let named = files.iter().map(|(name, file)| {
            let new = self.new_alone(file)?;
            Ok(NewName { caller: &caller, name, new })
        });
        let named = named.collect::<Result<Vec<_>>>()?;
        with_room(self.engine(), || self.make_all(directory, &named))
    }

    fn new_alone<'a>(&self, file: &FileAlone<'a>) -> Result<NewFile<'a>> {
        let FileAlone { file_type, permissions, device_number, target, owner, times } = *file;
        if file_type == FileType::SymbolicLink {
            self.check_target(target)?;
        }
        if owner.is_some_and(|(user, group)| !user.is_id() || !group.is_id()) {
            return Err(Refusal::InvalidArgument.into());
        }
        let inheritance = Inheritance::Flags { owner };
        Ok(NewFile { file_type, permissions, device_number, target, inheritance, times })
    }

    fn check_target(&self, target: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let sector = usize::try_from(self.engine().sector_size()).unwrap_or(usize::MAX);
        let node = usize::try_from(self.engine().volume().geometry().node_size).unwrap_or(usize::MAX);
        let fits_leaf = node - 101 - 25 - vlinder_format::file_extent::INLINE_HEADER_SIZE;
        if target.len() >= sector || target.len() > fits_leaf {
            return Err(Refusal::NameTooLong.into());
        }
        Ok(())
    }

    /// Makes an open regular file without a name (`O_TMPFILE`); [`link`](Self::link) can give it one.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file).
    pub fn create_temporary(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        permissions: u32,
    ) -> Result<OpenInode> {
        with_room(self.engine(), || self.make_temporary(caller, directory, permissions))
    }

    fn make_temporary(&self, caller: &Caller, directory: &Arc<Inode>, permissions: u32) -> Result<OpenInode> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        let _operation = directory.operation.write();
        self.rights().may_add_name(caller, directory)?;
        let mut handle = begin(self.store(), Reservation::items(ITEMS).of(ChangeKind::Names))?;
        let new = NewFile::of(FileType::Regular, permissions);
        let mut prepared = prepare(*self, caller, directory, new, Stamp::of(&handle))?;
        prepared.item.link_count = 0;
        let mut changes = Changes::new(self.engine(), directory.subvolume());
        changes.add_inode(&prepared, b"", handle.generation())?;
        changes.insert_pending(orphan::key(prepared.number), Vec::new());
        changes.apply(&mut handle)?;
        let inode = remember(self.inodes(), directory, prepared);
        let mut state = inode.state();
        state.orphan = true;
        state.linkable = true;
        state.opens += 1;
        drop(state);
        drop(handle);
        Ok(self.opener().adopt(inode))
    }

    fn make(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        new: NewFile<'_>,
    ) -> Result<Arc<Inode>> {
        let made = with_room(self.engine(), || self.make_all(directory, &[NewName { caller, name, new }]))?;
        Ok(made.into_iter().next().expect("as many were made as were asked for"))
    }

    fn make_all(&self, directory: &Arc<Inode>, files: &[NewName<'_>]) -> Result<Vec<Arc<Inode>>> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        files.iter().try_for_each(|file| check_new_name(file.name))?;
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let _operation = directory.operation.write();
        let mut changes = Changes::new(self.engine(), directory.subvolume());
        for NewName { caller, name, new } in files {
            self.rights().access(caller, directory, Access::EXECUTE)?;
            // That it exists is told before that it may not be made.
            changes.load_entries(directory, name)?;
            self.rights().may_make(caller, directory, new.file_type)?;
        }
        let items = u32::try_from(files.len()).unwrap_or(u32::MAX).saturating_mul(ITEMS);
        let mut handle = begin(self.store(), Reservation::items(items).of(ChangeKind::Names))?;
        let stamp = Stamp::of(&handle);
        let mut all = Vec::with_capacity(files.len());
        for NewName { caller, name, new } in files {
            let prepared = prepare(*self, caller, directory, *new, stamp)?;
            changes.add_new(directory, name, &prepared, new.target, stamp.generation)?;
            all.push(prepared);
        }
        changes.apply(&mut handle)?;
        let made = all.into_iter().map(|prepared| remember(self.inodes(), directory, prepared)).collect();
        let mut state = directory.state();
        let name_bytes = files.iter().map(|file| file.name.len()).sum();
        note_names_changed(&mut state, stamp, name_bytes, 0);
        directory.put(&mut handle, &mut state);
        Ok(made)
    }
}
