//! `umount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, ValueHint};
use rustix::io::Errno;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;
use vlinder_control::MountEntry;
use vlinder_control::client::{self, Client, ClientError, NoServerReason, Unmounted};
use vlinder_control::places::{self, Place};
use vlinder_device::{DeviceError, DeviceErrorKind, FileDevice, LockMode, OpenOptions};
use vlinder_partitions::ImageName;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::mounted;
use vlinder_places::progress::Waiting;
use vlinder_places::session::Session;

/// How long a server that does not answer may take to let go of its image.
const LONGEST_END: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Unmount what vlinder mount mounted, when all is durable.
#[derive(Args, Debug)]
#[command(
    after_help = "Where the mount is also seen elsewhere (a bind mount, a container), it is taken away here, and its server goes on until
it is seen nowhere any more. The exit status is 3 where nobody can say yet whether all is durable.

Example:\n  vlinder umount /mnt"
)]
pub struct UmountArguments {
    /// The mount point.
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
}

/// How umount(8) calls `umount.fuse.vlinder`: DIRECTORY [-flnrv] [-N NAMESPACE] [-t TYPE].
#[derive(Parser, Debug)]
#[command(name = "umount.fuse.vlinder", version, disable_help_flag = true)]
pub struct UmountHelperArguments {
    #[arg(short)]
    force: bool,
    #[arg(short)]
    lazy: bool,
    #[arg(short)]
    no_mtab: bool,
    #[arg(short)]
    read_only: bool,
    #[arg(short)]
    verbose: bool,
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    #[arg(short = 't')]
    filesystem_type: Option<OsString>,
    mountpoint: PathBuf,
}

impl UmountHelperArguments {
    /// What `vlinder umount` would have been given.
    ///
    /// # Errors
    /// For what it can't do: with `-f` and `-l` nobody waits for the server, and it sees the mounts of its
    /// own namespace.
    pub fn into_arguments(self) -> Result<UmountArguments, Failure> {
        if self.namespace.is_some() {
            let failure = Failure::usage("-N would unmount in another mount namespace");
            return Err(failure.hint("nsenter -m -t PID vlinder umount DIRECTORY does so"));
        }
        if self.force || self.lazy {
            let failure = Failure::usage("-f and -l would not wait until all is durable");
            return Err(failure.hint("umount -i (with -f or -l) unmounts without asking vlinder"));
        }
        Ok(UmountArguments { mountpoint: self.mountpoint })
    }
}

