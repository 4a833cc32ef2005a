//! Copying one tree: what becomes of each name.

use std::collections::{HashMap, HashSet};

use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::inode::FileType;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::place::{
    ACCESS_LISTS, Attributed, CAPABILITIES, Change, Directory, DirectoryNames, Entry, FileStatus, Location,
    Names, Origin, Shared, Sink, Source, Take, WITHOUT_SET_ID_BITS, give_owner, locate,
};
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::text::escaped;

use super::options::{CopyOptions, Reflink};
use super::same_file::{is_same_file, itself};
use crate::files::destination::{dangling, no_regular_file};
use crate::files::mode;

/// Bytes copied at a time.
pub(super) const STEP: usize = 1 << 20;

/// What all threads of a copy share.
pub struct Copier<'a> {
    pub(super) options: &'a CopyOptions,
    pub(super) session: &'a Session,
    pub(super) progress: Progress,
    /// The first copy of each file that has several names.
    links: Mutex<HashMap<(Origin, u64, u64), Location>>,
    /// Directories that this copy made: a source that contains its own destination must not go round.
    made: Mutex<HashSet<(Origin, u64, u64)>>,
    /// Asked once: to ask, the process has none for a moment.
    umask: u32,
    tally: Mutex<Tally>,
    pub(super) bytes: AtomicU64,
    /// Bytes of files that share the extents of their source.
    shared_bytes: AtomicU64,
    /// What every further copy would meet as well.
    stopped: AtomicBool,
    reason: Mutex<Option<Failure>>,
}

/// A directory that is being copied. The thread that lets go of it last finishes it.
pub(super) struct CopyFrame {
    pub(super) from: Directory,
    pub(super) to: Directory,
    /// To be set when all below is there, because copying changes the times.
    status: FileStatus,
    /// This copy made it: nothing lay in it.
    is_new: bool,
    /// The permissions that it gets at the end, where it has more until then for what is to be made in it.
    restores: Option<u32>,
    source: Location,
    target: Location,
    /// The one that it lies in, which may be closed to us once it has its permissions.
    parent: Option<Arc<CopyFrame>>,
}

/// A directory with the names that are still to be copied.
pub(super) struct OpenFrame {
    pub(super) frame: Arc<CopyFrame>,
    pub(super) entries: Names,
}

/// What one thread uses again from file to file.
#[derive(Default)]
pub(super) struct Scratch {
    buffer: Vec<u8>,
}

