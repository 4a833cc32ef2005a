//! The label of an opened image.

use vlinder_format::RootId;
use vlinder_format::superblock::Label;

use crate::failure::{Failure, Kind};
use crate::place::image::{OpenImage, from_fs};

/// Changes it; it is durable after the next commit.
pub fn set(image: &OpenImage, bytes: &[u8]) -> Result<(), Failure> {
    let label =
        Label::new(bytes).map_err(|fault| Failure::new(Kind::Invalid, fault.to_string()).at(&image.label))?;
    let fail = |error| from_fs(error, &image.label);
    let top_level = image.filesystem.subvolume(RootId::FS_TREE).map_err(fail)?;
    let handle = image.filesystem.begin(1).map_err(fail)?;
    image.filesystem.engine().change_superblock(|superblock| superblock.label = label);
    // The superblock's generation is that of the root tree's block, so that tree has to be written too.
    top_level.tree().change_item(|_| {});
    drop(handle);
    Ok(())
}
