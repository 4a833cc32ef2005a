//! What must, may and must not be there after a power cut that left an fsync log, once that was replayed.
//!
//! The state after a cut is the last commit, and what the log adds to it. Which commit that is the superblock
//! tells, so the moments that count are those from that commit to the operation that the cut fell on; below,
//! "once" means in one of them, and "since" in one from the end of the fsync on. An operation has happened
//! wholly or not at all in each of them.
//!
//! **Promised**, by an fsync that had returned:
//!
//! | of | is |
//! |---|---|
//! | a file | content and size as at one moment since |
//! | a file | mode, owner, flags and modification time together as at one moment since; extended attributes as at one moment since |
//! | a file | all its names as at one moment since: those that it had lost do not come back, and where another took its name, one of both has it |
//! | a directory | each of its names stands for what it stood for at some moment since, or is free if it was |
//! | a directory | mode, owner and flags together as at one moment since; extended attributes as at one moment since |
//! | a file or directory, by fdatasync | content and size (of a directory: its names, as above), and a name, if it was never without one |
//!
//! With nothing changed since, "as at one moment since" is: as it was. What changed afterwards may be there
//! or not, and a removal may be. Names of the directories above come with a name: it has to be found from the
//! top.
//!
//! **Always so**, fsynced or not:
//!
//! - Every name stands for what it once stood for, and is free only if it once was. So what the commit held,
//!   and nobody changed since, is as it was.
//! - All names of a file or directory are those of one moment: a rename or link is there wholly or not at
//!   all, and what never was without a name is not lost.
//! - A file's content is what it once was. Of one that is written in place (`nodatacow`) each byte once was
//!   in a version with the size that is found.
//! - Mode, owner, flags and time are together what they once were, and so are extended attributes.
//! - Counts of links and sizes of directories are those of the names that are there.
//! - Which subvolumes there are, which of them is the default and which is read-only is what it once was.
//!
//! **Liberties.** What belongs with an fsync comes along, and some of it without its data: a new file that
//! was not fsynced itself may be there with its names, owner, mode and attributes, and be empty (it once
//! was). An old one may have new names and attributes beside its old mode, owner, times and content. The
//! modification time of a directory is left out: the replay of its names may set it. Symbolic links, fifos
//! and nodes can't be fsynced, and may be there or not until their directory is. A name of a subvolume is not
//! in the subvolume, so an fsync within promises nothing of it.

mod by_kernel;
mod found;
mod history;

use std::collections::BTreeSet;

pub use by_kernel::judge_by_kernel;
use found::{FoundFiles, FoundInode};
pub use history::History;
use history::{Moment, Name, Synced};

use super::carry_out::Subject;
use crate::workload::{FileId, Node, NodeKind, ROOT_DIRECTORY, Seen};

/// The moments that count, what was fsynced among them, and what is there.
struct Judge<'a> {
    moments: &'a [Moment],
    /// With steps counted from the first of the moments.
    synced: Vec<Synced>,
    subject: &'a Subject,
    found: FoundFiles,
}

type Judged = Result<(), String>;

impl History {
    /// Judges what is there after a log was replayed on a commit of a generation; the cut fell on the step
    /// after one that had ended.
    ///
    /// # Errors
    /// What is not as promised, or never was.
    pub fn judge(&self, subject: &Subject, generation: u64, ended: usize) -> Judged {
        self.judge_from(subject, self.base(generation), ended)
    }

    /// As [`judge`](Self::judge) without a log, with the first moment that counts; what is there is known to
    /// be one moment's, so it is looked at only where something was promised.
    ///
    /// # Errors
    /// What is not as promised.
    pub fn judge_without_log(&self, subject: &Subject, first: usize, ended: usize) -> Judged {
        match self.synced(first, ended).next() {
            Some(_) => self.judge_from(subject, first, ended),
            None => Ok(()),
        }
    }

    fn judge_from(&self, subject: &Subject, first: usize, ended: usize) -> Judged {
        let first = first.min(ended);
        let synced: Vec<Synced> =
            self.synced(first, ended).map(|one| Synced { step: one.step - first, ..one }).collect();
        let found = FoundFiles::of(subject)?;
        let judge = Judge { moments: self.window(first, ended + 1), synced, subject, found };
        judge.subvolumes()?;
        judge.names()?;
        judge.inodes()?;
        judge.synced.iter().try_for_each(|synced| judge.promise(*synced))
    }
}

