//! What everybody expects of commands: patterns, `-`, an image by itself, missing directories above.

use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Ended, end, make_image, run, target, vlinder};
use crate::place::Place;
use vlinder_testkit::{Scratch, require};

struct Home {
    image: PathBuf,
    scratch: Scratch,
}

impl Home {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let image = scratch.join("disk.img");
        make_image(&image);
        Self { image, scratch }
    }

    fn at(&self, path: &str) -> String {
        target(&self.image, path)
    }

    /// Makes files of which each holds its own path.
    fn fill(&self, paths: &[&str]) {
        for path in paths {
            let file = self.scratch.join("content");
            std::fs::write(&file, path).unwrap();
            let directory = path.rsplit_once('/').unwrap().0;
            if !directory.is_empty() {
                run(["mkdir", "-p", &self.at(directory)]).done();
            }
            run(["cp", file.to_str().unwrap(), &self.at(path)]).done();
        }
    }

    /// What `ls` prints of arguments, `:/PATH` being one in the image, without the image's path.
    fn list(&self, arguments: &[&str]) -> String {
        let path = |argument: &&str| match argument.strip_prefix(':') {
            Some(inside) => self.at(inside),
            None => (*argument).to_owned(),
        };
        let paths = arguments.iter().map(path);
        let said = run(std::iter::once("ls".to_owned()).chain(paths)).done().text();
        said.replace(&format!("{}:", self.image.display()), "")
    }
}

/// Runs a line of a shell; `$V` is the program and `$I` the image.
fn shell(home: &Home, line: &str) -> Ended {
    let mut command = Command::new("bash");
    command.args(["-c", line]).env("V", env!("CARGO_BIN_EXE_vlinder")).env("I", &home.image);
    end(command.current_dir(home.scratch.path()))
}

#[test]
fn patterns_stand_for_what_they_fit() {
    let home = Home::new("manners-patterns");
    home.fill(&["/log/a.gz", "/log/b.gz", "/log/c", "/log/.hidden.gz", "/more/a.gz", "/more/é", "/top"]);
    assert_eq!(home.list(&[":/log/*.gz"]), "/log/a.gz\n/log/b.gz\n");
    assert_eq!(home.list(&[":/*/a.gz"]), "/log/a.gz\n/more/a.gz\n");
    assert_eq!(home.list(&[":/lo[fg]/?"]), "/log/c\n");
    assert_eq!(home.list(&[":/log/.*"]), "/log/.hidden.gz\n");
    assert_eq!(home.list(&[":/more/?"]), "/more/é\n", "a letter of two bytes is one sign");
    assert_eq!(home.list(&["-d", ":/*"]), "/log\n/more\n/top\n");
    assert_eq!(home.list(&["-d", ":/l*/"]), "/log/\n");
    assert_eq!(run(["cat", &home.at("/log/?.gz"), &home.at("/t*")]).done().text(), "/log/a.gz/log/b.gz/top");
    let into = home.scratch.join("out");
    std::fs::create_dir(&into).unwrap();
    run(["cp", &home.at("/log/*"), into.to_str().unwrap()]).done();
    let mut names: Vec<_> = into.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.gz", "b.gz", "c"]);
    run(["cp", &home.at("/log/*"), into.join("new").to_str().unwrap()]).failed(1, &["several sources"]);
    for nothing in ["/log/*.xz", "/none/*", "/top/*", "/*/none"] {
        run(["ls", &home.at(nothing)]).failed(1, &["nothing there fits this pattern", nothing]);
    }
    run(["ls", "none.img:/*"]).failed(1, &["none.img: No such file"]);
    run(["ls", &home.at("/[")]).failed(2, &["can't be read"]);
}

#[test]
fn a_name_that_is_there_is_no_pattern() {
    let home = Home::new("manners-literal");
    home.fill(&["/a*", "/ab", "/[x]", "/x"]);
    assert_eq!(home.list(&[":/a*", ":/[x]"]), "/a*\n/[x]\n");
    assert_eq!(home.list(&[":/a?"]), "/a*\n/ab\n");
    assert_eq!(home.list(&[":/?\\*"]), "/a*\n");
    let odd = std::ffi::OsString::from_vec([home.at("/").as_bytes(), b"\xff\xfe"].concat());
    end(vlinder().arg("mkdir").arg(&odd)).done();
    assert_eq!(home.list(&["-d", ":/??"]), "/a*\n/ab\n/\\377\\376\n");
}

