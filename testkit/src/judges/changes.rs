//! What is changed: one byte of a structure, or the same byte of two fields that say the same.

use std::collections::BTreeMap;

use vlinder_base::random::{Random, SeededRandom};
use vlinder_codec::checksum::checksum;
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::superblock::{SUPERBLOCK_SIZE, SuperblockMirror};
use vlinder_format::{Logical, Physical};

use crate::hostile::lies::{self, StructurePlace, Target};
use crate::mutator::Mutator;

/// Bytes at the head of every block and of the superblock that hold the checksum.
const CHECKSUM_BYTES: usize = 32;
/// A value that is as small as this stands in many fields that have nothing to do with each other.
const SMALL_VALUE: u64 = 2;

/// A byte in an image, by the structure that it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Byte {
    /// The address of a tree block; none for the superblock.
    block: Option<Logical>,
    offset: usize,
}

/// Two fields of the same width that hold the same, by their first bytes.
#[derive(Clone, Copy, Debug)]
struct Doubled {
    one: Byte,
    other: Byte,
    width: usize,
}

/// Two kinds of fields, by their numbers.
type Kinds = (usize, usize);

/// A change to an image.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which fields were changed, and how.
    pub name: String,
    /// What is on the device then.
    pub writes: Vec<(Physical, Vec<u8>)>,
}

/// An image, and what may be changed in it.
pub struct ChangeableImage {
    mutator: Mutator,
    /// Fields by their kind.
    kinds: Vec<(String, Vec<Target>)>,
    /// Kinds of fields that hold the same somewhere; and where.
    doubled: Vec<(Kinds, Vec<Doubled>)>,
    blocks: Vec<Logical>,
}

impl ChangeableImage {
    /// Of an image that both judges call clean.
    #[must_use]
    pub fn new(image: &MemoryDevice) -> Self {
        let mutator = Mutator::new(image);
        let kinds: Vec<(String, Vec<Target>)> = lies::targets_by_kind(&mutator).into_iter().collect();
        let doubled = doubled(&kinds);
        let blocks = lies::all_blocks(&mutator);
        Self { mutator, kinds, doubled, blocks }
    }

    /// How many kinds of fields there are, and how many pairs of kinds that somewhere hold the same.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.kinds.len(), self.doubled.len())
    }

    /// The image.
    #[must_use]
    pub fn device(&self) -> MemoryDevice {
        self.mutator.device().snapshot()
    }

    /// How many bits the kinds of fields have.
    #[must_use]
    pub fn bits(&self) -> usize {
        self.kinds.iter().map(|(_, targets)| bits(&targets[0])).sum()
    }

    /// One bit is changed: of all bits of all kinds of fields this one, in a field that the seed chooses.
    ///
    /// # Panics
    /// Where there is no such bit.
    #[must_use]
    pub fn one_bit(&self, number: usize, seed: u64) -> Change {
        let mut rest = number;
        let of_kind = |(_, targets): &&(String, Vec<Target>)| {
            let count = bits(&targets[0]);
            let is_within = rest < count;
            rest -= if is_within { 0 } else { count };
            is_within
        };
        let (name, targets) = self.kinds.iter().find(of_kind).expect("a bit that there is");
        let (within, flip) = (rest / 8, 1 << (rest % 8));
        let fits = targets.iter().filter(|target| within < target.truth().len()).collect::<Vec<_>>();
        let target = pick(&SeededRandom::new(seed.wrapping_add(number as u64)), &fits);
        let name = format!("{name} byte {within} ^ {flip:#04x}");
        Change { name, writes: self.writes(&[byte_of(target, within)], flip) }
    }

    /// One byte is changed: of a field of any kind, or, each third time, any byte in use.
    #[must_use]
    pub fn one_byte(&self, seed: u64) -> Change {
        let random = SeededRandom::new(seed);
        let (name, byte) = if random.next_u64().is_multiple_of(3) {
            let (name, byte) = self.any_byte(&random);
            (name, byte)
        } else {
            let (name, targets) = pick(&random, &self.kinds);
            let target = pick(&random, targets);
            let within = below(&random, target.truth().len());
            (format!("{name} byte {within}"), byte_of(target, within))
        };
        let flip = flip(&random);
        Change { name: format!("{name} ^ {flip:#04x}"), writes: self.writes(&[byte], flip) }
    }

    /// The same byte is changed in two fields that hold the same.
    #[must_use]
    pub fn two_places(&self, seed: u64) -> Change {
        let random = SeededRandom::new(seed);
        let ((left, right), pairs) = pick(&random, &self.doubled);
        let Doubled { one, other, width } = *pick(&random, pairs);
        let within = below(&random, width);
        let moved = |byte: Byte| Byte { offset: byte.offset + within, ..byte };
        let flip = flip(&random);
        let (left, right) = (&self.kinds[*left].0, &self.kinds[*right].0);
        Change {
            name: format!("{left} and {right} byte {within} ^ {flip:#04x}"),
            writes: self.writes(&[moved(one), moved(other)], flip),
        }
    }

    /// A byte of a header, a key or an item.
    fn any_byte(&self, random: &SeededRandom) -> (String, Byte) {
        let block = self.mutator.block(*pick(random, &self.blocks));
        let owner = block.owner();
        let (logical, count) = (Some(block.logical()), block.len());
        let slot = below(random, count + 1);
        if slot == count {
            let offset = CHECKSUM_BYTES + below(random, HEADER_SIZE - CHECKSUM_BYTES);
            return (format!("tree {owner} header byte {offset}"), Byte { block: logical, offset });
        }
        if !block.is_leaf() {
            let within = below(random, 33);
            let name = format!("tree {owner} pointer byte {within}");
            return (name, Byte { block: logical, offset: HEADER_SIZE + 33 * slot + within });
        }
        let data = block.data(slot);
        let start = data.as_ptr() as usize - block.bytes().as_ptr() as usize;
        let within = below(random, ITEM_HEADER_SIZE + data.len());
        let item_type = block.key(slot).item_type;
        let offset = match within.checked_sub(ITEM_HEADER_SIZE) {
            None => HEADER_SIZE + ITEM_HEADER_SIZE * slot + within,
            Some(within) => start + within,
        };
        (format!("tree {owner} {item_type} raw byte {within}"), Byte { block: logical, offset })
    }

    /// What has to be written to change these bytes, checksums and all, in every copy.
    fn writes(&self, bytes: &[Byte], flip: u8) -> Vec<(Physical, Vec<u8>)> {
        let mut offsets: BTreeMap<Option<Logical>, Vec<usize>> = BTreeMap::new();
        for byte in bytes {
            offsets.entry(byte.block).or_default().push(byte.offset);
        }
        let mut writes = Vec::new();
        for (block, offsets) in offsets {
            for (physical, mut bytes) in self.copies(block) {
                offsets.iter().for_each(|offset| bytes[*offset] ^= flip);
                let sum = checksum(self.mutator.checksum_kind(), &bytes[CHECKSUM_BYTES..]);
                bytes[..CHECKSUM_BYTES].copy_from_slice(sum.as_field());
                writes.push((physical, bytes));
            }
        }
        writes
    }

    /// All copies of a block, or of the superblock.
    fn copies(&self, block: Option<Logical>) -> Vec<(Physical, Vec<u8>)> {
        let device = self.mutator.device();
        let read = |place: Physical, length: usize| (place, device.read_at(place, length).unwrap());
        match block {
            Some(logical) => {
                let length = self.mutator.block(logical).bytes().len();
                let copies = self.mutator.copies(logical, length as u64);
                copies.into_iter().map(|place| read(place, length)).collect()
            }
            None => {
                let fits = |mirror: &SuperblockMirror| mirror.fits(vlinder_device::Device::length(&*device));
                let mirrors = SuperblockMirror::ALL.into_iter().filter(fits);
                mirrors.map(|mirror| read(mirror.offset(), SUPERBLOCK_SIZE)).collect()
            }
        }
    }
}

