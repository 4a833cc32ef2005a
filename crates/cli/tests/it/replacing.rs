//! Replacing is not writing into: a copy onto a file that exists leaves that file what it is, whatever it is,
//! and a move takes its place. The judges are coreutils on the kernel's mount of an equal image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{end, make_image, run, target, tool, vlinder};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

/// What makes the image on which both sides start; runs in its root.
const SETUP: &str = "\
umask 022
head -c 100 /dev/urandom > small; head -c 5000000 /dev/urandom > large
cp small shadow; chown 7:42 shadow; chmod 640 shadow; setfattr -n security.selinux -v shadow_t shadow; setfacl -m u:99:r shadow
mkdir one two; ln shadow one/again; ln shadow two/third; ln large one/large; ln -s ../shadow one/leads; ln -s nowhere dangles
touch vm vm-empty; chattr +C vm vm-empty; head -c 300000 /dev/urandom > vm
mkdir cow-off; chattr +C cow-off; cp large cow-off/inherits; touch cow-off/.x
cp small pressed; setfattr -n btrfs.compression -v zstd pressed; cp small never; setfattr -n btrfs.compression -v none never
cp large pressed-large; setfattr -n btrfs.compression -v lzo pressed-large
for name in attributes attributes-2 attributes-3; do cp small $name; setfattr -n user.note -v kept $name; setfattr -n trusted.note -v kept $name; \
chown 3:4 $name; setfacl -m u:5:rw $name; done
cp small setid; chown 9:9 setid; chmod 6755 setid; cp /bin/true able; setcap cap_net_raw+ep able
for name in grows fixed; do cp small $name; done
cp large sparse; cp large emptied; cp small emptied-small; cp small linked; ln linked one/linked; cp small linked-2; ln linked-2 two/linked
cp small moved-onto; chown 11:12 moved-onto; setfattr -n user.note -v gone moved-onto; ln moved-onto one/moved-onto
cp large mover; cp small in-place; chmod 0 in-place
mkdir exists; chmod 2750 exists; chown 8:42 exists; setfattr -n user.note -v directory exists; cp small exists/x; chmod 604 exists/x; chown 6:6 exists/x
mkdir group; chown 0:42 group; chmod 2775 group
mkdir listed; setfacl -d -m u:99:rwx,g::r-x,o::--- listed
mkdir sticky; chmod 1777 sticky
mkdir links; ln -s ../linked-to links/new; cp small linked-to; chown 21:22 linked-to; ln -s ../one/leads links/twice
mkdir full; cp small full/z; mkdir full/new
btrfs -q subvolume create sub > sub.log; rm sub.log; cp small sub/file; chown 31:32 sub/file
mkfifo pipe; mknod device c 1 3
chattr +a grows; chattr +i fixed";

/// What is copied; made in a directory of the host.
const SOURCES: &str = "\
umask 022
echo new > new; : > empty; head -c 3000000 /dev/urandom > big; truncate -s 1G holes; echo far | dd of=holes bs=1 seek=900M conv=notrunc status=none
cp new rich; chown 13:14 rich; chmod 4711 rich; setfattr -n user.mine -v 1 rich; setfacl -m u:77:rwx rich
cp new plain; chown 15:16 plain; chmod 600 plain
mkdir -p tree/sub tree/open; echo x > tree/x; echo y > tree/sub/y; ln -s x tree/link; chmod 700 tree/sub; chmod 1777 tree/open; chmod 555 tree/x
mkdir again; echo other > again/new";

