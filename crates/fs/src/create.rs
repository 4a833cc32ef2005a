//! Making files of every type.

use vlinder_base::sync::Arc;
use vlinder_format::directory::{DirectoryEntryType, DirectoryIndex};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{DeviceNumber, FileType, InodeFlags, InodeItem, Mode};
use vlinder_format::{FileOffset, Generation, ObjectId, orphan};
use vlinder_transaction::ChangeKind;

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::attribute_change::AttributeMode;
use crate::changes::Changes;
use crate::compression_property::COMPRESSION_NAME;
use crate::compression_property::CompressionProperty;
use crate::data::begin;
use crate::data::compression_property;
use crate::directory::check_new_name;
use crate::directory::index::take_index;
use crate::ids::InodeId;
use crate::inode::table::InodeTable;
use crate::inode::{Inode, new_item};
use crate::open::OpenInode;
use crate::permission::inherited_group;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, Capabilities, Filesystem, Refusal, Result};
use vlinder_transaction::Reservation;

/// Items that making a file may touch: its inode, reference, extent and three attributes, the two entries of
/// its name, and the directory's inode.
const ITEMS: u32 = 10;

/// What is to be made.
#[derive(Clone, Copy)]
pub(crate) struct NewFile<'a> {
    pub(crate) file_type: FileType,
    /// Permission bits as asked for; umask or default ACL cut them.
    pub(crate) permissions: u32,
    pub(crate) device_number: DeviceNumber,
    /// A symbolic link's target.
    pub(crate) target: &'a [u8],
}

impl NewFile<'_> {
    pub(crate) fn of(file_type: FileType, permissions: u32) -> Self {
        NewFile { file_type, permissions, device_number: DeviceNumber::default(), target: b"" }
    }
}

/// An empty regular file to be made beside others by [`Filesystem::create_files`].
#[derive(Clone, Copy, Debug)]
pub struct NewFileName<'a> {
    /// The caller that makes it, and owns it.
    pub caller: &'a Caller,
    /// Its name.
    pub name: &'a [u8],
    /// Permission bits, as [`Filesystem::create_file`] takes them.
    pub permissions: u32,
}

/// What is to be made under which name.
#[derive(Clone, Copy)]
struct NewName<'a> {
    caller: &'a Caller,
    name: &'a [u8],
    new: NewFile<'a>,
}

/// A file that is about to be: its item and attributes, and what memory will know of it.
pub(crate) struct Prepared {
    pub(crate) number: ObjectId,
    pub(crate) item: InodeItem,
    pub(crate) access_acl: Option<Acl>,
    pub(crate) default_acl: Option<Arc<Acl>>,
    pub(crate) compression: CompressionProperty,
}

impl Filesystem {
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
            new: NewFile::of(FileType::Regular, file.permissions),
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
        if target.is_empty() {
            return Err(Refusal::NotFound.into());
        }
        let sector = usize::try_from(self.sector_size()).unwrap_or(usize::MAX);
        let node = usize::try_from(self.engine().node_size()).unwrap_or(usize::MAX);
        if target.len() >= sector
            || target.len() > node - 101 - 25 - vlinder_format::file_extent::INLINE_HEADER_SIZE
        {
            return Err(Refusal::NameTooLong.into());
        }
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
        let mut prepared = self.prepare(caller, directory, new, Stamp::of(&handle))?;
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
            let prepared = self.prepare(caller, directory, *new, stamp)?;
            self.add_new(&mut changes, directory, name, &prepared, new.target, stamp.generation)?;
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

    /// A new file with its name.
    pub(crate) fn add_new(
        &self,
        changes: &mut Changes<'_>,
        directory: &Inode,
        name: &[u8],
        prepared: &Prepared,
        target: &[u8],
        generation: Generation,
    ) -> Result<()> {
        let index = take_index(self.engine(), directory)?;
        let entry_type = prepared.item.file_type().map(DirectoryEntryType::from).unwrap_or_default();
        let location = InodeItem::key(prepared.number);
        changes.add_entry(directory.number(), name, index, location, entry_type, generation)?;
        changes.add_first_reference(prepared.number, directory.number(), name, index);
        changes.add_inode(prepared, target, generation)
    }

