//! `send` and `receive`: between images nobody mounted, and on mounts.

use std::path::Path;
use std::process::Stdio;

use vlinder_base::thread;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::common::{Ended, end, make_image, run, target, tool, vlinder};
use crate::place::Place;

/// An image with the snapshots `one` and `two` of `home`, and one to receive into.
struct Images {
    source: std::path::PathBuf,
    store: std::path::PathBuf,
    scratch: Scratch,
}

impl Images {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let (source, store) = (scratch.join("source.img"), scratch.join("store.img"));
        make_image(&source);
        make_image(&store);
        let images = Self { source, store, scratch };
        images.file("first", &[7; 300_000]);
        run(["subvolume", "create", &images.from("/home")]).done();
        images.put("first", "/home/kept");
        images.put("first", "/home/gone");
        run(["mkdir", &images.from("/home/directory")]).done();
        run(["ln", "-s", "nowhere", &images.from("/home/link")]).done();
        images.snapshot("one");
        run(["rm", &images.from("/home/gone")]).done();
        images.file("second", b"second");
        images.put("second", "/home/directory/new");
        images.snapshot("two");
        images
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.scratch.join(name), bytes).unwrap();
    }

    fn put(&self, file: &str, path: &str) {
        run(["cp", "-a", self.scratch.join(file).to_str().unwrap(), &self.from(path)]).done();
    }

    fn snapshot(&self, name: &str) {
        run(["subvolume", "snapshot", "-r", &self.from("/home"), &self.from(&format!("/{name}"))]).done();
    }

    fn from(&self, path: &str) -> String {
        target(&self.source, path)
    }

    fn to(&self, path: &str) -> String {
        target(&self.store, path)
    }

    /// Sends to a file; gives its path.
    fn sent(&self, file: &str, arguments: &[&str]) -> String {
        let path = self.scratch.join(file).to_str().unwrap().to_owned();
        run(["send", "--quiet", "-f", &path].iter().chain(arguments)).done();
        path
    }

    fn receive(&self, stream: &str) -> Ended {
        run(["receive", "-f", stream, &self.to("/")])
    }
}

/// What is in a snapshot, with all attributes that travel.
fn look(target: &str) -> String {
    let files = run(["ls", "-lR", "--full-time", target]);
    let files = if files.code == 0 { files } else { run(["ls", "-l", "-R", target]) };
    // The place stands before each directory.
    files.done().text().lines().filter(|line| !line.ends_with(':')).collect::<Vec<_>>().join("\n")
}

#[test]
fn snapshots_go_from_image_to_image_and_linux_agrees() {
    require!(KernelBtrfs);
    let images = Images::new("streams");
    let full = images.sent("full", &[&images.from("/one")]);
    let changes = images.sent("changes", &["-p", &images.from("/one"), &images.from("/two")]);
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    assert!(size(&full) > 600_000 && size(&changes) < 2000, "{} {}", size(&full), size(&changes));
    let said = images.receive(&full).done().text();
    assert!(said.contains("one"), "{said}");
    images.receive(&changes).done();
    for name in ["/one", "/two"] {
        assert_eq!(look(&images.from(name)), look(&images.to(name)));
    }
    let shown = run(["subvolume", "show", &images.to("/two")]).done().text();
    assert!(shown.contains("readonly"), "{shown}");
    btrfs_check_data(&images.store).unwrap();
    let mount = KernelMount::new(&images.store, "").unwrap();
    assert_eq!(std::fs::read(mount.path().join("two/directory/new")).unwrap(), b"second");
    assert_eq!(std::fs::read(mount.path().join("two/kept")).unwrap(), vec![7; 300_000]);
    mount.unmount().unwrap();
}

#[test]
fn the_same_snapshots_give_the_same_bytes_in_a_pipe() {
    let images = Images::new("streams-pipe");
    let full = images.sent("full", &[&images.from("/one")]);
    let mut sender = vlinder();
    let mut sender =
        sender.args(["send", "--quiet", &images.from("/one")]).stdout(Stdio::piped()).spawn().unwrap();
    let mut receiver = vlinder();
    receiver.args(["receive", "--json", &images.to("/")]).stdin(sender.stdout.take().unwrap());
    let made = end(&mut receiver).done().json();
    assert!(sender.wait().unwrap().success());
    assert_eq!(made["subvolumes"][0]["name"], "one");
    let piped = run(["send", "--quiet", &images.from("/one")]).done().out;
    assert!(piped == std::fs::read(full).unwrap());
}