/// The commands. `@` is the root of the image; a line is one call.
const CALLS: &str = "\
cp new @/shadow|cp big @/large|cp big @/vm|cp big @/vm-empty|cp new @/cow-off/inherits|cp new @/cow-off/fresh|cp big @/pressed|cp big @/never
cp new @/pressed-large|cp new @/attributes|cp -p plain @/attributes-2|cp -a rich @/attributes-3|cp new @/setid|cp new @/able|cp new @/grows
cp new @/fixed|cp -f new @/fixed|cp -a new @/fixed|cp holes @/sparse|cp empty @/emptied|cp empty @/emptied-small|cp new @/one/leads|cp new @/dangles
cp -a rich @/linked|cp -p rich @/linked-2|cp new @/in-place|cp -n big @/in-place|cp new @/full|cp new @/full/z|cp -T new @/full
cp -rT tree @/exists|cp -r tree @/group|cp new @/group|cp -a rich @/group|cp -r tree @/listed|cp new @/listed|cp -a rich @/listed/rich|cp -a tree @/listed/kept
cp -r tree @/sticky|cp new @/links|cp new @/links/|cp big @/links/twice|cp -a rich @/links/new|cp new @/sub/file|cp @/small @/sub/file2
mkdir @/group/made|mkdir -m 755 @/group/mode|mkdir -p @/group/up/down|ln -s x @/group/link|ln @/small @/group/hard|mkdir @/listed/made
mv @/mover @/moved-onto|mv @/one/moved-onto @/two/third|cp @/pressed-large @/two/third|cp new again/new @/two|cp new new @/one|cp -r tree @/fresh-tree
mv @/small @/full/new|cp new @/small/|cp @/sub/file @/shadow|cp -a tree/link @/sticky/x|cp -rT tree @/exists|cp new @/exists";