    /// Chooses number, owner, mode, flags, ACLs and properties of a new file, as its directory passes them
    /// on.
    pub(crate) fn prepare(
        &self,
        caller: &Caller,
        directory: &Inode,
        new: NewFile<'_>,
        stamp: Stamp,
    ) -> Result<Prepared> {
        let parent = directory.state().item;
        let is_link = new.file_type == FileType::SymbolicLink;
        let (group, mut permissions) = inherited_group(caller, &parent, new.file_type, new.permissions);
        let default = if is_link { None } else { self.rights().default_acl(directory)? };
        let mut access_acl = None;
        if let Some(default) = &default {
            let mut acl = Acl::clone(default);
            permissions = permissions & !0o777 | acl.cut_to(permissions);
            access_acl = (!acl.mode().1).then_some(acl);
        } else if !is_link {
            permissions &= !caller.umask;
        }
        let flags = self.inherited_flags(parent.flags, new.file_type);
        let compression = self.inherited_compression(directory, new.file_type, flags)?;
        // An inherited property brings its flags, whatever became of the directory's own.
        let flags = if compression == CompressionProperty::None { flags } else { compression.flags(flags) };
        let size_bytes = u64::try_from(new.target.len()).unwrap_or(u64::MAX);
        let template = InodeItem {
            size_bytes,
            allocated_bytes: size_bytes,
            link_count: 1,
            user: caller.user,
            group,
            mode: Mode::new(new.file_type, permissions),
            device_number: new.device_number,
            flags,
            ..InodeItem::default()
        };
        Ok(Prepared {
            number: directory.subvolume().allocate_inode_number(self.engine())?,
            item: new_item(stamp.generation, template, stamp.time),
            access_acl,
            default_acl: default.filter(|_| new.file_type == FileType::Directory),
            compression,
        })
    }

    fn inherited_flags(&self, parent: InodeFlags, file_type: FileType) -> InodeFlags {
        let mut flags = InodeFlags::NONE;
        if parent.has(InodeFlags::NOCOMPRESS) {
            flags = flags.with(InodeFlags::NOCOMPRESS);
        } else if parent.has(InodeFlags::COMPRESS) {
            flags = flags.with(InodeFlags::COMPRESS);
        }
        let regular = file_type == FileType::Regular;
        if parent.has(InodeFlags::NODATACOW) {
            flags = flags.with(InodeFlags::NODATACOW);
            if regular {
                flags = flags.with(InodeFlags::NODATASUM);
            }
        }
        if regular {
            if self.options().no_data_sum {
                flags = flags.with(InodeFlags::NODATASUM);
            }
            if self.options().no_data_cow {
                flags = flags | InodeFlags::NODATACOW | InodeFlags::NODATASUM;
            }
        }
        flags
    }

    pub(crate) fn inherited_compression(
        &self,
        directory: &Inode,
        file_type: FileType,
        flags: InodeFlags,
    ) -> Result<CompressionProperty> {
        let takes = matches!(file_type, FileType::Regular | FileType::Directory)
            && !flags.has_any(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
        let parent = compression_property(self.store(), directory.node())?;
        Ok(match parent {
            CompressionProperty::Algorithm(_) if takes => parent,
            _ => CompressionProperty::None,
        })
    }
}

impl Changes<'_> {
    /// The items of a new inode, without its names.
    pub(crate) fn add_inode(
        &mut self,
        prepared: &Prepared,
        target: &[u8],
        generation: Generation,
    ) -> Result<()> {
        let number = prepared.number;
        let mut item = prepared.item;
        if let CompressionProperty::Algorithm(algorithm) = prepared.compression {
            let name = algorithm.name().as_bytes();
            self.set_attribute(number, COMPRESSION_NAME, Some(name), AttributeMode::Either, generation)?;
            item.flags = item.flags.without(InodeFlags::NOCOMPRESS).with(InodeFlags::COMPRESS);
        }
        if let Some(acl) = &prepared.access_acl {
            self.set_attribute(number, ACCESS_NAME, Some(&acl.encode()), AttributeMode::Either, generation)?;
        }
        if let Some(acl) = &prepared.default_acl {
            self.set_attribute(number, DEFAULT_NAME, Some(&acl.encode()), AttributeMode::Either, generation)?;
        }
        if !target.is_empty() {
            self.put(FileExtent::key(number, FileOffset(0)), FileExtent::inline(target, generation).encode());
        }
        self.insert_pending(InodeItem::key(number), item.encode().to_vec());
        Ok(())
    }
}

/// Puts a new file into memory.
pub(crate) fn remember(inodes: &InodeTable, directory: &Inode, prepared: Prepared) -> Arc<Inode> {
    let file_type = prepared.item.file_type().unwrap_or(FileType::Regular);
    let id = InodeId::new(directory.id().root, prepared.number);
    let inode = Inode::new(Arc::clone(directory.subvolume()), id, file_type, prepared.item);
    {
        let mut state = inode.state();
        state.next_index = Some(DirectoryIndex::FIRST);
        state.compression = Some(prepared.compression);
        state.acl.access = Some(prepared.access_acl.map(Arc::new));
        state.acl.default = Some(prepared.default_acl);
        state.no_capability = true;
    }
    inodes.insert_new(inode)
}

/// The directory's own inode after names were added and removed.
pub(crate) fn note_names_changed(
    state: &mut crate::InodeState,
    stamp: Stamp,
    added_bytes: usize,
    removed_bytes: usize,
) {
    let bytes = |length: usize| 2 * u64::try_from(length).unwrap_or(u64::MAX / 2);
    let size = state.item.size_bytes.saturating_add(bytes(added_bytes)).saturating_sub(bytes(removed_bytes));
    state.set_size(size);
    state.note_content_change(stamp.time);
}
