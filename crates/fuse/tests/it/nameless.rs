//! Files and directories that lost their last name while a program still has them in a way of which only the
//! kernel knows: a descriptor of `O_PATH`, a working directory. Linux's own Btrfs is the measure.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use crate::rig::{Rig, run, shell};
use rustix::fs::{CWD, Mode, OFlags};
use vlinder_control::Request;
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{eventually, require};

/// Prints what each call gives, or its error.
const PROBE: &str = r#"
import os, sys, errno, ctypes
base = os.getcwd()
libc = ctypes.CDLL(None, use_errno=True)
def tell(what, call):
    try: print(what, call())
    except OSError as e: print(what, errno.errorcode[e.errno])
def show(fd):
    s = os.fstat(fd)
    return (oct(s.st_mode), s.st_nlink, s.st_size)
def text(fd):
    g = os.open('/proc/self/fd/%d' % fd, os.O_RDONLY)
    try: return os.read(g, 100)
    finally: os.close(g)
def write(path, data):
    with open(path, 'w') as f: f.write(data)
def probe(fd):
    own = '/proc/self/fd/%d' % fd
    tell('fstat', lambda: show(fd)); tell('read', lambda: text(fd))
    def append():
        g = os.open(own, os.O_RDWR | os.O_APPEND); os.write(g, b' and more'); os.fsync(g); os.close(g)
    tell('append', append); tell('read', lambda: text(fd))
    def link():
        if libc.linkat(-100, own.encode(), -100, b'relinked', 0x400): raise OSError(ctypes.get_errno(), '')
    tell('link', link)
    tell('chmod', lambda: os.chmod(own, 0o600)); tell('chown', lambda: os.chown(own, 7, 8))
    tell('setxattr', lambda: os.setxattr(own, 'user.a', b'1')); tell('getxattr', lambda: os.getxattr(own, 'user.a'))
    tell('truncate', lambda: os.truncate(own, 2)); tell('fstat', lambda: show(fd))
print('unlinked'); write('f', 'hello'); fd = os.open('f', os.O_PATH); os.unlink('f'); probe(fd); os.close(fd)
print('empty'); write('e', ''); fd = os.open('e', os.O_PATH); os.unlink('e'); probe(fd); os.close(fd)
print('replaced'); write('a', 'aa'); write('b', 'bbb'); fd = os.open('b', os.O_PATH); os.rename('a', 'b'); probe(fd); os.close(fd)
print('two names'); write('h1', 'x'); os.link('h1', 'h2'); fd = os.open('h1', os.O_PATH)
os.unlink('h1'); tell('one left', lambda: show(fd)); os.unlink('h2'); tell('none left', lambda: show(fd)); os.close(fd)
print('symbolic'); os.symlink('target', 's'); fd = os.open('s', os.O_PATH | os.O_NOFOLLOW); os.unlink('s')
tell('fstat', lambda: show(fd)); tell('readlink', lambda: os.readlink('', dir_fd=fd)); os.close(fd)
print('replaced directory'); os.mkdir('d1'); os.mkdir('d2'); fd = os.open('d2', os.O_PATH); os.rename('d1', 'd2')
tell('fstat', lambda: show(fd)); os.close(fd)
print('working directory'); os.mkdir('d'); os.chdir('d'); fd = os.open('.', os.O_PATH); os.rmdir('../d')
tell('stat', lambda: (oct(os.stat('.').st_mode), os.stat('.').st_nlink, os.stat('.').st_size))
tell('parent', lambda: os.stat('..').st_ino == os.stat(base).st_ino)
tell('create', lambda: open('x', 'w')); tell('mkdir', lambda: os.mkdir('x')); tell('stat x', lambda: os.stat('x'))
tell('link', lambda: os.link(base + '/b', 'x')); tell('rename', lambda: os.rename(base + '/b', 'x'))
tell('list', lambda: os.listdir('.')); tell('getcwd', os.getcwd)
os.chdir(base); tell('fchdir', lambda: os.fchdir(fd)); tell('links', lambda: os.stat('.').st_nlink)
tell('chmod', lambda: os.chmod('.', 0o700)); tell('mode', lambda: oct(os.stat('.').st_mode))
tell('setxattr', lambda: os.setxattr('.', 'user.a', b'1')); tell('getxattr', lambda: os.getxattr('.', 'user.a'))
os.chdir(base); os.close(fd)
print('working directory in a subvolume'); os.chdir('subvolume'); os.rmdir('../subvolume')
tell('stat', lambda: oct(os.stat('.').st_mode)); tell('create', lambda: open('x', 'w')); tell('list', lambda: os.listdir('.'))
tell('parent', lambda: os.stat('..').st_ino == os.stat(base).st_ino)
"#;

fn probed(root: &Path) -> String {
    run(std::process::Command::new("python3").args(["-c", PROBE]).current_dir(root))
}

#[test]
fn what_only_the_kernel_holds_goes_on_as_on_linux() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let linux = Rig::new(256);
    let kernel = KernelMount::new(&linux.image, "").unwrap();
    shell(kernel.path(), "btrfs subvolume create subvolume");
    let expected = probed(kernel.path());
    kernel.unmount().unwrap();
    assert!(expected.contains("fstat ('0o100644', 0, 5)"), "{expected}");
    for options in ["", "writeback=off,threads=1"] {
        let rig = Rig::new(256);
        let kernel = KernelMount::new(&rig.image, "").unwrap();
        shell(kernel.path(), "btrfs subvolume create subvolume");
        kernel.unmount().unwrap();
        let mounted = rig.mount(options);
        assert_eq!(probed(&rig.mountpoint), expected, "with {options:?}");
        mounted.unmount();
        assert_eq!(orphans(&rig.image), 0, "all that was held is deleted at the end");
        vlinder_testkit::kernel::btrfs_check_data(&rig.image).unwrap();
    }
}