#[test]
fn several_snapshots_make_one_stream_or_one_each() {
    let images = Images::new("streams-several");
    let both = [images.from("/one"), images.from("/two")];
    let count = |path: &str| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(13).filter(|window| window == b"btrfs-stream\0").count()
    };
    let each = images.sent("each", &["-c", &both[0], &both[1], &both[1]]);
    assert_eq!(count(&each), 2);
    let each = images.sent("each", &[&both[0], &both[1]]);
    assert_eq!(count(&each), 2);
    let one = images.sent("one", &["-e", &both[0], &both[1]]);
    assert_eq!(count(&one), 1);
    images.receive(&one).done();
    assert_eq!(look(&both[1]), look(&images.to("/two")));
}

#[test]
fn the_parent_is_chosen_among_clone_sources() {
    let images = Images::new("streams-clone-sources");
    run(["subvolume", "create", &images.from("/other")]).done();
    run(["subvolume", "snapshot", "-r", &images.from("/other"), &images.from("/stranger")]).done();
    let chosen = images
        .sent("chosen", &["-c", &images.from("/stranger"), "-c", &images.from("/one"), &images.from("/two")]);
    assert!(std::fs::metadata(&chosen).unwrap().len() < 2000);
    let refused = ["send", "-f", "/dev/null", "-c", &images.from("/stranger"), &images.from("/two")];
    run(refused).failed(1, &["none of the clone sources", "-p"]);
    // What the file had is still there.
    let before = std::fs::read(&chosen).unwrap();
    run(["send", "-f", &chosen, "-c", &images.from("/stranger"), &images.from("/two")]).failed(1, &["-p"]);
    assert!(std::fs::read(&chosen).unwrap() == before);
}

#[test]
fn what_can_not_be_sent_or_received_is_told() {
    let images = Images::new("streams-refusals");
    let (one, two) = (images.from("/one"), images.from("/two"));
    let null = ["send", "-f", "/dev/null"];
    let send = |more: &[&str]| run(null.iter().chain(more));
    send(&[&images.from("/home")]).failed(1, &["/home", "not read-only", "snapshot -r"]);
    send(&[&images.from("/home/kept")]).failed(1, &["not a subvolume"]);
    send(&[&images.from("/nowhere")]).failed(1, &["no such file"]);
    send(&["-p", &images.from("/home"), &one]).failed(1, &["not read-only"]);
    send(&["-p", &images.to("/"), &one]).failed(1, &[]);
    run(["send", "-f", "/dev/full", &one]).failed(1, &["/dev/full: No space left", "free some space"]);
    run(["send", "--json", &one]).failed(2, &["-f FILE"]);
    // The parent is not there.
    let changes = images.sent("changes", &["-p", &one, &two]);
    images.receive(&changes).failed(1, &["no subvolume here was received from", "receive that one first"]);
    // A name that is taken.
    let full = images.sent("full", &[&one]);
    images.receive(&full).done();
    images.receive(&full).failed(1, &["one", "exists", "into another directory"]);
    images.receive(images.scratch.path().to_str().unwrap()).failed(1, &["a directory, where a stream"]);
    let names = images.sent("names", &["--no-data", &two]);
    images.receive(&names).failed(1, &["--no-data", "send it again"]);
    run(["receive", "--discard", "two", &images.to("/")]).done();
    images.file("empty", b"");
    let empty = images.scratch.join("empty");
    images.receive(empty.to_str().unwrap()).failed(1, &["empty"]);
    for words in [["stream", "verify"], ["stream", "dump"], ["stream", "ls"], ["receive", "--dump"]] {
        let ended = end(vlinder().args(words).arg("-").stdin(std::fs::File::open(&empty).unwrap()));
        ended.failed(1, &["standard input: no stream: it is empty"]);
    }
    run(["receive", "--dump", "--json", "-f", &full]).failed(1, &["no JSON form"]);
    images.file("other", b"something else that is no stream");
    images.receive(images.scratch.join("other").to_str().unwrap()).failed(1, &["no stream"]);
    run(["receive", "-f", &full, &images.to("/one/kept")]).failed(1, &["directory"]);
    run(["receive", "-f", &full, "-o", "ro", &images.to("/")]).failed(1, &["ro"]);
}

