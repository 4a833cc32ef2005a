//! The images that a verb works on.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;
use vlinder_fs::{Filesystem, OpenOptions, RootId, SubvolumeChoice};
use vlinder_partitions::{ImageIdentity, ImageName};

use crate::caller::caller;
use crate::devices::{Purpose, identity, open_devices};
use crate::failure::{Failure, Kind};
use crate::leased::{self, Freshness, Lease};
use crate::mounted::{self, HostPath, Mounted};
use crate::options;
use crate::place::image::{OpenImage, from_fs};
use crate::place::{FileStatus, Location, locate};
use crate::target::{Follow, Target};
use crate::text::escaped;

/// What a verb that only reads keeps of an image, unless `cache=` says otherwise: it mostly goes through it
/// once, and has to do with 256 MiB whatever the image holds.
const READERS_CACHE_BYTES: u64 = 128 << 20;

/// What to do where `subvol=` or `subvolid=` names nothing.
pub const NO_SUBVOLUME: &str =
    "there is no such subvolume: vlinder subvolume list shows those that there are";

/// The flags of verbs that open images.
#[derive(Args, Debug, Default)]
pub struct ImageArguments {
    /// Mount options: ro, subvol=PATH, subvolid=N, compress=ALG …, as in vlinder mount.
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A further device of the image's file system; may be given several times.
    #[arg(short = 'D', long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

impl ImageArguments {
    /// For a verb whose own flags leave no room for -o.
    pub fn new(options: &[String], devices: &[PathBuf]) -> Self {
        Self { options: options.to_vec(), devices: devices.to_vec() }
    }
}

/// What an argument names to a verb that works on a file system as such.
pub enum InImage {
    /// In an image that was opened.
    Opened(Location),
    /// On a mount.
    Mounted(Mounted),
}

/// The images that a verb has open, each once.
pub struct Images<'a> {
    arguments: &'a ImageArguments,
    options: OpenOptions,
    freshness: Freshness,
    open: RefCell<Vec<Opened>>,
}

/// An image that is open.
struct Opened {
    identity: ImageIdentity,
    /// Of its first device, with the part of it that is meant.
    path: PathBuf,
    purpose: Purpose,
    image: Arc<OpenImage>,
    lease: Option<Lease>,
}

impl<'a> Images<'a> {
    /// None yet; reads the options.
    ///
    /// # Errors
    /// An option that is unknown, or has a bad value.
    pub fn new(arguments: &'a ImageArguments) -> Result<Self, Failure> {
        let options = options::parse(&arguments.options)?;
        Ok(Self { arguments, options, freshness: Freshness::default(), open: RefCell::default() })
    }

    /// With another cache for images that are only read, unless the options say how large it is.
    pub fn with_cache(mut self, bytes: u64) -> Self {
        if self.options.cache_bytes == OpenOptions::default().cache_bytes {
            self.options.cache_bytes = bytes;
        }
        self
    }

    /// With all that was written to mounts whose states are leased.
    pub fn with_dirty_pages(mut self) -> Self {
        self.freshness = Freshness::WithDirtyPages;
        self
    }

    /// What an argument names.
    ///
    /// # Errors
    /// Where it names nothing, the image can't be opened, or the path leads nowhere.
    pub fn locate(&self, argument: &OsStr, purpose: Purpose, follow: Follow) -> Result<Location, Failure> {
        let target = Target::parse(argument).map_err(|fault| Failure::usage(fault.to_string()))?;
        let location = match target {
            Target::Host(path) => locate::on_host(&path, follow),
            Target::Image { image, path } => match self.reach(&image, &path, purpose, follow)? {
                InImage::Opened(location) => Ok(location),
                InImage::Mounted(mounted) => mounted.location(),
            },
        }?;
        // What is written, the verb judges itself: it may be about to be made.
        let wants_directory = purpose == Purpose::Read && argument.as_bytes().ends_with(b"/");
        if wants_directory && location.look()?.is_some_and(|found| found.file_type != FileType::Directory) {
            let failure = Failure::new(Kind::Invalid, "not a directory").at(location.place());
            return Err(failure.hint("leave out the slash behind it to name the file itself"));
        }
        Ok(location)
    }

    /// As [`Images::locate`], for verbs that work on a file system as such: a path of the host is one of a
    /// mounted vlinder there, or an image and stands for its root.
    ///
    /// # Errors
    /// As there; and where a path of the host is neither.
    pub fn locate_in_image(
        &self,
        argument: &OsStr,
        purpose: Purpose,
        follow: Follow,
    ) -> Result<InImage, Failure> {
        let target = Target::parse(argument).map_err(|fault| Failure::usage(fault.to_string()))?;
        let (image, path) = match target {
            Target::Image { image, path } => (image, path),
            Target::Host(path) => match mounted::recognise(&path, follow)? {
                HostPath::Image => (path, b"/".to_vec()),
                HostPath::Mounted(mounted) => return Ok(InImage::Mounted(*mounted)),
                HostPath::Elsewhere => return Err(mounted::no_mount(&path)),
            },
        };
        self.reach(&image, &path, purpose, follow)
    }

