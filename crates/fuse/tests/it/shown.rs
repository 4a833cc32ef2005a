//! Attributes and times that a mount shows are those that the kernel's own Btrfs shows: the same scripts on
//! both.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::rig::{Rig, run};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;

/// What a script says on a mount by vlinder and on one by Linux, which must be equal.
fn same_on_both(script: &str, options: &str) -> String {
    let says = |place: &Path| run(Command::new("python3").args(["-c", script]).current_dir(place));
    let linux = {
        let rig = Rig::new(512);
        let kernel = KernelMount::new(&rig.image, "").unwrap();
        let said = says(kernel.path());
        kernel.unmount().unwrap();
        said
    };
    let rig = Rig::new(512);
    let mounted = rig.mount(options);
    let own = says(&rig.mountpoint);
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
    assert_eq!(own, linux, "with {options:?}");
    own
}

const CACHES: [&str; 2] = ["writeback=on", "writeback=off"];

/// Case A1, and T5: blocks of a file that somebody has open, looked at by another process.
const BLOCKS: &str = r"
import os, subprocess, time
def blocks(name):
    return subprocess.run(['stat', '-c', '%s %b', name], capture_output=True, text=True).stdout.strip()
log = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for _ in range(3):
    os.write(log, b'line\n' * 200000)
    os.fsync(log)
    print(blocks('log'))
time.sleep(1)
print(blocks('log'))
os.close(log)
print(blocks('log'))
twice = os.open('twice', os.O_CREAT | os.O_RDWR)
os.write(twice, os.urandom(4 << 20))
os.fsync(twice)
for start in (0, 1 << 20, 3 << 20):
    os.pwrite(twice, os.urandom(1 << 20), start)
os.close(twice)
print(blocks('twice'))
subprocess.run(['truncate', '-s', '8M', 'sparse'], check=True)
sparse = os.open('sparse', os.O_RDWR)
for start in (0, 1 << 20, 5 << 20):
    os.pwrite(sparse, b'x', start + 5000)
os.close(sparse)
print(blocks('sparse'))
subprocess.run(['fallocate', '-l', '2M', 'reserved'], check=True)
reserved = os.open('reserved', os.O_RDWR)
os.pwrite(reserved, os.urandom(1 << 20), 4096)
os.close(reserved)
print(blocks('reserved'))
";

#[test]
fn blocks_of_open_sparse_and_preallocated_files_are_linuxs() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    for options in CACHES {
        same_on_both(BLOCKS, options);
    }
}

/// What tar stores of a file that another process is writing: it takes one without blocks for a hole.
const ARCHIVE: &str = r"
import os, subprocess
log = os.open('log', os.O_CREAT | os.O_WRONLY)
os.write(log, b'line\n' * 200000)
subprocess.run('tar -S -cf archive log', shell=True, check=True)
print(subprocess.run('tar -xOf archive log | md5sum', shell=True, capture_output=True, text=True).stdout)
";

#[test]
fn tar_stores_the_bytes_of_a_file_that_is_being_written() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"), Tool("tar"));
    for options in CACHES {
        same_on_both(ARCHIVE, options);
    }
}

/// Case P1: what happens later is never older, whether kernel or server stamps it, while a process beside
/// raises the kernel's floor.
const ORDER: &str = r"
import os, subprocess, sys
beside = subprocess.Popen([sys.executable, '-c', '''
import os
file = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)
while True:
    os.utime(file)
    os.fstat(file)
'''])
def changed(name):
    return os.lstat(name).st_ctime_ns
steps = [
    lambda: open('empty', 'w').close() or 'empty',
    lambda: open('written', 'w').write('x') and 'written',
    lambda: os.mkdir('directory') or 'directory',
    lambda: os.symlink('target', 'link') or 'link',
    lambda: os.rename('empty', 'renamed') or 'renamed',
    lambda: os.chmod('written', 0o600) or 'written',
    lambda: os.link('written', 'second') or 'second',
    lambda: os.setxattr('renamed', 'user.x', b'x') or 'renamed',
    lambda: os.utime('directory') or 'directory',
    lambda: os.truncate('second', 0) or 'second',
]
late = []
for _ in range(200):
    last = 0
    for number, step in enumerate(steps):
        now = changed(step())
        if now < last:
            late.append(number)
        last = now
    for name in ('renamed', 'written', 'second', 'link'):
        os.unlink(name)
    os.rmdir('directory')
beside.kill()
print('older than the step before:', sorted(set(late)))
";

#[test]
fn what_happens_later_is_never_older() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    for options in CACHES {
        assert_eq!(same_on_both(ORDER, options), "older than the step before: []\n");
    }
}

