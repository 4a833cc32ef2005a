//! Runs programs and waits for them; their peak resident memory comes from the operating system's account.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The vlinder that was built beside this program.
pub fn vlinder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("vlinder");
    if !path.exists() {
        bail!("{} is not there; build it first: cargo build --release -p vlinder-cli", path.display());
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
