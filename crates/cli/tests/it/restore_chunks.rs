//! Files out of an image whose chunk tree is destroyed, in part or wholly: its older leaves tell where the
//! rest lies.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, run, tool};
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_format::block::BlockRules;
use vlinder_format::chunk::Chunk;
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use vlinder_format::{Block, Logical};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

const NODE: u32 = 4096;
const COPIES: [u64; 2] = [64 << 10, 64 << 20];

/// An image that the kernel filled, and what is done to it.
struct Image {
    scratch: Scratch,
    file: File,
    superblock: Superblock,
}

impl Image {
    /// Chunks of 1 GiB, most of them reserved for nothing, so that the chunk tree has two leaves; small files
    /// come before and between. In the end each leaf of the chunk tree is written once more, for chunks that
    /// the files do not need.
    fn new() -> Self {
        let scratch = Scratch::new("restore-chunks");
        let path = scratch.join("image");
        File::create(&path).unwrap().set_len(64 << 30).unwrap();
        tool("mkfs.btrfs", ["-q", "-n", "4096", "-K", path.to_str().unwrap()]);
        // Nothing that was freed is to be discarded, whenever the kernel would do that.
        let mount = KernelMount::unchecked(&path, "nodiscard").unwrap();
        let script = "
            dd if=/dev/urandom of=small-0 bs=100k count=1 status=none; echo inline > small-1; sync -f .
            fallocate -l 20G large-0; dd if=/dev/urandom of=small-2 bs=100k count=1 status=none; sync -f .
            fallocate -l 26G large-1; dd if=/dev/urandom of=small-3 bs=100k count=1 status=none; sync -f .
            fallocate -l 3G large-2; sync -f .";
        let filled = Command::new("sh").args(["-ec", script]).current_dir(mount.path()).output().unwrap();
        assert!(filled.status.success(), "{filled:?}");
        mount.unmount().unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, COPIES[0]).unwrap();
        Self { scratch, file, superblock: Superblock::decode(&bytes).unwrap() }
    }

    fn system_chunks(&self) -> Vec<(Logical, Chunk)> {
        self.superblock.system_chunks().map(Result::unwrap).collect()
    }

    /// Where the copies of a block of the chunk tree lie.
    fn copies(&self, block: Logical) -> Vec<u64> {
        let chunks = self.system_chunks();
        let is_in = |(start, chunk): &&(Logical, Chunk)| (start.0..start.0 + chunk.length).contains(&block.0);
        let (start, chunk) = chunks.iter().find(is_in).unwrap();
        chunk.stripes.iter().map(|stripe| stripe.physical.0 + (block.0 - start.0)).collect()
    }

    fn block(&self, logical: Logical) -> Block {
        let mut bytes = vec![0; NODE as usize];
        self.file.read_exact_at(&mut bytes, self.copies(logical)[0]).unwrap();
        Block::parse(bytes.into_boxed_slice(), &BlockRules { node_size: NODE, sector_size: 4096 }).unwrap()
    }

    /// Every block of the chunk tree, the root first.
    fn chunk_tree(&self) -> Vec<Logical> {
        let root = self.block(self.superblock.chunk_root);
        assert!(!root.is_leaf(), "one leaf only");
        let leaves: Vec<Logical> = root.children().map(|child| child.logical).collect();
        assert!(leaves.iter().all(|leaf| self.block(*leaf).is_leaf()), "more than two levels");
        std::iter::once(root.logical()).chain(leaves).collect()
    }

    /// Overwrites pieces of the image, does something, and puts back what was there.
    fn without<T>(&self, pieces: &[(u64, Vec<u8>)], then: impl FnOnce() -> T) -> T {
        let mut before = Vec::new();
        for (start, bytes) in pieces {
            let mut old = vec![0; bytes.len()];
            self.file.read_exact_at(&mut old, *start).unwrap();
            before.push((*start, old));
            self.file.write_all_at(bytes, *start).unwrap();
        }
        let done = then();
        for (start, bytes) in before {
            self.file.write_all_at(&bytes, start).unwrap();
        }
        done
    }

    /// Restores the small files into a new directory.
    fn restore(&self) -> (Ended, BTreeMap<String, Vec<u8>>) {
        let out: PathBuf = self.scratch.join("out");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        let image = self.scratch.join("image");
        let only_small = ["--path-regex", "^/(|small-.)$"];
        let words = ["--json", "restore"].into_iter().chain(only_small).map(Path::new);
        let ended = run(words.chain([image.as_path(), out.as_path()]));
        let files = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        let content = |path: PathBuf| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
        };
        (ended, files.map(content).collect())
    }
}

#[test]
fn a_destroyed_chunk_tree_is_put_together_from_its_older_leaves() {
    require!(Root, KernelBtrfs, Tool("mkfs.btrfs"));
    let image = Image::new();
    let (ended, expected) = image.restore();
    let sound = ended.done();
    assert_eq!((sound.json()["files"].as_u64(), expected.len()), (Some(4), 4));

    let blocks = image.chunk_tree();
    assert!(blocks.len() >= 3, "{blocks:?}");
    let destroyed = |block: &Logical| {
        let copies = image.copies(*block);
        assert_eq!(copies.len(), 2, "metadata are DUP");
        copies.into_iter().map(|copy| (copy, vec![0x5a; NODE as usize])).collect::<Vec<_>>()
    };
    let all = blocks.iter().flat_map(destroyed).collect();
    let cases = blocks.iter().map(destroyed).chain([all]);
    for pieces in cases {
        let (ended, files) = image.without(&pieces, || image.restore());
        assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
        assert!(ended.err.contains("the chunk tree can't be read whole"), "{}", ended.err);
        assert!(files == expected, "{:?}: {}", files.keys(), ended.err);
    }

    // One copy is enough, and nothing is said.
    let one = vec![destroyed(&blocks[0]).remove(0)];
    let (ended, files) = image.without(&one, || image.restore());
    ended.done();
    assert!(files == expected);

    // Nothing is left in the system chunks.
    let bytes = |(_, chunk): &(Logical, Chunk)| vec![0; chunk.length as usize];
    let places = |chunk: &(Logical, Chunk)| {
        chunk.1.stripes.iter().map(|stripe| (stripe.physical.0, bytes(chunk))).collect::<Vec<_>>()
    };
    let everything: Vec<_> = image.system_chunks().iter().flat_map(places).collect();
    let (ended, files) = image.without(&everything, || image.restore());
    assert_eq!((ended.code, files.len()), (1, 0), "{}", ended.err);
    let message = ended.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("nothing is left of the chunk tree"), "{message}");

    // What the superblock says of the system chunk leads behind the device.
    let (ended, files) = image.without(&misplaced_system_chunk(&image.file), || image.restore());
    assert_eq!((ended.code, files.len()), (1, 0), "{}", ended.err);
    let message = ended.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no system chunk of the superblock's array can be used"), "{message}");
}

/// Both copies of the superblock, with their first system chunk's stripes at 2^50 and their checksums made
/// right.
fn misplaced_system_chunk(file: &File) -> Vec<(u64, Vec<u8>)> {
    // The array; a key; what a chunk has before its stripes; the number of the device.
    let first = 811 + 17 + 48 + 8;
    let copies = COPIES.into_iter().map(|copy| {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, copy).unwrap();
        for stripe in [first, first + 32] {
            bytes[stripe..stripe + 8].copy_from_slice(&(1_u64 << 50).to_le_bytes());
        }
        let sum = checksum(ChecksumKind::Crc32c, &bytes[32..]);
        bytes[..32].copy_from_slice(sum.as_field());
        (copy, bytes)
    });
    copies.collect()
}
