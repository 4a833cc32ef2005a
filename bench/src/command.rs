//! Runs programs and waits for them; their peak resident memory comes from the operating system's account.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The directory of the programs that are measured, if it is not this program's own.
static SWAPPED: OnceLock<PathBuf> = OnceLock::new();

/// From now on, measures the programs in `directory` in place of those built beside this program. A process
/// does so once at most, before it runs anything: no run can mix programs of two builds.
///
/// # Errors
/// If it was done before.
pub fn swap(directory: &Path) -> Result<()> {
    let swapped = SWAPPED.set(directory.to_owned());
    swapped.map_err(|_| anyhow::anyhow!("the programs were swapped before; start a process for each run"))
}

/// The directory of the programs that are measured: this program's own, or what [`swap`] put in its place.
pub fn directory() -> Result<PathBuf> {
    if let Some(directory) = SWAPPED.get() {
        return Ok(directory.clone());
    }
    let own = std::env::current_exe()?;
    Ok(own.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// The vlinder that is measured.
pub fn vlinder() -> Result<PathBuf> {
    program("vlinder")
}

/// A program built from the workspace, beside the vlinder that is measured.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = directory()?.join(name);
    if !path.exists() {
        let package = if name == "vlinder" { "vlinder-cli" } else { "vlinder-bench" };
        bail!("{} is not there; build it first: cargo build --release -p {package}", path.display());
    }
    Ok(path)
}

/// Runs a shell command; anything but success is an error with what it said.
pub fn shell(script: &str) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let own = vlinder()?.parent().map(|parent| parent.display().to_string()).unwrap_or_default();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", format!("{own}:{path}"))
        .env("LC_ALL", "C")
        // What a program says of an error is repeated here, where a backtrace of its own would bury it.
        .env("RUST_LIB_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running: {script}"))?;
    if !output.status.success() {
        bail!("{script}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program is there.
pub fn have(program: &str) -> bool {
    shell(&format!("command -v {program} >/dev/null")).is_ok()
}

/// Peak resident memory of a running process, in bytes.
pub fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}
