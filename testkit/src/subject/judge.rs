//! The two judges of an unmounted image: `btrfs check`, and vlinder's own, which shares no code with the
//! engine.

use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_device::{Device, FileDevice, OpenOptions};

use crate::kernel;

/// Asks vlinder's own judge.
///
/// # Errors
/// Its findings, one on each line.
pub fn own_check(device: Arc<dyn Device>) -> Result<(), String> {
    judge(vec![device], &Options::default())
}

/// As [`own_check`], with the checksums of data.
///
/// # Errors
/// Its findings, one on each line.
pub fn own_check_data(device: Arc<dyn Device>) -> Result<(), String> {
    judge(vec![device], &Options { data_checksums: true, ..Options::default() })
}

/// Asks vlinder's own judge about the images of all devices, with the checksums of data.
///
/// # Errors
/// Its findings, one on each line.
pub fn own_check_all<P: AsRef<Path>>(images: &[P]) -> Result<(), String> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let open = |image: &P| {
        FileDevice::open(image.as_ref(), &options).map(|device| Arc::new(device) as Arc<dyn Device>)
    };
    let devices =
        images.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    judge(devices, &Options { data_checksums: true, ..Options::default() })
}

fn judge(devices: Vec<Arc<dyn Device>>, options: &Options<'_>) -> Result<(), String> {
    let report = check(devices, options).map_err(|error| error.to_string())?;
    if report.is_clean() {
        return Ok(());
    }
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    Err(format!("vlinder check found:\n{}", findings.join("\n")))
}

/// Asks both judges about an image.
///
/// # Errors
/// The complaints of the first that has some.
pub fn both_check(image: &Path) -> Result<(), String> {
    kernel::btrfs_check(image).map_err(|error| error.to_string())?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let device = FileDevice::open(image, &options).map_err(|error| error.to_string())?;
    own_check(Arc::new(device))
}
