//! A file that is about to be made: what its directory passes on to it, its items, and its place in memory.

use vlinder_base::sync::Arc;
use vlinder_data::{COMPRESSION_NAME, CompressionProperty, FileStore, InodeId, compression_property};
use vlinder_format::directory::{DirectoryEntryType, DirectoryIndex};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{
    DeviceNumber, FileType, GroupId, InodeFlags, InodeItem, Mode, Timestamp, UserId,
};
use vlinder_format::{FileOffset, Generation, ObjectId};

use crate::acl::{ACCESS_NAME, Acl, DEFAULT_NAME};
use crate::attribute_change::AttributeMode;
use crate::changes::Changes;
use crate::directory::index::take_index;
use crate::inode::permission_cache::PermissionCache;
use crate::inode::table::InodeTable;
use crate::inode::{Inode, new_item};
use crate::name_view::Names;
use crate::options::OpenOptions;
use crate::permission::inherited_group;
use crate::stamp::Stamp;
use crate::{Caller, Result};

/// What is to be made.
#[derive(Clone, Copy)]
pub(crate) struct NewFile<'a> {
    pub(crate) file_type: FileType,
    /// Permission bits as asked for; umask or default ACL cut them.
    pub(crate) permissions: u32,
    pub(crate) device_number: DeviceNumber,
    /// A symbolic link's target.
    pub(crate) target: &'a [u8],
    /// What its directory passes on to it.
    pub(crate) inheritance: Inheritance,
    /// The times that it does not have from the present.
    pub(crate) times: TimesAlone,
}

/// The times that a new file has from the first, and no other change of that moment moves. The time of the
/// change of its inode is the present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimesAlone {
    /// Of the last access.
    pub access: Option<Timestamp>,
    /// Of the last change of content.
    pub modification: Option<Timestamp>,
    /// Of birth.
    pub birth: Option<Timestamp>,
}

/// What a directory passes on to a new file in it.
#[derive(Clone, Copy)]
pub(crate) enum Inheritance {
    /// What Linux has it pass on: group, ACLs, property of compression, flags.
    Whole,
    /// Flags, but for the one that comes with the property of compression. The owner is the one said here, if
    /// any is.
    Flags { owner: Option<(UserId, GroupId)> },
}

impl NewFile<'_> {
    pub(crate) fn of(file_type: FileType, permissions: u32) -> Self {
        NewFile {
            file_type,
            permissions,
            device_number: DeviceNumber::default(),
            target: b"",
            inheritance: Inheritance::Whole,
            times: TimesAlone::default(),
        }
    }
}

/// A file that is about to be: its item and attributes, and what memory will know of it.
pub(crate) struct Prepared {
    pub(crate) number: ObjectId,
    pub(crate) item: InodeItem,
    pub(crate) access_acl: Option<Acl>,
    pub(crate) default_acl: Option<Arc<Acl>>,
    pub(crate) compression: CompressionProperty,
}

/// Chooses number, owner, mode, flags, ACLs and properties of a new file, as its directory passes them
/// on.
pub(crate) fn prepare(
    names: Names<'_>,
    caller: &Caller,
    directory: &Inode,
    new: NewFile<'_>,
    stamp: Stamp,
) -> Result<Prepared> {
    let parent = directory.state().item;
    if let Inheritance::Flags { owner } = new.inheritance {
        let mut prepared = prepare_alone(names, caller, directory, new, stamp)?;
        let item = &mut prepared.item;
        (item.user, item.group) = owner.unwrap_or((item.user, item.group));
        return Ok(prepared);
    }
    let is_link = new.file_type == FileType::SymbolicLink;
    let (group, mut permissions) = inherited_group(caller, &parent, new.file_type, new.permissions);
    let default = if is_link { None } else { names.rights().default_acl(directory)? };
    let mut access_acl = None;
    if let Some(default) = &default {
        let mut acl = Acl::clone(default);
        permissions = permissions & !0o777 | acl.cut_to(permissions);
        access_acl = (!acl.mode().1).then_some(acl);
    } else if !is_link {
        permissions &= !caller.umask;
    }
    let flags = inherited_flags(parent.flags, new.file_type, names.new_file_flags());
    let compression = inherited_compression(names.store(), directory, new.file_type, flags)?;
    // An inherited property brings its flags, whatever became of the directory's own.
    let flags = if compression == CompressionProperty::None { flags } else { compression.flags(flags) };
    let item = item_of(new, caller, Mode::new(new.file_type, permissions), stamp);
    Ok(Prepared {
        number: directory.subvolume().allocate_inode_number(names.engine())?,
        item: InodeItem { group, flags, ..item },
        access_acl,
        default_acl: default.filter(|_| new.file_type == FileType::Directory),
        compression,
    })
}

