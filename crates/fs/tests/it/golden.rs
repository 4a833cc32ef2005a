//! Reading what the kernel wrote: every entry of the golden images, content included, is as the kernel shows
//! it.

use std::path::Path;
use std::process::Command;

use crate::support;
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::require::corpus;
use vlinder_testkit::{Scratch, golden, require, walk};

/// Compares what is read of an image with what the kernel saw.
fn judge(name: &str, image: &Path, expected: &str) {
    let filesystem = Filesystem::open(&[image], OpenOptions::read_only()).unwrap();
    if let Err(difference) = walk::compare(expected, &support::walk(&filesystem)) {
        panic!("{name}: {difference}");
    }
}

#[test]
fn our_golden_images_walk_as_the_kernel_walked_them() {
    let names = golden::names().unwrap();
    assert!(names.len() >= 10, "{names:?}");
    let manifest = std::fs::read_to_string(golden::directory().join("manifest.txt")).unwrap();
    let rows: Vec<Vec<&str>> = manifest
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    let mut listed: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    listed.sort_unstable();
    assert_eq!(listed, names);
    for row in rows {
        let scratch = Scratch::new("golden");
        let image = scratch.join("image");
        golden::unpack(row[0], &image).unwrap();
        assert_eq!(golden::hash(&image).unwrap(), row[1], "{}", row[0]);
        judge(row[0], &image, &golden::walk_of(row[0]).unwrap());
    }
}

#[test]
fn golden_images_stay_small() {
    let files = std::fs::read_dir(golden::directory()).unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 20 << 20, "{bytes} bytes; 20 MiB are allowed in all");
}

#[test]
fn the_golden_images_walk_as_the_kernel_walked_them() {
    require!(Corpus, Tool("xz"));
    let directory = corpus().unwrap().join("golden");
    let mut walked = 0;
    for file in std::fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        let Some(name) = path.to_str().and_then(|path| path.strip_suffix(".raw.xz")) else { continue };
        let scratch = Scratch::new("golden");
        let image = scratch.join("image");
        let output = Command::new("xz").args(["-dc"]).arg(&path).output().unwrap();
        assert!(output.status.success());
        std::fs::write(&image, output.stdout).unwrap();
        judge(name, &image, &std::fs::read_to_string(format!("{name}.walk")).unwrap());
        walked += 1;
    }
    assert!(walked >= 7, "only {walked} golden images");
}