/// What there is of every file: type, mode, owner, links, size, content, attributes and flags, and which
/// names are one file. The number counts where the file was there before the calls.
const LOOK: &str = "\
find . -mindepth 1 | LC_ALL=C sort | while read -r name; do
  stat -c '== %n %i %F %a %u:%g %h %t,%T' \"$name\"; getfattr -h -d -m - \"$name\"
  if [ -h \"$name\" ]; then readlink \"$name\"
  elif [ -f \"$name\" ]; then stat -c %s \"$name\"; md5sum < \"$name\"; lsattr \"$name\"; find . -samefile \"$name\" | LC_ALL=C sort
  elif [ -d \"$name\" ]; then lsattr -d \"$name\"; fi
done";

fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Mounts an image by the kernel, which tells its log of features that compression brings.
fn mount_to_write(image: &Path) -> KernelMount {
    let allowed = ["BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*"];
    KernelMount::of(&[image], "", &allowed).unwrap()
}

/// The words of a call on one side.
fn words(call: &str, root: &str) -> Vec<String> {
    call.split(' ').map(|word| word.replace('@', root)).collect()
}

/// What [`LOOK`] shows of each name, with the inode number apart.
fn look(image: &Path) -> BTreeMap<String, (String, String)> {
    let mount = KernelMount::new(image, "ro").unwrap();
    let shown = shell(mount.path(), LOOK);
    mount.unmount().unwrap();
    let files = shown.split("== ").filter(|file| !file.is_empty()).map(|file| {
        let (name, rest) = file.split_once(' ').unwrap();
        let (number, rest) = rest.split_once(' ').unwrap();
        (name.to_owned(), (number.to_owned(), rest.to_owned()))
    });
    files.collect()
}

#[test]
fn copies_and_moves_leave_what_coreutils_leave() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfacl"), Tool("setcap"));
    let scratch = Scratch::new("replacing");
    let (theirs, ours, sources) = (scratch.join("theirs"), scratch.join("ours"), scratch.join("sources"));
    fs::File::create(&theirs).unwrap().set_len(1 << 30).unwrap();
    tool("mkfs.btrfs", ["-q", theirs.to_str().unwrap()]);
    let mount = mount_to_write(&theirs);
    shell(mount.path(), SETUP);
    mount.unmount().unwrap();
    fs::create_dir(&sources).unwrap();
    shell(&sources, SOURCES);
    tool("cp", ["--sparse=always", theirs.to_str().unwrap(), ours.to_str().unwrap()]);
    let before = look(&theirs);
    let mount = mount_to_write(&theirs);
    let mut differences = Vec::new();
    for call in CALLS.split(['|', '\n']) {
        let of_theirs = words(call, mount.path().to_str().unwrap());
        let of_ours = words(&call.replace("@/", "@:/"), ours.to_str().unwrap());
        let mut command = Command::new(&of_theirs[0]);
        let theirs = end(command.args(&of_theirs[1..]).current_dir(&sources).env("LC_ALL", "C"));
        let ours = end(vlinder().args(of_ours).current_dir(&sources));
        if (theirs.code == 0) != (ours.code == 0) {
            differences
                .push(format!("{call}: {} {}, but {} {}", theirs.code, theirs.err, ours.code, ours.err));
        }
    }
    mount.unmount().unwrap();
    btrfs_check_data(&ours).unwrap();
    let (theirs, ours) = (look(&theirs), look(&ours));
    for name in theirs.keys().chain(ours.keys().filter(|name| !theirs.contains_key(*name))) {
        let (wanted, found) = (theirs.get(name), ours.get(name));
        let is_equal = match (wanted, found) {
            (Some((number, wanted)), Some((found_number, found))) => {
                let was_there = before.get(name).is_some_and(|(before, _)| before == number);
                wanted == found && (!was_there || number == found_number)
            }
            _ => false,
        };
        if !is_equal {
            differences.push(format!("{name}: {wanted:#?}\n but {found:#?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

/// The script of the case that was reported: who edits an image replaces /etc/shadow and the disk of a
/// virtual machine.
#[test]
fn a_shadow_file_keeps_label_group_list_and_links() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("setfacl"));
    let scratch = Scratch::new("shadow");
    let (image, new) = (scratch.join("c.img"), scratch.join("h"));
    fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
    tool("mkfs.btrfs", ["-q", image.to_str().unwrap()]);
    let mount = KernelMount::new(&image, "").unwrap();
    shell(
        mount.path(),
        "echo old > shadow; chown 0:42 shadow; chmod 640 shadow; setfattr -n security.selinux -v shadow_t shadow; \
         setfacl -m u:99:r shadow; ln shadow second; touch vm; chattr +C vm; ln -s shadow sl",
    );
    mount.unmount().unwrap();
    fs::write(&new, "new\n").unwrap();
    for name in ["/shadow", "/vm", "/sl"] {
        run(["cp", new.to_str().unwrap(), &target(&image, name)]).done();
    }
    let mount = KernelMount::new(&image, "ro").unwrap();
    let shown = shell(
        mount.path(),
        "stat -c '%A %u:%g %h links' shadow; getfattr -d -m security shadow; getfacl -nc shadow; cat second vm; \
         lsattr vm; readlink sl",
    );
    mount.unmount().unwrap();
    let expected = "-rw-r----- 0:42 2 links\n# file: shadow\nsecurity.selinux=\"shadow_t\"\n\nuser::rw-\nuser:99:r--\n\
                    group::r--\nmask::r--\nother::---\n\nnew\nnew\n---------------C------ vm\nshadow\n";
    assert_eq!(shown, expected);
}

struct Place {
    scratch: Scratch,
    image: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let image = scratch.join("disk.img");
        make_image(&image);
        Self { scratch, image }
    }

    /// With an image that has room for several large files.
    fn with_room(name: &str) -> Self {
        let place = Self::new(name);
        run(["mkfs", "-q", "-f", "-b", "1G", place.image.to_str().unwrap()]).done();
        place
    }

    fn at(&self, name: &str) -> String {
        target(&self.image, name)
    }

    /// A file of the host.
    fn host(&self, name: &str, content: &[u8]) -> String {
        let path = self.scratch.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn cat(&self, name: &str) -> Vec<u8> {
        run(["cat", &self.at(name)]).done().out
    }

    fn inode(&self, name: &str) -> (u64, u64) {
        let status = run(["stat", "--json", &self.at(name)]).done().json();
        let status = status["files"].as_array().map_or(&status, |files| &files[0]);
        (status["inode"].as_u64().unwrap(), status["links"].as_u64().unwrap())
    }

    fn is_clean(&self) {
        run(["check", "--check-data-csum", self.image.to_str().unwrap()]).done();
    }
}

fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn content_goes_into_no_node_pipe_or_directory_of_an_image() {
    let place = Place::new("nodes");
    let new = place.host("new", b"new");
    let tree = place.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    tool("mkfifo", [tree.join("pipe").to_str().unwrap()]);
    fs::create_dir(tree.join("directory")).unwrap();
    run(["cp", "-a", tree.to_str().unwrap(), &place.at("/")]).done();
    let before = place.inode("/tree/pipe");
    for flags in [&["cp"][..], &["cp", "-a"], &["cp", "-f"], &["cp", "-p"]] {
        let call = |to: &str| run(flags.iter().copied().chain([&*new, to]));
        call(&place.at("/tree/pipe")).failed(1, &["/tree/pipe: no regular file", "remove it"]);
    }
    run(["cp", "-T", &new, &place.at("/tree/directory")]).failed(1, &["a directory is in the way"]);
    run(["cp", "/dev/null", &place.at("/tree/pipe")]).failed(1, &["no regular file"]);
    assert_eq!(place.inode("/tree/pipe"), before);
    // What is no content takes the place of what is no content.
    run(["cp", "-a", tree.to_str().unwrap(), &place.at("/")]).done();
    let host = place.scratch.join("out");
    for _ in 0..2 {
        run(["cp", "-aT", &place.at("/tree"), host.to_str().unwrap()]).done();
    }
    place.is_clean();
}

#[test]
fn a_file_keeps_its_number_and_all_its_names() {
    let place = Place::new("names");
    let new = place.host("new", &noise(200_000, 1));
    let old = place.host("old", b"old");
    for directory in ["/a", "/b", "/c"] {
        run(["mkdir", &place.at(directory)]).done();
    }
    run(["cp", &old, &place.at("/a/0")]).done();
    let names: Vec<String> =
        (1..600).map(|number| format!("/{}/{number}", ["a", "b", "c"][number % 3])).collect();
    let tree = place.scratch.join("tree");
    for name in std::iter::once("/a/0").chain(names.iter().map(String::as_str)) {
        let path = tree.join(&name[1..]);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if name == "/a/0" {
            fs::write(path, "old").unwrap()
        } else {
            fs::hard_link(tree.join("a/0"), path).unwrap()
        }
    }
    run(["cp", "-aT", tree.to_str().unwrap(), &place.at("/")]).done();
    let before = place.inode("/a/0");
    assert_eq!(before.1, 600);
    for content in [&new, &old, &new] {
        run(["cp", content, &place.at("/b/100")]).done();
        assert_eq!(place.inode("/a/0"), before);
        for name in ["/a/0", "/b/100", "/c/599"] {
            assert_eq!(place.cat(name), fs::read(content).unwrap(), "{name}");
        }
    }
    run(["cp", &place.at("/a/0"), &place.at("/c/599")]).failed(1, &["the same file"]);
    // A link leads to where its text leads in the image.
    run(["ln", "-s", "/a/0", &place.at("/b/old")]).done();
    run(["cp", &old, &place.at("/b/")]).done();
    assert_eq!((place.cat("/c/599"), place.inode("/a/0")), (b"old".to_vec(), before));
    run(["ln", "-s", "/nowhere", &place.at("/c/old")]).done();
    run(["cp", &old, &place.at("/c/")]).failed(1, &["/c/old: a symbolic link that leads nowhere"]);
    run(["stat", &place.at("/nowhere")]).failed(1, &["nowhere"]);
    place.is_clean();
}

#[test]
fn without_space_for_the_new_content_the_old_one_stays() {
    let place = Place::new("full");
    let old = noise(10 << 20, 2);
    let (kept, large) = (place.host("kept", &old), place.host("large", &noise(200 << 20, 3)));
    for name in ["/file", "/no-cow"] {
        if name == "/no-cow" {
            run(["cp", "/dev/null", &place.at(name)]).done();
        }
        run(["cp", &kept, &place.at(name)]).done();
        run(["ln", &place.at(name), &place.at(&format!("{name}-2"))]).done();
        let before = place.inode(name);
        run(["cp", &large, &place.at(name)]).failed(1, &["no space left"]);
        run(["cp", "-p", &large, &place.at(name)]).failed(1, &["no space left"]);
        let mut feed = vlinder();
        feed.args(["cp", "/dev/stdin", &place.at(name)]).stdin(fs::File::open("/dev/zero").unwrap());
        end(&mut feed).failed(1, &["no space left"]);
        assert_eq!(place.inode(name), before);
        assert!(place.cat(name) == old && place.cat(&format!("{name}-2")) == old);
    }
    // What was taken in vain is free again.
    let other = place.host("other", &noise(15 << 20, 4));
    run(["cp", &other, &place.at("/file")]).done();
    assert!(place.cat("/file-2") == fs::read(other).unwrap());
    place.is_clean();
}

#[test]
fn a_copy_that_is_killed_leaves_old_or_new_content() {
    let place = Place::with_room("killed");
    let contents = [noise(50 << 20, 5), noise(45 << 20, 6)];
    let paths = [place.host("0", &contents[0]), place.host("1", &contents[1])];
    run(["cp", &paths[0], &place.at("/file")]).done();
    run(["ln", &place.at("/file"), &place.at("/second")]).done();
    let before = place.inode("/file");
    let mut killed = 0;
    for round in 0..16 {
        let mut copy = vlinder().args(["cp", &paths[(round + 1) % 2], &place.at("/file")]).spawn().unwrap();
        vlinder_base::thread::sleep(Duration::from_millis(2 + 6 * round as u64));
        copy.kill().unwrap();
        killed += usize::from(copy.wait().unwrap().code().is_none());
        let found = place.cat("/second");
        assert!(contents.contains(&found), "{} bytes of neither", found.len());
        assert_eq!(place.inode("/file"), before);
    }
    assert!(killed > 1, "only {killed} of 16 were killed before their end");
    run(["cp", &paths[1], &place.at("/file")]).done();
    assert_eq!(run(["ls", "-A", &place.at("/")]).done().text(), "file\nsecond\n");
    place.is_clean();
}

#[test]
fn large_small_and_sparse_contents_follow_one_another() {
    let place = Place::with_room("sizes");
    let sparse = place.scratch.join("sparse");
    let open = fs::File::create(&sparse).unwrap();
    open.set_len(1 << 30).unwrap();
    open.write_all_at(b"far", 700 << 20).unwrap();
    let sources = [
        place.host("inline", b"inline"),
        place.host("large", &noise(9_000_001, 7)),
        place.host("empty", b""),
        place.host("sector", &noise(4096, 8)),
        place.host("zeros", &[0; 3_000_000]),
    ];
    run(["cp", &sources[1], &place.at("/file")]).done();
    let before = place.inode("/file");
    for first in &sources {
        for second in &sources {
            for options in ["", "compress=zstd,max_inline=0"] {
                run(["cp", "-o", options, first, &place.at("/file")]).done();
                run(["cp", "-o", options, second, &place.at("/file")]).done();
                assert!(place.cat("/file") == fs::read(second).unwrap(), "{first} {second} {options}");
            }
        }
    }
    run(["cp", sparse.to_str().unwrap(), &place.at("/file")]).done();
    let shown = run(["stat", "--json", &place.at("/file")]).done().text();
    assert!(shown.contains("\"size_bytes\":1073741824"), "{shown}");
    assert!(shown.contains("\"allocated_bytes\":4096"), "{shown}");
    assert_eq!(place.inode("/file"), before);
    place.is_clean();
}

#[test]
fn a_read_only_subvolume_is_left_as_it_is() {
    let place = Place::new("read-only");
    let (old, new) = (place.host("old", b"old"), place.host("new", b"new"));
    run(["subvolume", "create", &place.at("/sub")]).done();
    run(["cp", &old, &place.at("/sub/file")]).done();
    run(["subvolume", "snapshot", "-r", &place.at("/sub"), &place.at("/snapshot")]).done();
    for flags in ["-f", "-a", "-p"] {
        run(["cp", flags, &new, &place.at("/snapshot/file")]).failed(1, &["/snapshot/file"]);
    }
    // What a snapshot shares with the file does not change with it.
    run(["cp", &new, &place.at("/sub/file")]).done();
    assert_eq!((place.cat("/snapshot/file"), place.cat("/sub/file")), (b"old".to_vec(), b"new".to_vec()));
    run(["cp", &place.at("/snapshot/file"), &place.at("/sub/file")]).done();
    assert_eq!(place.cat("/sub/file"), b"old");
    place.is_clean();
}

#[test]
fn a_file_of_the_host_keeps_owner_mode_and_attributes() {
    let place = Place::new("host");
    let new = place.host("new", b"new");
    run(["cp", &new, &place.at("/new")]).done();
    let old = place.host("old", b"old, and longer");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o604)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&old, Some(7), Some(8)).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o6755)).unwrap();
    }
    let attribute = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&old, name, value, rustix::fs::XattrFlags::empty()).is_ok()
    };
    let takes_attributes = attribute("user.note", b"kept");
    let before = fs::metadata(&old).unwrap();
    run(["cp", &place.at("/new"), &old]).done();
    let after = fs::metadata(&old).unwrap();
    assert_eq!(fs::read(&old).unwrap(), b"new");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    if takes_attributes {
        let mut value = [0; 8];
        assert_eq!(rustix::fs::getxattr(&old, "user.note", &mut value[..]), Ok(4));
    }
    // Further names show the new content, too.
    let other = place.scratch.join("other");
    fs::hard_link(&old, &other).unwrap();
    let before = fs::metadata(&old).unwrap();
    for content in [noise(300_000, 1), b"short".to_vec(), noise(70_000, 2), Vec::new()] {
        let new = place.host("new", &content);
        run(["cp", &new, &place.at("/new")]).done();
        run(["cp", &place.at("/new"), &old]).done();
        assert!(fs::read(&other).unwrap() == content);
        let after = fs::metadata(&old).unwrap();
        let seen = |status: &fs::Metadata| (status.ino(), status.nlink(), status.uid(), status.gid());
        assert_eq!(seen(&after), seen(&before));
        let names = fs::read_dir(place.scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".vlinder-")));
    }
    // -p keeps the names, too; -a cuts them, as cp(1) does.
    run(["cp", "-p", &place.at("/new"), &old]).done();
    assert_eq!(fs::metadata(&old).unwrap().ino(), before.ino());
    run(["cp", "-a", &place.at("/new"), &old]).done();
    assert_eq!((fs::metadata(&old).unwrap().nlink(), fs::metadata(&other).unwrap().nlink()), (1, 1));
    if !is_root {
        let other = place.host("read-only", b"kept");
        fs::hard_link(&other, place.scratch.join("read-only-too")).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o444)).unwrap();
        run(["cp", &place.at("/new"), &other]).failed(1, &["read-only", "further names"]);
        assert_eq!(fs::read(&other).unwrap(), b"kept");
    }
    // A link that an image planted is not followed in a directory of the host.
    let out = place.scratch.join("out");
    fs::create_dir(&out).unwrap();
    symlink(&new, out.join("new")).unwrap();
    run(["cp", &place.at("/new"), out.to_str().unwrap()]).done();
    assert!(!fs::symlink_metadata(out.join("new")).unwrap().file_type().is_symlink());
}

