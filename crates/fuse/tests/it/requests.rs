//! What the kernel asks a mount: each request is counted, and those for the flags of chattr(1) are answered
//! as Linux's own Btrfs answers them.

use std::collections::BTreeMap;

use crate::rig::{Mounted, Rig, run, shell};
use vlinder_control::protocol::MetricValue;
use vlinder_control::{Answer, Request};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::require;

/// How many requests came so far.
fn counted(mounted: &Mounted) -> BTreeMap<String, u64> {
    let Answer::Statistics { metrics, .. } = mounted.client().request(&Request::Statistics).unwrap() else {
        panic!()
    };
    let ours = metrics.into_iter().filter_map(|metric| match metric.value {
        MetricValue::Counter { value } => {
            Some((metric.name.strip_prefix("fuse.requests.")?.to_owned(), value))
        }
        _ => None,
    });
    ours.collect()
}

#[test]
fn requests_are_counted_by_what_they_ask() {
    require!(Fuse, Tool("mkfs.btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    let before = counted(&mounted);
    shell(&rig.mountpoint, "for i in 1 2 3 4 5; do mkdir d$i; : > f$i; done; rm f1 f2 f3; rmdir d1");
    let after = counted(&mounted);
    let grown = |name: &str| after[name] - before[name];
    let seen = ["mkdir", "create", "unlink", "rmdir"].map(grown);
    assert_eq!(seen, [5, 5, 3, 1]);
    assert!(grown("lookup") >= 10 && grown("read") == 0, "{after:?}");
    mounted.unmount();
}

#[test]
fn a_listing_after_writes_brings_attributes_and_is_kept() {
    require!(Fuse, Tool("mkfs.btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    shell(&rig.mountpoint, "mkdir dir; for i in 1 2 3 4 5; do echo $i > dir/f$i; done");
    let asked_for_names = || {
        let before = counted(&mounted);
        shell(&rig.mountpoint, "find dir -ls > /dev/null");
        let after = counted(&mounted);
        let grown = |name: &str| after[name] - before[name];
        assert!(grown("getattr") <= 1, "the directory may be asked for, no file: {before:?} {after:?}");
        grown("readdir") + grown("readdirplus")
    };
    // The kernel forgot at each close how many blocks the file has.
    assert_eq!(asked_for_names(), 2);
    assert_eq!(asked_for_names(), 0);
    // A close makes the kernel forget again, and what it kept of the listing would not tell.
    shell(&rig.mountpoint, "echo more >> dir/f3");
    assert_eq!(asked_for_names(), 2);
    assert_eq!(asked_for_names(), 0);
    mounted.unmount();
}

/// Sets and shows flags by both kinds of requests, and tries what they forbid.
const SCRIPT: &str = r#"
exec 2>&1
mkdir flags; cd flags
do_() { echo "\$ $*"; "$@" 2>&1 || true; }
: > empty; echo data > full; mkdir dir
do_ lsattr -d dir empty full
do_ chattr +C empty; do_ chattr +C full; do_ chattr +C dir; : > dir/inherits; do_ lsattr dir
do_ lsattr empty full
do_ chattr -C empty; do_ lsattr empty
do_ chattr +c full; do_ getfattr -d -m- full; do_ chattr +m full; do_ lsattr full
do_ chattr =m full; do_ getfattr -d -m- full; do_ lsattr full
do_ chattr +Ac empty; do_ chattr +SDd empty; do_ chattr +SDAd dir; do_ lsattr -d empty dir
do_ chattr +t full; do_ chattr +j full; do_ chattr = full; do_ lsattr full
do_ chattr +C empty; do_ lsattr empty
do_ chattr +i full; (echo x >> full) || true; (rm -f full) || true; do_ chattr -i full
do_ chattr +a full; (echo x > full) || true; echo y >> full; do_ lsattr full; do_ chattr -a full
do_ xfs_io -r -c lsattr full; do_ xfs_io -r -c 'chattr +a' full; do_ xfs_io -r -c lsattr full
do_ xfs_io -r -c 'chattr -a' full; do_ xfs_io -c 'chproj 5' full; do_ lsattr -d dir empty full
chmod 666 full empty
do_ setpriv --reuid=1000 --regid=1000 --clear-groups chattr +d full
do_ setpriv --reuid=1000 --regid=1000 --clear-groups lsattr full
ln -s full link; mkfifo fifo; do_ lsattr -d link; do_ lsattr fifo
do_ chattr -S dir; sync -f .
"#;

#[test]
fn flags_are_shown_and_set_as_linux_does() {
    require!(
        Root,
        Fuse,
        KernelBtrfs,
        Tool("mkfs.btrfs"),
        Tool("chattr"),
        Tool("xfs_io"),
        Tool("getfattr"),
        Tool("setpriv")
    );
    let theirs = Rig::new(256);
    let kernel = KernelMount::new(&theirs.image, "").unwrap();
    let expected = shell(kernel.path(), SCRIPT);
    kernel.unmount().unwrap();
    for options in ["allow_other", "allow_other,writeback=off"] {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        run(std::process::Command::new("chmod").arg("755").arg(&rig.mountpoint));
        let seen = shell(&rig.mountpoint, SCRIPT);
        assert_eq!(seen, expected, "with {options:?}");
        mounted.unmount();
        // They are on the disk, where the kernel finds them.
        let kernel = KernelMount::new(&rig.image, "").unwrap();
        let flags = shell(&kernel.path().join("flags"), "lsattr -d dir empty full dir/inherits");
        assert!(flags.starts_with("---D--dA-------C------ dir\n--S---dAc------------- empty\n"), "{flags}");
        kernel.unmount().unwrap();
    }
}
