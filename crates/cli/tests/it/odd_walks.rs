//! What walks and listings take: memory, descriptors and calls of the system, for deep trees and long
//! directories.

use std::path::Path;
use std::process::Command;

use crate::common::{self, Ended, end, run, target};
use crate::odd::{below, image, text};
use vlinder_device::MemoryDevice;
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller};
use vlinder_testkit::subject::write_image;
use vlinder_testkit::{Scratch, require};

/// What images may keep in memory, of the 256 MiB that a verb may have.
const SMALL: [&str; 2] = ["-o", "cache=64M,dirty=32M"];

/// Runs a verb with 256 MiB, 64 descriptors and two minutes.
fn limited(words: &[&str]) -> Ended {
    let limits = "ulimit -d 262144; ulimit -n 64; ulimit -t 120; exec \"$0\" \"$@\"";
    end(Command::new("sh").args(["-c", limits, env!("CARGO_BIN_EXE_vlinder")]).args(words))
}

/// Directories in one another, each with a file and a directory beside the next one.
fn deep(depth: usize, name: &str) -> MemoryDevice {
    image(|files| {
        let (filesystem, caller) = (files.filesystem(), Caller::superuser());
        let mut directory = filesystem.root().unwrap();
        for _ in 0..depth {
            filesystem.names().create_file(&caller, &directory, b"file", 0o644).unwrap();
            let next =
                filesystem.names().create_directory(&caller, &directory, name.as_bytes(), 0o755).unwrap();
            filesystem.names().create_directory(&caller, &directory, b"side", 0o755).unwrap();
            directory = next;
        }
    })
}

#[test]
fn deep_directories_take_memory_in_proportion_to_their_depth() {
    const DEPTH: usize = 20_000;
    let sound = image(|files| {
        let (filesystem, caller) = (files.filesystem(), Caller::superuser());
        let mut directory = filesystem.root().unwrap();
        for _ in 0..DEPTH {
            directory = filesystem.names().create_directory(&caller, &directory, b"d", 0o755).unwrap();
        }
    });
    let scratch = Scratch::new("odd-depth");
    let path = scratch.join("image");
    write_image(&sound, &path);
    let script = "ulimit -d 262144; exec \"$0\" \"$@\"";
    let ended =
        common::end(
            Command::new("sh")
                .args(["-c", script, env!("CARGO_BIN_EXE_vlinder"), "--json", "rm", "-r"])
                .args(["-o", "cache=96M,dirty=32M", &target(&path, "/d")]),
        );
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.json()["removed"], DEPTH);
}

#[test]
fn deep_trees_take_few_descriptors_and_no_paths() {
    const DEPTH: usize = 2_000;
    let name = "n".repeat(200);
    let scratch = Scratch::in_memory("odd-descriptors");
    let (path, other) = (scratch.join("image"), scratch.join("other"));
    write_image(&deep(DEPTH, &name), &path);
    common::make_image(&other);
    let (first, second, third) = (scratch.join("first"), scratch.join("second"), scratch.join("third"));
    std::fs::create_dir(&third).unwrap();
    let copied =
        limited(&[&["--json", "cp", "-r"][..], &SMALL, &[&target(&path, "/"), text(&first)]].concat());
    assert_eq!(copied.code, 0, "{}", copied.err.get(..500).unwrap_or(&copied.err));
    // The top, and a file and two directories on each level.
    assert_eq!(copied.json()["copied"], 3 * DEPTH + 1);
    let steps: [&[&str]; 6] = [
        &["cp", "-a", text(&first), text(&second)],
        &["cp", "-r", SMALL[0], SMALL[1], text(&first), &target(&other, "/again")],
        &["cp", "-r", SMALL[0], SMALL[1], &target(&path, "/"), &target(&other, "/image")],
        &["--quiet", "restore", text(&path), text(&third)],
        &["ls", "-R", text(&first)],
        &["rm", "-r", SMALL[0], SMALL[1], &target(&other, "/again"), &target(&other, "/image")],
    ];
    for words in steps {
        let ended = limited(words);
        assert_eq!(ended.code, 0, "{words:?}: {}", ended.err.get(..500).unwrap_or(&ended.err));
    }
    for tree in [&first, &second, &third] {
        let removed = limited(&["--json", "rm", "-r", text(tree)]);
        assert_eq!(removed.code, 0, "{}", removed.err.get(..500).unwrap_or(&removed.err));
        assert_eq!(removed.json()["removed"], 3 * DEPTH + 1, "{}", tree.display());
    }
}

