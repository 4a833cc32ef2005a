//! Streams of the kernel, listed, read and extracted without Btrfs, compared with the snapshots themselves.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::{Ended, end, run, tool, vlinder};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// In a subvolume: every kind of file and content.
const FIRST: &str = r#"
    mkdir -p 'd d/e' gone; echo small > inline; head -c 300000 /dev/urandom > random; : > empty
    yes | head -c 3000000 > yes; truncate -s 1g sparse; xfs_io -c 'pwrite -q 512m 64k' sparse
    head -c 1000000 /dev/urandom > punched; xfs_io -c 'fpunch 64k 128k' -c 'falloc -k 1m 1m' punched
    cp --reflink=always random clone; ln random 'd d/hard'; ln -s $'to \n there' link; mkfifo pipe
    mknod null c 1 3; echo x > $'odd\n\x01\xff'; echo away > gone/away; echo t > turned
    setfattr -n user.note -v 0x000aff random; setfattr -n trusted.t -v 1 inline
    chown 7:8 inline; chmod 6755 inline; chmod 1777 'd d'; chmod 700 'd d/e'
    touch -d '1999-09-09 09:09:09.123456789' yes 'd d'; touch -h -d '2001-01-01 01:01:01.5' link
    echo acl > acl; setfacl -m u:5:rw acl; setfacl -d -m u:5:rwx 'd d/e'; sync
"#;
/// And what is changed then.
const THEN: &str = r#"
    mv 'd d' 'e e'; rm -r gone; rm turned; mkdir turned; echo y > turned/y
    xfs_io -c 'pwrite -q 100k 70k' -c 'pwrite -q 290000 20k' random; truncate -s 1234567 yes
    xfs_io -c 'reflink random 0 64k 128k' punched >/dev/null; echo more >> inline
    yes no | head -c 500000 >> yes; setfattr -x user.note random; touch -d '2010-10-10 10:10:10.25' .; sync
"#;
/// Sizes of directories are each file system's own.
const WALK: &str = "find . -type d -printf '%P|%y|%#m|%U|%G|%T@\\n' -o -printf '%P|%y|%#m|%n|%U|%G|%s|%l|%T@\\n' \
    | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0r md5sum; \
    getfattr -hRd -m - . 2>/dev/null | LC_ALL=C sort; find . -type c -exec stat -c '%n %t %T' {} \\;";
/// What an ordinary user gets: no owners, devices, set-id bits of others, and attributes of that user alone.
const WALK_OF_USER: &str = "find . -type c -o -type d -printf '%P|%y|%#m|%T@\\n' \
    -o -name inline -printf '%P|%y|%n|%s|%T@\\n' -o -printf '%P|%y|%#m|%n|%s|%l|%T@\\n' \
    | LC_ALL=C sort; find . -type f -print0 | LC_ALL=C sort -z | xargs -0r md5sum; \
    getfattr -hRd -m '^user|^system' . 2>/dev/null | LC_ALL=C sort";

