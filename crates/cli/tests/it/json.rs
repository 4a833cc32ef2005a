//! The shape of every verb's JSON, compared with docs/json. `VLINDER_UPDATE=1` writes the files anew.

use std::path::{Path, PathBuf};

use crate::common::{make_image, run, target};
use serde_json::{Map, Value, json};
use vlinder_testkit::Scratch;

/// Types in place of values; of arrays the first element's.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("number"),
        Value::String(text) if text.starts_with("vlinder.") => json!(text),
        Value::String(_) => json!("string"),
        Value::Array(values) => Value::Array(values.first().map(shape).into_iter().collect()),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect::<Map<_, _>>(),
        ),
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json")
}

/// A verb's file, and its arguments.
fn calls(image: &Path, source: &Path) -> Vec<(&'static str, Vec<String>)> {
    let (root, path) = (target(image, "/"), image.display().to_string());
    let at = |path: &str| target(image, path);
    let stream = source.with_extension("stream").display().to_string();
    let source = source.display().to_string();
    let call =
        |name: &'static str, words: &[&str]| (name, words.iter().map(|word| (*word).to_owned()).collect());
    vec![
        call("mkdir", &["mkdir", &at("/d")]),
        call("cp", &["cp", &source, &at("/f")]),
        call("ln", &["ln", "-s", "f", &at("/link")]),
        call("ls", &["ls", "-l", &root]),
        call("stat", &["stat", &at("/link")]),
        call("tree", &["tree", &root]),
        call("mv", &["mv", &at("/f"), &at("/d/")]),
        call("rm", &["rm", &at("/d/f")]),
        call("subvolume-create", &["subvolume", "create", &at("/s")]),
        call("subvolume-snapshot", &["subvolume", "snapshot", "-r", &at("/s"), &at("/t")]),
        call("send", &["send", "-f", &stream, &at("/t")]),
        call("receive", &["receive", "-f", &stream, &at("/d")]),
        call("subvolume-list", &["subvolume", "list", &path]),
        call("subvolume-show", &["subvolume", "show", &at("/s")]),
        call("subvolume-set-default", &["subvolume", "set-default", "5", &path]),
        call("subvolume-get-default", &["subvolume", "get-default", &path]),
        call("subvolume-delete", &["subvolume", "delete", &at("/s")]),
        call("subvolume-sync", &["subvolume", "sync", &path]),
        call("filesystem-sync", &["filesystem", "sync", &path]),
        call("fstrim", &["fstrim", &path]),
        call("filesystem-df", &["filesystem", "df", &path]),
        call("filesystem-usage", &["filesystem", "usage", &path]),
        call("filesystem-du", &["filesystem", "du", &at("/d"), &at("/t")]),
        call("filesystem-label", &["filesystem", "label", &path]),
        call("property-get", &["property", "get", &path, "label"]),
        call("property-set", &["property", "set", &path, "label", "x"]),
        call("property-list", &["property", "list", &path]),
        call("inspect-internal-dump-super", &["inspect-internal", "dump-super", &path]),
        call("inspect-internal-rootid", &["inspect-internal", "rootid", &path]),
        call("inspect-internal-inode-resolve", &["inspect-internal", "inode-resolve", "257", &path]),
        call("inspect-internal-tree-stats", &["inspect-internal", "tree-stats", &path]),
        call("error", &["filesystem", "label", "/nowhere/disk.img:/"]),
    ]
}

fn compare(name: &str, value: &Value) {
    let file = directory().join(format!("{name}.json"));
    let found = format!("{}\n", serde_json::to_string_pretty(&shape(value)).unwrap());
    if std::env::var_os("VLINDER_UPDATE").is_some() {
        std::fs::write(&file, found).unwrap();
        return;
    }
    let expected =
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(
        found, expected,
        "{name}: if the change is meant, raise the schema's number and run with VLINDER_UPDATE=1"
    );
}

#[test]
fn every_verb_keeps_the_shape_of_its_json() {
    let scratch = Scratch::new("json");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    std::fs::write(&source, b"content").unwrap();
    let made = run(["--json", "mkfs", "-b", "128M", image.to_str().unwrap()]).done();
    compare("mkfs", &made.json());
    for (name, arguments) in calls(&image, &source) {
        let ended = run(std::iter::once("--json".to_owned()).chain(arguments));
        assert_eq!(ended.code, i32::from(name == "error"), "{name}: {}", ended.err);
        compare(name, &ended.json());
    }
}