/// A directory beside each next one makes both passes over the source, the count and the listing, come back
/// to every level.
#[test]
fn mkfs_takes_few_descriptors_for_a_deep_source() {
    const DEPTH: usize = 2_000;
    let name = "n".repeat(200);
    let scratch = Scratch::in_memory("odd-source");
    let (path, first, made) = (scratch.join("image"), scratch.join("first"), scratch.join("made"));
    write_image(&deep(DEPTH, &name), &path);
    let copied = limited(&[&["cp", "-r"][..], &SMALL, &[&target(&path, "/"), text(&first)]].concat());
    assert_eq!(copied.code, 0, "{}", copied.err.get(..500).unwrap_or(&copied.err));
    let ended = limited(&["mkfs", "-q", "--rootdir", text(&first), text(&made)]);
    assert_eq!(ended.code, 0, "{}", ended.err.get(..500).unwrap_or(&ended.err));
    // All of it is there: a file and two directories on each level.
    let removed = limited(&["--json", "rm", "-r", &target(&made, &format!("/{name}"))]);
    assert_eq!(removed.code, 0, "{}", removed.err.get(..500).unwrap_or(&removed.err));
    assert_eq!(removed.json()["removed"], 3 * DEPTH - 2);
    let removed = limited(&["rm", "-r", text(&first)]);
    assert_eq!(removed.code, 0, "{}", removed.err.get(..500).unwrap_or(&removed.err));
}

#[test]
fn a_name_that_is_not_there_is_asked_for_once() {
    require!(Tool("strace"));
    const NAMES: usize = 40;
    let sound = image(|files| {
        files.create_dir_all("/top/below/below").unwrap();
        for number in 0..NAMES {
            files.symlink("x", format!("/top/below/below/link-{number}")).unwrap();
        }
    });
    let scratch = Scratch::new("odd-statx");
    let (path, out, traces) = (scratch.join("image"), scratch.join("out"), scratch.join("traces"));
    let trace = traces.join("trace");
    write_image(&sound, &path);
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(&traces).unwrap();
    // A file for each thread: in one for all, a call that another thread's comes between is on two lines.
    let words = ["-ff", "-e", "trace=statx,newfstatat", "-o", text(&trace), env!("CARGO_BIN_EXE_vlinder")];
    let command = ["cp", "-r", &target(&path, "/top"), text(&out)];
    // The loader would look for libraries in what cargo has put there.
    end(Command::new("strace").args(words).args(command).env_remove("LD_LIBRARY_PATH")).done();
    let traces = std::fs::read_dir(&traces).unwrap().map(|trace| trace.unwrap().path());
    let trace: String = traces.map(|trace| std::fs::read_to_string(trace).unwrap()).collect();
    let missing: Vec<&str> = trace.lines().filter(|line| line.contains("ENOENT")).collect();
    let names = missing.iter().filter(|line| line.contains("link-")).count();
    assert_eq!(names, NAMES, "{missing:#?}");
    assert!(missing.len() < NAMES + 20, "{missing:#?}");
}

#[test]
fn the_hint_of_a_path_in_an_image_is_still_given() {
    let scratch = Scratch::new("odd-hint");
    let path = scratch.join("disk.img");
    common::make_image(&path);
    run(["ls", &format!("{}/etc", path.display())])
        .failed(1, &["a path in an image is written", "disk.img:/etc"]);
}