/// Everything below a directory as rsync(1) would compare it: modes, owners, times, attributes, links,
/// contents.
fn walk(root: &Path) -> Vec<String> {
    let script = "find . -mindepth 1 | LC_ALL=C sort | while read -r name; do stat -c '%n %F %a %u:%g %h %Y' \"$name\"; \
                  [ ! -f \"$name\" ] || md5sum < \"$name\"; getfattr -h -d -m - \"$name\"; done";
    shell(root, script).lines().map(str::to_owned).collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("sub/file"), noise(100_000, 9)).unwrap();
    fs::hard_link(root.join("sub/file"), root.join("sub/deep/again")).unwrap();
    symlink("file", root.join("sub/link")).unwrap();
    fs::set_permissions(root.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    tool("touch", ["-d", "2001-02-03 04:05:06", root.join("sub/deep").to_str().unwrap()]);
}

#[test]
fn a_move_between_file_systems_takes_the_place_of_what_is_there() {
    require!(Tool("getfattr"));
    let (place, other) = (Place::new("move"), Place::new("move-other"));
    let old = place.host("old", b"old");
    let tree = place.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    let before = walk(&tree);
    // From the host, from image to image, and back.
    run(["mv", tree.join("sub").to_str().unwrap(), &place.at("/")]).done();
    assert!(!tree.join("sub").exists());
    run(["mv", &place.at("/sub"), &other.at("/")]).done();
    run(["mv", &other.at("/sub"), tree.to_str().unwrap()]).done();
    assert_eq!(walk(&tree), before);
    for image in [&place, &other] {
        assert_eq!(run(["ls", "-A", &image.at("/")]).done().text(), "");
    }
    // The file that was there keeps its content under its other name.
    run(["cp", &old, &place.at("/file")]).done();
    run(["ln", &place.at("/file"), &place.at("/second")]).done();
    run(["ln", "-s", "second", &place.at("/leads")]).done();
    let before = place.inode("/file");
    let new = place.host("new", b"new");
    run(["mv", "-n", &new, &place.at("/file")]).done();
    assert_eq!((place.cat("/file"), fs::read(&new).unwrap()), (b"old".to_vec(), b"new".to_vec()));
    run(["mv", &new, &place.at("/file")]).done();
    assert!(!Path::new(&new).exists());
    assert_ne!(place.inode("/file").0, before.0);
    assert_eq!((place.cat("/file"), place.cat("/second")), (b"new".to_vec(), b"old".to_vec()));
    // A link is replaced, not followed.
    run(["mv", &place.host("new", b"newer"), &place.at("/leads")]).done();
    assert_eq!((place.cat("/leads"), place.cat("/second")), (b"newer".to_vec(), b"old".to_vec()));
    run(["mv", &place.at("/leads"), &old]).done();
    assert_eq!(fs::read(&old).unwrap(), b"newer");
    // Directories replace empty ones only, and no files; files replace no directories.
    fs::create_dir_all(place.scratch.join("d/e")).unwrap();
    let d = place.scratch.join("d").to_str().unwrap().to_owned();
    run(["mkdir", "-p", &place.at("/full/d/x"), &place.at("/empty/d")]).done();
    run(["mv", &d, &place.at("/full")]).failed(1, &["not empty"]);
    run(["mv", &d, &place.at("/file")]).failed(1, &["no directory"]);
    run(["mv", "-T", &old, &place.at("/empty")]).failed(1, &["a directory is in the way"]);
    run(["mv", &d, &place.at("/empty")]).done();
    assert_eq!(run(["ls", &place.at("/empty/d")]).done().text(), "e\n");
    [place, other].iter().for_each(Place::is_clean);
}

