//! What a send asks of the devices and of the trees, and that threads change nothing in the stream.

use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use vlinder_base::metrics::Value;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_stream::send::{SendError, SendOptions, send};
use vlinder_stream::wire::{Protocol, StreamWriter, WireError};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{DiskModel, ModelledDevice, Scratch, require};

use crate::kernel_receives::{ALLOWED, bash, have_linux_change, make, with_sending};

/// What a send took.
#[derive(Debug)]
struct Cost {
    elapsed: Duration,
    requests: u64,
    blocks: u64,
    descents: u64,
    stream: Vec<u8>,
}

fn counter(filesystem: &Filesystem, name: &str) -> u64 {
    let samples = filesystem.options().registry.snapshot();
    match samples.iter().find(|sample| sample.name == name).unwrap().value {
        Value::Counter(count) => count,
        ref other => panic!("{other:?}"),
    }
}

fn image_of(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&std::fs::read(path).unwrap())
}

fn open(device: &Arc<ModelledDevice>, options: &str) -> Filesystem {
    let options = OpenOptions { read_only: true, ..OpenOptions::parse(options).unwrap() };
    let device: Arc<dyn Device> = Arc::<ModelledDevice>::clone(device);
    Filesystem::open_devices(vec![device], options).unwrap()
}

/// Sends a snapshot of an image that nobody has read from yet.
fn cost(
    (image, model): (&MemoryDevice, DiskModel),
    parent: Option<&[u8]>,
    name: &[u8],
    (protocol, options): (Protocol, SendOptions<'_>),
) -> Cost {
    let device = Arc::new(ModelledDevice::new(image.snapshot(), model));
    let switch = if options.no_readahead { "disable=send_readahead" } else { "" };
    let options = SendOptions { no_readahead: false, ..options };
    let filesystem = open(&device, switch);
    let counters = || ["tree.blocks_read", "tree.descents"].map(|name| counter(&filesystem, name));
    let (elapsed, (requests, _), [blocks, descents]) =
        (device.elapsed(), device.requests_and_batches(), counters());
    let mut stream = Vec::new();
    let mut output = StreamWriter::new(&mut stream, protocol);
    with_sending(&filesystem, (parent, &[]), name, options, |sending| send(sending, &mut output).unwrap());
    output.flush().unwrap();
    let [blocks_now, descents_now] = counters();
    Cost {
        elapsed: device.elapsed() - elapsed,
        requests: device.requests_and_batches().0 - requests,
        blocks: blocks_now - blocks,
        descents: descents_now - descents,
        stream,
    }
}

fn one_thread(no_readahead: bool) -> (Protocol, SendOptions<'static>) {
    (Protocol::V1, SendOptions { threads: Some(1), no_readahead, ..SendOptions::default() })
}

/// So many files of 2000 bytes; then a quarter more, and one in fifty changed.
fn many_small_files(image: &Path, files: u32) {
    let make_files = |from: u32, to: u32| {
        format!("python3 -c \"for i in range({from}, {to}): open('file_%d' % i, 'wb').write(b'x' * 2000)\"")
    };
    let first = make_files(0, files);
    let then = format!(
        "{}; python3 -c \"for i in range(0, {files}, 50): open('file_%d' % i, 'r+b').write(b'y' * 20)\"",
        make_files(files, files + files / 4)
    );
    make(image);
    have_linux_change(image, (&first, &then));
}

#[test]
fn readahead_shortens_a_send_on_modelled_disks() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-readahead");
    let path = scratch.join("image");
    many_small_files(&path, 20_000);
    let image = image_of(&path);
    // A head reads leaves of a young tree in their order, with or without: the full send gains little there.
    let full = (None, &b"s1"[..]);
    let changes = (Some(&b"s1"[..]), &b"s2"[..]);
    let models = [(DiskModel::ONE_HEAD, [0, 30]), (DiskModel::PARALLEL, [85, 85])];
    for (model, least) in models {
        for ((parent, name), least) in [full, changes].into_iter().zip(least) {
            let off = cost((&image, model), parent, name, one_thread(true));
            let on = cost((&image, model), parent, name, one_thread(false));
            let shorter = 100 - on.elapsed.as_micros() * 100 / off.elapsed.as_micros();
            println!(
                "{model:?} {parent:?}: {:?} without, {:?} with: {shorter} % shorter; {} and {} blocks",
                off.elapsed, on.elapsed, off.blocks, on.blocks
            );
            assert!(shorter >= least, "{shorter} % shorter: {:?} and {:?}", off.elapsed, on.elapsed);
            assert!(on.stream == off.stream, "readahead changes the stream");
            // What is read ahead is needed.
            assert!(on.blocks <= off.blocks + off.blocks / 50, "{} blocks, {} needed", on.blocks, off.blocks);
        }
    }
}