fn bits(target: &Target) -> usize {
    target.truth().len() * 8
}

fn byte_of(target: &Target, within: usize) -> Byte {
    let (place, start) = target.site();
    match place {
        StructurePlace::Superblock => Byte { block: None, offset: start + within },
        StructurePlace::Block(logical, from) => Byte { block: Some(logical), offset: from + start + within },
    }
}

/// The fields that hold the same, by the kinds of both.
fn doubled(kinds: &[(String, Vec<Target>)]) -> Vec<(Kinds, Vec<Doubled>)> {
    let mut by_value: BTreeMap<&[u8], Vec<(usize, Byte)>> = BTreeMap::new();
    for (number, (_, targets)) in kinds.iter().enumerate() {
        for target in targets.iter().filter(|target| tells_something(target.truth())) {
            by_value.entry(target.truth()).or_default().push((number, byte_of(target, 0)));
        }
    }
    let mut pairs: BTreeMap<Kinds, Vec<Doubled>> = BTreeMap::new();
    for (value, fields) in by_value {
        for (at, (kind, byte)) in fields.iter().enumerate() {
            // Of a value that is everywhere some pairs will do.
            for (other_kind, other) in fields.iter().skip(at + 1).take(64) {
                let known = pairs.entry((*kind, *other_kind)).or_default();
                if known.len() < 64 {
                    known.push(Doubled { one: *byte, other: *other, width: value.len() });
                }
            }
        }
    }
    pairs.into_iter().collect()
}

/// Whether two fields with this value may have it of the same cause.
fn tells_something(value: &[u8]) -> bool {
    let mut number = [0; 8];
    let front = value.len().min(8);
    number[..front].copy_from_slice(&value[..front]);
    value.len() >= 4 && u64::from_le_bytes(number) >= SMALL_VALUE
}

fn flip(random: &SeededRandom) -> u8 {
    match random.next_u64() % 5 {
        0 => 1,
        1 => 0x10,
        2 => 0x80,
        3 => 0xff,
        _ => u8::try_from(1 + random.next_u64() % 255).unwrap_or(1),
    }
}

fn below(random: &SeededRandom, bound: usize) -> usize {
    usize::try_from(random.next_u64() % bound.max(1) as u64).unwrap_or(0)
}

fn pick<'a, T>(random: &SeededRandom, list: &'a [T]) -> &'a T {
    &list[below(random, list.len())]
}
