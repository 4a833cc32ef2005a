//! Directories of an image.

mod sink;

use std::collections::VecDeque;

use vlinder_base::sync::Arc;
use vlinder_format::inode::{DeviceNumber, FileType};
use vlinder_fs::data::{self, OpenCache, Stretch};
use vlinder_fs::{
    AttributeMode, Caller, Filesystem, FsError, Inode, InodeId, Refusal, RenameMode, Replacement,
    SetAttributes, SetTime,
};

use self::sink::{ImageSink, Made};
use super::shared_path::SharedPath;
use super::{Change, Directory, DirectoryNames, Location, Sink, Source, Status, Take, check_entry};
use crate::failure::{Failure, Kind};

/// Symbolic links on one path, as on Linux.
const MOST_LINKS: usize = 40;
/// Names on one path, those in symbolic links among them.
const MOST_NAMES: usize = 1 << 16;
/// Names that are read from a directory at a time.
const BATCH: usize = 4096;

/// An opened image, shared by all its directories.
pub struct OpenImage {
    /// The file system.
    pub filesystem: Filesystem,
    /// As whom the verb acts.
    pub caller: Caller,
    /// What the image is called in messages.
    pub label: String,
}

/// An open directory.
#[derive(Clone)]
pub struct ImageDirectory {
    image: Arc<OpenImage>,
    /// Its number, not the inode itself: a walk holds many directories.
    id: InodeId,
    /// From the root that is shown, without a slash at the end.
    path: SharedPath,
}

/// The location that a path in an image names; with `follow`, that of what a symbolic link there leads to.
pub fn locate(image: &Arc<OpenImage>, path: &[u8], follow: bool) -> Result<Location, Failure> {
    let root = image.filesystem.root().map_err(|error| from_fs(error, &image.label))?.id();
    let mut above: Vec<ImageDirectory> = Vec::new();
    let mut current = ImageDirectory { image: Arc::clone(image), id: root, path: SharedPath::default() };
    let mut names: VecDeque<Vec<u8>> = split(path);
    let wants_directory = path.ends_with(b"/");
    let (mut links, mut steps) = (0, 0);
    while let Some(name) = names.pop_front() {
        steps += 1;
        if steps > MOST_NAMES {
            return Err(Failure::new(Kind::Invalid, "too many names").at(current.place(&name)));
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            // Above the root is the root.
            current = above.pop().unwrap_or(current);
            continue;
        }
        let is_last = names.is_empty();
        if is_last && !follow && !wants_directory {
            return Ok(Location { directory: Directory::Image(current), name });
        }
        let found = match current.lookup(&name) {
            // The last name may be one that is to be made.
            Err(failure) if is_last && failure.kind == Kind::NotFound => {
                return Ok(Location { directory: Directory::Image(current), name });
            }
            other => other?,
        };
        match found.file_type() {
            FileType::SymbolicLink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(
                        Failure::new(Kind::Invalid, "too many symbolic links").at(current.place(&name))
                    );
                }
                let text = current.read_link(&name)?;
                if text.starts_with(b"/") {
                    above.clear();
                    current = ImageDirectory { id: root, path: SharedPath::default(), ..current };
                }
                for name in split(&text).into_iter().rev() {
                    names.push_front(name);
                }
            }
            FileType::Directory if !is_last => {
                let next = current.at(found.id(), &name);
                above.push(std::mem::replace(&mut current, next));
            }
            _ if is_last => return Ok(Location { directory: Directory::Image(current), name }),
            _ => return Err(Failure::new(Kind::Invalid, "not a directory").at(current.place(&name))),
        }
    }
    Ok(Location { directory: Directory::Image(current), name: b".".to_vec() })
}

