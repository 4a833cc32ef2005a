//! Filling a new file system from its source.
//!
//! One thread writes, as the source's [`Sink`], in the order that [`Source::read`] gives; so the image
//! depends on the source alone, not on the number of threads that read it. A directory's extended attributes,
//! owner and times are set when all its names are there: its default ACL and properties are not for what was
//! copied, and each new name would change its times.

mod attributes;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_device::HostIdentity;
use vlinder_fs::{
    Caller, Capabilities, ContentTimes, DeviceNumber, FileType, Filesystem, FsError, GroupId, Inode,
    InodeFlags, NewFileName, Refusal, RootId, SetAttributes, UserId, WriteOrigin,
};

use super::doubles::{self, Fingerprint, StoredFiles};
use super::error::MkfsError;
use super::inode_flags::{FlagsByPath, HANDED_DOWN};
use super::progress::Progress;
use super::source::{Content, Entry, Kind, Reading, Sink, Source, SourceDirectory, SourceError, join, shown};
use super::subvolumes::{SubvolumeAccess, SubvolumeDirectory};

/// Bytes of data that are written out together, while the next files are made: enough for many files to share
/// what is expensive, and so few that they are still in the processor's caches.
const FLUSH_BYTES: u64 = 2 << 20;
/// The same where data are compressed, which is the most expensive part: enough for many cores.
const COMPRESSED_FLUSH_BYTES: u64 = 32 << 20;
/// Entries between two calls of the progress function.
const ENTRIES_IN_STEP: u64 = 256;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Inodes made, without the root directory's.
    pub inodes: u64,
    /// Further names of these.
    pub hard_links: u64,
    /// Bytes of regular files, without holes.
    pub data_bytes: u64,
    /// Of these, bytes of files that share the extents of an equal file.
    pub shared_bytes: u64,
    /// Subvolumes made.
    pub subvolumes: u64,
    /// Extended attributes of kinds that Btrfs does not have; they were left out.
    pub skipped_attributes: u64,
}

/// What to copy from where.
pub(super) struct Population<'a> {
    pub(super) filesystem: &'a Filesystem,
    /// The source.
    pub(super) source: &'a Source,
    /// Directories that become subvolumes, by path below the source directory.
    pub(super) subvolumes: &'a HashMap<Vec<u8>, SubvolumeDirectory>,
    /// Flags that files and directories get, by path below the source directory.
    pub(super) inode_flags: &'a FlagsByPath,
    /// The image, so that it is not copied into itself.
    pub(super) target: HostIdentity,
    pub(super) size_bytes: u64,
    pub(super) threads: usize,
    /// Store equal files once.
    pub(super) dedupe: bool,
    /// Give everything its time of modification as that of access, so that reading the source does not change
    /// its image.
    pub(super) hides_access: bool,
    /// Set when the copying is to end early.
    pub(super) interrupted: &'a AtomicBool,
}

impl Population<'_> {
    /// Copies everything. The caller commits.
    pub(super) fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<Copied, MkfsError> {
        let entry = self.source.root_entry()?;
        let inode = self.filesystem.root()?;
        if let Some(flags) = self.inode_flags.get(&b""[..]) {
            self.set_flags(&inode, &entry, *flags)?;
        }
        let sector_bytes = usize::try_from(self.filesystem.sector_size()).unwrap_or(usize::MAX);
        let read = self.source.read(self.threads, sector_bytes, |reading| {
            let level = NewDirectory { inode, entry: Some(entry), above_bytes: 0, below: VecDeque::new() };
            let mut writer = Writer {
                population: self,
                progress,
                told: 0,
                levels: vec![level],
                path: Vec::new(),
                links: HashMap::new(),
                read_only: Vec::new(),
                default: None,
                waiting_bytes: 0,
                flush_bytes: match self.filesystem.options().compress {
                    Some(_) => COMPRESSED_FLUSH_BYTES,
                    None => FLUSH_BYTES,
                },
                stored: StoredFiles::default(),
                copied: Copied::default(),
            };
            reading.give_to(&mut writer)?;
            writer.finish_subvolumes()?;
            Ok(writer.copied)
        });
        read.map_err(|source| MkfsError::NoThreads { source })?
    }
}

