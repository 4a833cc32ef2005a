//! Snapshots that Linux made: what is told is what a walk of both finds.

use std::path::Path;
use std::process::Command;

use vlinder_fs::{Filesystem, OpenOptions, RootId};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

use crate::oracle::{Walked, comparable, difference};
use crate::random_pairs::told;

/// What the kernel says of features that a file brings with it.
const ALLOWED: &[&str] = &["BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*"];

const FIRST: &str = r#"
set -e
cd "$1"
btrfs subvolume create home > /dev/null
cd home
mkdir -p d/e/f many swap/a swap/b
for n in $(seq 300); do head -c $((n * 40)) /dev/urandom > many/$n; done
head -c 3000000 /dev/urandom > large
head -c 500000 /dev/urandom > bare.src; touch bare; chattr +C bare; cat bare.src > bare
for k in zlib lzo zstd; do touch $k; btrfs property set $k compression $k || true; yes $k | head -c 700000 > $k; done
fallocate -l 1M reserved
truncate -s 20M sparse
echo inline > inline
cp --reflink=always large clone
echo one > linked
for n in $(seq 700); do ln linked d/a-name-that-is-long-enough-to-need-an-item-of-its-own-$n; done
setfattr -n user.kept -v 1 inline; setfattr -n user.gone -v 1 inline; setfattr -n user.other -v 1 inline
mkfifo pipe; mknod null c 1 3; ln -s here symlink
btrfs subvolume create nested > /dev/null; echo x > nested/inside
btrfs subvolume create goes > /dev/null
exec 3> vanishing; echo data >&3; rm vanishing
btrfs subvolume snapshot -r . ../one > /dev/null
"#;

const THEN: &str = r#"
set -e
cd "$1/home"
for n in $(seq 3 30 300); do echo new >> many/$n; done
rm many/7 many/8; mv many/9 many/nine
head -c 10000 /dev/urandom | dd of=large bs=1000 seek=100 conv=notrunc status=none
dd if=bare.src of=bare bs=4k count=20 conv=notrunc status=none
dd if=/dev/urandom of=bare bs=4k seek=30 count=2 conv=notrunc status=none
dd if=/dev/zero of=reserved bs=4k seek=2 count=3 conv=notrunc status=none
dd if=/dev/urandom of=reserved bs=4k seek=9 count=1 conv=notrunc status=none
yes zstd | dd of=zstd bs=1000 count=300 conv=notrunc status=none iflag=fullblock
echo end | dd of=zlib bs=1 seek=300000 conv=notrunc status=none
truncate -s 100 lzo
truncate -s 3000001 clone
fallocate -p -o 4096 -l 8192 clone
truncate -s 30M sparse; fallocate -o 1M -l 1M sparse
echo other > new; mv new inline2; cp -p inline inline3; mv inline3 inline
setfattr -n user.other -v 2 inline2
chmod 600 large; chown 1:2 zlib; touch -d 2001-01-01 symlink pipe
setfattr -n user.more -v 3 many/20
mv swap/a swap/c; mv swap/b swap/a; mv swap/c swap/b
mv d/e/f f; mv d f/d
rm f/d/a-name-that-is-long-enough-to-need-an-item-of-its-own-7*
ln linked another
rm null; mknod null c 1 5
btrfs subvolume delete goes > /dev/null; mv nested inner
rm -r many/1*; mkdir many/1
btrfs subvolume snapshot -r . ../two > /dev/null
"#;

fn script(mount: &Path, text: &str) {
    let output = Command::new("bash").args(["-c", text, "bash"]).arg(mount).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_linux_changed_is_told_as_a_walk_finds_it() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"), Tool("setfattr"));
    let scratch = Scratch::in_memory("snapshots-linux");
    let image = scratch.join("image");
    for options in ["", "compress-force=zstd", "nodatasum", "max_inline=4095"] {
        let _ = std::fs::remove_file(&image);
        std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        // Numbers of inodes are given again after a mount.
        for text in [FIRST, THEN] {
            let mount = KernelMount::of(&[&image], options, ALLOWED).unwrap();
            script(mount.path(), text);
            mount.unmount().unwrap();
        }
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        let filesystem = Filesystem::open(&[&image], read_only).unwrap();
        let ids: Vec<RootId> = ["home", "one", "two"]
            .map(|name| filesystem.subvolumes().at(name.as_bytes()).unwrap())
            .into_iter()
            .chain([RootId::FS_TREE])
            .collect();
        let walks: Vec<Walked> = ids.iter().map(|id| Walked::of(&filesystem, *id)).collect();
        let sector_bytes = filesystem.sector_size() as usize;
        for (old, is) in ids.iter().zip(&walks) {
            for (new, becomes) in ids.iter().zip(&walks) {
                let found = comparable(told(&filesystem, *old, *new), (is, becomes));
                let expected = comparable(difference(is, becomes, sector_bytes), (is, becomes));
                let wrong: Vec<_> = found.iter().filter(|change| !expected.contains(change)).collect();
                let missing: Vec<_> = expected.iter().filter(|change| !found.contains(change)).collect();
                assert!(found == expected, "{options}: {old} and {new}: {wrong:#?}\nnot told: {missing:#?}");
            }
        }
        let told = told(&filesystem, ids[1], ids[2]);
        println!("{options:?}: {} changes between the snapshots", told.len());
        assert!(told.len() > 100, "{}", told.len());
    }
}
