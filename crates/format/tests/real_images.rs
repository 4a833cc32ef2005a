//! The rules against images that Linux's tools made: every tree block on the device whose checksum is right,
//! the stale ones among them, was valid when it was written, so that not one of its items may be refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{SeekFrom, seek};
use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_format::block::{Block, BlockRules, HEADER_SIZE};
use vlinder_format::root_item::RootItemFault;
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror};
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Fault, Generation, ItemType, RootId};
use vlinder_testkit::Scratch;
use vlinder_testkit::require;

/// Where tree blocks can begin.
const SECTOR: usize = 4096;

/// While it balanced, older Linux wrote relocation trees of the data relocation tree, which today's Linux
/// refuses. They were gone at the next commit, so that only stale blocks show them.
const STALE_RELOCATION: Fault =
    Fault::RootItem(RootItemFault::Relocation { found: RootId::DATA_RELOCATION_TREE });

/// What was found in one image.
#[derive(Default)]
struct Finding {
    leaves: usize,
    items: BTreeMap<ItemType, usize>,
    refused: Vec<String>,
}

/// Looks at every sector of an image for a tree block of the file system.
fn scan(image: &File) -> Finding {
    let mut superblock = [0; SUPERBLOCK_SIZE];
    image.read_exact_at(&mut superblock, SuperblockMirror::Primary.offset().0).unwrap();
    let superblock = Superblock::decode(&superblock).unwrap();
    let kind = ChecksumKind::from_disk(superblock.checksum_type).unwrap();
    let rules = LeafRules {
        sector_size: superblock.sector_size,
        node_size: superblock.node_size,
        checksum_size: u32::try_from(kind.size_bytes()).unwrap(),
        generation: superblock.generation,
        features: superblock.features(),
        writable: true,
    };
    let mut finding = Finding::default();
    let mut candidate = vec![0; usize::try_from(rules.node_size).unwrap()];
    let last = image.metadata().unwrap().len().saturating_sub(u64::from(rules.node_size));
    let mut start = 0;
    // The images are sparse: what is not stored is skipped.
    while let Ok(data) = seek(image, SeekFrom::Data(start)) {
        let hole = seek(image, SeekFrom::Hole(data)).unwrap();
        start = hole;
        for position in (data..hole.min(last + 1)).step_by(SECTOR) {
            image.read_exact_at(&mut candidate[..HEADER_SIZE], position).unwrap();
            if candidate[32..48] != superblock.tree_block_uuid().0 {
                continue;
            }
            image.read_exact_at(&mut candidate, position).unwrap();
            if is_block(&candidate, superblock.generation, kind) {
                judge(&candidate, &rules, &mut finding);
            }
        }
    }
    finding
}

fn is_block(candidate: &[u8], newest: Generation, kind: ChecksumKind) -> bool {
    let generation = u64::from_le_bytes(candidate[80..88].try_into().unwrap());
    let stored = Checksum::from_field(candidate[..32].try_into().unwrap());
    // Generation 1 is mkfs's scaffolding, which no reader sees and which breaks rules that came later.
    (2..=newest.next().0).contains(&generation)
        && stored.matches(&checksum(kind, &candidate[32..]), kind)
        // A superblock has the same UUID in the same place.
        && &candidate[64..72] != b"_BHRfS_M"
}

fn judge(candidate: &[u8], rules: &LeafRules, finding: &mut Finding) {
    let block_rules = BlockRules { node_size: rules.node_size, sector_size: rules.sector_size };
    let block = match Block::parse(candidate.into(), &block_rules) {
        Ok(block) => block,
        Err((fault, slot)) => {
            let number = |from: usize| u64::from_le_bytes(candidate[from..from + 8].try_into().unwrap());
            let (address, generation, owner) = (number(48), number(80), number(88));
            finding.refused.push(format!(
                "block {address}, generation {generation}, tree {owner}, slot {slot:?}: {fault}"
            ));
            return;
        }
    };
    if !block.is_leaf() {
        return;
    }
    finding.leaves += 1;
    for slot in 0..block.len() {
        *finding.items.entry(block.key(slot).item_type).or_default() += 1;
    }
    if let Err(fault) = validate_leaf(&block, rules)
        && fault.fault != STALE_RELOCATION
    {
        finding.refused.push(format!("tree {}, block {}: {fault}", block.owner(), block.logical()));
    }
}

