//! Names of other subvolumes in the directories of both states.

use std::collections::BTreeMap;

use vlinder_forest::{Difference, ForestError};
use vlinder_format::directory::DirectoryEntries;
use vlinder_format::{Damage, ItemType, Key, Place, RootId};

use super::DiffError;
use super::change::{Change, ChangeKind, Differences, OldNew, Subject};
use super::state::{FileIdentity, NamePlace, State, States};

/// The names that differ, by the subvolume that has them. What is held grows with how many of them differ.
#[derive(Default)]
pub(super) struct SubvolumeEntries {
    names: BTreeMap<RootId, OldNew<Vec<NamePlace>>>,
}

impl SubvolumeEntries {
    /// Takes an item of names that is not the same in both trees.
    pub fn note(
        &mut self,
        directories: OldNew<Option<FileIdentity>>,
        states: &States<'_>,
        key: Key,
        difference: Difference<'_>,
    ) -> Result<(), DiffError> {
        let (old, new) = match difference {
            Difference::Removed(old) => (Some(old), None),
            Difference::Added(new) => (None, Some(new)),
            Difference::Changed { old, new } => (Some(old), Some(new)),
        };
        if let (Some(data), Some(directory)) = (old, directories.old) {
            for (id, place) in subvolumes_in(&states.old, directory, key, data)? {
                self.names.entry(id).or_default().old.push(place);
            }
        }
        if let (Some(data), Some(directory)) = (new, directories.new) {
            for (id, place) in subvolumes_in(&states.new, directory, key, data)? {
                self.names.entry(id).or_default().new.push(place);
            }
        }
        Ok(())
    }

    /// What differs, in the order of the subvolumes' numbers.
    pub fn into_changes(self, states: &mut States<'_>) -> Result<Vec<Change>, DiffError> {
        let mut changes = Vec::new();
        for (id, OldNew { mut old, mut new }) in self.names {
            old.sort();
            new.sort();
            // Names whose hashes are equal share an item, and stand in it unchanged.
            let lost: Vec<&NamePlace> =
                old.iter().filter(|place| new.binary_search(place).is_err()).collect();
            let gained: Vec<&NamePlace> =
                new.iter().filter(|place| old.binary_search(place).is_err()).collect();
            for index in 0..lost.len().max(gained.len()) {
                let path =
                    |state: &mut State<'_>, place: &&NamePlace| state.path(place.directory.number, place);
                let old_path = lost.get(index).map(|place| path(&mut states.old, place)).transpose()?;
                let new_path = gained.get(index).map(|place| path(&mut states.new, place)).transpose()?;
                let (kind, path, old_path) = match (old_path, new_path) {
                    (Some(old), Some(new)) => (ChangeKind::Renamed, new, Some(old)),
                    (None, Some(new)) => (ChangeKind::Added, new, None),
                    (Some(old), None) => (ChangeKind::Removed, old, None),
                    (None, None) => continue,
                };
                changes.push(Change {
                    kind,
                    subject: Subject::Subvolume { id },
                    path,
                    old_path,
                    added_names: Vec::new(),
                    removed_names: Vec::new(),
                    differences: Differences::default(),
                    size_bytes: OldNew::default(),
                });
            }
        }
        Ok(changes)
    }
}

/// The names of subvolumes in an item of a directory.
fn subvolumes_in(
    state: &State<'_>,
    directory: FileIdentity,
    key: Key,
    data: &[u8],
) -> Result<Vec<(RootId, NamePlace)>, DiffError> {
    let mut found = Vec::new();
    for entry in DirectoryEntries::new(data) {
        let place = Place { tree: Some(state.id()), key: Some(key), ..Place::default() };
        let entry = entry.map_err(|fault| ForestError::from(Damage::new(fault, place)))?;
        if entry.location.item_type == ItemType::ROOT_ITEM {
            let name = entry.name.to_vec();
            found.push((RootId(entry.location.objectid.0), NamePlace { directory, name }));
        }
    }
    Ok(found)
}
