//! Writing: random operations against a vector of bytes, judged by `btrfs check` after each commit and by the
//! kernel at the end.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use vlinder_base::metrics::Value;
use vlinder_base::sync::Arc;
use vlinder_fs::data::{Allocate, OpenCache, Seek, allocate, copy_range, flush, read, seek, truncate, write};
use vlinder_fs::{Caller, Filesystem, Inode, InodeFlags, OpenOptions, RootId};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

const LARGEST: u64 = 3 << 20;

/// The forms that bytes are kept in, by their counters.
const FORMS: [&str; 4] =
    ["write_back.extents", "write_back.in_place", "write_back.inline", "write_back.compressed_extents"];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Small, sector-aligned and large lengths all come up.
    fn length(&mut self) -> u64 {
        match self.below(4) {
            0 => 1 + self.below(100),
            1 => 4096 * (1 + self.below(8)),
            2 => 1 + self.below(40_000),
            _ => 1 + self.below(400_000),
        }
    }

    fn offset(&mut self) -> u64 {
        let offset = self.below(LARGEST);
        if self.below(2) == 0 { offset / 4096 * 4096 } else { offset }
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let value = self.next();
        match self.below(3) {
            0 => vec![value as u8 | 1; length as usize],
            1 => {
                (0..length).map(|at| if at % 5 == 0 { (at / 97) as u8 ^ value as u8 } else { b'y' }).collect()
            }
            _ => (0..length).map(|_| self.next() as u8).collect(),
        }
    }
}

/// Bytes to write: the caller's, or a vector whose spare capacity holds other bytes, enough of them for whole
/// sectors or not.
fn passed<'a>(random: &mut Random, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if random.below(2) == 0 {
        return Cow::Borrowed(bytes);
    }
    let mut owned = vec![0xee; bytes.len() + random.below(8192) as usize];
    owned.truncate(bytes.len());
    owned.copy_from_slice(bytes);
    Cow::Owned(owned)
}

fn make_image(scratch: &Scratch, mkfs: &[&str], size: u64) -> std::path::PathBuf {
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(size).unwrap();
    let output = Command::new("mkfs.btrfs").args(["-q", "-f"]).args(mkfs).arg(&image).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    image
}

/// Files and what they must hold.
struct Model {
    filesystem: Filesystem,
    files: BTreeMap<String, (Arc<Inode>, Vec<u8>)>,
    counts: BTreeMap<&'static str, u64>,
    /// Of an open file that is now this file and now that one: what it remembers must never be shown when it
    /// is old.
    cache: OpenCache,
    comparisons: Cell<u64>,
}

impl Model {
    fn open(image: &Path, options: &str) -> Self {
        let filesystem = Filesystem::open(&[image], OpenOptions::parse(options).unwrap()).unwrap();
        assert!(!filesystem.is_read_only());
        Self {
            filesystem,
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
            cache: OpenCache::new(),
            comparisons: Cell::new(0),
        }
    }

