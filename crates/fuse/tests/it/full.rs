//! A full file system tells write(2) so, under the writeback cache too; what was accepted is stored, or told
//! at fsync.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::rig::writers::{Written, available, content, fill, fill_together, is_there_or_told};
use crate::rig::{Mounted, Rig, run, shell};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_control::protocol::MetricValue;
use vlinder_control::{Answer, Request};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{eventually, require};

const MEBIBYTE: u64 = 1 << 20;
/// More than the images hold.
const ENDLESS: u64 = 4096 * MEBIBYTE;
const NO_SPACE: Option<i32> = Some(Errno::NOSPC.raw_os_error());

fn counters(mounted: &Mounted) -> BTreeMap<String, u64> {
    let Answer::Statistics { metrics, .. } = mounted.client().request(&Request::Statistics).unwrap() else {
        panic!()
    };
    let counters = metrics.into_iter().filter_map(|metric| match metric.value {
        MetricValue::Counter { value } => Some((metric.name, value)),
        _ => None,
    });
    counters.collect()
}

fn error_of<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Fills what is left; the file that does.
fn fill_up(rig: &Rig) -> Written {
    let filler = fill(&rig.join("filler"), 99, MEBIBYTE as usize, ENDLESS);
    assert_eq!(filler.write_error, NO_SPACE, "{filler:?}");
    filler
}

/// Ends a mount in which writers were told that bytes found no room: a sync says so once more.
fn unmount_full(mounted: Mounted) {
    if let Err(error) = mounted.client().request(&Request::FilesystemSync) {
        assert!(error.to_string().contains("No space"), "{error}");
    }
    mounted.unmount();
}

/// Writers of one kind fill an image; all of what was accepted is checked after a remount.
fn writers_are_told(options: &str, writers: u8, block: usize) {
    let rig = Rig::new(256);
    let mounted = rig.mount(options);
    let free = available(&rig.mountpoint);
    let written = fill_together(&rig.mountpoint, writers, block, ENDLESS);
    let what = format!("{options}, {writers} writers of {block} bytes: {written:?}");
    assert!(written.iter().all(|writer| writer.write_error == NO_SPACE), "{what}");
    let accepted: u64 = written.iter().map(|writer| writer.accepted_bytes).sum();
    let most = free + 64 * MEBIBYTE + u64::from(writers) * block as u64;
    assert!(accepted <= most, "{accepted} bytes were accepted, {free} were free; {what}");
    assert!(accepted >= free / 10 * 9, "{accepted} of {free} bytes were accepted; {what}");
    let counted = counters(&mounted);
    assert!(counted["transaction.commits"] < 40, "{} commits; {what}", counted["transaction.commits"]);
    unmount_full(mounted);
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    written.iter().for_each(is_there_or_told);
    mounted.unmount();
}

#[test]
fn one_writer_of_small_blocks_is_told() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    writers_are_told("dirty=8M", 1, 4096);
}

#[test]
fn several_writers_are_told_whatever_threads_answer() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    writers_are_told("dirty=8M,threads=1", 4, 64 << 10);
    writers_are_told("dirty=8M,threads=2", 8, 1 << 20);
}

#[test]
fn a_writer_of_large_blocks_is_told() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    writers_are_told("dirty=8M", 1, 64 << 20);
    writers_are_told("dirty=8M,writeback=off", 2, 16 << 20);
}

#[test]
fn requests_for_attributes_do_not_open_the_gate() {
    require!(Root, Fuse, Tool("mkfs.btrfs"));
    // Large enough to be asked about several times even where other programs take the processors.
    let rig = Rig::new(768);
    let mounted = rig.mount("dirty=8M");
    let free = available(&rig.mountpoint);
    let is_over = Arc::new(AtomicBool::new(false));
    let asker = thread::spawn("asks", {
        let (is_over, directory) = (Arc::clone(&is_over), rig.mountpoint.clone());
        move || {
            let file = directory.join("writer0");
            let mut rounds = 0;
            eventually("the writer is there", || file.exists());
            while !is_over.load(Ordering::Relaxed) {
                // chmod and truncate may be told of the writers' bytes that found no room.
                shell(
                    &directory,
                    "ls -l > /dev/null || true; stat writer0 writer1 > /dev/null; touch -a writer0 || true; ln writer0 link; \
                     chmod 600 writer1 || true; chmod 644 writer1 || true; truncate -s +0 writer1 || true; \
                     : >> writer0 || true; rm link",
                );
                rounds += 1;
            }
            rounds
        }
    });
    // Slow enough to be asked about meanwhile.
    let written = fill_together(&rig.mountpoint, 2, 16 << 10, ENDLESS);
    is_over.store(true, Ordering::Relaxed);
    let rounds: u32 = asker.join().unwrap();
    assert!(rounds >= 3, "attributes were asked for {rounds} times");
    let accepted: u64 = written.iter().map(|writer| writer.accepted_bytes).sum();
    assert!(written.iter().all(|writer| writer.write_error == NO_SPACE), "{written:?}");
    assert!(accepted <= free + 64 * MEBIBYTE, "{accepted} bytes were accepted, {free} were free");
    assert_eq!(counters(&mounted)["fuse.gate.unasked"], 0);
    unmount_full(mounted);
}

