//! What must hold of an image of the matrix.

use std::path::{Path, PathBuf};

use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};

use super::MatrixRecipe;
use super::make::{Made, STATE_LINES, script, walk_of_mount};
use crate::kernel::{KernelMount, btrfs_check_all};
use crate::subject::{library_walk, own_check_all};
use crate::walk::{compare, render};

/// Where the writers work; the rest must stay as it was.
const OWN: &str = "for-vlinder";
/// The same for the kernel after vlinder.
const KERNELS: &str = "for-kernel";

/// `btrfs check` looks for the devices of an image among all of the machine, and says so where one just goes
/// away.
const OTHER_DEVICES: &[&str] = &["ERROR: cannot scan /dev/loop*: Input/output error"];

/// An image that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedImage {
    /// Entries in the walk.
    pub entries: usize,
    /// Why vlinder did not write; none where it did, and all judges accepted it.
    pub only_read: Option<String>,
}

/// Judges an image.
///
/// # Errors
/// What the first judge that is not content says.
pub fn judge(recipe: &MatrixRecipe, made: &Made) -> Result<PassedImage, String> {
    let found = walk_of_images(recipe, &made.images)?;
    compare(&made.walk, &found)
        .map_err(|error| format!("vlinder walks otherwise than the kernel: {error}"))?;
    // Neither check judges a file system whose devices are not all there.
    check(&made.all_images).map_err(|error| format!("as the kernel left it: {error}"))?;
    let entries = found.lines().count();
    let options = options(recipe, false)?;
    let filesystem = Filesystem::open(&made.images, options).map_err(|error| error.to_string())?;
    if let Some(reason) = filesystem.engine().read_only_reason() {
        return Ok(PassedImage { entries, only_read: Some(reason.to_string()) });
    }
    write(recipe, filesystem, &made.images, &found)?;
    Ok(PassedImage { entries, only_read: None })
}

fn check(images: &[PathBuf]) -> Result<(), String> {
    own_check_all(images)?;
    btrfs_check_all(images, OTHER_DEVICES).map_err(|error| error.to_string())
}

fn options(recipe: &MatrixRecipe, read_only: bool) -> Result<OpenOptions, String> {
    let mut options = if read_only { OpenOptions::read_only() } else { OpenOptions::default() };
    let mut given = recipe.mount_options();
    if recipe.state == "degraded" {
        given.push_str(",degraded");
    }
    for option in given.split(',').filter(|option| !option.is_empty()) {
        options.apply(option).map_err(|error| error.to_string())?;
    }
    Ok(options)
}

fn walk_of_images(recipe: &MatrixRecipe, images: &[PathBuf]) -> Result<String, String> {
    let filesystem = Filesystem::open(images, options(recipe, true)?).map_err(|error| error.to_string())?;
    Ok(render(&library_walk(&filesystem, true).map_err(|error| error.to_string())?))
}

/// vlinder writes, then the kernel: after each, both checks and both walks.
fn write(
    recipe: &MatrixRecipe,
    filesystem: Filesystem,
    images: &[PathBuf],
    before: &str,
) -> Result<(), String> {
    let files = Files::new(filesystem, Caller::superuser());
    let is_full = recipe.state == "full";
    change(&files, recipe.state != "fresh")
        .or_else(|error| if is_full && is_full_disk(&error) { Ok(()) } else { Err(error) })
        .map_err(|error| format!("writing: {error}"))?;
    files
        .filesystem()
        .maintenance()
        .finish_deletions()
        .map_err(|error| format!("finishing deletions: {error}"))?;
    files.close().map_err(|error| format!("closing: {error}"))?;
    let after = walk_of_images(recipe, images)?;
    compare(&without(before, &[OWN]), &without(&after, &[OWN]))
        .map_err(|error| format!("vlinder changed what it should not: {error}"))?;
    check(images).map_err(|error| format!("after vlinder: {error}"))?;
    let mount =
        KernelMount::of(images, &recipe.mount_options(), STATE_LINES).map_err(|error| error.to_string())?;
    let kernels = walk_of_mount(mount.path())?;
    compare(&after, &kernels)
        .map_err(|error| format!("the kernel walks otherwise after vlinder: {error}"))?;
    script(mount.path(), &kernels_turn(is_full))?;
    mount.scrub().map_err(|error| format!("after vlinder: {error}"))?;
    mount.unmount().map_err(|error| format!("after vlinder: {error}"))?;
    check(images).map_err(|error| format!("after vlinder and the kernel: {error}"))?;
    let last = walk_of_images(recipe, images)?;
    compare(&without(&after, &[OWN, KERNELS]), &without(&last, &[OWN, KERNELS]))
        .map_err(|error| format!("after vlinder, the kernel changed what it should not: {error}"))
}

fn is_full_disk(error: &FsError) -> bool {
    error.errno() == rustix::io::Errno::NOSPC
}

/// Deletes, overwrites, cuts, renames, makes: files of the kernel's and new ones.
fn change(files: &Files, has_files: bool) -> Result<(), FsError> {
    let own = Path::new("/").join(OWN);
    if has_files {
        files.remove_file(own.join("1"))?;
        files.options().write(true).open(own.join("2"))?.write_at(&[b'v'; 5000], 1000)?;
        files.options().write(true).open(own.join("3"))?.set_len(6001)?;
        files.rename(own.join("4"), own.join("renamed"))?;
        files.sync()?;
        files.snapshot("/sub", own.join("snapshot"), false)?;
        files.write(own.join("snapshot/file"), "of vlinder")?;
    } else {
        files.create_dir(&own)?;
    }
    for number in 0_u32..40 {
        let pieces: Vec<u8> = (0..number * 997).flat_map(|word| (word / 7).to_le_bytes()).collect();
        files.write(own.join(format!("new-{number}")), pieces)?;
    }
    files.sync()?;
    for number in (0..40).step_by(3) {
        files.remove_file(own.join(format!("new-{number}")))?;
    }
    files.create_subvolume(own.join("subvolume"))?;
    files.write(own.join("subvolume/file"), [7; 70_000])
}

/// What the kernel does afterwards: it allocates, so that whatever it believes of free space matters.
fn kernels_turn(is_full: bool) -> String {
    let bear = if is_full { " || true" } else { "" };
    format!(
        "mkdir {KERNELS}{bear}
         rm -rf {OWN}/new-1* {OWN}/renamed
         for i in $(seq 60); do head -c $((i * 3000)) /dev/urandom > {KERNELS}/$i{bear}; done
         sync -f .
         for i in $(seq 1 3 60); do rm -f {KERNELS}/$i; done
         [ ! -d {OWN}/snapshot ] || btrfs -q subvolume delete {OWN}/snapshot > /dev/null
         for i in $(seq 20); do head -c 50000 /dev/urandom > {KERNELS}/again-$i{bear}; done"
    )
}

/// The field that names the first path of an inode, of all that are no directories.
const FIRST_PATH: usize = 7;

/// A walk without what is below these, and without first paths, which may be there.
fn without(walk: &str, left_out: &[&str]) -> String {
    let is_kept = |line: &&str| !left_out.iter().any(|prefix| line.starts_with(prefix));
    let shorten = |line: &str| {
        let is_directory = line.split('|').nth(4) == Some("d");
        let fields = line.split('|').enumerate();
        let kept =
            fields.filter(|(position, _)| is_directory || *position != FIRST_PATH).map(|(_, field)| field);
        kept.collect::<Vec<_>>().join("|") + "\n"
    };
    walk.lines().filter(is_kept).map(shorten).collect()
}