/// `-f disk.img` where a pipe into `receive` was meant, or where the image itself was mistyped.
#[test]
fn a_stream_does_not_go_over_an_image() {
    let images = Images::new("streams-over-an-image");
    let one = images.from("/one");
    let words = ["it holds a Btrfs file system", "vlinder receive"];
    for image in [&images.source, &images.store] {
        let before = std::fs::read(image).unwrap();
        run(["send", "-f", image.to_str().unwrap(), &one]).failed(1, &words);
        assert!(std::fs::read(image).unwrap() == before);
        let link = images.scratch.join("link");
        std::os::unix::fs::symlink(image, &link).unwrap();
        run(["send", "-f", link.to_str().unwrap(), &one]).failed(1, &words);
        std::fs::remove_file(link).unwrap();
        assert!(std::fs::read(image).unwrap() == before);
    }
    // A longer file of another kind is replaced whole.
    let once = std::fs::read(images.sent("stream", &[&one])).unwrap();
    images.file("stream", &vec![1; once.len() * 2]);
    assert!(std::fs::read(images.sent("stream", &[&one])).unwrap() == once);
}

/// With `-e` two calls share one input, whether that can be rewound or not, and into a mount as well.
#[test]
fn what_follows_the_end_command_is_left_in_the_input() {
    let images = Images::new("streams-one-of-two");
    let full = std::fs::read(images.sent("full", &[&images.from("/one")])).unwrap();
    let changes =
        std::fs::read(images.sent("changes", &["-p", &images.from("/one"), &images.from("/two")])).unwrap();
    images.file("both", &[full, changes, b"more".to_vec()].concat());
    let both = images.scratch.join("both");
    let take_turns = |directory: &str| {
        let name = directory.to_owned();
        for how in ["< \"$2\"", "< <(cat \"$2\")"] {
            let script = format!(
                "exec {how}; \"$0\" receive --quiet -e \"$1\" && \"$0\" receive --quiet -e \"$1\" && cat"
            );
            let mut command = std::process::Command::new("bash");
            command.args(["-c", &script, env!("CARGO_BIN_EXE_vlinder"), &name]).arg(&both);
            assert_eq!(end(&mut command).done().text(), "more", "{how}");
            run(["subvolume", "delete", &format!("{name}/one"), &format!("{name}/two")]).done();
        }
    };
    run(["mkdir", &images.to("/there")]).done();
    take_turns(&images.to("/there"));
    require!(Fuse);
    let place = Place::new("streams-one-of-two-mount");
    place.mount("rw").done();
    take_turns(place.point.to_str().unwrap());
    place.unmount().done();
}

/// What could not be made durable is not said to be kept.
#[test]
fn a_full_host_is_not_said_to_keep_what_came() {
    require!(Root);
    let images = Images::new("streams-full-host");
    images.file("large", &vec![7; 40 << 20]);
    images.put("large", "/home/large");
    images.snapshot("three");
    let stream = images.sent("stream", &[&images.from("/three")]);
    let host = images.scratch.join("host");
    std::fs::create_dir(&host).unwrap();
    tool("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", host.to_str().unwrap()]);
    let store = host.join("store.img");
    make_image(&store);
    let received = run(["receive", "-f", &stream, &target(&store, "/")]);
    let left = run(["receive", "--partial", &target(&store, "/")]);
    tool("mount", ["-o", "remount,size=80m", host.to_str().unwrap()]);
    let again = run(["receive", "--quiet", "-f", &stream, &target(&store, "/")]);
    vlinder_testkit::kernel::unmount(&host).unwrap();
    let received = received.failed(1, &["is full", "could not be made durable", "--partial"]);
    assert!(!received.err.contains("is kept"), "{}", received.err);
    assert_eq!(left.done().text(), "");
    again.done();
}

