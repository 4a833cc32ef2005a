//! Mounts an image in the foreground: `mount OPTIONS IMAGE MOUNTPOINT`. SIGINT unmounts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use vlinder_fuse::{MountError, MountOptions};

fn serve(options: &str, image: &str, mountpoint: &str) -> Result<(), MountError> {
    let options = MountOptions { ends_by_signal: true, ..MountOptions::parse(options)? };
    let session = vlinder_fuse::mount(options, &[PathBuf::from(image)], Path::new(mountpoint))?;
    println!("ready");
    session.wait()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [options, image, mountpoint] = arguments.as_slice() else {
        eprintln!("usage: mount OPTIONS IMAGE MOUNTPOINT");
        return ExitCode::from(2);
    };
    match serve(options, image, mountpoint) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
