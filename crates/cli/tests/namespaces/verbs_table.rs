//! The table of verbs and users in docs/design/rights.md: its command lines are run as it says (row T1).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::alone;
use crate::common::{self, Ended, run, verbs_but, vlinder};
use crate::namespace::run_in_namespace;
use crate::place::Place;
use vlinder_testkit::require;

const STRANGER: &str = "--reuid=54321";
/// Verbs that do not work on a mount, as the page says.
const ELSEWHERE: [&str; 4] = ["mkfs", "restore", "generate", "stream"];

/// The page; the tests of a process read it a few times.
fn page() -> &'static str {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/rights.md");
    std::fs::read_to_string(path).unwrap().leak()
}

/// The rows of the page's table of verbs, without its head.
fn table() -> Vec<Vec<&'static str>> {
    let lines = page().lines().skip_while(|line| !line.starts_with("| verb |"));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect()
}

/// What a user reads of how a verb ended, by the page's words.
fn kind_of(ended: &Ended) -> String {
    let said = ended.err.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if ended.code == 0 {
        "done".to_owned()
    } else if says(&["read-only"]) {
        "read-only".to_owned()
    } else if says(&["permission denied", "not permitted", "only root and the one", "only root, the one"]) {
        "permission".to_owned()
    } else if says(&["no file data lie there"]) {
        "not-found".to_owned()
    } else {
        format!("{} {}", ended.code, ended.err)
    }
}

