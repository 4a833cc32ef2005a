//! Whole file systems: a small sound one with changes in its tree blocks and superblock, all checksums made
//! right.
//!
//! An input is: which image, what is done with it, and changes until its end, each a block, a kind of change
//! and its arguments. Three judge: nothing panics or hangs; what `vlinder check` finds nothing in can be
//! opened, read to its last byte, and measured; and what it finds nothing in is as clean after something was
//! written.

use std::collections::{BTreeMap, HashSet, VecDeque};

use vlinder_base::sync::{Arc, OnceLock};
use vlinder_base::units::Physical;
use vlinder_check::{Options, check};
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use vlinder_fs::data::{self, OpenCache, Seek};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, FileType, Filesystem, FsError, Inode, OpenOptions};
use vlinder_testkit::subject::list;

use crate::input::Input;
use crate::{measuring, seeds};

/// Where the primary superblock lies.
const SUPERBLOCK: u64 = 64 << 10;
/// Names that one reading looks at: an image may have directories that lead round.
const MAX_NAMES: usize = 400;
/// Changes of one input.
const MAX_CHANGES: usize = 24;

/// A sound image, and where its parts lie.
pub struct Base {
    device: MemoryDevice,
    kind: ChecksumKind,
    superblock: Vec<u8>,
    blocks: Vec<TreeBlock>,
}

struct TreeBlock {
    logical: u64,
    copies: Vec<u64>,
    bytes: Vec<u8>,
}

impl Base {
    /// Finds the tree blocks of an image: every sector that begins one is looked at, and those are kept that
    /// can be reached from the superblock.
    ///
    /// # Panics
    /// If there is no file system.
    pub fn new(device: MemoryDevice) -> Self {
        let bytes = device.read_at(Physical(SUPERBLOCK), SUPERBLOCK_SIZE);
        let superblock = bytes.unwrap_or_else(|error| panic!("{error}"));
        let fields = Superblock::decode(&superblock).unwrap_or_else(|fault| panic!("{fault}"));
        let kind = ChecksumKind::from_disk(fields.checksum_type).unwrap_or(ChecksumKind::Crc32c);
        let node_size = fields.node_size as usize;
        let fsid = fields.tree_block_uuid().0;
        let mut found: BTreeMap<u64, TreeBlock> = BTreeMap::new();
        for (start, chunk) in device.written_chunks() {
            for at in (0..chunk.len()).step_by(4096) {
                if chunk[at + 32..at + 48] != fsid {
                    continue;
                }
                let Ok(bytes) = device.read_at(Physical(start.0 + at as u64), node_size) else { continue };
                if checksum(kind, &bytes[32..]).as_field()[..] != bytes[..32] {
                    continue;
                }
                let (logical, place) = (le64(&bytes, 48), start.0 + at as u64);
                let block =
                    found.entry(logical).or_insert_with(|| TreeBlock { logical, copies: vec![], bytes });
                block.copies.push(place);
            }
        }
        let mut reached = Vec::new();
        let roots = [fields.root, fields.chunk_root, fields.log_root];
        let mut next: VecDeque<u64> = roots.iter().map(|root| root.0).collect();
        while let Some(logical) = next.pop_front() {
            let Some(block) = found.remove(&logical) else { continue };
            next.extend(below(&block.bytes));
            reached.push(block);
        }
        Self { device, kind, superblock, blocks: reached }
    }

    /// Tree blocks that can be changed.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// The addresses that a block leads to: children, and the roots of trees.
fn below(bytes: &[u8]) -> Vec<u64> {
    let count = le32(bytes, 96) as usize;
    if bytes[100] > 0 {
        return (0..count).map(|slot| le64(bytes, HEADER_SIZE + slot * 33 + 17)).collect();
    }
    let is_root = |slot: &usize| bytes[HEADER_SIZE + slot * ITEM_HEADER_SIZE + 8] == 132;
    (0..count).filter(is_root).map(|slot| le64(bytes, item(bytes, slot).0 + 176)).collect()
}

/// Where an item's data begin, and their size, as far as they lie in the block.
fn item(bytes: &[u8], slot: usize) -> (usize, usize) {
    let header = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
    let start = (HEADER_SIZE + le32(bytes, header + 17) as usize).min(bytes.len());
    (start, (le32(bytes, header + 21) as usize).min(bytes.len() - start))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

/// The images that inputs choose from.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| seeds::images().into_iter().map(Base::new).collect())
}

/// The target.
///
/// # Panics
/// Where a judge finds something wrong.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let bases = bases();
    let base = &bases[input.below(bases.len())];
    let settings = input.u8();
    let device = Arc::new(changed(base, &mut input));
    judge(&device, settings);
}

