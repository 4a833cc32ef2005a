//! `mount`.
//!
//! Threads do not survive a fork, so a mount in the background is served by this program started again
//! (`mount --serve`): it says "ready" on its standard output once the mount answers, and then lets go of the
//! terminal.

use std::ffi::OsString;
use std::fs::OpenOptions as HostOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Parser};
use vlinder_control::MountEntry;
use vlinder_fs::SubvolumeChoice;
use vlinder_fuse::{MountError, MountOptions};
use vlinder_partitions::ImageName;
use vlinder_places::devices::{Purpose, advise};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::NO_SUBVOLUME;
use vlinder_places::place::image::from_fs;
use vlinder_places::session::Session;

use crate::option_help;

/// What the server says when the mount answers.
const READY: &str = "ready";

/// Mount an image through FUSE.
#[derive(Args, Debug)]
#[command(
    override_usage = "vlinder mount [OPTIONS] <IMAGE>... <MOUNTPOINT>",
    after_help = "\
Warnings go to the system's log once the mount is in the background; VLINDER_LOG=debug tells more.

For mount(8) and /etc/fstab, /sbin needs the links mount.fuse.vlinder and umount.fuse.vlinder to this program; then a \
line of /etc/fstab is
  /srv/disk.img  /mnt  fuse.vlinder  compress=zstd,nofail  0  0

Example:
  vlinder mount -o compress=zstd disk.img /mnt"
)]
pub struct MountArguments {
    /// Stay in the foreground.
    #[arg(short, long)]
    pub foreground: bool,
    /// Serve a mount in the background: what the foreground part of this command starts.
    #[arg(long, hide = true)]
    pub serve: bool,
    /// Mount options, joined by commas: ro, subvol=PATH, compress=ALG, … (--help lists all).
    #[arg(short, long = "options", value_name = "OPTIONS", long_help = option_help::text())]
    pub options: Vec<String>,
    /// The image, or all devices of the file system; then the directory to mount it on.
    #[arg(required = true, num_args = 2.., value_names = ["IMAGE", "MOUNTPOINT"])]
    pub paths: Vec<PathBuf>,
}

/// How mount(8) calls `mount.fuse.vlinder`: SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE].
#[derive(Parser, Debug)]
#[command(name = "mount.fuse.vlinder", version, disable_help_flag = true)]
pub struct HelperArguments {
    #[arg(short)]
    sloppy: bool,
    #[arg(short)]
    fake: bool,
    #[arg(short)]
    no_mtab: bool,
    #[arg(short)]
    verbose: bool,
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    #[arg(short)]
    options: Vec<String>,
    #[arg(short = 't')]
    filesystem_type: Option<OsString>,
    source: PathBuf,
    mountpoint: PathBuf,
}

impl HelperArguments {
    /// What `vlinder mount` would have been given; none where nothing is to be done: `-f` only pretends, and
    /// with `nofail` an image that is not there is no error.
    pub fn into_arguments(self) -> Option<MountArguments> {
        let may_lack = self.options.iter().flat_map(|list| list.split(',')).any(|option| option == "nofail");
        if may_lack
            && ImageName::of(&self.source)
                .file()
                .metadata()
                .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            return None;
        }
        let paths = vec![self.source, self.mountpoint];
        (!self.fake).then_some(MountArguments {
            foreground: false,
            serve: false,
            options: self.options,
            paths,
        })
    }
}

/// Runs `mount`.
pub fn mount(arguments: &MountArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.serve {
        // First of all: what this process opens itself must stay.
        close_inherited();
    }
    // Clap wants at least two paths.
    let Some((mountpoint, devices)) = arguments.paths.split_last() else {
        return Err(Failure::usage("an image and a directory to mount it on are needed"));
    };
    let mut options =
        MountOptions::parse(&arguments.options.join(",")).map_err(|error| failure_of_mount(error.into()))?;
    options.ends_by_signal = true;
    if options.remount {
        let unheard = vlinder_fuse::remount(&options, mountpoint).map_err(failure_of_mount)?;
        if !unheard.is_empty() {
            let given = unheard.join(",");
            session.warn(format!(
                "a remount leaves the options of the file system as they were; without effect: {given}"
            ));
        }
        return Ok(ExitStatus::Done);
    }
    if arguments.serve {
        let mounted = connect(options, devices, mountpoint)?;
        detach().map_err(|error| Failure::host(&error, "the terminal"))?;
        mounted.wait().map_err(failure_of_mount)?;
        return Ok(ExitStatus::Done);
    }
    let hidden = what_is_hidden(mountpoint);
    let warn = || hidden.iter().for_each(|text| session.warn(text));
    if !arguments.foreground {
        let ending = start_server(arguments, session)?;
        if ending == ExitStatus::Done {
            warn();
        }
        return Ok(ending);
    }
    let mounted = connect(options, devices, mountpoint)?;
    warn();
    let image = devices.first().unwrap_or(mountpoint).display();
    let reads = if mounted.filesystem().is_read_only() { ", for reading only" } else { "" };
    let place = mountpoint.display();
    session.note(format!("{image} is mounted on {place}{reads}; Ctrl-C or vlinder umount {place} ends it"));
    mounted.wait().map_err(failure_of_mount)?;
    Ok(ExitStatus::Done)
}

/// What a mount at a place would hide from sight.
fn what_is_hidden(mountpoint: &Path) -> Option<String> {
    let place = mountpoint.display();
    if let Ok(Some(entry)) = MountEntry::at(mountpoint) {
        let kind = entry.filesystem_type;
        return Some(format!(
            "{place} is a mount point already ({kind}), which is hidden until this mount ends"
        ));
    }
    // A directory that can't be read is mounted on without a word, one that is not there is told by the
    // mount.
    let is_empty = mountpoint.read_dir().map_or(true, |mut entries| entries.next().is_none());
    (!is_empty).then(|| format!("{place} is not empty; what is in it is hidden until this mount ends"))
}

