//! Which inodes and which removals of names an fsync has to log, so that the replay ends with names that
//! belong together.
//!
//! The replay gives each inode of the log the names that the log has of it, takes names from other inodes
//! that have them, removes those that the log says are gone, and deletes what is left without a name. So:
//!
//! | in the log is | then so is | or else |
//! |---|---|---|
//! | an inode | the removal of each name that it lost, with the directory | it has old and new names |
//! | an inode that got a name of another's | the other | the other is deleted, though it has a new name |
//! | an inode that lost a name to another, of the last commit or of the log | the other | the name is lost, which a rename promises not to (Linux loses one that only the log knew) |
//! | an inode with a new name | every directory above that is new or was moved | it hangs in the air, or in a circle |
//! | a directory that is fsynced | every inode that it lost or got, new directories with theirs | the directory is not as it was |
//! | an inode that is gone, and was logged | nothing but the removals of its names | it comes back |
//!
//! An inode that came out of a directory which is gone can't be logged: the removal of the directory's name
//! would have to be, and all that it held. Linux commits, too. So it does where a name was or is a
//! subvolume's: the replay moves inodes alone, and can take no name from a subvolume, nor from one that was
//! in a directory which is gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use vlinder_base::sync::Arc;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::{ItemType, Key, ObjectId};
use vlinder_transaction::Engine;

use super::journal::{NameChange, Place, Record};
use super::outcome::{FullCommit, Unlogged};
use crate::inode::Inode;
use crate::{FsError, Subvolume};

/// What is to be logged beside the content of the inode that is fsynced.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Inodes whose names have to be in the log as they are now.
    pub(super) inodes: BTreeSet<ObjectId>,
    /// Names of the last commit that are gone.
    pub(super) removals: BTreeSet<(ObjectId, DirectoryIndex)>,
}

struct Search<'a> {
    engine: &'a Engine,
    subvolume: &'a Subvolume,
    record: &'a Record,
    plan: Plan,
    /// Inodes to look at; whether with the names that they hold as directories.
    waiting: Vec<(ObjectId, bool)>,
    seen: HashSet<(ObjectId, bool)>,
    /// Directories whose ancestors were looked at.
    climbed: HashSet<ObjectId>,
}

/// Works out what an fsync of an inode has to log. Inodes of the log whose names changed since are brought up
/// to date with it, whatever is fsynced, so that the log as a whole always is of one moment.
pub(super) fn plan(
    engine: &Engine,
    subvolume: &Subvolume,
    record: &Record,
    inode: &Arc<Inode>,
) -> Result<Plan, Unlogged> {
    let mut search = Search {
        engine,
        subvolume,
        record,
        plan: Plan::default(),
        waiting: vec![(inode.number(), inode.is_directory())],
        seen: HashSet::new(),
        climbed: HashSet::new(),
    };
    search.waiting.extend(record.stale.iter().map(|stale| (*stale, false)));
    while let Some((number, with_entries)) = search.waiting.pop() {
        if search.seen.insert((number, with_entries)) {
            search.look_at(number)?;
            if with_entries {
                search.look_into(number)?;
            }
        }
    }
    Ok(search.plan)
}

