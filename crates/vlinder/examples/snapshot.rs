//! Takes a read-only snapshot of an image's root and deletes the oldest, so that so many are left:
//! `snapshot IMAGE COUNT`.

use std::path::Path;

use vlinder::{ErrorKind, Image};

fn main() -> vlinder::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().zip(arguments.next().and_then(|count| count.parse().ok()));
    let Some((image, count)) = count else {
        eprintln!("usage: snapshot IMAGE COUNT");
        std::process::exit(2);
    };
    rotate(image.as_ref(), count)
}

/// Takes a snapshot, and leaves `count` of them.
pub(crate) fn rotate(path: &Path, count: usize) -> vlinder::Result<()> {
    let image = Image::open(path)?;
    match image.create_dir("/snapshots") {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let mut names = Vec::new();
    for entry in image.read_dir("/snapshots")? {
        names.push(entry?.path());
    }
    // The names are numbers of so many digits that they sort by age.
    names.sort();
    let last = names.last().and_then(|name| name.file_name()?.to_str()?.parse().ok());
    let next = last.unwrap_or(0_u32).saturating_add(1);
    let new = Path::new("/snapshots").join(format!("{next:08}"));
    image.subvolumes().read_only_snapshot("/", &new)?;
    names.push(new);
    for old in names.iter().take(names.len().saturating_sub(count)) {
        image.subvolumes().delete(old)?;
    }
    image.finish_deletions()?;
    image.close()
}
