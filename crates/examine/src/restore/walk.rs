//! From name to name: what becomes of each.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;
use vlinder_format::{ObjectId, RootId};
use vlinder_fs::salvage::{ItemPlace, Name, Salvage, item_of};
use vlinder_fs::{Inode, InodeId};
use vlinder_places::caller::umask;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::path_filter::PathFilter;
use vlinder_places::place::image::status_of;
use vlinder_places::place::{
    Attributed, CAPABILITIES, Change, Directory, FileStatus, Location, Sink, WITHOUT_SET_ID_BITS,
    check_entry, give_owner,
};
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::text::escaped;

use super::content::Copy;
use super::options::RestoreOptions;
use super::report::Report;
use super::target::{LOST_AND_FOUND, RestoreFrame, WHILE_FILLED, is_there, lost_and_found, make_directory};
use super::visited::Visited;

/// What is added to the name of a file that could be read in part only.
const PARTIAL: &[u8] = b".partial";
/// Files with several names that are remembered, to be linked again: further ones become copies.
const MAX_LINKED: usize = 1 << 17;

/// A directory whose names are to follow, where they go, and whether it was made for them.
type Below = (InodeId, Option<Directory>, bool);

/// What the copying of one file hands on to the next.
struct CopyState {
    /// The first copy of each file that has several names.
    links: HashMap<InodeId, Location>,
    buffer: Vec<u8>,
    progress: Progress,
}

/// One restoration.
pub struct Restorer<'a> {
    options: &'a RestoreOptions,
    /// Each file that is restored is told.
    is_verbose: bool,
    session: &'a Session,
    salvage: &'a Salvage,
    filter: Option<PathFilter>,
    report: Report<'a>,
    visited: Visited,
    copies: CopyState,
    /// An image can't know which names have one hash.
    hasher: RandomState,
    /// From the root that is restored.
    path: Vec<u8>,
    umask: u32,
    /// The host takes no more.
    is_stopped: bool,
}

impl<'a> Restorer<'a> {
    /// None is restored yet.
    pub fn new(
        options: &'a RestoreOptions,
        is_verbose: bool,
        session: &'a Session,
        salvage: &'a Salvage,
        filter: Option<PathFilter>,
        report: Report<'a>,
    ) -> Self {
        Self {
            options,
            is_verbose,
            session,
            salvage,
            filter,
            report,
            visited: Visited::default(),
            copies: CopyState {
                links: HashMap::new(),
                buffer: Vec::new(),
                progress: Progress::new(session, "restoring", None),
            },
            hasher: RandomState::new(),
            path: Vec::new(),
            umask: umask(),
            is_stopped: false,
        }
    }