    fn create(&mut self, name: &str, flags: InodeFlags) {
        let root = self.filesystem.root().unwrap();
        let caller = Caller::superuser();
        let inode = self.filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o644).unwrap();
        if flags != InodeFlags::NONE {
            self.filesystem.attributes().set_flags(&caller, &inode, flags).unwrap();
        }
        self.files.insert(name.to_owned(), (inode, Vec::new()));
    }

    /// Adds what this opening's write-back counted.
    fn count_forms(&mut self) {
        for name in FORMS {
            *self.counts.entry(name).or_default() += counted(&self.filesystem, name);
        }
    }

    /// Closes the file system and opens it again.
    fn reopen(self, image: &Path, options: &str) -> Self {
        let mut model = self;
        model.count_forms();
        let Self { filesystem, files, counts, .. } = model;
        let contents: Vec<(String, Vec<u8>)> =
            files.into_iter().map(|(name, (_, bytes))| (name, bytes)).collect();
        filesystem.close().unwrap();
        let mut model = Self::open(image, options);
        model.counts = counts;
        for (name, bytes) in contents {
            model.add(&name, bytes);
        }
        model
    }

    /// A file that is there.
    fn add(&mut self, name: &str, bytes: Vec<u8>) {
        let root = self.filesystem.root().unwrap();
        let inode = self.filesystem.names().lookup(&Caller::superuser(), &root, name.as_bytes()).unwrap();
        self.files.insert(name.to_owned(), (inode, bytes));
        self.compare_one(name, "opening");
    }

    fn name(&self, random: &mut Random) -> String {
        self.files.keys().nth(random.below(self.files.len() as u64) as usize).unwrap().clone()
    }

    fn step(&mut self, random: &mut Random) {
        let name = self.name(random);
        let (inode, bytes) = self.files.get_mut(&name).unwrap();
        let locked = Arc::clone(inode);
        let operation = locked.operation.write();
        let filesystem = &self.filesystem;
        // Small files come and go between a place in the tree and extents of their own.
        let (offset, length) = match name.starts_with("small") {
            true => (random.below(3).saturating_sub(1) * random.below(5000), 1 + random.below(3000)),
            false => (random.offset(), random.length()),
        };
        let end = (offset + length) as usize;
        let what = match random.below(20) {
            0..=8 => {
                let new = random.bytes(length);
                let offset = if random.below(4) == 0 { bytes.len() as u64 } else { offset };
                let end = offset as usize + new.len();
                write(filesystem, inode, offset, passed(random, &new)).unwrap();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[offset as usize..end].copy_from_slice(&new);
                "write"
            }
            9 | 10 => {
                let size = match random.below(4) {
                    0 => 0,
                    1 => random.below(5000),
                    _ if name.starts_with("small") => random.below(3000),
                    _ => random.offset(),
                };
                truncate(filesystem, inode, size).unwrap();
                bytes.resize(size as usize, 0);
                "truncate"
            }
            11 => {
                let keep_size = random.below(2) == 0;
                allocate(filesystem, inode, Allocate::Reserve { keep_size }, offset, length).unwrap();
                if !keep_size && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                "reserve"
            }
            12 => {
                allocate(filesystem, inode, Allocate::PunchHole, offset, length).unwrap();
                let size = bytes.len();
                bytes[(offset as usize).min(size)..end.min(size)].fill(0);
                "punch"
            }
            13 => {
                let keep_size = random.below(2) == 0;
                allocate(filesystem, inode, Allocate::ZeroRange { keep_size }, offset, length).unwrap();
                if !keep_size && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                let size = bytes.len();
                bytes[(offset as usize).min(size)..end.min(size)].fill(0);
                "zero"
            }
            14 | 15 => {
                flush(filesystem, inode).unwrap();
                "flush"
            }
            16 | 17 => {
                drop(operation);
                self.copy(random, &name);
                "copy"
            }
            _ => {
                let mut found = vec![0xcc; length as usize];
                let count = read(filesystem, inode, &self.cache, offset, &mut found).unwrap();
                let start = (offset as usize).min(bytes.len());
                assert!(
                    found[..count] == bytes[start..end.min(bytes.len()).max(start)],
                    "{name} at {offset}"
                );
                "read"
            }
        };
        *self.counts.entry(what).or_default() += 1;
        self.compare_one(&name, what);
    }

    fn copy(&mut self, random: &mut Random, source_name: &str) {
        let target_name = self.name(random);
        let (source, content) = self.files[source_name].clone();
        let target = Arc::clone(&self.files[&target_name].0);
        let from = random.offset().min(content.len() as u64);
        let length = random.length().min(content.len() as u64 - from);
        let to = if random.below(3) == 0 { random.offset() } else { from };
        let small = [source_name, &target_name].iter().any(|name| name.starts_with("small"));
        let (from, to) = if small { (0, random.below(2) * 4096) } else { (from, to) };
        let length = if small { length.min(content.len() as u64).min(5000) } else { length };
        if Arc::ptr_eq(&source, &target) && (from < to + length + 8192 && to < from + length + 8192) {
            return;
        }
        let _first = source.operation.write();
        let _second = (!Arc::ptr_eq(&source, &target)).then(|| target.operation.write());
        let count = copy_range(&self.filesystem, &source, from, &target, to, length).unwrap();
        assert_eq!(count, length);
        let bytes = &mut self.files.get_mut(&target_name).unwrap().1;
        let end = (to + length) as usize;
        if length == 0 {
            return;
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[to as usize..end].copy_from_slice(&content[from as usize..(from + length) as usize]);
    }

    fn compare_one(&self, name: &str, what: &str) {
        let (inode, bytes) = &self.files[name];
        assert_eq!(inode.size(), bytes.len() as u64, "{name} after {what}");
        let mut found = vec![0xcc; bytes.len() + 10];
        // Now and then in small steps, of which most come from what was read ahead; some of it stays for the
        // next time.
        self.comparisons.set(self.comparisons.get() + 1);
        let step = if self.comparisons.get().is_multiple_of(4) { 4096 } else { found.len() };
        let mut count = 0;
        for part in found.chunks_mut(step) {
            count += read(&self.filesystem, inode, &self.cache, count as u64, part).unwrap();
        }
        let differs = found[..count].iter().zip(bytes).position(|(one, other)| one != other);
        assert_eq!((count, differs), (bytes.len(), None), "{name} after {what}");
    }

    /// Every byte that is not zero lies in data as SEEK_DATA and SEEK_HOLE tell.
    fn compare_seeks(&self) {
        for (name, (inode, bytes)) in &self.files {
            let mut at = 0;
            while at < bytes.len() as u64 {
                let start =
                    seek(&self.filesystem, inode, &self.cache, at, Seek::Data).unwrap_or(bytes.len() as u64);
                assert!(bytes[at as usize..start as usize].iter().all(|byte| *byte == 0), "{name} at {at}");
                if start == bytes.len() as u64 {
                    break;
                }
                at = seek(&self.filesystem, inode, &self.cache, start, Seek::Hole).unwrap();
                assert!(at > start);
            }
        }
    }
}

