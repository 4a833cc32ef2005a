//! Making an image of the matrix: mkfs, the kernel's work in it, the kernel's walk of it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vlinder_admin::mkfs::raw::MkfsFeatures;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_volume::Profile;

use super::{MatrixRecipe, Profiles};
use crate::Scratch;
use crate::kernel::{KernelMount, LoopDevice};
use crate::subject::{self, without_placeholder_times};
use crate::walk::{self, InodeIdentity, Options};
use crate::workload::{Choice, colliding};

/// Of each device.
const DEVICE_BYTES: u64 = 256 << 20;
/// Where the profiles are converted, which takes room for both.
const CONVERTED_DEVICE_BYTES: u64 = 1536 << 20;
/// Names with equal hashes, so many that their item still fits into the smallest node.
const COLLIDING_NAMES: usize = 24;
const FILL: &str = include_str!("fill.sh");

/// Lines that some states bring to the kernel's log.
pub const STATE_LINES: &[&str] = &[
    "BTRFS info (device DEVICE): start tree-log replay",
    "BTRFS info (device DEVICE): allowing degraded mounts",
    "BTRFS warning (device DEVICE): devid * uuid * is missing",
];

/// An image that is made, with the kernel's walk of it.
#[derive(Debug)]
pub struct Made {
    /// The devices that are there.
    pub images: Vec<PathBuf>,
    /// All devices: some are kept away in the state `degraded`.
    pub all_images: Vec<PathBuf>,
    /// The kernel's walk, with data ranges.
    pub walk: String,
}

/// Makes an image in a directory.
///
/// # Errors
/// What went wrong, for a person to read.
pub fn make(recipe: &MatrixRecipe, directory: &Path, seed: u64) -> Result<Made, String> {
    let profile = recipe.profile();
    let images: Vec<PathBuf> =
        (0..profile.devices).map(|number| directory.join(format!("device-{number}"))).collect();
    let device_bytes = device_bytes(recipe);
    for image in &images {
        let made = std::fs::File::create(image).and_then(|file| file.set_len(device_bytes));
        made.map_err(|error| format!("{}: {error}", image.display()))?;
    }
    if recipe.space == "tree+groups" {
        mkfs_ours(recipe, &images, seed)?
    } else {
        mkfs_theirs(recipe, &images)?
    }
    let images = fill(recipe, &images, directory, seed)?;
    let missing = match (recipe.state, recipe.space) {
        // The system chunks bear one; see `convert`.
        ("degraded", "tree+groups") => 1,
        ("degraded", _) => 1 + seed as usize % profile.may_miss,
        _ => 0,
    };
    let present = images[missing..].to_vec();
    let walk = kernel_walk(recipe, &present)?;
    Ok(Made { images: present, all_images: images, walk })
}

fn device_bytes(recipe: &MatrixRecipe) -> u64 {
    let is_converted = recipe.space == "tree+groups" && recipe.profile().devices > 1;
    if is_converted { CONVERTED_DEVICE_BYTES } else { DEVICE_BYTES }
}

/// Runs a program; its error output is the error.
fn tool(command: &mut Command) -> Result<(), String> {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn mkfs_theirs(recipe: &MatrixRecipe, images: &[PathBuf]) -> Result<(), String> {
    let profile = recipe.profile();
    let mut command = Command::new("mkfs.btrfs");
    command.args(["-q", "-f", "--csum", recipe.checksum, "-n", recipe.nodes]);
    command.args(["-d", profile.data, "-m", profile.metadata]);
    if profile.is_mixed {
        command.arg("--mixed");
    }
    let switch = |is_on: bool, name: &str| if is_on { name.to_owned() } else { format!("^{name}") };
    let features = [
        switch(recipe.has_skinny, "skinny-metadata"),
        switch(recipe.has_extref, "extref"),
        switch(recipe.has_no_holes, "no-holes"),
    ];
    command.args(["-O", &features.join(","), "-R", &switch(recipe.space == "tree", "free-space-tree")]);
    tool(command.args(images))
}

/// On one device; the kernel adds the others and converts the profiles.
fn mkfs_ours(recipe: &MatrixRecipe, images: &[PathBuf], seed: u64) -> Result<(), String> {
    let profile = recipe.profile();
    let is_final = profile.devices == 1;
    let made_as =
        |name: &str, other| if is_final { Profile::from_name(name).unwrap_or(other) } else { other };
    let made = subject::Recipe {
        device_bytes: device_bytes(recipe),
        node_size: recipe.nodes.trim_end_matches('k').parse::<u32>().map_err(|error| error.to_string())?
            << 10,
        checksum_kind: ChecksumKind::from_name(recipe.checksum).ok_or("no such checksum")?,
        data_profile: made_as(profile.data, Profile::Single),
        metadata_profile: made_as(profile.metadata, Profile::Single),
        features: MkfsFeatures {
            extref: recipe.has_extref,
            skinny_metadata: recipe.has_skinny,
            no_holes: recipe.has_no_holes,
            free_space_tree: true,
            block_group_tree: true,
            mixed_groups: profile.is_mixed,
        },
        options: String::new(),
        identity: seed,
    };
    let (first, others) = images.split_first().ok_or("no device")?;
    made.in_file(first);
    if is_final { Ok(()) } else { convert(profile, first, others) }
}

fn convert(profile: &Profiles, first: &Path, others: &[PathBuf]) -> Result<(), String> {
    let attach = |image: &PathBuf| LoopDevice::attach(image).map_err(|error| error.to_string());
    let devices: Vec<LoopDevice> = others.iter().map(attach).collect::<Result<_, _>>()?;
    let mount = KernelMount::of(&[first], "", &[]).map_err(|error| error.to_string())?;
    for device in &devices {
        tool(Command::new("btrfs").args(["device", "add", "-f"]).arg(device.node()).arg(mount.path()))?;
    }
    let (data, metadata) = (format!("-dconvert={}", profile.data), format!("-mconvert={}", profile.metadata));
    let balance = |arguments: &[&str]| {
        let mut command = Command::new("btrfs");
        tool(command.args(["balance", "start", "-f"]).args(arguments).arg(mount.path()))
    };
    if profile.metadata.starts_with("raid1c") {
        // Linux 6.18 finds no space for system chunks of RAID1C3 and RAID1C4, also where mkfs.btrfs made the
        // file system: they become RAID1 before, and are then left out by a filter that fits none.
        balance(&["-sconvert=raid1"])?;
        balance(&[&data, &metadata, "-susage=0"])?;
    } else {
        balance(&[&data, &metadata])?;
    }
    drop(mount);
    for device in &devices {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()))?;
    }
    Ok(())
}