/// Files of two images may have the same numbers.
#[test]
fn copies_of_different_images_are_not_taken_for_one_another() {
    let with_links = |content: &str| {
        image(|files| {
            files.write("/file", content).unwrap();
            files.hard_link("/file", "/again").unwrap();
        })
    };
    let scratch = Scratch::new("odd-numbers");
    let images = ["one", "two"].map(|content| {
        let path = scratch.join(content);
        write_image(&with_links(content), &path);
        path
    });
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let sources = [target(&images[0], "/file"), target(&images[1], "/again")];
    run(["cp", "-a", &sources[0], &sources[1], text(&out)]).done();
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"one");
    assert_eq!(std::fs::read(out.join("again")).unwrap(), b"two");

    // The copy of /later has the number that /later/first has in the source.
    let path = scratch.join("moved");
    let moved = image(|files| {
        files.create_dir("/first").unwrap();
        files.create_dir("/later").unwrap();
        files.rename("/first", "/later/first").unwrap();
        files.write("/later/first/file", "content").unwrap();
    });
    write_image(&moved, &path);
    let other = scratch.join("other");
    common::make_image(&other);
    run(["cp", "-r", &target(&path, "/"), &target(&other, "/")]).done();
    let files = Files::open(&other).unwrap();
    assert_eq!(files.read("/later/first/file").unwrap(), b"content");
}

#[test]
fn long_directories_are_listed_in_little_memory() {
    const NAMES: usize = 60_000;
    let sound = image(|files| {
        let (filesystem, caller) = (files.filesystem(), Caller::superuser());
        let root = filesystem.root().unwrap();
        for number in (0..NAMES).rev() {
            filesystem
                .names()
                .create_file(&caller, &root, format!("file-{number:07}").as_bytes(), 0o644)
                .unwrap();
        }
    });
    let scratch = Scratch::in_memory("odd-long");
    let path = scratch.join("image");
    write_image(&sound, &path);
    // What 1,000 names take, and no more than a few bytes for each other one.
    let limits = "ulimit -d 131072; exec \"$0\" \"$@\"";
    let listed = |words: &[&str]| {
        let command = ["-c", limits, env!("CARGO_BIN_EXE_vlinder")];
        let options = ["-o", "cache=16M", &target(&path, "/")];
        end(Command::new("sh").args(command).args(words).args(options)).done()
    };
    let expected: Vec<String> = (0..NAMES).map(|number| format!("file-{number:07}")).collect();
    assert!(listed(&["ls"]).text().lines().eq(&expected));
    let long = listed(&["ls", "-l"]).text();
    assert!(long.lines().map(|line| line.rsplit(' ').next().unwrap()).eq(&expected));
    let found = listed(&["--json", "ls"]).json();
    let names = found["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap());
    assert!(names.eq(expected.iter().map(String::as_str)));
    assert_eq!((found["failures"].as_u64(), found["schema"].as_str()), (Some(0), Some("vlinder.ls/1")));
}

#[test]
fn a_list_in_json_is_whole_whatever_is_in_it() {
    let scratch = Scratch::new("odd-json");
    let path = scratch.join("image");
    write_image(&image(|files| files.create_dir_all("/a/b").unwrap()), &path);
    for (words, entries, code) in [
        (&["ls", &target(&path, "/a/b")][..], 0, 0),
        (&["ls", &target(&path, "/a")], 1, 0),
        (&["tree", &target(&path, "/")], 2, 0),
        (&["ls", &target(&path, "/a"), &target(&path, "/none")], 1, 3),
        (&["tree", &target(&path, "/none")], 0, 1),
    ] {
        let ended = run([&["--json"], words].concat());
        assert_eq!(ended.code, code, "{words:?}: {}", ended.err);
        let found = ended.json();
        assert_eq!(found["entries"].as_array().unwrap().len(), entries, "{words:?}: {found}");
        assert_eq!(found["errors"].as_array().unwrap().is_empty(), code == 0, "{words:?}: {found}");
    }
}

/// `cap_net_raw+ep`, as the kernel stores it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn capability(path: &Path) -> usize {
    rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).unwrap_or(0)
}

