//! What the command advises: something that can be done, and that helps.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{end, make_image, run, target, tool, vlinder};
use rustix::process::{Pid, Signal, kill_process};
use vlinder_testkit::{Scratch, eventually, require};

fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    make_image(&image);
    image
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A full host is told once, without the engine's own words; what was begun is gone, what was there is as it
/// was.
#[test]
fn a_full_host_is_told_once_with_what_became_of_the_image() {
    require!(Root);
    let scratch = Scratch::new("advice");
    let (full, source) = (scratch.join("full"), scratch.join("source"));
    std::fs::create_dir_all(&full).unwrap();
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("large"), vec![7; 40 << 20]).unwrap();
    tool("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(&full)]);
    let (new, image) = (full.join("new.img"), full.join("disk.img"));
    let made = run(["mkfs", "--rootdir", text(&source), text(&new)]);
    let is_left = new.exists();
    make_image(&image);
    let copied = run(["cp", text(&source.join("large")), &target(&image, "/large")]);
    let listed = run(["ls", &target(&image, "/")]);
    vlinder_testkit::kernel::unmount(&full).unwrap();
    // That of the image, or that of the file for its metadata, which lies beside it.
    let place = text(&full);
    let words = [place, ": the host's file system is full\n", "what was begun of it was removed\n"];
    let made = made.failed(1, &words);
    let copied = copied
        .failed(1, &["disk.img: the host's file system is full\n", "free some space there and try again"]);
    for told in [&made.err, &copied.err] {
        assert_eq!(told.lines().count(), 2, "{told}");
    }
    assert!(!is_left, "half an image stays");
    assert_eq!(listed.done().text(), "");
}

/// The signal comes when the first data were written and what was there is gone, long before all data are
/// compressed.
#[test]
fn an_interrupted_mkfs_takes_back_what_it_began() {
    require!(LongRun);
    let scratch = Scratch::new("advice");
    let (source, new, old) = (scratch.join("source"), scratch.join("new.img"), scratch.join("old.img"));
    std::fs::create_dir(&source).unwrap();
    let content: Vec<u8> =
        (0..8_u32 << 20).flat_map(|number| (number.wrapping_mul(97) >> 5).to_le_bytes()).collect();
    (0..8).for_each(|number| std::fs::write(source.join(format!("file {number}")), &content).unwrap());
    make_image(&old);
    // Long enough for the source, so that it keeps its length.
    std::fs::File::options().write(true).open(&old).unwrap().set_len(512 << 20).unwrap();
    let is_begun = |target: &Path| {
        let mut magic = [0; 8];
        std::fs::File::open(target).is_ok_and(|file| {
            file.metadata().is_ok_and(|found| found.len() >= 64 << 20)
                && file.read_exact_at(&mut magic, (64 << 10) + 64).is_ok()
                && magic != *b"_BHRfS_M"
        })
    };
    for (target, said) in
        [(&new, "the image that was begun was removed"), (&old, "it holds no file system now")]
    {
        let mut command = vlinder();
        command.args(["mkfs", "-f", "--compress", "zstd:15", "--rootdir", text(&source), text(target)]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Without a pause: the program does not wait to be seen.
        while !is_begun(target) {
            assert!(child.try_wait().unwrap().is_none(), "mkfs ended before it was seen to begin");
        }
        // SIGINT stays ignored where a shell runs the tests in its background.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(": interrupted\n") && told.contains(said), "{told}");
    }
    assert!(!new.exists(), "half an image stays");
    run(["ls", &target(&old, "/")]).failed(1, &["no Btrfs file system"]);
}

/// nohup(1) ignores the end of the terminal for what it starts.
#[test]
fn a_signal_that_was_ignored_interrupts_no_mkfs() {
    require!(LongRun);
    let scratch = Scratch::new("advice");
    let (source, new) = (scratch.join("source"), scratch.join("new.img"));
    std::fs::create_dir(&source).unwrap();
    let content: Vec<u8> =
        (0..8_u32 << 20).flat_map(|number| (number.wrapping_mul(97) >> 5).to_le_bytes()).collect();
    (0..8).for_each(|number| std::fs::write(source.join(format!("file {number}")), &content).unwrap());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vlinder")]);
    command.args(["mkfs", "-q", "--compress", "zstd:15", "--rootdir", text(&source), text(&new)]);
    let mut child = command.spawn().unwrap();
    eventually("the image gets its length", || {
        std::fs::metadata(&new).is_ok_and(|found| found.len() >= 64 << 20)
    });
    tool("kill", ["-HUP", &child.id().to_string()]);
    assert!(child.wait().unwrap().success());
    run(["check", text(&new)]).done();
}

#[test]
fn sizes_that_are_too_small_are_told_with_what_would_do() {
    let scratch = Scratch::new("advice");
    let new = scratch.join("new.img");
    let made = |arguments: &[&str]| run([&["mkfs"], arguments, &[text(&new)]].concat());
    made(&["-b", "50M"]).failed(1, &["109 MiB are needed; give more, or -m single or --mixed\n"]);
    let told =
        made(&["-b", "10M", "-m", "single"]).failed(1, &["(with --mixed, 16 MiB are enough)"]).err.clone();
    assert!(!told.contains("-m single"), "{told}");
    made(&["-b", "10M", "-M"]).failed(1, &["16 MiB are needed; give more\n"]);
    assert!(!new.exists());
}

#[test]
fn sources_that_cant_be_read_are_told_with_their_path() {
    require!(OrdinaryUser);
    let scratch = Scratch::new("advice");
    let (new, source, file) = (scratch.join("new.img"), scratch.join("source"), scratch.join("file"));
    std::fs::create_dir_all(source.join("locked")).unwrap();
    std::fs::write(&file, "text").unwrap();
    let lock = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(source.join("locked"), mode).unwrap();
    };
    lock(0);
    let made = run(["mkfs", "--rootdir", text(&source), text(&new)]);
    lock(0o755);
    made.failed(
        1,
        &["locked, in the source directory: open failed: Permission denied\n", "make it readable"],
    );
    assert!(!new.exists(), "half an image stays");
}

