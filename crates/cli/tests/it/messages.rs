//! What the command says when something is wrong: what, where, what to do; and the number it ends with.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::{end, make_image, run, target, tool, vlinder};
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{FileDevice, OpenOptions};
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_testkit::{Scratch, require};

fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    make_image(&image);
    image
}

/// Changes the primary superblock, and makes its checksum right.
fn change_superblock(image: &Path, change: impl FnOnce(&mut Superblock)) {
    let file = std::fs::File::options().read(true).write(true).open(image).unwrap();
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 65536).unwrap();
    let mut superblock = Superblock::decode(&bytes).unwrap();
    change(&mut superblock);
    let kind = ChecksumKind::from_disk(superblock.checksum_type).unwrap();
    let bytes = superblock
        .encode_with_checksum(SuperblockMirror::Primary, |covered| *checksum(kind, covered).as_field());
    file.write_all_at(&bytes, 65536).unwrap();
}

#[test]
fn what_is_no_btrfs_is_told_and_left_alone() {
    let scratch = Scratch::new("messages");
    let file = scratch.join("text");
    std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    let words = [file.to_str().unwrap(), "no Btrfs file system", "vlinder mkfs"];
    run(["ls", &target(&file, "/")]).failed(1, &words);
    run(["inspect-internal", "dump-tree", file.to_str().unwrap()]).failed(1, &words);
    run(["inspect-internal", "dump-super", file.to_str().unwrap()]).failed(1, &["--force"]);
    run(["rm", &target(&file, "/a")]).failed(1, &words);
    let short = scratch.join("short");
    std::fs::write(&short, b"x").unwrap();
    run(["ls", &target(&short, "/")]).failed(1, &["no Btrfs file system"]);
    let dumped = run(["inspect-internal", "dump-super", short.to_str().unwrap()]);
    dumped.failed(1, &["no Btrfs file system: it ends before byte 65536", "check the path"]);
    assert_eq!(std::fs::read(&file).unwrap(), vec![b'x'; 1 << 20]);
}

#[test]
fn missing_images_and_directories_are_told_apart() {
    let scratch = Scratch::new("messages");
    let missing = scratch.join("missing.img");
    run(["ls", &target(&missing, "/")]).failed(1, &["missing.img", "No such file", "check the path"]);
    run(["ls", &target(scratch.path(), "/")]).failed(1, &["a directory, where an image"]);
    let image = image(&scratch);
    run(["ls", &target(&image, "/nothing")]).failed(1, &[":/nothing: "]);
    run(["cat", &target(&image, "/")]).failed(1, &["a directory", "list it with ls"]);
}

#[test]
fn a_truncated_image_is_told() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    std::fs::File::options().write(true).open(&image).unwrap().set_len(100 << 20).unwrap();
    let words = ["disk.img", "the device has 104857600 bytes, its superblock says 134217728", "truncated"];
    run(["ls", &target(&image, "/")]).failed(1, &words);
    run(["inspect-internal", "dump-tree", image.to_str().unwrap()]).failed(1, &words);
}

#[test]
fn a_missing_member_is_told() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    change_superblock(&image, |superblock| superblock.device_count = 2);
    run(["ls", &target(&image, "/")]).failed(1, &["the file system has 2 devices, 1 given", "-D DEVICE"]);
}

#[test]
fn what_a_degraded_image_lacks_is_told() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("messages");
    let images = [scratch.join("first.img"), scratch.join("second.img")];
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(300 << 20).unwrap();
    }
    let flags = ["-q", "-d", "raid0", "-m", "raid1"].map(std::ffi::OsStr::new);
    tool("mkfs.btrfs", flags.into_iter().chain(images.iter().map(|image| image.as_os_str())));
    let root = target(&images[0], "/");
    run(["ls", &root]).failed(1, &["2 devices, 1 given", "-o ro,degraded"]);
    let ended = run(["ls", "-o", "ro,degraded", &root]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for line in ["vlinder: warning: device 2 is missing", "(DATA|RAID0) can't be read whole"] {
        assert!(ended.err.contains(line), "{line:?} is not in {:?}", ended.err);
    }
    let ended = run(["mkdir", "-o", "degraded", &target(&images[0], "/new")]);
    ended.failed(1, &["can only be read", "devices of it are missing"]);
}

