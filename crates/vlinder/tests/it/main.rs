//! The library as a program that depends on it sees it.

mod dropping;
mod errors;
mod examples;
mod features;
mod parts;
mod read_only;
mod round_trip;

use std::path::{Path, PathBuf};

use vlinder::{Image, MkfsOptions};
use vlinder_testkit::Scratch;

/// An empty file system, without block-group-tree, which btrfs-progs 6.2 can't check.
fn make(path: &Path) {
    MkfsOptions::new().features("^block-group-tree").unwrap().size_bytes(256 << 20).make(path).unwrap();
}

/// A directory that is gone with the value, and the path of an empty file system in it.
fn empty_image(name: &str) -> (Scratch, PathBuf) {
    let scratch = Scratch::new(name);
    let path = scratch.join("image");
    make(&path);
    (scratch, path)
}

/// As [`empty_image`], open.
fn open_image(name: &str) -> (Scratch, PathBuf, Image) {
    let (scratch, path) = empty_image(name);
    let image = Image::open(&path).unwrap();
    (scratch, path, image)
}