/// Mounts, and is ready for signals.
fn connect(
    options: MountOptions,
    devices: &[PathBuf],
    mountpoint: &Path,
) -> Result<vlinder_fuse::Session, Failure> {
    crate::log::serve();
    keep_pages_small();
    let place = || devices.first().map_or(mountpoint, PathBuf::as_path).display().to_string();
    let has_choice = options.filesystem.subvolume != SubvolumeChoice::Default;
    let mounted = vlinder_fuse::mount(options, devices, mountpoint).map_err(|error| match error {
        MountError::NoThreads { source } => Failure::no_threads(&source),
        MountError::Filesystem(error) => {
            let failure = from_fs(error, place());
            match devices.first() {
                Some(image)
                    if has_choice
                        && failure.kind == Kind::NotFound
                        && ImageName::of(image).file().exists() =>
                {
                    failure.hint(NO_SUBVOLUME)
                }
                Some(image) if matches!(failure.kind, Kind::Busy | Kind::NotFound) => {
                    advise(failure, image, Purpose::Write)
                }
                _ if matches!(failure.kind, Kind::Permission | Kind::ReadOnly) => {
                    failure.hint("make the image writable for you, or mount it with -o ro")
                }
                _ => failure,
            }
        }
        other => failure_of_mount(other),
    })?;
    Ok(mounted)
}

/// Written bytes pass through memory once, in pieces of some kilobytes. Clearing huge pages for them was a
/// tenth of what the answering thread did while files were copied in, and each stays resident for the sake of
/// one piece.
fn keep_pages_small() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "the mount's memory may come in huge pages");
    }
}

/// Starts the server and waits until the mount answers.
fn start_server(arguments: &MountArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let fails = |error: std::io::Error| Failure::host(&error, "the server of the mount");
    let program = std::env::current_exe().map_err(|error| Failure::host(&error, "this program"))?;
    let mut server = Command::new(program);
    server.args(session.json.then_some("--json")).args(["mount", "--serve"]);
    for options in &arguments.options {
        server.arg("-o").arg(options);
    }
    let mut server =
        server.args(&arguments.paths).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fails)?;
    let mut said = String::new();
    if let Some(output) = server.stdout.take() {
        let mut output = BufReader::new(output);
        output.read_line(&mut said).map_err(fails)?;
        if said.trim_end() == READY {
            return match server.try_wait().map_err(fails)? {
                None => Ok(ExitStatus::Done),
                Some(status) => {
                    Err(Failure::new(Kind::Device, format!("the server of the mount has ended: {status}")))
                }
            };
        }
        output.read_to_string(&mut said).map_err(fails)?;
    }
    // It has said on standard error why, and with --json on standard output too.
    session.bytes(said.as_bytes())?;
    let status = server.wait().map_err(fails)?;
    match status.code() {
        Some(code) if code == i32::from(ExitStatus::Usage.code()) => Ok(ExitStatus::Usage),
        Some(_) => Ok(ExitStatus::Failed),
        None => Err(Failure::new(Kind::Device, format!("the server of the mount was ended: {status}"))),
    }
}

/// Lets go of the terminal and the directory that the command was called in, and says that the mount answers:
/// last, since nothing that can fail may follow.
fn detach() -> std::io::Result<()> {
    let nothing = HostOptions::new().read(true).write(true).open("/dev/null")?;
    std::env::set_current_dir("/")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    // A process that leads a group already (a shell's job) cannot make a session; it is detached all the
    // same.
    let _ = rustix::process::setsid();
    crate::log::go_to_background();
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")?;
    output.flush()?;
    // Onto descriptors that are there these can't fail.
    rustix::stdio::dup2_stderr(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}

/// Closes what the caller had open besides standard input, output and error: a server lives longer than its
/// caller, and would keep locks and pipes for as long.
fn close_inherited() {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > rustix::stdio::raw_stderr()) {
        // The list's own is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// What the user is told of a mount that failed.
fn failure_of_mount(error: MountError) -> Failure {
    let hint = match &error {
        MountError::Option(_) => Some("vlinder mount --help lists the options".to_owned()),
        MountError::Mountpoint { path, source } => {
            let failure = Failure::host(source, path.display());
            if source.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) {
                let text = "a mount is there whose server has ended";
                let hint = format!("vlinder umount {} takes it away", path.display());
                return Failure { message: text.to_owned(), ..failure }.hint(hint);
            }
            let text = format!("no mount point: {}", failure.message);
            return Failure { message: text, ..failure }.hint("give a directory that is there");
        }
        MountError::Helper { mountpoint, message, cause } => {
            let text = format!("fusermount3 did not mount at {}: {message}", mountpoint.display());
            return Failure::new(Kind::Permission, text).hint(cause.advice());
        }
        MountError::Remount { advice, .. } => advice.clone(),
        _ => None,
    };
    let kind = match error {
        MountError::Root { .. } => Kind::Corruption,
        MountError::Option(_) => Kind::Usage,
        MountError::NotDurable { .. }
        | MountError::Filesystem(_)
        | MountError::Device { .. }
        | MountError::Transport { .. } => Kind::Device,
        MountError::Unmount { is_busy: true, .. } => Kind::Busy,
        MountError::Refused { .. } | MountError::Remount { .. } => Kind::Permission,
        _ => Kind::Invalid,
    };
    let failure = Failure::new(kind, error.to_string());
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
