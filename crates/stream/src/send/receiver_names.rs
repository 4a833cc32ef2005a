//! Where the names of files are at the receiver while a stream is applied.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use vlinder_format::ObjectId;

use super::{Identity, InodeFacts, Link, Names, SendError};

/// A name that a file or directory has at the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A name of one of the two states.
    Link(Link),
    /// A name in the root that is of neither state: what has it waits there for its own.
    Orphan(Vec<u8>),
}

/// The names of a file that are no longer those of the old state, and not yet those of the new one.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    /// Names that stay.
    pub kept: Vec<Link>,
    /// Names that will go.
    pub spare: Vec<Place>,
    /// Names that it lacks.
    pub missing: Vec<Link>,
}

/// The names at the receiver.
///
/// 1. Of inodes below `position`, the names are those of the new state, and of the others those of the old
///    one. The exceptions follow.
/// 2. Directories in `early` have the name of the new state already.
/// 3. Directories in `orphans` have a name in the root.
/// 4. Files in `files` have the names that stand there.
/// 5. A directory that the new state does not have keeps its name until the end, or is an orphan.
pub(super) struct ReceiverNames<'s, S> {
    pub old: Option<&'s S>,
    pub new: &'s S,
    pub position: ObjectId,
    pub early: BTreeSet<Identity>,
    pub orphans: HashMap<Identity, Vec<u8>>,
    pub files: BTreeMap<Identity, FileNames>,
}

impl<'s, S: Names> ReceiverNames<'s, S> {
    pub fn new(old: Option<&'s S>, new: &'s S) -> Self {
        let (early, orphans, files) = (BTreeSet::new(), HashMap::new(), BTreeMap::new());
        Self { old, new, position: ObjectId(0), early, orphans, files }
    }

    /// The inodes below a number have their names of the new state from now on.
    pub fn advance(&mut self, position: ObjectId) {
        self.position = position;
        while self.early.first().is_some_and(|identity| identity.number < position) {
            self.early.pop_first();
        }
    }

    /// The inode whose turn it is, and any that had its number, have their names of the new state.
    pub fn end_turn(&mut self) {
        while self.files.first_key_value().is_some_and(|(identity, _)| identity.number <= self.position) {
            self.files.pop_first();
        }
    }

    /// What the old state says of an inode; none if it does not have it.
    pub fn old_inode(&self, identity: Identity) -> Result<Option<InodeFacts>, SendError> {
        let found = self.old.map(|old| old.inode(identity.number)).transpose()?.flatten();
        Ok(found.filter(|facts| facts.identity == identity))
    }

    /// What the new state says of an inode; none if it does not have it.
    pub fn new_inode(&self, identity: Identity) -> Result<Option<InodeFacts>, SendError> {
        Ok(self.new.inode(identity.number)?.filter(|facts| facts.identity == identity))
    }

    /// The name that the new state has of a directory.
    pub fn new_link(&self, directory: Identity) -> Result<Link, SendError> {
        only_link(self.new, directory)
    }

    /// Whether a directory of the new state has its name of that state.
    pub fn has_new_link(&self, directory: Identity) -> bool {
        directory.number < self.position || self.early.contains(&directory)
    }

    /// Where a directory is.
    pub fn place(&self, directory: Identity) -> Result<Place, SendError> {
        if let Some(name) = self.orphans.get(&directory) {
            return Ok(Place::Orphan(name.clone()));
        }
        if self.has_new_link(directory) && self.new_inode(directory)?.is_some() {
            return self.new_link(directory).map(Place::Link);
        }
        match self.old {
            Some(old) if self.old_inode(directory)?.is_some() => only_link(old, directory).map(Place::Link),
            _ => Err(SendError::MissingInode { inode: directory.number }),
        }
    }

    /// The names of a file that has not had its turn, to be changed.
    pub fn file(&mut self, file: Identity) -> Result<&mut FileNames, SendError> {
        if !self.files.contains_key(&file) {
            let names = FileNames::between(self.old_links(file)?, self.new_links(file)?);
            self.files.insert(file, names);
        }
        Ok(self.files.entry(file).or_default())
    }

    fn old_links(&self, file: Identity) -> Result<Vec<Link>, SendError> {
        match self.old {
            Some(old) if self.old_inode(file)?.is_some() => old.links(file),
            _ => Ok(Vec::new()),
        }
    }

    fn new_links(&self, file: Identity) -> Result<Vec<Link>, SendError> {
        if self.new_inode(file)?.is_some() { self.new.links(file) } else { Ok(Vec::new()) }
    }
}

impl FileNames {
    fn between(old: Vec<Link>, new: Vec<Link>) -> Self {
        let before: HashSet<&Link> = old.iter().collect();
        let after: HashSet<&Link> = new.iter().collect();
        let kept = old.iter().filter(|link| after.contains(link)).cloned().collect();
        let spare = old.iter().filter(|link| !after.contains(link)).cloned().map(Place::Link).collect();
        // The last is given first, and further names are made from the one that came first: the oldest.
        let missing = new.iter().rev().filter(|link| !before.contains(link)).cloned().collect();
        Self { kept, spare, missing }
    }

    /// Any name that the file has.
    pub fn any(&self) -> Option<Place> {
        self.kept.first().cloned().map(Place::Link).or_else(|| self.spare.first().cloned())
    }
}

fn only_link(state: &impl Names, directory: Identity) -> Result<Link, SendError> {
    let mut links = state.links(directory)?;
    match (links.pop(), links.len()) {
        (Some(link), 0) => Ok(link),
        (link, others) => {
            let names = others + usize::from(link.is_some());
            Err(SendError::WrongNames { inode: directory.number, names })
        }
    }
}
