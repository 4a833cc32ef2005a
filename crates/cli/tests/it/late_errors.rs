//! What becomes of one file late fails nothing else: a deleted subvolume's open file lives on (case P3), and
//! an error that the kernel remembers is no error of the mount (case U4).

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common;
use crate::place::{Place, wait_for};
use rustix::process::test_kill_process;
use vlinder_base::thread;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;

/// Runs in a mount whose subvolume `s` has the files `s/file` and `s/directory/inner`; the rest of its
/// arguments deletes it.
const SCRIPT: &str = r"
import os, subprocess, sys
def try_to(what, call):
    try:
        print(what, call())
    except OSError as error:
        print(what, os.strerror(error.errno))
file = os.open('s/file', os.O_RDWR)
inner = os.open('s/directory/inner', os.O_RDWR | os.O_APPEND)
reader = os.open('s/file', os.O_RDONLY)
gone = os.open('s/gone', os.O_RDWR | os.O_CREAT)
os.unlink('s/gone')
frozen = os.open('f/file', os.O_RDONLY)
os.write(inner, b'before')
subprocess.run(sys.argv[1:] + ['s', 'f'], check=True, stdout=subprocess.DEVNULL)
print(os.path.exists('s'))
try_to('write', lambda: os.write(file, b'after' * 30000))
try_to('fstat', lambda: (os.fstat(file).st_size, os.fstat(inner).st_nlink))
try_to('fsync', lambda: os.fsync(file))
try_to('read', lambda: os.pread(reader, 12, 149990))
try_to('append', lambda: os.write(inner, b'more'))
try_to('read what was appended', lambda: os.pread(inner, 100, 0))
try_to('truncate', lambda: os.ftruncate(file, 7))
try_to('allocate', lambda: os.posix_fallocate(file, 0, 100000))
try_to('read again', lambda: os.pread(reader, 12, 0))
try_to('chmod', lambda: os.fchmod(file, 0o600))
try_to('times', lambda: os.utime(file, ns=(1, 1)))
try_to('write to a file without names', lambda: (os.write(gone, b'x' * 9000), os.fsync(gone)))
try_to('read it', lambda: os.pread(gone, 5, 8998))
try_to('another file', lambda: open('beside', 'w').write('kept') and os.system('sync beside'))
try_to('chmod in a read-only one', lambda: os.fchmod(frozen, 0o600))
try_to('close', lambda: [os.close(each) for each in (inner, reader, gone)])
try_to('write the rest', lambda: os.write(file, b'z'))
try_to('close the last', lambda: os.close(file))
";

fn prepare(point: &Path, create: &[&str]) {
    let made = Command::new(create[0]).args(&create[1..]).arg(point.join("s")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::create_dir(point.join("s/directory")).unwrap();
    for name in ["s/file", "s/directory/inner"] {
        std::fs::write(point.join(name), b"old ").unwrap();
    }
}

/// And a read-only snapshot of it.
fn prepare_both(point: &Path, tool: &str) {
    prepare(point, &[tool, "subvolume", "create"]);
    let mut command = Command::new(tool);
    let made =
        command.args(["subvolume", "snapshot", "-r"]).args([point.join("s"), point.join("f")]).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
}

fn say(point: &Path, delete: &[&str]) -> String {
    let done = Command::new("python3").args(["-c", SCRIPT]).args(delete).current_dir(point).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn an_open_file_outlives_its_subvolume_and_fails_nothing_else() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("python3"), Tool("pgrep"));
    let on_linux = {
        let place = Place::new("outlived-linux");
        let kernel = KernelMount::new(&place.image, "").unwrap();
        prepare_both(kernel.path(), "btrfs");
        let said = say(kernel.path(), &["btrfs", "subvolume", "delete"]);
        kernel.unmount().unwrap();
        said
    };
    let vlinder = env!("CARGO_BIN_EXE_vlinder");
    for options in ["writeback=on", "writeback=off"] {
        let place = Place::new("outlived");
        place.mount(options).done();
        prepare_both(&place.point, vlinder);
        assert_eq!(say(&place.point, &[vlinder, "subvolume", "delete"]), on_linux, "{options}");
        // Once more, with all that must not fail while such a file has bytes in the kernel's cache.
        prepare(&place.point, &[vlinder, "subvolume", "create"]);
        let mut held = std::fs::OpenOptions::new().append(true).open(place.at("s/file")).unwrap();
        common::run([Path::new("subvolume"), Path::new("delete"), &place.at("s")]).done();
        std::io::Write::write_all(&mut held, b"in the kernel's cache").unwrap();
        common::run([Path::new("filesystem"), Path::new("sync"), &place.point]).done();
        std::io::Write::write_all(&mut held, b"and again").unwrap();
        common::run([Path::new("subvolume"), Path::new("snapshot"), &place.point, &place.at("snapshot")])
            .done();
        std::io::Write::write_all(&mut held, b"and once more").unwrap();
        drop(held);
        common::run([Path::new("subvolume"), Path::new("sync"), &place.point]).done();
        let server = place.server();
        place.unmount().done();
        wait_for("the end of the server", || test_kill_process(server).is_err());
        assert_eq!(place.cat("/beside"), b"kept");
        btrfs_check_data(&place.image).unwrap();
    }
}

/// Writes synchronously and punches holes until it is killed.
const PUNCHING: &str = r"
import ctypes, os, sys
libc, long = ctypes.CDLL(None), ctypes.c_long
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_SYNC)
print('begun', flush=True)
while True:
    for start in range(0, 1 << 20, 65536):
        os.pwrite(file, bytes(20000), start)
        libc.fallocate(file, 3, long(start + 4096), long(8192))
";

#[test]
fn killed_writers_do_not_fail_unmounting() {
    require!(Fuse, Root, Tool("btrfs"), Tool("python3"), Tool("pgrep"));
    let place = Place::new("killed-writers");
    for round in 0..8 {
        place.mount("defaults").done();
        let spawn = |number| {
            let mut writer = Command::new("python3");
            let writer = writer.args(["-c", PUNCHING]).arg(place.at(&format!("file{number}")));
            let mut writer = writer.stdout(Stdio::piped()).spawn().unwrap();
            writer.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
            writer
        };
        let mut writers: Vec<Child> = (0..6).map(spawn).collect();
        thread::sleep(Duration::from_millis(200));
        writers.iter_mut().for_each(|writer| writer.kill().unwrap());
        for writer in &mut writers {
            writer.wait().unwrap();
        }
        let ended = place.unmount();
        assert_eq!(ended.code, 0, "round {round}: {}", ended.err);
    }
    btrfs_check_data(&place.image).unwrap();
}