    /// A path in an image: opened, or, to read what a mount holds, by way of that mount; where the mount does
    /// not show it, as it was at the last commit.
    fn reach(&self, path: &Path, inner: &[u8], purpose: Purpose, follow: Follow) -> Result<InImage, Failure> {
        let path = &self.options.device_name(path)?;
        let image = match self.image(path, purpose) {
            Err(failure) if failure.kind == Kind::Busy && purpose == Purpose::Read => {
                match Mounted::in_held_image(path, inner, &self.options.subvolume, follow) {
                    Ok(Some(mounted)) => return Ok(InImage::Mounted(mounted)),
                    Ok(None) => return Err(failure),
                    Err(hidden) if hidden.kind == Kind::Busy => self.image(path, Purpose::Leased)?,
                    Err(other) => return Err(other),
                }
            }
            other => other?,
        };
        locate::in_image(&image, inner, follow).map(InImage::Opened)
    }

    /// A path on a mount, in the image that the mount holds, as it was at the last commit.
    ///
    /// # Errors
    /// What the mount's server refused; where the path leads nowhere.
    pub(crate) fn locate_leased(&self, mounted: &Mounted) -> Result<Location, Failure> {
        if !mounted.is_trusted() {
            let text = "it is not permitted on another user's mount, whose server names the devices to read";
            return Err(Failure::new(Kind::Permission, text)
                .at(mounted.place())
                .hint("give the image itself, as IMAGE or IMAGE:/PATH"));
        }
        let information = mounted.information()?;
        let names = information.devices.iter();
        let paths: Vec<PathBuf> = names.map(|name| PathBuf::from(OsStr::from_bytes(&name.0))).collect();
        let first = paths.first().ok_or_else(|| mounted.unexpected())?;
        let identity = identity(first)?;
        let is_it = |opened: &&Opened| opened.identity == identity && opened.purpose == Purpose::Leased;
        let open = self.open.borrow().iter().find(is_it).map(|opened| Arc::clone(&opened.image));
        let image = match open {
            // All that one command reads of a mount is of one state.
            Some(image) => image,
            None => {
                let subvolume = SubvolumeChoice::Number(RootId(information.root));
                let options = OpenOptions { read_only: true, subvolume, ..self.options.clone() };
                let image = self.open_devices(&paths, options, Purpose::Leased)?;
                self.keep(identity, first, Purpose::Leased, image)
            }
        };
        locate::in_image(&image, &mounted.inner().0, Follow::Yes)
    }

    /// Refuses to copy or move a file of the host that an opened image lies in, or a directory with it: it
    /// would go into itself, or be lost with what went into it.
    ///
    /// # Errors
    /// Where that is so; where the image's path leads nowhere any more.
    pub fn refuse_own(&self, from: &Location, status: &FileStatus) -> Result<(), Failure> {
        if from.directory.is_image() {
            return Ok(());
        }
        let opened: Vec<PathBuf> = self.open.borrow().iter().map(|opened| opened.path.clone()).collect();
        for path in opened.iter().chain(&self.arguments.devices) {
            let image = locate::on_host(ImageName::of(path).file(), Follow::Yes)?;
            let found = image.status()?;
            let is_it = (found.volume, found.inode) == (status.volume, status.inode);
            let is_below = status.file_type == FileType::Directory && image.directory.lies_in(status)?;
            if is_it || is_below {
                let text = "it is, or has in it, the image that this command works on";
                return Err(Failure::new(Kind::Invalid, text)
                    .at(from.place())
                    .hint("leave the image out, or work on a copy of it"));
            }
        }
        Ok(())
    }

    /// The images that are open for writing.
    pub fn written(&self) -> Vec<Arc<OpenImage>> {
        let open = self.open.borrow();
        let written = open.iter().filter(|opened| opened.purpose == Purpose::Write);
        written.map(|opened| Arc::clone(&opened.image)).collect()
    }

