//! `dump-super`, `dump-tree`, `tree-stats`, `rootid` and `inode-resolve` against btrfs-progs 6.2, line for
//! line after blanks are collapsed. What is not equal on purpose is listed in docs/design/inspect.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{run, target, tool, vlinder};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// The lines of a dump without the first, which names the program, and with blanks collapsed.
fn lines(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.starts_with("btrfs-progs v") && !line.starts_with("vlinder v"))
        .collect()
}

/// How long reading took is no fact about the image.
fn without_times(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| !line.starts_with("Total read time")).collect()
}

#[track_caller]
fn assert_equal(image: &Path, arguments: &[&str]) {
    let program = |command: &mut Command| {
        let output =
            command.arg("inspect-internal").args(arguments).arg(image).env("TZ", "UTC").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        without_times(lines(&output.stdout))
    };
    let (theirs, ours) = (program(&mut Command::new("btrfs")), program(&mut vlinder()));
    assert!(theirs.len() > 1, "{arguments:?} prints nothing");
    for (number, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(ours, theirs, "{} {arguments:?}, line {}", image.display(), number + 1);
    }
    assert_eq!(ours.len(), theirs.len(), "{} {arguments:?}", image.display());
}

fn write(path: PathBuf, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// Bytes that don't compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    })
    .take(length)
    .collect()
}

/// An image made by the kernel with all kinds of items in its trees.
fn kernel_image(scratch: &Scratch, name: &str, flags: &[&str], options: &str, quotas: bool) -> PathBuf {
    let image = scratch.join(name);
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let path = image.to_str().unwrap();
    tool("mkfs.btrfs", flags.iter().copied().chain(["-q", path]));
    let mount = KernelMount::new(&image, options).unwrap();
    let at = |name: &str| mount.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    if quotas {
        tool("btrfs", ["quota", "enable", &text("")]);
    }
    tool("btrfs", ["subvolume", "create", &text("sub")]);
    std::fs::create_dir_all(at("dir/nested")).unwrap();
    write(at("dir/inline"), b"small");
    write(at("dir/regular"), &noise(3_000_000));
    write(at("sub/text"), &b"compressible ".repeat(80_000));
    for link in 0..60 {
        std::fs::hard_link(at("dir/inline"), at(&format!("dir/another name of the same file {link}")))
            .unwrap();
    }
    std::fs::create_dir(at("many")).unwrap();
    for number in 0..2000 {
        write(at(&format!("many/file {number}")), format!("{number}").as_bytes());
    }
    tool("truncate", ["-s", "10M", &text("sub/sparse")]);
    tool("fallocate", ["-l", "1M", &text("dir/prealloc")]);
    tool("mknod", [&text("dir/null"), "c", "1", "3"]);
    std::os::unix::fs::symlink("/etc/passwd", at("dir/link with spaces")).unwrap();
    tool("setfattr", ["-n", "user.name", "-v", "a value", &text("dir/inline")]);
    tool("touch", ["-d", "1960-02-03", &text("dir/inline")]);
    write(at("dir/ünïcode"), b"");
    tool("btrfs", ["subvolume", "snapshot", &text("sub"), &text("snapshot")]);
    tool("btrfs", ["subvolume", "snapshot", "-r", &text("sub"), &text("read only snapshot")]);
    tool("cp", ["--reflink=auto", &text("dir/regular"), &text("dir/clone")]);
    tool("sync", ["-f", &text("")]);
    if quotas {
        tool("btrfs", ["qgroup", "limit", "1G", &text("sub")]);
        tool("btrfs", ["qgroup", "create", "1/100", &text("")]);
        tool("btrfs", ["quota", "rescan", "-w", &text("")]);
    }
    if quotas {
        // The kernel tells of the scan in its log, which unmount() would judge.
        drop(mount);
    } else {
        mount.unmount().unwrap();
    }
    image
}

fn compare_dumps(image: &Path) {
    for arguments in [
        &["dump-tree"][..],
        &["dump-tree", "--dfs"],
        &["dump-tree", "-e"],
        &["dump-tree", "-d"],
        &["dump-tree", "-r"],
        &["dump-tree", "-R"],
        &["dump-tree", "-u"],
        &["dump-tree", "-t", "fs", "--csum-headers", "--noscan"],
        &["dump-tree", "-t", "CSUM", "--csum-items"],
        &["dump-tree", "-t", "256", "--hide-names"],
        &["dump-tree", "-t", "chunk"],
        &["dump-super"],
        &["dump-super", "-fa"],
        &["dump-super", "-s", "1", "-F"],
        &["tree-stats"],
        &["tree-stats", "-b"],
    ] {
        assert_equal(image, arguments);
    }
}

