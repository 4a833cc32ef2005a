//! Reading what Linux wrote: every byte of every file equals what the kernel shows.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions as HostOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FallocateFlags;
use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_fs::data::{OpenCache, Seek, extent_map, read, read_data, seek};
use vlinder_fs::{Caller, FileType, Filesystem, Inode, OpenOptions};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::walk::short_hash;
use vlinder_testkit::{Scratch, require};

/// Every regular file below a directory by its path.
fn files_below(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    path: &str,
    into: &mut BTreeMap<String, Arc<Inode>>,
) {
    let caller = Caller::superuser();
    let open = filesystem.names().open_directory(&caller, directory).unwrap();
    let mut from = 2;
    loop {
        let records = open.read(from, 100).unwrap();
        let Some(last) = records.last() else { break };
        from = last.offset + 1;
        for record in &records {
            let name = String::from_utf8_lossy(&record.name).into_owned();
            let child = if path.is_empty() { name } else { format!("{path}/{name}") };
            if record.file_type != FileType::Directory && record.file_type != FileType::Regular {
                continue;
            }
            let inode = filesystem.names().lookup(&caller, directory, &record.name).unwrap();
            if inode.is_directory() {
                files_below(filesystem, &inode, &child, into);
            } else {
                into.insert(child, inode);
            }
        }
    }
}

fn all_files(filesystem: &Filesystem) -> BTreeMap<String, Arc<Inode>> {
    let mut files = BTreeMap::new();
    files_below(filesystem, &filesystem.root().unwrap(), "", &mut files);
    files
}

fn read_all(filesystem: &Filesystem, inode: &Inode, piece: usize) -> Vec<u8> {
    let cache = OpenCache::new();
    let mut bytes = Vec::new();
    let mut buffer = vec![0xee; piece];
    loop {
        let count = read(filesystem, inode, &cache, bytes.len() as u64, &mut buffer).unwrap();
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(bytes.len() as u64, inode.size());
    bytes
}

/// As [`read_all`], from data to data.
fn read_all_data(filesystem: &Filesystem, inode: &Inode) -> Vec<u8> {
    let cache = OpenCache::new();
    let mut bytes = vec![0; inode.size() as usize];
    let (mut at, mut used) = (0, None);
    while let Some(stretch) = read_data(filesystem, inode, &cache, at, used).unwrap() {
        for (offset, run) in stretch.runs() {
            assert!(offset >= at && !run.is_empty(), "a run at {offset} behind one that ends at {at}");
            at = offset + run.len() as u64;
            bytes[offset as usize..at as usize].copy_from_slice(run);
        }
        assert!(stretch.end() >= at);
        at = stretch.end();
        used = Some(stretch);
    }
    bytes
}

/// Data ranges (start and length) by SEEK_DATA and SEEK_HOLE.
fn data_ranges(filesystem: &Filesystem, inode: &Inode) -> Vec<(u64, u64)> {
    let cache = OpenCache::new();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(filesystem, inode, &cache, at, Seek::Data) {
        let end = seek(filesystem, inode, &cache, start, Seek::Hole).unwrap();
        assert!(end > start);
        ranges.push((start, end - start));
        at = end;
    }
    ranges
}

#[test]
fn golden_images_read_as_their_walks_say() {
    require!(Corpus, Tool("xz"));
    let corpus = vlinder_testkit::require::corpus().unwrap().join("golden");
    let scratch = Scratch::new("golden");
    let mut images = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let packed = entry.unwrap().path();
        if packed.extension().is_none_or(|extension| extension != "xz") {
            continue;
        }
        let image = scratch.join("image");
        let output = File::create(&image).unwrap();
        assert!(Command::new("xz").args(["-dc"]).arg(&packed).stdout(output).status().unwrap().success());
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        let files = all_files(&filesystem);
        let walk = fs::read_to_string(packed.with_extension("").with_extension("walk")).unwrap();
        let mut compared = 0;
        for line in walk.lines() {
            let fields: Vec<&str> = line.split('|').collect();
            let [path, mode, _, _, _, _, size, .., hash] = fields.as_slice() else { continue };
            if !mode.starts_with("0o100") {
                continue;
            }
            let inode = files.get(*path).unwrap_or_else(|| panic!("{}: {path} is missing", packed.display()));
            assert_eq!(inode.size().to_string(), *size, "{path}");
            let bytes = read_all(&filesystem, inode, 100_000);
            assert_eq!(short_hash(&bytes), *hash, "{}: {path}", packed.display());
            // In steps small enough to be read ahead, which do not end where that does.
            assert!(read_all(&filesystem, inode, 5000) == bytes, "{}: {path}", packed.display());
            assert!(read_all_data(&filesystem, inode) == bytes, "{}: {path}", packed.display());
            compared += 1;
        }
        assert!(compared > 20, "{}: {compared} files", packed.display());
        images += 1;
    }
    assert!(images >= 7, "{images} images");
}

/// Bytes that compress about threefold and differ from place to place.
fn compressible(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64)
        .map(|at| if at % 3 == 0 { (at / 768 % 251) as u8 } else { b'x' })
        .collect()
}

