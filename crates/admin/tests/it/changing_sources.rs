//! Sources that others change while they are read: what was seen of one file is never told of another.

use std::path::Path;

use vlinder_admin::mkfs::mkfs;
use vlinder_fs::path::Files;
use vlinder_testkit::Scratch;

use crate::mkfs::{chmod, filled, set_attribute};

/// So many files are more than what is read ahead: what comes behind them is opened later.
const FILES_BEFORE: usize = 2000;

fn exchange(source: &Path, names: [&str; 2]) {
    let [left, right] = names.map(|name| source.join(name));
    let aside = source.with_extension("aside");
    for (from, to) in [(&left, &aside), (&right, &left), (&aside, &right)] {
        std::fs::rename(from, to).unwrap();
    }
}

#[test]
fn swapped_directories_keep_owner_and_mode_with_their_files() {
    let scratch = Scratch::new("swapped-directories");
    let source = scratch.join("source");
    for directory in ["before", "public", "secret"] {
        std::fs::create_dir_all(source.join(directory)).unwrap();
    }
    for number in 0..FILES_BEFORE {
        std::fs::write(source.join("before").join(number.to_string()), "").unwrap();
    }
    std::fs::write(source.join("secret/key"), "key").unwrap();
    chmod(&source.join("public"), 0o755);
    chmod(&source.join("secret"), 0o700);
    set_attribute(&source.join("secret"), "user.secret", b"yes");
    let (image, mut is_swapped) = (scratch.join("image"), false);
    mkfs(&filled(&source), &image, &mut |_| {
        if !std::mem::replace(&mut is_swapped, true) {
            exchange(&source, ["public", "secret"]);
        }
    })
    .unwrap();
    let files = Files::open(&image).unwrap();
    let shown = |path: &str| {
        let inode = files.resolve(Path::new(path)).unwrap();
        let names = files.filesystem().attributes().extended_attributes(&inode).unwrap();
        (inode.state().item.mode.permissions(), names.len())
    };
    // The one with the key has the name `public` since.
    assert!(files.exists("/public/key").unwrap() && !files.exists("/secret/key").unwrap());
    assert_eq!((shown("/public"), shown("/secret")), ((0o700, 1), (0o755, 0)));
}

#[test]
fn a_directory_in_another_s_place_is_not_filled_for_it() {
    let scratch = Scratch::new("swapped-kinds");
    let source = scratch.join("source");
    for directory in ["before", "directory"] {
        std::fs::create_dir_all(source.join(directory)).unwrap();
    }
    for number in 0..FILES_BEFORE {
        std::fs::write(source.join("before").join(number.to_string()), "").unwrap();
    }
    let outside = scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let (image, mut is_swapped) = (scratch.join("image"), false);
    let error = mkfs(&filled(&source), &image, &mut |_| {
        if !std::mem::replace(&mut is_swapped, true) {
            std::fs::rename(source.join("directory"), source.join("moved")).unwrap();
            std::os::unix::fs::symlink(&outside, source.join("directory")).unwrap();
        }
    })
    .unwrap_err();
    assert!(error.to_string().contains("directory"), "{error}");
    assert!(!image.exists());
}
