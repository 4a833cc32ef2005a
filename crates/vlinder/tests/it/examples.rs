//! The programs under `examples/`, and the examples of the pages.

use std::path::Path;

use vlinder::Image;
use vlinder_testkit::Scratch;

#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../examples/build_image.rs"]
mod build_image;
#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../examples/read_file.rs"]
mod read_file;
#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../examples/snapshot.rs"]
mod snapshot;

#[test]
fn the_examples_build_read_and_snapshot() {
    let scratch = Scratch::new("examples");
    let (tree, path) = (scratch.join("tree"), scratch.join("image"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), "content").unwrap();
    build_image::build(&tree, &path).unwrap();
    let mut found = Vec::new();
    assert_eq!(read_file::copy_out(&path, Path::new("/file"), &mut found).unwrap(), 7);
    assert_eq!(found, b"content");
    for _ in 0..4 {
        snapshot::rotate(&path, 2).unwrap();
    }
    let image = Image::open(&path).unwrap();
    let names = image.read_dir("/snapshots").unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["00000003", "00000004"]);
    assert_eq!(image.read_to_string("/snapshots/00000004/etc/hostname").unwrap(), "butterfly\n");
    image.close().unwrap();
    assert!(vlinder::check(&path).unwrap().is_clean());
}

#[test]
fn the_same_directory_gives_the_same_image() {
    let scratch = Scratch::new("same");
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), "content").unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    let build = |name: &str| {
        let options = vlinder::MkfsOptions::new().uuid(uuid).time(std::time::SystemTime::UNIX_EPOCH);
        options.source_directory(&tree).shrink(true).make(scratch.join(name)).unwrap();
        std::fs::read(scratch.join(name)).unwrap()
    };
    assert!(build("one") == build("two"));
}

/// The page's example compiles as a doc test, and the crate's own runs.
#[test]
fn the_front_page_shows_the_example_of_the_package() {
    let file =
        |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let example = |page: &str| {
        let block = page.split("```rust,no_run\n").nth(1).unwrap().split("```").next().unwrap();
        block.to_owned()
    };
    let shown = example(&file("README.md"));
    assert_eq!(example(&file("../../README.md")), shown);
    let crate_page = file("src/lib.rs");
    let runs = crate_page.split("//! ```").nth(1).unwrap();
    let lines: Vec<&str> = shown.lines().map(str::trim).filter(|line| line.starts_with("image.")).collect();
    assert_eq!(lines.len(), 4, "{shown}");
    for line in lines {
        assert!(runs.contains(line), "{line:?} is not in {runs}");
    }
}
