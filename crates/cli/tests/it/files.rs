//! The file verbs on images: what they do, what they keep, and what they never do.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt as _, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, end, make_image, run, target, tool};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

fn image(scratch: &Scratch) -> PathBuf {
    let image = scratch.join("disk.img");
    make_image(&image);
    image
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory with files of every kind that an ordinary user can make.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/small"), b"small").unwrap();
    fs::write(root.join("a/large"), (0..3_000_000u32).map(|number| (number / 7) as u8).collect::<Vec<_>>())
        .unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not \xff UTF-8\n")), b"name").unwrap();
    fs::hard_link(root.join("a/small"), root.join("a/b/again")).unwrap();
    symlink("../nowhere", root.join("a/dangling")).unwrap();
    symlink("b", root.join("a/to-b")).unwrap();
    tool("mkfifo", [text(&root.join("fifo"))]);
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 5 << 20).unwrap();
    fs::set_permissions(root.join("a/large"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o1751)).unwrap();
    tool("touch", ["-h", "-d", "2001-02-03 04:05:06.789", text(&root.join("a/dangling"))]);
    tool("touch", ["-d", "1999-12-31 23:59:59.123456789", text(&root.join("a/b"))]);
}

/// Name, type, mode, links, owner, modification time, content of everything below.
fn walk(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        let content = match status.file_type() {
            kind if kind.is_dir() => {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            kind if kind.is_file() => {
                format!("{:x?}", vlinder_testkit::walk::short_hash(&fs::read(&path).unwrap()))
            }
            _ => String::new(),
        };
        // Linux counts a directory's subdirectories differently from one file system to the next.
        let links = if status.is_dir() { 0 } else { status.nlink() };
        lines.push(format!(
            "{:?} {:o} {links} {}:{} {}.{:09} {content}",
            path.strip_prefix(root).unwrap(),
            status.mode(),
            status.uid(),
            status.gid(),
            status.mtime(),
            status.mtime_nsec(),
        ));
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_comes_back_from_an_image_as_it_went_in() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("cp");
    let (image, source, back) = (image(&scratch), scratch.join("source"), scratch.join("back"));
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    run(["cp", "-a", text(&source), &target(&image, "/")]).done();
    run(["cp", "-a", &target(&image, "/source"), text(&back)]).done();
    assert_eq!(walk(&back), walk(&source));
    let blocks = |path: &Path| fs::metadata(path.join("sparse")).unwrap().blocks();
    assert!(blocks(&back) <= blocks(&source) + 128, "{} blocks", blocks(&back));
    btrfs_check_data(&image).unwrap();
    // Within an image, and from one to the next.
    let other = scratch.join("other.img");
    make_image(&other);
    run(["cp", "-a", &target(&image, "/source"), &target(&image, "/copy")]).done();
    run(["cp", "-a", &target(&image, "/copy"), &target(&other, "/")]).done();
    let again = scratch.join("again");
    run(["cp", "-a", &target(&other, "/copy"), text(&again)]).done();
    assert_eq!(walk(&again), walk(&source));
    btrfs_check_data(&image).unwrap();
    btrfs_check_data(&other).unwrap();
}

#[test]
fn owners_attributes_and_devices_are_as_the_kernel_shows_them() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"));
    let scratch = Scratch::new("cp-root");
    let (image, source) = (image(&scratch), scratch.join("source"));
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    std::os::unix::fs::chown(source.join("a/small"), Some(1234), Some(5678)).unwrap();
    fs::set_permissions(source.join("a/small"), fs::Permissions::from_mode(0o6755)).unwrap();
    tool("setfattr", ["-n", "user.name", "-v", "value", text(&source.join("a/b"))]);
    tool("setfattr", ["-n", "trusted.name", "-v", "0x00ff", text(&source.join("a"))]);
    tool("mknod", [text(&source.join("node")), "b", "7", "300"]);
    run(["cp", "-a", text(&source), &target(&image, "/")]).done();
    let mount = KernelMount::new(&image, "ro").unwrap();
    assert_eq!(walk(&mount.path().join("source")), walk(&source));
    let node = fs::metadata(mount.path().join("source/node")).unwrap();
    assert_eq!(node.rdev(), fs::metadata(source.join("node")).unwrap().rdev());
    let value = tool(
        "getfattr",
        ["--absolute-names", "--only-values", "-n", "user.name", text(&mount.path().join("source/a/b"))],
    );
    assert_eq!(value, "value");
    tool("getfattr", ["--absolute-names", "-n", "trusted.name", text(&mount.path().join("source/a"))]);
    mount.unmount().unwrap();
    // Device nodes come to the host only with leave.
    let back = scratch.join("back");
    run(["cp", "-a", &target(&image, "/source"), text(&back)])
        .failed(3, &["node: a device node; left out", "--devices"]);
    assert!(!back.join("node").exists());
    run(["cp", "-a", "--devices", &target(&image, "/source/node"), text(&back)]).done();
    assert_eq!(fs::metadata(back.join("node")).unwrap().rdev(), node.rdev());
}