fn split(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// A failure of the file system, at a place.
pub fn from_fs(error: FsError, place: impl std::fmt::Display) -> Failure {
    let failure = match error {
        FsError::Refused(refusal) => return refused(refusal).at(place),
        FsError::Path { path, source } => return from_fs(*source, format!("{place}: {path}")),
        FsError::Volume(error) => error.into(),
        FsError::Device(error) => error.into(),
        FsError::Option(error) => Failure::usage(error.to_string()),
        FsError::NoThreads { source } => Failure::no_threads(&source),
        FsError::NoDefaultSubvolume { .. } => Failure::new(Kind::NotFound, error.to_string()).hint(
            "give -o subvolid=5, and choose another one with vlinder subvolume set-default -o subvolid=5 NUMBER IMAGE",
        ),
        FsError::Damage(damage) => Failure::new(Kind::Corruption, damage.to_string()).hint(
            "the file system is damaged: keep the image as it is, and look at it with inspect-internal",
        ),
        other => from_engine(other),
    };
    failure.at(place)
}

/// What the file system said about a request, with the verbs that help.
fn refused(refusal: Refusal) -> Failure {
    if refusal == Refusal::NoSpace {
        return no_space();
    }
    let failure = Failure::new(Kind::of_errno(refusal.errno()), refusal.to_string());
    match refusal {
        Refusal::NotFound => {
            failure.hint("vlinder ls shows what is there, vlinder mkdir -p makes directories")
        }
        Refusal::Exists => failure.hint("take another name, or remove what has this one"),
        Refusal::NotADirectory => failure.hint("vlinder ls -l shows what is there"),
        Refusal::NotEmpty => failure.hint("remove what is in it first, or all of it with vlinder rm -r"),
        _ => failure,
    }
}

/// No space in an image.
fn no_space() -> Failure {
    Failure::new(Kind::NoSpace, "no space left in the image").hint(
        "remove files or snapshots in it; or make a larger image (vlinder mkfs -b SIZE NEW) and copy everything \
         (vlinder cp -a IMAGE:/ NEW:/), for images can't be enlarged yet",
    )
}

fn from_engine(error: FsError) -> Failure {
    use vlinder_transaction::EngineError;
    let errno = error.errno();
    match error {
        FsError::Engine(EngineError::UnknownFeatures { names }) => Failure::unknown_features(&names),
        FsError::Engine(EngineError::ReadOnly { reason }) => {
            Failure::new(Kind::ReadOnly, format!("the file system can only be read: {reason}"))
        }
        FsError::Engine(EngineError::Volume(error)) => error.into(),
        FsError::Engine(EngineError::NoSpace { .. }) => no_space(),
        FsError::Engine(EngineError::HostFull { device }) => {
            Failure::new(Kind::NoSpace, "the host's file system is full")
                .at(device)
                .hint("free some space there and try again; what was not finished is not in the image")
        }
        other => {
            let text = other.to_string();
            match Kind::of_errno(errno) {
                Kind::Device => Failure::new(Kind::Corruption, text)
                    .hint("keep the image as it is, and look at it with inspect-internal"),
                kind => Failure::new(kind, text),
            }
        }
    }
}

/// What `lstat` says of a file.
pub fn status_of(filesystem: &Filesystem, inode: &Inode) -> Status {
    let found = filesystem.attributes(inode);
    let number = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
    Status {
        file_type: found.file_type,
        permissions: found.mode.permissions(),
        user: found.user.0,
        group: found.group.0,
        links: found.link_count.into(),
        size_bytes: found.size_bytes,
        allocated_bytes: found.allocated_bytes,
        device: (number(found.device_number.major()), number(found.device_number.minor())),
        volume: found.id.root.0,
        inode: found.id.number.0,
        access_time: found.access_time,
        modification_time: found.modification_time,
        change_time: found.change_time,
        birth_time: Some(found.birth_time),
    }
}

impl ImageDirectory {
    /// In messages: `IMAGE:/path`.
    pub fn place(&self, name: &[u8]) -> String {
        let mut path = self.path.to_bytes();
        if name != b"." || path.is_empty() {
            path.push(b'/');
        }
        if name != b"." {
            path.extend_from_slice(name);
        }
        format!("{}:{}", self.image.label, crate::report::escaped(&path))
    }

    /// Whether both lie in one opened image.
    pub fn is_same_image(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.image, &other.image)
    }

    /// A number that no other opened image has.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.image).addr()
    }

    /// The image.
    pub fn image(&self) -> &Arc<OpenImage> {
        &self.image
    }

    /// The directory's inode.
    pub fn inode(&self) -> Result<Arc<Inode>, Failure> {
        self.filesystem().inode(self.id).map_err(self.fail(b"."))
    }

    fn filesystem(&self) -> &Filesystem {
        &self.image.filesystem
    }

    fn fail(&self, name: &[u8]) -> impl FnOnce(FsError) -> Failure {
        move |error| from_fs(error, self.place(name))
    }

    /// The file of a name, or this directory for `.`.
    pub fn lookup(&self, name: &[u8]) -> Result<Arc<Inode>, Failure> {
        if name == b"." {
            return self.inode();
        }
        self.filesystem().lookup(&self.image.caller, &self.inode()?, name).map_err(self.fail(name))
    }

    fn at(&self, id: InodeId, name: &[u8]) -> Self {
        Self { image: Arc::clone(&self.image), id, path: self.path.below(name) }
    }

    /// The names in it; those that no file can have are left out.
    pub fn list(&self) -> Result<DirectoryNames, Failure> {
        let inode = self.inode()?;
        let open = self.filesystem().open_directory(&self.image.caller, &inode).map_err(self.fail(b"."))?;
        let mut names = DirectoryNames::default();
        // Those at the end of the directory are met twice.
        let mut refused_to = None;
        // 0 and 1 are `.` and `..`.
        let mut next = 2;
        loop {
            let records = open.read_and_tell(next, BATCH, &mut |record| {
                if Some(record.offset) > refused_to
                    && let Err(failure) = check_entry(&record.name)
                {
                    refused_to = Some(record.offset);
                    names.refused.push(failure.at(self.place(b".")));
                }
            });
            let records = records.map_err(self.fail(b"."))?;
            let Some(last) = records.last() else {
                names.entries.shrink();
                return Ok(names);
            };
            next = last.offset.saturating_add(1);
            records.iter().for_each(|record| names.entries.push(&record.name, record.file_type));
        }
    }

    pub fn status(&self, name: &[u8]) -> Result<Status, Failure> {
        let inode = self.lookup(name)?;
        Ok(status_of(self.filesystem(), &inode))
    }

    /// As [`ImageDirectory::status`], with none for a name that does not exist.
    pub fn look(&self, name: &[u8]) -> Result<Option<Status>, Failure> {
        let inode = self.inode()?;
        // `.` is answered by the file system, too; a directory that was entered needs no right for that.
        let found = match name {
            b"." => Ok(inode),
            name => self.filesystem().lookup(&self.image.caller, &inode, name),
        };
        match found {
            Ok(inode) => Ok(Some(status_of(self.filesystem(), &inode))),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(None),
            Err(error) => {
                let failure = self.fail(name)(error);
                if failure.kind == Kind::NotFound { Ok(None) } else { Err(failure) }
            }
        }
    }

    pub fn enter(&self, name: &[u8]) -> Result<Self, Failure> {
        let inode = self.lookup(name)?;
        if !inode.is_directory() {
            return Err(Failure::new(Kind::Invalid, "not a directory").at(self.place(name)));
        }
        Ok(self.at(inode.id(), name))
    }

    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let inode = self.lookup(name)?;
        self.filesystem().read_link(&inode).map_err(self.fail(name))
    }

    pub fn open(&self, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        let inode = self.lookup(name)?;
        if inode.file_type() != FileType::Regular {
            return Err(Failure::new(Kind::Invalid, "no regular file").at(self.place(name)));
        }
        Ok(Box::new(ImageSource {
            inode,
            cache: OpenCache::new(),
            used: None,
            directory: self.clone(),
            name: name.to_vec(),
        }))
    }

    pub fn create(&self, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        let (filesystem, caller, inode) = (self.filesystem(), &self.image.caller, self.inode()?);
        let made = match filesystem.create_file(caller, &inode, name, permissions) {
            Ok(inode) => Made::Named(inode),
            // A file without a name until it is whole: what it replaces stays until then.
            Err(error) if error.refusal() == Some(Refusal::Exists) => Made::Temporary(
                filesystem.create_temporary(caller, &inode, permissions).map_err(self.fail(name))?,
            ),
            Err(error) => return Err(self.fail(name)(error)),
        };
        Ok(Box::new(ImageSink::new(self, name, made)))
    }

    /// As [`Directory::overwrite`].
    pub fn overwrite(&self, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        let target = self.lookup(name)?;
        let begun = Replacement::begin(self.filesystem(), &self.image.caller, &target);
        let replacement = begun.map_err(|error| self.refused_overwriting(name, error))?;
        Ok(Box::new(ImageSink::new(self, name, Made::Content(replacement))))
    }

    fn refused_overwriting(&self, name: &[u8], error: FsError) -> Failure {
        let is_not_permitted = error.refusal() == Some(Refusal::NotPermitted);
        let failure = self.fail(name)(error);
        if is_not_permitted {
            failure.hint("the file is immutable, can only grow, or is sealed by fs-verity: mount the image and take the flag away with chattr -i or -a, or copy to another name")
        } else {
            failure
        }
    }

    /// The location that a symbolic link leads to.
    pub fn follow(&self, name: &[u8]) -> Result<Location, Failure> {
        locate(&self.image, &[&self.path.to_bytes(), &b"/"[..], name].concat(), true)
    }

    /// Whether this directory is the one of these numbers, or lies below it.
    pub fn lies_in(&self, volume: u64, inode: u64) -> Result<bool, Failure> {
        let is_it = |id: InodeId| (id.root.0, id.number.0) == (volume, inode);
        let root = self.filesystem().root().map_err(self.fail(b"."))?.id();
        let mut above = Self { image: Arc::clone(&self.image), id: root, path: SharedPath::default() };
        for name in split(&self.path.to_bytes()) {
            if is_it(above.id) {
                return Ok(true);
            }
            above = above.enter(&name)?;
        }
        Ok(is_it(above.id))
    }

    /// Refuses `.` as a name for what is to be made: the directory itself is there.
    pub fn refuse_itself(&self, name: &[u8]) -> Result<(), Failure> {
        if name != b"." {
            return Ok(());
        }
        let failure = Failure::new(Kind::Exists, "a directory that is there already").at(self.place(name));
        Err(failure.hint("give what is to be made a name: IMAGE:/NAME"))
    }

    pub fn make_directory(&self, name: &[u8], permissions: u32) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let made = self.filesystem().create_directory(&self.image.caller, &self.inode()?, name, permissions);
        made.map(drop).map_err(self.fail(name))
    }

    pub fn make_link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let made = self.filesystem().create_symbolic_link(&self.image.caller, &self.inode()?, name, text);
        made.map(drop).map_err(self.fail(name))
    }

    pub fn make_node(&self, name: &[u8], status: &Status) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let device = DeviceNumber::new(status.device.0, status.device.1);
        let (caller, permissions) = (&self.image.caller, status.permissions & 0o777);
        let made = self.filesystem().create_node(
            caller,
            &self.inode()?,
            name,
            status.file_type,
            permissions,
            device,
        );
        made.map(drop).map_err(self.fail(name))
    }

    pub fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        self.filesystem().unlink(&self.image.caller, &self.inode()?, name).map_err(self.fail(name))
    }

    pub fn remove_directory(&self, name: &[u8]) -> Result<(), Failure> {
        self.filesystem().remove_directory(&self.image.caller, &self.inode()?, name).map_err(self.fail(name))
    }

    pub fn rename(&self, name: &[u8], to: &Self, to_name: &[u8], replace: bool) -> Result<(), Failure> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        let caller = &self.image.caller;
        let (inode, to_inode) = (self.inode()?, to.inode()?);
        self.filesystem().rename(caller, &inode, name, &to_inode, to_name, mode).map_err(|error| {
            let place =
                if error.refusal() == Some(Refusal::NotFound) { self.place(name) } else { to.place(to_name) };
            from_fs(error, place)
        })
    }

    pub fn sync(&self) -> Result<(), Failure> {
        self.filesystem().sync().map(drop).map_err(|error| from_fs(error, &self.image.label))
    }

    pub fn link(&self, name: &[u8], to: &Self, to_name: &[u8]) -> Result<(), Failure> {
        let inode = self.lookup(name)?;
        let linked = self.filesystem().link(&self.image.caller, &inode, &to.inode()?, to_name);
        linked.map_err(|error| from_fs(error, to.place(to_name)))
    }

    pub fn attributes(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let inode = self.lookup(name)?;
        self.filesystem().extended_attributes(&inode).map_err(self.fail(name))
    }

    pub fn attribute(&self, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        let inode = self.lookup(name)?;
        self.filesystem().extended_attribute(&self.image.caller, &inode, attribute).map_err(self.fail(name))
    }

    pub fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.set_attribute_of(&self.lookup(name)?, name, attribute, value)
    }

    fn set_attribute_of(
        &self,
        inode: &Arc<Inode>,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
    ) -> Result<(), Failure> {
        let mode = AttributeMode::Either;
        self.filesystem()
            .set_extended_attribute(&self.image.caller, inode, attribute, value, mode)
            .map_err(self.fail(name))
    }

    /// As [`Directory::remove_attribute`].
    pub fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        self.remove_attribute_of(&self.lookup(name)?, name, attribute)
    }

    fn remove_attribute_of(&self, inode: &Arc<Inode>, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        let (filesystem, caller) = (self.filesystem(), &self.image.caller);
        // Asked first: the removal of what is not there would begin a transaction for each file.
        match filesystem.extended_attribute(caller, inode, attribute) {
            Ok(_) => filesystem.remove_extended_attribute(caller, inode, attribute).map_err(self.fail(name)),
            Err(error) if matches!(error.refusal(), Some(Refusal::NoAttribute | Refusal::NotSupported)) => {
                Ok(())
            }
            Err(error) => Err(self.fail(name)(error)),
        }
    }

    pub fn change(&self, name: &[u8], change: &Change) -> Result<(), Failure> {
        self.change_of(&self.lookup(name)?, name, change)
    }

    fn change_of(&self, inode: &Arc<Inode>, name: &[u8], change: &Change) -> Result<(), Failure> {
        let (filesystem, caller) = (self.filesystem(), &self.image.caller);
        let apply = |changes: SetAttributes| {
            filesystem.set_attributes(caller, inode, &changes).map(drop).map_err(self.fail(name))
        };
        if let Some(owner) = change.owner {
            // Alone: a change of owner takes set-id bits away, which the permissions then give back.
            apply(SetAttributes {
                user: Some(owner.user()),
                group: Some(owner.group()),
                ..SetAttributes::default()
            })?;
        }
        if change.permissions.is_some() || change.times.is_some() {
            apply(SetAttributes {
                permissions: change.permissions,
                access_time: change.times.map(|(access, _)| SetTime::At(access)),
                modification_time: change.times.map(|(_, modification)| SetTime::At(modification)),
                ..SetAttributes::default()
            })?;
        }
        Ok(())
    }
}

struct ImageSource {
    directory: ImageDirectory,
    name: Vec<u8>,
    inode: Arc<Inode>,
    cache: OpenCache,
    /// What was read last, whose memory is used again.
    used: Option<Stretch>,
}

impl Source for ImageSource {
    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure> {
        let _operation = self.inode.operation.read();
        data::read(self.directory.filesystem(), &self.inode, &self.cache, offset, target)
            .map_err(self.directory.fail(&self.name))
    }

    fn read_data(
        &mut self,
        offset: u64,
        _scratch: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<Option<u64>, Failure> {
        let found = {
            let _operation = self.inode.operation.read();
            data::read_data(self.directory.filesystem(), &self.inode, &self.cache, offset, self.used.take())
        };
        let Some(stretch) = found.map_err(self.directory.fail(&self.name))? else { return Ok(None) };
        take(&stretch.runs().collect::<Vec<_>>())?;
        let end = stretch.end();
        self.used = Some(stretch);
        Ok(Some(end))
    }
}
