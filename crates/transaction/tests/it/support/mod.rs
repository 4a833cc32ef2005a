//! What the tests of this crate share: images that Linux's tools made, and engines on them.

use std::path::Path;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, FileDevice, OpenOptions};
use vlinder_transaction::{Engine, EngineOptions};
use vlinder_volume::{Access, SuperblockChoice, Volume};

/// A new file system of `size` (as `truncate` reads it).
pub fn mkfs(path: &Path, arguments: &[&str], size: &str) {
    assert!(Command::new("truncate").args(["-s", size]).arg(path).status().unwrap().success());
    let made = Command::new("mkfs.btrfs").arg("-q").args(arguments).arg(path).output().unwrap();
    assert!(made.status.success(), "mkfs.btrfs {arguments:?}: {made:?}");
}

/// The file system of an image, for writing.
pub fn open(path: &Path) -> Arc<Engine> {
    open_device(Arc::new(FileDevice::open(path, &OpenOptions::writer()).unwrap()))
}

/// The file system of a device, for writing.
pub fn open_device(device: Arc<dyn Device>) -> Arc<Engine> {
    let opened = Volume::open(vec![device], SuperblockChoice::default(), Access::ReadWrite).unwrap();
    Engine::open(opened, EngineOptions::default()).unwrap()
}
