//! One inode number in both states, while the items of it that differ come.

use vlinder_data::{ContentSource, Extent};
use vlinder_extent_state::ByteRange;
use vlinder_forest::{Difference, ForestError};
use vlinder_format::inode::{DeviceNumber, FileType, InodeFlags};
use vlinder_format::{Damage, Key, ObjectId, Place, RootId};

use super::DiffError;
use super::attributes::{in_all, in_item};
use super::change::{AttributeChange, Change, ChangeKind, Differences, OldNew, Subject};
use super::content::{FileSide, PendingRange, compare_range};
use super::parts::Parts;
use super::state::{FileIdentity, FoundInode, NamePlace, State, States};

/// What chattr(1) shows. Of the others, one follows from preallocation, and one says what was the case when
/// the file was made.
const SHOWN_FLAGS: u64 = InodeFlags::SYNC.0
    | InodeFlags::IMMUTABLE.0
    | InodeFlags::APPEND.0
    | InodeFlags::NODUMP.0
    | InodeFlags::NOATIME.0
    | InodeFlags::DIRSYNC.0
    | InodeFlags::NODATACOW.0
    | InodeFlags::COMPRESS.0
    | InodeFlags::NOCOMPRESS.0
    | InodeFlags::VERITY.0;

/// The items of one number that differ, as far as they have come.
pub(super) struct InodeTurn {
    number: ObjectId,
    old: Option<FoundInode>,
    new: Option<FoundInode>,
    attributes: Vec<AttributeChange>,
    pending: PendingRange,
    /// Bytes of the sectors that differ, of the ranges that were compared.
    changed_bytes: u64,
    /// The item with the target of a symbolic link differs. Two subvolumes of which neither is a snapshot of
    /// the other can have different links of one number, made by one transaction.
    has_target_item: bool,
}

impl InodeTurn {
    pub fn begin(states: &States<'_>, number: ObjectId) -> Result<Self, DiffError> {
        Ok(Self {
            number,
            old: states.old.find(number)?,
            new: states.new.find(number)?,
            attributes: Vec::new(),
            pending: PendingRange::default(),
            changed_bytes: 0,
            has_target_item: false,
        })
    }

    pub fn number(&self) -> ObjectId {
        self.number
    }

    /// The directories that have the number.
    pub fn directories(&self) -> OldNew<Option<FileIdentity>> {
        let directory = |found: Option<FoundInode>| {
            let identity = found.map(|found| found.identity);
            identity.filter(|identity| identity.file_type == FileType::Directory)
        };
        OldNew { old: directory(self.old), new: directory(self.new) }
    }

    /// The inode, if both states have the same.
    fn same(&self) -> Option<(FoundInode, FoundInode)> {
        self.old.zip(self.new).filter(|(old, new)| old.identity == new.identity)
    }

    /// Takes an item of attributes that is not the same in both trees.
    pub fn note_attributes(
        &mut self,
        states: &States<'_>,
        key: Key,
        difference: Difference<'_>,
    ) -> Result<(), DiffError> {
        if self.same().is_some() {
            self.attributes.extend(in_item(states.ids(), key, difference)?);
        }
        Ok(())
    }

    /// Takes an item of an extent that is not the same in both trees.
    pub fn note_extent(
        &mut self,
        (states, source): (&States<'_>, &ContentSource<'_>),
        key: Key,
        difference: Difference<'_>,
    ) -> Result<(), DiffError> {
        let Some((old, new)) = self.same() else { return Ok(()) };
        match old.identity.file_type {
            FileType::Regular => {}
            FileType::SymbolicLink => {
                self.has_target_item = true;
                return Ok(());
            }
            _ => return Ok(()),
        }
        let (is, becomes) = match difference {
            Difference::Removed(is) => (Some(is), None),
            Difference::Added(becomes) => (None, Some(becomes)),
            Difference::Changed { old, new } => (Some(old), Some(new)),
        };
        let sector_bytes = u64::from(source.sector_bytes);
        let ids = states.ids();
        let range = |tree: RootId, data: Option<&[u8]>| -> Result<Option<ByteRange>, DiffError> {
            let Some(data) = data else { return Ok(None) };
            let place = Place { tree: Some(tree), key: Some(key), ..Place::default() };
            let extent = Extent::decode(key.offset, data);
            let extent = extent.map_err(|fault| ForestError::from(Damage::new(fault, place)))?;
            Ok(Some(extent.file_range(sector_bytes)))
        };
        let ranges = [range(ids.old, is)?, range(ids.new, becomes)?];
        let longest = ranges.into_iter().flatten().max_by_key(|range| range.end()).unwrap_or_default();
        if let Some(range) = self.pending.note(longest) {
            self.changed_bytes += changed_bytes((states, source), (&old, &new), range)?;
        }
        Ok(())
    }

