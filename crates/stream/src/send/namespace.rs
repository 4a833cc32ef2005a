//! The changes of names that turn the old state, at the receiver, into the new one.
//!
//! Inodes have their turns in the order of their numbers. Each gets its new names; before that, the
//! directories in which they lie get theirs, from the top, whatever their numbers
//! ([`place`](Namespace::place)). So a directory never moves into one that lies in it: all that lead to its
//! new place are in theirs. The only thing that can be in the way is a name that another inode still has.
//! That inode loses it: a file that has others loses the name, and everything else waits under a name of its
//! own in the root, as Linux's orphans do. Directories that go are removed at the end, when all that was in
//! them has gone.

use std::collections::BTreeSet;

use vlinder_format::ObjectId;

use super::paths::Paths;
use super::receiver_names::{Place, ReceiverNames};
use super::removals::Removals;
use super::{Identity, InodeFacts, Link, NameChange, Names, SendError};

/// The names at the receiver, and what happens to them.
pub struct Namespace<'s, S> {
    names: ReceiverNames<'s, S>,
    paths: Paths,
    removals: Removals,
    changes: Vec<NameChange>,
    touched: BTreeSet<Identity>,
}

impl<'s, S: Names> Namespace<'s, S> {
    /// From the old state, or from an empty subvolume, to the new one.
    pub fn new(old: Option<&'s S>, new: &'s S) -> Self {
        let (paths, removals) = (Paths::default(), Removals::default());
        let (changes, touched) = (Vec::new(), BTreeSet::new());
        Self { names: ReceiverNames::new(old, new), paths, removals, changes, touched }
    }

    /// What happened since this was asked last, in the order in which it has to happen.
    pub fn take_changes(&mut self) -> Vec<NameChange> {
        std::mem::take(&mut self.changes)
    }

    /// Directories whose times the changes of names moved, and which the new state has: they get their own
    /// back when nothing changes any more.
    ///
    /// # Errors
    /// What reading met.
    pub fn touched_directories(&self) -> Result<Vec<Identity>, SendError> {
        let mut lasting = Vec::with_capacity(self.touched.len());
        for directory in &self.touched {
            if *directory == Identity::ROOT || self.names.new_inode(*directory)?.is_some() {
                lasting.push(*directory);
            }
        }
        Ok(lasting)
    }

    /// The times of a directory have to be told at the end.
    pub fn touch(&mut self, directory: Identity) {
        self.touched.insert(directory);
    }

    /// An inode that is not the same in both states gets its new names, or goes. Turns come in the order of
    /// numbers.
    ///
    /// # Errors
    /// What reading met; names that contradict one another.
    pub fn turn(&mut self, number: ObjectId) -> Result<(), SendError> {
        self.names.advance(number);
        let old = self.names.old.map(|old| old.inode(number)).transpose()?.flatten();
        let new = self.names.new.inode(number)?;
        let goes = old.filter(|old| new.is_none_or(|new| new.identity != old.identity));
        if let Some(facts) = goes {
            self.remove(facts)?;
        }
        match new {
            Some(facts) if facts.identity == Identity::ROOT => {}
            Some(facts) if facts.is_directory => self.place(facts.identity)?,
            Some(facts) => self.name_file(facts.identity)?,
            None => {}
        }
        self.names.end_turn();
        Ok(())
    }

    /// Removes the directories that go. Nothing changes after it.
    ///
    /// # Errors
    /// What reading met.
    pub fn finish(&mut self) -> Result<(), SendError> {
        self.names.advance(ObjectId(u64::MAX));
        for directory in self.removals.in_order()? {
            let place = self.names.place(directory)?;
            let path = self.touched_path(&place)?;
            self.changes.push(NameChange::RemoveDirectory { path });
        }
        Ok(())
    }

    /// The path of a directory of either state as the receiver has it.
    ///
    /// # Errors
    /// What reading met; the receiver does not have it.
    pub fn path_of_directory(&mut self, directory: Identity) -> Result<Vec<u8>, SendError> {
        if directory == Identity::ROOT {
            return Ok(Vec::new());
        }
        let place = self.names.place(directory)?;
        self.paths.of_place(&self.names, &place)
    }

    /// A path of a file that had its turn, as the receiver has it.
    ///
    /// # Errors
    /// What reading met; the file has no name.
    pub fn path_of_file(&mut self, file: Identity) -> Result<Vec<u8>, SendError> {
        let link = self.names.new.links(file)?.into_iter().next();
        let link = link.ok_or(SendError::WrongNames { inode: file.number, names: 0 })?;
        self.paths.of_place(&self.names, &Place::Link(link))
    }

    /// The path of a name that comes or goes. The directory that it is in gets another time.
    fn touched_path(&mut self, place: &Place) -> Result<Vec<u8>, SendError> {
        let parent = match place {
            Place::Link(link) => link.parent,
            Place::Orphan(_) => Identity::ROOT,
        };
        self.touched.insert(parent);
        self.paths.of_place(&self.names, place)
    }

    fn remove(&mut self, facts: InodeFacts) -> Result<(), SendError> {
        if facts.is_directory {
            let Some(old) = self.names.old else { return Ok(()) };
            let parent = old.links(facts.identity)?.into_iter().next();
            let parent = parent.ok_or(SendError::WrongNames { inode: facts.identity.number, names: 0 })?;
            self.removals.add(facts.identity, parent.parent);
            return Ok(());
        }
        let names = std::mem::take(self.names.file(facts.identity)?);
        for place in names.spare {
            let path = self.touched_path(&place)?;
            self.changes.push(NameChange::Unlink { path });
        }
        Ok(())
    }