#[test]
fn unknown_features_are_named() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    change_superblock(&image, |superblock| {
        superblock.incompat =
            superblock.incompat.with(IncompatFeatures(1 << 40)).with(IncompatFeatures::ZONED);
    });
    let words = ["can't read", "incompat_bit_40", "zoned", "newer vlinder"];
    run(["ls", &target(&image, "/")]).failed(1, &words);
    run(["inspect-internal", "dump-tree", image.to_str().unwrap()]).failed(1, &words);
    run(["check", image.to_str().unwrap()]).failed(1, &words);
}

#[test]
fn unknown_read_only_features_allow_reading_alone() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    change_superblock(&image, |superblock| {
        superblock.compat_read_only = superblock.compat_read_only.with(CompatReadOnlyFeatures(1 << 50));
    });
    run(["ls", &target(&image, "/")]).done();
    run(["mkdir", &target(&image, "/new")]).failed(1, &["can only be read", "compat_ro_bit_50"]);
    run(["check", image.to_str().unwrap()]).done();
}

#[test]
fn a_broken_superblock_is_told() {
    let scratch = Scratch::new("messages");
    // Too short for a second copy, which would be as new as the primary and be used.
    let image = scratch.join("disk.img");
    run(["mkfs", "-q", "-b", "40M", "-M", image.to_str().unwrap()]).done();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"broken label", 65536 + 299).unwrap();
    run(["ls", &target(&image, "/")]).failed(1, &["disk.img", "the superblock is broken", "checksum"]);
    run(["inspect-internal", "dump-super", image.to_str().unwrap()]).done();
}

#[test]
fn a_newer_copy_of_the_superblock_is_pointed_at_and_not_used() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 65536).unwrap();
    let ended = run(["ls", &target(&image, "/")]).failed(1, &["disk.img", "no Btrfs file system"]);
    assert!(ended.err.contains("dump-super -a"), "{}", ended.err);
}

#[test]
fn a_file_that_cant_be_written_is_told() {
    require!(OrdinaryUser);
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o444)).unwrap();
    run(["ls", &target(&image, "/")]).done();
    run(["mkdir", &target(&image, "/new")])
        .failed(1, &["disk.img", "Permission denied", "make the file writable"]);
}

#[test]
fn a_read_only_option_forbids_verbs_that_write() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    run(["mkdir", "-o", "ro", &target(&image, "/new")]).failed(1, &["-o ro was given", "leave -o ro out"]);
}

#[test]
fn an_image_in_use_is_told_with_who_uses_it() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let reader = FileDevice::open(&image, &OpenOptions::reader()).unwrap();
    // Readers share.
    run(["ls", &target(&image, "/")]).done();
    let own = format!("in use by process {}", std::process::id());
    run(["mkdir", &target(&image, "/new")]).failed(1, &["disk.img", &own]);
    drop(reader);
    let _writer = FileDevice::open(&image, &OpenOptions::writer()).unwrap();
    run(["ls", &target(&image, "/")]).failed(1, &["disk.img", &own]);
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let mount = vlinder_testkit::kernel::KernelMount::unchecked(&image, "").unwrap();
    let words = ["disk.img", "it is mounted", mount.path().to_str().unwrap(), "unmount it first"];
    run(["mkdir", &target(&image, "/new")]).failed(1, &words);
    run(["ls", &target(&image, "/")]).failed(1, &words);
    // A superblock may be looked at.
    run(["inspect-internal", "dump-super", image.to_str().unwrap()]).done();
    mount.unmount().unwrap();
    run(["mkdir", &target(&image, "/new")]).done();
}

