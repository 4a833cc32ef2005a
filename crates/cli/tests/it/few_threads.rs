//! Where the system gives no more threads (a limit of processes for a user or a container), verbs do their
//! work with one or say what is missing, and a mount loses nothing.

use std::path::Path;
use std::process::Command;

use crate::common::{Ended, end, make_image, run, target, tool, vlinder};
use vlinder_testkit::{Scratch, require};

/// A verb as the only thread of its user that may be started: the limit counts those of all its processes.
fn alone(arguments: &[&str]) -> Ended {
    let mut command = Command::new("prlimit");
    command.args(["--nproc=1", env!("CARGO_BIN_EXE_vlinder")]).args(arguments);
    end(&mut command)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Files enough for several threads, and more data than one piece of work.
fn source(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    for number in 0..40_u8 {
        std::fs::write(source.join(format!("file{number}")), vec![number; 100_000]).unwrap();
    }
    source
}

#[track_caller]
fn compare(one: &Path, other: &Path) {
    tool("diff", ["-r", text(one), text(other)]);
}

#[test]
fn verbs_do_with_one_thread_or_say_that_they_need_more() {
    // Root is not limited.
    require!(OrdinaryUser, Tool("prlimit"));
    let scratch = Scratch::new("few-threads");
    let (image, source, out) = (scratch.join("disk.img"), source(&scratch), scratch.join("out"));
    make_image(&image);
    // A process that writes has a thread that commits now and then.
    let words = ["no more threads", "ulimit -u"];
    alone(&["cp", "-r", text(&source), &target(&image, "/copied")]).failed(1, &words);
    run(["cp", "-r", text(&source), &target(&image, "/copied")]).done();
    alone(&["check", "--check-data-csum", text(&image)]).done();
    alone(&["cp", "-r", &target(&image, "/copied"), text(&out)]).done();
    compare(&source, &out);
    let new = scratch.join("new.img");
    alone(&["mkfs", "--rootdir", text(&source), text(&new)]).failed(1, &words);
    assert!(!new.exists(), "half an image stays");
    let point = scratch.join("mount");
    std::fs::create_dir(&point).unwrap();
    alone(&["mount", "-f", text(&image), text(&point)]).failed(1, &words);
}

#[test]
fn a_mount_that_gets_no_more_threads_loses_nothing() {
    require!(OrdinaryUser, Fuse, Tool("prlimit"), Tool("pgrep"), Tool("fusermount3"));
    let scratch = Scratch::new("few-threads");
    let (image, source, point) = (scratch.join("disk.img"), source(&scratch), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    end(vlinder().args(["mount", "-o", "owners=me"]).args([&image, &point])).done();
    let server = tool("pgrep", ["-f", &format!("mount --serve.* {} ", image.display())]);
    tool("prlimit", ["--pid", server.trim(), "--nproc=1:1"]);
    tool("cp", ["-r", text(&source), text(&point.join("copied"))]);
    tool("sync", [text(&point.join("copied/file7"))]);
    compare(&source, &point.join("copied"));
    // The control socket has no thread to spare, and the server can't start fusermount3; the end commits as
    // well.
    tool("fusermount3", ["-u", text(&point)]);
    wait_for_the_end(&image);
    let out = scratch.join("out");
    run(["cp", "-r", &target(&image, "/copied"), text(&out)]).done();
    compare(&source, &out);
    run(["check", "--check-data-csum", text(&image)]).done();
}

/// Waits until nobody serves the image.
fn wait_for_the_end(image: &Path) {
    for _ in 0..500 {
        let pattern = format!("mount --serve.* {} ", image.display());
        let found = Command::new("pgrep").args(["-f", &pattern]).output().unwrap();
        if found.stdout.is_empty() {
            return;
        }
        vlinder_base::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the server did not end");
}
