//! The difference of two subvolumes, found by walking both whole through the calls that read files. It shares
//! nothing with the comparison of trees but the type of what is told.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_base::sync::Arc;
use vlinder_fs::{Caller, FileType, Filesystem, Inode, InodeFlags, InodeId, ObjectId, RootId, Timestamp};
use vlinder_fs::{DeviceNumber, GroupId, UserId};
use vlinder_snapshots::diff::{
    AttributeChange, AttributeChangeKind, Change, ChangeKind, Differences, OldNew, Subject,
};
use vlinder_testkit::subject;

/// Number and generation of a file; the root directory has the generation 0.
type Identity = (u64, u64, FileType);
/// A directory and a name in it.
type Name = (Identity, Vec<u8>);

/// The flags that lsattr(1) shows.
const SHOWN: [InodeFlags; 10] = [
    InodeFlags::SYNC,
    InodeFlags::IMMUTABLE,
    InodeFlags::APPEND,
    InodeFlags::NODUMP,
    InodeFlags::NOATIME,
    InodeFlags::DIRSYNC,
    InodeFlags::NODATACOW,
    InodeFlags::COMPRESS,
    InodeFlags::NOCOMPRESS,
    InodeFlags::VERITY,
];

/// All that can be seen of a file.
struct Seen {
    file_type: FileType,
    permissions: u32,
    owner: (UserId, GroupId),
    flags: InodeFlags,
    times: [Timestamp; 3],
    content: Vec<u8>,
    target: Option<Vec<u8>>,
    device: DeviceNumber,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Each with its path.
    names: BTreeMap<Name, Vec<u8>>,
}

/// A whole subvolume.
pub struct Walked {
    files: BTreeMap<Identity, Seen>,
    /// Names of other subvolumes.
    subvolumes: BTreeMap<Name, Vec<u8>>,
}

impl Walked {
    pub fn of(filesystem: &Filesystem, id: RootId) -> Self {
        let mut walked = Self { files: BTreeMap::new(), subvolumes: BTreeMap::new() };
        let root = filesystem.inode(InodeId::root_of(id)).unwrap();
        walked.files.insert(identity(&root), see(filesystem, &root));
        walked.directory(filesystem, &root, b"");
        walked
    }

    fn name_of_subvolume(&self, path: &[u8]) -> &Name {
        let found = self.subvolumes.iter().find(|(_, of)| &of[..] == path);
        found.unwrap_or_else(|| panic!("no subvolume at {}", path.escape_ascii())).0
    }

    fn directory(&mut self, filesystem: &Filesystem, directory: &Arc<Inode>, above: &[u8]) {
        for (name, _) in subject::list(filesystem, directory).unwrap() {
            let path = if above.is_empty() { name.clone() } else { [above, b"/", &name].concat() };
            let found = filesystem.names().lookup(&Caller::superuser(), directory, &name).unwrap();
            let place = (identity(directory), name);
            if found.is_placeholder() || found.id().root != directory.id().root {
                self.subvolumes.insert(place, path);
                continue;
            }
            let seen = self.files.entry(identity(&found)).or_insert_with(|| see(filesystem, &found));
            seen.names.insert(place, path.clone());
            if found.is_directory() {
                self.directory(filesystem, &found, &path);
            }
        }
    }
}

fn identity(inode: &Arc<Inode>) -> Identity {
    let number = inode.number();
    let generation = if number == ObjectId::FIRST_FREE { 0 } else { inode.state().item.generation.0 };
    (number.0, generation, inode.file_type())
}

fn see(filesystem: &Filesystem, inode: &Arc<Inode>) -> Seen {
    let attributes = filesystem.attributes();
    let of = attributes.of(inode);
    let names = attributes.extended_attributes(inode).unwrap().into_iter();
    let values = names.map(|name| {
        let value = attributes.extended_attribute(&Caller::superuser(), inode, &name).unwrap();
        (name, value)
    });
    let is_link = of.file_type == FileType::SymbolicLink;
    let is_file = of.file_type == FileType::Regular;
    Seen {
        file_type: of.file_type,
        permissions: of.mode.permissions(),
        owner: (of.user, of.group),
        flags: inode.flags(),
        times: [of.access_time, of.modification_time, of.change_time],
        content: if is_file { subject::read(filesystem, inode).unwrap() } else { Vec::new() },
        target: is_link.then(|| filesystem.names().read_link(inode).unwrap()),
        device: of.device_number,
        attributes: values.collect(),
        names: BTreeMap::new(),
    }
}