impl<'a> Copier<'a> {
    /// None is copied yet.
    pub fn new(options: &'a CopyOptions, session: &'a Session) -> Self {
        Self {
            options,
            session,
            progress: Progress::new(session, "copying", None),
            links: Mutex::default(),
            made: Mutex::default(),
            umask: vlinder_places::caller::umask(),
            tally: Mutex::default(),
            bytes: AtomicU64::new(0),
            shared_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// Counts one that is done or failed; a failure is told at once.
    pub(super) fn note(&self, result: Result<(), Failure>) {
        self.tally.lock().add(result, self.session);
    }

    /// How many files could not be copied.
    pub fn failures(&self) -> u64 {
        self.tally.lock().failed()
    }

    /// How the copies went, how many bytes were read and written for them, and how many are shared.
    pub(super) fn end(self) -> (Tally, u64, u64) {
        (self.tally.into_inner(), self.bytes.into_inner(), self.shared_bytes.into_inner())
    }

    /// Whether going on makes no sense.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Why it makes none.
    pub(super) fn take_reason(&self) -> Option<Failure> {
        self.stopped.store(false, Ordering::Relaxed);
        self.reason.lock().take()
    }

    /// Copies a name of an open directory; gives the directory, whose content is to follow, if it is one.
    pub(super) fn entry(
        &self,
        frame: &Arc<CopyFrame>,
        entry: Entry,
        scratch: &mut Scratch,
    ) -> Option<OpenFrame> {
        let source = Location { directory: frame.from.clone(), name: entry.name.clone() };
        let target = Location { directory: frame.to.clone(), name: entry.name };
        match self.one(&source, &target, Some(frame), scratch) {
            Ok(open) => open,
            Err(failure) if matches!(failure.kind, Kind::NoSpace | Kind::ReadOnly) => {
                self.reason.lock().get_or_insert(failure);
                self.stopped.store(true, Ordering::Relaxed);
                None
            }
            Err(failure) => {
                self.note(Err(failure));
                None
            }
        }
    }

    /// Lets go of a directory. The last to do so gives it its attributes, then lets go of the one above. A
    /// directory that is not complete gets them too, for what is in it is to be reached, but is not counted
    /// as copied.
    pub(super) fn release(&self, frame: Arc<CopyFrame>) {
        let mut next = Arc::into_inner(frame);
        while let Some(frame) = next {
            let finished = self.finish_directory(&frame);
            if !self.is_stopped() {
                self.note(finished);
            }
            next = frame.parent.and_then(Arc::into_inner);
        }
    }

    /// Copies one file; gives a directory, whose content is to follow.
    pub(super) fn one(
        &self,
        from: &Location,
        to: &Location,
        parent: Option<&Arc<CopyFrame>>,
        scratch: &mut Scratch,
    ) -> Result<Option<OpenFrame>, Failure> {
        let status = from.status()?;
        let is_content = status.file_type == FileType::Regular;
        // Into a directory that this copy made nothing but this copy puts a name.
        let is_vacant = is_content && parent.is_some_and(|parent| parent.is_new);
        let follows = is_content && parent.is_none() && !self.options.replaces;
        let (to, existing) = if is_vacant { (to.clone(), None) } else { self.reached(to, follows)? };
        if existing.as_ref().is_some_and(|existing| is_same_file((from, &status), (&to, existing))) {
            let failure = Failure::new(Kind::Invalid, "source and destination are the same file");
            return Err(failure.at(to.place()));
        }
        if status.file_type == FileType::Directory {
            return self.directory(from, &to, status, existing.as_ref(), parent).map(Some);
        }
        if let Some(existing) = &existing {
            if existing.file_type == FileType::Directory {
                return Err(Failure::new(Kind::Exists, "a directory is in the way").at(to.place()));
            }
            if self.options.no_clobber {
                return Ok(None);
            }
            let takes_content = is_content && !self.options.replaces;
            if takes_content && !matches!(existing.file_type, FileType::Regular | FileType::SymbolicLink) {
                return Err(no_regular_file(&to));
            }
        }
        self.file(from, &to, &status, existing.as_ref(), scratch)?;
        self.note(Ok(()));
        if self.options.verbose {
            self.session.tell(format!("{} -> {}", from.place(), to.place()))?;
        }
        Ok(None)
    }

    /// The location that content for a name goes to, with what is there. Where `follows`, and in an image, a
    /// symbolic link stands for the file that it leads to there, as for cp. On the host, and below a
    /// directory that is copied, no link is followed: it may come from an image, and would lead the copy out
    /// of the directory that the user named.
    pub(super) fn reached(
        &self,
        to: &Location,
        follows: bool,
    ) -> Result<(Location, Option<FileStatus>), Failure> {
        let existing = to.look()?;
        let is_link = existing.as_ref().is_some_and(|found| found.file_type == FileType::SymbolicLink);
        let Directory::Image(directory) = &to.directory else { return Ok((to.clone(), existing)) };
        if !(is_link && follows) || self.options.no_clobber {
            return Ok((to.clone(), existing));
        }
        let reached = locate::link_in_image(directory, &to.name)?;
        match reached.look()? {
            Some(found) => Ok((reached, Some(found))),
            None => Err(dangling(to.place())),
        }
    }

    fn directory(
        &self,
        from: &Location,
        to: &Location,
        status: FileStatus,
        existing: Option<&FileStatus>,
        parent: Option<&Arc<CopyFrame>>,
    ) -> Result<OpenFrame, Failure> {
        if !(self.options.recursive || self.options.archive) {
            return Err(Failure::new(Kind::Invalid, "a directory")
                .at(from.place())
                .hint("copy it with -r or -a"));
        }
        if self.made.lock().contains(&(from.directory.origin(), status.volume, status.inode)) {
            return Err(Failure::new(Kind::Invalid, "the destination lies in it; left out").at(from.place()));
        }
        match existing {
            Some(existing) if existing.file_type == FileType::Directory => {}
            Some(_) => {
                return Err(Failure::new(Kind::Exists, "it is there, and is no directory")
                    .at(to.place())
                    .hint("remove it first, or name another destination"));
            }
            None if self.keeps() => to.directory.make_directory(&to.name, 0o700)?,
            // With all its bits at once, so that umask, default ACLs and set-group-id come from the directory
            // above. Where a default ACL takes the place of the umask, cp leaves the umask's rights to write
            // away nevertheless.
            None => {
                let refused = 0o022 & self.umask;
                to.directory.make_directory(&to.name, status.permissions & 0o1777 & !refused | 0o700)?;
            }
        }
        let (source, target) = (from.directory.enter(&from.name)?, to.directory.enter(&to.name)?);
        let DirectoryNames { entries, refused } = source.list()?;
        refused.into_iter().for_each(|failure| self.note(Err(failure)));
        let made = target.status(b".")?;
        let surplus = 0o700 & !status.permissions;
        let restores =
            (existing.is_none() && !self.keeps() && surplus != 0).then_some(made.permissions & !surplus);
        self.made.lock().insert((target.origin(), made.volume, made.inode));
        self.progress.name(|| from.place());
        let frame = Arc::new(CopyFrame {
            from: source,
            to: target,
            status,
            is_new: existing.is_none(),
            restores,
            source: from.clone(),
            target: to.clone(),
            parent: parent.map(Arc::clone),
        });
        Ok(OpenFrame { frame, entries })
    }

    fn finish_directory(&self, frame: &CopyFrame) -> Result<(), Failure> {
        let target = itself(&frame.to, &frame.target);
        if self.keeps() {
            return self.attributes(&itself(&frame.from, &frame.source), &target, &frame.status);
        }
        let change = Change { permissions: frame.restores, ..Change::default() };
        if change.permissions.is_some() { target.change(&change) } else { Ok(()) }
    }

    fn keeps(&self) -> bool {
        self.options.archive || self.options.preserve
    }

    fn file(
        &self,
        from: &Location,
        to: &Location,
        status: &FileStatus,
        existing: Option<&FileStatus>,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        if !(self.options.archive && status.links > 1) {
            return self.new_file(from, to, status, existing, scratch);
        }
        // Held until the first name is there, for the others are linked to it.
        let mut links = self.links.lock();
        let identity = (from.directory.origin(), status.volume, status.inode);
        if let Some(first) = links.get(&identity) {
            if existing.is_some() || to.look()?.is_some() {
                to.directory.unlink(&to.name)?;
            }
            return first.directory.link(&first.name, to);
        }
        self.new_file(from, to, status, existing, scratch)?;
        links.insert(identity, to.clone());
        Ok(())
    }

    fn new_file(
        &self,
        from: &Location,
        to: &Location,
        status: &FileStatus,
        existing: Option<&FileStatus>,
        scratch: &mut Scratch,
    ) -> Result<(), Failure> {
        if status.file_type != FileType::Regular {
            self.special(from, to, status, existing)?;
            return if self.keeps() { self.attributes(from, to, status) } else { Ok(()) };
        }
        let overwritten = self.overwritten(existing);
        let (sink, copied_bytes) = self.content(from, to, status, overwritten, scratch)?;
        if !self.keeps() {
            sink.finish()?;
        } else if sink.takes_attributes_last() {
            sink.finish()?;
            self.attributes(from, to, status)?;
        } else {
            self.attributes(from, &*sink, status)?;
            sink.finish()?;
        }
        self.bytes.fetch_add(copied_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The file that stays and gets new content, if what exists is one. As with cp -a, a copy that keeps hard
    /// links cuts those that a file had before.
    pub(super) fn overwritten<'e>(&self, existing: Option<&'e FileStatus>) -> Option<&'e FileStatus> {
        existing.filter(|found| {
            found.file_type == FileType::Regular
                && !self.options.replaces
                && !(self.options.archive && found.links > 1)
        })
    }

    /// Begins a file: with these permissions, as far as the umask leaves them, or as new content of one that
    /// stays.
    pub(super) fn sink(
        &self,
        to: &Location,
        permissions: u32,
        overwritten: Option<&FileStatus>,
    ) -> Result<Box<dyn Sink>, Failure> {
        if overwritten.is_none() {
            return to.directory.create(&to.name, permissions);
        }
        to.directory.overwrite(&to.name)
    }

    /// Begins a file with the content of another; says how many bytes that are.
    fn content(
        &self,
        from: &Location,
        to: &Location,
        status: &FileStatus,
        overwritten: Option<&FileStatus>,
        scratch: &mut Scratch,
    ) -> Result<(Box<dyn Sink>, u64), Failure> {
        let mut source = from.open_seen(status)?;
        // What gets its owner later is nobody else's until then.
        let permissions = if self.keeps() { 0o600 } else { status.permissions & 0o777 };
        let mut sink = self.sink(to, permissions, overwritten)?;
        if self.is_shared(&*source, &mut *sink, status.size_bytes)? {
            return Ok((sink, 0));
        }
        let mut end = 0;
        let copied_bytes = self.transfer(&mut *source, scratch, &mut |runs| {
            for (offset, data) in runs {
                end = offset + data.len() as u64;
                sink.write_at(*offset, data)?;
            }
            Ok(())
        })?;
        sink.set_size(status.size_bytes.max(end))?;
        Ok((sink, copied_bytes))
    }

    /// Shares the extents of a file, if that is wished and can be.
    fn is_shared(&self, source: &dyn Source, sink: &mut dyn Sink, size_bytes: u64) -> Result<bool, Failure> {
        // Nothing can be shared of an empty file, nor be refused.
        if self.options.reflink == Reflink::Never || size_bytes == 0 {
            return Ok(false);
        }
        match (sink.share(source.content())?, self.options.reflink) {
            (Shared::Whole, _) => {
                self.shared_bytes.fetch_add(size_bytes, Ordering::Relaxed);
                self.progress.add(size_bytes);
                Ok(true)
            }
            (Shared::Refused(failure), Reflink::Always) => {
                Err(failure.hint("--reflink=auto copies what can't be shared"))
            }
            (Shared::Refused(_), _) => Ok(false),
        }
    }

    /// Gives the data of a file, in order, to `write`; returns how many bytes they were.
    pub(super) fn transfer(
        &self,
        source: &mut dyn Source,
        scratch: &mut Scratch,
        write: Take<'_>,
    ) -> Result<u64, Failure> {
        let (mut offset, mut copied_bytes) = (0, 0);
        let mut reported = 0;
        while let Some(end) = source.read_data(offset, &mut scratch.buffer, &mut |runs| {
            copied_bytes += runs.iter().map(|(_, data)| u64::try_from(data.len()).unwrap_or(0)).sum::<u64>();
            write(runs)
        })? {
            offset = end;
            self.progress.add(copied_bytes - reported);
            reported = copied_bytes;
        }
        Ok(copied_bytes)
    }

    fn special(
        &self,
        from: &Location,
        to: &Location,
        status: &FileStatus,
        existing: Option<&FileStatus>,
    ) -> Result<(), Failure> {
        let is_device = matches!(status.file_type, FileType::CharacterDevice | FileType::BlockDevice);
        if !(self.options.recursive || self.options.archive) {
            let text = format!("a {}", mode::type_name(status.file_type));
            return Err(Failure::new(Kind::Invalid, text)
                .at(from.place())
                .hint("copy it as it is with -r or -a"));
        }
        if is_device && !to.directory.is_image() && !self.options.makes_devices {
            let failure = Failure::new(Kind::Permission, "a device node; left out").at(from.place());
            return Err(failure.hint("give --devices if such nodes may be made on this host"));
        }
        let text = match status.file_type {
            FileType::SymbolicLink => Some(from.directory.read_link(&from.name)?),
            _ => None,
        };
        if existing.is_some() {
            to.directory.unlink(&to.name)?;
        }
        match text {
            Some(text) => to.directory.make_link(&to.name, &text),
            None => to.directory.make_node(&to.name, status),
        }
    }

    /// Gives a copy the attributes of its source that are to be kept.
    fn attributes(&self, from: &Location, to: &dyn Attributed, status: &FileStatus) -> Result<(), Failure> {
        let is_link = status.file_type == FileType::SymbolicLink;
        let mut permissions = give_owner(to, status)?;
        if self.options.drops_rights {
            permissions &= WITHOUT_SET_ID_BITS;
        }
        self.extended_attributes(from, to, status.file_type);
        let change = Change {
            owner: None,
            permissions: (!is_link).then_some(permissions),
            times: Some((status.times.access, status.times.modification)),
        };
        to.change(&change)
    }

    /// Copies the extended attributes of a file, or of them what belongs to its permissions. One that can't
    /// be copied is told and left out; the file and its other attributes are copied nevertheless, as by GNU
    /// cp. (If the destination is full, the next file meets that too.)
    fn extended_attributes(&self, from: &Location, to: &dyn Attributed, file_type: FileType) {
        let attributes = match from.directory.attributes(&from.name) {
            Ok(attributes) => attributes,
            Err(failure) => return self.leave_out("its attributes", failure),
        };
        for attribute in &attributes {
            let is_list = ACCESS_LISTS.contains(&&**attribute);
            if self.options.drops_rights && attribute == CAPABILITIES || !(self.options.archive || is_list) {
                continue;
            }
            let value = from.directory.attribute(&from.name, attribute);
            match value.and_then(|value| to.set_attribute(attribute, &value)) {
                Ok(()) => {}
                // As cp -a: what only root may set, or the destination does not know, is left out in silence.
                Err(failure)
                    if !attribute.starts_with(b"user.")
                        && matches!(failure.kind, Kind::Permission | Kind::Unsupported) => {}
                Err(failure) => self.leave_out(&format!("attribute {}", escaped(attribute)), failure),
            }
        }
        // A list that the copy has, of its directory or from before, would give rights that the source does
        // not give.
        let lists = match file_type {
            FileType::SymbolicLink => &[][..],
            FileType::Directory => &ACCESS_LISTS[..],
            _ => &ACCESS_LISTS[..1],
        };
        for list in lists.iter().filter(|list| !attributes.iter().any(|attribute| attribute == *list)) {
            if let Err(failure) = to.remove_attribute(list) {
                self.leave_out("its access control list", failure);
            }
        }
    }

    /// Tells that a part of a file's attributes was not copied.
    fn leave_out(&self, what: &str, failure: Failure) {
        let message = format!("{what}: {}; left out", failure.message);
        // For attributes, "no space" means mostly that the destination takes none of this size.
        let hint = if failure.kind == Kind::NoSpace {
            Some(
                "the destination has no room for it there: it limits the size of attributes, or is full"
                    .to_owned(),
            )
        } else {
            failure.hint
        };
        self.note(Err(Failure { message, hint, ..failure }));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use vlinder_places::session::Program;
    use vlinder_places::target::Follow;
    use vlinder_testkit::Scratch as Directory;

    use super::*;

    fn on_host(path: &Path) -> Location {
        locate::on_host(path, Follow::No).unwrap()
    }

    /// What an enemy does who may change the source's directory: the copy would have the mode of the one file
    /// and the content of the other.
    #[test]
    fn a_file_that_replaced_the_one_seen_is_not_copied() {
        let scratch = Directory::new("replaced-source");
        let [source, other, target] = ["source", "other", "target"].map(|name| scratch.join(name));
        std::fs::write(&source, b"for everybody").unwrap();
        std::fs::write(&other, b"secret").unwrap();
        let options = CopyOptions { replaces: false, ..CopyOptions::of_move(false, false) };
        let session = Session::new(Program::Vlinder, "cp".to_owned(), false, false);
        let copier = Copier::new(&options, &session);
        let (from, to) = (on_host(&source), on_host(&target));
        let seen = from.status().unwrap();
        let copy = || copier.content(&from, &to, &seen, None, &mut Scratch::default()).map(drop);
        copy().unwrap();
        std::fs::rename(&other, &source).unwrap();
        let refused = copy().unwrap_err();
        assert_eq!(refused.kind, Kind::Exists, "{refused}");
        assert!(refused.message.contains("another file has taken its place"), "{refused}");
        assert_eq!(refused.place.as_deref(), source.to_str());
        // Nothing was begun.
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