impl Population<'_> {
    fn set_flags(&self, inode: &Arc<Inode>, entry: &Entry, flags: InodeFlags) -> Result<(), FsError> {
        let change = |present: InodeFlags, _| Ok(present.with(flags));
        self.filesystem.attributes().change_flags(&owner_of(entry), inode, change)
    }
}

/// A directory that is being filled.
struct NewDirectory {
    inode: Arc<Inode>,
    /// Until its attributes are set.
    entry: Option<Entry>,
    /// Bytes of the path of the directory above.
    above_bytes: usize,
    /// Directories in it that were made and are to be filled.
    below: VecDeque<(Arc<Inode>, Entry)>,
}

/// An inode with several names: the subvolume that it was made in, and itself on the host.
type LinkKey = (RootId, (u64, u64));

struct Writer<'a> {
    population: &'a Population<'a>,
    progress: &'a mut dyn FnMut(Progress),
    /// Names copied when `progress` was called last.
    told: u64,
    levels: Vec<NewDirectory>,
    /// The last level's below the source directory. One for each level would take memory with the square of
    /// their number.
    path: Vec<u8>,
    /// With how many names are still to come at most. Other subvolumes get an inode of their own.
    links: HashMap<LinkKey, (Arc<Inode>, u64)>,
    read_only: Vec<RootId>,
    default: Option<RootId>,
    /// Bytes of data that wait in memory.
    waiting_bytes: u64,
    /// So many are written out.
    flush_bytes: u64,
    /// Files that later ones are compared with; none without `--dedupe`.
    stored: StoredFiles,
    copied: Copied,
}

impl Sink for Writer<'_> {
    type Error = MkfsError;

    /// Files that nothing speaks against are made together; order and bounds of what is made together depend
    /// on the names alone.
    fn take(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        entries: Vec<Entry>,
    ) -> Result<(), MkfsError> {
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            if matches!(entry.kind, Kind::Regular(_)) && entry.links == 1 {
                files.push(entry);
                continue;
            }
            self.add_files(reading, directory, std::mem::take(&mut files))?;
            self.add(reading, directory, entry)?;
        }
        self.add_files(reading, directory, files)?;
        let done = self.copied.inodes + self.copied.hard_links;
        if done >= self.told + ENTRIES_IN_STEP {
            self.told = done;
            (self.progress)(Progress::Copied { entries: done, data_bytes: self.copied.data_bytes });
        }
        Ok(())
    }

    fn finish_directory(&mut self) -> Result<(), MkfsError> {
        let level = self.levels.last_mut().expect("the source's root is never left");
        let inode = Arc::clone(&level.inode);
        let Some(entry) = level.entry.take() else { return Ok(()) };
        self.set_attributes(&inode, &entry).map_err(|error| self.fail_at(&self.path, error))
    }

    fn enter(&mut self, name: &[u8], opened: Option<Entry>) -> Result<(), MkfsError> {
        let level = self.levels.last_mut().expect("the source's root is never left");
        // None came, or another one: what was a directory when it was listed was none when it was loaded, or
        // the other way round.
        let made = level.below.pop_front().filter(|(_, entry)| entry.name == name);
        let (inode, entry) = made.ok_or_else(|| SourceError::changed(&join(&self.path, name)))?;
        let entry = opened.unwrap_or(entry);
        let above_bytes = self.path.len();
        self.path = join(&self.path, &entry.name);
        self.levels.push(NewDirectory { inode, entry: Some(entry), above_bytes, below: VecDeque::new() });
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(left) = self.levels.pop() {
            self.path.truncate(left.above_bytes);
        }
    }
}

