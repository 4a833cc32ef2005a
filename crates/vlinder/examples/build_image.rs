//! Makes an image from a directory, without root: `build_image DIRECTORY IMAGE`. With the same directory it
//! gives the same bytes on every machine.

use std::path::Path;
use std::time::{Duration, SystemTime};

use vlinder::{AttributeChanges, Compression, Image, MkfsOptions, Uuid};

fn main() -> vlinder::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), Some(image)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: build_image DIRECTORY IMAGE");
        std::process::exit(2);
    };
    build(directory.as_ref(), image.as_ref())
}

/// Makes the image, and adds to it what the directory does not have.
pub(crate) fn build(directory: &Path, path: &Path) -> vlinder::Result<()> {
    let mut options = MkfsOptions::new()
        .label("built")
        .uuid(Uuid::from_bytes(*b"an example image"))
        .time(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .source_directory(directory);
    if Compression::ZSTD.is_built_in() {
        options = options.compress(Compression::ZSTD);
    }
    let report = options.make(path)?;
    println!("{} files in {} bytes", report.files(), report.size_bytes());

    let image = Image::open(path)?;
    image.create_dir_all("/etc")?;
    image.write("/etc/hostname", "butterfly\n")?;
    image.set_attributes("/etc/hostname", &AttributeChanges::new().owner(0).group(0).permissions(0o644))?;
    image.close()
}
