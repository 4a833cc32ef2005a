//! Where a mount is still seen after one of its places is gone: bind mounts, and other mount namespaces.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::mounts::MountEntry;

/// The control file system of FUSE, in which each living connection has a directory (`fuse_ctl_add_conn`,
/// fs/fuse/control.c).
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// Its type for statfs(2): `FUSE_CTL_SUPER_MAGIC`, fs/fuse/control.c.
const CONNECTIONS_TYPE: i64 = 0x6573_5543;

/// A place of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub mountpoint: PathBuf,
    /// A process that sees it there; none where this process does.
    pub process: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.mountpoint.display())?;
        self.process.map_or(Ok(()), |process| write!(formatter, " (as process {process} sees it)"))
    }
}

/// Whether a mount lives, by its device number; none where the system does not tell. After umount(2) of the
/// last place the kernel has ended the connection before the call returns.
#[must_use]
pub fn is_alive(device: (u32, u32)) -> Option<bool> {
    let tells = rustix::fs::statfs(CONNECTIONS).is_ok_and(|status| status.f_type == CONNECTIONS_TYPE);
    tells.then(|| Path::new(CONNECTIONS).join(device.1.to_string()).exists())
}

/// Ends a mount's connection with its server, as far as the system offers that to this user. Programs
/// that wait for the server get an error.
pub fn abort(device: (u32, u32)) {
    let path = Path::new(CONNECTIONS).join(device.1.to_string()).join("abort");
    if let Err(error) = std::fs::write(&path, "1") {
        tracing::debug!(%error, path = %path.display(), "the connection can't be aborted there");
    }
}

/// All places that this process may know of.
#[must_use]
pub fn all(device: (u32, u32)) -> Vec<Place> {
    let mut seen = HashSet::new();
    seen.extend(std::fs::read_link("/proc/self/ns/mnt").ok());
    let mut places = places_in(Path::new("/proc/self/mountinfo"), device, None);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for (process, directory) in processes.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    }) {
        // Those of other users can't be looked at.
        if std::fs::read_link(directory.join("ns/mnt")).is_ok_and(|namespace| seen.insert(namespace)) {
            places.extend(places_in(&directory.join("mountinfo"), device, Some(process)));
        }
    }
    places
}

fn places_in(table: &Path, device: (u32, u32), process: Option<u32>) -> Vec<Place> {
    let entries = MountEntry::in_table(table).unwrap_or_default().into_iter();
    let here = entries.filter(|entry| entry.device == device && entry.is_ours());
    here.map(|entry| Place { mountpoint: entry.mountpoint, process }).collect()
}