/// Bytes that do not compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

fn create(path: &Path) -> File {
    HostOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

/// Files of every kind of extent, through the kernel.
fn fill(directory: &Path) {
    for size in [0, 1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 131_072, 131_073, 1_000_000] {
        fs::write(directory.join(format!("text-{size}")), compressible(0, size)).unwrap();
        fs::write(directory.join(format!("noise-{size}")), noise(size as u64, size)).unwrap();
    }
    let sparse = create(&directory.join("sparse"));
    for part in 0..40_u64 {
        sparse.write_all_at(&compressible(part * 65_536, 5000), part * 65_536 + 300).unwrap();
    }
    sparse.set_len(40 * 65_536 + 77).unwrap();
    let holes = create(&directory.join("only-a-hole"));
    holes.set_len(3 << 20).unwrap();

    let preallocated = create(&directory.join("preallocated"));
    rustix::fs::fallocate(preallocated.as_fd(), FallocateFlags::empty(), 0, 1 << 20).unwrap();
    preallocated.write_all_at(&noise(1, 20_000), 8192).unwrap();
    preallocated.write_all_at(&noise(2, 4096), 500_000).unwrap();
    let behind_end = create(&directory.join("preallocated-behind-end"));
    behind_end.write_all_at(b"short", 0).unwrap();
    rustix::fs::fallocate(behind_end.as_fd(), FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();

    // Overwrites in the middle of large extents leave runs that show parts of them.
    let overwritten = create(&directory.join("overwritten"));
    overwritten.write_all_at(&compressible(0, 2 << 20), 0).unwrap();
    overwritten.sync_all().unwrap();
    for part in 0..20_u64 {
        overwritten.write_all_at(&noise(part, 3000), part * 99_991 + 17).unwrap();
    }
    overwritten.sync_all().unwrap();
    let punched = create(&directory.join("punched"));
    punched.write_all_at(&compressible(7, 1 << 20), 0).unwrap();
    punched.sync_all().unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(punched.as_fd(), punch, 150_000, 200_000).unwrap();
    let truncated = create(&directory.join("truncated"));
    truncated.write_all_at(&compressible(9, 600_000), 0).unwrap();
    truncated.sync_all().unwrap();
    truncated.set_len(200_001).unwrap();
    truncated.sync_all().unwrap();
    truncated.set_len(400_000).unwrap();

    let cloned = create(&directory.join("cloned"));
    let source = File::open(directory.join("overwritten")).unwrap();
    rustix::fs::ioctl_ficlone(&cloned, &source).unwrap();
    let without_sums = directory.join("no-cow");
    create(&without_sums);
    assert!(Command::new("chattr").arg("+C").arg(&without_sums).status().unwrap().success());
    let file = HostOptions::new().write(true).open(&without_sums).unwrap();
    file.write_all_at(&noise(5, 300_000), 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&noise(6, 30_000), 100_000).unwrap();
}

fn host_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The kernel's extent map, as `filefrag -v` prints it in units of sectors: offset, address, length, flags.
fn kernel_extent_map(path: &Path) -> Vec<String> {
    let output = Command::new("filefrag").args(["-v", "-s", "-b4096"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains("..") && line.contains(':'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(':').map(str::trim).collect();
            let flags: Vec<&str> = fields.last().unwrap().split(',').collect();
            let kept = ["unwritten", "inline", "encoded", "shared", "last"]
                .into_iter()
                .filter(|flag| flags.contains(flag));
            let start = |field: &str| field.split("..").next().unwrap().trim().to_owned();
            let kept = kept.collect::<Vec<_>>().join(",");
            // The length of an inline run is printed in bytes.
            let length = if flags.contains(&"inline") { "1" } else { fields[3] };
            format!("{} {} {length} {kept}", start(fields[1]), start(fields[2]))
        })
        .collect()
}

/// Ours in the same words.
fn own_extent_map(filesystem: &Filesystem, inode: &Inode) -> Vec<String> {
    let mapped = extent_map(filesystem, inode, &OpenCache::new(), ByteRange::ALL, usize::MAX).unwrap();
    mapped
        .iter()
        .map(|run| {
            let flags = [
                (run.preallocated, "unwritten"),
                (run.inline, "inline"),
                (run.encoded, "encoded"),
                (run.shared, "shared"),
                (run.last, "last"),
            ];
            let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            let address = run.logical.map_or(0, |logical| logical.0) / 4096;
            format!("{} {address} {} {}", run.offset / 4096, run.length.div_ceil(4096), flags.join(","))
        })
        .collect()
}

fn reads_what_the_kernel_wrote(mkfs: &[&str], options: &str) {
    let scratch = Scratch::new("read");
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(512 << 20).unwrap();
    assert!(
        Command::new("mkfs.btrfs")
            .args(["-q", "-f"])
            .args(mkfs)
            .arg(&image)
            .output()
            .unwrap()
            .status
            .success()
    );
    let mount = KernelMount::unchecked(&image, options).unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    let mount = KernelMount::unchecked(&image, "ro").unwrap();
    let mut expected = BTreeMap::new();
    for path in host_files(mount.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file = File::open(&path).unwrap();
        let ranges = vlinder_testkit::walk::data_ranges(&file.into()).unwrap();
        let map = kernel_extent_map(&path);
        expected.insert(name, (fs::read(&path).unwrap(), ranges, map));
    }
    mount.unmount().unwrap();
    let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
    let files = all_files(&filesystem);
    assert_eq!(files.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, (bytes, ranges, map)) in &expected {
        for piece in [4096, 10_000, 1 << 20, 4 << 20] {
            let found = read_all(&filesystem, &files[name], piece);
            let differs = found.iter().zip(bytes).position(|(one, other)| one != other);
            assert_eq!((found.len(), differs), (bytes.len(), None), "{mkfs:?} {options}: {name} by {piece}");
        }
        assert!(read_all_data(&filesystem, &files[name]) == *bytes, "{mkfs:?} {options}: {name}");
        assert_eq!(&data_ranges(&filesystem, &files[name]), ranges, "{mkfs:?} {options}: {name}");
        assert_eq!(&own_extent_map(&filesystem, &files[name]), map, "{mkfs:?} {options}: {name}");
    }
}

#[test]
fn plain_files_with_and_without_no_holes() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("chattr"), Tool("filefrag"));
    reads_what_the_kernel_wrote(&[], "");
    reads_what_the_kernel_wrote(&["-O", "^no-holes"], "");
}

#[test]
fn compressed_files_of_each_algorithm() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("chattr"), Tool("filefrag"));
    reads_what_the_kernel_wrote(&[], "compress-force=zlib");
    reads_what_the_kernel_wrote(&["-O", "^no-holes"], "compress-force=lzo");
    reads_what_the_kernel_wrote(&["--csum", "xxhash"], "compress=zstd:1");
}