/// What is read of an image without a finding.
fn judge(device: &Arc<MemoryDevice>, settings: u8) {
    let options = Options { data_checksums: settings & 1 != 0, ..Options::default() };
    let is_clean = match check(vec![Arc::clone(device) as _], &options) {
        Ok(report) => {
            report.findings.iter().for_each(|finding| drop(finding.to_string()));
            report.is_clean()
        }
        Err(_) => false,
    };
    let read = read_all(device, ["ro", "ro,rescue=all"][usize::from(settings >> 1 & 1)]);
    if is_clean && let Err(error) = &read {
        // Damage of data is found by checksums alone, and that a link's target can't be unpacked where data
        // are unpacked.
        let is_unseen = match error.part {
            Part::Data => true,
            Part::LinkTarget => !options.data_checksums,
            Part::Other => false,
        };
        assert!(is_unseen, "check finds nothing, and reading meets: {}", error.text);
    }
    if settings & 4 != 0 {
        let written = write_some(device);
        if is_clean {
            let report = check(vec![Arc::clone(device) as _], &Options::default());
            let complaints = match &report {
                Ok(report) if report.is_clean() => return,
                Ok(report) => report.findings.iter().map(|finding| format!("\n{finding}")).collect(),
                Err(error) => error.to_string(),
            };
            panic!("clean before and not after writing ({written:?}): {complaints}");
        }
    }
}

/// What reading met.
struct Met {
    text: String,
    part: Part,
}

/// What could not be read.
enum Part {
    Data,
    LinkTarget,
    Other,
}

impl From<FsError> for Met {
    fn from(error: FsError) -> Self {
        Met { text: error.to_string(), part: Part::Other }
    }
}

fn options(list: &str) -> Result<OpenOptions, Met> {
    let parsed = OpenOptions::parse(&format!("{list},cache=16M,dirty=8M,subvolid=5"));
    let parsed = parsed.map_err(|error| Met { text: error.to_string(), part: Part::Other })?;
    Ok(OpenOptions { background: false, ..parsed })
}

/// Opens an image, and reads every name, attribute and byte of it that it comes to within its bounds.
fn read_all(device: &Arc<MemoryDevice>, list_of_options: &str) -> Result<(), Met> {
    let filesystem = Filesystem::open_devices(vec![Arc::clone(device) as _], options(list_of_options)?)?;
    let mut first: Result<(), Met> = Ok(());
    let mut note = |result: Result<(), Met>| {
        if first.is_ok() {
            first = result;
        }
    };
    let mut seen = HashSet::new();
    let mut waiting = vec![filesystem.root()?];
    let mut names = 0;
    while let Some(directory) = waiting.pop() {
        if !seen.insert(directory.id()) || names > MAX_NAMES {
            continue;
        }
        let listed = match list(&filesystem, &directory) {
            Ok(listed) => listed,
            Err(error) => {
                note(Err(error.into()));
                continue;
            }
        };
        for (name, _) in listed {
            names += 1;
            if names > MAX_NAMES {
                break;
            }
            match filesystem.names().lookup(&Caller::superuser(), &directory, &name) {
                Ok(inode) => {
                    note(read_inode(&filesystem, &inode));
                    if inode.is_directory() {
                        waiting.push(inode);
                    }
                }
                Err(error) => note(Err(error.into())),
            }
        }
    }
    if list_of_options == "ro" {
        note(measuring::measure(&filesystem).map_err(|error| {
            let part = if error.is_of_data() { Part::Data } else { Part::Other };
            Met { text: format!("measuring: {error}"), part }
        }));
    }
    filesystem.close()?;
    first
}

