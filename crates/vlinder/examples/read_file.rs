//! Copies a file out of an image to standard output: `read_file IMAGE PATH`. The image is not written to.

use std::io::{self, Write};
use std::path::Path;

use vlinder::OpenOptions;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(path)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: read_file IMAGE PATH");
        std::process::exit(2);
    };
    copy_out(image.as_ref(), path.as_ref(), &mut io::stdout().lock()).map(drop)
}

/// Copies the file; gives how many bytes.
pub(crate) fn copy_out(image: &Path, path: &Path, target: &mut dyn Write) -> io::Result<u64> {
    let image = OpenOptions::new().read_only(true).open(image)?;
    let mut file = image.open_file(path)?;
    let count = io::copy(&mut file, target)?;
    // A file that is open keeps the image.
    drop(file);
    image.close()?;
    Ok(count)
}