#[test]
fn a_full_host_loses_nothing() {
    require!(Root);
    let scratch = Scratch::new("messages");
    let full = scratch.join("full");
    std::fs::create_dir(&full).unwrap();
    tool("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", full.to_str().unwrap()]);
    let image = full.join("disk.img");
    make_image(&image);
    run(["mkdir", &target(&image, "/kept")]).done();
    let source = scratch.join("source");
    std::fs::write(&source, vec![7; 40 << 20]).unwrap();
    let ended = run(["cp", source.to_str().unwrap(), &target(&image, "/large")]);
    let listed = run(["ls", &target(&image, "/")]);
    let checked = tool("btrfs", ["check", "--readonly", image.to_str().unwrap()]);
    vlinder_testkit::kernel::unmount(&full).unwrap();
    ended.failed(1, &["host's file system is full"]);
    assert_eq!(listed.done().text(), "kept\n");
    assert!(checked.contains("no error found"));
}

#[test]
fn a_senseless_command_line_ends_with_2_and_with_1_as_btrfs() {
    let scratch = Scratch::new("messages");
    run(["frobnicate"]).failed(2, &["frobnicate"]);
    run(["ls", "-o", "frob=1", "x.img:/"]).failed(2, &["unknown option \"frob\""]);
    run(["ls", ":/x"]).failed(2, &["no image before the colon"]);
    run(["ls", ""]).failed(2, &["an empty path"]);
    let btrfs = scratch.join("btrfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), &btrfs).unwrap();
    let alone = |words: &[&str]| end(std::process::Command::new(&btrfs).args(words).env("PATH", "/nowhere"));
    alone(&["frobnicate"]).failed(1, &["ERROR: unrecognized subcommand 'frobnicate'"]);
    alone(&["subvolume", "list", "/nowhere"]).failed(1, &["ERROR: /nowhere"]);
}

#[test]
fn failures_have_a_json_form() {
    let ended = run(["--json", "ls", "/nowhere/x.img:/"]).failed(1, &["x.img"]);
    let json = ended.json();
    assert_eq!(json["schema"], "vlinder.ls/1");
    // Failures of single targets are counted; those of the whole are the object.
    assert_eq!(json["failures"], 1);
    let ended = run(["--json", "filesystem", "label", "/nowhere/x.img:/"]);
    let error = &ended.json()["error"];
    assert_eq!((&error["kind"], &error["place"]), (&"not-found".into(), &"/nowhere/x.img".into()));
    assert!(error["message"].is_string() && error["hint"].is_string());
}

#[test]
fn the_limit_of_a_files_size_fails_a_verb_as_a_full_disk_does() {
    let scratch = Scratch::new("messages");
    let (image, target) = (image(&scratch), scratch.join("new.img"));
    let limited = |arguments: &[&std::ffi::OsStr]| {
        // The units are 512 or 1024 bytes, as the shell has them: less than any file system either way.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vlinder")]);
        end(command.args(arguments))
    };
    limited(&["mkfs".as_ref(), "-b".as_ref(), "300M".as_ref(), target.as_os_str()])
        .failed(1, &["new.img", "File too large", "ulimit -f"]);
    assert!(!target.exists(), "half a file stays");
    let inside = format!("{}:/made", image.display());
    limited(&["mkdir".as_ref(), inside.as_ref()]).failed(1, &["File too large"]);
    run(["check".as_ref(), image.as_os_str()]).done();
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let mut child = vlinder()
        .args(["inspect-internal", "dump-tree", image.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn an_image_without_its_colon_is_neither_replaced_nor_removed() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let file = scratch.join("file");
    std::fs::write(&file, "text").unwrap();
    let (image_path, file_path) = (image.to_str().unwrap(), file.to_str().unwrap());
    let before = std::fs::read(&image).unwrap();
    let words = ["disk.img: it holds a Btrfs file system", "disk.img:/PATH", "-f"];
    run(["cp", file_path, image_path]).failed(1, &words);
    run(["mv", file_path, image_path]).failed(1, &words);
    run(["cp", &target(&image, "/"), image_path, "-rT"]).failed(1, &words);
    run(["rm", "-r", image_path]).failed(1, &words);
    assert_eq!(std::fs::read(&image).unwrap(), before);
    assert_eq!(std::fs::read(&file).unwrap(), b"text");

    let slip = format!("{image_path}:name");
    let meant = format!("a path in the image is written {}", target(&image, "/name"));
    run(["cp", file_path, &slip]).failed(1, &["a file or directory of the host", &meant, "-f"]);
    run(["mv", file_path, &slip]).failed(1, &[&meant]);
    run(["cp", "-f", file_path, &slip]).done();
    run(["cp", file_path, &slip]).done();
    // Beside what is no image any name will do.
    run(["cp", file_path, &format!("{file_path}:name")]).done();

    run(["cp", "-n", file_path, image_path]).done();
    assert_eq!(std::fs::read(&image).unwrap(), before);
    let copy = scratch.join("copy.img");
    let copy_path = copy.to_str().unwrap();
    run(["cp", image_path, copy_path]).done();
    run(["cp", "-f", image_path, copy_path]).done();
    run(["rm", "-f", copy_path]).done();
    assert!(!copy.exists());
    run(["cp", "-f", file_path, image_path]).done();
    assert_eq!(std::fs::read(&image).unwrap(), b"text");
    // What is no image is replaced as ever.
    run(["cp", file_path, image_path]).done();
}

#[test]
fn a_path_in_an_image_that_was_written_otherwise_is_shown_right() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let meant = format!("a path in an image is written {}", target(&image, "/etc/fstab"));
    run(["cat", &format!("{}/etc/fstab", image.display())]).failed(1, &[&meant]);
    run(["cat", &format!("{}:etc/fstab", image.display())]).failed(1, &[&meant]);
    run(["check", &target(&image, "/")]).failed(1, &["whole image", "disk.img\n"]);
    let in_it = format!("written {}", target(&image, "/new"));
    run(["mkdir", &format!("{}/new", image.display())]).failed(1, &["Not a directory", &in_it]);
    let ended = run(["cat", scratch.join("missing").to_str().unwrap()]).failed(1, &["No such file"]);
    assert!(!ended.err.contains("a path in an image"), "{}", ended.err);
}

#[test]
fn a_missing_subvolume_is_called_one() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let words = ["there is no subvolume 300", "subvolume list"];
    run(["subvolume", "set-default", "300", &target(&image, "/")]).failed(1, &words);
    run(["subvolume", "delete", "-i", "300", &target(&image, "/")]).failed(1, &words);
    run(["ls", "-o", "subvol=none", &target(&image, "/")]).failed(1, &["disk.img: subvolume none: "]);
}

#[test]
fn a_mount_that_makes_no_sense_says_what_would() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let image = image.to_str().unwrap();
    let nowhere = scratch.join("nowhere");
    let words = ["nowhere: no mount point: No such file or directory\n", "give a directory"];
    run(["mount", image, nowhere.to_str().unwrap()]).failed(1, &words);
    run(["mount", image, image]).failed(1, &["no mount point: ", "give a directory"]);
    let directory = scratch.path().to_str().unwrap();
    run(["mount", "-o", "foo", image, directory]).failed(2, &["\"foo\"", "vlinder mount --help"]);
    run(["mount", nowhere.to_str().unwrap(), directory]).failed(1, &["No such file", "check the path"]);
    run(["mount", &format!("{image}:/"), directory])
        .failed(1, &["No such file", "takes the whole image: ", "disk.img\n"]);
}

