//! Reading an image that a mount holds: its server leases the last committed state to this process, which
//! then reads the image by itself.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_control::protocol::LeasedDevice;
use vlinder_control::{Answer, Client, ClientError, Request};
use vlinder_device::Device;
use vlinder_format::superblock::Superblock;
use vlinder_partitions::{ImageName, identity};
use vlinder_volume::superblock::{SuperblockChoice, unpack};
use vlinder_volume::{Access, Opened, Volume};

use crate::devices::{Purpose, open_devices};
use crate::failure::{Failure, Kind};
use crate::mounted;

/// What a leased state has of what programs wrote to the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// What the server was given: of files that are written, the kernel may hold the newest bytes.
    #[default]
    OfServer,
    /// All that was written: the kernel hands it over first.
    WithDirtyPages,
}

/// A committed state that the server of a mount keeps for this process.
pub struct Lease {
    client: RefCell<Client>,
    /// The superblocks of the state, one for each device.
    pub superblocks: Vec<Superblock>,
    place: String,
}

impl Lease {
    /// Leases the state of the file system on these devices; none where no mount of this user's holds the
    /// first of them.
    ///
    /// # Errors
    /// What the server refused, or a device that is none of the mounted file system's.
    pub(crate) fn of(paths: &[PathBuf], freshness: Freshness) -> Result<Option<Self>, Failure> {
        let Some(first) = paths.first() else { return Ok(None) };
        let Some((mut client, _)) = mounted::server_of(first) else { return Ok(None) };
        let place = first.display().to_string();
        if freshness == Freshness::WithDirtyPages {
            match client.request(&Request::FilesystemSync) {
                Ok(Answer::Synced { .. }) => {}
                Ok(_) => return Err(mounted::failure(client.unexpected()).at(place)),
                Err(error) => return Err(mounted::failure(error).at(place)),
            }
        }
        let devices = match client.request(&Request::Lease) {
            Ok(Answer::Leased { devices, .. }) => devices,
            Ok(_) => return Err(mounted::failure(client.unexpected()).at(place)),
            Err(error) => return Err(mounted::failure(error).at(place)),
        };
        if devices.len() != paths.len() {
            let text = format!("the mounted file system has {} devices, not {}", devices.len(), paths.len());
            return Err(Failure::new(Kind::Invalid, text).at(place).hint("name each of its devices once"));
        }
        let is_trusted = vlinder_control::is_trusted(client.mount());
        let superblocks =
            paths.iter().map(|path| superblock_of(path, &devices, is_trusted)).collect::<Result<_, _>>()?;
        Ok(Some(Self { client: RefCell::new(client), superblocks, place }))
    }

    /// Whether all that was read until now is of the leased state.
    ///
    /// # Errors
    /// The mount needed the space, or has ended.
    pub(crate) fn confirm(&self) -> Result<(), Failure> {
        let mut client = self.client.borrow_mut();
        let failure = match client.request(&Request::LeaseConfirm) {
            Ok(Answer::Done) => return Ok(()),
            Ok(_) => mounted::failure(client.unexpected()),
            Err(ClientError::Conversation { .. }) => {
                let text =
                    "the mount ended while its image was read, so what was read may be of no state at all";
                Failure::new(Kind::Busy, text).hint("try again")
            }
            Err(error) => mounted::failure(error),
        };
        Err(failure.at(&self.place))
    }
}

/// The leased superblock of a device. The paths that another user's server names are compared, and not looked
/// at.
fn superblock_of(path: &Path, devices: &[LeasedDevice], is_trusted: bool) -> Result<Superblock, Failure> {
    let (wanted, canonical) = (identity(path), ImageName::of(path).canonical().to_path());
    let leased = devices.iter().find(|device| {
        let named = Path::new(OsStr::from_bytes(&device.path.0));
        match is_trusted {
            true => wanted.is_some() && identity(named) == wanted,
            false => canonical == named,
        }
    });
    let leased = leased.ok_or_else(|| {
        Failure::new(Kind::Invalid, "it is no device of the mounted file system").at(path.display())
    })?;
    unpack(&leased.superblock.0).map_err(|fault| {
        let text = format!("the superblock that the mount's server gave can't be used: {fault}");
        Failure::new(Kind::Invalid, text).at(path.display()).hint("use the version that serves the mount")
    })
}

/// Devices that are open for reading.
pub struct Source {
    /// In the order of their paths.
    pub devices: Vec<Arc<dyn Device>>,
    /// Where a mount holds them: the state to read.
    pub lease: Option<Lease>,
}

impl Source {
    /// Opens the devices of one file system; where a mount holds them, as it was at the last commit, which is
    /// made first.
    ///
    /// # Errors
    /// As [`open_devices`]; what leasing met.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Failure> {
        let busy = match open_devices(paths, Purpose::Read) {
            Ok(devices) => return Ok(Self { devices, lease: None }),
            Err(failure) if failure.kind == Kind::Busy => failure,
            Err(failure) => return Err(failure),
        };
        let lease = Lease::of(paths, Freshness::OfServer)?.ok_or(busy)?;
        Ok(Self { devices: open_devices(paths, Purpose::Leased)?, lease: Some(lease) })
    }

    /// The volume on them.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn volume(&self) -> Result<Opened, Failure> {
        let devices = self.devices.clone();
        let opened = match &self.lease {
            Some(lease) => Volume::open_leased(devices, lease.superblocks.clone()),
            None => Volume::open(devices, SuperblockChoice::Automatic, Access::ReadOnly),
        };
        Ok(opened?)
    }
}

/// The end of a verb that read under a lease: a lease that is gone matters more than what the verb made of
/// the bytes.
///
/// # Errors
/// As [`Lease::confirm`].
pub fn confirm(lease: Option<&Lease>) -> Result<(), Failure> {
    lease.map_or(Ok(()), Lease::confirm)
}