fn pair<T: PartialEq>(old: T, new: T) -> Option<OldNew<T>> {
    (old != new).then_some(OldNew { old, new })
}

/// Bytes of the sectors that differ as far as both reach.
fn changed_bytes(old: &[u8], new: &[u8], sector_bytes: usize) -> u64 {
    let sectors = old.chunks(sector_bytes).zip(new.chunks(sector_bytes));
    let changed = sectors.filter_map(|(old, new)| {
        let common = old.len().min(new.len());
        (old[..common] != new[..common]).then_some(common as u64)
    });
    changed.sum()
}

fn attribute_changes(old: &Seen, new: &Seen) -> Vec<AttributeChange> {
    let names: BTreeSet<&Vec<u8>> = old.attributes.keys().chain(new.attributes.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        let kind = match (old.attributes.get(name), new.attributes.get(name)) {
            (None, _) => AttributeChangeKind::Added,
            (_, None) => AttributeChangeKind::Removed,
            (Some(old), Some(new)) if old != new => AttributeChangeKind::Changed,
            _ => return None,
        };
        Some(AttributeChange { name: name.clone(), kind })
    });
    changes.collect()
}

fn differences(old: &Seen, new: &Seen, sector_bytes: usize) -> Differences {
    let shown = |flags: InodeFlags| {
        InodeFlags(SHOWN.iter().filter(|flag| flags.has(**flag)).map(|flag| flag.0).sum())
    };
    let length = |seen: &Seen| seen.content.len() as u64;
    Differences {
        file_type: pair(old.file_type, new.file_type),
        size_bytes: pair(length(old), length(new)),
        changed_bytes: changed_bytes(&old.content, &new.content, sector_bytes),
        permissions: pair(old.permissions, new.permissions),
        owner: pair(old.owner, new.owner),
        flags: pair(shown(old.flags), shown(new.flags)),
        attributes: attribute_changes(old, new),
        target: old.target.clone().zip(new.target.clone()).and_then(|(old, new)| pair(old, new)),
        device: pair(old.device, new.device).filter(|_| old.file_type == new.file_type),
        times: old.times != new.times,
    }
}

/// What differs, in any order. Subvolumes are told by their names alone, and have the number 0.
pub fn difference(old: &Walked, new: &Walked, sector_bytes: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for (identity, seen) in &old.files {
        if !new.files.contains_key(identity) && replacement(seen, (old, new)).is_none() {
            changes.push(whole(ChangeKind::Removed, *identity, seen));
        }
    }
    for (identity, seen) in &new.files {
        let subject = Subject::Inode { number: ObjectId(identity.0), file_type: seen.file_type };
        let Some(before) = old.files.get(identity) else {
            changes.push(match replacement(seen, (new, old)) {
                None => whole(ChangeKind::Added, *identity, seen),
                Some(before) => {
                    let mut differences = differences(before, seen, sector_bytes);
                    differences.times &= !differences.beyond_times();
                    Change {
                        kind: ChangeKind::Replaced,
                        path: seen.names.values().next().unwrap().clone(),
                        differences,
                        ..bare(subject, before, seen)
                    }
                }
            });
            continue;
        };
        let lost = before.names.iter().filter(|(name, _)| !seen.names.contains_key(name));
        let mut lost: Vec<Vec<u8>> = lost.map(|(_, path)| path.clone()).collect();
        let gained = seen.names.iter().filter(|(name, _)| !before.names.contains_key(name));
        let mut gained: Vec<Vec<u8>> = gained.map(|(_, path)| path.clone()).collect();
        let mut differences = differences(before, seen, sector_bytes);
        differences.times &= lost.is_empty() && gained.is_empty() && !differences.beyond_times();
        if lost.is_empty() && gained.is_empty() && differences == Differences::default() {
            continue;
        }
        let kept = seen.names.iter().find(|(name, _)| before.names.contains_key(name));
        let is_renamed = !lost.is_empty() && !gained.is_empty();
        changes.push(Change {
            kind: if is_renamed { ChangeKind::Renamed } else { ChangeKind::Changed },
            path: match (is_renamed, kept) {
                (true, _) => gained.remove(0),
                (false, Some((_, path))) => path.clone(),
                (false, None) => b".".to_vec(),
            },
            old_path: is_renamed.then(|| lost.remove(0)),
            added_names: gained,
            removed_names: lost,
            differences,
            ..bare(subject, before, seen)
        });
    }
    let subvolumes = [(ChangeKind::Removed, old, new), (ChangeKind::Added, new, old)];
    for (kind, here, there) in subvolumes {
        let names = here.subvolumes.iter().filter(|(name, _)| !there.subvolumes.contains_key(name));
        changes.extend(names.map(|(_, path)| of_subvolume(kind, path)));
    }
    changes
}