impl Writer<'_> {
    fn check_interrupted(&self) -> Result<(), MkfsError> {
        if self.population.interrupted.load(Ordering::Relaxed) { Err(MkfsError::Interrupted) } else { Ok(()) }
    }

    fn level(&self) -> &NewDirectory {
        self.levels.last().expect("the source's root is never left")
    }

    fn filesystem(&self) -> &Filesystem {
        self.population.filesystem
    }

    /// What may end the copying before an entry is made.
    fn check(&self, directory: &SourceDirectory, entry: &Entry) -> Result<(), MkfsError> {
        self.check_interrupted()?;
        if entry.seen.identity == (self.population.target.file_system, self.population.target.inode) {
            return Err(MkfsError::TargetInSource { path: shown(&join(&directory.path, &entry.name)) });
        }
        Ok(())
    }

    /// Makes regular files with one name each together, and fills them.
    fn add_files(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        files: Vec<Entry>,
    ) -> Result<(), MkfsError> {
        files.iter().try_for_each(|entry| self.check(directory, entry))?;
        let callers: Vec<Caller> = files.iter().map(owner_of).collect();
        let names = files.iter().zip(&callers).map(|(entry, caller)| NewFileName {
            caller,
            name: &entry.name,
            permissions: entry.permissions,
            times: self.times_of(entry),
        });
        let parent = Arc::clone(&self.level().inode);
        let Ok(made) = self.filesystem().names().create_files(&parent, &names.collect::<Vec<_>>()) else {
            // One by one they need less room at a time, and an error has a name.
            return files.into_iter().try_for_each(|entry| self.add(reading, directory, entry));
        };
        for (entry, inode) in files.into_iter().zip(made) {
            self.check_interrupted()?;
            self.copied.inodes += 1;
            self.fill(reading, directory, &inode, entry)?;
        }
        Ok(())
    }

    fn add(&mut self, reading: &Reading, directory: &SourceDirectory, entry: Entry) -> Result<(), MkfsError> {
        self.check(directory, &entry)?;
        let parent = Arc::clone(&self.level().inode);
        let has_links = entry.links > 1 && !matches!(entry.kind, Kind::Directory);
        let key = (parent.id().root, entry.seen.identity);
        if has_links && self.link(&parent, &entry, &key).map_err(|error| self.fail(&entry, error))? {
            return Ok(());
        }
        let inode = self.make(&parent, &entry)?;
        self.copied.inodes += 1;
        if has_links {
            self.links.insert(key, (Arc::clone(&inode), entry.links - 1));
        }
        match entry.kind {
            Kind::Directory => {
                self.set_flags(&inode, &entry).map_err(|error| self.fail(&entry, error))?;
                self.levels
                    .last_mut()
                    .expect("the source's root is never left")
                    .below
                    .push_back((inode, entry));
            }
            _ => self.fill(reading, directory, &inode, entry)?,
        }
        Ok(())
    }

    /// Adds a further name to what was made; false if it was not.
    fn link(&mut self, parent: &Arc<Inode>, entry: &Entry, key: &LinkKey) -> Result<bool, FsError> {
        let Some((inode, rest)) = self.links.get_mut(key) else { return Ok(false) };
        *rest -= 1;
        let (inode, done) = (Arc::clone(inode), *rest == 0);
        self.population.filesystem.names().link(&owner_of(entry), &inode, parent, &entry.name)?;
        // Linking set the time of change; it is the clock's anyway.
        if entry.is_in_table {
            // The table may name any of a file's names.
            self.set_attributes(&inode, entry)?;
        }
        self.copied.hard_links += 1;
        if done {
            self.links.remove(key);
        }
        Ok(true)
    }

    /// Sets the flags that a file or directory is to have, while it is empty: those of its path, and those
    /// that the directory above hands down.
    fn set_flags(&self, inode: &Arc<Inode>, entry: &Entry) -> Result<(), FsError> {
        if self.population.inode_flags.is_empty() {
            return Ok(());
        }
        let above = InodeFlags(self.level().inode.flags().0 & HANDED_DOWN.0);
        let own = self.population.inode_flags.get(&join(&self.path, &entry.name)).copied();
        let flags = above.with(own.unwrap_or(InodeFlags::NONE));
        if inode.flags().has(flags) { Ok(()) } else { self.population.set_flags(inode, entry, flags) }
    }

    fn make(&mut self, parent: &Arc<Inode>, entry: &Entry) -> Result<Arc<Inode>, MkfsError> {
        if matches!(entry.kind, Kind::Directory) {
            let path = join(&self.path, &entry.name);
            if let Some(subvolume) = self.population.subvolumes.get(&path) {
                let (is_default, access) = (subvolume.is_default, subvolume.access);
                return self
                    .make_subvolume(parent, entry, is_default, access)
                    .map_err(|error| self.fail(entry, error));
            }
        }
        let (filesystem, caller) = (self.filesystem(), owner_of(entry));
        let node = |file_type, device| {
            filesystem.names().create_node(&caller, parent, &entry.name, file_type, entry.permissions, device)
        };
        let device = |major, minor| DeviceNumber::new(major, minor);
        let made = match &entry.kind {
            Kind::Regular(_) => {
                filesystem.names().create_file(&caller, parent, &entry.name, entry.permissions)
            }
            Kind::Directory => {
                filesystem.names().create_directory(&caller, parent, &entry.name, entry.permissions)
            }
            Kind::SymbolicLink(target) => {
                filesystem.names().create_symbolic_link(&caller, parent, &entry.name, target)
            }
            Kind::CharacterDevice(major, minor) => node(FileType::CharacterDevice, device(*major, *minor)),
            Kind::BlockDevice(major, minor) => node(FileType::BlockDevice, device(*major, *minor)),
            Kind::Fifo => node(FileType::Fifo, DeviceNumber::default()),
            Kind::Socket => node(FileType::Socket, DeviceNumber::default()),
        };
        made.map_err(|error| self.fail(entry, error))
    }

    fn make_subvolume(
        &mut self,
        parent: &Arc<Inode>,
        entry: &Entry,
        is_default: bool,
        access: SubvolumeAccess,
    ) -> Result<Arc<Inode>, FsError> {
        let id = self.population.filesystem.subvolumes().create(&owner_of(entry), parent, &entry.name)?;
        self.copied.subvolumes += 1;
        if access == SubvolumeAccess::ReadOnly {
            self.read_only.push(id.root);
        }
        if is_default {
            self.default = Some(id.root);
        }
        self.population.filesystem.inode(id)
    }

    /// Data and attributes of what is no directory.
    fn fill(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        inode: &Arc<Inode>,
        mut entry: Entry,
    ) -> Result<(), MkfsError> {
        if matches!(entry.kind, Kind::Regular(_)) {
            self.set_flags(inode, &entry).map_err(|error| self.fail(&entry, error))?;
        }
        if let Kind::Regular(content) = &mut entry.kind {
            match std::mem::replace(content, Content::Unread) {
                Content::Loaded(bytes) if self.may_share(entry.size_bytes) => {
                    self.write_or_share(inode, &entry, bytes)?;
                }
                Content::Loaded(bytes) => {
                    self.write(inode, 0, bytes).map_err(|error| self.fail(&entry, error))?;
                }
                Content::Unread => self.copy(reading, directory, inode, &entry)?,
            }
        }
        self.set_attributes(inode, &entry).map_err(|error| self.fail(&entry, error))
    }

    /// The data of a file that did not come with its bytes, without its holes.
    fn copy(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        inode: &Arc<Inode>,
        entry: &Entry,
    ) -> Result<(), MkfsError> {
        let may_share = self.may_share(entry.size_bytes);
        if may_share && self.share_unread(reading, directory, inode, entry)? {
            return Ok(());
        }
        let mut content = Fingerprint::default();
        reading.contents(directory, entry, |offset, bytes| {
            self.check_interrupted()?;
            if may_share {
                content.add(offset, &bytes);
            }
            self.write(inode, offset, bytes).map_err(|error| self.fail(entry, error))
        })?;
        if inode.size() < entry.size_bytes {
            let size = SetAttributes { size: Some(entry.size_bytes), ..SetAttributes::default() };
            self.filesystem()
                .attributes()
                .set(&owner_of(entry), inode, &size)
                .map_err(|error| self.fail(entry, error))?;
        }
        if may_share {
            self.stored.note(entry.size_bytes, content, inode.id());
        }
        Ok(())
    }

    fn write(&mut self, inode: &Arc<Inode>, offset: u64, bytes: Vec<u8>) -> Result<(), FsError> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        // Mode and times come after the data.
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
        let caller = Caller::superuser();
        self.population.filesystem.files().write_file(&caller, inode, offset, Cow::Owned(bytes), origin)?;
        self.copied.data_bytes += length;
        self.waiting_bytes += length;
        if self.waiting_bytes >= self.flush_bytes {
            self.waiting_bytes = 0;
            vlinder_fs::data::flush_ahead(self.population.filesystem)?;
        }
        Ok(())
    }

    fn finish_subvolumes(&self) -> Result<(), MkfsError> {
        let root = Caller::superuser();
        for subvolume in &self.read_only {
            self.filesystem().subvolumes().set_read_only(&root, *subvolume, true, false)?;
        }
        if let Some(subvolume) = self.default {
            self.filesystem().subvolumes().set_default(&root, subvolume)?;
        }
        Ok(())
    }

    fn fail(&self, entry: &Entry, error: FsError) -> MkfsError {
        self.fail_at(&join(&self.path, &entry.name), error)
    }

    fn fail_at(&self, path: &[u8], error: FsError) -> MkfsError {
        explain(path, error, self.population.size_bytes)
    }
}