#[test]
fn the_rights_of_a_strangers_programs_can_be_left_away() {
    require!(Root);
    use std::os::unix::fs::PermissionsExt;
    let sound = image(|files| {
        files.write("/program", "#!/bin/sh\n").unwrap();
        files.set_permissions("/program", 0o6755).unwrap();
        files.write("/able", "#!/bin/sh\n").unwrap();
        files.set_permissions("/able", 0o755).unwrap();
        let (file, caller) = (files.open_file("/able").unwrap(), Caller::superuser());
        let (name, mode) = (&b"security.capability"[..], AttributeMode::Create);
        files
            .filesystem()
            .attributes()
            .set_extended_attribute(&caller, file.inode(), name, &CAPABILITY, mode)
            .unwrap();
    });
    let scratch = Scratch::new("odd-rights");
    let path = scratch.join("image");
    write_image(&sound, &path);
    let source = target(&path, "/");
    for (number, (words, mode, has_capability)) in [
        (&["cp", "-a"][..], 0o6755, true),
        (&["cp", "-a", "--no-setid"], 0o755, false),
        (&["cp", "-r", "-p", "--no-setid"], 0o755, false),
        (&["--quiet", "restore", "-m", "-x"], 0o6755, true),
        (&["--quiet", "restore", "-m", "-x", "--no-setid"], 0o755, false),
    ]
    .into_iter()
    .enumerate()
    {
        let out = scratch.join(format!("out-{number}"));
        std::fs::create_dir(&out).unwrap();
        let from = if words.contains(&"restore") { text(&path) } else { &source };
        let ended = run([words, &[from, text(&out)]].concat());
        assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
        let found = out.join("program").metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{words:?}");
        assert_eq!(capability(&out.join("able")) > 0, has_capability, "{words:?}");
        assert_eq!(below(&out).len(), 2, "{words:?}");
    }
}

/// The library too: no memory follows what a size claims, nor the depth of a tree times its paths.
#[test]
fn the_library_reads_what_is_there_and_removes_deep_trees() {
    image(|files| {
        let file = files.create("/sparse").unwrap();
        file.write_at(b"end", 20 << 30).unwrap();
        let error = files.read("/sparse").unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::FBIG, "{error}");
        file.set_len(u64::try_from(i64::MAX).unwrap()).unwrap();
        assert_eq!(files.read("/sparse").unwrap_err().errno(), rustix::io::Errno::FBIG);
        drop(file);
        let content: Vec<u8> = (0..(40_u32 << 20) / 4).flat_map(u32::to_le_bytes).collect();
        let file = files.create("/large").unwrap();
        file.write_at(&content, 3 << 20).unwrap();
        file.set_len(60 << 20).unwrap();
        let read = files.read("/large").unwrap();
        assert_eq!(read.len(), 60 << 20);
        assert!(read[..3 << 20].iter().chain(&read[43 << 20..]).all(|byte| *byte == 0));
        assert!(read[3 << 20..43 << 20] == content);
        let (filesystem, caller) = (files.filesystem(), Caller::superuser());
        let mut directory = filesystem.root().unwrap();
        for _ in 0..20_000 {
            directory = filesystem.names().create_directory(&caller, &directory, b"d", 0o755).unwrap();
        }
        filesystem.names().create_file(&caller, &directory, b"file", 0o644).unwrap();
        files.symlink("sparse", "/d/link").unwrap();
        files.create_subvolume("/d/volume").unwrap();
        drop(directory);
        files.remove_dir_all("/d").unwrap();
        assert!(!files.exists("/d").unwrap() && files.exists("/sparse").unwrap());
        for path in ["/large", "/none"] {
            assert!(files.remove_dir_all(path).is_err(), "{path}");
        }
    });
}