#[test]
fn files_with_several_names_come_back_with_any_thread() {
    let scratch = Scratch::new("files-many");
    let (image, tree, back) = (image(&scratch), scratch.join("tree"), scratch.join("back"));
    for directory in 0..12 {
        let path = tree.join(format!("{directory}/below"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..150 {
            let content = format!("{directory} {file} ").repeat(file * directory % 700);
            fs::write(path.join(format!("file {file}")), content).unwrap();
            if file % 3 == 0 && directory > 0 {
                let first = tree.join(format!("{}/below/file {file}", directory - 1));
                fs::hard_link(first, path.join(format!("again {file}"))).unwrap();
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
        tool("touch", ["-d", "2002-02-02 02:02:02.002", text(&path)]);
    }
    run(["cp", "-a", text(&tree), &target(&image, "/tree")]).done();
    run(["cp", "-a", &target(&image, "/tree"), text(&back)]).done();
    assert_eq!(walk(&back), walk(&tree));
    // What is there already is replaced, file by file.
    let again = run(["cp", "-a", "-T", &target(&image, "/tree"), text(&back)]);
    if rustix::process::geteuid().is_root() {
        again.done();
    } else {
        // In a directory that its owner may not write to, only root replaces anything.
        again.failed(3, &["Permission denied"]);
    }
    assert_eq!(walk(&back), walk(&tree));
}

#[test]
fn a_planted_link_is_never_followed() {
    let scratch = Scratch::new("cp-planted");
    let (image, outside, inside) = (image(&scratch), scratch.join("outside"), scratch.join("inside"));
    let source = scratch.join("source");
    for directory in [&outside, &inside, &source] {
        fs::create_dir(directory).unwrap();
    }
    fs::create_dir(source.join("d")).unwrap();
    fs::write(source.join("d/evil"), b"x").unwrap();
    fs::write(source.join("f"), b"new").unwrap();
    fs::write(outside.join("kept"), b"old").unwrap();
    run(["cp", "-r", text(&source), &target(&image, "/tree")]).done();
    // On the host links stand where the image has a directory and a file.
    symlink(&outside, inside.join("d")).unwrap();
    symlink(outside.join("kept"), inside.join("f")).unwrap();
    run(["cp", "-rT", &target(&image, "/tree"), text(&inside)])
        .failed(3, &["inside/d: it is there, and is no directory"]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"old");
    assert_eq!(fs::read(inside.join("f")).unwrap(), b"new");
    assert!(!fs::symlink_metadata(inside.join("f")).unwrap().file_type().is_symlink());
    // In the image too: `link` leads to `/`, and what is copied over it must not go there.
    run(["mkdir", &target(&image, "/into")]).done();
    run(["ln", "-s", "/", &target(&image, "/into/d")]).done();
    run(["cp", "-rT", text(&source), &target(&image, "/into")])
        .failed(3, &["/into/d: it is there, and is no directory"]);
    run(["cat", &target(&image, "/evil")]).failed(1, &["/evil"]);
}

#[test]
fn paths_in_images_are_resolved_as_in_a_root_of_their_own() {
    let scratch = Scratch::new("resolve");
    let image = image(&scratch);
    run(["mkdir", "-p", &target(&image, "/a/b")]).done();
    fs::write(scratch.join("file"), b"content").unwrap();
    run(["cp", text(&scratch.join("file")), &target(&image, "/a/b/")]).done();
    for (link, text) in
        [("/up", "../../../../a"), ("/absolute", "/a/b"), ("/loop", "loop"), ("/a/chain", "../absolute")]
    {
        run(["ln", "-s", text, &target(&image, link)]).done();
    }
    for path in ["/up/b/file", "/absolute/file", "/a/../a/./b//file", "/a/chain/file", "/../../a/b/file"] {
        assert_eq!(run(["cat", &target(&image, path)]).done().out, b"content", "{path}");
    }
    run(["cat", &target(&image, "/loop")]).failed(1, &["too many symbolic links"]);
    run(["cat", &target(&image, "/a/b/file/x")]).failed(1, &["not a directory"]);
    assert_eq!(run(["ls", &target(&image, "/absolute")]).done().text(), "file\n");
    run(["rm", &target(&image, "/absolute")]).done();
    run(["cat", &target(&image, "/a/b/file")]).done();
}

#[test]
fn verbs_that_change_names_do_so() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("names");
    let image = image(&scratch);
    let at = |path: &str| target(&image, path);
    run(["mkdir", "-m", "750", &at("/d")]).done();
    run(["mkdir", &at("/d")]).failed(1, &["/d: "]);
    run(["mkdir", &at("/missing/d")]).failed(1, &["/missing"]);
    run(["mkdir", "-p", &at("/d/e/f"), &at("/d")]).done();
    fs::write(scratch.join("file"), b"1").unwrap();
    run(["cp", text(&scratch.join("file")), &at("/d/x")]).done();
    run(["ln", &at("/d/x"), &at("/d/e/")]).done();
    run(["mv", &at("/d/x"), &at("/d/y")]).done();
    run(["mv", "-n", &at("/d/y"), &at("/d/e/x")]).done();
    run(["mv", &at("/d"), &at("/d/e")]).failed(1, &["/d", "can't be moved into itself"]);
    run(["ln", &at("/d/e"), text(&scratch.join("e"))]).failed(1, &["different file systems", "cp -a"]);
    let names = run(["tree", &at("/")]).done().text();
    let expected = format!(
        "{}\n└── d\n    ├── e\n    │   ├── f\n    │   └── x\n    └── y\n\n3 directories, 2 files\n",
        at("/")
    );
    assert_eq!(names, expected);
    run(["rm", &at("/d")]).failed(1, &["remove it with -r"]);
    run(["rm", "-r", &at("/")]).failed(1, &["can't be removed"]);
    run(["rm", &at("/none"), &at("/d/y")]).failed(3, &["/none"]);
    run(["rm", "-f", &at("/none")]).done();
    run(["rm", "-r", &at("/d")]).done();
    assert_eq!(run(["ls", "-A", &at("/")]).done().text(), "");
    btrfs_check_data(&image).unwrap();
}

#[test]
fn a_copy_that_fails_leaves_nothing_behind() {
    let scratch = Scratch::new("cp-fails");
    let image = image(&scratch);
    let large = scratch.join("large");
    fs::File::create(&large).unwrap().set_len(0).unwrap();
    fs::write(&large, vec![3; 200 << 20]).unwrap();
    run(["cp", text(&large), &target(&image, "/large")]).failed(1, &["/large: no space left"]);
    assert_eq!(run(["ls", "-A", &target(&image, "/")]).done().text(), "");
    // A file that is replaced stays as it was.
    fs::write(scratch.join("small"), b"kept").unwrap();
    run(["cp", text(&scratch.join("small")), &target(&image, "/file")]).done();
    run(["cp", text(&large), &target(&image, "/file")]).failed(1, &["no space left"]);
    assert_eq!(run(["cat", &target(&image, "/file")]).done().out, b"kept");
}

#[test]
fn a_copy_into_a_device_or_pipe_is_its_bytes_in_order() {
    let scratch = Scratch::new("stream");
    let image = image(&scratch);
    let file = scratch.join("sparse");
    fs::write(&file, b"begin").unwrap();
    let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
    open.write_all_at(b"middle", 100_000).unwrap();
    open.set_len(200_000).unwrap();
    run(["cp", text(&file), &target(&image, "/file")]).done();
    run(["cp", &target(&image, "/file"), "/dev/null"]).done();
    assert!(fs::metadata("/dev/null").unwrap().mode() & 0o170_000 == 0o020_000);
    // What is gathered is written before the copy is called done.
    run(["cp", &target(&image, "/file"), "/dev/full"]).failed(1, &["/dev/full", "No space left"]);
    let pipe = scratch.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        vlinder_base::thread::spawn("reader", move || fs::read(pipe).unwrap())
    };
    run(["cp", &target(&image, "/file"), text(&pipe)]).done();
    assert_eq!(reader.join().unwrap(), fs::read(&file).unwrap());
    // Nobody named it.
    let directory = scratch.join("tree");
    fs::create_dir(&directory).unwrap();
    assert!(Command::new("mkfifo").arg(directory.join("file")).status().unwrap().success());
    run(["cp", "-r", &target(&image, "/"), text(&directory)]).failed(3, &["no regular file", "remove it"]);
}

#[test]
fn the_content_of_a_pipe_becomes_a_file() {
    require!(Tool("bash"), Tool("btrfs"));
    let scratch = Scratch::new("from-stream");
    let image = image(&scratch);
    let script = "\
        head -c 3000000 /dev/zero | tr '\\0' x | \"$0\" cp /dev/stdin \"$1:/large\" &&
        \"$0\" cp --verbose <(printf one) \"$1:/one\" &&
        printf two | \"$0\" cp -n /dev/stdin \"$1:/one\" &&
        printf three | \"$0\" cp /dev/stdin \"$1:/\" &&
        \"$0\" cp /dev/null \"$1:/empty\"";
    let said = tool("bash", ["-c", script, env!("CARGO_BIN_EXE_vlinder"), text(&image)]);
    assert!(
        said.starts_with("/dev/fd/") && said.ends_with(&format!(" -> {}\n", target(&image, "/one"))),
        "{said}"
    );
    assert_eq!(run(["ls", &target(&image, "/")]).done().text(), "empty\nlarge\none\nstdin\n");
    assert!(run(["cat", &target(&image, "/large")]).done().out == vec![b'x'; 3_000_000]);
    for (name, content) in [("one", "one"), ("stdin", "three"), ("empty", "")] {
        assert_eq!(run(["cat", &target(&image, &format!("/{name}"))]).done().text(), content);
    }
    // As cp(1): nothing goes into a stream.
    run(["cp", "/dev/null", "/dev/zero"]).done();
    run(["mkdir", &target(&image, "/d")]).done();
    run(["cp", "-T", "/dev/null", &target(&image, "/d")]).failed(1, &["no regular file"]);
    btrfs_check_data(&image).unwrap();
}

/// As mv(1) does between file systems: what rename(2) can't do is a copy, of which nothing is lost.
#[test]
fn moving_between_subvolumes_copies_and_removes() {
    let scratch = Scratch::new("cli_mv_subvolumes");
    let image = scratch.join("image");
    make_image(&image);
    let at = |path: &str| target(&image, path);
    run(["mkdir", &at("/d")]).done();
    run(["subvolume", "create", &at("/d/sub"), &at("/other")]).done();
    let bytes = vec![7; 1 << 20];
    fs::write(scratch.join("file"), &bytes).unwrap();
    run(["cp", text(&scratch.join("file")), &at("/d/x")]).done();
    run(["mv", &at("/d/x"), &at("/other")]).done();
    run(["stat", &at("/d/x")]).failed(1, &["/d/x"]);
    assert_eq!(run(["cat", &at("/other/x")]).done().out, bytes);
    run(["mv", &at("/other/x"), &at("/d/sub/y")]).done();
    // A directory with all in it, but not into itself.
    run(["mkdir", "-p", &at("/e/below")]).done();
    run(["mv", &at("/d/sub/y"), &at("/e/below/")]).done();
    run(["mv", &at("/e"), &at("/d/sub/")]).done();
    run(["stat", &at("/e")]).failed(1, &["/e"]);
    assert_eq!(run(["cat", &at("/d/sub/e/below/y")]).done().out, bytes);
    run(["mv", &at("/d"), &at("/d/sub/")]).failed(1, &["itself"]);
    // A subvolume keeps being one.
    run(["mv", &at("/d/sub"), &at("/other/")]).done();
    assert_eq!(run(["cat", &at("/other/sub/e/below/y")]).done().out, bytes);
    run(["subvolume", "show", &at("/other/sub")]).done();
    run(["check", text(&image)]).done();
}

/// As with mv(1) and ln(1): the name is the link's, and what the link leads to stays.
#[test]
fn a_links_own_names_are_given_not_those_of_its_target() {
    let scratch = Scratch::new("onto-links");
    let image = image(&scratch);
    let host = scratch.join("host");
    fs::create_dir(&host).unwrap();
    fs::write(scratch.join("kept"), "kept").unwrap();
    fs::write(scratch.join("new"), "new").unwrap();
    for root in [target(&image, "/"), format!("{}/", host.display())] {
        let at = |name: &str| format!("{root}{name}");
        let is = |name: &str, kind: &str| {
            let listed = run(["ls", "-ld", &at(name)]).done().text();
            assert!(listed.starts_with(kind), "{listed}");
        };
        run(["cp", text(&scratch.join("kept")), &at("file")]).done();
        run(["mkdir", &at("directory")]).done();
        for (link, leads_to) in
            [("a", "file"), ("b", "file"), ("c", "nowhere"), ("d", "directory"), ("e", "directory")]
        {
            run(["ln", "-s", leads_to, &at(link)]).done();
        }
        run(["cp", text(&scratch.join("new")), &at("moved")]).done();
        run(["mv", &at("moved"), &at("a")]).done();
        assert_eq!(run(["cat", &at("a")]).done().text(), "new");
        run(["ln", "-s", "elsewhere", &at("b")]).failed(1, &["exists"]);
        run(["ln", "-sf", "elsewhere", &at("b")]).done();
        is("b", "l");
        run(["ln", "-s", "elsewhere", &at("c")]).failed(1, &["exists"]);
        run(["ln", "-s", "elsewhere", &at("d")]).done();
        is("directory/elsewhere", "l");
        run(["ln", "-sfT", "elsewhere", &at("e")]).done();
        assert!(run(["stat", &at("e")]).done().text().contains(" -> elsewhere\n"));
        assert_eq!(run(["cat", &at("file")]).done().text(), "kept");
        run(["cp", text(&scratch.join("new")), &at("d")]).done();
        assert_eq!(run(["cat", &at("directory/new")]).done().text(), "new");
        // cp writes what a link leads to.
        run(["ln", "-sf", "file", &at("b")]).done();
        run(["cp", text(&scratch.join("new")), &at("b")]).done();
        is("b", "l");
        assert_eq!(run(["cat", &at("file")]).done().text(), "new");
    }
}

/// Calls whose results must be those of the host's own programs: names, links, modes, contents, and whether
/// it failed.
const AS_ON_THE_HOST: &str = "\
cp f new|cp f g|cp f d/|cp f lf|cp f ld|cp f ld/|cp f ln|cp f hard|cp lf copy|cp lf d|cp -r lf d|cp -r d copy|cp -r d e
cp -r d copy/|cp f copy/|cp -r d/. e|cp -a d e|cp -a ld e|cp -r ld/ e|cp d copy|cp f g e|cp f nope e|cp f g h|cp -T f d
cp -rT d d2|cp -r d d2|cp -n f g|cp f f|cp lf f|cp f full/z/|cp -a hard f e|cp -r f d g e
cp f/ new|cp -r f/ new|cp lf/ new|cp -a lf/ new|cp f/ e|cp f f e|cp d/x d2/x e|cp f hard|cp -a f hard|cp -a g f|cp -rT d d
mv f new|mv f g|mv f d|mv f lf|mv f ld|mv f ln|mv d e|mv d d2|mv d ld|mv d lf|mv d f|mv f full/|mv f nope/|mv d d/sub
mv f f|mv f ./f|mv f hard|mv -f hard f|mv -n f hard|mv -n f f|mv d d|mv -T d d|mv f d/x e|mv d/x d2/x e
mv lf f|mv -f lf f|mv -n lf f|mv lf hard|mv lg g|mv llg g|mv llg lg|mv d/lg g|mv lg f|mv -T lg e|mv g lg|mv ln f
mv d/ new|mv ld/ new|mv ld/ e|mv lf/ new|mv f/ new|mv lf d|mv -T d e|mv -T d full|mv -T f d|mv -n f g|mv f g e
rm d|rm lf|rm ld|rm -r ld|rm ld/|rm lf/|rm f/|rm -r d/|rm -r d/sub/|rm ln/|rm ln|rm f nope g|mkdir d|mkdir -p d|mkdir -p ld/a|mkdir -p f/a|mkdir lf|mkdir ln
ln f new|ln f g|ln -f f g|ln -f f hard|ln -f f f|ln -f nope g|ln -f d g|ln f d|ln f ld|ln d new|ln nope new|ln -s f g
ln f g e|ln -s f g e|ln f nope e|ln f d e|ln f g nodir|ln -f f g d|ln -T f g e
ln -sf f g|ln -s f d|ln -s f ld/|ln -sf x ld|ln -sfT x ld|ln -sf x lf|ln -sf x ln|ln -s x ln|ln -sfT f d|ln -s ../f d/";

/// What a directory holds, without times.
fn shown(root: &Path) -> Vec<String> {
    let below = walk(root).into_iter().filter(|line| !line.starts_with("\"\" "));
    let without_time = |line: String| {
        let fields = line.split(' ').enumerate().filter(|(position, _)| *position != 4);
        fields.map(|(_, field)| field).collect::<Vec<_>>().join(" ")
    };
    below.map(without_time).collect()
}

#[test]
fn what_a_link_with_a_slash_leads_to_is_not_removed() {
    // rm(1) empties the directory, and then fails.
    let scratch = Scratch::new("link-with-slash");
    let (image, host) = (image(&scratch), scratch.join("host"));
    fs::create_dir_all(host.join("d/below")).unwrap();
    std::os::unix::fs::symlink("d", host.join("link")).unwrap();
    run(["cp", "-a", text(&host), &target(&image, "/host")]).done();
    for place in [text(&host).to_owned(), target(&image, "/host")] {
        for slashes in ["/", "//"] {
            let link = format!("{place}/link{slashes}");
            run(["rm", "-r", &link]).failed(1, &["link", "not a directory", "leave out the slash"]);
            run(["rm", "-rf", &link]).failed(1, &["not a directory"]);
            run(["ls", &format!("{place}/d/below")]).done();
        }
        run(["rm", "-r", &format!("{place}/d/")]).done();
        run(["rm", &format!("{place}/link")]).done();
    }
}

#[test]
fn names_are_changed_as_the_programs_of_the_host_change_them() {
    require!(LongRun);
    let scratch = Scratch::new("as-on-the-host");
    let (theirs, ours, out) = (scratch.join("theirs"), scratch.join("ours"), scratch.join("out"));
    let (image, first, first_image) =
        (scratch.join("disk.img"), scratch.join("first"), scratch.join("first.img"));
    let setup = "mkdir \"$1\"; cd \"$1\"; mkdir d d/sub d2 e full; echo one > f; echo two > g; echo in > d/x; \
                 echo sub > d/sub/y; echo full > full/z; echo other > d2/x; ln -s f lf; ln -s d ld; ln -s nowhere ln; ln f hard; \
                 chmod 640 g; ln -s g lg; ln -s lg llg; ln -s ../g d/lg";
    tool("sh", ["-ec", setup, "sh", text(&first)]);
    run(["mkfs", "-q", "-b", "64M", "-m", "single", "--rootdir", text(&first), text(&first_image)]).done();
    let mut differences: Vec<String> = Vec::new();
    for call in AS_ON_THE_HOST.split(['|', '\n']) {
        let words: Vec<&str> = call.split(' ').collect();
        let is_symbolic = words[0] == "ln" && words[1].contains('s');
        let mut names = 0;
        let last_name = words.iter().skip(1).filter(|word| !word.starts_with('-')).count();
        let in_image = words.iter().enumerate().map(|(position, word)| {
            let is_name = position > 0 && !word.starts_with('-');
            names += usize::from(is_name);
            if is_name && !(is_symbolic && names < last_name) {
                target(&image, &format!("/{word}"))
            } else {
                (*word).to_owned()
            }
        });
        let in_image: Vec<String> = in_image.collect();
        for root in [&theirs, &ours] {
            let _ = fs::remove_dir_all(root);
            tool("cp", ["-a", text(&first), text(root)]);
        }
        tool("cp", ["--sparse=always", text(&first_image), text(&image)]);
        let theirs_ended =
            end(Command::new(words[0]).args(&words[1..]).current_dir(&theirs).env("LC_ALL", "C"));
        let ours_ended = end(common::vlinder().args(&words).current_dir(&ours));
        let image_ended = run(&in_image);
        let expected = (theirs_ended.code == 0, shown(&theirs));
        let _ = fs::remove_dir_all(&out);
        run(["cp", "-aT", &target(&image, "/"), text(&out)]).done();
        for (ended, root) in [(ours_ended, &ours), (image_ended, &out)] {
            let found = (ended.code == 0, shown(root));
            if found != expected {
                differences
                    .push(format!("{call}: {expected:?} {}\n but {found:?} {}", theirs_ended.err, ended.err));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn long_listings_show_sizes_for_people() {
    let scratch = Scratch::new("human");
    let image = image(&scratch);
    fs::write(scratch.join("file"), vec![0; 1536]).unwrap();
    run(["cp", text(&scratch.join("file")), &target(&image, "/")]).done();
    let listed = run(["ls", "-lh", &target(&image, "/")]).done().text();
    assert!(listed.contains(" 1.50KiB ") && listed.ends_with(" file\n"), "{listed}");
    let tree = run(["tree", &target(&image, "/")]).done().text();
    assert!(tree.ends_with("\n0 directories, 1 file\n"), "{tree}");
}

#[test]
fn listings_show_no_control_characters_and_json_shows_all_bytes() {
    let scratch = Scratch::new("ls");
    let image = image(&scratch);
    fs::write(scratch.join(OsStr::from_bytes(b"esc\x1b[31m\xff")), b"x").unwrap();
    run([
        OsStr::new("cp"),
        scratch.join(OsStr::from_bytes(b"esc\x1b[31m\xff")).as_os_str(),
        OsStr::new(&target(&image, "/")),
    ])
    .done();
    assert_eq!(run(["ls", &target(&image, "/")]).done().text(), "esc\\033[31m\\377\n");
    let json = run(["ls", "--json", &target(&image, "/")]).done().json();
    assert_eq!(json["entries"][0]["name"]["hex"], "6573631b5b33316dff");
}

#[test]
fn of_two_names_of_a_file_neither_is_moved_onto_the_other() {
    let scratch = Scratch::new("files");
    let image = image(&scratch);
    let host = scratch.join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("a"), "text").unwrap();
    fs::hard_link(host.join("a"), host.join("b")).unwrap();
    run(["cp", "-a", text(&host), &target(&image, "/")]).done();
    for root in [text(&host).to_owned(), target(&image, "/host")] {
        let (a, b) = (format!("{root}/a"), format!("{root}/b"));
        for (from, to) in [(&a, &a), (&a, &b)] {
            run(["mv", from, to]).failed(1, &["the same file", "vlinder rm"]);
            run(["mv", "-n", from, to]).done();
        }
        for name in [&a, &b] {
            assert_eq!(run(["cat", name]).done().text(), "text");
        }
        run(["cat", &format!("{a}/")]).failed(1, &["not a directory", "leave out the slash"]);
    }
}

#[test]
fn a_directory_is_not_copied_into_itself_and_nothing_of_it_is() {
    let scratch = Scratch::new("into-itself");
    let image = image(&scratch);
    let host = scratch.join("host");
    fs::create_dir_all(host.join("d/sub/deep")).unwrap();
    fs::write(host.join("d/file"), "text").unwrap();
    symlink("d/sub", host.join("link")).unwrap();
    run(["cp", "-a", text(&host), &target(&image, "/")]).done();
    let before = walk(&host);
    for root in [text(&host).to_owned(), target(&image, "/host")] {
        let at = |name: &str| format!("{root}/{name}");
        for to in ["d/new", "d/sub", "d/sub/", "d", "link", "d/sub/deep", "d/sub/deep/new"] {
            run(["cp", "-r", &at("d"), &at(to)]).failed(1, &["can't be copied into itself", "outside"]);
            run(["cp", "-a", &at("d"), &at(to)]).failed(1, &["can't be copied into itself"]);
        }
    }
    run(["cp", "-r", &target(&image, "/"), &target(&image, "/host/new")])
        .failed(1, &["can't be copied into itself"]);
    assert_eq!(walk(&host), before);
    let out = scratch.join("out");
    run(["cp", "-aT", &target(&image, "/host"), text(&out)]).done();
    assert_eq!(walk(&out), before);
    // Beside itself, and where the names only begin alike.
    run(["cp", "-r", &target(&image, "/host/d"), &target(&image, "/host/dd")]).done();
    run(["cp", "-r", &target(&image, "/host/d"), &target(&image, "/host/dd")]).done();
}
