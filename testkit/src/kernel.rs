//! The outside judges: `btrfs check`, the kernel's mount of an image on a loop device with its log,
//! `btrfs scrub`.
//!
//! Tests that use them begin with `require!(KernelBtrfs, Tool("btrfs"))` (or what they need of it).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Scratch;
use crate::kernel_log::{KernelLog, matches, unexpected};

mod check;
pub use check::{btrfs_check, btrfs_check_all, btrfs_check_data, btrfs_check_within};

/// A judge that is not content, or could not judge.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The judge's program can't be run.
    #[error("{command} can't be run: {source}")]
    NotRun {
        /// The command line.
        command: String,
        /// Why.
        source: std::io::Error,
    },
    /// The program failed, or complained.
    #[error("{command}: {status}\n{complaints}")]
    Complained {
        /// The command line.
        command: String,
        /// Its end.
        status: String,
        /// The lines that it should not have written.
        complaints: String,
    },
    /// The kernel wrote lines that are not on the list.
    #[error("the kernel's log about {device} is not silent:\n{}", .lines.join("\n"))]
    Log {
        /// The loop device.
        device: String,
        /// The lines.
        lines: Vec<String>,
    },
    /// The kernel's log can't be read, or lines were lost.
    #[error("the kernel's log can't be judged: {errno}")]
    NoLog {
        /// What the system said.
        errno: rustix::io::Errno,
    },
}

/// The output of a program that ended well.
fn run(command: &mut Command) -> Result<String, JudgeError> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).env("LC_ALL", "C").output();
    let output = output.map_err(|source| JudgeError::NotRun { command: shown.clone(), source })?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(text);
    }
    Err(JudgeError::Complained { command: shown, status: output.status.to_string(), complaints: text })
}

/// A loop device over an image; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    node: PathBuf,
}

impl LoopDevice {
    /// Attaches a free loop device.
    pub fn attach(image: &Path) -> Result<Self, JudgeError> {
        let node = run(Command::new("losetup").args(["--find", "--show"]).arg(image))?;
        Ok(LoopDevice { node: PathBuf::from(node.trim_end()) })
    }

    /// Attaches one over a part of an image.
    pub fn attach_part(image: &Path, start: u64, length_bytes: u64) -> Result<Self, JudgeError> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--offset", &start.to_string()]);
        let node = run(command.args(["--sizelimit", &length_bytes.to_string()]).arg(image))?;
        Ok(LoopDevice { node: PathBuf::from(node.trim_end()) })
    }

    /// The device's node, `/dev/loopN`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    fn name(&self) -> String {
        self.node.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.node)) {
            eprintln!("{} stays attached: {error}", self.node.display());
        }
    }
}

/// A file system mounted by the kernel's btrfs, of one image or of several. [`KernelMount::unmount`] judges
/// the kernel's log; a drop only cleans up.
///
/// The kernel is asked only about images that `btrfs check` accepts, because a broken one could take the
/// machine down: [`KernelMount::new`] runs it first.
#[derive(Debug)]
pub struct KernelMount {
    // Dropped in this order: the mount is undone by `Drop`, then the devices detached, then the directory
    // removed.
    devices: Vec<LoopDevice>,
    directory: Scratch,
    log: KernelLog,
    is_mounted: bool,
    /// Lines of the log that this mount may bring beside the usual ones.
    allowed: Vec<String>,
}

impl KernelMount {
    /// Checks the image, attaches it and mounts it with these options (`ro,subvol=x`; empty for none).
    pub fn new(image: &Path, options: &str) -> Result<Self, JudgeError> {
        btrfs_check(image)?;
        Self::unchecked(image, options)
    }

    /// As [`KernelMount::new`] for an image that is known to be sound though the installed `btrfs check`
    /// can't say so (newer features than its own). Never for one that was damaged on purpose.
    pub fn unchecked(image: &Path, options: &str) -> Result<Self, JudgeError> {
        Self::of(&[image], options, &[])
    }

    /// As [`KernelMount::new`] of a partition of an image.
    pub fn of_part(image: &Path, start: u64, length_bytes: u64, options: &str) -> Result<Self, JudgeError> {
        let device = LoopDevice::attach_part(image, start, length_bytes)?;
        btrfs_check(device.node())?;
        Self::on(vec![device], options, &[])
    }

