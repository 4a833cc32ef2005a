//! Images that lie in memory: shown to `btrfs check`, written to files, compared.

use std::path::Path;

use vlinder_device::{DeviceExt, MemoryDevice};

use crate::{Scratch, kernel};

/// Asks `btrfs check` about an image in memory.
///
/// # Errors
/// Its complaints.
///
/// # Panics
/// If there is no room for the image.
pub fn check_image(scratch: &Scratch, image: &MemoryDevice) -> Result<(), String> {
    let path = scratch.join("image");
    write_image(image, &path);
    kernel::btrfs_check(&path).map_err(|error| error.to_string())
}

/// Writes an image in memory to a file, sparse.
///
/// # Panics
/// If there is no room for it.
pub fn write_image(image: &MemoryDevice, path: &Path) {
    use std::os::unix::fs::FileExt;
    use vlinder_device::Device;
    let written = std::fs::File::create(path).and_then(|file| {
        file.set_len(image.length())?;
        image.written_chunks().iter().try_for_each(|(place, bytes)| file.write_all_at(bytes, place.0))
    });
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}

/// Whether two images hold the same bytes in a range.
pub fn is_equal(one: &MemoryDevice, other: &MemoryDevice, start: u64, length: u64) -> bool {
    let read =
        |image: &MemoryDevice| image.read_at(vlinder_base::units::Physical(start), length as usize).ok();
    read(one) == read(other)
}