/// Mounts as the recipe says and does the state's work; gives the images to look at, which are copies where
/// the state is one that an unmounting would end.
fn fill(
    recipe: &MatrixRecipe,
    images: &[PathBuf],
    directory: &Path,
    seed: u64,
) -> Result<Vec<PathBuf>, String> {
    let mut options = recipe.mount_options();
    if matches!(recipe.state, "dirty-log" | "orphans") {
        options = [options.as_str(), "commit=600"]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(",");
    }
    let mount = KernelMount::of(images, &options, &[]).map_err(|error| error.to_string())?;
    let argument = match recipe.state {
        "collisions" => {
            let names = colliding(&Choice::new(seed), b"collides", COLLIDING_NAMES);
            let file = directory.join("names");
            let bytes: Vec<u8> = names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect();
            std::fs::write(&file, bytes).map_err(|error| error.to_string())?;
            file.display().to_string()
        }
        _ => seed.to_string(),
    };
    let mut command = Command::new("bash");
    command.args(["-c", FILL, "fill.sh", recipe.state, &argument]).current_dir(mount.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("bash: {error}"))?;
    let copies = if is_held(&mut child) { Some(copy(images, directory)?) } else { None };
    // Closes its input, for which it may be waiting.
    let output = child.wait_with_output().map_err(|error| format!("bash: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("filling: {}\n{text}", output.status));
    }
    drop(mount);
    if matches!(recipe.state, "dirty-log" | "orphans") && copies.is_none() {
        return Err("the state was not held".to_owned());
    }
    let images = copies.unwrap_or_else(|| images.to_vec());
    if recipe.state == "dirty-log" && !has_log(&images[0])? {
        return Err("the kernel left no log".to_owned());
    }
    Ok(images)
}

/// Reads what the script says, until it waits or ends.
fn is_held(child: &mut Child) -> bool {
    let Some(output) = child.stdout.take() else { return false };
    BufReader::new(output).lines().map_while(Result::ok).any(|line| line == "READY")
}

fn copy(images: &[PathBuf], directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut copies = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let target = directory.join(format!("cut-{number}"));
        tool(Command::new("cp").arg("--sparse=always").arg(image).arg(&target))?;
        copies.push(target);
    }
    Ok(copies)
}

/// Whether the primary superblock names a log.
fn has_log(image: &Path) -> Result<bool, String> {
    let mut field = [0; 8];
    let file = std::fs::File::open(image).map_err(|error| error.to_string())?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut field, 65_536 + 96)
        .map_err(|error| error.to_string())?;
    Ok(field != [0; 8])
}

/// The kernel's walk, cold. A log is replayed for it, in copies.
fn kernel_walk(recipe: &MatrixRecipe, images: &[PathBuf]) -> Result<String, String> {
    let copies = Scratch::in_memory("matrix-walk");
    let images = match recipe.state {
        "dirty-log" | "orphans" => copy(images, copies.path())?,
        _ => images.to_vec(),
    };
    let options = if recipe.state == "degraded" { "ro,degraded" } else { "ro" };
    let mount = KernelMount::of(&images, options, STATE_LINES).map_err(|error| error.to_string())?;
    let walked = walk_of_mount(mount.path())?;
    mount.unmount().map_err(|error| error.to_string())?;
    Ok(walked)
}

/// The walk of a mount, as it is compared with the library's.
///
/// # Errors
/// What can't be read.
pub fn walk_of_mount(path: &Path) -> Result<String, String> {
    let options = Options { identity: InodeIdentity::NumberAlone, data_ranges: true, ..Options::default() };
    let entries = walk::walk(path, &options).map_err(|error| error.to_string())?;
    Ok(walk::render(&without_placeholder_times(path, entries)))
}

/// Runs a script in a mount.
///
/// # Errors
/// What it says where it fails.
pub fn script(path: &Path, text: &str) -> Result<(), String> {
    let mut child = Command::new("bash")
        .current_dir(path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(format!("set -e\n{text}\n").as_bytes()).map_err(|error| error.to_string())?;
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{text}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