#[test]
fn verbs_that_are_not_there_yet_end_with_2() {
    let later: [&[&str]; 3] = [&["scrub", "start"], &["balance", "start"], &["filesystem", "show"]];
    for verb in later {
        let ended = run(verb.iter().copied().chain(["disk.img"]));
        let name = verb.iter().rfind(|name| **name != "start").unwrap();
        ended.failed(2, &[&format!("{name} is not there yet"), "vlinder --help lists the verbs"]);
    }
    run(["bal", "start", "disk.img"]).failed(2, &["balance is not there yet"]);
    run(["frobnicate"]).failed(2, &["unrecognized subcommand 'frobnicate'"]);
    run(["check", "--repair", "disk.img"]).failed(1, &["repairs nothing", "vlinder restore"]);
}

/// Every option that the design names, with a value where it has one.
const OPTIONS: &str = "ro,rw,compress=zstd:3,compress-force=lzo,nodatacow,nodatasum,max_inline=2048,commit=5,ssd,discard,\
                       notreelog,flushoncommit,user_subvol_rm_allowed,cache=64m,dirty=8m,threads=2,writeback=off,\
                       owners=me,transport=fuse,disable=seek_cache:state_trim,noatime,relatime,norelatime,nosuid,nodev,\
                       noexec,user,nofail,_netdev,x-anything,allow_other,default_permissions,fsname=a,subtype=b,\
                       auto_unmount,subvolid=5";

