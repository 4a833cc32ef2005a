//! Subvolumes, the label and properties on images, as the kernel sees them afterwards.

use std::path::PathBuf;

use crate::common::{make_image, run, target, tool};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    make_image(&image);
    image
}

#[test]
fn subvolumes_are_made_snapshotted_and_deleted_and_linux_agrees() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("subvolumes");
    let image = image(&scratch);
    let at = |path: &str| target(&image, path);
    let path = image.to_str().unwrap();
    std::fs::write(scratch.join("file"), vec![5; 300_000]).unwrap();
    let file = scratch.join("file");
    let file = file.to_str().unwrap();
    run(["subvolume", "create", &at("/home"), &at("/other")]).done();
    run(["cp", file, &at("/home/")]).done();
    run(["subvolume", "snapshot", "-r", &at("/home"), &at("/monday")]).done();
    run(["subvolume", "snapshot", &at("/home"), &at("/other")]).done();
    run(["rm", &at("/home/file")]).done();
    run(["mkdir", &at("/monday/new")]).failed(1, &["read-only"]);
    run(["subvolume", "delete", &at("/home")]).done();
    run(["subvolume", "delete", &at("/monday/file")]).failed(1, &["not a subvolume"]);
    let mut listed = Vec::new();
    for line in run(["subvolume", "list", path]).done().text().lines() {
        listed.push(line.split_whitespace().last().unwrap().to_owned());
    }
    assert_eq!(listed, ["other", "monday", "other/home"]);
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    for place in ["monday/file", "other/home/file"] {
        assert_eq!(std::fs::read(mount.path().join(place)).unwrap(), vec![5; 300_000]);
    }
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let theirs = tool("btrfs", ["subvolume", "list", "-pcguqR", mount.path().to_str().unwrap()]);
    let monday = mount.path().join("monday");
    assert_eq!(tool("btrfs", ["property", "get", monday.to_str().unwrap()]), "ro=true\n");
    mount.unmount().unwrap();
    assert_eq!(run(["subvolume", "list", "-pcguqR", path]).done().text(), theirs);
}

#[test]
fn the_default_subvolume_is_what_is_shown_and_not_deleted() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("default");
    let image = image(&scratch);
    let path = image.to_str().unwrap();
    assert_eq!(run(["subvolume", "get-default", path]).done().text(), "ID 5 (FS_TREE)\n");
    run(["subvolume", "create", &target(&image, "/root")]).done();
    run(["subvolume", "set-default", &target(&image, "/root")]).done();
    run(["mkdir", &target(&image, "/below")]).done();
    run(["subvolume", "delete", "-i", "256", path]).failed(1, &["it is the default subvolume"]);
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(mount.path().join("below").is_dir());
    let theirs = tool("btrfs", ["subvolume", "get-default", mount.path().to_str().unwrap()]);
    mount.unmount().unwrap();
    assert_eq!(run(["subvolume", "get-default", path]).done().text(), theirs);
    run(["subvolume", "set-default", "5", path]).done();
    run(["subvolume", "delete", "-i", "256", path]).done();
    assert_eq!(run(["ls", "-A", &target(&image, "/")]).done().text(), "");
    btrfs_check_data(&image).unwrap();
}

#[test]
fn the_label_and_properties_are_kept() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("properties");
    let image = image(&scratch);
    let path = image.to_str().unwrap();
    run(["filesystem", "label", path, "a label"]).done();
    assert_eq!(run(["filesystem", "label", path]).done().text(), "a label\n");
    assert_eq!(run(["property", "get", path, "label"]).done().text(), "label=a label\n");
    run(["filesystem", "label", path, &"x".repeat(256)]).failed(1, &[path]);
    run(["subvolume", "create", &target(&image, "/sub")]).done();
    run(["property", "set", &target(&image, "/sub"), "compression", "zstd"]).done();
    run(["property", "set", &target(&image, "/sub"), "ro", "true"]).done();
    run(["mkdir", &target(&image, "/sub/x")]).failed(1, &["read-only"]);
    run(["property", "set", &target(&image, "/sub"), "ro", "perhaps"]).failed(2, &["true or false"]);
    run(["property", "get", &target(&image, "/sub"), "label"]).failed(1, &["can't have the property label"]);
    assert_eq!(
        run(["property", "get", &target(&image, "/sub")]).done().text(),
        "ro=true\ncompression=zstd\n"
    );
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let sub = mount.path().join("sub");
    assert_eq!(tool("btrfs", ["property", "get", sub.to_str().unwrap()]), "ro=true\ncompression=zstd\n");
    assert_eq!(tool("btrfs", ["filesystem", "label", mount.path().to_str().unwrap()]), "a label\n");
    mount.unmount().unwrap();
}

