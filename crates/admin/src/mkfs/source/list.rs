//! The thread that lists directories, ahead of those that load their entries.

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use vlinder_base::channel::{Sender, bounded};
use vlinder_base::sync::Arc;

use super::directory::{SourceDirectory, join};
use super::entry::open_quietly;
use super::error::SourceError;
use super::levels::Levels;
use super::messages::{Event, Job};

/// Names loaded together.
pub(super) const NAMES_IN_PART: usize = 32;

/// Lists everything below the root, until it is done or nobody listens any more.
pub(super) fn list(root: Arc<SourceDirectory>, events: &Sender<Event>, jobs: &Sender<Job>) {
    let listing = Listing { events, jobs };
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
    events: &'a Sender<Event>,
    jobs: &'a Sender<Job>,
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
                    self.say(Event::Enter)?;
                    let rest = self.directory(&below)?;
                    levels.push(below, depth + 1, rest)?;
                }
                None => {
                    if levels.pop()? {
                        self.say(Event::Leave)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn say(&self, event: Event) -> Result<(), Stop> {
        self.events.send(event).map_err(|_| Stop::NobodyListens)
    }

    /// Sends a directory's entries; gives its subdirectories, the first last.
    fn directory(&self, directory: &Arc<SourceDirectory>) -> Result<Vec<Vec<u8>>, Stop> {
        let Names { all: mut names, directories: mut subdirectories } = names(directory)?;
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
        self.say(Event::Listed)?;
        Ok(subdirectories)
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
        open_quietly(&directory.file, b".", OFlags::DIRECTORY).map_err(|errno| fail("open", errno))?;
    for entry in Dir::new(listed).map_err(|errno| fail("getdents", errno))? {
        let entry = entry.map_err(|errno| fail("getdents", errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let mut file_type = entry.file_type();
        if file_type == FileType::Unknown {
            let status = rustix::fs::statat(&directory.file, name, AtFlags::SYMLINK_NOFOLLOW);
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
    let file = open_quietly(&parent.file, name, OFlags::DIRECTORY | OFlags::NOFOLLOW)
        .map_err(|errno| SourceError::call(&path, "open", errno))?;
    Ok(SourceDirectory { file, path })
}