#[test]
fn a_file_opened_long_before_goes_on_when_room_comes_back() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=8M");
    let early = File::create(rig.join("early")).unwrap();
    let appender = OpenOptions::new().append(true).create(true).open(rig.join("appender")).unwrap();
    let direct = File::create(rig.join("direct")).unwrap();
    rustix::fs::fcntl_setfl(&direct, OFlags::DIRECT).unwrap();
    fill_up(&rig);
    let block = content(1, 0, 64 << 10);
    assert_eq!(error_of(early.write_at(&block, 0)), NO_SPACE);
    assert_eq!(error_of(early.write_at(&block, 1 << 40)), NO_SPACE, "a hole before it changes nothing");
    assert_eq!(error_of(std::io::Write::write(&mut &appender, &block)), NO_SPACE);
    assert_eq!(
        error_of(rustix::fs::fallocate(&early, FallocateFlags::empty(), 0, 1 << 20).map_err(Into::into)),
        NO_SPACE
    );
    assert_eq!(error_of(direct.write_at(aligned(&block).as_ref(), 0)), NO_SPACE);
    drop(direct);
    let commits = counters(&mounted)["transaction.commits"];
    for _ in 0..100 {
        assert_eq!(error_of(early.write_at(&block, 0)), NO_SPACE);
    }
    assert!(counters(&mounted)["transaction.commits"] <= commits + 1, "a refused write commits nothing");

    std::fs::remove_file(rig.join("filler")).unwrap();
    early.write_all_at(&block, 0).unwrap();
    std::io::Write::write_all(&mut &appender, &block).unwrap();
    early.sync_all().unwrap();
    appender.sync_all().unwrap();
    drop((early, appender));
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    assert_eq!(std::fs::read(rig.join("early")).unwrap(), block);
    assert_eq!(std::fs::read(rig.join("appender")).unwrap(), block);
    mounted.unmount();
}

/// A copy that begins at a border of 4096 bytes, as direct I/O wants it.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

