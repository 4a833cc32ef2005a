//! Scripts of file system operations on a simulated device, with what was true after each, so that after a
//! power cut it can be said what must, may and must not be there.
//!
//! One command in a line (or between semicolons): a word and its arguments, paths from the root. A command
//! that is refused is an error, unless it begins with `?`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use vlinder_base::sync::Arc;
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::inode::DeviceNumber;
use vlinder_format::superblock::Superblock;
use vlinder_fs::data::{Allocate, OpenCache};
use vlinder_fs::{
    AttributeMode, FileType, Filesystem, FsError, Inode, OpenInode, OpenOptions, RenameMode, SetAttributes,
    WriteOrigin,
};
use vlinder_testkit::SimulatedDevice;
use vlinder_testkit::subject::{OrderChecker, Recipe};

use super::root_user;

/// A name: its directory (subvolume, inode) and itself.
pub type Name = ((u64, u64), Vec<u8>);
/// An inode: its subvolume and number.
pub type Number = (u64, u64);

/// What can be seen of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub is_directory: bool,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, u32),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of a file the bytes, of a symbolic link the target.
    pub content: Vec<u8>,
}

/// Everything that can be seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub names: BTreeMap<Name, Number>,
    pub inodes: BTreeMap<Number, Seen>,
}

impl View {
    pub fn of(filesystem: &Filesystem) -> Self {
        Self::try_of(filesystem).unwrap()
    }

    /// As [`of`](Self::of), where something may be wrong.
    pub fn try_of(filesystem: &Filesystem) -> Result<Self, String> {
        let mut view = Self::default();
        let root = filesystem.root().unwrap();
        view.add(filesystem, &root)?;
        Ok(view)
    }

    fn add(&mut self, filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<(), String> {
        let number = number(inode);
        if self.inodes.contains_key(&number) {
            return Ok(());
        }
        self.inodes.insert(number, see(filesystem, inode));
        if !inode.is_directory() {
            return Ok(());
        }
        for (name, _) in super::list(filesystem, inode) {
            let found = filesystem.names().lookup(&root_user(), inode, &name);
            let child =
                found.map_err(|error| format!("{number:?}/{}: {error}", String::from_utf8_lossy(&name)))?;
            self.names.insert((number, name), self::number(&child));
            self.add(filesystem, &child)?;
        }
        Ok(())
    }
}

fn number(inode: &Inode) -> Number {
    (inode.id().root.0, inode.id().number.0)
}

fn see(filesystem: &Filesystem, inode: &Arc<Inode>) -> Seen {
    let attributes = filesystem.attributes().of(inode);
    let value =
        |name: &Vec<u8>| filesystem.attributes().extended_attribute(&root_user(), inode, name).unwrap();
    let names = if inode.is_placeholder() {
        Vec::new()
    } else {
        filesystem.attributes().extended_attributes(inode).unwrap()
    };
    let content = match attributes.file_type {
        FileType::Regular => {
            let mut bytes = vec![0; usize::try_from(inode.size()).unwrap()];
            let _operation = inode.operation.read();
            let count = vlinder_fs::data::read(filesystem, inode, &OpenCache::new(), 0, &mut bytes).unwrap();
            assert_eq!(count, bytes.len());
            bytes
        }
        FileType::SymbolicLink => filesystem.names().read_link(inode).unwrap(),
        _ => Vec::new(),
    };
    let modified = attributes.modification_time;
    Seen {
        is_directory: inode.is_directory(),
        mode: attributes.mode.0,
        owner: (attributes.user.0, attributes.group.0),
        modified: (modified.seconds, modified.nanoseconds),
        xattrs: names.iter().map(|name| (name.clone(), value(name))).collect(),
        content,
    }
}

/// The generation and log root of the primary superblock.
pub fn superblock(image: &MemoryDevice) -> (u64, u64) {
    let bytes = image.read_at(vlinder_base::units::Physical(64 << 10), 4096).unwrap();
    let superblock = Superblock::decode(&bytes).unwrap();
    (superblock.generation.0, superblock.log_root.0)
}

/// A script that runs.
pub struct Stage {
    pub device: Arc<SimulatedDevice>,
    pub checker: Arc<OrderChecker>,
    pub filesystem: Filesystem,
    /// What was to be seen after the last commit of the first part, and after each command since.
    pub history: Vec<View>,
    /// What was fsynced, and after which view.
    pub fsyncs: Vec<(usize, Number)>,
    /// Files without names, by what the script calls them.
    held: HashMap<String, OpenInode>,
    /// Generation of the last commit of the first part.
    generation: u64,
    /// Whether views are taken; large scripts do without.
    pub is_watched: bool,
}

pub fn options(text: &str) -> OpenOptions {
    let text = format!("noatime,{text}");
    OpenOptions { background: false, ..OpenOptions::parse(text.trim_end_matches(',')).unwrap() }
}

/// An image of this recipe after the first part of a script, which is committed.
pub fn base(recipe: &Recipe, before: &str) -> MemoryDevice {
    let device = Arc::new(SimulatedDevice::from_image(recipe.in_memory()));
    let filesystem =
        Filesystem::open_devices(vec![Arc::clone(&device) as _], options(&recipe.options)).unwrap();
    let mut stage = Stage::of(device, filesystem);
    stage.is_watched = false;
    // Room in every kind of group: a chunk that is made meanwhile would make an fsync commit.
    stage.run("write .filler 0 65536 1; sync").unwrap();
    stage.run(before).unwrap();
    let Stage { device, filesystem, held, .. } = stage;
    drop(held);
    filesystem.close().unwrap();
    device.live_image()
}

impl Stage {
    fn of(device: Arc<SimulatedDevice>, filesystem: Filesystem) -> Self {
        let checker = Arc::new(OrderChecker::new(Arc::clone(&device)));
        Self {
            device,
            checker,
            filesystem,
            history: Vec::new(),
            fsyncs: Vec::new(),
            held: HashMap::new(),
            generation: 0,
            is_watched: true,
        }
    }

