//! Archives of tar as sources on the command line: from pipes, and compressed.

use std::process::Command;

use vlinder_testkit::{Scratch, require};

use crate::common::{Ended, end, run, target, vlinder};

/// Runs a line of sh in a directory with `vlinder` and a source called `root`.
fn line(scratch: &Scratch, words: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", words]).current_dir(scratch.path());
    command
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("MAKE", "./vlinder mkfs -q -U 11111111-2222-3333-4444-555555555555");
    end(&mut command)
}

fn prepared() -> Scratch {
    let scratch = Scratch::new("archives");
    std::os::unix::fs::symlink(vlinder().get_program(), scratch.join("vlinder")).unwrap();
    std::fs::create_dir_all(scratch.join("root/below")).unwrap();
    let large: Vec<u8> =
        (0..900_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(scratch.join("root/large"), large).unwrap();
    for number in 0..40 {
        std::fs::write(scratch.join(format!("root/below/{number}")), vec![b'a'; number * 100]).unwrap();
    }
    scratch
}

#[test]
fn every_way_of_an_archive_gives_the_same_image() {
    require!(Tool("tar"), Tool("gzip"), Tool("zstd"));
    let scratch = prepared();
    let mut images = Vec::new();
    for words in [
        "tar -cf a.tar -C root . && $MAKE --rootdir a.tar image",
        "$MAKE --rootdir - image < a.tar",
        "cat a.tar | $MAKE --rootdir - image",
        "gzip -k a.tar && $MAKE --rootdir a.tar.gz image",
        "(head -c 5000 a.tar | gzip; tail -c +5001 a.tar | gzip) | $MAKE --rootdir - image",
        "zstd -q a.tar && $MAKE --rootdir a.tar.zst image",
        "zstd -qc a.tar | $MAKE --rootdir - image",
        // Something before it in the same file.
        "(echo before; cat a.tar) > long && (read line; $MAKE --rootdir - image) < long",
    ] {
        let ended = line(&scratch, words);
        // A shell that reads a line from a file leaves it behind that line.
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{words}");
        images.push(std::fs::read(scratch.join("image")).unwrap());
        std::fs::remove_file(scratch.join("image")).unwrap();
        assert!(images.first() == images.last(), "{words} differs");
    }
    let ended =
        line(&scratch, "$MAKE --rootdir a.tar image && ./vlinder cat image:/large | cmp - root/large");
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[test]
fn what_is_wrong_with_an_archive_is_told() {
    require!(Tool("tar"), Tool("gzip"));
    let scratch = prepared();
    line(&scratch, "tar -czf a.tgz -C root .").done();
    for (words, expected) in [
        ("head -c 2000 a.tgz | $MAKE --rootdir - image", &["standard input: it ends within an entry"][..]),
        ("tail -c +2000 a.tgz | $MAKE --rootdir - image", &["neither a directory nor an archive"]),
        ("printf '\\3757zXZ\\0aaaa' | $MAKE --rootdir - image", &["xz -dc"]),
        ("TMPDIR=/nowhere/at/all $MAKE --rootdir a.tgz image", &["/nowhere/at/all", "set TMPDIR"]),
        ("$MAKE --rootdir vlinder image", &["vlinder: it is neither a directory nor an archive"]),
        ("$MAKE --rootdir missing image", &["missing", "No such file", "check the path"]),
        ("$MAKE --rootdir a.tgz --subvol below/1 image", &["no such directory in the archive"]),
        ("$MAKE --rootdir a.tgz --owner 0 image", &["two numbers"]),
        ("$MAKE --rootdir a.tgz --owner 0:4294967295 image", &["two numbers"]),
    ] {
        let ended = line(&scratch, words);
        assert_ne!(ended.code, 0, "{words}");
        assert!(expected.iter().all(|word| ended.err.contains(word)), "{words}: {}", ended.err);
        assert!(!scratch.join("image").exists(), "{words}");
    }
}

#[test]
fn owners_of_an_archive_can_be_set_as_those_of_a_directory() {
    require!(Tool("tar"));
    let scratch = prepared();
    let table = "/dev d 755 0 0\n/dev/null c 666 0 0 1 3\n/below/1 f 600 5 6\n";
    std::fs::write(scratch.join("table"), table).unwrap();
    line(&scratch, "tar -cf a.tar -C root . && $MAKE --rootdir a.tar --all-root --owner-table table image")
        .done();
    let shown = |path: &str| run(["ls", "-l", &target(&scratch.join("image"), path)]).done().text();
    assert!(shown("/dev").contains("crw-rw-rw- 1 0 0 1, 3"), "{}", shown("/dev"));
    assert!(shown("/below/1").starts_with("-rw------- 1 5 6 "), "{}", shown("/below/1"));
    assert!(shown("/large").contains(" 1 0 0 "), "{}", shown("/large"));
}
