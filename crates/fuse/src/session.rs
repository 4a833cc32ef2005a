//! A mount's life: it is made, served, and ends with everything durable.
//!
//! Threads don't survive a fork, so a caller that wants a mount in the background starts a process for it
//! first. [`mount`] returns when the mount answers, which is the moment to say that it is ready.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as SignalHandle, Signals};
use vlinder_base::sync::{Arc, Weak};
use vlinder_base::thread::{self, JoinHandle};
use vlinder_control::{ErrorBody, FilesystemExecutor, KernelNotifier, MountFacts, Server, SocketLocation};
use vlinder_fs::{Filesystem, FsError, Standing};
use vlinder_partitions::ImageName;

use crate::MountError;
use crate::mountpoint::{self, OwnMount};
use crate::notifier::MountNotifier;
use crate::options::MountOptions;
use crate::service::MountService;
use crate::transport::Settings;
use crate::transport::fuser::{self, FuserTransport};
use crate::watcher::Watcher;

/// How long the kernel may remember names and attributes: it hears of every change, so for good.
const VALIDITY: Duration = Duration::from_secs(1 << 30);

/// A mount that is served. [`wait`](Self::wait) ends it well; dropping it only takes it out of the tree.
pub struct Session {
    inner: Arc<Inner>,
    transport: JoinHandle<io::Result<()>>,
    server: Option<Server>,
    executor: Option<Arc<FilesystemExecutor>>,
    signals: Option<SignalHandle>,
    guard: Guard,
}

/// What the threads of a mount share.
struct Inner {
    filesystem: Filesystem,
    notifier: Arc<MountNotifier>,
    own: OwnMount,
}

/// Takes a mount that is not served out of the tree, lest programs that touch it get errors.
struct Guard {
    mountpoint: PathBuf,
    /// Known as soon as the mount is looked up in the kernel's table.
    own: Option<OwnMount>,
    is_armed: bool,
    /// Does so if this process can't (`auto_unmount`); it is dismissed after that.
    watcher: Option<Watcher>,
    /// Descriptors for unmounting, which may need a program and pipes to it.
    reserve: Vec<OwnedFd>,
}

/// As many as starting `fusermount3` takes: standard input, and two ends each of three pipes.
const RESERVED_DESCRIPTORS: usize = 7;

/// What a mount opens besides one for each thread: the connection and copies of it, signals, the control
/// socket, its lock, and files of /proc and /sys that are read meanwhile.
const OPENED_DESCRIPTORS: usize = 16;

/// Takes descriptors before there is a mount, so that one that fails for want of them leaves no mount behind.
/// Fails, too, where a mount with so many threads would find too few: its connection would end after the
/// mount was reported.
fn reserve_descriptors(threads: usize) -> io::Result<Vec<OwnedFd>> {
    let nothing = || Ok(std::fs::File::open("/dev/null")?.into());
    let all = RESERVED_DESCRIPTORS + OPENED_DESCRIPTORS + threads;
    let mut taken = (0..all).map(|_| nothing()).collect::<io::Result<Vec<OwnedFd>>>()?;
    taken.truncate(RESERVED_DESCRIPTORS);
    Ok(taken)
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.reserve.clear();
        if self.is_armed
            && let Err(error) = match &self.own {
                Some(own) => own.unmount(true),
                None => mountpoint::unmount(&self.mountpoint, true),
            }
        {
            tracing::warn!(%error, "a mount stays behind");
        }
    }
}

/// Opens the file system on these files or block devices, and mounts it. Returns when the mount answers.
///
/// # Errors
/// What opening or mounting met.
pub fn mount(
    mut options: MountOptions,
    devices: &[PathBuf],
    mountpoint: &Path,
) -> Result<Session, MountError> {
    let mountpoint = mountpoint::check(mountpoint)?;
    // From here on the first device's name says which bytes of it are meant: to the table of mounts, too.
    let devices = options.filesystem.device_names(devices).map_err(FsError::from)?;
    (options.filesystem.offset, options.filesystem.size_limit) = (None, None);
    let filesystem = Filesystem::open(&devices, options.filesystem.clone())?;
    mount_filesystem(filesystem, options, &devices, &mountpoint)
}