/// As [`prepare`], for a file that gets nothing of its directory but flags.
fn prepare_alone(
    names: Names<'_>,
    caller: &Caller,
    directory: &Inode,
    new: NewFile<'_>,
    stamp: Stamp,
) -> Result<Prepared> {
    let mut parent = directory.flags();
    if compression_property(names.store(), directory.node())? != CompressionProperty::None {
        parent = parent.without(InodeFlags::COMPRESS).without(InodeFlags::NOCOMPRESS);
    }
    let flags = inherited_flags(parent, new.file_type, names.new_file_flags());
    let item = item_of(new, caller, Mode::new(new.file_type, new.permissions), stamp);
    Ok(Prepared {
        number: directory.subvolume().allocate_inode_number(names.engine())?,
        item: InodeItem { flags, ..item },
        access_acl: None,
        default_acl: None,
        compression: CompressionProperty::None,
    })
}

/// The item of a new file of the caller's own group.
fn item_of(new: NewFile<'_>, caller: &Caller, mode: Mode, stamp: Stamp) -> InodeItem {
    let size_bytes = u64::try_from(new.target.len()).unwrap_or(u64::MAX);
    let template = InodeItem {
        size_bytes,
        allocated_bytes: size_bytes,
        link_count: 1,
        user: caller.user,
        group: caller.group,
        mode,
        device_number: new.device_number,
        ..InodeItem::default()
    };
    let mut item = new_item(stamp.generation, template, stamp.time);
    item.access_time = new.times.access.unwrap_or(item.access_time);
    item.modification_time = new.times.modification.unwrap_or(item.modification_time);
    item.birth_time = new.times.birth.unwrap_or(item.birth_time);
    item
}

fn inherited_flags(parent: InodeFlags, file_type: FileType, by_options: InodeFlags) -> InodeFlags {
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
    if regular { flags | by_options } else { flags }
}

pub(crate) fn inherited_compression(
    store: &FileStore,
    directory: &Inode,
    file_type: FileType,
    flags: InodeFlags,
) -> Result<CompressionProperty> {
    let takes = matches!(file_type, FileType::Regular | FileType::Directory)
        && !flags.has_any(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let parent = compression_property(store, directory.node())?;
    Ok(match parent {
        CompressionProperty::Algorithm(_) if takes => parent,
        _ => CompressionProperty::None,
    })
}

/// The flags that the options give to new regular files.
pub(crate) fn flags_by_options(options: &OpenOptions) -> InodeFlags {
    let sum = if options.no_data_sum { InodeFlags::NODATASUM } else { InodeFlags::NONE };
    let cow = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    if options.no_data_cow { sum | cow } else { sum }
}

impl Changes<'_> {
    /// A new file with its name.
    pub(crate) fn add_new(
        &mut self,
        directory: &Inode,
        name: &[u8],
        prepared: &Prepared,
        target: &[u8],
        generation: Generation,
    ) -> Result<()> {
        let index = take_index(self.engine(), directory)?;
        let entry_type = prepared.item.file_type().map(DirectoryEntryType::from).unwrap_or_default();
        let location = InodeItem::key(prepared.number);
        self.add_entry(directory.number(), name, index, location, entry_type, generation)?;
        self.add_first_reference(prepared.number, directory.number(), name, index);
        self.add_inode(prepared, target, generation)
    }

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
        let access_acl = prepared.access_acl.map(Arc::new);
        *inode.permissions() = PermissionCache::of_new_inode(access_acl, prepared.default_acl);
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