/// What write-back counted so far.
fn counted(filesystem: &Filesystem, name: &str) -> u64 {
    let samples = filesystem.engine().registry().snapshot();
    match samples.into_iter().find(|sample| sample.name == name).map(|sample| sample.value) {
        Some(Value::Counter(count)) => count,
        other => panic!("{name}: {other:?}"),
    }
}

/// With `VLINDER_SEED=n` in the environment other seeds are run than the usual ones.
fn random_operations(mkfs: &[&str], options: &str, seed: u64) {
    let base: u64 =
        std::env::var("VLINDER_SEED").map_or(0, |base| base.parse().expect("VLINDER_SEED is a number"));
    let seed = seed + 1000 * base;
    let scratch = Scratch::new("write");
    let image = make_image(&scratch, mkfs, 1 << 30);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::open(&image, options);
    for number in 0..4 {
        model.create(&format!("file-{number}"), InodeFlags::NONE);
        model.create(&format!("small-{number}"), InodeFlags::NONE);
    }
    model.create("no-cow", InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    model.create("compressed", InodeFlags::COMPRESS);
    judge(model, &image, &mut random, options, &format!("{mkfs:?} {options} seed {seed}"));
}

/// Rounds of operations, each ended by a commit that is judged; now and then the file system is closed and
/// opened again, and a snapshot taken, whose files must stay as they were.
fn judge(mut model: Model, image: &Path, random: &mut Random, options: &str, what: &str) {
    let mut snapshots: BTreeMap<String, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
    for round in 0..12 {
        for _ in 0..60 {
            model.step(random);
        }
        model.compare_seeks();
        if round % 4 == 1 {
            model.filesystem.sync().unwrap();
            model = model.reopen(image, options);
        }
        if round % 4 == 2 {
            let name = format!("snapshot-{round}");
            let (caller, root) = (Caller::superuser(), model.filesystem.root().unwrap());
            model
                .filesystem
                .subvolumes()
                .snapshot(&caller, RootId::FS_TREE, &root, name.as_bytes(), true)
                .unwrap();
            let content =
                model.files.iter().map(|(name, (_, bytes))| (name.clone(), bytes.clone())).collect();
            snapshots.insert(name, content);
        }
        model.filesystem.sync().unwrap();
        btrfs_check_data(image).unwrap_or_else(|error| panic!("{what} round {round}: {error}"));
        for name in model.files.keys() {
            model.compare_one(name, "sync");
        }
    }
    model.count_forms();
    println!("{what}: {:?}", model.counts);
    for name in FORMS {
        let expected = name != "write_back.compressed_extents" || options.contains("compress");
        assert!(model.counts.get(name).copied() > Some(0) || !expected, "{what}: no {name}");
    }
    let Model { filesystem, files, .. } = model;
    let live: BTreeMap<String, Vec<u8>> = files.into_iter().map(|(name, (_, bytes))| (name, bytes)).collect();
    snapshots.insert(".".to_owned(), live);
    filesystem.close().unwrap();
    let mount = KernelMount::new(image, "").unwrap();
    for (directory, files) in &snapshots {
        for (name, bytes) in files {
            let found = fs::read(mount.path().join(directory).join(name)).unwrap();
            assert!(&found == bytes, "{what}: {directory}/{name} in the kernel");
        }
    }
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

#[test]
fn random_operations_keep_every_byte_and_all_judges_content() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    for seed in 1..=3 {
        random_operations(&[], "", seed);
    }
    random_operations(&["--csum", "sha256"], "max_inline=4095", 4);
}

#[test]
fn random_operations_without_no_holes() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    for seed in 11..=13 {
        random_operations(&["-O", "^no-holes"], "", seed);
    }
}

