//! What a verb on file systems and subvolumes works on: a name in an image that it opened, or a path on a
//! mount. What is known of either comes in the same types.

mod label;
mod named;
mod subvolume;

use std::ffi::OsStr;

use vlinder_control::protocol::{ConditionRecord, SubvolumeTarget};
use vlinder_control::{Answer, Name, Request};
use vlinder_format::RootId;
use vlinder_fs::SubvolumeInformation;
use vlinder_transaction::DeviceReport;

use crate::devices::Purpose;
use crate::failure::{Failure, Kind};
use crate::fullness::{Fullness, ShownDevice};
use crate::image::{Images, InImage};
use crate::metrics::Reading;
use crate::mounted::Mounted;
use crate::place::Directory;
use crate::place::image::from_fs;
use crate::target::Follow;

pub use named::Named;
pub use subvolume::{information, missing, of_subvolume};

/// What a target names.
pub enum Object {
    /// In an opened image.
    Image(Named),
    /// On a mount.
    Mounted(Mounted),
}

impl Object {
    /// What an argument names; a whole image names its root.
    ///
    /// # Errors
    /// Where it names nothing, or what holds it can't be opened or asked.
    pub fn find(
        images: &Images<'_>,
        target: &OsStr,
        purpose: Purpose,
        follow: Follow,
    ) -> Result<Self, Failure> {
        let location = match images.locate_in_image(target, purpose, follow)? {
            InImage::Opened(location) => location,
            InImage::Mounted(mounted) => return Ok(Self::Mounted(mounted)),
        };
        match location.directory {
            Directory::Image(directory) => Ok(Self::Image(Named { directory, name: location.name })),
            // locate_in_image gives no other.
            Directory::Host(_) => Err(Failure::usage("no image")),
        }
    }

    /// As [`Object::find`], for what no mount can tell: of an image that is mounted, and of a path on a
    /// mount, the last commit.
    ///
    /// # Errors
    /// As there; and where leasing that commit is refused.
    pub fn find_in_image(images: &Images<'_>, target: &OsStr) -> Result<Named, Failure> {
        let mounted = match Self::find(images, target, Purpose::Read, Follow::Yes)? {
            Self::Image(named) => return Ok(named),
            Self::Mounted(mounted) => mounted,
        };
        let location = images.locate_leased(&mounted)?;
        match location.directory {
            Directory::Image(directory) => Ok(Named { directory, name: location.name }),
            // locate_leased gives no other.
            Directory::Host(_) => Err(Failure::usage("no image")),
        }
    }

    /// In messages.
    pub fn place(&self) -> String {
        match self {
            Self::Image(named) => named.place(),
            Self::Mounted(mounted) => mounted.place().to_owned(),
        }
    }

    /// The image or mount in messages.
    pub fn label(&self) -> &str {
        match self {
            Self::Image(named) => &named.image().label,
            Self::Mounted(mounted) => mounted.place(),
        }
    }

    /// The number of the subvolume that it lies in.
    ///
    /// # Errors
    /// What the image's file system said, or the mount's server refused.
    pub fn root(&self) -> Result<RootId, Failure> {
        match self {
            Self::Image(named) => Ok(named.inode()?.id().root),
            Self::Mounted(mounted) => mounted.root(),
        }
    }