#[test]
fn a_move_that_can_not_copy_all_removes_nothing() {
    let place = Place::new("move-fails");
    let tree = place.scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), noise(200 << 20, 10)).unwrap();
    fs::write(tree.join("b"), "b").unwrap();
    run(["mv", tree.to_str().unwrap(), &place.at("/")]).failed(1, &["no space left"]);
    assert!(tree.join("a").exists() && tree.join("b").exists());
    // A device is made on the host only where that was asked for.
    run(["mkdir", &place.at("/nodes")]).done();
    run(["cp", &place.host("file", b"x"), &place.at("/nodes/file")]).done();
    if rustix::process::geteuid().is_root() {
        run(["cp", "-a", "/dev/null", &place.at("/nodes/")]).done();
        let out = place.scratch.join("out");
        run(["mv", &place.at("/nodes"), out.to_str().unwrap()])
            .failed(1, &["a device node", "stays where it is"]);
        run(["cat", &place.at("/nodes/file")]).done();
        fs::remove_dir_all(&out).unwrap();
        run(["mv", "--devices", &place.at("/nodes"), out.to_str().unwrap()]).done();
        assert!(out.join("null").exists());
    }
    place.is_clean();
}

#[test]
fn an_image_goes_neither_into_itself_nor_away_under_a_command() {
    let place = Place::new("own");
    let other = Place::new("own-other");
    let new = place.host("new", b"new");
    run(["cp", &new, &place.at("/file")]).done();
    let before = fs::read(&place.image).unwrap();
    let image = place.image.to_str().unwrap();
    let directory = place.scratch.path().to_str().unwrap();
    let link = other.scratch.join("link");
    symlink(&place.image, &link).unwrap();
    for verb in [&["mv"][..], &["cp"], &["cp", "-a"], &["mv", "-f"]] {
        let call = |from: &str, to: &str| run(verb.iter().copied().chain([from, to]));
        call(image, &place.at("/")).failed(1, &["the image that this command works on"]);
        call(image, &target(&link, "/file")).failed(1, &["the image that this command works on"]);
        if verb != ["cp"] {
            call(directory, &place.at("/")).failed(1, &["the image that this command works on"]);
        }
        assert!(fs::read(image).unwrap() == before);
    }
    // Another image is a file like others.
    run(["cp", other.image.to_str().unwrap(), &place.at("/file")]).done();
    assert!(place.cat("/file") == fs::read(&other.image).unwrap());
    place.is_clean();
}

#[test]
fn a_file_of_the_host_stays_without_copy_on_write() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfacl"));
    let (place, host) = (Place::new("host-flags"), Place::with_room("host-flags-mount"));
    run(["cp", &place.host("new", &noise(100_000, 11)), &place.at("/new")]).done();
    let mount = KernelMount::new(&host.image, "").unwrap();
    shell(mount.path(), "touch vm; chattr +C vm; setfacl -m u:99:r vm; chown 5:6 vm");
    let vm = mount.path().join("vm");
    run(["cp", &place.at("/new"), vm.to_str().unwrap()]).done();
    let shown = shell(mount.path(), "lsattr vm; stat -c '%A %u:%g %s' vm; getfacl -nc vm | grep 99");
    assert_eq!(shown, "---------------C------ vm\n-rw-r--r-- 5:6 100000\nuser:99:r--\n");
    mount.unmount().unwrap();
}