#[test]
fn a_source_that_is_none_is_told_by_its_name() {
    let scratch = Scratch::new("advice");
    let (new, file, nowhere) = (scratch.join("new.img"), scratch.join("file"), scratch.join("nowhere"));
    std::fs::write(&file, "text").unwrap();
    let words =
        ["file: it is neither a directory nor an archive of tar, plain or compressed with gzip or zstd\n"];
    run(["mkfs", "--rootdir", text(&file), text(&new)]).failed(1, &words);
    let words = ["nowhere: No such file or directory\n", "check the path"];
    run(["mkfs", "--rootdir", text(&nowhere), text(&new)]).failed(1, &words);
    run(["mkfs", "-b", "1G", text(scratch.path())]).failed(1, &["Is a directory\n", "name a file"]);
    assert!(!new.exists());
}

#[test]
fn a_full_image_is_told_with_the_way_to_a_larger_one() {
    let scratch = Scratch::new("advice");
    let (image, large) = (scratch.join("disk.img"), scratch.join("large"));
    run(["mkfs", "-q", "-M", "-b", "20M", text(&image)]).done();
    std::fs::write(&large, vec![7; 40 << 20]).unwrap();
    let words = ["/large: no space left in the image\n", "vlinder mkfs -b SIZE", "vlinder cp -a IMAGE:/"];
    run(["cp", text(&large), &target(&image, "/large")]).failed(1, &words);
    run(["cp", text(&large), &target(&image, "/large")]).failed(1, &words);
    assert_eq!(run(["ls", &target(&image, "/")]).done().text(), "");
}

#[test]
fn what_is_to_be_made_at_the_root_needs_a_name() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    let words = ["disk.img:/: a directory that is there already\n", "IMAGE:/NAME"];
    run(["mkdir", &target(&image, "/")]).failed(1, &words);
    run(["subvolume", "create", text(&image)]).failed(1, &words);
    run(["subvolume", "create", &target(&image, "/")]).failed(1, &words);
    run(["mkdir", "-p", &target(&image, "/")]).done();
    run(["mkdir", &target(&image, "/directory")]).done();
    run(["mkdir", &target(&image, "/directory/.")]).failed(1, &["there already"]);
}

#[test]
fn snapshots_that_have_no_place_are_told_where_there_is_one() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    let (sub, taken) = (target(&image, "/sub"), target(&image, "/taken"));
    run(["subvolume", "create", &sub]).done();
    run(["subvolume", "create", &target(&image, "/taken")]).done();
    run(["subvolume", "snapshot", &sub, &taken]).done();
    run(["subvolume", "snapshot", &sub, &taken])
        .failed(1, &["/taken/sub: the name exists already\n", "take another name"]);
    let root = target(&image, "/");
    run(["subvolume", "snapshot", &root, &root])
        .failed(1, &["the snapshot of the top level needs a name there\n", "IMAGE:/DIRECTORY/NAME"]);
    let outside = scratch.join("outside");
    run(["subvolume", "snapshot", &sub, text(&outside)]).failed(1, &["outside: No such file", "IMAGE:/PATH"]);
    run(["subvolume", "create", text(&outside)]).failed(1, &["outside: No such file", "IMAGE:/PATH"]);
}

#[test]
fn what_is_not_there_is_told_with_how_to_look() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    let file = scratch.join("file");
    std::fs::write(&file, "text").unwrap();
    let missing = target(&image, "/no/such");
    let shows = ["no such file or directory\n", "vlinder ls shows what is there", "mkdir -p"];
    for verb in ["ls", "cat", "stat", "rm"] {
        run([verb, &missing]).failed(1, &shows);
    }
    run(["cp", text(&file), &missing]).failed(1, &shows);
    let nowhere = scratch.join("nowhere");
    for verb in ["ls", "stats", "cat"] {
        run([verb, text(&nowhere)]).failed(1, &["nowhere: No such file or directory\n", "check the path"]);
    }
    run(["cp", text(&file), &target(&image, "/file")]).done();
    let directory = scratch.join("directory");
    std::fs::create_dir(&directory).unwrap();
    run(["cp", "-r", text(&directory), &target(&image, "/file")])
        .failed(1, &["/file: it is there, and is no directory\n", "remove it first"]);
    end(vlinder().args(["generate", "man", "/proc/none"])).failed(1, &["/proc/none: ", "check the path"]);
}