/// How many files without names an image has.
fn orphans(image: &Path) -> usize {
    let dump = run(std::process::Command::new("btrfs")
        .args(["inspect-internal", "dump-tree", "-t", "fs"])
        .arg(image));
    dump.lines().filter(|line| line.contains("ORPHAN_ITEM")).count()
}

fn path_descriptor(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn free_bytes(rig: &Rig) -> u64 {
    let full = rustix::fs::statvfs(&rig.mountpoint).unwrap();
    full.f_bavail * full.f_frsize
}

#[test]
fn space_comes_free_when_the_last_descriptor_goes() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    const SIZE: u64 = 64 << 20;
    let rig = Rig::new(512);
    let mounted = rig.mount("");
    shell(&rig.mountpoint, "head -c 67108864 /dev/urandom > large; sync large");
    let before = free_bytes(&rig);
    let held = path_descriptor(&rig.join("large"));
    std::fs::remove_file(rig.join("large")).unwrap();
    shell(&rig.mountpoint, "sync .");
    assert!(free_bytes(&rig) < before + SIZE / 2, "it is held");
    assert_eq!(rustix::fs::fstat(held.as_fd()).unwrap().st_size, i64::try_from(SIZE).unwrap());
    drop(held);
    eventually("the space of a file that nobody has", || {
        // Asking is a request, too.
        vlinder_base::thread::sleep(Duration::from_millis(20));
        // An fsync writes the log; space is free when a commit says so.
        mounted.client().request(&Request::FilesystemSync).unwrap();
        free_bytes(&rig) > before + SIZE / 2
    });
    mounted.unmount();
    assert_eq!(orphans(&rig.image), 0);
    vlinder_testkit::kernel::btrfs_check_data(&rig.image).unwrap();
}

#[test]
fn a_full_file_system_takes_as_much_as_was_removed() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("writeback=off");
    // What a program removed has room at once, though the kernel says only later that nobody has it.
    shell(&rig.mountpoint, "head -c 1G /dev/zero | tr '\\0' x > filler || true; sync .");
    for round in 0..4 {
        shell(
            &rig.mountpoint,
            "mv filler last && rm last && head -c 60000000 /dev/urandom > filler && sync filler \
             && head -c 1G /dev/urandom > rest || true; rm rest; head -c 60000000 /dev/urandom > again && rm again",
        );
        assert_eq!(std::fs::metadata(rig.join("filler")).unwrap().len(), 60_000_000, "round {round}");
    }
    mounted.unmount();
    vlinder_testkit::kernel::btrfs_check_data(&rig.image).unwrap();
}

#[test]
fn a_directory_that_is_gone_takes_no_names_from_other_threads() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    // Several programs make and remove the same directory, and names in it, with descriptors of it that stay
    // a while.
    shell(
        &rig.mountpoint,
        "for worker in 1 2 3; do ( for round in $(seq 150); do \
           mkdir d 2>/dev/null || true; ( cd d 2>/dev/null && { : > f$worker; rm -f f$worker; } ) 2>/dev/null || true; \
           rmdir d 2>/dev/null || true; done ) & done; wait; rm -rf d",
    );
    mounted.unmount();
    assert_eq!(orphans(&rig.image), 0);
    vlinder_testkit::kernel::btrfs_check_data(&rig.image).unwrap();
}

#[test]
fn what_was_held_at_a_power_cut_is_deleted_at_the_next_opening() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("notreelog");
    shell(
        &rig.mountpoint,
        "echo stays > stays; head -c 5000000 /dev/urandom > file; mkdir dir; sync file stays",
    );
    let held = [path_descriptor(&rig.join("file")), path_descriptor(&rig.join("dir"))];
    std::fs::remove_file(rig.join("file")).unwrap();
    std::fs::remove_dir(rig.join("dir")).unwrap();
    // The directory's fsync commits, without a log. The image as it is now is what a cut leaves.
    let root =
        rustix::fs::openat(CWD, &rig.mountpoint, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    rustix::fs::fsync(&root).unwrap();
    let cut = Rig::new(256);
    std::fs::copy(&rig.image, &cut.image).unwrap();
    assert_eq!(orphans(&cut.image), 2, "both await their deletion");
    vlinder_testkit::kernel::btrfs_check_data(&cut.image).unwrap();
    let for_linux = Rig::new(256);
    std::fs::copy(&rig.image, &for_linux.image).unwrap();
    drop((held, root));
    mounted.unmount();
    assert_eq!(orphans(&rig.image), 0);

    let again = cut.mount("");
    assert_eq!(shell(&cut.mountpoint, "ls; cat stays"), "stays\nstays\n");
    again.unmount();
    assert_eq!(orphans(&cut.image), 0, "opening deleted them");
    vlinder_testkit::kernel::btrfs_check_data(&cut.image).unwrap();
    let kernel = KernelMount::new(&for_linux.image, "").unwrap();
    assert_eq!(shell(kernel.path(), "ls; cat stays"), "stays\nstays\n");
    kernel.unmount().unwrap();
    vlinder_testkit::kernel::btrfs_check_data(&for_linux.image).unwrap();
}