/// A receiver must not take it for whole, and nobody must think that the image is damaged.
#[test]
fn a_send_from_a_mount_that_ends_has_no_end_command() {
    require!(Fuse);
    for is_damaged_then in [false, true] {
        let place = Place::new("streams-mount-ends");
        place.mount("rw").done();
        run([Path::new("subvolume"), "create".as_ref(), &place.at("mine")]).done();
        // More than the sender reads ahead of a reader that waits.
        std::fs::write(place.at("mine/file"), vec![7; 40 << 20]).unwrap();
        let (mine, shot) = (place.at("mine"), place.at("shot"));
        run([Path::new("subvolume"), "snapshot".as_ref(), "-r".as_ref(), &mine, &shot]).done();
        let mut sender = vlinder();
        sender.args(["send", "--quiet"]).arg(&shot).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut sender = sender.spawn().unwrap();
        let mut begin = [0; 4096];
        std::io::Read::read_exact(sender.stdout.as_mut().unwrap(), &mut begin).unwrap();
        place.unmount().done();
        if is_damaged_then {
            std::fs::File::options().write(true).open(&place.image).unwrap().set_len(1 << 20).unwrap();
        }
        let ended = Ended::from(sender.wait_with_output().unwrap());
        let stream = place.image.with_file_name("stream");
        std::fs::write(&stream, [&begin[..], &ended.out].concat()).unwrap();
        let ended = ended.failed(1, &["the mount ended while its image was read", "try again"]);
        assert!(!ended.err.contains("keep the image"), "{}", ended.err);
        run(["stream".as_ref(), "verify".as_ref(), stream.as_os_str()]).failed(1, &["it was cut off"]);
    }
}

/// While nothing comes, too. A second signal would end it at once.
#[test]
fn a_signal_leaves_what_an_image_received_so_far() {
    let images = Images::new("streams-signal");
    let full = std::fs::read(images.sent("full", &[&images.from("/one")])).unwrap();
    let mut receiver = vlinder();
    receiver.args(["receive", "--quiet", &images.to("/")]).stdin(Stdio::piped());
    let mut receiver = receiver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = receiver.stdin.take().unwrap();
    // Once this is written, the receiver has read all but what fits into the pipe.
    std::io::Write::write_all(&mut pipe, &full[..full.len() - 1000]).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&receiver), rustix::process::Signal::TERM)
        .unwrap();
    let ended = Ended::from(receiver.wait_with_output().unwrap());
    drop(pipe);
    let token = token_of(&ended.failed(1, &["interrupted by a signal", "is kept"]));
    let rest = images.sent("rest", &["--resume", &token, &images.from("/one")]);
    assert!(std::fs::metadata(&rest).unwrap().len() < full.len() as u64 / 2);
    images.receive(&rest).done();
    assert_eq!(look(&images.from("/one")), look(&images.to("/one")));
}

/// The token that the words of a failure name.
fn token_of(ended: &Ended) -> String {
    let (_, rest) = ended.err.split_once("--resume ").unwrap_or_else(|| panic!("{}", ended.err));
    rest.split([',', ' ', '\n']).next().unwrap().to_owned()
}

