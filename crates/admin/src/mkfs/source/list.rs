//! The thread that lists directories, ahead of those that load their entries.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use vlinder_base::channel::{Sender, bounded};
use vlinder_base::sync::Arc;

use super::directory::{SourceDirectory, join};
use super::entry::Entry;
use super::error::SourceError;
use super::levels::Levels;
use super::load::{open_quietly, opened_entry};
use super::messages::{Event, Job};
use super::rules::EntryRules;
use crate::mkfs::owner_table::{TableDirectory, TableKind};

/// Names loaded together.
pub(super) const NAMES_IN_PART: usize = 32;

/// Lists everything below the root, until it is done or nobody listens any more.
pub(super) fn list(
    root: Arc<SourceDirectory>,
    rules: &EntryRules,
    events: &Sender<Event>,
    jobs: &Sender<Job>,
) {
    let listing = Listing { rules, events, jobs, made: RefCell::default(), seen: RefCell::default() };
    if let Err(Stop::Failed(error)) = listing.run(root) {
        // If the writer is gone, so is its interest in the error.
        let _ = events.send(Event::Failed(error));
    }
}

enum Stop {
    Failed(SourceError),
    NobodyListens,
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

struct Listing<'a> {
    rules: &'a EntryRules,
    events: &'a Sender<Event>,
    jobs: &'a Sender<Job>,
    /// Directories that the table makes, by the directory they are in; until they were entered.
    made: RefCell<HashMap<Vec<u8>, Vec<Vec<u8>>>>,
    /// Directories that the table has entries of, and that are there.
    seen: RefCell<HashSet<Vec<u8>>>,
}

impl Listing<'_> {
    fn run(&self, root: Arc<SourceDirectory>) -> Result<(), Stop> {
        let rest = self.directory(&root)?;
        let mut levels = Levels::default();
        levels.push(root, 0, rest)?;
        while let Some((directory, depth, rest)) = levels.last() {
            match rest.pop() {
                Some(name) => {
                    let below = Arc::new(open_directory(directory, &name)?);
                    let opened = opened_entry(&below, &directory.path, &name, self.rules)?;
                    self.say(Event::Enter(name, Some(Box::new(opened))))?;
                    let rest = self.directory(&below)?;
                    levels.push(below, depth + 1, rest)?;
                }
                None => {
                    self.enter_made(&Arc::clone(directory).path)?;
                    if levels.pop()? {
                        self.say(Event::Leave)?;
                    }
                }
            }
        }
        Ok(self.rules.check_all_seen(&self.seen.borrow())?)
    }

    fn say(&self, event: Event) -> Result<(), Stop> {
        self.events.send(event).map_err(|_| Stop::NobodyListens)
    }

    /// Sends a directory's entries; gives its subdirectories, the first last.
    fn directory(&self, directory: &Arc<SourceDirectory>) -> Result<Vec<Vec<u8>>, Stop> {
        let Names { all: mut names, directories: mut subdirectories } = names(directory)?;
        let made = self.made_in(directory, &names)?;
        names.sort_unstable();
        subdirectories.sort_unstable_by(|left, right| right.cmp(left));
        let mut names = names.into_iter();
        loop {
            let part: Vec<Vec<u8>> = names.by_ref().take(NAMES_IN_PART).collect();
            if part.is_empty() {
                break;
            }
            let (reply, answer) = bounded(1);
            let job = Job::Load { directory: Arc::clone(directory), names: part, reply };
            self.jobs.send(job).map_err(|_| Stop::NobodyListens)?;
            self.say(Event::Part(Arc::clone(directory), answer))?;
        }
        self.say_made(directory, made)?;
        self.say(Event::Listed)?;
        Ok(subdirectories)
    }

    /// What the table says of a directory, if it says something.
    fn table_of(&self, directory: &SourceDirectory) -> Option<&TableDirectory> {
        let nodes = self.rules.table.directory(&directory.path)?;
        self.seen.borrow_mut().insert(directory.path.clone());
        Some(nodes)
    }

    /// What the table makes in a directory that has these names; its directories are noted.
    fn made_in(&self, directory: &SourceDirectory, names: &[Vec<u8>]) -> Result<Vec<Entry>, SourceError> {
        let Some(nodes) = self.table_of(directory) else { return Ok(Vec::new()) };
        let names: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let made = nodes.iter().filter(|(name, _)| !names.contains(name.as_slice()));
        let mut entries = Vec::new();
        let mut directories = Vec::new();
        for (name, node) in made {
            if node.kind == TableKind::Directory {
                directories.push(name.clone());
            }
            entries.push(self.rules.made(&directory.path, name, node)?);
        }
        if !directories.is_empty() {
            self.made.borrow_mut().insert(directory.path.clone(), directories);
        }
        Ok(entries)
    }

    fn say_made(&self, directory: &Arc<SourceDirectory>, mut entries: Vec<Entry>) -> Result<(), Stop> {
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(NAMES_IN_PART));
            let (reply, answer) = bounded(1);
            reply.send(Ok(std::mem::replace(&mut entries, rest))).map_err(|_| Stop::NobodyListens)?;
            self.say(Event::Part(Arc::clone(directory), answer))?;
        }
        Ok(())
    }

    /// Enters the directories that the table makes in one, after those of the source.
    fn enter_made(&self, above: &[u8]) -> Result<(), Stop> {
        let made = self.made.borrow_mut().remove(above).unwrap_or_default();
        for name in made {
            let directory = Arc::new(SourceDirectory::made(join(above, &name)));
            self.say(Event::Enter(name, None))?;
            let entries = self.made_in(&directory, &[])?;
            self.say_made(&directory, entries)?;
            self.say(Event::Listed)?;
            self.enter_made(&directory.path)?;
            self.say(Event::Leave)?;
        }
        Ok(())
    }
}

/// What a directory holds, in no order.
#[derive(Default)]
struct Names {
    all: Vec<Vec<u8>>,
    /// Directories among them.
    directories: Vec<Vec<u8>>,
}

fn names(directory: &SourceDirectory) -> Result<Names, SourceError> {
    let fail = |call, errno| SourceError::call(&directory.path, call, errno);
    let mut names = Names::default();
    // An open file of its own, since the position in the directory belongs to that; and one that leaves no
    // trace.
    let listed =
        open_quietly(directory.file(), b".", OFlags::DIRECTORY).map_err(|errno| fail("open", errno))?;
    for entry in Dir::new(listed).map_err(|errno| fail("getdents", errno))? {
        let entry = entry.map_err(|errno| fail("getdents", errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut file_type = entry.file_type();
        if file_type == FileType::Unknown {
            let status = rustix::fs::statat(directory.file(), name, AtFlags::SYMLINK_NOFOLLOW);
            let status =
                status.map_err(|errno| SourceError::call(&join(&directory.path, name), "stat", errno))?;
            file_type = FileType::from_raw_mode(status.st_mode);
        }
        if file_type == FileType::Directory {
            names.directories.push(name.to_vec());
        }
        names.all.push(name.to_vec());
    }
    Ok(names)
}

fn open_directory(parent: &SourceDirectory, name: &[u8]) -> Result<SourceDirectory, SourceError> {
    let path = join(&parent.path, name);
    let file = open_quietly(parent.file(), name, OFlags::DIRECTORY | OFlags::NOFOLLOW)
        .map_err(|errno| SourceError::call(&path, "open", errno))?;
    Ok(SourceDirectory::of_host(file, path))
}
