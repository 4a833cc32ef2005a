//! Devices over what a name means.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceWindow, FileDevice, HostIdentity, LockMode, OpenOptions};

use crate::choice::{ChoiceError, Chosen, choose};
use crate::error::OpenError;
use crate::name::{ImageName, NamedPart};
use crate::table::{PartitionTable, TableRead};

/// An opened image.
#[derive(Debug)]
pub enum OpenedImage {
    /// All of a file or block device.
    Whole(FileDevice),
    /// A part of one.
    Part(DeviceWindow<FileDevice>),
}

/// What tells the bytes that an image's name means from all others: two names of one image have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageIdentity {
    /// The file or block device.
    pub host: HostIdentity,
    /// The first byte of the part that is meant.
    pub start: u64,
}

/// Opens what a path names: a file or block device, or a part of one ([`ImageName`]); where nothing is said
/// of a part, and the only Btrfs lies in a partition, that one. The lock is on the whole file, whatever the
/// part: two partitions of one disk are written by one process at a time.
///
/// # Errors
/// The device's; a partition that is not there, or can't be used; a disk with several partitions of which
/// none or more than one holds a Btrfs.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
    let name = ImageName::of(path);
    let file = FileDevice::open(name.file(), options)?;
    let chosen = chosen(&file, &name)?;
    Ok(match window(file, &name, chosen)? {
        OpenedImage::Whole(file) => Arc::new(file),
        OpenedImage::Part(part) => Arc::new(part),
    })
}

/// As [`open()`], but where no part is named the whole is meant, whatever lies there.
///
/// # Errors
/// As there.
pub fn open_whole(path: &Path, options: &OpenOptions) -> Result<OpenedImage, OpenError> {
    let name = ImageName::of(path);
    let file = FileDevice::open(name.file(), options)?;
    let chosen = if name.part() == NamedPart::Unsaid { None } else { chosen(&file, &name)? };
    window(file, &name, chosen)
}

/// The partition table of a file or block device that may be in use; none where there is no sound one, or it
/// can't be read.
#[must_use]
pub fn table_on(path: &Path) -> Option<PartitionTable> {
    match PartitionTable::read(&peek(path)?).ok()? {
        TableRead::Sound(table) => Some(table),
        TableRead::Absent | TableRead::Damaged(_) => None,
    }
}

/// Which bytes a path names; none where there is no such file. A part that can't be found counts as the
/// beginning: opening it tells why.
#[must_use]
pub fn identity(path: &Path) -> Option<ImageIdentity> {
    let name = ImageName::of(path);
    let status = rustix::fs::stat(name.file()).ok()?;
    let host = HostIdentity::of(&status);
    let start = match name.part() {
        NamedPart::Bytes { start, .. } => Some(start),
        part => peek(name.file()).and_then(|file| choose(&file, part).ok()?).map(|chosen| chosen.range.start),
    };
    Some(ImageIdentity { host, start: start.unwrap_or(0) })
}

/// How long the part is that a path means; none where it means the whole.
#[must_use]
pub fn part_bytes(path: &Path) -> Option<u64> {
    let name = ImageName::of(path);
    let file = peek(name.file())?;
    let chosen = choose(&file, name.part()).ok()??;
    chosen.range.end.checked_sub(chosen.range.start)
}

/// A file or block device to look at, in use or not. Whatever else a path leads to is not opened: that
/// alone may wait, or do something to a device.
fn peek(path: &Path) -> Option<FileDevice> {
    let status = path.metadata().ok()?;
    if !status.is_file() && !status.file_type().is_block_device() {
        return None;
    }
    let options =
        OpenOptions { read_only: true, lock: LockMode::None, allow_mounted: true, ..OpenOptions::default() };
    FileDevice::open(path, &options).ok()
}

fn chosen(file: &FileDevice, name: &ImageName) -> Result<Option<Chosen>, OpenError> {
    choose(file, name.part()).map_err(|error| match error {
        ChoiceError::Device(error) => error.into(),
        ChoiceError::Part(kind) => kind.at(&name.file().to_string_lossy()).into(),
    })
}

fn window(file: FileDevice, name: &ImageName, chosen: Option<Chosen>) -> Result<OpenedImage, OpenError> {
    let Some(Chosen { range, part }) = chosen else { return Ok(OpenedImage::Whole(file)) };
    let named = name.with_part(part).to_path();
    tracing::debug!(image = %named.display(), start = range.start, end = range.end, "a part of a disk");
    let length = range.end.saturating_sub(range.start);
    let window = DeviceWindow::new(file, &named.to_string_lossy(), Physical(range.start), length)?;
    Ok(OpenedImage::Part(window))
}