    /// Opens an image, watched from now on.
    pub fn open(image: &MemoryDevice, mount: &str) -> Self {
        let device = Arc::new(SimulatedDevice::from_image(image.snapshot()));
        let checker = Arc::new(OrderChecker::new(Arc::clone(&device)));
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&checker) as _], options(mount)).unwrap();
        let mut stage = Self { checker, ..Self::of(Arc::clone(&device), filesystem) };
        stage.generation = superblock(image).0;
        stage.history.push(View::of(&stage.filesystem));
        stage
    }

    /// Runs commands.
    pub fn run(&mut self, script: &str) -> Result<(), String> {
        for command in script.split([';', '\n']).map(str::trim).filter(|command| !command.is_empty()) {
            let (may_fail, words) = match command.strip_prefix('?') {
                Some(rest) => (true, rest),
                None => (false, command),
            };
            let words: Vec<&str> = words.split_whitespace().collect();
            match self.command(&words) {
                Ok(()) => {}
                Err(_) if may_fail => {}
                Err(error) => return Err(format!("{command}: {error}")),
            }
            if self.is_watched && words[0] != "fsync" {
                self.history.push(View::of(&self.filesystem));
            }
        }
        Ok(())
    }

    fn at(&self, path: &str) -> Result<Arc<Inode>, FsError> {
        if let Some(held) = self.held.get(path) {
            return Ok(Arc::clone(held.inode()));
        }
        let mut inode = self.filesystem.root()?;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            inode = self.filesystem.names().lookup(&root_user(), &inode, name.as_bytes())?;
        }
        Ok(inode)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Arc<Inode>, &'p [u8]), FsError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        Ok((self.at(parent)?, name.as_bytes()))
    }

    /// The durable image has a log and the generation that it had, unless a commit was expected.
    pub fn ended_in_log(&self) -> Result<(), String> {
        let (generation, log_root) = superblock(&self.device.durable_image());
        if generation != self.generation || log_root == 0 {
            return Err(format!(
                "fsync ended with generation {generation} (before: {}) and log root {log_root}",
                self.generation
            ));
        }
        Ok(())
    }

    /// Makes something durable, whether by a log or by a commit; false where it is not there, or the fsync
    /// left no log (a commit begins a new history).
    pub fn sync_any(&mut self, path: &str) -> bool {
        let Ok(inode) = self.at(path) else { return false };
        self.filesystem.maintenance().sync_inode(&inode).unwrap();
        self.fsyncs.push((self.history.len() - 1, number(&inode)));
        let (generation, log_root) = superblock(&self.device.durable_image());
        if generation != self.generation {
            self.generation = generation;
            self.history = vec![View::of(&self.filesystem)];
            self.fsyncs.clear();
        }
        log_root != 0
    }

    fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<(), FsError> {
        let ((old, from), (new, to)) = (self.parent(from)?, self.parent(to)?);
        self.filesystem.names().rename(&root_user(), &old, from, &new, to, mode)
    }

    fn allocate(&self, path: &str, what: Allocate, words: &[u64]) -> Result<(), FsError> {
        let inode = self.at(path)?;
        let caller = root_user();
        self.filesystem
            .files()
            .allocate_file(&caller, &inode, what, words[0], words[1], WriteOrigin::Caller)
            .map(drop)
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each word of the scripts")]
    fn command(&mut self, words: &[&str]) -> Result<(), FsError> {
        let caller = root_user();
        let filesystem = self.filesystem.clone();
        let numbers: Vec<u64> = words.iter().map(|word| word.parse().unwrap_or_default()).collect();
        let path = words.get(1).copied().unwrap_or(".");
        let set = |inode: &Arc<Inode>, changes: SetAttributes| {
            filesystem.attributes().set(&caller, inode, &changes).map(drop)
        };
        match words[0] {
            "touch" => {
                if self.at(path).is_err() {
                    let (parent, name) = self.parent(path)?;
                    filesystem.names().create_file(&caller, &parent, name, 0o644)?;
                }
            }
            "mkdir" => {
                let (parent, name) = self.parent(path)?;
                filesystem.names().create_directory(&caller, &parent, name, 0o755)?;
            }
            // write FILE OFFSET LENGTH BYTE
            "write" => {
                if self.at(path).is_err() {
                    let (parent, name) = self.parent(path)?;
                    filesystem.names().create_file(&caller, &parent, name, 0o644)?;
                }
                let bytes = vec![numbers[4] as u8; numbers[3] as usize];
                filesystem.files().write_at(&caller, &self.at(path)?, numbers[2], Cow::Owned(bytes))?;
            }
            // flush FILE: the data go to the device, as they do with time, and nothing else.
            "flush" => vlinder_fs::data::flush(&filesystem, &self.at(path)?)?,
            "ln" => {
                let (parent, name) = self.parent(words[2])?;
                filesystem.names().link(&caller, &self.at(path)?, &parent, name)?;
                self.held.remove(path);
            }
            "mv" => self.rename(path, words[2], RenameMode::Replace)?,
            "exchange" => self.rename(path, words[2], RenameMode::Exchange)?,
            "whiteout" => self.rename(path, words[2], RenameMode::Whiteout)?,
            "rm" => {
                let (parent, name) = self.parent(path)?;
                filesystem.names().unlink(&caller, &parent, name)?;
            }
            "rmdir" => {
                let (parent, name) = self.parent(path)?;
                filesystem.names().remove_directory(&caller, &parent, name)?;
            }
            "symlink" => {
                let (parent, name) = self.parent(words[2])?;
                filesystem.names().create_symbolic_link(&caller, &parent, name, path.as_bytes())?;
            }
            "fifo" | "node" => {
                let (parent, name) = self.parent(path)?;
                let (kind, device) = match words[0] {
                    "fifo" => (FileType::Fifo, DeviceNumber::default()),
                    _ => (FileType::CharacterDevice, DeviceNumber::new(1, 3)),
                };
                filesystem.names().create_node(&caller, &parent, name, kind, 0o600, device)?;
            }
            "truncate" => {
                set(&self.at(path)?, SetAttributes { size: Some(numbers[2]), ..Default::default() })?
            }
            "chmod" => {
                let permissions = u32::from_str_radix(words[2], 8).ok();
                set(&self.at(path)?, SetAttributes { permissions, ..Default::default() })?;
            }
            "chown" => {
                let id = numbers[2] as u32;
                let (user, group) =
                    (Some(vlinder_format::inode::UserId(id)), Some(vlinder_format::inode::GroupId(id)));
                set(&self.at(path)?, SetAttributes { user, group, ..Default::default() })?;
            }
            "punch" => self.allocate(path, Allocate::PunchHole, &numbers[2..])?,
            "falloc" => self.allocate(path, Allocate::Reserve { keep_size: false }, &numbers[2..])?,
            "falloc-keep" => self.allocate(path, Allocate::Reserve { keep_size: true }, &numbers[2..])?,
            "zero" => self.allocate(path, Allocate::ZeroRange { keep_size: false }, &numbers[2..])?,
            "zero-keep" => self.allocate(path, Allocate::ZeroRange { keep_size: true }, &numbers[2..])?,
            // clone FROM OFFSET TO OFFSET LENGTH
            "clone" => {
                if self.at(words[3]).is_err() {
                    let (parent, name) = self.parent(words[3])?;
                    filesystem.names().create_file(&caller, &parent, name, 0o644)?;
                }
                let (source, target) = (self.at(path)?, self.at(words[3])?);
                filesystem.files().clone_range(
                    &caller,
                    (&source, numbers[2]),
                    (&target, numbers[4]),
                    numbers[5],
                    WriteOrigin::Caller,
                )?;
            }
            "setfattr" => filesystem.attributes().set_extended_attribute(
                &caller,
                &self.at(path)?,
                words[2].as_bytes(),
                words[3].as_bytes(),
                AttributeMode::Either,
            )?,
            "rmfattr" => {
                filesystem.attributes().remove_extended_attribute(
                    &caller,
                    &self.at(path)?,
                    words[2].as_bytes(),
                )?;
            }
            "hold" => {
                let open = filesystem.files().hold(&self.at(path)?)?;
                self.held.insert(words[2].to_owned(), open);
            }
            "tmpfile" => {
                let open = filesystem.names().create_temporary(&caller, &self.at(path)?, 0o600)?;
                self.held.insert(words[2].to_owned(), open);
            }
            "subvolume" => {
                let (parent, name) = self.parent(path)?;
                filesystem.subvolumes().create(&caller, &parent, name)?;
            }
            "snapshot" => {
                let (parent, name) = self.parent(words[2])?;
                filesystem.subvolumes().snapshot(&caller, self.at(path)?.id().root, &parent, name, false)?;
            }
            "delete" => {
                let (parent, name) = self.parent(path)?;
                filesystem.subvolumes().delete(&caller, &parent, name)?;
            }
            "sync" => drop(filesystem.sync()?),
            // commit-fsync: as fsync, where Linux commits, too.
            "fsync" | "commit-fsync" => {
                let inode = self.at(path)?;
                filesystem.maintenance().sync_inode(&inode)?;
                if self.is_watched {
                    self.fsyncs.push((self.history.len() - 1, number(&inode)));
                }
                let ended = self.ended_in_log();
                assert_eq!(ended.is_ok(), words[0] == "fsync", "{words:?}: {ended:?}");
            }
            // links FILE FIRST END DIRECTORY: names of a length that makes extended references.
            "links" | "unlinks" => {
                let inode = self.at(path)?;
                let directory = self.at(words[4])?;
                for link in numbers[2]..numbers[3] {
                    let name = format!("a-rather-long-name-of-a-link-{link:05}");
                    if words[0] == "links" {
                        filesystem.names().link(&caller, &inode, &directory, name.as_bytes())?;
                    } else {
                        filesystem.names().unlink(&caller, &directory, name.as_bytes())?;
                    }
                }
            }
            other => panic!("no command {other}"),
        }
        Ok(())
    }

    /// What a cut leaves if it takes everything that was not flushed.
    pub fn cut(&self) -> MemoryDevice {
        self.device.durable_image()
    }

    /// fsync; false if it is refused.
    pub fn try_sync(&mut self, path: &str) -> bool {
        let synced = self.at(path).and_then(|inode| {
            self.filesystem.maintenance().sync_inode(&inode)?;
            Ok(number(&inode))
        });
        if let Ok(number) = &synced {
            self.fsyncs.push((self.history.len().saturating_sub(1), *number));
        }
        synced.is_ok()
    }

    /// The content of a file, if it is there.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        Some(see(&self.filesystem, &self.at(path).ok()?).content)
    }

    /// As [`judge`](Self::judge), where the first so many fsyncs had ended before the cut.
    pub fn judge_first(&self, after: &View, count: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        self.judge_names(after, &mut wrong);
        self.judge_inodes(after, &mut wrong);
        for (step, number) in &self.fsyncs[..count] {
            self.judge_fsync(after, *step, *number, &mut wrong);
        }
        wrong
    }

    /// Compares what is there after a cut with what was promised and done; gives everything that is wrong.
    pub fn judge(&self, after: &View) -> Vec<String> {
        let mut wrong: Vec<String> = self.checker.violations();
        self.judge_names(after, &mut wrong);
        self.judge_inodes(after, &mut wrong);
        for (step, number) in &self.fsyncs {
            self.judge_fsync(after, *step, *number, &mut wrong);
        }
        wrong
    }

    /// Each name is as it was at some time, and none is free that never was.
    fn judge_names(&self, after: &View, wrong: &mut Vec<String>) {
        let all: BTreeSet<&Name> =
            self.history.iter().flat_map(|view| view.names.keys()).chain(after.names.keys()).collect();
        for name in all {
            let now = after.names.get(name);
            if !self.history.iter().any(|view| view.names.get(name) == now) {
                wrong.push(format!("{} stands for {now:?}, as it never did", show(name)));
            } else if now.is_none() && self.history.iter().all(|view| view.names.contains_key(name)) {
                wrong.push(format!("{} never was free, and is", show(name)));
            }
        }
    }

    fn judge_inodes(&self, after: &View, wrong: &mut Vec<String>) {
        let first = &self.history[0];
        for (number, committed) in &first.inodes {
            let always = self.history.iter().all(|view| view.inodes.contains_key(number));
            match after.inodes.get(number) {
                None if always => {
                    wrong.push(format!("inode {number:?} never was without a name, and is lost"))
                }
                Some(seen) if !seen.is_directory => {
                    let versions = self.history.iter().filter_map(|view| view.inodes.get(number));
                    if !versions.clone().any(|version| version.content == seen.content) {
                        let was = committed.content.len();
                        wrong.push(format!(
                            "inode {number:?} has {} bytes that it never had (committed: {was})",
                            seen.content.len()
                        ));
                    }
                }
                _ => {}
            }
        }
    }

    /// What an fsync promised is there.
    fn judge_fsync(&self, after: &View, step: usize, number: Number, wrong: &mut Vec<String>) {
        let since = &self.history[step..];
        // The name of a subvolume is not in the subvolume.
        let is_its_name = |value: Number| value == number && number.1 != 256;
        // What takes the place of a durable name need not be durable, but one of them has the name.
        for (name, _) in
            since[0].names.iter().filter(|(name, value)| is_its_name(**value) || name.0 == number)
        {
            let was_free = since.iter().any(|view| !view.names.contains_key(name));
            if !was_free && !after.names.contains_key(name) {
                wrong.push(format!(
                    "{} was fsynced with {number:?}, never was free since, and is",
                    show(name)
                ));
            }
        }
        let Some(then) = since[0].inodes.get(&number) else { return };
        if since.iter().any(|view| !view.inodes.contains_key(&number)) {
            return;
        }
        let Some(seen) = after.inodes.get(&number) else {
            wrong.push(format!("inode {number:?} was fsynced, and is lost"));
            return;
        };
        let versions = || since.iter().filter_map(|view| view.inodes.get(&number));
        if !versions().any(|version| version.content == seen.content) {
            wrong.push(format!("inode {number:?} was fsynced, and has another content ({step})"));
        }
        // Names that an fsync of another file logs bring extended attributes along, but no other attribute.
        let without_xattrs =
            |version: &Seen| Seen { content: Vec::new(), xattrs: BTreeMap::new(), ..version.clone() };
        let is_once = versions().any(|version| without_xattrs(version) == without_xattrs(seen))
            && versions().any(|version| version.xattrs == seen.xattrs);
        // The replay of names may leave other times to directories.
        if !then.is_directory && !is_once {
            let shown = |version: &Seen| Seen { content: Vec::new(), ..version.clone() };
            wrong.push(format!("inode {number:?} was fsynced as {:?} and is {:?}", shown(then), shown(seen)));
        }
        for (name, value) in &since[0].names {
            let concerns = is_its_name(*value) || name.0 == number;
            let unchanged = since.iter().all(|view| view.names.get(name) == Some(value));
            if concerns && unchanged && after.names.get(name) != Some(value) {
                let now = after.names.get(name);
                wrong
                    .push(format!("{} of {value:?} was fsynced with {number:?}, and is {now:?}", show(name)));
            }
        }
        for (name, value) in &after.names {
            let concerns = is_its_name(*value) || name.0 == number;
            let never = since.iter().all(|view| view.names.get(name) != Some(value));
            if concerns && never {
                wrong.push(format!("{} of {value:?} was gone when {number:?} was fsynced", show(name)));
            }
        }
    }
}