fn read_inode(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<(), Met> {
    let attributes = filesystem.attributes().of(inode);
    for name in filesystem.attributes().extended_attributes(inode)? {
        filesystem.attributes().extended_attribute(&Caller::superuser(), inode, &name)?;
    }
    match attributes.file_type {
        FileType::SymbolicLink => {
            let target = filesystem.names().read_link(inode);
            target.map_err(|error| Met { text: error.to_string(), part: Part::LinkTarget })?;
        }
        FileType::Regular => {
            let _operation = inode.operation.read();
            let seeking = OpenCache::new();
            let mut at = 0;
            for _ in 0..8 {
                let Ok(start) = data::seek(filesystem, inode, &seeking, at, Seek::Data) else { break };
                let Ok(end) = data::seek(filesystem, inode, &seeking, start, Seek::Hole) else { break };
                assert!(start >= at && end > start, "data from {start} to {end}, from {at} on");
                at = end;
            }
            let mut bytes = [0; 8192];
            let (cache, size) = (OpenCache::new(), inode.size());
            for at in [0, 100_000, size / 2, size.saturating_sub(5000)] {
                data::read(filesystem, inode, &cache, at, &mut bytes)
                    .map_err(|error| Met { text: error.to_string(), part: Part::Data })?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Opens an image for writing, changes it a little, and closes it.
fn write_some(device: &Arc<MemoryDevice>) -> Result<(), String> {
    let text = |error: FsError| error.to_string();
    let opened =
        Filesystem::open_devices(vec![Arc::clone(device) as _], options("rw").map_err(|met| met.text)?);
    let files = Files::new(opened.map_err(text)?, Caller::superuser());
    let mut first = Ok(());
    let mut note = |result: Result<(), String>| {
        if first.is_ok() {
            first = result;
        }
    };
    note(files.create_dir("/fuzz").map_err(|error| error.to_string()));
    note(files.write("/fuzz/new", vec![7; 20_000]).map_err(|error| error.to_string()));
    note(files.rename("/a", "/fuzz/a").map_err(|error| error.to_string()));
    note(files.remove_file("/b/one").map_err(|error| error.to_string()));
    note(files.write("/compressed", b"short").map_err(|error| error.to_string()));
    note(files.snapshot("/b", "/fuzz/snapshot", false).map(drop).map_err(|error| error.to_string()));
    note(files.close().map_err(|error| error.to_string()));
    first
}

/// The image with the input's changes.
fn changed(base: &Base, input: &mut Input<'_>) -> MemoryDevice {
    let device = base.device.snapshot();
    let mut blocks: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let mut superblock = None;
    for _ in 0..MAX_CHANGES {
        if input.is_empty() {
            break;
        }
        let number = input.below(base.len() + 1);
        match number.checked_sub(1) {
            None => {
                let bytes = superblock.get_or_insert_with(|| base.superblock.clone());
                let at = 32 + usize::from(input.u16()) % (SUPERBLOCK_SIZE - 48);
                put(bytes, at, input);
            }
            Some(number) => {
                let bytes = blocks.entry(number).or_insert_with(|| base.blocks[number].bytes.clone());
                change(base, bytes, input);
            }
        }
    }
    let write = |place: u64, bytes: &[u8]| {
        let written = device.write_at(Physical(place), bytes);
        assert!(written.is_ok(), "{written:?}");
    };
    for (number, mut bytes) in blocks {
        seal(base.kind, &mut bytes);
        base.blocks[number].copies.iter().for_each(|copy| write(*copy, &bytes));
    }
    if let Some(mut bytes) = superblock {
        seal(base.kind, &mut bytes);
        write(SUPERBLOCK, &bytes);
    }
    debug_assert_eq!(device.length(), base.device.length());
    device
}

fn seal(kind: ChecksumKind, bytes: &mut [u8]) {
    let sum = checksum(kind, &bytes[32..]);
    bytes[..32].copy_from_slice(sum.as_field());
}

/// Numbers at which rules change their mind.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    5,
    8,
    255,
    256,
    257,
    4095,
    4096,
    16384,
    65536,
    131_072,
    131_073,
    1 << 31,
    (1 << 32) - 1,
    1 << 48,
    i64::MAX as u64,
    u64::MAX - 4095,
    u64::MAX,
];

/// Puts a number of 1, 2, 4 or 8 bytes at a place: a given one, one of those that matter, or a little more or
/// less.
fn put(bytes: &mut [u8], at: usize, input: &mut Input<'_>) {
    let how = input.u8();
    let width = (1 << (how & 3)).min(bytes.len() - at.min(bytes.len()));
    let mut field = [0; 8];
    field[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(field);
    let new = match how >> 2 & 3 {
        0 => input.u64(),
        1 => input.of(&NUMBERS),
        2 => old.wrapping_add(u64::from(input.u8())),
        _ => old.wrapping_sub(u64::from(input.u8())),
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

/// One change of a block.
fn change(base: &Base, bytes: &mut [u8], input: &mut Input<'_>) {
    let is_node = bytes[100] > 0;
    let entry = if is_node { 33 } else { ITEM_HEADER_SIZE };
    let count = (le32(bytes, 96) as usize).min((bytes.len() - HEADER_SIZE) / entry);
    match input.u8() % 8 {
        // The header.
        0 => put(bytes, input.of(&[48, 56, 80, 88, 96, 100]), input),
        // Anywhere.
        1 => {
            let at = 32 + usize::from(input.u16()) % (bytes.len() - 40);
            put(bytes, at, input);
        }
        // A key: object id, type, offset.
        2 if count > 0 => {
            let start = HEADER_SIZE + input.below(count) * entry;
            put(bytes, start + input.of(&[0, 8, 9]), input);
        }
        // A pointer leads to another block, its generation with it.
        3 if is_node && count > 0 => {
            let start = HEADER_SIZE + input.below(count) * entry;
            let other = &base.blocks[input.below(base.len())];
            bytes[start + 17..start + 25].copy_from_slice(&other.logical.to_le_bytes());
            bytes[start + 25..start + 33].copy_from_slice(&other.bytes[80..88]);
        }
        // Where an item's data lie.
        3 if count > 0 => {
            let start = HEADER_SIZE + input.below(count) * entry;
            put(bytes, start + input.of(&[17, 21]), input);
        }
        // An item becomes like another one, of any block.
        4 if count > 0 && !is_node => {
            let (to, room) = item(bytes, input.below(count));
            let other = &base.blocks[input.below(base.len())].bytes;
            if other[100] == 0 && le32(other, 96) > 0 {
                let (from, length) = item(other, input.below(le32(other, 96) as usize));
                let length = length.min(room);
                let data = other[from..from + length].to_vec();
                bytes[to..to + length].copy_from_slice(&data);
            }
        }
        // A field of an item: most begin at a multiple of eight, or behind a key.
        _ if count > 0 => {
            let (start, length) = if is_node {
                (HEADER_SIZE + input.below(count) * entry + 17, 16)
            } else {
                item(bytes, input.below(count))
            };
            if length >= 8 {
                put(bytes, start + input.below(length - 7), input);
            } else if length > 0 {
                bytes[start] = input.u8();
            }
        }
        _ => {}
    }
}

/// What the seeds are made of: the target's byte, an image, settings, and no change.
pub fn sound_inputs() -> Vec<Vec<u8>> {
    let choices = bases().len() as u8;
    (0..choices).flat_map(|base| [0, 4].map(|settings| vec![40, base, settings])).collect()
}

/// What an input changes, for a reader that looks for the cause of a finding: each run of changed bytes
/// with its block.
pub fn explain(input: &[u8]) -> Vec<String> {
    let mut input = Input(input);
    let bases = bases();
    let base = &bases[input.below(bases.len())];
    let mut lines = vec![format!("settings {:#x}", input.u8())];
    let device = changed(base, &mut input);
    let places = base.blocks.iter().map(|block| (block.copies[0], &block.bytes));
    for (place, old) in places.chain([(SUPERBLOCK, &base.superblock)]) {
        let Ok(new) = device.read_at(Physical(place), old.len()) else { continue };
        for at in (32..old.len()).filter(|at| old[*at] != new[*at]) {
            let slot = (at - 32).saturating_sub(HEADER_SIZE - 32) / ITEM_HEADER_SIZE;
            lines.push(format!(
                "block {} of tree {}, level {}: byte {at} (header of item {slot}, or data): {:#x} -> {:#x}",
                le64(old, 48),
                le64(old, 88),
                old[100],
                old[at],
                new[at]
            ));
        }
        // The superblock has no items, and a node has none.
        let has_items = new != *old && place != SUPERBLOCK && old[100] == 0;
        for slot in 0..if has_items { le32(old, 96) as usize } else { 0 } {
            let (start, length) = item(old, slot);
            if old[start..start + length] != new[start..start + length] {
                lines.push(format!("  in the data of item {slot}, which begin at {start}"));
            }
        }
    }
    lines
}