/// Mounts a file system that is open; `devices` are shown in the table of mounts and by `Request::Mount`.
///
/// # Errors
/// What mounting met.
pub fn mount_filesystem(
    filesystem: Filesystem,
    mut options: MountOptions,
    devices: &[PathBuf],
    mountpoint: &Path,
) -> Result<Session, MountError> {
    let mountpoint = mountpoint::check(mountpoint)?;
    options.check()?;
    options.flags.set(rustix::mount::MountFlags::RDONLY, filesystem.is_read_only());
    options.flags |= options.forced_flags();
    let source = match (&options.source, devices.first()) {
        (Some(source), _) => source.clone(),
        (None, Some(device)) => mountpoint::shown(&ImageName::of(device).canonical().to_path()),
        (None, None) => "vlinder".to_owned(),
    };
    // Said before there is a mount: a mount whose top can't be read would be of no use.
    let root = filesystem.root_id();
    filesystem.root().map_err(|source| MountError::Root { root, source })?;
    let settings = Settings {
        threads: options.threads,
        writeback: options.writeback,
        kernel_kills_privileges: options.kernel_kills_privileges,
        // With ACLs the kernel judges permissions by itself.
        acls: filesystem.options().acl && !options.acts_as_root(),
        acts_as_root: options.acts_as_root(),
        validity: VALIDITY,
    };
    let service =
        MountService::new(filesystem.clone(), settings).map_err(|source| MountError::NoThreads { source })?;
    let service = Arc::new(service);
    let reserve =
        reserve_descriptors(options.threads).map_err(|source| MountError::NoDescriptors { source })?;
    // Before there is a mount: one that came a moment later would end the process and leave the mount behind.
    let signals = options.ends_by_signal.then(|| Signals::new([SIGTERM, SIGINT, SIGHUP])).transpose();
    let signals = signals.map_err(|source| MountError::Signals { source })?;
    let connection = mountpoint::mount(&options, &source, &mountpoint)?;
    let mut guard =
        Guard { mountpoint: mountpoint.clone(), own: None, is_armed: true, watcher: None, reserve };
    let broken = |source| MountError::Transport { source };
    if options.auto_unmount {
        guard.watcher = Some(Watcher::start(&mountpoint).map_err(|source| MountError::Watcher { source })?);
    }
    let registry = &filesystem.options().registry;
    let transport =
        FuserTransport::connect(connection, service.clone(), settings, registry).map_err(broken)?;
    let notifier = transport.notifier();
    service.set_notifier(Arc::clone(&notifier));
    let own = OwnMount::at(&mountpoint).map_err(broken)?;
    let device = own.device;
    guard.own = Some(own.clone());
    let serving = fuser::spawn(transport).map_err(broken)?;
    service.keep_room(device).map_err(|source| MountError::NoThreads { source })?;
    let notifier = MountNotifier { service, transport: notifier, own: own.clone() };
    let inner = Arc::new(Inner { filesystem, notifier: Arc::new(notifier), own });
    let mut session =
        Session { inner, transport: serving, server: None, executor: None, signals: None, guard };
    if options.control {
        session.serve_control(device, &options, devices)?;
    }
    if let Some(signals) = signals {
        session.handle_signals(signals)?;
    }
    Ok(session)
}

impl Inner {
    fn unmount(&self, lazily: bool) -> Result<(), MountError> {
        self.commit();
        self.own.unmount(lazily)
    }

    /// Makes durable what there is, as far as it goes: the end of the mount tells what did not.
    fn commit(&self) {
        if let Err(error) = self.notifier.write_back() {
            tracing::warn!(%error, "the kernel could not hand over all that it had cached");
        }
        if !self.filesystem.is_read_only()
            && let Err(error) = self.filesystem.sync()
        {
            tracing::error!(%error, "the commit before unmounting failed");
        }
    }

    /// Ends the connection to the kernel, although programs use the mount.
    fn abort(&self) {
        let path = format!("/sys/fs/fuse/connections/{}/abort", self.own.device.1);
        if let Err(error) = std::fs::write(&path, "1") {
            tracing::error!(%error, path, "the connection to the kernel could not be ended");
        }
    }
}