#[test]
fn other_checksums_and_none() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("chattr"), Tool("filefrag"));
    reads_what_the_kernel_wrote(&["--csum", "sha256"], "");
    reads_what_the_kernel_wrote(&["--csum", "blake2", "-n", "4096"], "compress=lzo");
    reads_what_the_kernel_wrote(&[], "nodatasum");
}

#[test]
fn a_damaged_sector_is_read_from_the_other_copy_or_not_at_all() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"));
    for (profile, readable) in [("single", false), ("dup", true)] {
        let scratch = Scratch::new("damaged");
        let image = scratch.join("image");
        File::create(&image).unwrap().set_len(512 << 20).unwrap();
        let made =
            Command::new("mkfs.btrfs").args(["-q", "-f", "-d", profile]).arg(&image).output().unwrap().status;
        assert!(made.success());
        let content = noise(77, 1 << 20);
        let mount = KernelMount::unchecked(&image, "").unwrap();
        fs::write(mount.path().join("file"), &content).unwrap();
        mount.unmount().unwrap();
        // The first copy of one sector in the middle.
        let disk = HostOptions::new().read(true).write(true).open(&image).unwrap();
        let whole = fs::read(&image).unwrap();
        let sector = &content[400 * 1024..404 * 1024];
        let place = whole.chunks(4096).position(|found| found == sector).unwrap() as u64 * 4096;
        disk.write_all_at(&[0x55; 100], place + 1000).unwrap();
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        let files = all_files(&filesystem);
        let mut buffer = vec![0; 1 << 20];
        let result = read(&filesystem, &files["file"], &OpenCache::new(), 0, &mut buffer);
        // In small steps of which most are read ahead, the bad sector among them, only its own fails.
        let (cache, mut step) = (OpenCache::new(), vec![0; 4096]);
        for (number, expected) in content.chunks(4096).enumerate() {
            let result = read(&filesystem, &files["file"], &cache, number as u64 * 4096, &mut step);
            match result {
                Ok(count) => assert!(count == 4096 && step == expected, "{number}"),
                Err(error) => assert!(!readable && number == 100, "{number}: {error}"),
            }
        }
        let data = read_data(&filesystem, &files["file"], &OpenCache::new(), 0, None);
        if readable {
            assert_eq!(result.unwrap(), 1 << 20);
            assert!(buffer == content);
            assert!(data.unwrap().unwrap().runs().flat_map(|(_, run)| run).eq(&content));
            continue;
        }
        assert_eq!(data.unwrap_err().errno(), rustix::io::Errno::IO);
        let error = result.unwrap_err();
        assert_eq!(error.errno(), rustix::io::Errno::IO);
        assert!(error.to_string().contains("inode 257 of subvolume 5"), "{error}");
        // What lies beside it is still there.
        let count = read(&filesystem, &files["file"], &OpenCache::new(), 404 * 1024, &mut buffer).unwrap();
        assert!(buffer[..count] == content[404 * 1024..]);
        let options = OpenOptions::parse("ro,rescue=ignoredatacsums").unwrap();
        let filesystem = Filesystem::open(&[&image], options).unwrap();
        let count =
            read(&filesystem, &all_files(&filesystem)["file"], &OpenCache::new(), 0, &mut buffer).unwrap();
        assert_eq!(count, 1 << 20);
        assert!(buffer != content);
    }
}