/// What has the only name of a file in the other state.
fn replacement<'w>(seen: &Seen, (here, there): (&Walked, &'w Walked)) -> Option<&'w Seen> {
    let mut names = seen.names.keys();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let (identity, other) = there.files.iter().find(|(_, other)| other.names.contains_key(name))?;
    (other.names.len() == 1 && !here.files.contains_key(identity)).then_some(other)
}

fn bare(subject: Subject, old: &Seen, new: &Seen) -> Change {
    Change {
        kind: ChangeKind::Changed,
        subject,
        path: Vec::new(),
        old_path: None,
        added_names: Vec::new(),
        removed_names: Vec::new(),
        differences: Differences::default(),
        size_bytes: OldNew { old: old.content.len() as u64, new: new.content.len() as u64 },
    }
}

fn whole(kind: ChangeKind, identity: Identity, seen: &Seen) -> Change {
    let subject = Subject::Inode { number: ObjectId(identity.0), file_type: seen.file_type };
    let mut paths: Vec<Vec<u8>> = seen.names.values().cloned().collect();
    let path = paths.remove(0);
    let change = Change { kind, path, ..bare(subject, seen, seen) };
    if kind == ChangeKind::Added {
        Change { added_names: paths, size_bytes: OldNew { old: 0, ..change.size_bytes }, ..change }
    } else {
        Change { removed_names: paths, size_bytes: OldNew { new: 0, ..change.size_bytes }, ..change }
    }
}

fn of_subvolume(kind: ChangeKind, path: &[u8]) -> Change {
    Change {
        kind,
        subject: Subject::Subvolume { id: RootId(0) },
        path: path.to_vec(),
        old_path: None,
        added_names: Vec::new(),
        removed_names: Vec::new(),
        differences: Differences::default(),
        size_bytes: OldNew::default(),
    }
}

/// Both in one order. A walk does not see the numbers of subvolumes: one that was renamed is told as removed
/// and added, and one that has the name of another as nothing.
pub fn comparable(changes: Vec<Change>, (old, new): (&Walked, &Walked)) -> Vec<Change> {
    let (subvolumes, mut others): (Vec<Change>, Vec<Change>) =
        changes.into_iter().partition(|change| matches!(change.subject, Subject::Subvolume { .. }));
    let mut lost: BTreeMap<&Name, Vec<u8>> = BTreeMap::new();
    let mut gained = lost.clone();
    for change in subvolumes {
        let (gone, come) = match change.kind {
            ChangeKind::Removed => (Some(change.path), None),
            _ => (change.old_path, Some(change.path)),
        };
        lost.extend(gone.map(|path| (old.name_of_subvolume(&path), path)));
        gained.extend(come.map(|path| (new.name_of_subvolume(&path), path)));
    }
    let gone = lost.iter().filter(|(name, _)| !gained.contains_key(*name));
    others.extend(gone.map(|(_, path)| of_subvolume(ChangeKind::Removed, path)));
    let come = gained.iter().filter(|(name, _)| !lost.contains_key(*name));
    others.extend(come.map(|(_, path)| of_subvolume(ChangeKind::Added, path)));
    others.sort_by_cached_key(|change| format!("{:?} {:?} {change:?}", change.subject, change.kind));
    others
}