    /// The subvolume whose root directory this is; none where it is something else.
    ///
    /// # Errors
    /// What the image's file system said, or the mount's server refused.
    pub fn as_subvolume(&self) -> Result<Option<SubvolumeInformation>, Failure> {
        match self {
            Self::Image(named) => {
                let id = named.inode()?.id();
                id.is_subvolume_root().then(|| information(named.image(), id.root)).transpose()
            }
            Self::Mounted(mounted) => {
                match mounted.subvolume(&Request::SubvolumeShow { target: mounted.target() }) {
                    Ok(found) => Ok(Some(found)),
                    Err(failure) if failure.kind == Kind::Invalid => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        }
    }

    /// The subvolume whose root directory this is.
    ///
    /// # Errors
    /// Where it is something else.
    pub fn subvolume(&self) -> Result<SubvolumeInformation, Failure> {
        self.as_subvolume()?.ok_or_else(|| {
            Failure::new(Kind::Invalid, "not a subvolume")
                .at(self.place())
                .hint("list them with subvolume list")
        })
    }

    /// The subvolume of a number.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where there is none; what the image's file system said, or the mount's server
    /// refused.
    pub fn subvolume_of(&self, root: RootId) -> Result<SubvolumeInformation, Failure> {
        match self {
            Self::Image(named) => information(named.image(), root),
            Self::Mounted(mounted) => {
                mounted.subvolume(&Request::SubvolumeShow { target: SubvolumeTarget::Number(root.0) })
            }
        }
    }

    /// All subvolumes by number.
    ///
    /// # Errors
    /// What the image's file system said, or the mount's server refused.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInformation>, Failure> {
        match self {
            Self::Image(named) => {
                named.image().filesystem.subvolumes().all().map_err(|error| from_fs(error, named.place()))
            }
            Self::Mounted(mounted) => mounted.subvolumes(),
        }
    }

    /// The subvolume that a mount shows where no other is asked for.
    ///
    /// # Errors
    /// What the image's file system said, or the mount's server refused.
    pub fn default_subvolume(&self) -> Result<SubvolumeInformation, Failure> {
        match self {
            Self::Image(named) => {
                let image = named.image();
                let id =
                    image.filesystem.subvolumes().default().map_err(|error| from_fs(error, &image.label))?;
                information(image, id)
            }
            Self::Mounted(mounted) => mounted.subvolume(&Request::SubvolumeGetDefault),
        }
    }

    /// The subvolume whose root directory is the root of the paths.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn shown_subvolume(&self) -> Result<RootId, Failure> {
        match self {
            Self::Image(named) => Ok(named.image().filesystem.root_id().root),
            Self::Mounted(mounted) => match mounted.request(&Request::RootId { path: Name::default() })? {
                Answer::Root { number } => Ok(RootId(number)),
                _ => Err(mounted.unexpected()),
            },
        }
    }

    /// The label.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn filesystem_label(&self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Image(named) => {
                Ok(named.image().filesystem.engine().superblock().label.as_bytes().to_vec())
            }
            Self::Mounted(mounted) => mounted.label(),
        }
    }

    /// Changes the label; it is durable after the next commit.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where the bytes are no label; what the image's file system said, or the mount's
    /// server refused.
    pub fn set_label(&self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Image(named) => label::set(named.image(), bytes),
            Self::Mounted(mounted) => mounted.order(&Request::LabelSet { label: Name::from(bytes) }),
        }
    }

    /// How full the file system is.
    ///
    /// # Errors
    /// What the image's file system said, or the mount's server refused.
    pub fn fullness(&self) -> Result<Fullness, Failure> {
        match self {
            Self::Image(named) => {
                let image = named.image();
                let fail = |error| from_fs(error, &image.label);
                let statistics = image.filesystem.statistics().map_err(fail)?;
                let report = image.filesystem.engine().space().map_err(|error| fail(error.into()))?;
                let shares = image.filesystem.engine().chunk_shares().map_err(|error| fail(error.into()))?;
                let volume = image.filesystem.engine().volume();
                let shown = |report: &DeviceReport| {
                    let member = volume.member(report.number);
                    let path =
                        member.as_ref().map(|member| member.device.describe().name).unwrap_or_default();
                    ShownDevice::new(*report, path.as_bytes(), member.map(|member| member.device.length()))
                };
                Ok(Fullness {
                    devices: report.devices.iter().map(shown).collect(),
                    report,
                    shares,
                    available_bytes: statistics.available_blocks.saturating_mul(statistics.block_size.into()),
                    condition: ConditionRecord::from(&image.filesystem.maintenance().condition()),
                })
            }
            Self::Mounted(mounted) => {
                let statistics = rustix::fs::statvfs(mounted.path())
                    .map_err(|errno| Failure::host(&errno.into(), mounted.place()))?;
                mounted.space(statistics.f_bavail.saturating_mul(statistics.f_frsize))
            }
        }
    }

    /// Counters and histograms of what serves it, and how the file system fares.
    ///
    /// # Errors
    /// What the mount's server refused, or that it can't be reached.
    pub fn statistics(&self) -> Result<(Vec<Reading>, ConditionRecord), Failure> {
        match self {
            Self::Image(named) => {
                let filesystem = &named.image().filesystem;
                let samples = filesystem.engine().registry().snapshot().into_iter().map(Reading::from);
                let of_devices = filesystem.device_counters().into_iter().flat_map(Reading::of_devices);
                Ok((
                    samples.chain(of_devices).collect(),
                    ConditionRecord::from(&filesystem.maintenance().condition()),
                ))
            }
            Self::Mounted(mounted) => mounted.statistics(),
        }
    }
}