    /// Gives a file the names of the new state.
    fn name_file(&mut self, file: Identity) -> Result<(), SendError> {
        // A name stays missing until it is there: a file that loses its last name on the way must know that
        // it comes back.
        while let Some(link) = self.names.file(file)?.missing.last().cloned() {
            self.place(link.parent)?;
            self.vacate(&link)?;
            let path = self.touched_path(&Place::Link(link.clone()))?;
            let directory = link.parent;
            let names = self.names.file(file)?;
            let (spare, existing) = (names.spare.pop(), names.any());
            names.missing.pop();
            names.kept.push(link);
            let change = match (spare, existing) {
                (Some(spare), _) => NameChange::Rename { from: self.touched_path(&spare)?, to: path },
                (None, Some(existing)) => {
                    NameChange::Link { existing: self.paths.of_place(&self.names, &existing)?, path }
                }
                (None, None) => NameChange::Create { path, inode: file, directory },
            };
            self.changes.push(change);
        }
        for place in std::mem::take(&mut self.names.file(file)?.spare) {
            let path = self.touched_path(&place)?;
            self.changes.push(NameChange::Unlink { path });
        }
        Ok(())
    }

    /// Puts a directory, and before it those that lead to it, where the new state has them.
    fn place(&mut self, directory: Identity) -> Result<(), SendError> {
        let mut chain: Vec<(Identity, Link)> = Vec::new();
        let mut current = directory;
        let mut bytes = 0;
        while !self.paths.is_placed(current) {
            let link = self.names.new_link(current)?;
            bytes += link.name.len() + 1;
            // This ends a circle, too.
            if bytes > usize::from(u16::MAX) {
                return Err(SendError::PathTooLong { inode: directory.number });
            }
            let parent = link.parent;
            chain.push((current, link));
            current = parent;
        }
        for (directory, link) in chain.into_iter().rev() {
            self.place_below_placed(directory, link)?;
            self.paths.note_placed(directory);
        }
        Ok(())
    }

    /// Puts a directory where the new state has it. The directory in which that is is in its place.
    fn place_below_placed(&mut self, directory: Identity, link: Link) -> Result<(), SendError> {
        let target = Place::Link(link.clone());
        if self.names.has_new_link(directory) {
            return Ok(());
        }
        let is_old = self.names.old_inode(directory)?.is_some();
        if is_old && self.names.place(directory)? == target {
            return Ok(());
        }
        self.vacate(&link)?;
        let to = self.touched_path(&target)?;
        if is_old {
            let place = self.names.place(directory)?;
            let from = self.touched_path(&place)?;
            self.changes.push(NameChange::Rename { from, to });
            self.names.orphans.remove(&directory);
            self.paths.note_move();
        } else {
            let (path, inode) = (to, directory);
            self.changes.push(NameChange::Create { path, inode, directory: link.parent });
        }
        self.names.early.insert(directory);
        Ok(())
    }

    /// Makes sure that nothing has a name at the receiver. Its directory is in its place.
    fn vacate(&mut self, link: &Link) -> Result<(), SendError> {
        let Some(old) = self.names.old else { return Ok(()) };
        if self.names.old_inode(link.parent)?.is_none() {
            return Ok(());
        }
        match old.entry(link.parent, &link.name)? {
            Some(facts) if facts.is_directory => self.evict_directory(facts.identity, link),
            Some(facts) => self.evict_file(facts.identity, link),
            None => Ok(()),
        }
    }

    fn evict_directory(&mut self, directory: Identity, link: &Link) -> Result<(), SendError> {
        let place = self.names.place(directory)?;
        if place != Place::Link(link.clone()) {
            return Ok(());
        }
        let from = self.touched_path(&place)?;
        let orphan = self.orphan_name(directory)?;
        self.touch(Identity::ROOT);
        self.changes.push(NameChange::Rename { from, to: orphan.clone() });
        self.names.orphans.insert(directory, orphan);
        self.paths.note_move();
        Ok(())
    }

    fn evict_file(&mut self, file: Identity, link: &Link) -> Result<(), SendError> {
        if file.number < self.names.position && !self.names.files.contains_key(&file) {
            return Ok(());
        }
        let place = Place::Link(link.clone());
        let names = self.names.file(file)?;
        let Some(index) = names.spare.iter().position(|spare| *spare == place) else { return Ok(()) };
        names.spare.swap_remove(index);
        let (is_last, comes_back) = (names.any().is_none(), !names.missing.is_empty());
        let path = self.touched_path(&place)?;
        if is_last && comes_back {
            let orphan = self.orphan_name(file)?;
            self.touch(Identity::ROOT);
            self.changes.push(NameChange::Rename { from: path, to: orphan.clone() });
            self.names.file(file)?.spare.push(Place::Orphan(orphan));
        } else {
            self.changes.push(NameChange::Unlink { path });
        }
        Ok(())
    }

    /// A name in the root that neither state has, and no other inode gets.
    fn orphan_name(&self, inode: Identity) -> Result<Vec<u8>, SendError> {
        let mut index = 0_u64;
        loop {
            let name = format!("o{}-{}-{index}", inode.number.0, inode.generation.0).into_bytes();
            let is_old = match self.names.old {
                Some(old) => old.entry(Identity::ROOT, &name)?.is_some(),
                None => false,
            };
            if !is_old && self.names.new.entry(Identity::ROOT, &name)?.is_none() {
                return Ok(name);
            }
            index += 1;
        }
    }
}