    /// As [`KernelMount::unchecked`], of the images of all its devices. Lines of the kernel's log that fit
    /// one of the patterns in `allowed` (in which `DEVICE` and `*` mean what they do in the list of expected
    /// ones) are expected too.
    pub fn of<P: AsRef<Path>>(images: &[P], options: &str, allowed: &[&str]) -> Result<Self, JudgeError> {
        let attach = |image: &P| LoopDevice::attach(image.as_ref());
        Self::on(images.iter().map(attach).collect::<Result<_, _>>()?, options, allowed)
    }

    fn on(devices: Vec<LoopDevice>, options: &str, allowed: &[&str]) -> Result<Self, JudgeError> {
        // Not before: until then the same device may have been another test's, and so its lines.
        let log = KernelLog::from_now().map_err(|errno| JudgeError::NoLog { errno })?;
        let allowed = allowed.iter().map(|line| (*line).to_owned()).collect();
        let mut mount =
            KernelMount { devices, directory: Scratch::new("mount"), log, is_mounted: false, allowed };
        let is_scanned = mount.devices.len() > 1 || options.split(',').any(|option| option == "degraded");
        if is_scanned {
            for device in &mount.devices {
                run(Command::new("btrfs").args(["device", "scan"]).arg(device.node()))?;
            }
        }
        let mut command = Command::new("mount");
        command.args(["-t", "btrfs"]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        let mounted = run(command.arg(mount.device()).arg(mount.directory.path()));
        if let Err(error) = mounted {
            // What mount(8) says is always the same; the reason stands in the log.
            let lines = mount.lines().unwrap_or_default();
            let command = format!("{command:?}");
            let complaints = format!("{error}\n{}", lines.join("\n"));
            return Err(JudgeError::Complained { command, status: "mount failed".to_owned(), complaints });
        }
        mount.is_mounted = true;
        Ok(mount)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The node of the (first) loop device.
    pub fn device(&self) -> &Path {
        self.devices.first().map_or(Path::new("/dev/null"), LoopDevice::node)
    }

    /// The lines of the log since the last call that are about any of the devices.
    fn lines(&mut self) -> Result<Vec<String>, JudgeError> {
        let names: Vec<String> = self.devices.iter().map(LoopDevice::name).collect();
        self.log.lines_about(&names).map_err(|errno| JudgeError::NoLog { errno })
    }

    /// Scrubs it: no errors. The mount must be writable, or the kernel refuses.
    pub fn scrub(&self) -> Result<(), JudgeError> {
        let mut command = Command::new("btrfs");
        command.args(["scrub", "start", "-B"]).arg(self.path());
        let output = run(&mut command)?;
        let is_clean = |line: &str| matches("Error summary:*no errors found", line);
        if output.lines().any(is_clean) && output.lines().any(|line| matches("Status:*finished", line)) {
            return Ok(());
        }
        let status = "no clean summary".to_owned();
        Err(JudgeError::Complained { command: format!("{command:?}"), status, complaints: output })
    }

    /// Unmounts, and judges what the kernel wrote about the devices since they were attached.
    pub fn unmount(mut self) -> Result<(), JudgeError> {
        self.is_mounted = false;
        unmount(self.path())?;
        self.forget();
        let lines = self.lines()?;
        let names: Vec<String> = self.devices.iter().map(LoopDevice::name).collect();
        let lines = unexpected(&lines, &names, &self.allowed);
        let device = names.join(", ");
        if lines.is_empty() { Ok(()) } else { Err(JudgeError::Log { device, lines }) }
    }

    /// The kernel remembers the devices of file systems of several, and would take them for the next one's of
    /// that UUID.
    fn forget(&self) {
        for device in self.devices.iter().filter(|_| self.devices.len() > 1) {
            if let Err(error) =
                run(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()))
            {
                eprintln!("the kernel keeps {}: {error}", device.node().display());
            }
        }
    }
}

/// Unmounts. A busy mount gets a little time: a program that another thread is just starting has this one's
/// descriptors until it runs, and a process of the desktop may look at new mounts.
///
/// # Errors
/// What umount(8) said at last.
pub fn unmount(path: &Path) -> Result<(), JudgeError> {
    for _ in 0..20 {
        match run(Command::new("umount").arg(path)) {
            Err(JudgeError::Complained { complaints, .. }) if complaints.contains("busy") => {
                vlinder_base::thread::sleep(Duration::from_millis(100));
            }
            other => return other.map(drop),
        }
    }
    run(Command::new("umount").arg(path)).map(drop)
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = unmount(self.path())
        {
            eprintln!("{} stays mounted: {error}", self.path().display());
        } else if self.is_mounted {
            self.forget();
        }
    }
}