#[test]
fn space_is_told_as_btrfs_progs_tells_it() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("space");
    let image = image(&scratch);
    std::fs::write(scratch.join("file"), vec![5; 5_000_000]).unwrap();
    run(["cp", scratch.join("file").to_str().unwrap(), &target(&image, "/")]).done();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let device = mount.device().to_str().unwrap().to_owned();
    let mounted = mount.path().to_str().unwrap().to_owned();
    let facts = |text: String| {
        let text = text.replace(&device, "X").replace(image.to_str().unwrap(), "X");
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let calls: [&[&str]; 6] = [
        &["df", "-b"],
        &["df"],
        &["usage", "-b"],
        &["usage"],
        &["usage", "-T", "-b"],
        &["--format", "json", "df"],
    ];
    let words = |call: &[&str], path: &str| -> Vec<String> {
        let words = ["filesystem"].iter().chain(call).chain([&path]);
        let (flags, rest): (Vec<&str>, Vec<&str>) =
            words.copied().partition(|word| ["--format", "json"].contains(word));
        flags.into_iter().chain(rest).map(str::to_owned).collect()
    };
    let theirs: Vec<_> = calls.iter().map(|call| facts(tool("btrfs", words(call, &mounted)))).collect();
    mount.unmount().unwrap();
    for (call, theirs) in calls.iter().zip(theirs) {
        let ours = facts(run(words(call, image.to_str().unwrap())).done().text());
        // Mounted for reading alone, as here, Linux has no space to offer.
        let skip = |lines: Vec<String>| {
            let skipped = ["Free (statfs", "-- -"];
            lines
                .into_iter()
                .filter(|line| !skipped.iter().any(|head| line.starts_with(head)))
                .collect::<Vec<_>>()
        };
        assert_eq!(skip(ours), skip(theirs), "{call:?}");
    }
    run(["--format", "json", "filesystem", "usage", image.to_str().unwrap()])
        .failed(2, &["output format 'json' is unsupported"]);
    let ours = run(["filesystem", "usage", "-T", image.to_str().unwrap()]).done().text();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let theirs = tool("btrfs", ["filesystem", "usage", "-T", mount.path().to_str().unwrap()]);
    // Blanks included, behind the columns of the device's number and name.
    let shape = |text: &str, device: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.is_empty()).skip(1);
        lines.map(|line| line[3 + device.len()..].to_owned()).collect()
    };
    let device = mount.device().to_str().unwrap().to_owned();
    assert_eq!(shape(&ours, image.to_str().unwrap()), shape(&theirs, &device));
    mount.unmount().unwrap();
}

#[test]
fn a_subvolume_goes_with_those_in_it_where_that_is_wished() {
    let scratch = Scratch::new("subvolumes-recursive");
    let image = scratch.join("disk.img");
    make_image(&image);
    let at = |path: &str| target(&image, path);
    for path in ["/top", "/top/one", "/top/one/two", "/beside"] {
        run(["subvolume", "create", &at(path)]).done();
    }
    run(["mkdir", &at("/top/one/directory")]).done();
    run(["subvolume", "create", &at("/top/one/directory/three")]).done();
    run(["subvolume", "delete", &at("/top")]).failed(1, &["top"]);
    let said = run(["subvolume", "delete", "-R", &at("/top")]).done().text();
    assert!(said.contains("(commit)") && said.contains(&at("/top")), "{said}");
    let left = run(["subvolume", "list", &at("/")]).done().text();
    assert_eq!(left.lines().map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>(), ["beside"]);
    run(["check", image.to_str().unwrap()]).done();
}

#[test]
fn none_goes_where_one_is_known_to_stay() {
    let scratch = Scratch::new("subvolumes-staying");
    let image = scratch.join("disk.img");
    make_image(&image);
    let at = |path: &str| target(&image, path);
    let all = ["/top", "/top/one", "/top/one/two", "/top/three"];
    for path in all {
        run(["subvolume", "create", &at(path)]).done();
    }
    let shown = |options: &[&str]| {
        let root = at("/");
        run([&["subvolume", "list"], options, &[&root]].concat()).done().text()
    };
    let before = shown(&["--options", "subvolid=5"]);
    assert_eq!(before.lines().count(), all.len());
    let delete = ["subvolume", "delete", "-R", "-o", "subvolid=5"];
    let refused = |target: &str, words: &[&str]| {
        run([&delete[..], &[target]].concat()).failed(1, words);
        assert_eq!(shown(&["--options", "subvolid=5"]), before);
    };
    refused(&at("/"), &["top level", "name a subvolume in it"]);
    run(["subvolume", "delete", "-R", "-i", "5", &at("/")]).failed(1, &["top level"]);
    // The one that is shown lies in it.
    run(["subvolume", "delete", "-R", "-o", "subvolid=257", "-i", "256", &at("/")])
        .failed(1, &["nothing was deleted", "top/one", "shown"]);
    for default in ["/top/one", "/top"] {
        run(["subvolume", "set-default", "-o", "subvolid=5", &at(default)]).done();
        refused(&at("/top"), &["nothing was deleted", &default[1..], "default"]);
    }
    run(["subvolume", "set-default", "-o", "subvolid=5", "5", &at("/")]).done();
    run([&delete[..], &[&at("/top")]].concat()).done();
    assert_eq!(shown(&[]), "");
    run(["check", image.to_str().unwrap()]).done();
}