/// Whether the kernel knows that nobody serves a mount any more. statfs(2) always asks the server; the
/// attributes of the directory may still be remembered. While the kernel lets go of the server it aborts what
/// is asked.
fn is_server_gone(mountpoint: &Path) -> bool {
    matches!(rustix::fs::statfs(mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Runs `umount`.
pub fn umount(arguments: &UmountArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let mountpoint = &arguments.mountpoint;
    let found = MountEntry::at(mountpoint).map_err(|error| Failure::host(&error, mountpoint.display()))?;
    let Some(entry) = found.filter(MountEntry::is_ours) else {
        let failure = Failure::new(Kind::Invalid, "no vlinder is mounted there").at(mountpoint.display());
        return Err(failure.hint("findmnt -t fuse.vlinder lists the mount points"));
    };
    let waiting = Waiting::new(session, "writing");
    match Client::connect_to(entry.clone()) {
        Ok(server) => match server.unmount() {
            Ok(unmounted) => {
                drop(waiting);
                if let Unmounted::SeenElsewhere(places) = unmounted {
                    session.note(format!(
                        "{} is unmounted, and what was written is durable; {}",
                        mountpoint.display(),
                        where_it_goes_on(&places)
                    ));
                }
                Ok(ExitStatus::Done)
            }
            // It ended the conversation before it prepared anything: it may have no descriptors left to talk
            // with.
            Err(ClientError::Conversation { .. }) => unmount_unheard(&entry, session),
            Err(error) => Err(mounted::failure(error)),
        },
        // First: a system call on the mount would not end.
        Err(ClientError::NoServer { reason: NoServerReason::Dying, .. }) => {
            client::abort(&entry).map_err(mounted::failure)?;
            ended_without_commit(&entry, session)
        }
        Err(_) if is_server_gone(&entry.mountpoint) => take_away_dead(&entry, session),
        Err(error @ ClientError::NoServer { reason: NoServerReason::Denied, .. }) if !is_own(&entry) => {
            Err(mounted::failure(error))
        }
        Err(ClientError::NoServer { .. }) => unmount_unheard(&entry, session),
        Err(error) => Err(mounted::failure(error)),
    }
}

/// Whether this user mounted it. The server of another user's mount is not unheard: it is not for this user
/// to ask.
fn is_own(entry: &MountEntry) -> bool {
    entry.owner == Some(rustix::process::geteuid().as_raw())
}

/// Takes a mount away whose server has ended.
fn take_away_dead(entry: &MountEntry, session: &Session) -> Result<ExitStatus, Failure> {
    client::detach(entry).map_err(mounted::failure)?;
    ended_without_commit(entry, session)
}

/// Tells of a mount that was taken away after its server had ended.
fn ended_without_commit(entry: &MountEntry, session: &Session) -> Result<ExitStatus, Failure> {
    let mountpoint = &entry.mountpoint;
    if entry.read_only {
        session.warn(format!("the server of {} had ended", mountpoint.display()));
        return Ok(ExitStatus::Done);
    }
    let text = "the server had ended before it could commit: what was not made durable before is lost";
    let hint = format!("it is unmounted now; the image {} holds the last commit", entry.source.display());
    Err(Failure::new(Kind::Device, text).at(mountpoint.display()).hint(hint))
}

/// Unmounts though no server can be asked. It lets go of the image when all is durable.
fn unmount_unheard(entry: &MountEntry, session: &Session) -> Result<ExitStatus, Failure> {
    client::unmount(entry).map_err(mounted::failure)?;
    let (mountpoint, image) = (entry.mountpoint.display(), entry.source.display());
    if places::is_alive(entry.device) == Some(true) {
        session.warn(format!(
            "{mountpoint} is unmounted, but its server could not be asked to make durable what was written; {}",
            where_it_goes_on(&places::all(entry.device))
        ));
        return Ok(ExitStatus::Partial);
    }
    // What another user's mount shows as its source may be anything, and lie anywhere.
    let waited = vlinder_control::is_trusted(entry).then(|| wait_for_image(&entry.source)).transpose();
    let unsure = match waited {
        Ok(Some(true)) => return Ok(ExitStatus::Done),
        Ok(None) => format!(
            "and whether it still has {image} open is not looked at, since the mount was user {}'s",
            entry.owner.unwrap_or(0)
        ),
        Ok(Some(false)) => format!("and has not let go of {image} within {} seconds", LONGEST_END.as_secs()),
        Err(error) => format!("and whether it still has {image} open can't be seen ({error})"),
    };
    session.warn(format!(
        "{mountpoint} is unmounted, but its server could not be asked, {unsure}: what was written last may not be durable yet"
    ));
    Ok(ExitStatus::Partial)
}

/// Waits until no program uses an image any more; false where one uses it for too long.
fn wait_for_image(image: &Path) -> Result<bool, DeviceError> {
    let options = OpenOptions { read_only: true, lock: LockMode::Exclusive, ..OpenOptions::default() };
    let name = ImageName::of(image);
    let image = name.file();
    let (clock, opened) = (SystemClock::new(), || FileDevice::open(image, &options).map(drop));
    loop {
        match opened() {
            Ok(()) => return Ok(true),
            Err(error) if !matches!(error.kind, DeviceErrorKind::Busy { .. }) => return Err(error),
            Err(_) if clock.monotonic() > LONGEST_END => return Ok(false),
            Err(_) => thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn where_it_goes_on(places: &[Place]) -> String {
    let shown: Vec<String> = places.iter().map(Place::to_string).collect();
    let where_seen = match shown.as_slice() {
        [] => "where you may not look".to_owned(),
        shown => format!("at {}", shown.join(", ")),
    };
    format!("it is still seen {where_seen}, and its server goes on until that ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_refuses_what_it_would_not_do() {
        let ask = |arguments: &[&str]| {
            let all = std::iter::once("umount.fuse.vlinder").chain(arguments.iter().copied());
            UmountHelperArguments::try_parse_from(all).unwrap().into_arguments()
        };
        assert_eq!(ask(&["/mnt", "-nrv", "-t", "fuse.vlinder"]).unwrap().mountpoint, Path::new("/mnt"));
        for refused in [&["/mnt", "-f"][..], &["/mnt", "-l"], &["/mnt", "-N", "/proc/1/ns/mnt"]] {
            assert!(ask(refused).is_err(), "{refused:?}");
        }
    }
}