#[test]
fn extents_and_who_refers_to_them_have_their_shapes() {
    let scratch = Scratch::new("json-extents");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    make_image(&image);
    std::fs::write(&source, vec![7; 100_000]).unwrap();
    run(["cp", source.to_str().unwrap(), &target(&image, "/f")]).done();
    let map = run(["--json", "filemap", &target(&image, "/f")]).done().json();
    compare("filemap", &map);
    compare("dedupe", &run(["--json", "dedupe", &target(&image, "/")]).done().json());
    let address = map["files"][0]["extents"][0]["logical_bytes"].to_string();
    let words = ["--json", "inspect-internal", "logical-resolve", &address, &target(&image, "/")];
    compare("inspect-internal-logical-resolve", &run(words).done().json());
}

#[test]
fn findings_have_their_shape() {
    use std::os::unix::fs::FileExt;
    let scratch = Scratch::new("json-check");
    let image = scratch.join("disk.img");
    make_image(&image);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], 64 << 20).unwrap();
    compare("check", &run(["--json", "check", image.to_str().unwrap()]).done().json());
}

#[test]
fn what_is_restored_and_lost_has_its_shape() {
    use std::os::unix::fs::FileExt;
    let scratch = Scratch::new("json-restore");
    let (image, source, out) = (scratch.join("disk.img"), scratch.join("source"), scratch.join("out"));
    make_image(&image);
    let content: Vec<u8> = (0..16384_u32).map(|position| (position % 251) as u8).collect();
    std::fs::write(&source, &content).unwrap();
    run(["cp", source.to_str().unwrap(), &target(&image, "/f")]).done();
    std::fs::create_dir(&out).unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let place = bytes.chunks_exact(4096).position(|sector| sector == &content[..4096]).unwrap();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 4096], place as u64 * 4096).unwrap();
    let words = ["--json", "restore", image.to_str().unwrap(), out.to_str().unwrap()];
    let ended = run(words);
    assert_eq!(ended.code, 3, "{}", ended.err);
    compare("restore", &ended.json());
}

#[test]
fn what_is_told_of_streams_has_its_shapes() {
    use vlinder_format::{Generation, Uuid};
    use vlinder_stream::wire::{Command, Protocol, Snapshot, StreamWriter};
    let scratch = Scratch::new("json-stream");
    let (stream, out) = (scratch.join("stream"), scratch.join("out"));
    let (uuid, transid) = (Uuid([1; 16]), Generation(1));
    let (parent_uuid, parent_transid) = (Uuid([2; 16]), transid);
    let mut writer = StreamWriter::new(std::fs::File::create(&stream).unwrap(), Protocol::V1);
    writer.begin().unwrap();
    let commands = [
        Command::Snapshot(Snapshot { path: b"s", uuid, transid, parent_uuid, parent_transid }),
        Command::Symlink { path: b"a", inode: None, target: b"b" },
        Command::SetOwner { path: b"a", uid: 12_345, gid: 12_345 },
        Command::End,
    ];
    commands.iter().for_each(|command| writer.put(command).unwrap());
    writer.flush().unwrap();
    std::fs::create_dir(&out).unwrap();
    let (stream, out) = (stream.to_str().unwrap(), out.to_str().unwrap());
    for (name, words) in [
        ("stream-ls", &["--json", "stream", "ls", "-l", stream][..]),
        ("stream-verify", &["--json", "stream", "verify", stream]),
        ("stream-extract", &["--json", "stream", "extract", stream, "-C", out]),
    ] {
        let ended = run(words);
        assert_eq!(ended.code, if name == "stream-extract" { 3 } else { 0 }, "{}", ended.err);
        compare(name, &ended.json());
    }
}

#[test]
fn statistics_have_one_object_for_each_metric() {
    let scratch = Scratch::new("json-stats");
    let image = scratch.join("disk.img");
    make_image(&image);
    let json = run(["--json", "stats", image.to_str().unwrap()]).done().json();
    assert_eq!(json["schema"], "vlinder.stats/1");
    let metrics = json["metrics"].as_object().unwrap();
    assert!(
        metrics.len() > 10
            && metrics.values().all(|metric| metric["unit"].is_string() && !metric["value"].is_null())
    );
    let text = run(["stats", "--openmetrics", image.to_str().unwrap()]).done().text();
    assert!(text.starts_with("# TYPE vlinder_") && text.ends_with("# EOF\n"));
}

#[test]
fn statistics_tell_what_was_bad_and_healed_on_each_device() {
    let scratch = Scratch::new("json-healing");
    let image = scratch.join("disk.img");
    make_image(&image);
    let count = |name: &str| {
        let json = run(["--json", "stats", image.to_str().unwrap()]).done().json();
        json["metrics"][name]["value"]["1"].as_u64().unwrap()
    };
    let counts = ["device.corruption_errors", "device.healed", "device.rewritten", "device.stood_in"];
    assert_eq!(counts.map(count), [0; 4]);
    // The first copy of the root tree's root block, by its address and the file system's UUID.
    let mut bytes = std::fs::read(&image).unwrap();
    let (uuid, root) = (bytes[65536 + 32..65536 + 48].to_vec(), bytes[65536 + 80..65536 + 88].to_vec());
    let is_root = |at: &usize| bytes[at + 32..at + 48] == uuid && bytes[at + 48..at + 56] == root;
    let first = (0..bytes.len()).step_by(4096).find(is_root).unwrap();
    bytes[first + 200] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    // A verb that only reads rewrites nothing, so each opening finds it again.
    for _ in 0..2 {
        assert_eq!(counts.map(count), [1, 1, 0, 1]);
    }
    let text = run(["stats", image.to_str().unwrap()]).done().text();
    assert!(text.contains("device.healed (device 1): 1\n"), "{text}");
}