#[test]
fn an_interrupted_stream_goes_on_or_is_discarded() {
    let images = Images::new("streams-cut");
    let (one, store) = (images.from("/one"), images.to("/"));
    let full = std::fs::read(images.sent("full", &[&one])).unwrap();
    images.file("cut", &full[..full.len() / 2]);
    let cut = images.scratch.join("cut");
    let words = ["ends in the middle of a command", "byte", "--resume", "--discard one"];
    let cut = cut.to_str().unwrap();
    let token = token_of(&images.receive(cut).failed(1, &words));
    run(["subvolume", "show", &images.to("/one")]).failed(1, &["no such file"]);
    let parts = run(["receive", "--partial", &store]).done().text();
    assert!(parts.starts_with("one ") && parts.trim_end().ends_with(&token), "{parts}");
    images.receive(cut).failed(1, &["received in part before", "--resume"]);
    assert_eq!(run(["check", images.store.to_str().unwrap()]).code, 0);
    // The rest alone is sent.
    let rest = images.sent("rest", &["--resume", &token, &one]);
    let size = std::fs::metadata(&rest).unwrap().len() as usize;
    assert!(size < full.len() * 2 / 3, "{size} of {}", full.len());
    run(["stream", "verify", &rest]).failed(1, &["the rest of a stream", "without --resume"]);
    images.receive(&rest).done();
    assert_eq!(look(&one), look(&images.to("/one")));
    assert_eq!(run(["receive", "--partial", &store]).done().text(), "");
    run(["subvolume", "list", images.store.to_str().unwrap()]).done();
    // Another snapshot has other bytes.
    let null = ["send", "--quiet", "-f", "/dev/null", "--resume"];
    run(null.iter().chain(&[token.as_str(), &images.from("/two")]))
        .failed(1, &["not the one that was interrupted"]);
    run(null.iter().chain(&["nonsense", one.as_str()])).failed(2, &["token"]);
    run(["subvolume", "delete", &images.to("/one")]).done();
    images.receive(cut).failed(1, &["--resume"]);
    run(["receive", "--discard", "one", &store]).done();
    let words = ["no subvolume that was received in part", "receive --partial lists"];
    run(["receive", "--discard", "one", &store]).failed(1, &words);
    assert_eq!(run(["receive", "--partial", &store]).done().text(), "");
    images.receive(images.scratch.join("full").to_str().unwrap()).done();
    assert_eq!(run(["check", images.store.to_str().unwrap()]).code, 0);
}

/// The parts of a mount that is sent from and received into.
#[test]
fn mounts_send_their_last_commit_and_receive() {
    require!(Fuse);
    let images = Images::new("streams-mounts");
    let place = Place::new("streams-mount");
    place.mount("rw").done();
    let point = place.point.to_str().unwrap();
    let full = images.sent("full", &[&images.from("/one")]);
    // The kernel has heard that the name is not there.
    assert!(!place.at("one").exists());
    run(["receive", "--quiet", "-f", &full, point]).done();
    assert_eq!(std::fs::read(place.at("one/kept")).unwrap(), vec![7; 300_000]);
    assert_eq!(look(&images.from("/one")), look(place.at("one").to_str().unwrap()));
    assert!(std::fs::write(place.at("one/kept"), b"x").is_err(), "it is read-only");
    // What is written until now is in the commit that is sent.
    run(["subvolume", "create", place.at("mine").to_str().unwrap()]).done();
    std::fs::write(place.at("mine/file"), b"from the mount").unwrap();
    let (mine, shot) = (place.at("mine"), place.at("shot"));
    run([Path::new("subvolume"), "snapshot".as_ref(), "-r".as_ref(), &mine, &shot]).done();
    let from_mount = images.scratch.join("from-mount");
    for source in [shot.to_str().unwrap().to_owned(), target(&place.image, "/shot")] {
        run(["send", "--quiet", "-f", from_mount.to_str().unwrap(), &source]).done();
        run(["receive", "--quiet", "-f", from_mount.to_str().unwrap(), &images.to("/")]).done();
        assert_eq!(run(["cat", &images.to("/shot/file")]).done().out, b"from the mount");
        run(["subvolume", "delete", &images.to("/shot")]).done();
    }
    // Both from a mount and onto the same.
    run(["mkdir", place.at("copies").to_str().unwrap()]).done();
    run(["receive", "--quiet", "-f", from_mount.to_str().unwrap(), place.at("copies").to_str().unwrap()])
        .done();
    assert_eq!(std::fs::read(place.at("copies/shot/file")).unwrap(), b"from the mount");
    place.unmount().done();
    assert_eq!(run(["check", place.image.to_str().unwrap()]).code, 0);
}