    /// How it went.
    pub fn into_report(self) -> Report<'a> {
        self.report
    }

    /// Restores a subvolume and what lies below it; with `all`, subvolumes too that no name leads to any
    /// more.
    pub fn run(&mut self, start: RootId, target: Option<&Directory>, all: bool) {
        self.subvolume(start, target.cloned());
        if self.filter.is_some() {
            return;
        }
        if all && self.report.has_losses() {
            self.nameless_subvolumes(target);
        }
        // In a subvolume without damage, too: its names and its inodes need not agree.
        let damaged = std::mem::take(&mut self.visited.damaged);
        let entered = self.visited.entered();
        let roots: BTreeSet<RootId> = entered.chain(&damaged).copied().collect();
        for root in &roots {
            self.nameless_files(*root, target, damaged.contains(root));
        }
        // What nothing missed that was restored, such as what only says once more where a file lies.
        for item in self.salvage.left_out() {
            let is_met = roots.contains(&item.tree) || (all && item.tree == RootId::ROOT_TREE);
            if is_met && !self.report.has_told(&item.place) {
                self.lose(&format!("an item was left out: {}", item.reason));
            }
        }
    }

    fn subvolume(&mut self, root: RootId, to: Option<Directory>) {
        let id = InodeId::root_of(root);
        match self.salvage.filesystem().inode(id) {
            Ok(inode) if inode.is_directory() => {
                self.visited.see(id);
                self.directory(id, to);
            }
            Ok(_) => self.lose("the root of a subvolume is no directory"),
            Err(error) => {
                self.visited.damaged.insert(root);
                self.lose_item(item_of(&error), &format!("subvolume {root}: {error}"));
            }
        }
    }

    fn lose(&mut self, reason: &str) {
        let shown: &[u8] = if self.path.is_empty() { b"/" } else { &self.path };
        self.report.lose(shown, None, reason);
    }

    fn lose_item(&mut self, item: Option<ItemPlace>, reason: &str) {
        self.report.note_item(item);
        self.lose(reason);
    }

    /// Restores what lies in a directory, which is there already. Nothing is held but the way down.
    fn directory(&mut self, id: InodeId, to: Option<Directory>) {
        let above = self.path.len();
        let mut frames = vec![RestoreFrame::new(id, to, false, above)];
        while let Some(frame) = frames.last_mut() {
            if self.is_stopped {
                return;
            }
            let Some(name) = self.next_name(frame) else {
                self.finish(frame);
                self.path.truncate(frame.above);
                frames.pop();
                continue;
            };
            let length = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(&name.name);
            match self.entry(frame, &name) {
                Ok(Some((id, to, is_new))) => {
                    frames.push(RestoreFrame::new(id, to, is_new, length));
                    continue;
                }
                Ok(None) => {}
                Err(failure) => self.fail(&failure),
            }
            self.path.truncate(length);
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.is_stopped = matches!(failure.kind, Kind::NoSpace | Kind::ReadOnly);
        self.lose(&failure.to_string());
    }

    fn next_name(&mut self, frame: &mut RestoreFrame) -> Option<Name> {
        loop {
            if let Some(name) = frame.names.pop_front() {
                return Some(name);
            }
            let from = frame.next.take()?;
            let id = frame.id;
            if id.absent.is_some() {
                return None;
            }
            match self.salvage.names(id, from, frame.is_doubtful) {
                Ok(found) => {
                    for part in &found.lost {
                        self.visited.damaged.insert(id.root);
                        frame.is_doubtful = true;
                        self.lose_item(part.item, &format!("names in it may be lost: {}", part.reason));
                    }
                    frame.names = found.names.into();
                    frame.next = found.next.map(Some);
                }
                Err(error) => {
                    self.visited.damaged.insert(id.root);
                    self.lose(&format!("its names are lost: {error}"));
                }
            }
        }
    }

    /// What becomes of a name; gives a directory, whose names are to follow.
    fn entry(&mut self, frame: &mut RestoreFrame, name: &Name) -> Result<Option<Below>, Failure> {
        check_entry(&name.name)?;
        if self.filter.as_ref().is_some_and(|filter| !filter.is_match(&self.path)) {
            return Ok(None);
        }
        let to = frame.to.as_ref().map(|to| Location { directory: to.clone(), name: name.name.clone() });
        if frame.is_doubtful && self.visited.has_seen(name.id) && is_there(to.as_ref())? {
            return Ok(None);
        }
        if name.id.root != frame.id.root && !self.is_wanted(frame.id.root, name.id.root) {
            self.report.counts.skipped += 1;
            return Ok(None);
        }
        if name.id.root == frame.id.root && self.is_taken(frame, name) {
            return Ok(None);
        }
        let inode = match self.salvage.filesystem().inode(name.id) {
            Ok(inode) => inode,
            Err(error) => {
                self.visited.damaged.insert(name.id.root);
                self.lose_item(item_of(&error), &error.to_string());
                return Ok(None);
            }
        };
        let is_new = self.visited.see(name.id);
        if inode.is_directory() && !is_new {
            self.lose("a second name of a directory; what is in it was restored under its first");
            return Ok(None);
        }
        let is_directory = inode.is_directory();
        let done = self.file_of_any_type(inode, to);
        if is_directory && done.is_err() {
            self.visited.unentered.insert(name.id.root);
        }
        done
    }

    /// Whether the name came before in its directory. Where it stood for another file, this one is looked for
    /// by its number later.
    fn is_taken(&mut self, frame: &mut RestoreFrame, name: &Name) -> bool {
        let number = name.id.number;
        let Some(first) = frame.came.insert(self.hasher.hash_one(&name.name[..]), number) else {
            return false;
        };
        if first != number && !self.visited.has_seen(name.id) {
            self.lose("another file in the directory has this name, too");
        }
        true
    }

    /// Whether a subvolume belongs under a directory of another, and was asked for.
    fn is_wanted(&self, parent: RootId, child: RootId) -> bool {
        // In a snapshot, the names of subvolumes that lie in its source show nothing.
        if self.salvage.filesystem().subvolumes().lies_in(child, parent).is_ok_and(|lies| !lies) {
            return false;
        }
        self.options.snapshots || !self.salvage.is_snapshot(child).unwrap_or(false)
    }

    fn file_of_any_type(
        &mut self,
        inode: Arc<Inode>,
        to: Option<Location>,
    ) -> Result<Option<Below>, Failure> {
        let file_type = inode.file_type();
        let is_asked_for = match file_type {
            FileType::Directory | FileType::Regular => true,
            FileType::SymbolicLink => self.options.symlinks,
            _ => self.options.makes_devices,
        };
        let existing = match &to {
            Some(to) if is_asked_for => to.look()?,
            _ => None,
        };
        if file_type == FileType::Directory {
            let to = to.map(|to| make_directory(&to, existing.as_ref())).transpose()?;
            self.report.counts.directories += 1;
            return Ok(Some((inode.id(), to, existing.is_none())));
        }
        if existing.as_ref().is_some_and(|existing| existing.file_type == FileType::Directory) {
            return Err(Failure::new(Kind::Exists, "a directory is in its place"));
        }
        if !is_asked_for || (existing.is_some() && !self.options.overwrite) {
            self.report.counts.skipped += 1;
            return Ok(None);
        }
        if self.is_verbose || (to.is_none() && !self.session.json) {
            self.session.tell(escaped(&self.path))?;
        }
        match (file_type, to) {
            (FileType::Regular, to) => self.regular(&inode, to)?,
            (_, None) => self.count(file_type),
            (_, Some(to)) => {
                if existing.is_some() {
                    to.directory.unlink(&to.name)?;
                }
                self.special(&inode, &to)?;
                self.count(file_type);
            }
        }
        Ok(None)
    }

    fn count(&mut self, file_type: FileType) {
        let counter = match file_type {
            FileType::SymbolicLink => &mut self.report.counts.symbolic_links,
            _ => &mut self.report.counts.special_files,
        };
        *counter += 1;
    }

    fn special(&mut self, inode: &Arc<Inode>, to: &Location) -> Result<(), Failure> {
        if inode.file_type() == FileType::SymbolicLink {
            let text = self.salvage.filesystem().names().read_link(inode);
            let text = text.map_err(|error| {
                self.report.note_item(item_of(&error));
                Failure::new(Kind::Corruption, error.to_string())
            })?;
            to.directory.make_link(&to.name, &text)?;
        } else {
            to.directory.make_node(&to.name, &self.status(inode))?;
        }
        self.attributes(inode, to, true)
    }

    fn regular(&mut self, inode: &Arc<Inode>, to: Option<Location>) -> Result<(), Failure> {
        let Some(to) = to else {
            self.report.counts.files += 1;
            return Ok(());
        };
        let has_links = self.salvage.filesystem().attributes().of(inode).link_count > 1;
        if has_links && let Some(first) = self.copies.links.get(&inode.id()) {
            if to.look()?.is_some() {
                to.directory.unlink(&to.name)?;
            }
            first.directory.link(&first.name, &to)?;
            self.report.counts.files += 1;
            return Ok(());
        }
        let Directory::Host(directory) = &to.directory else {
            return Err(Failure::new(Kind::Invalid, "files are restored to directories of the host alone"));
        };
        let mut sink = directory.begin(&to.name, 0o600)?;
        let mut copy = Copy {
            salvage: self.salvage,
            inode,
            buffer: &mut self.copies.buffer,
            progress: &self.copies.progress,
        };
        let copied = copy.run(&mut sink)?;
        self.attributes(inode, &sink, true)?;
        let is_whole = copied.holes.is_empty();
        for hole in &copied.holes {
            self.report.note_item(hole.item);
            self.report.lose(&self.path, Some((hole.start, hole.end)), &hole.reason);
        }
        self.report.counts.restored_bytes += copied.bytes;
        self.report.counts.unverified_bytes += copied.unverified_bytes;
        if is_whole {
            Sink::finish(Box::new(sink))?;
            self.report.counts.files += 1;
            if has_links && self.copies.links.len() < MAX_LINKED {
                self.copies.links.insert(inode.id(), to);
            }
            return Ok(());
        }
        self.visited.damaged.insert(inode.id().root);
        let name = [&to.name[..], PARTIAL].concat();
        if to.directory.look(&name)?.is_some() && !self.options.overwrite {
            let place = to.directory.place(&name);
            return Err(Failure::new(Kind::Exists, "what could be read is not kept: it exists").at(place));
        }
        sink.set_name(&name);
        Sink::finish(Box::new(sink))?;
        self.report.counts.partial_files += 1;
        Ok(())
    }

    fn status(&self, inode: &Inode) -> FileStatus {
        status_of(self.salvage.filesystem(), inode)
    }

    /// Gives what was restored the attributes that were asked for. A directory that was there before (not
    /// `is_new`) keeps its mode where none were asked for.
    fn attributes(&mut self, inode: &Arc<Inode>, to: &dyn Attributed, is_new: bool) -> Result<(), Failure> {
        let status = self.status(inode);
        let is_link = status.file_type == FileType::SymbolicLink;
        let mut permissions = if self.options.metadata { Some(give_owner(to, &status)?) } else { None };
        if self.options.drops_rights {
            permissions = permissions.map(|permissions| permissions & WITHOUT_SET_ID_BITS);
        }
        if self.options.xattr {
            self.extended_attributes(inode, to);
        }
        let Some(permissions) = permissions else {
            let permissions = status.permissions & 0o777 & !self.umask;
            let permissions = match status.file_type {
                FileType::Regular => Some(permissions),
                // The user who restores it can go on to work in it.
                FileType::Directory if is_new => Some(permissions | WHILE_FILLED),
                _ => None,
            };
            return to.change(&Change { permissions, ..Change::default() });
        };
        let times = Some((status.times.access, status.times.modification));
        to.change(&Change { owner: None, permissions: (!is_link).then_some(permissions), times })
    }

    fn extended_attributes(&mut self, inode: &Arc<Inode>, to: &dyn Attributed) {
        let mut failures = Vec::new();
        let drops_rights = self.options.drops_rights;
        let lost = self.salvage.attributes(inode.id(), &mut |(name, value)| {
            if drops_rights && name == CAPABILITIES {
                return;
            }
            match to.set_attribute(&name, &value) {
                Ok(()) => {}
                // What only root may set, or the host does not know, is left out, as by cp -a.
                Err(failure)
                    if !name.starts_with(b"user.")
                        && matches!(failure.kind, Kind::Permission | Kind::Unsupported) => {}
                Err(failure) if failures.len() < 16 => {
                    let name = escaped(&name);
                    failures.push(format!("attribute {name}: {}", failure.message));
                }
                Err(_) => {}
            }
        });
        match lost {
            Ok(lost) => failures.extend(lost.into_iter().map(|part| {
                self.report.note_item(part.item);
                format!("attributes: {}", part.reason)
            })),
            Err(error) => failures.push(format!("attributes: {error}")),
        }
        for failure in failures {
            self.lose(&failure);
        }
    }

    /// Attributes come last: what is made in a directory changes its times.
    fn finish(&mut self, frame: &RestoreFrame) {
        let Some(to) = &frame.to else { return };
        let is_asked_for = frame.is_new || self.options.metadata || self.options.xattr;
        if frame.above == self.path.len() || !is_asked_for {
            return;
        }
        let place = Location { directory: to.clone(), name: b".".to_vec() };
        match self.salvage.filesystem().inode(frame.id) {
            Ok(inode) => {
                if let Err(failure) = self.attributes(&inode, &place, frame.is_new) {
                    self.fail(&failure);
                }
            }
            Err(error) => self.lose_item(item_of(&error), &format!("its attributes are lost: {error}")),
        }
    }

    /// Files of a subvolume that no name led to: their directory is lost, or its part with their names, or
    /// the directory has another file of that name.
    fn nameless_files(&mut self, root: RootId, target: Option<&Directory>, is_told: bool) {
        let mut at = ObjectId::FIRST_FREE;
        while let Ok(Some(number)) = self.salvage.next_inode(root, at) {
            let id = InodeId::new(root, number);
            if !self.visited.has_seen(id) && !self.is_stopped {
                self.nameless_file(id, target, is_told);
            }
            match number.0.checked_add(1) {
                Some(next) => at = ObjectId(next),
                None => return,
            }
        }
    }

    /// `is_told`: it is known that names of the subvolume are lost.
    fn nameless_file(&mut self, id: InodeId, target: Option<&Directory>, is_told: bool) {
        let Ok(inode) = self.salvage.filesystem().inode(id) else { return };
        if self.salvage.filesystem().attributes().of(&inode).link_count == 0 {
            return;
        }
        let (parent, name) = match self.salvage.own_name(id) {
            Ok(Some((parent, name))) if check_entry(&name).is_ok() => (parent.0, name),
            _ => (0, format!("inode-{}", id.number).into_bytes()),
        };
        self.visited.see(id);
        let place = format!("{}-{parent}", id.root).into_bytes();
        self.path = [b"/", LOST_AND_FOUND, b"/", &place, b"/", &name].concat();
        if !is_told {
            self.lose("no directory leads to it by this name");
        }
        let made = target.map(|target| lost_and_found(target, &place)).transpose();
        let done = made.and_then(|directory| {
            let to = directory.map(|directory| Location { directory, name });
            self.file_of_any_type(inode, to)
        });
        match done {
            Ok(Some((id, to, _))) => self.directory(id, to),
            Ok(None) => {}
            Err(failure) => self.fail(&failure),
        }
        self.path.clear();
    }

    /// Subvolumes that no name led to.
    fn nameless_subvolumes(&mut self, target: Option<&Directory>) {
        let mut roots = BTreeSet::new();
        let lost = self.salvage.roots(&mut |root| {
            let is_subvolume = root.id.is_subvolume() && !root.is_deleted;
            if is_subvolume && (self.options.snapshots || !root.is_snapshot) {
                roots.insert(root.id);
            }
        });
        for part in lost {
            self.lose_item(part.item, &format!("subvolumes may be lost: {}", part.reason));
        }
        for root in roots {
            // Of one that some name led to in vain that was told.
            if self.visited.has_entered(root) || self.visited.damaged.contains(&root) || self.is_stopped {
                continue;
            }
            let place = format!("subvolume-{root}").into_bytes();
            self.path = [b"/", LOST_AND_FOUND, b"/", &place].concat();
            match target.map(|target| lost_and_found(target, &place)).transpose() {
                Ok(to) => self.subvolume(root, to),
                Err(failure) => self.fail(&failure),
            }
            self.path.clear();
        }
    }
}