    /// What is told of the number, now that all its items have come.
    pub fn end(
        mut self,
        states: &mut States<'_>,
        source: &ContentSource<'_>,
    ) -> Result<Vec<Change>, DiffError> {
        if let Some((old, new)) = self.same() {
            if let Some(range) = self.pending.take() {
                self.changed_bytes += changed_bytes((states, source), (&old, &new), range)?;
            }
            return Ok(self.changed(states, &old, &new)?.into_iter().collect());
        }
        let mut changes = Vec::new();
        if let Some(old) = self.old
            && let Some(change) = removed(states, &old)?
        {
            changes.push(change);
        }
        if let Some(new) = self.new {
            changes.push(added(states, source, &new)?);
        }
        Ok(changes)
    }

    /// What differs of an inode that both states have; none if nothing does.
    fn changed(
        self,
        states: &mut States<'_>,
        old: &FoundInode,
        new: &FoundInode,
    ) -> Result<Option<Change>, DiffError> {
        let number = self.number;
        let (before, after) = (states.old.names(number)?, states.new.names(number)?);
        let lost: Vec<NamePlace> =
            before.iter().filter(|place| after.binary_search(place).is_err()).cloned().collect();
        let gained: Vec<NamePlace> =
            after.iter().filter(|place| before.binary_search(place).is_err()).cloned().collect();
        let mut differences = differences_of_items(old, new);
        if self.has_target_item {
            differences.target = OldNew::if_different(target(&states.old, old)?, target(&states.new, new)?);
        }
        differences.attributes = self.attributes;
        differences.attributes.sort();
        differences.changed_bytes = self.changed_bytes;
        let are_names_equal = lost.is_empty() && gained.is_empty();
        // A change of names moves the time of change.
        differences.times &= are_names_equal && !differences.beyond_times();
        if are_names_equal && differences == Differences::default() {
            return Ok(None);
        }
        let mut removed_names = states.old.paths(number, &lost)?;
        let mut added_names = states.new.paths(number, &gained)?;
        let kept = after.iter().find(|place| gained.binary_search(place).is_err());
        let (kind, path, old_path) = match (removed_names.is_empty(), added_names.is_empty(), kept) {
            (false, false, _) => (ChangeKind::Renamed, added_names.remove(0), Some(removed_names.remove(0))),
            (_, _, Some(kept)) => (ChangeKind::Changed, states.new.path(number, kept)?, None),
            // Only the root directory has no name.
            (_, _, None) => (ChangeKind::Changed, b".".to_vec(), None),
        };
        Ok(Some(Change {
            kind,
            subject: subject(new),
            path,
            old_path,
            added_names,
            removed_names,
            differences,
            size_bytes: OldNew { old: file_bytes(old), new: file_bytes(new) },
        }))
    }
}

/// What is told of an inode that the old state alone has; none if another inode has its name.
fn removed(states: &mut States<'_>, old: &FoundInode) -> Result<Option<Change>, DiffError> {
    let number = old.identity.number;
    let names = states.old.names(number)?;
    if let [name] = &names[..]
        && successor((&mut states.old, &mut states.new), name)?.is_some()
    {
        return Ok(None);
    }
    let paths = states.old.paths(number, &names)?;
    let size_bytes = OldNew { old: file_bytes(old), new: 0 };
    Ok(Some(gone_or_come(ChangeKind::Removed, old, paths, size_bytes)))
}

/// What is told of an inode that the new state alone has.
fn added(states: &mut States<'_>, source: &ContentSource<'_>, new: &FoundInode) -> Result<Change, DiffError> {
    let number = new.identity.number;
    let names = states.new.names(number)?;
    if let [name] = &names[..]
        && let Some(old) = successor((&mut states.new, &mut states.old), name)?
    {
        let mut differences = differences_of_items(&old, new);
        let attributes =
            (states.old.tree.attributes(old.identity.number)?, states.new.tree.attributes(number)?);
        differences.attributes = in_all(states.ids(), &attributes.0, &attributes.1)?;
        differences.file_type = OldNew::if_different(old.identity.file_type, new.identity.file_type);
        match (old.identity.file_type, new.identity.file_type) {
            (FileType::Regular, FileType::Regular) => {
                let all = ByteRange::new(0, u64::MAX).unwrap_or_default();
                differences.changed_bytes = changed_bytes((states, source), (&old, new), all)?;
            }
            (FileType::SymbolicLink, FileType::SymbolicLink) => {
                differences.target =
                    OldNew::if_different(target(&states.old, &old)?, target(&states.new, new)?);
            }
            _ => {}
        }
        differences.times &= !differences.beyond_times();
        return Ok(Change {
            kind: ChangeKind::Replaced,
            subject: subject(new),
            path: states.new.path(number, name)?,
            old_path: None,
            added_names: Vec::new(),
            removed_names: Vec::new(),
            differences,
            size_bytes: OldNew { old: file_bytes(&old), new: file_bytes(new) },
        });
    }
    let paths = states.new.paths(number, &names)?;
    let size_bytes = OldNew { old: 0, new: file_bytes(new) };
    Ok(gone_or_come(ChangeKind::Added, new, paths, size_bytes))
}