#[test]
fn each_target_that_fails_has_an_error_of_the_usual_form() {
    let scratch = Scratch::new("json-errors");
    let image = scratch.join("disk.img");
    make_image(&image);
    let at = |path: &str| target(&image, path);
    run(["mkdir", &at("/there")]).done();
    let (there, missing) = (at("/there"), at("/missing"));
    let calls: [&[&str]; 8] = [
        &["ls", &there, &missing],
        &["stat", &there, &missing],
        &["tree", &there, &missing],
        &["cp", "-r", &there, &missing, &at("/")],
        &["mv", &there, &missing, &at("/")],
        &["rm", "-r", &missing],
        &["mkdir", &there],
        &["subvolume", "create", &at("/missing/below")],
    ];
    for call in calls {
        let ended = run(std::iter::once("--json").chain(call.iter().copied()));
        assert!([1, 3].contains(&ended.code), "{call:?}: {}", ended.err);
        let json = ended.json();
        let errors = json["errors"].as_array().unwrap_or_else(|| panic!("{call:?}: {json}"));
        assert!(!errors.is_empty(), "{call:?}: {json}");
        for error in errors {
            let fields: Vec<&String> = error.as_object().unwrap().keys().collect();
            assert_eq!(fields, ["hint", "kind", "message", "place"], "{call:?}");
            assert!(error["kind"].is_string() && error["message"].is_string(), "{call:?}: {error}");
        }
    }
    let json = run(["--json", "ls", &missing]).failed(1, &[&missing]).json();
    assert_eq!(
        (&json["errors"][0]["kind"], &json["errors"][0]["place"]),
        (&json!("not-found"), &json!(missing))
    );
}

/// A file in two snapshots, of which all that can differ does.
fn changed_in_everything(image: &Path) {
    use vlinder_fs::{AttributeMode, Caller, Filesystem, GroupId, InodeFlags, OpenOptions, RenameMode};
    use vlinder_fs::{RootId, SetAttributes, UserId};
    let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    let (names, attributes, subvolumes) =
        (filesystem.names(), filesystem.attributes(), filesystem.subvolumes());
    let file = names.create_file(&caller, &root, b"old", 0o600).unwrap();
    names.link(&caller, &file, &root, b"gone").unwrap();
    filesystem.files().write_at(&caller, &file, 0, vec![7; 9000].into()).unwrap();
    subvolumes.snapshot(&caller, RootId::FS_TREE, &root, b"one", true).unwrap();
    filesystem.files().write_at(&caller, &file, 0, vec![8; 20_000].into()).unwrap();
    let changes = SetAttributes {
        permissions: Some(0o640),
        user: Some(UserId(5)),
        group: Some(GroupId(6)),
        ..SetAttributes::default()
    };
    attributes.set(&caller, &file, &changes).unwrap();
    let mode = AttributeMode::Either;
    attributes.set_extended_attribute(&caller, &file, b"user.name", b"value", mode).unwrap();
    attributes.set_flags(&caller, &file, file.flags().with(InodeFlags::NODUMP)).unwrap();
    names.rename(&caller, &root, b"old", &root, b"new", RenameMode::Replace).unwrap();
    names.link(&caller, &file, &root, b"third").unwrap();
    names.unlink(&caller, &root, b"gone").unwrap();
    names.link(&caller, &file, &root, b"fourth").unwrap();
    subvolumes.snapshot(&caller, RootId::FS_TREE, &root, b"two", true).unwrap();
    drop((file, root));
    filesystem.close().unwrap();
}

#[test]
fn changes_and_new_extents_have_their_shapes() {
    let scratch = Scratch::new("json-diff");
    let image = scratch.join("disk.img");
    make_image(&image);
    changed_in_everything(&image);
    let text = run(["--json", "diff", &target(&image, "/one"), ":/two"]).done().text();
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let renamed = objects.into_iter().find(|object| object["change"] == "renamed").unwrap();
    compare("diff", &renamed);
    let words = ["--json", "diff", "--stat", &target(&image, "/one"), ":/two"];
    compare("diff-stat", &run(words).done().json());
    let words = ["--json", "subvolume", "find-new", &target(&image, "/two"), "0"];
    compare("subvolume-find-new", &run(words).done().json());
}
