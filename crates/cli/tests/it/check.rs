//! `vlinder check`: what it says of sound and of damaged images, and how it ends.

use std::os::unix::fs::FileExt;

use crate::common::{make_image, run, target};
use vlinder_testkit::Scratch;

const SECOND_SUPERBLOCK: u64 = 64 << 20;

#[test]
fn a_sound_image_is_clean_data_and_all() {
    let scratch = Scratch::new("check");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    make_image(&image);
    std::fs::write(&source, vec![b'x'; 300_000]).unwrap();
    run(["cp", source.to_str().unwrap(), &target(&image, "/file")]).done();
    let path = image.to_str().unwrap();
    assert!(run(["check", path]).done().text().ends_with("clean\n"));
    let text = run(["check", "--check-data-csum", path]).done().text();
    assert!(text.contains("and 303104 bytes of data"), "{text}");
    let json = run(["--json", "check", path]).done().json();
    assert_eq!((&json["clean"], &json["findings"]), (&true.into(), &serde_json::json!([])));
}

#[test]
fn a_bad_sector_of_data_is_found_where_it_is_read() {
    let scratch = Scratch::new("check");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    make_image(&image);
    let content = vec![0xA5; 300_000];
    std::fs::write(&source, &content).unwrap();
    run(["cp", source.to_str().unwrap(), &target(&image, "/file")]).done();
    let bytes = std::fs::read(&image).unwrap();
    let at = bytes.windows(8192).position(|window| window == &content[..8192]).unwrap();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"!", at as u64 + 5000).unwrap();
    let path = image.to_str().unwrap();
    run(["check", path]).done();
    let ended = run(["check", "--check-data-csum", path]);
    assert_eq!(ended.code, 1);
    assert!(ended.text().contains("error [data-checksum]"), "{}", ended.text());
}

#[test]
fn a_damaged_block_is_found_and_a_superblock_copy_warned_of() {
    let scratch = Scratch::new("check");
    let image = scratch.join("disk.img");
    make_image(&image);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    let path = image.to_str().unwrap();
    file.write_all_at(&[0; 4096], SECOND_SUPERBLOCK).unwrap();
    let text = run(["check", path]).done().text();
    assert!(text.contains("warning [superblock-copy]") && text.ends_with("clean\n"), "{text}");
    let bytes = std::fs::read(&image).unwrap();
    // Both copies of every block of the extent tree: the header names its owner (offset 88) and its own
    // address (48).
    let mut damaged = 0;
    for at in (0..bytes.len()).step_by(4096) {
        let word =
            |offset: usize| u64::from_le_bytes(bytes[at + offset..at + offset + 8].try_into().unwrap());
        if word(88) == 2 && word(48) % 4096 == 0 && word(48) != 0 && bytes[at + 100] == 0 {
            file.write_all_at(b"!", at as u64 + 3000).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged >= 2);
    let ended = run(["check", path]);
    assert_eq!(ended.code, 1);
    assert!(ended.text().contains("[block-unreadable]: tree 2"), "{}", ended.text());
}

#[test]
fn lists_that_memory_should_not_hold_go_to_a_temporary_file() {
    let scratch = Scratch::new("check");
    let (image, elsewhere) = (scratch.join("disk.img"), scratch.join("elsewhere"));
    make_image(&image);
    // Names in several leaves, so that free space is in several parts.
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    (0..600).for_each(|number| std::fs::write(source.join(format!("name-{number}")), "x").unwrap());
    run(["cp", "-r", source.to_str().unwrap(), &target(&image, "/")]).done();
    let path = image.to_str().unwrap();
    let on_disk = ["check", "--list-memory", "0", "--temporary-directory", elsewhere.to_str().unwrap()];
    run(on_disk.into_iter().chain([path])).failed(1, &["elsewhere", "--temporary-directory"]);
    std::fs::create_dir(&elsewhere).unwrap();
    let text = run(on_disk.into_iter().chain([path])).done().text();
    assert_eq!(text, run(["check", path]).done().text());
    let small = ["--temporary-bytes", "20"];
    run(on_disk.into_iter().chain(small).chain([path])).failed(1, &["20 bytes", "--temporary-bytes"]);
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}