#[test]
fn random_operations_with_compression() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    random_operations(&[], "compress=zlib", 21);
    random_operations(&[], "compress-force=zstd", 22);
    random_operations(&["-O", "^no-holes"], "compress-force=lzo", 23);
}

#[test]
fn random_operations_under_pressure() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    random_operations(&["-n", "4096"], "dirty=100k", 31);
}

/// Files that the kernel wrote, with compression, preallocation, holes and clones, are written on.
#[test]
fn random_operations_on_files_of_the_kernel() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    for (mkfs, kernel_options, options) in [
        (&[][..], "compress-force=zstd", "compress=zlib"),
        (&["-O", "^no-holes"], "compress-force=lzo", ""),
        (&[], "", ""),
    ] {
        let scratch = Scratch::new("continue");
        let image = make_image(&scratch, mkfs, 1 << 30);
        let mut random = Random(99);
        let mount = KernelMount::new(&image, kernel_options).unwrap();
        let mut contents = Vec::new();
        for number in 0..6 {
            let path = mount.path().join(format!("file-{number}"));
            let file = File::create(&path).unwrap();
            for part in 0..12 {
                let (offset, length) = (random.offset(), random.length());
                match (number + part) % 4 {
                    3 => rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), offset, length)
                        .unwrap(),
                    _ => std::os::unix::fs::FileExt::write_all_at(&file, &random.bytes(length), offset)
                        .unwrap(),
                }
                if part % 3 == 0 {
                    file.sync_all().unwrap();
                }
            }
            contents.push((format!("file-{number}"), fs::read(&path).unwrap()));
        }
        mount.unmount().unwrap();
        let mut model = Model::open(&image, options);
        for (name, bytes) in contents {
            model.add(&name, bytes);
        }
        model.create("small", InodeFlags::NONE);
        judge(model, &image, &mut random, options, &format!("{mkfs:?} {kernel_options} then {options}"));
    }
}
