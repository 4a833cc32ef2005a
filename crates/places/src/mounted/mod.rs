//! The one place where a path of the host is recognised as one of a mounted vlinder, and where verbs that the
//! kernel has no system call for are handed to that mount.

mod failure;
mod file_map;
mod held;
mod holder;
mod inside;
mod records;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use vlinder_control::protocol::{
    ConditionRecord, MountInformation, ReceiveRequest, SpaceDevice, SubvolumeTarget,
};
use vlinder_control::{Answer, Client, ClientError, MountEntry, Name, Request};
use vlinder_format::RootId;
use vlinder_fs::data::MappedExtent;
use vlinder_fs::{SubvolumeChoice, SubvolumeInformation};
use vlinder_partitions::ImageName;
use vlinder_transaction::{DeviceReport, Trimmed};

use crate::failure::{Failure, Kind};
use crate::fullness::{Fullness, ShownDevice};
use crate::metrics::Reading;
use crate::place::{Location, locate};
use crate::target::Follow;
use crate::text::escaped;

use failure::{SERVER_ENDED_HINT, is_dead};
use held::HeldPath;

pub use failure::{failure, of_server};
pub use holder::advise;
pub(crate) use holder::server_of;

/// What a path of the host is, to a verb that works on whole file systems or subvolumes.
pub(crate) enum HostPath {
    /// A regular file or block device: an image by itself.
    Image,
    /// On a mounted vlinder.
    Mounted(Box<Mounted>),
    /// In a file system of the kernel's.
    Elsewhere,
}

/// Looks what a path is. What lies on a mount is taken as a part of it, though it may be an image itself
/// (`IMAGE:/` names that); a name that does not exist yet lies where its directory does.
///
/// # Errors
/// Where neither it nor its directory exists, or the mount's server does not answer.
pub(crate) fn recognise(path: &Path, follow: Follow) -> Result<HostPath, Failure> {
    use std::os::unix::fs::FileTypeExt;
    if let Some(mounted) = Mounted::at(path, follow)? {
        return Ok(HostPath::Mounted(Box::new(mounted)));
    }
    // Of a mount whose server has ended the kernel may know the root for a moment still, so any of the looks
    // above may have failed.
    let status = std::fs::metadata(ImageName::of(path).file()).map_err(|error| {
        let failure = Failure::host(&error, path.display());
        if is_dead(&error) && is_on_ours(path) { failure.hint(SERVER_ENDED_HINT) } else { failure }
    })?;
    let is_image = status.is_file() || status.file_type().is_block_device();
    Ok(if is_image { HostPath::Image } else { HostPath::Elsewhere })
}

/// What statfs(2) tells of a Btrfs that the kernel has mounted (`BTRFS_SUPER_MAGIC`).
const KERNEL_BTRFS: rustix::fs::FsWord = 0x9123_683e;

/// The failure of a verb that needs an image or a mounted vlinder.
pub(crate) fn no_mount(path: &Path) -> Failure {
    // Scripts look for btrfs-progs' words (grub-btrfs, of `filesystem df`), which are true of no Btrfs.
    let of_kernel = rustix::fs::statfs(path).is_ok_and(|found| found.f_type == KERNEL_BTRFS);
    let text = if of_kernel {
        "on a Btrfs that the kernel has mounted: no image, and no path of a mounted vlinder"
    } else {
        "not a btrfs filesystem: no image, and no path of a mounted vlinder"
    };
    Failure::new(Kind::Unsupported, text)
        .at(path.display())
        .hint("give IMAGE:/PATH; for a Btrfs that the kernel has mounted use btrfs-progs")
}

/// A path on a mount, and a conversation with the server of that mount.
pub struct Mounted {
    client: RefCell<Client>,
    /// For system calls.
    path: PathBuf,
    /// Of a path in an image, which no path of the host was written for: then `path` leads by this.
    held: Option<Box<HeldPath>>,
    /// For requests.
    inner: Name,
    /// In messages.
    place: String,
}

