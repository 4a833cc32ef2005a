//! Files and directories that are `nodatacow` or `nodatasum` from the start.

use vlinder_admin::mkfs::{MkfsOptions, PathFlags, RootDirectory, SubvolumeDirectory};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::mkfs::{content, judged, make};

#[test]
fn flags_are_those_of_linux_and_handed_down() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("lsattr"));
    let scratch = Scratch::new("inode-flags");
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("var/log/journal")).unwrap();
    std::fs::create_dir_all(source.join("sums/below")).unwrap();
    for name in ["var/log/journal/a", "var/other", "sums/below/b", "single"] {
        std::fs::write(source.join(name), content(200_000, 3)).unwrap();
    }
    let mut root = RootDirectory::new(&source);
    for flags in ["nodatacow:var/log", "nodatasum:/sums", "nodatacow:single"] {
        root.inode_flags.push(PathFlags::parse(flags.as_ref()).unwrap());
    }
    root.subvolumes.push(SubvolumeDirectory::parse("var/log/journal".as_ref()));
    root.compress = Some(vlinder_fs::CompressOption {
        algorithm: vlinder_codec::compress::Compression::Zstd,
        level: 3,
        force: false,
    });
    let image = scratch.join("image");
    make(&MkfsOptions { root_directory: Some(root), ..judged() }, &image).unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let shown = |path: &str| {
        let output =
            std::process::Command::new("lsattr").arg("-d").arg(mount.path().join(path)).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
    };
    for (path, is_in_place) in [
        ("var/log", true),
        ("var/log/journal", true),
        ("var/log/journal/a", true),
        ("single", true),
        ("var/other", false),
        ("var", false),
        ("sums/below/b", false),
    ] {
        assert_eq!(shown(path).contains('C'), is_in_place, "{path}");
        if mount.path().join(path).is_file() {
            assert_eq!(std::fs::read(mount.path().join(path)).unwrap(), content(200_000, 3), "{path}");
        }
    }
    mount.unmount().unwrap();
    let files = vlinder_fs::path::Files::open(&image).unwrap();
    use vlinder_fs::InodeFlags;
    let (cow, sum) = (InodeFlags::NODATACOW, InodeFlags::NODATASUM);
    for (path, expected) in [
        ("/sums", sum),
        ("/sums/below", sum),
        ("/sums/below/b", sum),
        ("/single", cow.with(sum)),
        ("/var/log/journal/a", cow.with(sum)),
        ("/var/other", InodeFlags::NONE),
    ] {
        let found = files.metadata(path).unwrap().flags;
        assert_eq!(InodeFlags(found.0 & cow.with(sum).0), expected, "{path}");
    }
}

#[test]
fn flags_of_what_has_no_data_are_refused() {
    let scratch = Scratch::new("inode-flags-bad");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    for path in ["socket", "missing", "../source"] {
        let mut root = RootDirectory::new(&source);
        root.inode_flags.push(PathFlags::parse(format!("nodatacow:{path}").as_ref()).unwrap());
        let made = make(&MkfsOptions { root_directory: Some(root), ..judged() }, &scratch.join("image"));
        match path {
            // It is the source directory itself, by another way.
            "../source" => drop(made.unwrap()),
            _ => {
                let error = made.unwrap_err().to_string();
                assert!(error.contains(&format!("--inode-flags {path}")), "{error}");
            }
        }
    }
}