    /// The opened image at a path of the host.
    ///
    /// # Errors
    /// Where it can't be opened, or not for this purpose.
    pub(crate) fn image(&self, path: &Path, purpose: Purpose) -> Result<Arc<OpenImage>, Failure> {
        let identity = identity(path)?;
        if let Some(opened) = self.open.borrow().iter().find(|opened| opened.identity == identity) {
            if purpose == Purpose::Write && opened.purpose != Purpose::Write {
                return Err(Failure::new(Kind::Busy, "it is open for reading already").at(path.display()));
            }
            return Ok(Arc::clone(&opened.image));
        }
        // One lock is for the whole file.
        let is_beside = |opened: &Opened| {
            opened.identity.host == identity.host && [opened.purpose, purpose].contains(&Purpose::Write)
        };
        if self.open.borrow().iter().any(is_beside) {
            let text = "another partition of it is open in this command, and one of them is to be written";
            let failure = Failure::new(Kind::Busy, text).at(path.display());
            return Err(failure.hint("copy by way of a directory of the host, in two steps"));
        }
        if !self.arguments.devices.is_empty() && !self.open.borrow().is_empty() {
            let failure = Failure::usage("-D can't be used with several images");
            return Err(failure.hint("copy by way of a directory of the host"));
        }
        let image = self.open(path, purpose)?;
        Ok(self.keep(identity, path, purpose, image))
    }

    fn keep(
        &self,
        identity: ImageIdentity,
        path: &Path,
        purpose: Purpose,
        (image, lease): (OpenImage, Option<Lease>),
    ) -> Arc<OpenImage> {
        let image = Arc::new(image);
        self.open.borrow_mut().push(Opened {
            identity,
            path: path.to_owned(),
            purpose,
            image: Arc::clone(&image),
            lease,
        });
        image
    }

    fn open(&self, path: &Path, purpose: Purpose) -> Result<(OpenImage, Option<Lease>), Failure> {
        let mut options = self.options.clone();
        if purpose == Purpose::Write && options.read_only {
            let failure = Failure::new(Kind::ReadOnly, "this verb writes, but -o ro was given");
            return Err(failure.at(path.display()).hint("leave -o ro out"));
        }
        options.read_only = purpose != Purpose::Write;
        if options.read_only && options.cache_bytes == OpenOptions::default().cache_bytes {
            options.cache_bytes = READERS_CACHE_BYTES;
        }
        let mut paths = vec![path.to_owned()];
        paths.extend(self.arguments.devices.iter().cloned());
        self.open_devices(&paths, options, purpose)
    }

    /// Opens the file system on these devices, of which there is at least one.
    fn open_devices(
        &self,
        paths: &[PathBuf],
        options: OpenOptions,
        purpose: Purpose,
    ) -> Result<(OpenImage, Option<Lease>), Failure> {
        let path = paths.first().ok_or_else(|| Failure::usage("no device"))?;
        let is_leased = purpose == Purpose::Leased;
        let lease = if is_leased { Lease::of(paths, self.freshness)? } else { None };
        let devices = open_devices(paths, purpose)?;
        let has_choice = options.subvolume != SubvolumeChoice::Default;
        let opened = match (&lease, purpose) {
            (Some(lease), _) => Filesystem::open_leased(devices, lease.superblocks.clone(), options),
            (None, Purpose::Leased) => {
                let failure = Failure::new(Kind::Busy, "the mount that holds it has just ended");
                return Err(failure.at(path.display()).hint("try again"));
            }
            (None, _) => Filesystem::open_devices(devices, options),
        };
        let filesystem = opened.map_err(|error| {
            let failure = from_fs(error, path.display());
            if has_choice && failure.kind == Kind::NotFound { failure.hint(NO_SUBVOLUME) } else { failure }
        })?;
        if purpose == Purpose::Write
            && let Some(reason) = filesystem.engine().read_only_reason()
        {
            let text = format!("the file system can only be read: {reason}");
            return Err(Failure::new(Kind::ReadOnly, text).at(path.display()));
        }
        let label = escaped(path.as_os_str().as_encoded_bytes());
        Ok((OpenImage { filesystem, caller: caller(), label }, lease))
    }

    /// Makes sure that what was read so far is of the states that mounts leased.
    ///
    /// # Errors
    /// A leased state that was given up: then what was read may be of no state at all.
    pub fn confirm(&self) -> Result<(), Failure> {
        self.open.borrow().iter().try_for_each(|opened| leased::confirm(opened.lease.as_ref()))
    }

    /// Makes everything durable that was written, and makes sure of what was read. Every verb ends with it.
    ///
    /// # Errors
    /// What writing met: then nothing is sure to be on disk. A leased state that was given up: then what was
    /// read may be of no state at all.
    pub fn close(&self) -> Result<(), Failure> {
        self.confirm()?;
        for opened in self.open.borrow().iter().filter(|opened| opened.purpose == Purpose::Write) {
            let image = &opened.image;
            image.filesystem.sync().map_err(|error| from_fs(error, &image.label))?;
        }
        Ok(())
    }
}