#[test]
fn reads_follow_the_change() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-ten-changed");
    let path = scratch.join("image");
    let blocks = [2_000, 20_000].map(|files: u32| {
        make(&path);
        let first =
            format!("python3 -c \"for i in range({files}): open('%d' % i, 'wb').write(b'x' * 2000)\"");
        let then = format!("for i in $(seq 1 {} {files}); do echo new >> $i; done", files / 10);
        have_linux_change(&path, (&first, &then));
        let image = image_of(&path);
        let full = cost((&image, DiskModel::PARALLEL), None, b"s1", one_thread(false));
        let changes = cost((&image, DiskModel::PARALLEL), Some(b"s1"), b"s2", one_thread(false));
        println!("{files} files: {} blocks in full, {} for ten changed", full.blocks, changes.blocks);
        assert!(full.blocks > u64::from(files) / 10);
        changes.blocks
    });
    // Ten leaves on both sides and their inodes' neighbours; one more level is one more node or so for each.
    assert!(blocks[1] < blocks[0] + 40 && blocks[1] < 120, "{blocks:?}");
}

#[test]
fn the_search_for_clones_costs_each_file_the_same() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-clone-costs");
    let path = scratch.join("image");
    // Files of two extents; each has a clone, and all are in ten snapshots more.
    let descents = [100_u64, 1000].map(|files| {
        make(&path);
        let first = format!(
            "for i in $(seq {files}); do head -c 8192 /dev/urandom > $i; done; sync; \
             for i in $(seq {files}); do cp --reflink=always $i $i.c; done"
        );
        have_linux_change(&path, (&first, "touch z"));
        let mount = KernelMount::of(&[&path], "", ALLOWED).unwrap();
        bash(mount.path(), "for i in $(seq 10); do btrfs subvolume snapshot -r s1 more$i >/dev/null; done");
        mount.unmount().unwrap();
        let cost = cost((&image_of(&path), DiskModel::PARALLEL), None, b"s1", one_thread(false));
        println!("{files} files: {} descents, {} bytes", cost.descents, cost.stream.len());
        assert!((cost.stream.len() as u64) < files * 9500, "the clones are sent as bytes");
        cost.descents / files
    });
    assert!(descents[1] <= descents[0] + 2 && descents[1] < 60, "{descents:?}");
}

#[test]
fn a_fan_of_thousands_of_references_takes_no_longer() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-fan");
    let path = scratch.join("image");
    let descents = [300_u64, 3000].map(|files| {
        make(&path);
        let first = format!(
            "head -c 100000 /dev/urandom > f; sync; for i in $(seq {files}); do cp --reflink=always f $i; done"
        );
        have_linux_change(&path, (&first, "touch z"));
        let cost = cost((&image_of(&path), DiskModel::PARALLEL), None, b"s1", one_thread(false));
        println!("{files} clones: {} descents, {} bytes", cost.descents, cost.stream.len());
        assert!((cost.stream.len() as u64) < 100_000 + files * 500, "the clones are sent as bytes");
        cost.descents / files
    });
    assert!(descents[1] <= descents[0] && descents[0] < 60, "{descents:?}");
}

#[test]
fn extents_that_lie_together_are_one_request() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-requests");
    let path = scratch.join("image");
    make(&path);
    let first = "for i in $(seq 1000 1999); do head -c 8192 /dev/urandom > $i; done; sync";
    have_linux_change(&path, (first, "touch z"));
    let cost = cost((&image_of(&path), DiskModel::PARALLEL), None, b"s1", one_thread(false));
    let for_data = cost.requests - cost.blocks;
    println!("{for_data} requests for the data of 1000 files");
    assert!(for_data < 100, "{for_data} requests");
}