/// Case T2: times that the kernel keeps are not judged like a user's.
const FIXED: &str = r"
import errno, fcntl, os, subprocess
def told(action):
    try: return action() and None
    except OSError as error: return errno.errorcode[error.errno]
def flags(name, given):
    subprocess.run(['chattr', given, name], check=True)
old = 1_000_000_000
for given in ('+a', '+i'):
    name = 'log' + given
    file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(file, b'first\n')
    os.fsync(file)
    os.utime(name, (old, old))
    flags(name, given)
    print(given, told(lambda: os.utime(name)), told(lambda: os.utime(name, (old, old))))
    print(told(lambda: os.write(file, b'second\n')), told(lambda: os.fsync(file)), told(lambda: os.close(file)))
    print(open(name).read().split(), os.stat(name).st_mtime > old)
    flags(name, given.replace('+', '-'))
";

#[test]
fn append_only_and_immutable_files_keep_what_was_let_pass() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"), Tool("chattr"));
    for options in CACHES {
        same_on_both(FIXED, options);
    }
}

/// Cases T1 and T3: times of a file with the flag S, of one whose flags change, and of appends to either.
const FLAGGED: &str = r"
import os, subprocess, time
def stat(name):
    shown = subprocess.run(['stat', '-c', '%.9Y %.9Z %s', name], capture_output=True, text=True).stdout.split()
    return float(shown[0]), float(shown[1]), int(shown[2])
def newer(what, before, after):
    print(what, [later > earlier for earlier, later in zip(before, after)])
def wait():
    time.sleep(0.3)
for flags in ('', '+S'):
    name = 'file' + flags
    with open(name, 'w') as file:
        file.write('a')
    opened = os.open(name, os.O_WRONLY | os.O_APPEND)
    if flags:
        subprocess.run(['chattr', flags, name], check=True)
    wait()
    before = stat(name)
    os.write(opened, b'opened before')
    newer(name + ' through a handle from before', before, stat(name))
    wait()
    before = stat(name)
    with open(name, 'a') as file:
        file.write('b')
    newer(name + ' appended', before, stat(name))
    wait()
    before = stat(name)
    os.rename(name, name + '2')
    newer(name + ' renamed', before, stat(name + '2'))
    os.close(opened)
    os.utime(name + '2', ns=(10**18, 10**18))
    print(stat(name + '2')[0])
with open('plain', 'w') as file:
    file.write('a')
wait()
before = stat('plain')
subprocess.run(['chattr', '+A', 'plain'], check=True)
wait()
newer('chattr', before, stat('plain'))
";