impl Session {
    fn serve_control(
        &mut self,
        device: (u32, u32),
        options: &MountOptions,
        devices: &[PathBuf],
    ) -> Result<(), MountError> {
        let owner = rustix::process::geteuid().as_raw();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let facts = MountFacts {
            devices: devices.iter().map(absolute).collect(),
            mountpoint: self.inner.own.mountpoint.clone(),
            owner,
            options: options.of_filesystem.clone(),
        };
        let notifier: Arc<dyn KernelNotifier> = self.inner.notifier.clone();
        let executor = Arc::new(FilesystemExecutor::new(self.inner.filesystem.clone(), notifier, facts));
        let locations = SocketLocation::for_server(device, owner, options.allow_other);
        self.inner.notifier.service.set_expected_calls(executor.calls());
        let server = Server::start(&locations, executor.clone())?;
        if let Some(name) = server.told_name() {
            self.inner.notifier.service.tell_name(name);
        }
        self.server = Some(server);
        self.executor = Some(executor);
        Ok(())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.inner.own.mountpoint
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.inner.filesystem
    }

    /// Ends the mount by these signals, those that have come already among them.
    fn handle_signals(&mut self, mut signals: Signals) -> Result<(), MountError> {
        let fails = |source| MountError::Signals { source };
        self.signals = Some(signals.handle());
        let inner = Arc::downgrade(&self.inner);
        let work = move || {
            let mut came_before = false;
            for _ in signals.forever() {
                // Gone already: the last commit is under way, and its callers must not be disturbed.
                let Some(inner) = Weak::upgrade(&inner) else { return };
                end_by_signal(&inner, came_before);
                came_before = true;
            }
        };
        thread::try_spawn("signals", work).map(drop).map_err(fails)
    }

    /// Makes everything durable and unmounts; [`wait`](Self::wait) returns then.
    ///
    /// # Errors
    /// [`MountError::Unmount`] where the mount is in use; it goes on.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.inner.unmount(false)
    }

    /// Serves until the mount is gone, then commits, lets go of the devices, and tells the clients that wait
    /// for that.
    ///
    /// # Errors
    /// What the last commit met: not everything is durable then.
    pub fn wait(self) -> Result<(), MountError> {
        let Self { inner, transport, mut server, executor, signals, mut guard } = self;
        let served = transport.join();
        if let Some(executor) = executor {
            executor.stop();
        }
        if let Some(server) = &mut server {
            server.close();
        }
        inner.notifier.service.finish();
        let ended = match served {
            Ok(Ok(())) => {
                guard.is_armed = false;
                Ok(())
            }
            Ok(Err(source)) => Err(MountError::Transport { source }),
            Err(_) => {
                Err(MountError::Transport { source: io::Error::other("a thread that answers requests died") })
            }
        };
        drop(guard);
        let filesystem = inner.filesystem.clone();
        drop(inner);
        let closed = close(filesystem);
        if let Some(signals) = signals {
            signals.close();
        }
        if let Some(server) = server {
            server.finish(closed.as_ref().map_err(error_body).copied());
        }
        closed.and(ended)
    }
}

fn end_by_signal(inner: &Inner, came_before: bool) {
    if came_before {
        inner.commit();
        inner.abort();
        return;
    }
    match inner.unmount(false) {
        Ok(()) => {}
        Err(MountError::Unmount { is_busy: true, .. }) => {
            tracing::warn!(
                mountpoint = %inner.own.mountpoint.display(),
                "the mount is in use; it is served until its last user is gone, or another signal comes"
            );
            if let Err(error) = inner.own.unmount(true) {
                tracing::error!(%error, "the mount can't be taken out of the tree");
            }
        }
        Err(error) => tracing::error!(%error, "unmounting failed"),
    }
}

fn close(filesystem: Filesystem) -> Result<(), MountError> {
    match Standing::close(filesystem)? {
        Some(error) => Err(MountError::NotDurable { reason: error.to_string() }),
        None => Ok(()),
    }
}

fn error_body(error: &MountError) -> ErrorBody {
    match error {
        MountError::Filesystem(error) => ErrorBody::from_fs(error),
        other => ErrorBody::new(rustix::io::Errno::IO, other.to_string()),
    }
}