fn aligned(block: &[u8]) -> Aligned {
    let mut bytes = vec![0; block.len() + 4096];
    let start = bytes.as_ptr().align_offset(4096);
    bytes[start..start + block.len()].copy_from_slice(block);
    Aligned { bytes, start, length: block.len() }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

#[test]
fn a_file_with_space_of_its_own_is_written_on_a_full_disk() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("chattr"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=8M");
    let length = 8 * MEBIBYTE;
    let preallocated = File::create(rig.join("preallocated")).unwrap();
    rustix::fs::fallocate(&preallocated, FallocateFlags::empty(), 0, length).unwrap();
    run(std::process::Command::new("touch").arg(rig.join("nodatacow")));
    run(std::process::Command::new("chattr").arg("+C").arg(rig.join("nodatacow")));
    let nodatacow = OpenOptions::new().write(true).open(rig.join("nodatacow")).unwrap();
    nodatacow.write_all_at(&content(3, 0, length as usize), 0).unwrap();
    nodatacow.sync_all().unwrap();
    fill_up(&rig);
    let newer = [content(4, 0, length as usize), content(5, 0, length as usize)];
    for (file, newer) in [&preallocated, &nodatacow].into_iter().zip(&newer) {
        for (index, block) in newer.chunks(64 << 10).enumerate() {
            file.write_all_at(block, (index * (64 << 10)) as u64).unwrap();
        }
        file.sync_all().unwrap();
    }
    // Behind its space there is no room; that is told by the second write at the latest.
    let block = content(6, length, 64 << 10);
    let told = (0..2).find_map(|index| error_of(preallocated.write_at(&block, length + index * (64 << 10))));
    assert_eq!(told, NO_SPACE);
    drop((preallocated, nodatacow));
    unmount_full(mounted);
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    for (name, newer) in ["preallocated", "nodatacow"].into_iter().zip(&newer) {
        assert!(std::fs::read(rig.join(name)).unwrap() == *newer, "{name}");
    }
    mounted.unmount();
}

/// Maps a file, fills the file system, and changes what is mapped.
const MAPPED: &str = r"
import errno, mmap, os, sys
length = 4 << 20
file = os.open('mapped', os.O_RDWR | os.O_CREAT); os.ftruncate(file, length)
mapped = mmap.mmap(file, length)
filler = os.open('filler', os.O_WRONLY | os.O_CREAT)
try:
    while True: os.write(filler, bytes(1 << 20))
except OSError as error: assert error.errno == errno.ENOSPC
for place in range(0, length, 4096): mapped[place:place + 8] = (place | 1).to_bytes(8, 'little')
def told(call):
    try: call()
    except OSError as error: return errno.errorcode[error.errno]
def is_there():
    with open('/proc/sys/vm/drop_caches', 'w') as drop: drop.write('3')
    with open('mapped', 'rb') as again: bytes = again.read()
    return len(bytes) == length and all(
        bytes[place:place + 8] == (place | 1).to_bytes(8, 'little') for place in range(0, length, 4096))
print(told(mapped.flush), told(lambda: os.fsync(file)), told(lambda: os.fsync(file)))
mapped.close(); os.close(file)
print(is_there())
os.close(filler); os.unlink('filler')
file = os.open('mapped', os.O_RDWR)
print(told(lambda: os.fsync(file)), is_there())
";

#[test]
fn mapped_bytes_without_room_are_told_kept_and_stored_later() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=8M");
    let said = run(std::process::Command::new("python3").args(["-c", MAPPED]).current_dir(&rig.mountpoint));
    assert_eq!(said, "ENOSPC ENOSPC ENOSPC\nTrue\nNone True\n");
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    let bytes = std::fs::read(rig.join("mapped")).unwrap();
    assert_eq!(bytes.len() as u64, 4 * MEBIBYTE);
    for (index, page) in bytes.chunks(4096).enumerate() {
        assert_eq!(page[..8], ((index * 4096) as u64 | 1).to_le_bytes(), "page {index}");
    }
    mounted.unmount();
}

/// Two open files of one inode of which more bytes are refused than are kept; then there is room again.
const SHARED: &str = r"
import errno, mmap, os, time
length = 4 << 20
def told(call):
    try: call()
    except OSError as error: return errno.errorcode[error.errno]
first, second = (os.open('shared', os.O_RDWR | os.O_CREAT) for _ in range(2))
os.ftruncate(first, length)
mapped = mmap.mmap(first, length)
def fill():
    with open('spare', 'wb') as spare: spare.write(bytes(4 << 20)); spare.flush(); os.fsync(spare)
    filler = os.open('filler', os.O_WRONLY | os.O_CREAT)
    while not told(lambda: os.write(filler, bytes(1 << 20))): pass
    return filler
filler = fill()
for place in range(0, length, 4096): mapped[place] = 1
def fsync(file): return told(lambda: os.fsync(file))
def write(file): return told(lambda: os.pwrite(file, b'new', 0))
print(told(mapped.flush), fsync(second), fsync(first))
mapped.close()
os.unlink('spare')
print(write(first), write(second), write(first), write(second))
third = os.open('shared', os.O_RDWR)
print(write(third), fsync(third), fsync(first), fsync(second))
print(*(told(lambda: os.close(file)) for file in [first, second, third]))
again = os.open('shared', os.O_RDWR)
print(write(again), fsync(again), told(lambda: os.close(again)))
# Once more; and nobody asks until there is room for all, and the file has no writer any more.
while not told(lambda: os.write(filler, bytes(4096))): pass
first = os.open('shared', os.O_RDWR)
mapped = mmap.mmap(first, length)
for place in range(0, length, 4096): mapped[place] = 2
print(told(mapped.flush), fsync(first))
mapped.close()
os.close(filler); os.unlink('filler')
time.sleep(1)
os.close(first)
fill()
os.unlink('spare')
again = os.open('shared', os.O_RDWR)
print(write(again), write(again), fsync(again))
";