/// What has the only name of an inode in the other state, if that state does not have the inode: an inode
/// that this state does not have, and that has no other name.
fn successor(
    (here, there): (&mut State<'_>, &mut State<'_>),
    name: &NamePlace,
) -> Result<Option<FoundInode>, DiffError> {
    let directory = name.directory.number;
    if there.directory(directory)? != Some(name.directory) {
        return Ok(None);
    }
    let Some(other) = there.entry(directory, &name.name)? else { return Ok(None) };
    let number = other.identity.number;
    let is_here = here.find(number)?.is_some_and(|found| found.identity == other.identity);
    Ok(if is_here || there.names(number)?.len() != 1 { None } else { Some(other) })
}

fn gone_or_come(
    kind: ChangeKind,
    found: &FoundInode,
    mut paths: Vec<Vec<u8>>,
    size_bytes: OldNew<u64>,
) -> Change {
    let path = if paths.is_empty() { b".".to_vec() } else { paths.remove(0) };
    let (added_names, removed_names) =
        if kind == ChangeKind::Added { (paths, Vec::new()) } else { (Vec::new(), paths) };
    Change {
        kind,
        subject: subject(found),
        path,
        old_path: None,
        added_names,
        removed_names,
        differences: Differences::default(),
        size_bytes,
    }
}

fn subject(found: &FoundInode) -> Subject {
    Subject::Inode { number: found.identity.number, file_type: found.identity.file_type }
}

/// Bytes of a regular file.
fn file_bytes(found: &FoundInode) -> u64 {
    if found.identity.file_type == FileType::Regular { found.item.size_bytes } else { 0 }
}

fn target(state: &State<'_>, found: &FoundInode) -> Result<Vec<u8>, DiffError> {
    let inode = found.identity.number;
    let target = state.tree.symlink_target(inode, &found.item)?;
    target.ok_or(DiffError::MissingTarget { subvolume: state.id(), inode })
}

/// The device of a node; 0 of all others.
fn device(found: &FoundInode) -> DeviceNumber {
    match found.identity.file_type {
        FileType::CharacterDevice | FileType::BlockDevice => found.item.device_number,
        _ => DeviceNumber::default(),
    }
}

/// What differs by the inode items alone.
fn differences_of_items(old: &FoundInode, new: &FoundInode) -> Differences {
    let (is, becomes) = (&old.item, &new.item);
    let times = |found: &FoundInode| {
        let item = &found.item;
        (item.access_time, item.modification_time, item.change_time)
    };
    let is_one_type = old.identity.file_type == new.identity.file_type;
    let shown = |flags: InodeFlags| InodeFlags(flags.0 & SHOWN_FLAGS);
    Differences {
        size_bytes: OldNew::if_different(file_bytes(old), file_bytes(new)),
        permissions: OldNew::if_different(is.mode.permissions(), becomes.mode.permissions()),
        device: OldNew::if_different(device(old), device(new)).filter(|_| is_one_type),
        owner: OldNew::if_different((is.user, is.group), (becomes.user, becomes.group)),
        flags: OldNew::if_different(shown(is.flags), shown(becomes.flags)),
        times: times(old) != times(new),
        ..Differences::default()
    }
}

/// Bytes of the sectors that differ in a range of two files, as far as both reach.
fn changed_bytes(
    (states, source): (&States<'_>, &ContentSource<'_>),
    (old, new): (&FoundInode, &FoundInode),
    range: ByteRange,
) -> Result<u64, DiffError> {
    let common = old.item.size_bytes.min(new.item.size_bytes);
    let range = ByteRange::new(range.start(), range.end().min(common)).filter(|range| !range.is_empty());
    let Some(range) = range else { return Ok(0) };
    let (is, becomes) = (old.identity.number, new.identity.number);
    let files = [(states.old.id(), is), (states.new.id(), becomes)];
    let mut parts = Parts::new(source, files, common);
    let old = FileSide::new(&states.old.tree, is, &old.item);
    let new = FileSide::new(&states.new.tree, becomes, &new.item);
    compare_range(source, (&old, &new), range, &mut parts)?;
    parts.finish()
}