#[test]
fn dumps_read_as_those_of_btrfs_progs() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::new("inspect");
    let old = ["-O", "^no-holes,^extref,^skinny-metadata", "-R", "^free-space-tree"];
    for (name, flags, options, quotas) in [
        ("default", &[][..], "compress-force=zstd", false),
        ("small nodes", &["-n", "4096", "--csum", "xxhash"], "compress=lzo", false),
        ("large nodes", &["-n", "65536", "--csum", "sha256", "-L", "a label"], "compress=zlib", true),
        ("mixed", &["-M", "--csum", "blake2"], "", false),
        ("old", &old, "space_cache=v1", false),
    ] {
        let image = kernel_image(&scratch, name, flags, options, quotas);
        compare_dumps(&image);
        std::fs::remove_file(image).unwrap();
    }
}

#[test]
fn a_block_is_printed_alone_or_with_those_below() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::new("inspect-block");
    let image = kernel_image(&scratch, "image", &["-n", "4096"], "", false);
    let roots = tool("btrfs", ["inspect-internal", "dump-tree", "-r", image.to_str().unwrap()]);
    let line = roots.lines().find(|line| line.starts_with("fs tree key")).unwrap();
    let address = line.split_whitespace().nth(6).unwrap();
    assert_equal(&image, &["dump-tree", "-b", address]);
    assert_equal(&image, &["dump-tree", "-b", address, "--follow"]);
    assert_equal(&image, &["dump-tree", "-b", address, "--follow", "--dfs"]);
}

#[test]
fn inodes_and_roots_are_resolved_as_btrfs_progs_does() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"));
    let scratch = Scratch::new("inspect-resolve");
    let image = kernel_image(&scratch, "image", &[], "", false);
    let mount = KernelMount::new(&image, "ro").unwrap();
    let mut theirs = Vec::new();
    for inode in ["257", "259", "261"] {
        let text =
            tool("btrfs", ["inspect-internal", "inode-resolve", inode, mount.path().to_str().unwrap()]);
        theirs.push(text.replace(mount.path().to_str().unwrap(), ""));
    }
    mount.unmount().unwrap();
    for (inode, theirs) in ["257", "259", "261"].iter().zip(theirs) {
        let ours = run(["inspect-internal", "inode-resolve", inode, &target(&image, "/")]).done().text();
        assert_eq!(ours.replace(&format!("{}:", image.display()), ""), theirs);
    }
    assert_eq!(run(["inspect-internal", "rootid", &target(&image, "/sub/text")]).done().text(), "256\n");
    assert_eq!(run(["inspect-internal", "rootid", &target(&image, "/dir")]).done().text(), "5\n");
    run(["inspect-internal", "inode-resolve", "99999", image.to_str().unwrap()])
        .failed(1, &["no such inode"]);
}

#[test]
fn golden_images_are_printed_alike() {
    require!(Corpus, Tool("btrfs"), Tool("xz"));
    let corpus = vlinder_testkit::require::corpus().unwrap().join("golden");
    let scratch = Scratch::new("inspect-golden");
    let mut compared = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let packed = entry.unwrap().path();
        let name = packed.file_name().unwrap().to_str().unwrap().to_owned();
        // btrfs-progs 6.2 does not open simple quotas.
        let Some(name) = name.strip_suffix(".raw.xz").filter(|name| !name.starts_with("squota")) else {
            continue;
        };
        let image = scratch.join(name);
        std::fs::write(&image, Command::new("xz").arg("-dc").arg(&packed).output().unwrap().stdout).unwrap();
        for arguments in [
            // Values of attributes are cut at the first NUL by btrfs-progs 6.2.
            &["dump-tree", "-t", "root"][..],
            &["dump-tree", "-e"],
            &["dump-tree", "-d"],
            &["dump-tree", "-t", "csum", "--csum-items"],
            &["dump-tree", "-t", "free_space"],
            &["dump-super", "-f"],
            &["tree-stats", "-b"],
        ] {
            if !(name == "old-features" && arguments.contains(&"free_space")) {
                assert_equal(&image, arguments);
            }
        }
        compared += 1;
    }
    assert!(compared >= 5, "{compared} golden images");
}