impl Judge<'_> {
    fn subvolumes(&self) -> Judged {
        let filesystem = &self.subject.filesystem;
        let listed =
            filesystem.subvolumes().all().map_err(|error| format!("the list of subvolumes: {error}"))?;
        let live = listed.iter().filter(|one| !one.is_deleted);
        let with_flag = live.map(|one| (one.id.0, one.is_read_only));
        // The top level may be listed or not; it is always there.
        let found: BTreeSet<(u64, bool)> =
            with_flag.filter(|(root, _)| *root != crate::workload::TOP_LEVEL).collect();
        let once = self.moments.iter().any(|moment| {
            let known = moment.model.subvolumes().iter();
            let known = known.map(|(root, subvolume)| (*root, subvolume.read_only));
            found == known.filter(|(root, _)| *root != crate::workload::TOP_LEVEL).collect()
        });
        if !once {
            return Err(format!("the subvolumes (and whether they are read-only) never were {found:?}"));
        }
        let default = filesystem.subvolumes().default().map_err(|error| format!("the default: {error}"))?.0;
        match self.moments.iter().any(|moment| moment.model.default_subvolume() == default) {
            true => Ok(()),
            false => Err(format!("{default} never was the default subvolume")),
        }
    }

    fn names(&self) -> Judged {
        let known = self.moments.iter().flat_map(|moment| moment.names.places());
        let all: BTreeSet<&Name> = known.chain(self.found.names.places()).collect();
        for name in all {
            self.name_is_of(self.moments, name).map_err(|wrong| format!("{wrong}, as it never did"))?;
        }
        let known = self.moments.iter().flat_map(|moment| moment.names.files());
        let all: BTreeSet<FileId> = known.chain(self.found.names.files()).copied().collect();
        all.into_iter().try_for_each(|file| {
            self.names_are_of(self.moments, file).map_err(|wrong| format!("{wrong}, as it never had"))
        })
    }

    /// A name stands for what it stood for at one of these moments.
    fn name_is_of(&self, moments: &[Moment], name: &Name) -> Judged {
        let found = self.found.names.value(name);
        if moments.iter().any(|moment| moment.names.value(name) == found) {
            return Ok(());
        }
        Err(format!("{} stands for {found:?}", show(name)))
    }

    /// A file has the names that it had at one of these moments.
    fn names_are_of(&self, moments: &[Moment], file: FileId) -> Judged {
        let found = self.found.names.of(file);
        if moments.iter().any(|moment| moment.names.of(file) == found) {
            return Ok(());
        }
        let shown: Vec<String> = found.into_iter().flatten().map(show).collect();
        Err(format!("{file:?} has the names [{}]", shown.join(", ")))
    }

    fn inodes(&self) -> Judged {
        for (file, found) in &self.found.inodes {
            self.counts(*file, found)?;
            let last = |with_data_only: bool| {
                let of_it = self.synced.iter().filter(|one| one.file == *file);
                of_it.filter(|one| with_data_only || !one.data_only).map(|one| one.step).max()
            };
            let attributes = self.attributes(*file, found, last(false));
            attributes.map_err(|wrong| format!("{wrong}{}", since(last(false))))?;
            if found.inode.file_type() == vlinder_fs::FileType::Regular {
                let content = self.content(*file, found, &self.moments[last(true).unwrap_or(0)..]);
                content.map_err(|wrong| format!("{wrong}{}", since(last(true))))?;
            }
        }
        Ok(())
    }

    /// What the names say about inodes.
    fn counts(&self, file: FileId, found: &FoundInode) -> Judged {
        let names = self.found.names.of(file).map_or(0, BTreeSet::len);
        if !found.inode.is_directory() && names != found.seen.links as usize {
            return Err(format!("{file:?} has {names} names and counts {} links", found.seen.links));
        }
        let within = self.found.names.places().filter(|(directory, _)| *directory == file);
        let size: usize = within.map(|(_, name)| 2 * name.len()).sum();
        if found.inode.is_directory() && size as u64 != found.seen.size {
            return Err(format!("{file:?} has {} bytes, its names {size}", found.seen.size));
        }
        Ok(())
    }

    /// Attributes: those of the item together, and the extended ones together, as at some moment since the
    /// last fsync.
    fn attributes(&self, file: FileId, found: &FoundInode, synced: Option<usize>) -> Judged {
        let nodes: Vec<&Node> =
            self.moments[synced.unwrap_or(0)..].iter().filter_map(|moment| moment.node(file)).collect();
        let is_item = |node: &&Node| has_item(node, &found.seen);
        let has_attributes = |node: &&Node| has_attributes(node, found);
        let is_right = nodes.iter().any(is_item) && nodes.iter().any(has_attributes);
        if is_right {
            return self.target(file, found, &nodes);
        }
        let (items, attributes) = (nodes.iter().any(is_item), nodes.iter().any(has_attributes));
        let names: Vec<_> = found.attributes.keys().map(|name| String::from_utf8_lossy(name)).collect();
        Err(format!(
            "{file:?} is {:?} (once so: {items}) with attributes {names:?} (once so: {attributes})",
            found.seen
        ))
    }

    fn target(&self, file: FileId, found: &FoundInode, nodes: &[&Node]) -> Judged {
        if found.inode.file_type() != vlinder_fs::FileType::SymbolicLink {
            return Ok(());
        }
        let target = self.subject.filesystem.names().read_link(&found.inode);
        let target = target.map_err(|error| format!("{file:?}: {error}"))?;
        match nodes.iter().any(|node| node.target == target) {
            true => Ok(()),
            false => Err(format!("the target of {file:?} has {} bytes that it never had", target.len())),
        }
    }

    /// Content: that of one of these moments.
    fn content(&self, file: FileId, found: &FoundInode, moments: &[Moment]) -> Judged {
        let nodes: Vec<&Node> = moments.iter().filter_map(|moment| moment.node(file)).collect();
        let in_place = nodes.iter().any(|node| node.is_written_in_place());
        let others: &[&Node] = if in_place { &nodes } else { &[] };
        let mut wrong = format!("{file:?} has {} bytes, as it never had", found.seen.size);
        let mut tried: Vec<&Node> = Vec::new();
        for node in nodes.iter().filter(|node| node.content.size() == found.seen.size) {
            if tried.iter().any(|tried| std::ptr::eq(*tried, *node)) {
                continue;
            }
            tried.push(node);
            let what = format!("{file:?}");
            match self.subject.compare_content(&what, &found.inode, node, others) {
                Ok(()) => return Ok(()),
                Err(error) => wrong = format!("the content of {file:?} never was so: {error}"),
            }
        }
        Err(wrong)
    }

    /// What one fsync promised about names; the rest was judged with the inodes that are there.
    fn promise(&self, Synced { step, file, data_only }: Synced) -> Judged {
        let since = &self.moments[step..];
        let after = |wrong: String| format!("{wrong}: not so at any moment since its fsync (step {step})");
        let is_subvolume = file.number == ROOT_DIRECTORY;
        if data_only && !is_subvolume {
            let is_never_nameless = since.iter().all(|moment| moment.names.of(file).is_some());
            if is_never_nameless && !self.found.inodes.contains_key(&file) {
                return Err(format!("{file:?} was fdatasynced (step {step}), and is lost"));
            }
        } else if !is_subvolume {
            self.names_are_of(since, file).map_err(after)?;
            let then = since.first().and_then(|moment| moment.names.of(file));
            for name in then.into_iter().flatten() {
                self.name_is_of(since, name).map_err(after)?;
            }
        }
        let known = since.iter().flat_map(|moment| moment.names.places());
        let within: BTreeSet<&Name> =
            known.chain(self.found.names.places()).filter(|(directory, _)| *directory == file).collect();
        within.into_iter().try_for_each(|name| self.name_is_of(since, name).map_err(after))
    }
}