/// Scans an image, unpacked, and restored from a dump where it is one.
fn scan_file(image: &Path) -> Finding {
    let name = image.to_string_lossy();
    let scratch = Scratch::new("format-images");
    let mut path = image.to_path_buf();
    if name.ends_with(".xz") {
        path = scratch.join("unpacked");
        run(Command::new("xz").arg("-dc").arg(image).stdout(File::create(&path).unwrap()));
    }
    if name.contains(".img") {
        let restored = scratch.join("restored");
        run(Command::new("btrfs-image").arg("-r").args([&path, &restored]));
        path = restored;
    }
    scan(&File::open(path).unwrap())
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn images_of(folders: &[&str]) -> Vec<PathBuf> {
    let corpus = vlinder_testkit::require::corpus().unwrap();
    let mut images: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(corpus.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| [".raw.xz", ".img", ".img.xz"].iter().any(|end| path.to_string_lossy().ends_with(end)))
        .collect();
    images.sort();
    images
}

fn scan_all(folders: &[&str]) -> BTreeMap<ItemType, usize> {
    let mut items = BTreeMap::new();
    for image in images_of(folders) {
        let finding = scan_file(&image);
        println!("{}: {} leaves", image.display(), finding.leaves);
        assert!(finding.leaves > 0, "{} has no leaf", image.display());
        assert!(finding.refused.is_empty(), "{}: {:#?}", image.display(), finding.refused);
        for (item_type, count) in finding.items {
            *items.entry(item_type).or_default() += count;
        }
    }
    println!("{items:?}");
    items
}

#[test]
fn golden_images_break_no_rule() {
    require!(Corpus, Tool("xz"));
    let items = scan_all(&["golden"]);
    for item_type in [
        ItemType::INODE_ITEM,
        ItemType::INODE_REF,
        ItemType::XATTR_ITEM,
        ItemType::DIR_ITEM,
        ItemType::DIR_INDEX,
        ItemType::EXTENT_DATA,
        ItemType::EXTENT_CHECKSUM,
        ItemType::ROOT_ITEM,
        ItemType::ROOT_REF,
        ItemType::ROOT_BACKREF,
        ItemType::EXTENT_ITEM,
        ItemType::METADATA_ITEM,
        ItemType::BLOCK_GROUP_ITEM,
        ItemType::FREE_SPACE_INFO,
        ItemType::DEVICE_EXTENT,
        ItemType::DEVICE_ITEM,
        ItemType::CHUNK_ITEM,
        ItemType::QUOTA_GROUP_STATUS,
        ItemType::QUOTA_GROUP_INFO,
        ItemType::QUOTA_GROUP_LIMIT,
        ItemType::PERSISTENT_ITEM,
        ItemType::UUID_SUBVOLUME,
    ] {
        assert!(items.contains_key(&item_type), "no {item_type} in any image");
    }
}

#[test]
fn sound_images_of_btrfs_progs_break_no_rule() {
    require!(Corpus, Tool("xz"), Tool("btrfs-image"));
    scan_all(&[
        "fsck/019-non-skinny-false-alert",
        "fsck/020-extent-ref-cases",
        "fsck/022-qgroup-rescan-halfway",
        "fsck/023-qgroup-stack-overflow",
        "fsck/030-reflinked-prealloc-extents",
        "fsck/042-half-dropped-inode",
        "fsck/054-orphan-directory",
        "fsck/065-valid-log-tree",
        "misc/012-find-root-no-result",
        "misc/025-zstd-compression",
        "misc/052-seed-dirty-log",
    ]);
}
