//! Extended attributes that differ.

use std::collections::BTreeMap;

use vlinder_forest::{Difference, ForestError};
use vlinder_format::directory::DirectoryEntries;
use vlinder_format::{Damage, Key, Place, RootId};

use super::change::{AttributeChange, AttributeChangeKind, OldNew};

type Values<'a> = BTreeMap<&'a [u8], &'a [u8]>;

/// The attributes of an item, which has all those whose names have one hash.
fn values(tree: RootId, key: Key, data: &[u8]) -> Result<Values<'_>, ForestError> {
    let mut values = Values::new();
    for entry in DirectoryEntries::new(data) {
        let place = Place { tree: Some(tree), key: Some(key), ..Place::default() };
        let entry = entry.map_err(|fault| Damage::new(fault, place))?;
        values.insert(entry.name, entry.data);
    }
    Ok(values)
}

/// The attributes that differ between the items of one key.
pub(super) fn in_item(
    trees: OldNew<RootId>,
    key: Key,
    difference: Difference<'_>,
) -> Result<Vec<AttributeChange>, ForestError> {
    let (old, new) = match difference {
        Difference::Removed(old) => (Some(old), None),
        Difference::Added(new) => (None, Some(new)),
        Difference::Changed { old, new } => (Some(old), Some(new)),
    };
    let old = old.map(|data| values(trees.old, key, data)).transpose()?.unwrap_or_default();
    let new = new.map(|data| values(trees.new, key, data)).transpose()?.unwrap_or_default();
    Ok(between(&old, &new))
}

/// The attributes that differ between two inodes, by all their items.
pub(super) fn in_all(
    trees: OldNew<RootId>,
    old: &[(Key, Vec<u8>)],
    new: &[(Key, Vec<u8>)],
) -> Result<Vec<AttributeChange>, ForestError> {
    let gather = |tree: RootId,
                  items: &'_ [(Key, Vec<u8>)]|
     -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ForestError> {
        let mut all = BTreeMap::new();
        for (key, data) in items {
            all.extend(
                values(tree, *key, data)?.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())),
            );
        }
        Ok(all)
    };
    let (old, new) = (gather(trees.old, old)?, gather(trees.new, new)?);
    fn borrowed(all: &BTreeMap<Vec<u8>, Vec<u8>>) -> Values<'_> {
        all.iter().map(|(name, value)| (&name[..], &value[..])).collect()
    }
    Ok(between(&borrowed(&old), &borrowed(&new)))
}

fn between(old: &Values<'_>, new: &Values<'_>) -> Vec<AttributeChange> {
    let change = |name: &[u8], kind| AttributeChange { name: name.to_vec(), kind };
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let gone = gone.map(|name| change(name, AttributeChangeKind::Removed));
    let others = new.iter().filter_map(|(name, value)| match old.get(name) {
        None => Some(change(name, AttributeChangeKind::Added)),
        Some(before) if before != value => Some(change(name, AttributeChangeKind::Changed)),
        Some(_) => None,
    });
    let mut changes: Vec<AttributeChange> = gone.chain(others).collect();
    changes.sort();
    changes
}