/// What all rows of a new mount come to.
fn outcomes(is_stranger: bool, allow_other: bool, is_read_only: bool) -> Vec<String> {
    let place = Place::new("verbs-table");
    std::fs::set_permissions(place.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&place.image, PermissionsExt::from_mode(0o600)).unwrap();
    // Where other users can run it.
    let program = place.scratch.join("vlinder");
    std::fs::copy(vlinder().get_program(), &program).unwrap();
    place.mount(if allow_other { "rw,allow_other" } else { "rw" }).done();
    std::fs::create_dir(place.at("theirs")).unwrap();
    for (name, mode) in [("open", 0o644), ("theirs/open", 0o644), ("theirs/file", 0o600)] {
        std::fs::write(place.at(name), name).unwrap();
        std::fs::set_permissions(place.at(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    for name in ["theirs/sub", "theirs/victim"] {
        run([Path::new("subvolume"), Path::new("create"), &place.at(name)]).done();
    }
    let frozen = place.at("theirs/frozen");
    let words = ["subvolume", "snapshot", "-r"].map(Path::new);
    run(words.into_iter().chain([place.at("theirs/sub").as_path(), &frozen])).done();
    std::fs::create_dir(place.at("theirs/inbox")).unwrap();
    let stream = place.scratch.join("stream");
    run([Path::new("send"), Path::new("-q"), Path::new("-f"), &stream, &frozen]).done();
    std::fs::set_permissions(&stream, PermissionsExt::from_mode(0o644)).unwrap();
    let (image, point) = (place.image.to_str().unwrap(), place.point.to_str().unwrap());
    let stream = stream.to_str().unwrap();
    if is_read_only {
        run(["mount", "-o", "remount,ro", image, point]).done();
    }
    let run_row = |row: &Vec<&str>| {
        let mut command = Command::new("setpriv");
        if is_stranger {
            command.args([STRANGER, "--clear-groups"]);
        }
        command.arg("--").arg(&program);
        command.args(
            row[0]
                .split(' ')
                .map(|word| word.replace("MOUNT", point).replace("IMAGE", image).replace("STREAM", stream)),
        );
        kind_of(&common::end(&mut command))
    };
    table().iter().map(run_row).collect()
}

#[test]
fn each_verb_ends_for_each_user_as_the_table_says() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"));
    let columns = [
        ("root", false, true, false),
        ("stranger", true, true, false),
        ("no allow_other", true, false, false),
        ("ro: root", false, true, true),
        ("ro: stranger", true, true, true),
    ];
    let table = table();
    let mut differences = Vec::new();
    for (index, (column, is_stranger, allow_other, is_read_only)) in columns.into_iter().enumerate() {
        for (row, found) in table.iter().zip(outcomes(is_stranger, allow_other, is_read_only)) {
            if found != row[index + 1] {
                differences.push(format!("{column}: {}: {found}, on the page {}", row[0], row[index + 1]));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// An ordinary user's mount with the same files, each request of `$1` by the user that is set.
const ON_A_USERS_MOUNT: &str = r#"
chmod 600 disk.img
as_user ./vlinder mount -o "$OPTIONS" disk.img point
as_user sh -c 'mkdir point/theirs; for name in open theirs/open theirs/file; do echo x > point/$name; done'
as_user sh -c 'for name in sub victim; do ./vlinder subvolume create point/theirs/$name; done' >/dev/null
as_user sh -c './vlinder subvolume snapshot -r point/theirs/sub point/theirs/frozen; mkdir point/theirs/inbox' >/dev/null
as_user ./vlinder send -q point/theirs/frozen >stream
chmod() { as_user chmod "$@"; }
chmod 600 point/theirs/file
set +e
echo "$LINES_" | while read -r line; do
    case $ASKED in
        root) ./vlinder $line ;;
        *) "as_$ASKED" ./vlinder $line ;;
    esac </dev/null >said 2>&1
    echo "$? $(tr '\n' ' ' <said)"
done
as_user ./vlinder umount point >/dev/null 2>&1 || umount -l point 2>/dev/null
"#;

/// What all rows of a new mount of an ordinary user's come to.
fn outcomes_of_users(asked: &str, options: &str) -> Vec<String> {
    let absolute = |line: &str| {
        let line = line.replace("MOUNT", "/tmp/point").replace("IMAGE", "/tmp/disk.img");
        line.replace("STREAM", "/tmp/stream")
    };
    let lines: Vec<String> = table().iter().map(|row| absolute(row[0])).collect();
    let environment = [("ASKED", asked), ("OPTIONS", options), ("LINES_", &lines.join("\n"))];
    let ended = run_in_namespace(ON_A_USERS_MOUNT, &environment);
    let text = ended.text();
    let outcome = |line: &str| {
        let (code, said) = line.split_once(' ').unwrap();
        kind_of(&Ended { code: code.parse().unwrap(), out: Vec::new(), err: said.to_owned() })
    };
    let outcomes: Vec<String> = text.lines().map(outcome).collect();
    assert_eq!(outcomes.len(), lines.len(), "{text}{}", ended.err);
    outcomes
}

#[test]
fn each_verb_on_a_users_mount_ends_as_the_table_says() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    let columns = [
        ("theirs: its user", "user", "owners=me"),
        ("theirs: root", "root", "owners=me,allow_other"),
        ("theirs: root, no allow_other", "root", "owners=me"),
        ("theirs: stranger", "stranger", "owners=me,allow_other"),
    ];
    let (table, before) = (table(), 6);
    let mut differences = Vec::new();
    for (index, (column, asked, options)) in columns.into_iter().enumerate() {
        for (row, found) in table.iter().zip(outcomes_of_users(asked, options)) {
            let expected = row.get(before + index).copied().unwrap_or("no cell");
            if found != expected {
                differences.push(format!("{column}: {}: {found}, on the page {expected}", row[0]));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn no_verb_is_without_a_row() {
    let _alone = alone();
    let known = verbs_but(&ELSEWHERE);
    let lines: Vec<&str> = table().into_iter().map(|row| row[0]).collect();
    let has_row = |verb: &&String| lines.iter().any(|line| line.starts_with(&format!("{verb} ")));
    let without: Vec<&String> = known.iter().filter(|verb| !has_row(verb)).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn a_writer_of_a_directory_removes_files_it_may_not_read() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"));
    let place = Place::new("unreadable");
    std::fs::set_permissions(place.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = place.scratch.join("vlinder");
    std::fs::copy(vlinder().get_program(), &program).unwrap();
    place.mount("allow_other").done();
    let (directory, file) = (place.at("mine"), place.at("mine/locked"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&file, "root's").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&directory, Some(54_321), None).unwrap();
    let mut command = Command::new("setpriv");
    command.args([STRANGER, "--clear-groups", "--"]).arg(&program).arg("rm").arg(&file);
    common::end(&mut command).done();
    assert!(!file.exists());
    place.unmount().done();
}
