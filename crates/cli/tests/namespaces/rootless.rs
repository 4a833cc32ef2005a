//! An ordinary user edits the files of others in an image of their own: with `owners=root`, and as the root
//! of a user namespace.

use vlinder_testkit::require;

use crate::alone;
use crate::namespace::run_in_namespace;

/// What a user does with a mount whose root that user is.
const EDIT: &str = r#"
set -e
umask 022
./vlinder mount -o owners=root disk.img point
cd point
echo 1 > theirs; chown 33:44 theirs; chmod 600 theirs
mkdir dir; chown 55:66 dir; chmod 700 dir
# Where neither owner nor mode would let this user in.
cat theirs
echo 2 > dir/inside; echo 3 >> theirs
ln -s dir link; chown -h 7:8 link
mkfifo dir/pipe; chown 9:10 dir/pipe
cp /bin/true set-user; chown 0:0 set-user; chmod 4755 set-user
setfattr -n user.note -v x theirs
mv dir/inside dir/moved; ln theirs dir/hard; rm dir/pipe
if mknod null c 1 3 2>/dev/null; then echo a device; fi
cd ..
./vlinder subvolume create point/dir/sub
./vlinder subvolume snapshot -r point/dir/sub point/dir/shot
./vlinder subvolume delete point/dir/shot >/dev/null
stat -c '%n %a %u %g' point point/theirs point/dir point/link point/set-user point/dir/*
grep -c ' /tmp/point .*nosuid,nodev' /proc/self/mountinfo
"#;

const EDITED: &str = "\
1
Create subvolume 'point/dir/sub'
Create a readonly snapshot of 'point/dir/sub' in 'point/dir/shot'
point 755 0 0
point/theirs 600 33 44
point/dir 700 55 66
point/link 777 7 8
point/set-user 4755 0 0
point/dir/hard 600 33 44
point/dir/moved 644 0 0
point/dir/sub 755 0 0
1
";

#[test]
fn a_user_is_root_in_an_image_with_owners_root() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"), Tool("setfattr"));
    let rest = r#"
as_user sh -c "$EDIT" || exit 1
# Nobody else comes in, root included; and what root does to the mount's flags leaves these.
if ls point 2>/dev/null; then echo root came in; fi
./vlinder mount -o remount,suid,dev disk.img point
grep -c ' /tmp/point .*nosuid,nodev' /proc/self/mountinfo
as_user ./vlinder umount point
./vlinder check --quiet disk.img
./vlinder cat disk.img:/theirs
"#;
    let ended = run_in_namespace(rest, &[("EDIT", EDIT)]);
    assert_eq!((ended.text().as_str(), ended.err.as_str()), (&*format!("{EDITED}1\n1\n3\n"), ""));
    assert_eq!(ended.code, 0);
}

#[test]
fn an_acl_changes_the_mode_that_is_shown_at_once() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"), Tool("setfacl"));
    let script = r#"
set -e
./vlinder mount -o owners=root disk.img point
# The kernel itself lets none but a file's owner give it an ACL.
echo 1 > point/file; chown 65534:44 point/file; chmod 640 point/file
stat -c %a point/file
setfacl -m u:99:rwx point/file
stat -c %a point/file
getfacl -cn point/file | grep 99
mkdir point/dir; chown 65534:44 point/dir; setfacl -d -m u:98:rx point/dir
echo 2 > point/dir/new
getfacl -cn point/dir/new | grep 98
./vlinder umount point
"#;
    let ended = run_in_namespace(r#"as_user sh -c "$SCRIPT""#, &[("SCRIPT", script)]);
    assert_eq!(ended.err, "");
    let said = ended.done().text();
    let lines: Vec<&str> = said.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(lines, ["640", "670", "user:99:rwx", "user:98:r-x"]);
}

#[test]
fn owners_root_lets_no_others_in() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    let script = "as_user ./vlinder mount -o owners=root,allow_other disk.img point";
    let words = ["owners=root and allow_other do not go together", "leave one of them out"];
    run_in_namespace(script, &[]).failed(2, &words);
}

#[test]
fn the_root_of_a_user_namespace_mounts_and_edits() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"));
    let script = r#"
set -e
./vlinder mount disk.img point
echo 1 > point/file; chown 0:0 point/file; chmod 640 point/file
mkdir point/dir
./vlinder subvolume create point/dir/sub
./vlinder subvolume list point
stat -c '%n %a %u %g' point/file
./vlinder umount point
"#;
    // The directory of the system's root is there, and of somebody else's.
    let rest = r#"
mkdir -p -m 711 /run/vlinder
as_user unshare -rm sh -c "$SCRIPT" || exit 1
./vlinder check --quiet disk.img
./vlinder stat disk.img:/file | grep 'Uid:'
"#;
    let ended = run_in_namespace(rest, &[("SCRIPT", script)]);
    assert_eq!(ended.err, "");
    let said = ended.done().text();
    assert!(said.starts_with("Create subvolume 'point/dir/sub'\nID 256 gen "), "{said}");
    assert!(said.contains("path dir/sub\npoint/file 640 0 0\n"), "{said}");
    assert!(said.ends_with("Uid: 0\tGid: 0\n"), "{said}");
}
