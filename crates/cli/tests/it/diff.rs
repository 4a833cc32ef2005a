//! `diff`: its lines, between snapshots of an image and of a mount.

use std::path::PathBuf;

use crate::common::{make_image, run, target};
use crate::place::Place;
use vlinder_testkit::{Scratch, require};

/// An image with the snapshots `one` and `two` of `home`.
struct Home {
    image: PathBuf,
    scratch: Scratch,
}

impl Home {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let home = Self { image: scratch.join("disk.img"), scratch };
        make_image(&home.image);
        run(["subvolume", "create", &home.at("/home")]).done();
        for directory in ["/home/kept", "/home/moved", "/home/moved/below"] {
            run(["mkdir", &home.at(directory)]).done();
        }
        for (name, bytes) in [("a", 100), ("b", 9000), ("gone", 10), ("twice", 20), ("moved/below/deep", 30)]
        {
            home.put(&vec![7; bytes], &format!("/home/{name}"));
        }
        home
    }

    fn at(&self, path: &str) -> String {
        target(&self.image, path)
    }

    fn put(&self, bytes: &[u8], path: &str) {
        let file = self.scratch.join("file");
        std::fs::write(&file, bytes).unwrap();
        run(["cp", file.to_str().unwrap(), &self.at(path)]).done();
    }

    fn snapshot(&self, name: &str) {
        run(["subvolume", "snapshot", "-r", &self.at("/home"), &self.at(name)]).done();
    }

    /// One of each kind.
    fn change(&self) {
        run(["mv", &self.at("/home/moved"), &self.at("/home/kept/there")]).done();
        run(["rm", &self.at("/home/gone")]).done();
        run(["ln", &self.at("/home/twice"), &self.at("/home/second")]).done();
        // cp changes the content of the file that is there.
        let mut bytes = vec![7; 9000];
        bytes[5000] = 8;
        self.put(&bytes, "/home/b");
        self.put(b"new", "/home/new");
        self.put(b"other", "/home/other");
        run(["mv", &self.at("/home/other"), &self.at("/home/a")]).done();
        run(["ln", "-s", "nowhere", &self.at("/home/link")]).done();
    }

    fn diff(&self, flags: &[&str]) -> String {
        let old = self.at("/one");
        let words = [&["diff"], flags, &[&old, ":/two"]].concat();
        run(words).done().text()
    }
}

#[test]
fn each_kind_of_change_has_its_line() {
    let home = Home::new("diff");
    home.snapshot("/one");
    home.change();
    home.snapshot("/two");
    let lines = home.diff(&["--no-times"]);
    let expected = [
        "renamed  moved -> kept/there",
        "changed  b: content 4096 bytes",
        "removed  gone (10 bytes)",
        "changed  twice: names +second",
        "added    new (3 bytes)",
        "replaced a: content 5 bytes, size 100 -> 5",
        "added    link (symlink)",
    ];
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected, "{lines}");
    let all = home.diff(&[]);
    assert!(all.contains("\nchanged  kept: times\n") && all.starts_with("changed  .: times\n"), "{all}");
    let stat = home.diff(&["--stat"]);
    let expected = "files:       2 added, 1 removed, 0 renamed, 1 replaced, 2 changed, 0 of times alone\n\
                    directories: 0 added, 0 removed, 1 renamed, 0 replaced, 0 changed, 2 of times alone\n\
                    bytes:       3 added, 105 removed, 4101 changed\n";
    assert_eq!(stat, expected);
    // The other way round, and a subvolume that is written.
    let back = run(["diff", "--no-times", &home.at("/home"), &home.at("/one")]).done().text();
    assert!(back.contains("added    gone (10 bytes)\n") && back.contains("kept/there -> moved\n"), "{back}");
    assert_eq!(run(["diff", &home.at("/home"), ":/two"]).done().text(), "");
}

#[test]
fn json_is_an_object_for_each_change() {
    let home = Home::new("diff-json");
    home.snapshot("/one");
    home.change();
    home.snapshot("/two");
    let text = home.diff(&["--json"]);
    let objects: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 9, "{text}");
    assert!(objects.iter().all(|object| object["schema"] == "vlinder.diff/1"));
    let find = |path: &str| objects.iter().find(|object| object["path"] == path).unwrap();
    assert_eq!(find("kept/there")["old_path"], "moved");
    assert_eq!(find("kept/there")["change"], "renamed");
    assert_eq!(find("twice")["added_names"][0], "second");
    assert_eq!(find("b")["differences"]["changed_bytes"], 4096);
    assert_eq!(find("a")["differences"]["size_bytes"]["old"], 100);
    let summary: serde_json::Value = serde_json::from_str(&home.diff(&["--json", "--stat"])).unwrap();
    assert_eq!(summary["summary"]["files"]["added"], 2);
}

#[test]
fn what_makes_no_sense_is_refused_with_advice() {
    let home = Home::new("diff-refused");
    home.snapshot("/one");
    run(["diff", &home.at("/one"), ":/home/kept"]).failed(1, &["not a subvolume"]);
    run(["diff", &home.at("/one"), ":/nowhere"]).failed(1, &["/nowhere"]);
    run(["diff", &home.at("/one"), "/one"]).failed(1, &["in the image of the first target is written :/one"]);
    run(["diff", "/nowhere", ":/one"]).failed(2, &["IMAGE:/PATH"]);
    let other = home.scratch.join("other.img");
    make_image(&other);
    run(["diff", &home.at("/one"), &target(&other, "/")])
        .failed(1, &["another file system", "two subvolumes"]);
}

#[test]
fn what_a_mount_has_not_committed_is_told() {
    require!(Fuse);
    let place = Place::new("diff-mount");
    place.mount("commit=300").done();
    let at = |path: &str| place.at(path).to_str().unwrap().to_owned();
    run(["subvolume", "create", &at("home")]).done();
    std::fs::write(place.at("home/file"), vec![1; 8192]).unwrap();
    run(["subvolume", "snapshot", "-r", &at("home"), &at("one")]).done();
    std::fs::write(place.at("home/new"), b"abc").unwrap();
    std::fs::write(place.at("home/file"), vec![2; 8192]).unwrap();
    let expected = "changed  file: content 8192 bytes\nadded    new (3 bytes)\n";
    let told = |old: &str, new: &str| run(["diff", "--no-times", old, new]).done().text();
    assert_eq!(told(&at("one"), &at("home")), expected);
    // The image that the mount holds, and both ways at once.
    assert_eq!(told(&target(&place.image, "/one"), ":/home"), expected);
    assert_eq!(told(&at("one"), &target(&place.image, "/home")), expected);
    place.unmount().done();
    assert_eq!(told(&target(&place.image, "/one"), ":/home"), expected);
}
