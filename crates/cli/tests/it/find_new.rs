//! `subvolume find-new`, compared with btrfs-progs on the same image mounted by the kernel, and on a mount.

use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

use crate::common::{run, target, tool};
use crate::place::Place;

const SCRIPT: &str = r#"
set -e
cd "$1"
btrfs subvolume create sub > /dev/null
cd sub
mkdir -p deep/er many
head -c 300000 /dev/urandom > noise
echo small > inline
fallocate -l 1M preallocated
yes text | head -c 1000000 > text
btrfs property set text compression zlib 2>/dev/null || true
touch packed; btrfs property set packed compression zlib; yes words | head -c 900000 > packed
touch bare; chattr +C bare; head -c 200000 /dev/urandom > bare
truncate -s 1M hole
ln -s somewhere link
sync
btrfs subvolume snapshot -r . ../shot > /dev/null
head -c 4096 /dev/urandom | dd of=noise bs=4k seek=10 conv=notrunc status=none
head -c 9000 /dev/urandom | dd of=bare bs=3k seek=5 conv=notrunc status=none
head -c 50000 /dev/urandom > deep/er/own
ln deep/er/own many/second
ln deep/er/own first
cp --reflink=always noise deep/clone
sync
echo more > "with  spaces and \"marks\""
for n in $(seq 1 500); do echo $n > many/$n; done
for n in $(seq 1 400); do ln inline many/a-long-enough-name-of-the-same-file-$n; done
mv deep moved
rm text
sync
head -c 8192 /dev/urandom | dd of=moved/er/own bs=4k conv=notrunc status=none
exec 3> vanished; head -c 70000 /dev/urandom >&3; rm vanished; sync
btrfs subvolume snapshot -r . ../orphan > /dev/null
"#;

#[test]
fn lines_are_those_of_btrfs_progs() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let scratch = Scratch::new("find-new");
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    tool("mkfs.btrfs", ["-q".as_ref(), image.as_os_str()]);
    let mount = KernelMount::unchecked(&image, "").unwrap();
    let point = mount.path().to_str().unwrap().to_owned();
    tool("bash", ["-c", SCRIPT, "bash", &point]);
    let lines = |name: &str, generation: u64| {
        tool("btrfs", ["subvolume", "find-new", &format!("{point}/{name}"), &generation.to_string()])
    };
    let subvolumes = ["sub", "shot", "orphan", ""];
    let expected: Vec<(&str, u64, String)> = subvolumes
        .iter()
        .flat_map(|name| (0..14).chain([1 << 40]).map(move |generation| (*name, generation)))
        .map(|(name, generation)| (name, generation, lines(name, generation)))
        .collect();
    mount.unmount().unwrap();
    let mut counts = Vec::new();
    for (name, generation, expected) in expected {
        let words = ["subvolume", "find-new", &target(&image, &format!("/{name}")), &generation.to_string()];
        let found = run(words).done().text();
        assert_eq!(found, expected, "{name} from {generation}");
        counts.push(found.lines().count());
    }
    let most = counts.iter().max().unwrap();
    assert!(*most > 500 && counts.iter().filter(|count| *count != most).count() > 20, "{counts:?}");
    let all = run(["subvolume", "find-new", &target(&image, "/sub"), "0"]).done().text();
    for flags in ["flags COMPRESS ", "flags PREALLOC ", "flags INLINE ", "flags NONE "] {
        assert!(all.contains(flags), "no {flags}");
    }
}

#[test]
fn a_mount_commits_first_and_a_directory_is_refused() {
    require!(Fuse);
    let place = Place::new("find-new-mount");
    place.mount("commit=300").done();
    let at = |path: &str| place.at(path).to_str().unwrap().to_owned();
    run(["subvolume", "create", &at("sub")]).done();
    std::fs::create_dir(place.at("sub/directory")).unwrap();
    let marker = |text: &str| -> u64 {
        text.lines().last().unwrap().strip_prefix("transid marker was ").unwrap().parse().unwrap()
    };
    let before = marker(&run(["subvolume", "find-new", &at("sub"), "0"]).done().text());
    std::fs::write(place.at("sub/directory/new"), vec![7; 10_000]).unwrap();
    let words = ["subvolume", "find-new", &at("sub"), &(before + 1).to_string()];
    let text = run(words).done().text();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains(" len 12288 ") && text.contains(" directory/new\n"), "{text}");
    assert!(marker(&text) > before);
    run(["subvolume", "find-new", &at("sub/directory"), "0"]).failed(1, &["not a subvolume"]);
    place.unmount().done();
}
