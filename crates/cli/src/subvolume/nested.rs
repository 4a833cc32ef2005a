//! Deleting a subvolume with those in it: which they are, and whether all of them may go.

use std::collections::{HashMap, HashSet};

use vlinder_format::RootId;
use vlinder_fs::SubvolumeInformation;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::object::Object;
use vlinder_places::text;

/// What helps where the default subvolume is to be deleted.
pub(super) const DEFAULT_HINT: &str = "it is the default subvolume: set another one first";
/// What helps where the subvolume is to be deleted by way of which files are shown.
const SHOWN_HINT: &str = "it is the one that is shown: open or mount another one (-o subvolid=5)";

/// Refuses the top level, which nobody can delete, and a path to the subvolume that a mount shows, whose name
/// lies above the mount.
///
/// # Errors
/// It is one of these; what asking for it met.
pub(super) fn refuse_roots(object: &Object, number: Option<u64>) -> Result<(), Failure> {
    let refuse =
        |text: &str, hint: String| Err(Failure::new(Kind::Permission, text).at(object.place()).hint(hint));
    let (is_shown, id) = match object {
        _ if number.is_some() => (false, number),
        Object::Image(named) if named.name == b"." => (false, Some(named.subvolume()?.0)),
        Object::Mounted(mounted) if mounted.inner().0.is_empty() => (true, Some(object.subvolume()?.id.0)),
        _ => return Ok(()),
    };
    match id {
        Some(id) if id == RootId::FS_TREE.0 => {
            refuse("the top level can't be deleted", "name a subvolume in it".to_owned())
        }
        Some(id) if is_shown => {
            let hint = format!("mount the top level (-o subvolid=5), and delete subvolume {id} there");
            refuse("the mount shows this subvolume, so it stays", hint)
        }
        _ => Ok(()),
    }
}

/// The subvolumes that lie in one, at any depth, each behind those within it. One is deleted after the other;
/// so that none goes in vain, it is judged before which of them can't.
///
/// # Errors
/// What listing them met; the default subvolume, or that which is shown, is among them.
pub(super) fn deletable_below(object: &Object, top: RootId) -> Result<Vec<RootId>, Failure> {
    let all = object.subvolumes()?;
    let below = subvolumes_in(top, &all);
    let staying = [(object.default_subvolume()?.id, DEFAULT_HINT), (object.shown_subvolume()?, SHOWN_HINT)];
    let Some((id, hint)) = staying.into_iter().find(|(id, _)| *id == top || below.contains(id)) else {
        return Ok(below);
    };
    let path = all.iter().find(|one| one.id == id).map(|one| text::escaped(&one.path));
    let text = format!("subvolume {id} ({}) has to stay, so nothing was deleted", path.unwrap_or_default());
    Err(Failure::new(Kind::Permission, text).at(object.place()).hint(hint))
}

/// The subvolumes that lie in one, at any depth, each behind those within it.
fn subvolumes_in(top: RootId, all: &[SubvolumeInformation]) -> Vec<RootId> {
    let mut by_parent: HashMap<RootId, Vec<RootId>> = HashMap::new();
    for one in all.iter().filter(|one| !one.is_deleted) {
        if let Some(parent) = one.parent {
            by_parent.entry(parent.root).or_default().push(one.id);
        }
    }
    let (mut found, mut stack) = (Vec::new(), vec![top]);
    let mut seen = HashSet::from([top]);
    // Damaged references may lead round: none is taken twice.
    while let Some(above) = stack.pop() {
        for below in by_parent.remove(&above).into_iter().flatten().filter(|below| seen.insert(*below)) {
            found.push(below);
            stack.push(below);
        }
    }
    found.reverse();
    found
}
