//! The judge on images whose state is known: those of the kernel and of btrfs-progs' own tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::{Options, Report, check};
use vlinder_device::{Device, FileDevice, OpenOptions};
use vlinder_testkit::require::corpus;
use vlinder_testkit::{Scratch, require};

/// Sound images outside of the golden ones (reliability: what the corpus holds).
const SOUND: &[&str] = &[
    "fsck/019", "fsck/020", "fsck/022", "fsck/023", "fsck/030", "fsck/042", "fsck/054", "fsck/065",
    "misc/012", "misc/025", "misc/052", "golden/",
];

/// What mkfs.btrfs 6.2 leaves in each file system that it makes, and no kernel minds, is a warning.
const WARNED_OF: &[&str] = &["fsck/058"];

/// The warning that a sound image is known for.
fn warnings(name: &str) -> BTreeSet<&'static str> {
    let own = match name {
        "fsck/042-half-dropped-inode/default.raw.xz" => Some("superblock-stale"),
        _ => None,
    };
    own.into_iter().collect()
}

/// What was found in an image. Whether a second superblock is there after btrfs-image has restored a dump,
/// and of which state, differs from run to run: it writes the first one anew while other threads still extend
/// the file.
fn found_in(name: &str, report: &Report) -> BTreeSet<&'static str> {
    let is_whole = [".raw.xz", ".tar.xz"].iter().any(|end| name.ends_with(end));
    let is_of_image = |id: &&str| is_whole || !matches!(*id, "superblock-copy" | "superblock-stale");
    report.findings.iter().map(|finding| finding.kind.id()).filter(is_of_image).collect()
}

/// Every image file below a directory.
fn images(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The raw image of a file of the corpus; none if it is no image.
fn restore(file: &Path, scratch: &Scratch) -> Option<PathBuf> {
    let name = file.file_name().unwrap().to_str().unwrap();
    let raw = scratch.join("raw");
    let shell = |script: String| {
        let status = Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(status.success(), "{script}");
    };
    let (file, scratch_path) = (file.display(), scratch.join(""));
    let target = raw.display();
    if name.ends_with(".raw.xz") {
        shell(format!("xz -dc '{file}' > '{target}'"));
    } else if name.ends_with(".img") || name.ends_with(".btrfs-image") {
        shell(format!("btrfs-image -r '{file}' '{target}' 2>&1"));
    } else if name.ends_with(".img.xz") {
        shell(format!("xz -dc '{file}' > '{target}.dump' && btrfs-image -r '{target}.dump' '{target}' 2>&1"));
    } else if name.ends_with(".tar.xz") {
        shell(format!(
            "tar -C '{}' -xJf '{file}' && mv '{}'/*.img '{target}'",
            scratch_path.display(),
            scratch_path.display()
        ));
    } else {
        return None;
    }
    Some(raw)
}

fn judge(image: &Path) -> Result<Report, String> {
    let device = FileDevice::open(image, &OpenOptions { read_only: true, ..OpenOptions::default() });
    let device: Arc<dyn Device> = Arc::new(device.map_err(|error| error.to_string())?);
    check(vec![device], &Options::default()).map_err(|error| error.to_string())
}

#[test]
fn damaged_images_are_found_out_and_sound_ones_accepted() {
    require!(Corpus, Tool("xz"), Tool("btrfs-image"));
    let corpus = corpus().unwrap();
    let mut wrong = Vec::new();
    for file in ["golden", "fsck", "misc"].iter().flat_map(|part| images(&corpus.join(part))) {
        let scratch = Scratch::new("corpus");
        let Some(raw) = restore(&file, &scratch) else { continue };
        let name = file.strip_prefix(&corpus).unwrap().display().to_string();
        let is_sound = SOUND.iter().any(|sound| name.starts_with(sound));
        let is_missed = WARNED_OF.iter().any(|missed| name.starts_with(missed));
        let judged = judge(&raw);
        let accepted = judged.as_ref().is_ok_and(Report::is_clean);
        let told = wrong.len();
        let warned = |report: &Report| {
            report.findings.iter().any(|finding| finding.kind.id() == "free-space-leftover")
        };
        if WARNED_OF.iter().any(|warned| name.starts_with(warned)) && !judged.as_ref().is_ok_and(warned) {
            wrong.push(format!("{name}, without the warning"));
        }
        let found = judged.as_ref().ok().map(|report| found_in(&name, report));
        if is_sound && found.as_ref() != Some(&warnings(&name)) {
            wrong.push(format!("{name}, of which {found:?} is found"));
        }
        if (is_sound || is_missed) != accepted {
            wrong.push(name.clone());
        }
        if wrong.len() == told {
            continue;
        }
        println!("{name}: sound {is_sound}, accepted {accepted}");
        match &judged {
            Ok(report) => report.findings.iter().take(6).for_each(|finding| println!("    {finding}")),
            Err(error) => println!("    does not open: {error}"),
        }
    }
    assert_eq!(wrong, [""; 0]);
}