#[test]
fn every_verb_that_opens_an_image_refuses_unknown_options() {
    let scratch = Scratch::new("messages");
    let image = image(&scratch);
    let (path, root) = (image.to_str().unwrap(), target(&image, "/"));
    let at = |path: &str| target(&image, path);
    let (sub, file, other, moved) = (at("/sub"), at("/file"), at("/other"), at("/moved"));
    run(["subvolume", "create", &sub]).done();
    let source = scratch.join("source");
    std::fs::write(&source, b"text").unwrap();
    let calls: Vec<Vec<&str>> = vec![
        vec!["cp", source.to_str().unwrap(), &file],
        vec!["ls", &root],
        vec!["cat", &file],
        vec!["stat", &file],
        vec!["ln", &file, &other],
        vec!["mv", &other, &moved],
        vec!["rm", &moved],
        vec!["mkdir", &other],
        vec!["tree", &root],
        vec!["subvolume", "list", path],
        vec!["subvolume", "show", &sub],
        vec!["subvolume", "get-default", path],
        vec!["subvolume", "set-default", "5", path],
        vec!["subvolume", "delete", &sub],
        vec!["subvolume", "sync", path],
        vec!["filesystem", "sync", path],
        vec!["fstrim", path],
        vec!["filesystem", "df", path],
        vec!["filesystem", "usage", path],
        vec!["filesystem", "label", path],
        vec!["property", "get", path],
        vec!["property", "set", path, "label", "x"],
        vec!["property", "list", path],
        vec!["stats", path],
        vec!["check", path],
        vec!["restore", "-l", path],
        vec!["inspect-internal", "dump-super", path],
        vec!["inspect-internal", "dump-tree", path],
        vec!["inspect-internal", "tree-stats", path],
        vec!["inspect-internal", "rootid", path],
        vec!["inspect-internal", "inode-resolve", "257", path],
        vec!["filemap", &file],
        vec!["dedupe", "--dry-run", &file],
    ];
    for call in &calls {
        for (option, word) in [("frob", "frob"), ("rw,transport=nope", "transport"), ("threads=x", "threads")]
        {
            let ended = run(call.iter().copied().chain(["--options", option]));
            ended.failed(2, &["option", word]);
        }
        assert_eq!(run(call.iter().copied().chain(["--options", OPTIONS])).done().err, "");
    }
}

#[test]
fn usage_says_which_of_several_may_be_many() {
    for (verb, several) in [("cp", "<SOURCE>... <DESTINATION>"), ("mv", "<SOURCE>... <DESTINATION>")] {
        run([verb]).failed(2, &[&format!("Usage: vlinder {verb} [OPTIONS] {several}\n")]);
    }
    run(["mount"]).failed(2, &["Usage: vlinder mount [OPTIONS] <IMAGE>... <MOUNTPOINT>\n"]);
}