impl Mounted {
    /// None where the path lies on no vlinder.
    fn at(path: &Path, follow: Follow) -> Result<Option<Self>, Failure> {
        let is_link = path.symlink_metadata().is_ok_and(|status| status.is_symlink());
        let path = match path.canonicalize() {
            Ok(resolved) if follow == Follow::Yes || !is_link => resolved,
            _ => path.to_owned(),
        };
        // A link that is meant itself, and a name that is to be made, lie where their directory does.
        let known = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) if is_link && follow == Follow::No || !path.exists() => parent,
            _ => &path,
        };
        match MountEntry::of_path(known) {
            Ok(Some(entry)) if entry.is_ours() => {}
            // A path that can't be looked up is told by who opens it.
            _ => return Ok(None),
        }
        let client = Client::connect(known).map_err(failure)?;
        let inner = client.inner_path(&path).map_err(failure)?;
        let place = escaped(path.as_os_str().as_bytes());
        Ok(Some(Self { client: RefCell::new(client), path, held: None, inner, place }))
    }

    /// The path in an image that a mount of this user's holds; none where no such mount is found.
    ///
    /// # Errors
    /// [`Kind::Busy`] where the mount shows another subvolume than the one asked for; where the path leads
    /// nowhere.
    pub(crate) fn in_held_image(
        image: &Path,
        path: &[u8],
        choice: &SubvolumeChoice,
        follow: Follow,
    ) -> Result<Option<Self>, Failure> {
        let place = format!("{}:{}", image.display(), escaped(path));
        let Some((mut client, information)) = server_of(image) else { return Ok(None) };
        let mountpoint = client.mount().mountpoint.clone();
        let wanted = match choice {
            SubvolumeChoice::Default => match client.request(&Request::SubvolumeGetDefault) {
                Ok(Answer::Subvolume(record)) => Some(record.number),
                Ok(_) => return Err(failure(client.unexpected())),
                Err(error) => return Err(failure(error)),
            },
            SubvolumeChoice::Number(root) if root.0 == 0 => Some(RootId::FS_TREE.0),
            SubvolumeChoice::Number(root) => Some(root.0),
            SubvolumeChoice::Path(_) => None,
        };
        if wanted != Some(information.root) {
            let text = format!("it is mounted on {}, which shows another subvolume", mountpoint.display());
            return Err(Failure::new(Kind::Busy, text)
                .at(place)
                .hint("give a path on the mount, or unmount it with vlinder umount"));
        }
        let held = HeldPath::of(client.mount(), path, follow).map_err(|failure| failure.at(&place))?;
        let inner = client.mount().inner_path(held.shown());
        let inner =
            inner.ok_or_else(|| failure(ClientError::NotMounted { path: held.shown().to_owned() }))?;
        let inner = Name(inner.as_os_str().as_bytes().to_vec());
        Ok(Some(Self {
            client: RefCell::new(client),
            path: held.path(),
            held: Some(Box::new(held)),
            inner,
            place,
        }))
    }

    /// Where it lies on the host.
    ///
    /// # Errors
    /// What the system said.
    pub fn location(&self) -> Result<Location, Failure> {
        match &self.held {
            Some(held) => held.location().map_err(|failure| failure.at(&self.place)),
            None => locate::on_host(&self.path, Follow::No),
        }
    }

    /// The path for system calls.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The path that requests name.
    pub fn inner(&self) -> Name {
        self.inner.clone()
    }

    /// The same file as a subvolume to ask for.
    pub fn target(&self) -> SubvolumeTarget {
        SubvolumeTarget::Path(self.inner())
    }

    /// The last name of the path; empty for the root of the mount.
    pub fn name(&self) -> &[u8] {
        self.inner.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// A name in this directory, on the same mount.
    pub fn enter(self, name: &[u8]) -> Self {
        let slash: &[u8] = if self.inner.0.is_empty() { b"" } else { b"/" };
        let inner = Name([&self.inner.0, slash, name].concat());
        let place = format!("{}/{}", self.place.trim_end_matches('/'), escaped(name));
        let path = self.path.join(OsStr::from_bytes(name));
        let held = self.held.and_then(|held| held.enter(name)).map(Box::new);
        Self { client: self.client, path, held, inner, place }
    }

    /// Whether both lie on one mount.
    pub fn is_same_mount(&self, other: &Self) -> bool {
        self.client.borrow().mount().device == other.client.borrow().mount().device
    }

    /// Whether root or this user serves the mount.
    pub(crate) fn is_trusted(&self) -> bool {
        vlinder_control::is_trusted(self.client.borrow().mount())
    }

    /// The server of the mount, and what it serves.
    pub(crate) fn information(&self) -> Result<MountInformation, Failure> {
        match self.request(&Request::Mount)? {
            Answer::Mount(information) => Ok(information),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks the server.
    ///
    /// # Errors
    /// What it refused, at this path.
    pub fn request(&self, request: &Request) -> Result<Answer, Failure> {
        self.client.borrow_mut().request(request).map_err(|error| match error {
            ClientError::Server(body) => of_server(body).at(&self.place),
            other => failure(other),
        })
    }

    /// The failure for an answer of the wrong kind.
    pub fn unexpected(&self) -> Failure {
        failure(self.client.borrow().unexpected())
    }

    /// Asks for something that is answered with no more than that it is done.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn order(&self, request: &Request) -> Result<(), Failure> {
        match self.request(request)? {
            Answer::Done => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for a subvolume.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn subvolume(&self, request: &Request) -> Result<SubvolumeInformation, Failure> {
        match self.request(request)? {
            Answer::Subvolume(record) => Ok(records::subvolume(record)),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes or deletes the subvolume at this path: by a system call, where that is possible, so that the
    /// kernel tells those who watch the directory (inotify). What the kernel refuses is asked for again
    /// directly, which tells why, if it still fails.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached; what the system said of a directory that
    /// has to go again.
    pub fn change_subvolume(&self, request: &Request) -> Result<SubvolumeInformation, Failure> {
        let Some((directory, name)) = self.directory_on_mount() else { return self.subvolume(request) };
        let remove = || rustix::fs::unlinkat(&directory, &name, AtFlags::REMOVEDIR);
        let call = || match request {
            Request::SubvolumeDelete { .. } => remove(),
            _ => rustix::fs::mkdirat(&directory, &name, Mode::from_raw_mode(0o777)),
        };
        // A server that is older, or that can't tell this process from others, expects no call.
        let by_call = Request::ByCall { request: Box::new(request.clone()) };
        if !matches!(self.request(&by_call), Ok(Answer::Expected)) {
            return self.subvolume(request);
        }
        let called = call();
        match (self.request(&Request::CallOutcome)?, called) {
            (Answer::Subvolume(record), _) => Ok(records::subvolume(record)),
            (Answer::NotCalled, Ok(())) if !matches!(request, Request::SubvolumeDelete { .. }) => {
                // The server did not know the call: what it made is a directory.
                remove().map_err(|errno| Failure::host(&errno.into(), &self.place))?;
                self.subvolume(request)
            }
            (Answer::NotCalled, _) => self.subvolume(request),
            _ => Err(self.unexpected()),
        }
    }

    /// The directory that the path lies in, with the path's last name, if it lies on the mount. It is held
    /// before the server is asked, which may be another user's, as the directories on the way may be: the
    /// name is not looked up by them again.
    fn directory_on_mount(&self) -> Option<(OwnedFd, OsString)> {
        let (parent, name) = (self.path.parent()?, self.path.file_name()?);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let directory = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
        let mount = vlinder_control::unmount::mount_of(directory.as_fd()).ok()?;
        (mount == self.client.borrow().mount().id).then(|| (directory, name.to_owned()))
    }

    /// All subvolumes by number, deleted ones whose blocks are not all freed too.
    pub(crate) fn subvolumes(&self) -> Result<Vec<SubvolumeInformation>, Failure> {
        match self.request(&Request::SubvolumeList)? {
            Answer::Subvolumes { subvolumes } => Ok(subvolumes.into_iter().map(records::subvolume).collect()),
            _ => Err(self.unexpected()),
        }
    }

    /// How full the file system is, and how it fares, with the bytes that statfs(2) tells are available.
    pub(crate) fn space(&self, available_bytes: u64) -> Result<Fullness, Failure> {
        let Answer::Space(record) = self.request(&Request::FilesystemUsage)? else {
            return Err(self.unexpected());
        };
        let is_trusted = self.is_trusted();
        // Of a device that the user may not open, or that another user's server names, nothing more is known.
        let length = |path: &Name| {
            let path = Path::new(OsStr::from_bytes(&path.0));
            is_trusted.then(|| holder::device_length(path)).flatten()
        };
        let report = records::space(&record);
        let devices = record.devices.iter().zip(&report.devices);
        let shown = |(told, report): (&SpaceDevice, &DeviceReport)| {
            ShownDevice::new(*report, &told.path.0, length(&told.path).filter(|_| !report.is_missing))
        };
        Ok(Fullness {
            devices: devices.map(shown).collect(),
            shares: records::shares(&record),
            report,
            available_bytes,
            condition: record.condition,
        })
    }

    /// The label.
    pub(crate) fn label(&self) -> Result<Vec<u8>, Failure> {
        match self.request(&Request::LabelGet)? {
            Answer::Label { label } => Ok(label.0),
            _ => Err(self.unexpected()),
        }
    }

    /// Makes all durable; the generation that holds it.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn sync(&self) -> Result<u64, Failure> {
        match self.request(&Request::FilesystemSync)? {
            Answer::Synced { generation } => Ok(generation),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives free space back to the host; `done` hears of each part when it is done, and how many bytes of
    /// the devices it was.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn trim(&self, mut done: impl FnMut(u64)) -> Result<Trimmed, Failure> {
        let (mut trimmed, mut from) = (Trimmed::default(), None);
        loop {
            let Answer::Trimmed(record) = self.request(&Request::Fstrim { from })? else {
                return Err(self.unexpected());
            };
            trimmed.add(records::trimmed(&record));
            done(record.group_bytes.saturating_add(record.unallocated_bytes));
            match record.next {
                None => return Ok(trimmed),
                // The server may be anybody's, and must not lead its client in a circle.
                next if next <= from => return Err(self.unexpected()),
                next => from = next,
            }
        }
    }

    /// The number of the subvolume that the path lies in.
    pub(crate) fn root(&self) -> Result<RootId, Failure> {
        match self.request(&Request::RootId { path: self.inner() })? {
            Answer::Root { number } => Ok(RootId(number)),
            _ => Err(self.unexpected()),
        }
    }

    /// The names of an inode of the subvolume that the path lies in, from that subvolume's root.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn inode_paths(&self, inode: u64) -> Result<Vec<Vec<u8>>, Failure> {
        match self.request(&Request::InodeResolve { path: self.inner(), inode })? {
            Answer::Paths { paths } => Ok(paths.into_iter().map(|path| path.0).collect()),
            _ => Err(self.unexpected()),
        }
    }

    /// Waits until deleted subvolumes are wholly gone, these or all that there are; gives their numbers.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn await_deletions(&self, numbers: &[u64]) -> Result<Vec<u64>, Failure> {
        match self.request(&Request::SubvolumeSync { numbers: numbers.to_vec() })? {
            Answer::Freed { numbers } => Ok(numbers),
            _ => Err(self.unexpected()),
        }
    }

    /// Hands streams over, for this directory; gives what came of them.
    ///
    /// # Errors
    /// As [`Mounted::request`]; that the streams can't be read.
    pub fn receive(&self, how: ReceiveRequest, mut streams: impl Read) -> Result<Answer, Failure> {
        let request = Request::Receive { directory: self.inner(), how };
        self.client.borrow_mut().upload(&request, &mut streams).map_err(|error| match error {
            ClientError::Server(body) => of_server(body).at(&self.place),
            other => failure(other),
        })
    }

    /// The file's size, the size of a block, and where its bytes lie.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached; [`Kind::Device`] where a stranger's
    /// server tells of too many extents.
    pub fn file_map(&self) -> Result<(u64, u64, Vec<MappedExtent>), Failure> {
        self.file_map_of(&self.inner)
    }

    /// As [`Mounted::file_map`], for another file of the mount.
    ///
    /// # Errors
    /// As [`Mounted::file_map`].
    pub fn file_map_of(&self, path: &Name) -> Result<(u64, u64, Vec<MappedExtent>), Failure> {
        let ask = |from| match self.request(&Request::FileMap { path: path.clone(), from })? {
            Answer::FileMap { size_bytes, block_bytes, runs } => Ok((size_bytes, block_bytes, runs)),
            _ => Err(self.unexpected()),
        };
        file_map::whole(self.is_trusted(), &self.place, ask)
    }

    /// Counters and histograms, and how the file system fares.
    pub(crate) fn statistics(&self) -> Result<(Vec<Reading>, ConditionRecord), Failure> {
        match self.request(&Request::Statistics)? {
            Answer::Statistics { metrics, condition } => {
                Ok((metrics.into_iter().map(records::reading).collect(), condition))
            }
            _ => Err(self.unexpected()),
        }
    }
}

fn is_on_ours(path: &Path) -> bool {
    MountEntry::by_name(path).is_ok_and(|entry| entry.is_some_and(|entry| entry.is_ours()))
}