#[test]
fn each_open_file_of_a_refused_one_is_told_and_none_later() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=1M");
    let said = run(std::process::Command::new("python3").args(["-c", SHARED]).current_dir(&rig.mountpoint));
    let expected = [
        // msync and fsync tell each open file, by the kernel's own count.
        "ENOSPC ENOSPC ENOSPC",
        // write(2) tells each of what is lost, once.
        "ENOSPC ENOSPC None None",
        "None None None None",
        "None None None",
        "None None None",
        "ENOSPC ENOSPC",
        // Of a writer that is gone nobody is told.
        "None None None\n",
    ];
    assert_eq!(said, expected.join("\n"));
    unmount_full(mounted);
    btrfs_check_data(&rig.image).unwrap();
}

/// Their writer was told. No program is shown bytes that are not on the disk, and no other program hears of
/// them.
#[test]
fn refused_writes_leave_nothing_when_their_file_is_closed() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=8M");
    fill_up(&rig);
    let paths: Vec<_> = (0..100).map(|number| rig.join(&format!("refused {number}"))).collect();
    for path in &paths {
        let file = File::create(path).unwrap();
        std::fs::hard_link(path, path.with_extension("link")).unwrap();
        // A write that is the file's first may be let in; then its close is told.
        let _ = file.write_at(&content(2, 0, 20_000), 0);
    }
    // Some of the first found the room that the filler left.
    let all: Vec<_> = paths.iter().flat_map(|path| [path.clone(), path.with_extension("link")]).collect();
    let lengths = || all.iter().map(|path| std::fs::metadata(path).unwrap().len()).collect::<Vec<u64>>();
    let is_settled =
        || lengths().iter().all(|length| matches!(length, 0 | 4096 | 8192 | 12288 | 16384 | 20_000));
    eventually("the last refused bytes are gone", || lengths().ends_with(&[0; 40]) && is_settled());
    mounted.client().request(&Request::FilesystemSync).unwrap();
    let shown = lengths();
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    assert_eq!(lengths(), shown, "what was shown is on the disk");
    mounted.unmount();
}

#[test]
fn times_on_a_nearly_full_disk_are_those_of_the_last_write() {
    require!(Root, Fuse, Tool("mkfs.btrfs"));
    let rig = Rig::new(256);
    let mounted = rig.mount("dirty=64M");
    let file = rig.join("file");
    std::fs::write(&file, "a").unwrap();
    // Less is left than twice `dirty=`.
    let filler = fill(&rig.join("filler"), 9, MEBIBYTE as usize, available(&rig.mountpoint) - 60 * MEBIBYTE);
    assert_eq!((filler.write_error, filler.sync_error), (None, None));
    assert!(counters(&mounted)["fuse.gate.shut"] > 0, "writes ask");
    let before = std::fs::metadata(&file).unwrap();
    thread::sleep(Duration::from_millis(50));
    std::io::Write::write_all(&mut OpenOptions::new().append(true).open(&file).unwrap(), b"b").unwrap();
    let after = std::fs::metadata(&file).unwrap();
    let times = |metadata: &std::fs::Metadata| {
        [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())]
    };
    assert!(
        times(&after).iter().zip(times(&before)).all(|(after, before)| *after > before),
        "{before:?} {after:?}"
    );
    std::fs::rename(&file, rig.join("renamed")).unwrap();
    mounted.unmount();
    let mounted = rig.mount("ro");
    let stored = std::fs::metadata(rig.join("renamed")).unwrap();
    assert_eq!(times(&stored)[0], times(&after)[0]);
    mounted.unmount();
}

/// The requests of writes, by kind, where there is room.
fn requests_of(mounted: &Mounted, directory: &Path, script: &str) -> BTreeMap<String, u64> {
    let before = counters(mounted);
    shell(directory, script);
    let after = counters(mounted);
    let grown = after.into_iter().map(|(name, value)| {
        let grown = value - before[&name];
        (name, grown)
    });
    grown.filter(|(name, grown)| name.starts_with("fuse.") && *grown > 0).collect()
}

#[test]
fn where_there_is_room_no_write_asks() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("dd"));
    let rig = Rig::new(512);
    let mounted = rig.mount("dirty=8M,commit=3600");
    let script = "dd if=/dev/zero of=file bs=4k count=2000 status=none; \
                  for i in 1 2 3 4 5; do dd if=/dev/zero of=file bs=4k count=500 oflag=append conv=notrunc status=none; done";
    let requests = requests_of(&mounted, &rig.mountpoint, script);
    assert!(!requests.keys().any(|name| name.starts_with("fuse.gate")), "{requests:?}");
    // 4500 writes: what is asked is asked when files are opened.
    assert!(requests["fuse.requests.getattr"] <= 6, "{requests:?}");
    mounted.unmount();
}