#[test]
fn what_removes_takes_patterns_only_where_it_is_told() {
    let home = Home::new("manners-remove");
    home.fill(&["/log/a.gz", "/log/b.gz", "/log/c"]);
    run(["rm", &home.at("/log/*.gz")]).failed(1, &["/log/*.gz", "--glob"]);
    run(["mv", &home.at("/log/?"), &home.at("/c")]).failed(1, &["/log/?", "--glob"]);
    run(["rm", "--glob", &home.at("/log/*.gz")]).done();
    assert_eq!(home.list(&[":/log"]), "c\n");
    run(["mv", "--glob", &home.at("/log/?"), &home.at("/")]).done();
    assert_eq!(home.list(&[":/"]), "c\nlog\n");
    run(["rm", "--glob", &home.at("/log/*")]).failed(1, &["nothing there fits"]);
    run(["rm", "-f", "--glob", &home.at("/log/*")]).done();
    run(["rm", "-f", "--glob", "none.img:/*", &home.at("/c")]).done();
    assert_eq!(home.list(&[":/"]), "log\n");
}

#[test]
fn an_image_by_itself_stands_for_its_root() {
    let home = Home::new("manners-image");
    home.fill(&["/file"]);
    let image = home.image.to_str().unwrap();
    assert_eq!(home.list(&[image]), "file\n");
    assert_eq!(home.list(&["-d", image]), format!("{image}\n"));
    let plain = home.scratch.join("plain");
    std::fs::write(&plain, b"x").unwrap();
    assert_eq!(home.list(&[plain.to_str().unwrap()]), format!("{}\n", plain.display()));
    assert_eq!(home.list(&[image, ":/file"]), "/:\nfile\n/file\n");
    let drawn = run(["tree", image]).done().text();
    assert_eq!(drawn, run(["tree", &home.at("/")]).done().text());
    assert!(drawn.contains("file\n\n0 directories, 1 file"), "{drawn}");
}

#[test]
fn what_can_t_be_is_told_with_its_place() {
    let home = Home::new("manners-told");
    let long = "*".repeat(300);
    run(["ls", &home.at(&format!("/{long}"))]).failed(2, &["a name has 255 bytes at most, this has 300"]);
    let root = home.at("/");
    let ended = run(["property", "set", &root, "ro", "maybe"]);
    ended.failed(2, &[&format!("{root}: ro is true or false, not maybe")]);
}

#[test]
fn a_disk_with_one_btrfs_stands_for_its_root() {
    require!(Tool("sfdisk"));
    let home = Home::new("manners-disk");
    shell(
        &home,
        "truncate -s 300M disk; printf 'label: gpt\\nsize=100M\\nsize=150M\\n' | sfdisk -q disk; $V mkfs -q disk@2; \
         printf x > f; $V mkdir disk:/d; $V cp f disk@2:/d/file; $V mkfs -q -b 128M other",
    )
    .done();
    for name in ["disk", "disk@2", "disk:/", "'disk@2:/d*'", "'disk:/?'"] {
        let of_directory = if name.contains('\'') { "file\n" } else { "d\n" };
        assert_eq!(shell(&home, &format!("$V ls {name}")).done().text(), of_directory, "{name}");
    }
    assert_eq!(shell(&home, "$V ls 'disk:/d/f*'; $V cp 'disk:/*/f*' -").done().text(), "disk:/d/file\nx");
    shell(&home, "$V cp f disk").failed(1, &["all of which would be lost"]);
    shell(&home, "$V rm disk").failed(1, &["all of which would be lost"]);
    shell(&home, "$V ls disk@3").failed(1, &["disk@3"]);
}

