//! `rescue=usebackuproot`: what the commits before the last one still have.

use std::path::Path;

use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::{Scratch, golden};

fn files(image: &Path, options: &str) -> Result<Files, vlinder_fs::FsError> {
    let filesystem = Filesystem::open(&[image], OpenOptions::parse(options).unwrap())?;
    Ok(Files::new(filesystem, Caller::superuser()))
}

/// An image with one commit for each of these texts in the file `/state`.
fn image(scratch: &Scratch, states: &[&str]) -> std::path::PathBuf {
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let files = files(&image, "").unwrap();
    for state in states {
        files.write("/state", state).unwrap();
        files.filesystem().sync().unwrap();
    }
    files.close().unwrap();
    image
}

fn superblock(bytes: &[u8]) -> Superblock {
    let start = usize::try_from(SuperblockMirror::Primary.offset().0).unwrap();
    Superblock::decode(&bytes[start..start + SUPERBLOCK_SIZE]).unwrap()
}

/// Overwrites every copy of the block at a logical address; gives how many there were.
fn destroy(bytes: &mut [u8], logical: u64) -> usize {
    let mut copies = 0;
    for block in bytes.chunks_exact_mut(16384) {
        // The address that a block says it has lies behind its checksum and the fsid.
        if block[48..56] == logical.to_le_bytes() {
            block.fill(0x5a);
            copies += 1;
        }
    }
    copies
}

#[test]
fn the_state_before_the_last_is_shown_where_that_is_destroyed() {
    let scratch = Scratch::new("backup-roots");
    let image = image(&scratch, &["first", "second", "third"]);
    let mut bytes = std::fs::read(&image).unwrap();
    let root = superblock(&bytes).root.0;
    assert_eq!(destroy(&mut bytes, root), 2, "metadata are DUP");
    std::fs::write(&image, &bytes).unwrap();
    assert!(files(&image, "ro").is_err());
    assert!(OpenOptions::parse("rescue=usebackuproot").unwrap().check().is_err(), "only with ro");
    let shown = files(&image, "ro,rescue=usebackuproot").unwrap();
    assert_eq!(shown.read_to_string("/state").unwrap(), "second");
    assert_eq!(std::fs::read(&image).unwrap(), bytes, "nothing is written");
}

#[test]
fn an_image_without_any_state_is_refused_and_a_sound_one_shown() {
    let scratch = Scratch::new("backup-roots");
    let image = image(&scratch, &["first", "second"]);
    let shown = files(&image, "ro,rescue=usebackuproot").unwrap();
    assert_eq!(shown.read_to_string("/state").unwrap(), "second");
    drop(shown);
    // A subvolume that is not there is not looked for in earlier commits.
    let missing = files(&image, "ro,rescue=usebackuproot,subvol=gone").map(drop).unwrap_err();
    let plain = files(&image, "ro,subvol=gone").map(drop).unwrap_err();
    assert_eq!(missing.to_string(), plain.to_string());
    assert!(
        matches!(missing, vlinder_fs::FsError::Path { .. } | vlinder_fs::FsError::Refused(_)),
        "{missing:?}"
    );
    let mut bytes = std::fs::read(&image).unwrap();
    let superblock = superblock(&bytes);
    destroy(&mut bytes, superblock.root.0);
    for backup in &superblock.backup_roots {
        destroy(&mut bytes, backup.tree_root.0);
    }
    std::fs::write(&image, &bytes).unwrap();
    let plain = files(&image, "ro").map(drop).unwrap_err().to_string();
    assert_eq!(files(&image, "ro,rescue=usebackuproot").map(drop).unwrap_err().to_string(), plain);
}