fn since(synced: Option<usize>) -> String {
    synced.map_or_else(String::new, |step| format!(", since its fsync (step {step})"))
}

fn show((directory, name): &Name) -> String {
    format!("{}:{}/{}", directory.root, directory.number, String::from_utf8_lossy(name))
}

/// Type, mode, owner, flags, number of a device, and of all but directories the time.
fn has_item(node: &Node, found: &Seen) -> bool {
    let expected = node.seen();
    let is_timed = node.kind != NodeKind::Directory && node.modified.is_some();
    let modified = if is_timed { expected.modified } else { found.modified };
    let flags = if node.flags.is_some() { expected.flags } else { found.flags };
    let expected = Seen { modified, flags, links: found.links, size: found.size, ..expected };
    expected == *found
}

fn has_attributes(node: &Node, found: &FoundInode) -> bool {
    let mut expected = node.attributes.clone();
    let property = b"btrfs.compression".as_slice();
    match &node.compression {
        Some(value) if !value.is_empty() => drop(expected.insert(property.to_vec(), value.clone())),
        Some(_) => {}
        None => {
            let value = found.attributes.get(property);
            expected.extend(value.map(|value| (property.to_vec(), value.clone())));
        }
    }
    expected == found.attributes
}

#[cfg(test)]
mod tests;