#[test]
fn a_dash_is_standard_input_or_output() {
    let home = Home::new("manners-dash");
    shell(&home, "printf piped | $V cp - $I:/piped").done();
    shell(&home, "$V cp - $I:/redirected < <(printf process)").done();
    shell(&home, "printf a-file > f; $V cp - $I:/file < f; $V cp - $I:/here <<< text").done();
    assert_eq!(
        shell(&home, "$V cat $I:/piped $I:/redirected $I:/file $I:/here").done().text(),
        "pipedprocessa-filetext\n"
    );
    // Whatever standard output is.
    assert_eq!(shell(&home, "$V cp $I:/piped -").done().text(), "piped");
    assert_eq!(shell(&home, "$V cp $I:/piped /dev/stdout").done().text(), "piped");
    assert_eq!(shell(&home, "$V cp $I:/piped /dev/stdout | cat").done().text(), "piped");
    assert_eq!(shell(&home, "printf x > o; $V cp $I:/piped - >> o; cat o").done().text(), "xpiped");
    assert_eq!(shell(&home, "printf through | $V cp - -").done().text(), "through");
    assert_eq!(
        shell(&home, "printf through | $V cat $I:/piped - $I:/file").done().text(),
        "pipedthrougha-file"
    );
    // It is there already, as for cp.
    assert_eq!(shell(&home, "$V cp -n $I:/piped /dev/stdout | cat").done().text(), "");
    // The rest of what was read before.
    assert_eq!(
        shell(&home, "printf 'one\\ntwo\\n' > l; { read x; $V cp - $I:/two; } < l; $V cat $I:/two")
            .done()
            .text(),
        "two\n"
    );
    assert_eq!(
        shell(&home, "printf named > ./-; $V cp ./- $I:/named; $V cat $I:/named").done().text(),
        "named"
    );
    // A hole is zeros where there is no place to seek to.
    shell(&home, "truncate -s 1M h; printf end >> h; $V cp h $I:/h; $V cp $I:/h - | cmp - h").done();
    shell(&home, "$V cp - $I:/ < f").failed(2, &["no name", "the file's path"]);
    shell(&home, "$V cp $I:/ -").failed(1, &["a directory"]);
    shell(&home, "$V cp $I:/piped $I:/file -").failed(2, &["vlinder cat"]);
    shell(&home, "$V --json cp $I:/piped - 2>&1 >/dev/null").failed(1, &[]);
    let reader_gone = vlinder().args(["cp", &home.at("/h"), "-"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(reader_gone.wait_with_output().unwrap());
}

#[test]
fn missing_directories_above_a_subvolume_are_made() {
    let home = Home::new("manners-parents");
    run(["subvolume", "create", &home.at("/var/lib/machines")]).failed(1, &["/var"]);
    run(["subvolume", "create", "-p", &home.at("/var/lib/machines"), &home.at("/var/other")]).done();
    run(["subvolume", "show", &home.at("/var/other")]).done();
    run(["subvolume", "show", &home.at("/var/lib")]).failed(1, &["not a subvolume"]);
    run(["subvolume", "create", "-p", &home.at("/var/other")]).failed(1, &["/var/other"]);
    require!(Fuse);
    let place = Place::new("manners-parents-mount");
    place.mount("rw").done();
    let made = place.at("a/b/c");
    run(["subvolume".as_ref(), "create".as_ref(), "--parents".as_ref(), made.as_path()]).done();
    assert!(made.is_dir());
    place.unmount().done();
}

#[test]
fn mkfs_names_features_as_its_option_takes_them() {
    let scratch = Scratch::new("manners-features");
    let image = scratch.join("disk.img");
    let image = image.to_str().unwrap();
    let features = |arguments: &[&str]| {
        let said = run(["mkfs", "-f", "-b", "128M"].iter().chain(arguments).chain([&image])).done().text();
        let line = said.lines().find_map(|line| line.strip_prefix("Features:")).unwrap();
        line.trim().replace(", ", ",")
    };
    let made = features(&[]);
    assert_eq!(made, "extref,skinny-metadata,no-holes,free-space-tree,block-group-tree");
    assert_eq!(features(&["-O", &made]), made);
    assert_eq!(
        features(&["-O", "mixed-bg,^bgt"]),
        "mixed-bg,extref,skinny-metadata,no-holes,free-space-tree"
    );
}