/// With `owners=me` files are shown as one user's; what a stream says of owners goes to disk all the same.
#[test]
fn a_mount_whose_files_are_shown_as_mine_receives_owners() {
    require!(Fuse, Root);
    let images = Images::new("streams-owners");
    let owned = images.scratch.join("owned");
    std::fs::write(&owned, b"another's").unwrap();
    std::os::unix::fs::chown(&owned, Some(1234), Some(4321)).unwrap();
    images.put("owned", "/home/owned");
    images.snapshot("three");
    let stream = images.sent("stream", &[&images.from("/three")]);
    let place = Place::new("streams-owners-mount");
    place.mount("owners=me").done();
    run(["receive", "--quiet", "-f", &stream, place.point.to_str().unwrap()]).done();
    // A path that is not there is named as its user wrote it.
    let missing = target(&place.image, "/missing");
    run(["send", "-f", "/dev/null", &missing]).failed(1, &["disk.img:/missing: No such file"]);
    place.unmount().done();
    assert_eq!(look(&images.from("/three")), look(&target(&place.image, "/three")));
    let shown = run(["ls", "-l", &target(&place.image, "/three/owned")]).done().text();
    assert!(shown.contains(" 1234 4321 "), "{shown}");
}

/// What the kernel would keep of it, the next command would change.
#[test]
fn what_a_mount_is_receiving_is_hidden_until_it_is_whole() {
    require!(Fuse);
    let images = Images::new("streams-hidden");
    let place = Place::new("streams-hidden-mount");
    place.mount("rw").done();
    let full = std::fs::read(images.sent("full", &[&images.from("/one")])).unwrap();
    let mut receiver = vlinder();
    receiver.args(["receive", "--quiet"]).arg(&place.point).stdin(Stdio::piped());
    let mut receiver = receiver.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = receiver.stdin.take().unwrap();
    std::io::Write::write_all(&mut pipe, &full[..full.len() - 100]).unwrap();
    let is_listed = || tool("ls", ["-1", place.point.to_str().unwrap()]).contains("one.vlinder-partial");
    for _ in 0..500 {
        if is_listed() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(is_listed());
    let busy = Some(rustix::io::Errno::BUSY.raw_os_error());
    let name = place.at("one.vlinder-partial");
    assert_eq!(std::fs::metadata(&name).unwrap_err().raw_os_error(), busy);
    assert_eq!(std::fs::read(name.join("kept")).unwrap_err().raw_os_error(), busy);
    assert!(std::fs::rename(&name, place.at("other")).is_err());
    run([Path::new("subvolume"), "delete".as_ref(), &name]).failed(1, &[]);
    let point = place.point.to_str().unwrap();
    let whole = images.scratch.join("full");
    for words in [["receive", "-f", whole.to_str().unwrap(), point], ["receive", "--discard", "one", point]] {
        run(words).failed(1, &["\"one\" is being received right now", "wait"]);
    }
    std::io::Write::write_all(&mut pipe, &full[full.len() - 100..]).unwrap();
    drop(pipe);
    Ended::from(receiver.wait_with_output().unwrap()).done();
    assert!(!name.exists());
    assert_eq!(std::fs::read(place.at("one/kept")).unwrap(), vec![7; 300_000]);
    // One that is not whole goes on, or goes.
    let cut = images.scratch.join("cut");
    std::fs::write(&cut, &full[..full.len() - 100]).unwrap();
    std::fs::create_dir(place.at("second")).unwrap();
    let second = place.at("second");
    let second = second.to_str().unwrap();
    let ended =
        run(["receive", "-f", cut.to_str().unwrap(), second]).failed(1, &["cut off", "--discard one"]);
    assert!(!place.at("second/one").exists());
    let rest = images.sent("rest", &["--resume", &token_of(&ended), &images.from("/one")]);
    run(["receive", "--quiet", "-f", &rest, second]).done();
    assert_eq!(std::fs::read(place.at("second/one/kept")).unwrap(), vec![7; 300_000]);
    std::fs::create_dir(place.at("third")).unwrap();
    let third = place.at("third");
    let third = third.to_str().unwrap();
    run(["receive", "-f", cut.to_str().unwrap(), third]).failed(1, &["cut off"]);
    assert!(run(["receive", "--partial", third]).done().text().starts_with("one "));
    run(["receive", "--discard", "one", third]).done();
    assert_eq!(tool("ls", ["-A", third]), "");
    place.unmount().done();
}