#[test]
fn times_of_files_with_flags_are_those_of_linux() {
    require!(KernelBtrfs, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"), Tool("chattr"));
    for cache in CACHES {
        let said = same_on_both(FLAGGED, cache);
        assert!(said.contains("file+S appended [True, True, True]"), "{said}");
        assert!(said.contains("chattr [False, True, False]"), "{said}");
    }
}

/// Case T4: a write through a mapping, looked at after msync(2).
const MAPPED: &str = r"
import mmap, os, time
opened = os.open('mapped', os.O_RDWR | os.O_CREAT)
os.write(opened, b'a' * 10000)
os.fsync(opened)
time.sleep(0.1)
before = os.stat('mapped')
mapping = mmap.mmap(opened, 10000)
mapping[5000] = 66
mapping.flush()
after = os.stat('mapped')
print(after.st_mtime_ns > before.st_mtime_ns, after.st_ctime_ns > before.st_ctime_ns)
mapping.close()
os.close(opened)
again = os.stat('mapped')
print(again.st_mtime_ns >= after.st_mtime_ns)
";

#[test]
fn a_write_through_a_mapping_moves_the_times() {
    require!(KernelBtrfs, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    for cache in CACHES {
        assert_eq!(same_on_both(MAPPED, cache).trim(), "True True\nTrue");
    }
}

#[test]
fn the_earliest_time_that_a_program_can_set_is_taken_and_shown() {
    require!(Fuse, Tool("mkfs.btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("threads=2");
    let path = rig.mountpoint.join("file");
    std::fs::write(&path, b"file").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    // The second after the earliest is the earliest that is shown as it is.
    for (seconds, shown) in [(i64::MIN, i64::MIN + 1), (i64::MIN + 1, i64::MIN + 1), (-1, -1)] {
        for tv_nsec in [0, 5] {
            let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec };
            rustix::fs::futimens(
                &file,
                &rustix::fs::Timestamps { last_access: time, last_modification: time },
            )
            .unwrap();
        }
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.atime(), shown);
        assert!([seconds, shown].contains(&found.mtime()), "{}", found.mtime());
    }
    drop(file);
    mounted.unmount();
}

/// What [the calls](../small_differences.py) answer otherwise on a mount: the call, Linux's answer, the
/// mount's. Each has its line in docs/known-limits.md.
const DIFFERENCES: [(&str, &str, &str); 5] = [
    ("birth time", "True", "False"),
    ("GETVERSION", "done", "ENOTTY"),
    ("GETFSLABEL", "done", "ENOTTY"),
    ("FITRIM", "done", "ENOTTY"),
    ("FIBMAP", "EINVAL", "done"),
];

/// And where the kernel keeps the times of what is written.
const DIFFERENCES_WITH_WRITEBACK: [(&str, &str, &str); 2] = [
    ("a hole in a hole moves the time", "False", "True"),
    ("a hole behind the end moves the time", "False", "True"),
];

#[test]
fn small_differences_are_those_that_are_written_down() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let script = format!("{}/tests/it/small_differences.py", env!("CARGO_MANIFEST_DIR"));
    let says = |place: &Path| run(Command::new("python3").arg(&script).arg(place));
    let rig = Rig::new(300);
    let feature = "BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*";
    let kernel = KernelMount::of(&[&rig.image], "", &[feature]).unwrap();
    let linux = says(kernel.path());
    kernel.unmount().unwrap();
    assert!(linux.lines().count() > 70, "{linux}");
    let line = |call: &str, answer: &str| format!("{call}: {answer}");
    let with_both = |(call, linux, mount): (&str, &str, &str)| (line(call, linux), line(call, mount));
    for options in CACHES {
        let rig = Rig::new(300);
        let mounted = rig.mount(options);
        let own = says(&rig.mountpoint);
        mounted.unmount();
        btrfs_check_data(&rig.image).unwrap();
        assert_eq!(own.lines().count(), linux.lines().count());
        let both = linux.lines().zip(own.lines()).filter(|(linux, own)| linux != own);
        let differing: Vec<_> = both.map(|(linux, own)| (linux.to_owned(), own.to_owned())).collect();
        let of_writeback = DIFFERENCES_WITH_WRITEBACK.iter().filter(|_| !options.contains("writeback=off"));
        let expected: Vec<_> = of_writeback.chain(&DIFFERENCES).copied().map(with_both).collect();
        assert_eq!(differing, expected, "with {options:?}");
    }
}

/// Gives a file an ACL for users from 1000 on, which only setxattr(2) can make as long.
const MANY_ENTRIES: &str = r"
import os, struct
open('many', 'w').write('text')
entries = [(1, 6, 0xffffffff)] + [(2, 4, 1000 + one) for one in range(600)]
entries += [(4, 0, 0xffffffff), (16, 6, 0xffffffff), (32, 0, 0xffffffff)]
packed = b''.join(struct.pack('<HHI', *entry) for entry in entries)
os.setxattr('many', 'system.posix_acl_access', struct.pack('<I', 2) + packed)
open('plain', 'w').write('text')
os.chmod('plain', 0o644)
";

/// What users get who open the files, and what root sees of the ACL.
const OPENED: &str = r"
import errno, os, sys
def told(call, *arguments):
    try:
        call(*arguments)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]
print('root', told(os.getxattr, 'many', 'system.posix_acl_access'), told(os.open, 'many', os.O_RDONLY))
sys.stdout.flush()
for user in (1500, 4000):
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        print(user, told(os.open, 'many', os.O_RDONLY), told(os.open, 'plain', os.O_RDONLY))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
";

/// Case A16: FUSE asks for an ACL with room for a page of it.
#[test]
fn acls_longer_than_a_page_deny_users_unless_there_are_none() {
    require!(Root, Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let rig = Rig::new(300);
    let python =
        |place: &Path, script: &str| run(Command::new("python3").args(["-c", script]).current_dir(place));
    let kernel = KernelMount::new(&rig.image, "").unwrap();
    python(kernel.path(), MANY_ENTRIES);
    run(Command::new("chmod").arg("755").arg(kernel.path()));
    assert_eq!(python(kernel.path(), OPENED), "root done done\n1500 done done\n4000 EACCES done\n");
    kernel.unmount().unwrap();
    let kernel = KernelMount::new(&rig.image, "noacl").unwrap();
    let without = python(kernel.path(), OPENED);
    kernel.unmount().unwrap();
    for (options, expected) in [
        ("allow_other", "root E2BIG done\n1500 E2BIG done\n4000 E2BIG done\n"),
        ("allow_other,noacl", without.as_str()),
    ] {
        let mounted = rig.mount(options);
        let told = python(&rig.mountpoint, OPENED);
        mounted.unmount();
        assert_eq!(told, expected, "with {options:?}");
    }
}
