//! `btrfs check` as a judge: which of its lines a sound image may have, and the one complaint of it that
//! needs a second opinion.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{JudgeError, LoopDevice, run};
use crate::kernel_log::matches;

/// What `btrfs check` (6.2 to 6.19) prints about a sound image; `*` stands for anything.
const KNOWN_CHECK_LINES: &[&str] = &[
    "Opening filesystem to check...",
    "Checking filesystem on *",
    "UUID: *",
    "[*/*] checking log skipped (none written)",
    "[*/*] checking log",
    "[*/*] checking root items",
    "[*/*] checking extents",
    "[*/*] checking free space tree",
    "[*/*] checking free space cache",
    "[*/*] checking fs roots",
    "[*/*] checking only csums items (without verifying data)",
    "[*/*] checking csums against data",
    "[*/*] checking root refs",
    "[*/*] checking root refs done with fs roots in lowmem mode, skipping",
    "[*/*] checking quota groups",
    "[*/*] checking quota groups skipped (not enabled on this FS)",
    "found * bytes used, no error found",
    // After a writer without a v1 space cache: the expected way to say that the cache no longer counts.
    "cache and super generation don't match, space cache will be invalidated",
    "total csum bytes: *",
    "total tree bytes: *",
    "total fs tree bytes: *",
    "total extent tree bytes: *",
    "btree space waste bytes: *",
    "file data blocks allocated: *",
    " referenced *",
];

/// All that `btrfs check` says beside [`KNOWN_CHECK_LINES`] when it finds fault and has nothing to name.
///
/// Its usual mode keeps one record for an inode whose leaf several subvolumes share. When the first
/// subvolume's orphan item is found, the record's only error is taken back; at the second subvolume a record
/// without error is no longer expected to be there and counts as one (`check_inode_recs`, 6.2 to 6.19). A
/// snapshot of a subvolume with two deleted files that are still open looks like that until its orphans are
/// deleted: Linux's own commit of such a snapshot is refused too, as `tests/judges.rs` shows. The other mode
/// of the program walks each subvolume by itself and has no such records.
const COMPLAINT_WITHOUT_A_FAULT: &[&str] =
    &["ERROR: errors found in fs roots", "found * bytes used, error(s) found"];

/// What `btrfs check` says where it did not get as far as to open the image.
const NOT_BEGUN: &str = "could not check mount status";
/// How often it is asked again then.
const MAX_TRIES: u32 = 20;

/// Runs `btrfs check --readonly`: it must exit 0 and write no line that is not known. Where it finds fault
/// without naming one, its other mode (`--mode=lowmem`) decides.
pub fn btrfs_check(image: &Path) -> Result<(), JudgeError> {
    judge(image, &[], &[])
}

/// As [`btrfs_check`] of an image that it may not get to the end of: after so many seconds it is killed, and
/// that is a complaint.
pub fn btrfs_check_within(image: &Path, seconds: u64) -> Result<(), JudgeError> {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &seconds.to_string(), "btrfs", "check", "--readonly"]).arg(image);
    match judge_output(&mut command, &[]) {
        Err(JudgeError::Complained { complaints, .. }) if names_no_fault(&complaints, &[]) => {
            judge(image, &[], &[])
        }
        Err(JudgeError::Complained { command, status, complaints }) => {
            let complaints = unknown_lines(&complaints, &[]).collect::<Vec<_>>().join("\n");
            Err(JudgeError::Complained { command, status, complaints })
        }
        verdict => verdict,
    }
}

/// As [`btrfs_check`], and verifies the checksums of all data.
pub fn btrfs_check_data(image: &Path) -> Result<(), JudgeError> {
    judge(image, &["--check-data-csum"], &[])
}

/// As [`btrfs_check`] of the images of all devices; lines that fit one of `allowed` are known too.
pub fn btrfs_check_all<P: AsRef<Path>>(images: &[P], allowed: &[&str]) -> Result<(), JudgeError> {
    if let [image] = images {
        return judge(image.as_ref(), &[], allowed);
    }
    // It finds the other devices by itself, among those of the machine.
    let attach = |image: &P| LoopDevice::attach(image.as_ref());
    let devices: Vec<LoopDevice> = images.iter().map(attach).collect::<Result<_, _>>()?;
    devices.first().map_or(Ok(()), |device| judge(device.node(), &[], allowed))
}

fn judge(image: &Path, arguments: &[&str], allowed: &[&str]) -> Result<(), JudgeError> {
    match run_check(image, arguments, allowed) {
        Err(JudgeError::Complained { complaints, .. }) if names_no_fault(&complaints, allowed) => {
            run_check(image, &[&["--mode=lowmem"], arguments].concat(), allowed)
        }
        verdict => verdict,
    }
}

/// It first looks at all that is mounted, and gives up before it opens the image where a loop device of
/// another test goes meanwhile. That is no judgement: it is asked again.
fn run_check(image: &Path, arguments: &[&str], allowed: &[&str]) -> Result<(), JudgeError> {
    let mut tries = 1..=MAX_TRIES;
    loop {
        let mut command = Command::new("btrfs");
        command.args(["check", "--readonly"]).args(arguments).arg(image);
        match judge_output(&mut command, allowed) {
            Err(JudgeError::Complained { complaints, .. })
                if complaints.contains(NOT_BEGUN) && tries.next().is_some() =>
            {
                vlinder_base::thread::sleep(Duration::from_millis(100));
            }
            verdict => return verdict,
        }
    }
}

fn judge_output(command: &mut Command, allowed: &[&str]) -> Result<(), JudgeError> {
    let output = run(command)?;
    let complaints: Vec<&str> = unknown_lines(&output, allowed).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    let status = "exit 0, with lines that are not known".to_owned();
    Err(JudgeError::Complained { command: format!("{command:?}"), status, complaints: complaints.join("\n") })
}

fn unknown_lines<'a>(output: &'a str, allowed: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let is_known =
        move |line: &&str| KNOWN_CHECK_LINES.iter().chain(allowed).any(|pattern| matches(pattern, line));
    output.lines().filter(move |line| !line.is_empty() && !is_known(line))
}

/// Whether these lines say that there is a fault in some subvolume, and nothing else.
fn names_no_fault(output: &str, allowed: &[&str]) -> bool {
    let mut lines = unknown_lines(output, allowed).peekable();
    let is_silent = |line: &str| COMPLAINT_WITHOUT_A_FAULT.iter().any(|pattern| matches(pattern, line));
    lines.peek().is_some() && lines.all(is_silent)
}

#[cfg(test)]
mod tests {
    use super::names_no_fault;

    const SILENT: &str = "[4/7] checking fs roots\nERROR: errors found in fs roots\n\
        Opening filesystem to check...\nfound 77824 bytes used, error(s) found\ntotal csum bytes: 0\n";

    #[test]
    fn only_a_complaint_without_a_fault_needs_a_second_opinion() {
        assert!(names_no_fault(SILENT, &[]));
        assert!(!names_no_fault(&format!("{SILENT}root 5 inode 260 errors 2000, link count wrong\n"), &[]));
        assert!(!names_no_fault(&format!("ERROR: errors found in extent allocation tree\n{SILENT}"), &[]));
        assert!(!names_no_fault("Opening filesystem to check...\n", &[]));
    }
}