/// Files of many kinds.
const MIXTURE: &str = "for i in $(seq 200); do head -c $((i * 50)) /dev/urandom > s$i; done; \
    for k in zlib lzo zstd; do touch $k; btrfs property set $k compression $k; yes $k | head -c 3000000 > $k; done; \
    head -c 9000000 /dev/urandom > large; cp --reflink=always large clone; mkdir n; chattr +C n; \
    head -c 300000 /dev/urandom > n/bare; truncate -s 1T hole; sync";

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("stream-threads");
    let path = scratch.join("image");
    make(&path);
    let then = "rm s1 s7; w large 1 1m 300k; w zstd 2 100k 4k; mkdir d; mv zlib d; cp --reflink=always large d/l; \
        w n/bare 3 10 100000";
    have_linux_change(&path, (MIXTURE, then));
    let image = image_of(&path);
    for (protocol, compressed_data) in [(Protocol::V1, false), (Protocol::V2, false), (Protocol::V2, true)] {
        for (parent, name) in [(None, &b"s1"[..]), (Some(&b"s1"[..]), b"s2")] {
            let streams = [Some(1), Some(2), Some(8), None].map(|threads| {
                let options = SendOptions { compressed_data, threads, ..SendOptions::default() };
                cost((&image, DiskModel::PARALLEL), parent, name, (protocol, options)).stream
            });
            assert!(streams.iter().all(|stream| *stream == streams[0]), "{protocol:?} {parent:?}");
        }
    }
}

/// A reader that goes away.
struct BrokenPipe(usize);

impl Write for BrokenPipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_goes_away_stops_the_reading() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::in_memory("stream-broken-pipe");
    let path = scratch.join("image");
    make(&path);
    have_linux_change(&path, ("head -c 150000000 /dev/urandom > large", "touch z"));
    let image = image_of(&path);
    for threads in [1, 4] {
        let device = Arc::new(ModelledDevice::new(image.snapshot(), DiskModel::PARALLEL));
        let filesystem = open(&device, "");
        let told = Cell::new(0);
        let progress = |bytes| told.set(bytes);
        let options =
            SendOptions { threads: Some(threads), progress: Some(&progress), ..SendOptions::default() };
        let mut output = StreamWriter::new(BrokenPipe(10 << 20), Protocol::V1);
        let error = with_sending(&filesystem, (None, &[]), b"s1", options, |sending| {
            send(sending, &mut output).unwrap_err()
        });
        assert!(matches!(error, SendError::Wire(WireError::Io(_))), "{error}");
        assert!((5 << 20..11 << 20).contains(&told.get()), "{} bytes were told", told.get());
        let read = device.bytes();
        assert!(read < 90 << 20, "{read} bytes were read with {threads} threads");
    }
}

/// Names the image to the process whose memory is measured.
const MEASURED_IMAGE: &str = "VLINDER_TEST_MEASURED_IMAGE";

#[test]
fn a_sending_process_stays_below_128_mebibytes() {
    if let Some(image) = std::env::var_os(MEASURED_IMAGE) {
        let options = OpenOptions { read_only: true, cache_bytes: 48 << 20, ..OpenOptions::default() };
        let filesystem = Filesystem::open(&[Path::new(&image)], options).unwrap();
        let options = SendOptions { threads: Some(8), ..SendOptions::default() };
        let mut output = StreamWriter::new(std::io::sink(), Protocol::V1);
        let bytes = with_sending(&filesystem, (None, &[]), b"s1", options, |sending| {
            send(sending, &mut output).unwrap()
        });
        assert!(bytes > 150_000_000);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        println!("{bytes} bytes sent, at most {peak} KiB in memory");
        assert!(peak < 128 << 10, "{peak} KiB");
        return;
    }
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("python3"));
    let scratch = Scratch::in_memory("stream-memory");
    let path = scratch.join("image");
    make(&path);
    let first = "head -c 140000000 /dev/urandom > large; touch z; btrfs property set z compression zstd; \
        yes | head -c 60000000 > z; python3 -c \"for i in range(5000): open('%d' % i, 'wb').write(b'x' * 2000)\"";
    have_linux_change(&path, (first, "touch other"));
    let name = "costs::a_sending_process_stays_below_128_mebibytes";
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args([name, "--exact", "--nocapture"]).env(MEASURED_IMAGE, &path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("in memory"), "{said}");
    print!("{said}");
}