/// Files with the same bytes ([`doubles`]).
impl Writer<'_> {
    /// Whether a file of this size is compared with others.
    fn may_share(&self, size: u64) -> bool {
        self.population.dedupe && size >= u64::from(self.population.filesystem.sector_size())
    }

    /// Stores a file that came with its bytes, or shares the extents of one that has the same.
    fn write_or_share(&mut self, inode: &Arc<Inode>, entry: &Entry, bytes: Vec<u8>) -> Result<(), MkfsError> {
        let fail = |writer: &Self, error| writer.fail(entry, error);
        let content = Fingerprint::of(&bytes);
        for stored in self.stored.candidates(entry.size_bytes, &content) {
            let found = self.population.filesystem.inode(stored).map_err(|error| fail(self, error))?;
            let is_same =
                doubles::holds(self.filesystem(), &found, 0, &bytes).map_err(|error| fail(self, error))?;
            if is_same {
                return self.share(&found, inode, &content).map_err(|error| fail(self, error));
            }
        }
        self.write(inode, 0, bytes).map_err(|error| fail(self, error))?;
        self.stored.note(entry.size_bytes, content, inode.id());
        Ok(())
    }

    /// As [`write_or_share`](Self::write_or_share), of a file that is read piecewise: once more for the
    /// fingerprint where there is a file of its size, and once more to compare it. False where it has to be
    /// stored.
    fn share_unread(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        inode: &Arc<Inode>,
        entry: &Entry,
    ) -> Result<bool, MkfsError> {
        if !self.stored.has_size(entry.size_bytes) {
            return Ok(false);
        }
        let mut content = Fingerprint::default();
        reading.contents(directory, entry, |offset, bytes| {
            content.add(offset, &bytes);
            self.check_interrupted()
        })?;
        for stored in self.stored.candidates(entry.size_bytes, &content) {
            let filesystem = self.population.filesystem;
            let found = filesystem.inode(stored).map_err(|error| self.fail(entry, error))?;
            let (mut is_same, mut seen) = (true, Fingerprint::default());
            reading.contents(directory, entry, |offset, bytes| {
                if is_same {
                    seen.add(offset, &bytes);
                    is_same = doubles::holds(filesystem, &found, offset, &bytes)
                        .map_err(|error| self.fail(entry, error))?;
                }
                self.check_interrupted()
            })?;
            if is_same && seen == content {
                return self
                    .share(&found, inode, &content)
                    .map(|()| true)
                    .map_err(|error| self.fail(entry, error));
            }
        }
        Ok(false)
    }

    fn share(
        &mut self,
        stored: &Arc<Inode>,
        inode: &Arc<Inode>,
        content: &Fingerprint,
    ) -> Result<(), FsError> {
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Stay };
        let caller = Caller::superuser();
        let files = self.population.filesystem.files();
        files.clone_range(&caller, (stored, 0), (inode, 0), stored.size(), origin)?;
        self.copied.data_bytes += content.data_bytes();
        self.copied.shared_bytes += content.data_bytes();
        Ok(())
    }
}

/// Says what an error of the new file system means to who makes it.
pub(super) fn explain(path: &[u8], error: FsError, size: u64) -> MkfsError {
    let path = shown(path);
    if error.refusal() == Some(Refusal::NoSpace) {
        return MkfsError::Full { path, size };
    }
    MkfsError::Write { path, source: error }
}

/// The user that makes an entry: its owner, to whom everything is allowed.
fn owner_of(entry: &Entry) -> Caller {
    Caller {
        user: UserId(entry.user),
        group: GroupId(entry.group),
        groups: Vec::new(),
        umask: 0,
        capabilities: Capabilities::ALL,
    }
}