fn show(name: &Name) -> String {
    format!("{:?}/{}", name.0, String::from_utf8_lossy(&name.1))
}

/// Opens an image for writing: the log is replayed. Gives what is seen then, and the image.
pub fn replay(cut: &MemoryDevice) -> Result<(View, MemoryDevice), String> {
    let image = cut.snapshot();
    let device: Arc<MemoryDevice> = Arc::new(image);
    let opened = Filesystem::open_devices(vec![Arc::clone(&device) as _], options(""));
    let filesystem = opened.map_err(|error| format!("it does not open: {error}"))?;
    if let Some(reason) = filesystem.engine().read_only_reason() {
        return Err(format!("it opens read-only: {reason}"));
    }
    let view = View::try_of(&filesystem)?;
    filesystem.close().map_err(|error| error.to_string())?;
    let image = device.snapshot();
    if superblock(&image).1 != 0 {
        return Err("the log is still there".to_owned());
    }
    Ok((view, image))
}

/// Everything can be removed: sizes of directories and counts of links are right.
pub fn remove_everything(image: &MemoryDevice) -> Result<MemoryDevice, String> {
    fn clear(filesystem: &Filesystem, directory: &Arc<Inode>) -> Result<(), String> {
        for (name, _) in super::list(filesystem, directory) {
            let child = filesystem
                .names()
                .lookup(&root_user(), directory, &name)
                .map_err(|error| error.to_string())?;
            let removed = if child.id().is_subvolume_root() {
                filesystem.subvolumes().delete(&root_user(), directory, &name)
            } else if child.is_directory() {
                clear(filesystem, &child)?;
                filesystem.names().remove_directory(&root_user(), directory, &name)
            } else {
                filesystem.names().unlink(&root_user(), directory, &name)
            };
            removed.map_err(|error| format!("{}: {error}", String::from_utf8_lossy(&name)))?;
        }
        Ok(())
    }
    let device = Arc::new(image.snapshot());
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options("")).unwrap();
    clear(&filesystem, &filesystem.root().unwrap())?;
    filesystem.close().map_err(|error| error.to_string())?;
    Ok(device.snapshot())
}

/// Writes an image to a file, sparse.
pub fn to_file(image: &MemoryDevice, path: &std::path::Path) {
    use std::os::unix::fs::FileExt;
    use vlinder_device::Device;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(image.length()).unwrap();
    for (offset, bytes) in image.written_chunks() {
        file.write_all_at(&bytes, offset.0).unwrap();
    }
}