fn bash(directory: &Path, script: &str) -> String {
    let output = Command::new("bash").args(["-euc", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Has the kernel make two snapshots and send them by both versions of the stream; `look` sees the snapshots.
fn sent_by_linux(scratch: &Scratch, look: impl FnOnce(&Path)) {
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    tool("mkfs.btrfs", ["-q".as_ref(), image.as_os_str()]);
    let mount = KernelMount::new(&image, "compress=zstd").unwrap();
    bash(mount.path(), "btrfs subvolume create v >/dev/null");
    bash(&mount.path().join("v"), FIRST);
    bash(mount.path(), "btrfs subvolume snapshot -r v one >/dev/null");
    bash(&mount.path().join("v"), THEN);
    bash(mount.path(), "btrfs subvolume snapshot -r v two >/dev/null");
    for (name, flags) in [("1", ""), ("2", "--proto 2 --compressed-data")] {
        let path = |kind: &str| scratch.join(format!("{kind}{name}")).display().to_string();
        bash(mount.path(), &format!("btrfs send -q {flags} -f {} one", path("full")));
        bash(mount.path(), &format!("btrfs send -q {flags} -f {} -p one two", path("changes")));
        bash(scratch.path(), &format!("chmod 644 full{name} changes{name}"));
    }
    look(mount.path());
    mount.unmount().unwrap();
}

macro_rules! require_linux {
    () => {
        require!(KernelBtrfs, Root, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfattr"), Tool("setfacl"));
        require!(Tool("xfs_io"), Tool("setpriv"));
    };
}

fn extract(scratch: &Scratch, proto: &str, before: &mut Command) -> Ended {
    let [full, changes] = ["full", "changes"].map(|kind| scratch.join(format!("{kind}{proto}")));
    before.args(["stream", "extract", "--after"]).arg(full).arg(changes);
    end(before.arg("-C").arg(scratch.join(format!("out{proto}"))))
}

#[test]
fn what_root_extracts_is_the_snapshot() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-extract");
    let mut expected = String::new();
    sent_by_linux(&scratch, |mount| expected = bash(&mount.join("two"), WALK));
    for proto in ["1", "2"] {
        std::fs::create_dir(scratch.join(format!("out{proto}"))).unwrap();
        let ended = extract(&scratch, proto, vlinder().args(["--json"]));
        assert_eq!(ended.code, 3, "{ended:?}");
        assert_eq!(ended.json()["left_out"]["devices"], 1, "{ended:?}");
        std::fs::remove_dir_all(scratch.join(format!("out{proto}/two"))).unwrap();
        let [full, changes] = ["full", "changes"].map(|kind| scratch.join(format!("{kind}{proto}")));
        let mut command = vlinder();
        command.args(["stream", "extract", "--all", "--after"]).arg(full).arg(changes);
        end(command.arg("-C").arg(scratch.join(format!("out{proto}")))).done();
        let two = scratch.join(format!("out{proto}/two"));
        assert_eq!(bash(&two, WALK), expected, "version {proto}");
        let sparse = std::fs::metadata(two.join("sparse")).unwrap();
        assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes: {} blocks", sparse.blocks());
    }
}

#[test]
fn a_user_extracts_all_but_what_is_others() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-extract-user");
    let mut expected = String::new();
    sent_by_linux(&scratch, |mount| expected = bash(&mount.join("two"), WALK_OF_USER));
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = scratch.join("vlinder");
    std::fs::copy(vlinder().get_program(), &program).unwrap();
    for proto in ["1", "2"] {
        let out = scratch.join(format!("out{proto}"));
        std::fs::create_dir(&out).unwrap();
        std::os::unix::fs::chown(&out, Some(54321), Some(54321)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups", "--"]).arg(&program);
        let ended = extract(&scratch, proto, &mut command);
        let words =
            ["left out: the owner of", "1 device", "1 extended attribute", "root extracts all with --all"];
        let ended = ended.failed(3, &words);
        assert!(ended.text().contains("files extracted"), "{ended:?}");
        let two = out.join("two");
        assert_eq!(bash(&two, WALK_OF_USER), expected, "version {proto}");
        let inline = std::fs::metadata(two.join("inline")).unwrap();
        assert_eq!((inline.mode() & 0o7777, inline.uid()), (0o755, 54321), "set-id bits are not given away");
        // A second time, nothing is replaced.
        let mut command = Command::new("setpriv");
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups", "--"]).arg(&program);
        extract(&scratch, proto, &mut command).failed(1, &["two: it is there already", "another directory"]);
    }
}

#[test]
fn cat_gives_the_bytes_of_each_kind_of_file() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-cat");
    let names = ["inline", "random", "empty", "yes", "punched", "clone", "e e/hard", "odd\n\u{1}"];
    sent_by_linux(&scratch, |mount| {
        let copies = scratch.join("copies");
        tool("cp", ["-a".as_ref(), mount.as_os_str(), copies.as_os_str()]);
    });
    for proto in ["1", "2"] {
        let path = |kind: &str| scratch.join(format!("{kind}{proto}")).display().to_string();
        for name in &names[..7] {
            let expected = std::fs::read(scratch.join(format!("copies/two/{name}"))).unwrap();
            let (after, target) = (path("full"), format!("{}:/{name}", path("changes")));
            let ended = run(["stream", "cat", "--after", &after, &target]).done();
            assert!(ended.out == expected, "{name} of version {proto}");
            // The first snapshot, in the same call, by its name.
            let first = name.replace("e e", "d d");
            let expected = std::fs::read(scratch.join(format!("copies/one/{first}"))).unwrap();
            let target = format!("{}:/{first}", path("changes"));
            let ended = run(["stream", "cat", "--after", &after, "--subvolume", "one", &target]).done();
            assert!(ended.out == expected, "{first} of the first snapshot");
        }
        let sparse = format!("{}:/sparse", path("full"));
        let ended = run(["stream", "cat", &sparse]).done();
        assert!(ended.out == std::fs::read(scratch.join("copies/one/sparse")).unwrap());
    }
}

#[test]
fn an_incremental_stream_alone_shows_what_it_touches() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-alone");
    sent_by_linux(&scratch, |_| {});
    let changes = scratch.join("changes1").display().to_string();
    let at = |path: &str| format!("{changes}:{path}");
    let ended = run(["stream", "ls", "-l", &changes]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let text = ended.text();
    assert!(text.contains("turned/y") && text.contains(" e e"), "{text}");
    assert!(!text.contains("empty"), "it was not touched: {text}");
    assert!(ended.err.contains("only what it touches is listed"), "{}", ended.err);
    assert!(ended.err.contains("--after FILE"), "{}", ended.err);
    run(["stream", "cat", &at("/random")])
        .failed(1, &["/random", "whose stream was not given", "--after FILE"]);
    run(["stream", "cat", &at("/nothing")]).failed(1, &["there is no such file", "--after FILE"]);
    assert_eq!(run(["stream", "cat", &at("/turned/y")]).done().text(), "y\n");
    let ended = run(["stream", "verify", &changes]).done().text();
    assert!(ended.contains("as the parent") && ended.contains("not given"), "{ended}");
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let ended = run(["stream", "extract", &changes, "-C", out.to_str().unwrap()]);
    ended.failed(3, &["of which the streams hold only a part", "--after FILE"]);
    assert_eq!(std::fs::read_to_string(out.join("two/turned/y")).unwrap(), "y\n");
    assert!(!out.join("two/random").exists());
}

#[test]
fn listings_are_those_of_the_snapshot() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-list");
    let (mut names, mut long) = (String::new(), String::new());
    sent_by_linux(&scratch, |mount| {
        names = bash(&mount.join("two"), "find . -mindepth 1 -printf '%P\\n' | grep -v odd | LC_ALL=C sort");
        long = bash(&mount.join("two"), "TZ=UTC find yes -printf '%M %n %U %G %s %TY-%Tm-%Td %TH:%TM %P'");
    });
    let [full, changes] = ["full1", "changes1"].map(|name| scratch.join(name).display().to_string());
    let listed = run(["stream", "ls", "--after", &full, &changes]).done().text();
    let mut listed: Vec<&str> = listed.lines().filter(|line| !line.starts_with("odd")).collect();
    listed.sort_unstable();
    // One name has a line break: of find it takes two lines.
    assert_eq!(listed, names.lines().filter(|line| !line.starts_with('\u{1}')).collect::<Vec<_>>());
    let line = run(["stream", "ls", "-l", "--after", &full, &format!("{changes}:/yes")]).done().text();
    let words: Vec<&str> = line.split_whitespace().collect();
    let expected: Vec<&str> = long.split_whitespace().collect();
    assert_eq!(words[..7], expected[..7]);
    let text = run(["stream", "ls", "-l", &full]).done().text();
    assert!(text.contains("link -> to \\012 there"), "{text}");
    assert!(text.contains("odd\\012\\001\\377"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("crw") && line.contains("1, 3")), "{text}");
    // By a pipe, in one pass.
    let piped =
        bash(scratch.path(), &format!("{} stream ls -l - < full1", vlinder().get_program().display()));
    assert_eq!(piped, text);
    let program = vlinder().get_program().display().to_string();
    let piped = bash(scratch.path(), &format!("cat full1 | TZ=UTC {program} stream ls -l -"));
    assert_eq!(piped, text);
    let refused =
        bash(scratch.path(), &format!("cat full1 | {program} stream cat /dev/stdin:/inline 2>&1 || true"));
    assert!(
        refused.contains("it can be read only once") && refused.contains("save it to a file"),
        "{refused}"
    );
    let inline = bash(scratch.path(), &format!("{program} stream cat /dev/stdin:/inline < full1"));
    assert_eq!(inline, "small\n");
}

#[test]
fn verify_counts_and_names_what_is_missing() {
    require_linux!();
    let scratch = Scratch::in_memory("stream-verify");
    sent_by_linux(&scratch, |_| {});
    for proto in ["1", "2"] {
        let [full, changes] = ["full", "changes"].map(|kind| scratch.join(format!("{kind}{proto}")));
        let json = run([
            "--json".as_ref(),
            "stream".as_ref(),
            "verify".as_ref(),
            full.as_os_str(),
            changes.as_os_str(),
        ]);
        let json = json.done().json();
        assert_eq!(json["streams"], 2);
        assert_eq!((&json["commands"]["end"], &json["commands"]["snapshot"]), (&2.into(), &1.into()));
        assert_eq!(json["needed"].as_array().map(Vec::len), Some(0), "{json}");
        let dumped = bash(scratch.path(), &format!("btrfs receive --dump -f full{proto} | wc -l"));
        let alone =
            run(["--json".as_ref(), "stream".as_ref(), "verify".as_ref(), full.as_os_str()]).done().json();
        let counts = alone["commands"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
        assert_eq!(counts.sum::<u64>() - 1, dumped.trim().parse::<u64>().unwrap(), "all but the end command");
        // In the wrong order, the parent comes too late.
        let text =
            run(["stream".as_ref(), "verify".as_ref(), changes.as_os_str(), full.as_os_str()]).done().text();
        assert!(text.contains("as the parent"), "{text}");
        let both = bash(
            scratch.path(),
            &format!("cat full{proto} changes{proto} > both; TZ=UTC btrfs receive --dump -f full{proto}"),
        );
        let ours = run(["stream".as_ref(), "dump".as_ref(), full.as_os_str()]).done();
        assert!(String::from_utf8_lossy(&ours.out) == both);
        let path = scratch.join("both").display().to_string();
        run(["stream", "verify", &path]).done();
    }
}
