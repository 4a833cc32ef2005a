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
    run(["send", "--json", &one]).failed(2, &["-f FILE"]);
    // The parent is not there.
    let changes = images.sent("changes", &["-p", &one, &two]);
    images.receive(&changes).failed(1, &["no subvolume here was received from", "receive that one first"]);
    // A name that is taken.
    let full = images.sent("full", &[&one]);
    images.receive(&full).done();
    images.receive(&full).failed(1, &["one", "exists"]);
    images.file("empty", b"");
    images.receive(images.scratch.join("empty").to_str().unwrap()).failed(1, &["empty"]);
    images.file("other", b"something else that is no stream");
    images.receive(images.scratch.join("other").to_str().unwrap()).failed(1, &["no stream"]);
    run(["receive", "-f", &full, &images.to("/one/kept")]).failed(1, &["directory"]);
    run(["receive", "-f", &full, "-o", "ro", &images.to("/")]).failed(1, &["ro"]);
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
    run(["receive", "--discard", "one", &store]).failed(1, &["no subvolume that was received in part"]);
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