/// What a copy that ended early has made is to be reached, and only whole files are counted.
#[test]
fn a_copy_without_room_leaves_directories_open_and_says_so() {
    let scratch = Scratch::new("advice");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    run(["mkfs", "-q", "-M", "-b", "24M", text(&image)]).done();
    std::fs::create_dir_all(source.join("inner")).unwrap();
    std::fs::write(source.join("inner/small"), "text").unwrap();
    std::fs::write(source.join("inner/very large"), vec![7; 40 << 20]).unwrap();
    let ended = run(["--json", "cp", "-r", text(&source), &target(&image, "/")]);
    let ended = ended.failed(3, &["no space left in the image; what comes after it was not copied\n"]);
    let json = ended.json();
    assert_eq!((&json["failures"], &json["copied_bytes"]), (&1.into(), &4.into()), "{json}");
    for directory in ["/source", "/source/inner"] {
        let found = run(["--json", "stat", &target(&image, directory)]).done().json();
        let mode =
            found["files"][0]["mode"].as_str().or(found["mode"].as_str()).unwrap_or_default().to_owned();
        assert!(mode.ends_with("755"), "{directory}: {found}");
    }
}

#[test]
fn a_limit_of_the_host_is_told_once_by_cp_too() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    let large = scratch.join("large");
    std::fs::write(&large, vec![7; 40 << 20]).unwrap();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 40000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vlinder")]);
    let ended = end(command.args(["cp", text(&large), &target(&image, "/large")]));
    let ended = ended.failed(1, &["disk.img: File too large\n", "ulimit -f"]);
    assert!(!ended.err.contains("byte "), "{}", ended.err);
}

#[test]
fn a_subvolume_that_is_none_points_at_those_that_there_are() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    for choice in ["subvolid=999", "subvol=nope"] {
        run(["ls", "-o", choice, &target(&image, "/")]).failed(1, &["no such subvolume", "subvolume list"]);
        run(["mount", "-o", choice, text(&image), text(scratch.path())])
            .failed(1, &["no such subvolume", "subvolume list"]);
    }
}

#[test]
fn no_directory_is_made_where_a_slash_was_forgotten() {
    let scratch = Scratch::new("advice");
    let image = image(&scratch);
    let slip = format!("{}:new", image.display());
    let meant = format!("a path in the image is written {}", target(&image, "/new"));
    run(["mkdir", &slip]).failed(1, &["it would be a file or directory of the host\n", &meant]);
    run(["mkdir", "-p", &slip]).failed(1, &[&meant]);
    assert!(!Path::new(&slip).exists());
    run(["mkdir", &format!("{}:other", scratch.join("nothing").display())]).done();
}

#[test]
fn sectors_that_this_machine_cant_mount_are_told() {
    let scratch = Scratch::new("advice");
    let new = scratch.join("new.img");
    let made = run(["mkfs", "-q", "-s", "64k", "-n", "64k", "-b", "512M", text(&new)]);
    assert_eq!(made.code, 0, "{}", made.err);
    let is_larger = rustix::param::page_size() < 65536;
    assert_eq!(made.err.contains("this machine's Linux can't mount it"), is_larger, "{}", made.err);
    run(["mkfs", "-q", "-f", "-b", "512M", text(&new)]).done();
}

/// What is not whole has no name, so nothing needs to be removed by a program that is killed.
#[test]
fn a_killed_copy_leaves_nothing_behind() {
    let scratch = Scratch::new("advice");
    let (source, image) = (scratch.join("source"), scratch.join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("big"), vec![b'x'; 256 << 20]).unwrap();
    run(["mkfs", "-q", "--compress", "zstd:1", "--rootdir", text(&source), text(&image)]).done();
    let from = target(&image, "/big");
    for (number, verb) in ["cp", "restore"].into_iter().enumerate() {
        let out = scratch.join(format!("out{number}"));
        std::fs::create_dir(&out).unwrap();
        let arguments =
            if verb == "cp" { ["cp", &from, text(&out)] } else { [verb, text(&image), text(&out)] };
        let mut child =
            vlinder().args(arguments).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let descriptors = format!("/proc/{}/fd", child.id());
        let is_writing = || {
            let open = std::fs::read_dir(&descriptors).into_iter().flatten().flatten();
            open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .any(|file| file != out && file.starts_with(&out))
        };
        while !is_writing() {
            assert!(child.try_wait().unwrap().is_none(), "{verb} ended before it was seen to write");
        }
        tool("kill", ["-KILL", &child.id().to_string()]);
        assert!(!child.wait().unwrap().success());
        let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{verb} left {left:?}");
    }
}
