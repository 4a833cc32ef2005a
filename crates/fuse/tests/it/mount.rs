//! The mount as programs see it, and what Linux finds in the image afterwards.

use crate::rig::{self, Rig, shell, walk_of};
use vlinder_testkit::require;

/// Every kind of file and change, by the usual programs.
const SCRIPT: &str = r#"
mkdir -p dir/sub many
for number in $(seq 300); do echo "file $number" > many/$number; done
rm many/*[05]
head -c 3000000 /dev/urandom > dir/large
head -c 100 /dev/urandom > dir/small
cp dir/large dir/copy && cmp dir/large dir/copy
truncate -s 12345 dir/copy
truncate -s 5000000 dir/small
printf tail >> dir/small
ln dir/large dir/sub/second-name
ln -s ../large dir/sub/symbolic
mkfifo dir/fifo
mknod dir/null c 1 3
mknod dir/disk b 259 70000
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("dir/socket")'
setfattr -n user.colour -v blue dir/large
setfattr -n trusted.secret -v 1 dir/large
setfacl -m u:1234:rw dir/large
setfacl -d -m g:4321:rx dir/sub
touch dir/sub/inherits
chown 1000:1001 dir/copy && chmod 4755 dir/copy
touch -d '1965-03-04 05:06:07.123456789' dir/small
touch -d '2100-03-04 05:06:07.123456789' dir/sub/inherits
mv dir/sub/second-name many/moved
python3 - <<'PYTHON'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags): raise OSError(ctypes.get_errno(), a)
open('left','w').write('left'); open('right','w').write('right')
rename('left','right',2)
assert open('left').read() == 'right'
try: rename('left','right',1); raise SystemExit('replaced')
except FileExistsError: pass
rename('left','whited',4)
assert os.stat('left').st_rdev == 0 and open('whited').read() == 'right'
f = os.open('sparse', os.O_RDWR|os.O_CREAT, 0o600)
os.pwrite(f, b'x'*4096, 1<<20); os.pwrite(f, b'y'*4096, 5<<20)
assert os.lseek(f, 0, os.SEEK_DATA) == 1<<20, os.lseek(f, 0, os.SEEK_DATA)
assert os.lseek(f, 1<<20, os.SEEK_HOLE) == (1<<20)+4096
assert os.lseek(f, (1<<20)+4096, os.SEEK_DATA) == 5<<20
try: os.lseek(f, (5<<20)+4096, os.SEEK_DATA); raise SystemExit('no ENXIO')
except OSError as e: assert e.errno == 6
os.posix_fallocate(f, 8<<20, 1<<20)
assert os.fstat(f).st_size == 9<<20
def fallocate(mode, offset, length):
    if libc.fallocate(f, mode, ctypes.c_long(offset), ctypes.c_long(length)): raise OSError(ctypes.get_errno(), 'fallocate')
fallocate(3, 1<<20, 4096)
assert os.pread(f, 4096, 1<<20) == bytes(4096)
fallocate(0x10, 5<<20, 4096)
assert os.pread(f, 4096, 5<<20) == bytes(4096)
try: fallocate(8, 0, 4096); raise SystemExit('collapsed')
except OSError as e: assert e.errno == 95
g = os.open('cloned', os.O_RDWR|os.O_CREAT, 0o600)
os.pwrite(f, os.urandom(1<<20), 0)
assert os.copy_file_range(f, g, 1<<20, 0, 0) == 1<<20
assert os.pread(f, 1<<20, 0) == os.pread(g, 1<<20, 0)
os.fsync(f); os.fsync(g)
d = os.open('.', os.O_RDONLY); os.fsync(d)
h = os.open('unlinked', os.O_RDWR|os.O_CREAT); os.write(h, b'still here'); os.unlink('unlinked')
assert os.pread(h, 100, 0) == b'still here' and os.fstat(h).st_nlink == 0
os.ftruncate(h, 3); assert os.fstat(h).st_size == 3
import mmap
m = mmap.mmap(g, 1<<20); m[4096:4104] = b'by mmap!'; m.flush(); m.close()
assert os.pread(g, 8, 4096) == b'by mmap!'
e = os.open('direct', os.O_RDWR|os.O_CREAT|os.O_DIRECT, 0o600)
b = mmap.mmap(-1, 8192); b.write(b'd'*8192); os.writev(e, [b]); assert os.fstat(e).st_size == 8192
a = os.open('appended', os.O_WRONLY|os.O_CREAT|os.O_APPEND); [os.write(a, b'line\n') for _ in range(100)]
PYTHON
test "$(wc -l < appended)" = 100
"#;

fn script_is_judged(options: &str) {
    let rig = Rig::new(512);
    let mounted = rig.mount(options);
    shell(&rig.mountpoint, SCRIPT);
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    rig.judge(&seen);
    // What was written is what is read by a mount that has nothing in memory.
    let mounted = rig.mount("ro");
    assert_eq!(walk_of(&rig.mountpoint), seen);
    mounted.unmount();
}

#[test]
fn what_programs_do_through_the_cache_is_what_linux_finds() {
    require!(
        Fuse,
        KernelBtrfs,
        Tool("mkfs.btrfs"),
        Tool("btrfs"),
        Tool("setfacl"),
        Tool("setfattr"),
        Tool("python3")
    );
    script_is_judged("");
}

#[test]
fn what_programs_do_without_the_cache_is_what_linux_finds() {
    require!(
        Fuse,
        KernelBtrfs,
        Tool("mkfs.btrfs"),
        Tool("btrfs"),
        Tool("setfacl"),
        Tool("setfattr"),
        Tool("python3")
    );
    script_is_judged("writeback=off,threads=1,compress=zstd");
}

#[test]
fn a_file_that_another_writes_is_copied_without_loss() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let rig = Rig::new(512);
    let mounted = rig.mount("");
    // The writer keeps its file open, so that pages stay in the kernel that the server never saw.
    let writer = r#"
import os, sys
f = os.open('written', os.O_RDWR|os.O_CREAT, 0o600)
os.ftruncate(f, 200 * 3 * 4096)
for k in range(200):
    os.pwrite(f, bytes([k + 1]) * 4096, k * 3 * 4096)
print('ready', flush=True)
sys.stdin.read()
"#;
    let mut child = std::process::Command::new("python3")
        .args(["-c", writer])
        .current_dir(&rig.mountpoint)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let outside = rig.outside("out");
    std::fs::create_dir(&outside).unwrap();
    let script = format!(
        "cp written {out}/cp; cp --sparse=always written {out}/sparse; cp written copy; \
         tar -cSf - written | tar -xf - -C {out}; \
         cmp written {out}/cp; cmp written {out}/sparse; cmp written {out}/written; cmp written copy",
        out = outside.display()
    );
    shell(&rig.mountpoint, &script);
    let copied = std::fs::read(outside.join("written")).unwrap();
    for part in 0..200_usize {
        let at = part * 3 * 4096;
        assert_eq!(copied[at..at + 4096], vec![u8::try_from(part + 1).unwrap(); 4096][..], "part {part}");
        assert_eq!(copied[at + 4096..at + 8192], [0; 4096][..], "hole {part}");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    mounted.unmount();
}

#[test]
fn set_id_bits_go_when_others_write_and_stay_when_root_does() {
    require!(Fuse, Root, Tool("mkfs.btrfs"), Tool("setpriv"));
    for options in ["allow_other", "allow_other,writeback=off"] {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        // The way there must be open to the other user.
        shell(
            &rig.mountpoint,
            "chmod 777 .; chmod 755 ../; for f in a b c; do echo x > $f; chmod 6777 $f; done; chmod 777 .",
        );
        let other = "setpriv --reuid 1000 --regid 1000 --clear-groups";
        let script = format!(
            "{other} sh -c 'echo more >> a'; echo more >> b; {other} truncate -s 1 c; stat -c %a a b c"
        );
        let modes = shell(&rig.mountpoint, &script);
        assert_eq!(modes, "777\n6777\n777\n", "{options}");
        mounted.unmount();
    }
}

#[test]
fn a_full_file_system_says_so_and_takes_deletions() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(128);
    let mounted = rig.mount("dirty=8m");
    // cat says it at write(2), or the shell's redirection at close.
    let script = "for k in $(seq 40); do head -c 5000000 /dev/urandom > f$k || { echo full at $k; break; }; done; sync -f . || true; ls | wc -l";
    let said = shell(&rig.mountpoint, script);
    assert!(said.contains("full at") && said.contains("No space left"), "{said}");
    shell(&rig.mountpoint, "rm f1 f2 f3; echo room > again; sync -f .");
    mounted.unmount();
    // Of a file written past its cache the kernel shows old times until it forgets them, so a new mount is
    // compared.
    let mounted = rig.mount("ro");
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    rig.judge(&seen);
}

/// The kernel tells of closed files when it finds the time, and stops when the mount goes: a server that is
/// just then reading what it was told is given the error of an aborted connection.
#[test]
fn a_mount_that_goes_during_closes_has_ended_well() {
    require!(Fuse, Tool("mkfs.btrfs"));
    require!(Fuse, Tool("mkfs.btrfs"));
    const FILES: usize = 200;
    let rig = Rig::new(128);
    let mounted = rig.mount("threads=2");
    (0..FILES).for_each(|number| std::fs::write(rig.join(&number.to_string()), "").unwrap());
    mounted.unmount();
    for _ in 0..60 {
        let mounted = rig.mount("threads=2");
        let files: Vec<_> =
            (0..FILES).map(|number| std::fs::File::open(rig.join(&number.to_string())).unwrap()).collect();
        drop(files);
        mounted.detach().unwrap();
    }
}

#[test]
fn listings_are_stable_while_names_come_and_go() {
    require!(Fuse, Tool("mkfs.btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("");
    let script = r#"
import os
for k in range(3000): open(f'n{k}', 'w').close()
seen = []
with os.scandir('.') as listing:
    for position, entry in enumerate(listing):
        seen.append(entry.name)
        if position % 3 == 0: os.unlink(entry.name)
        elif position % 3 == 1: os.rename(entry.name, entry.name + '.renamed')
kept = [name for name in seen if not name.endswith('.renamed')]
assert len(kept) == len(set(kept)) == 3000, (len(kept), len(set(kept)))
assert len(os.listdir('.')) == 2000
"#;
    rig::run(std::process::Command::new("python3").args(["-c", script]).current_dir(&rig.mountpoint));
    mounted.unmount();
}

fn random_changes(options: &str, steps: u32) {
    let rig = Rig::new(512);
    let mounted = rig.mount(options);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/random_changes.py");
    // Side by side, so that they meet in the server.
    let command = format!(
        "for seed in 1 2 3 4; do python3 {script} $seed {steps} & jobs+=($!); done; for job in ${{jobs[@]}}; do wait $job; done"
    );
    shell(&rig.mountpoint, &command);
    mounted.unmount();
    let mounted = rig.mount("ro");
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    rig.judge(&seen);
}

#[test]
fn random_changes_of_files_agree_with_a_model() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    random_changes("", 1500);
    random_changes("writeback=off,compress=zstd", 800);
    random_changes("compress-force=lzo,dirty=1m,commit=1", 800);
}

#[test]
fn programs_that_trust_their_file_system_cross_snapshots() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("git"), Tool("python3"));
    let rig = Rig::new(512);
    let mounted = rig.mount("");
    let work = r#"
mkdir -p work && cd work && git init -q . && git config user.email a@b && git config user.name n
cp -r /etc/apt /etc/default . 2>/dev/null || true
git add -A && git commit -qm one && sed -i 's/a/b/' $(git ls-files | head -20) 2>/dev/null || true
git commit -qam two && git gc -q && git fsck --strict 2>/dev/null && git status --porcelain | wc -l
python3 - <<'PYTHON'
import sqlite3
base = sqlite3.connect('base.db'); base.execute('pragma journal_mode=wal')
base.execute('create table t(k integer primary key, v text)')
for k in range(2000):
    base.execute('insert into t(v) values (?)', ('x' * (k % 300),))
    if k % 200 == 0: base.commit()
base.commit()
assert base.execute('pragma integrity_check').fetchone() == ('ok',)
PYTHON
"#;
    shell(&rig.mountpoint, work);
    let request = vlinder_control::Request::SubvolumeSnapshot {
        source: "".into(),
        path: "shot".into(),
        read_only: false,
    };
    mounted.client().request(&request).unwrap();
    shell(
        &rig.mountpoint,
        "cd shot/work && git fsck --strict 2>/dev/null && git log --oneline | wc -l && python3 -c \"import sqlite3; assert sqlite3.connect('base.db').execute('select count(*) from t').fetchone() == (2000,)\"",
    );
    shell(&rig.mountpoint, "rm -rf work/.git && cd shot/work && git status >/dev/null");
    let seen = walk_of(&rig.mountpoint);
    mounted.unmount();
    rig.judge(&seen);
}

/// With and without the writeback cache: what a program writes with O_DIRECT is in the image when write(2)
/// returns. The times on disk are those that the mount showed: one write in about thirty is stamped by the
/// kernel in another tick of its clock than the one in which it comes.
#[test]
fn what_is_written_directly_lies_in_the_image_at_once() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    const WRITES: &str = r"
python3 - <<'PYTHON'
import mmap, os
sector = mmap.mmap(-1, 4096); sector.write(b'written past all caches '.ljust(4096, b'+'))
for number in range(300):
    file = os.open('direct%d' % number, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    assert os.pwritev(file, [sector], 8192) == 4096
    os.close(file)
PYTHON
";
    for options in ["", "writeback=off"] {
        let rig = Rig::new(256);
        let mounted = rig.mount(options);
        let pattern: &[u8] = b"written past all caches ++++";
        let holds = |image: Vec<u8>| image.chunks(4096).any(|sector| sector.starts_with(pattern));
        assert!(!holds(std::fs::read(&rig.image).unwrap()));
        shell(&rig.mountpoint, WRITES);
        assert!(holds(std::fs::read(&rig.image).unwrap()), "with the options {options:?}");
        let seen = walk_of(&rig.mountpoint);
        mounted.unmount();
        rig.judge(&seen);
    }
}