impl Search<'_> {
    fn want(&mut self, inode: ObjectId) {
        self.waiting.push((inode, false));
    }

    fn is_dead(&self, inode: ObjectId) -> bool {
        self.record.inodes.get(&inode).is_some_and(|record| record.is_dead())
    }

    fn change(&self, (directory, name): &Place) -> NameChange {
        let names = self.record.names.get(directory);
        names.and_then(|names| names.get(name)).copied().unwrap_or_default()
    }

    /// An inode, with the names that it got and lost.
    fn look_at(&mut self, number: ObjectId) -> Result<(), Unlogged> {
        if !self.plan.inodes.insert(number) {
            return Ok(());
        }
        let Some(known) = self.record.inodes.get(&number) else { return Ok(()) };
        for place in known.names.iter() {
            let NameChange { before, now } = self.change(place);
            if before == now {
                continue;
            }
            if self.record.subvolume_names.get(&place.0).is_some_and(|names| names.contains(&place.1)) {
                return Err(FullCommit::SubvolumeName.into());
            }
            if let Some(lost) = before.filter(|before| before.inode == number) {
                if self.is_dead(place.0) {
                    return Err(FullCommit::DirectoryGone.into());
                }
                self.plan.removals.insert((place.0, lost.index));
                self.want(place.0);
            }
            let had_it = known.logged.is_some() || before.is_some_and(|before| before.inode == number);
            if let Some(other) = now.filter(|now| had_it && now.inode != number) {
                self.want(other.inode);
            }
            if now.is_some_and(|now| now.inode == number) {
                if let Some(other) = before.filter(|before| before.inode != number) {
                    self.want(other.inode);
                }
                self.climb(place.0)?;
            }
        }
        if self.is_dead(number) {
            self.nothing_left(number)?;
        }
        Ok(())
    }

    /// The replay deletes what a directory holds that loses its name, and what the directories in it hold:
    /// nothing may have left them that still lives, and no subvolume may have been in them.
    fn nothing_left(&self, directory: ObjectId) -> Result<(), Unlogged> {
        // Each is below one that is gone too, as of the last commit, so there is no circle.
        let mut emptied = vec![directory];
        while let Some(directory) = emptied.pop() {
            if self.record.subvolume_names.contains_key(&directory) {
                return Err(FullCommit::SubvolumeName.into());
            }
            let names: Option<&BTreeMap<_, NameChange>> = self.record.names.get(&directory);
            let left = names.into_iter().flat_map(BTreeMap::values).filter_map(|change| change.before);
            for inode in left.map(|before| before.inode) {
                if !self.is_dead(inode) {
                    return Err(FullCommit::DirectoryGone.into());
                }
                emptied.push(inode);
            }
        }
        Ok(())
    }

    /// What a directory got and lost.
    fn look_into(&mut self, directory: ObjectId) -> Result<(), Unlogged> {
        if self.record.subvolume_names.contains_key(&directory) {
            return Err(FullCommit::SubvolumeName.into());
        }
        let Some(names) = self.record.names.get(&directory) else { return Ok(()) };
        for NameChange { before, now } in names.values().filter(|change| change.before != change.now) {
            if let Some(lost) = before {
                self.want(lost.inode);
            }
            if let Some(got) = now {
                let known = self.record.inodes.get(&got.inode);
                let is_new = known.is_some_and(|known| known.is_new);
                self.waiting.push((got.inode, is_new && self.record.names.contains_key(&got.inode)));
            }
        }
        Ok(())
    }

    /// The directories above a new name, those that are new or were moved.
    fn climb(&mut self, directory: ObjectId) -> Result<(), Unlogged> {
        let mut current = directory;
        while self.climbed.insert(current) {
            let known = self.record.inodes.get(&current);
            let changed =
                known.and_then(|known| known.names.iter().find(|place| self.is_now(place, current)));
            let parent = match changed {
                Some(place) => Some(place.0),
                None => self.parent(current)?,
            };
            if changed.is_some() {
                self.want(current);
            }
            match parent {
                Some(parent) if parent != current => current = parent,
                _ => break,
            }
        }
        Ok(())
    }

    fn is_now(&self, place: &Place, inode: ObjectId) -> bool {
        let NameChange { before, now } = self.change(place);
        before != now && now.is_some_and(|now| now.inode == inode)
    }

    /// The directory that holds a directory.
    fn parent(&self, directory: ObjectId) -> Result<Option<ObjectId>, FsError> {
        let from = Key::new(directory, ItemType::INODE_REF, 0);
        let found = self.engine.forest().trees().ceiling(self.subvolume.tree().root(), &from)?;
        let key = found.map(|found| found.key());
        let key = key.filter(|key| key.objectid == directory && key.item_type == ItemType::INODE_REF);
        Ok(key.map(|key| ObjectId(key.offset)))
    }
}
