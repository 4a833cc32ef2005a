//! Lies: each field that a decoder lists, in each kind of structure that an image holds, with each value that
//! arithmetic, loops and reservations fear. Checksums are made right, so that nothing but the lie is wrong.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::fields::{self, PlacedField};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeItem;
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock};
use vlinder_format::{Block, ItemType, Key, Logical, ObjectId, RootId};

use super::{blocks, blocks_below};
use crate::mutator::Mutator;

/// What a field is made to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// 0.
    Zero,
    /// 1.
    One,
    /// All bits.
    Largest,
    /// All bits but the lowest twelve, which passes rules of alignment.
    LargestAligned,
    /// The highest bit alone.
    Highest,
    /// One less than the truth.
    Less,
    /// One more than the truth.
    More,
    /// The object id of the item's own key; in a header, the block's own address.
    Own,
    /// The address of the block that holds it.
    OwnBlock,
    /// The directory or tree that holds the object.
    Parent,
    /// What the same field says in the next structure of its kind.
    Sibling,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Zero,
        Self::One,
        Self::Largest,
        Self::LargestAligned,
        Self::Highest,
        Self::Less,
        Self::More,
        Self::Own,
        Self::OwnBlock,
        Self::Parent,
        Self::Sibling,
    ];
}

/// Where a structure lies.
#[derive(Clone, Copy, Debug)]
pub enum StructurePlace {
    /// The superblock.
    Superblock,
    /// In the block at this address, from this byte on.
    Block(Logical, usize),
}

/// A field of one structure of an image.
#[derive(Clone, Debug)]
pub struct Target {
    /// Tree, kind of item and field: the same for all structures of a kind.
    pub name: String,
    place: StructurePlace,
    start: usize,
    truth: Vec<u8>,
    sibling: Vec<u8>,
    own: u64,
    parent: u64,
}

/// One field of each kind that the image holds. The seed chooses which structure of a kind lies.
#[must_use]
pub fn targets(mutator: &Mutator, seed: u64) -> Vec<Target> {
    let choose = |kind: Vec<Target>| {
        let chosen = usize::try_from(seed % kind.len() as u64).unwrap_or(0);
        let sibling = kind[(chosen + 1) % kind.len()].truth.clone();
        Target { sibling, ..kind[chosen].clone() }
    };
    targets_by_kind(mutator).into_values().map(choose).collect()
}

/// All fields of an image by their kinds. The values of siblings are not set.
#[must_use]
pub fn targets_by_kind(mutator: &Mutator) -> BTreeMap<String, Vec<Target>> {
    let mut kinds: BTreeMap<String, Vec<Target>> = BTreeMap::new();
    let bytes = mutator.superblock.encode();
    for field in Superblock::fields(&bytes).iter().filter(|field| !is_mended(field)) {
        let name = format!("superblock/{}.{}", field.structure, field.name);
        let target = new_target(name, StructurePlace::Superblock, field, &bytes, (1, 5));
        kinds.entry(target.name.clone()).or_default().push(target);
    }
    for tree in trees(mutator) {
        for logical in blocks(mutator, tree) {
            for target in block_targets(&mutator.block(logical), tree) {
                kinds.entry(target.name.clone()).or_default().push(target);
            }
        }
    }
    for logical in log_blocks(mutator) {
        for target in block_targets(&mutator.block(logical), RootId::TREE_LOG) {
            kinds.entry(target.name.clone()).or_default().push(target);
        }
    }
    kinds
}

/// All tree blocks, those of logs among them; each once.
#[must_use]
pub fn all_blocks(mutator: &Mutator) -> Vec<Logical> {
    let of_trees = trees(mutator).into_iter().flat_map(|tree| blocks(mutator, tree));
    let all: BTreeSet<Logical> = of_trees.chain(log_blocks(mutator)).collect();
    all.into_iter().collect()
}

/// The trees that the superblock and the root tree name.
fn trees(mutator: &Mutator) -> Vec<RootId> {
    let mut trees = vec![RootId::ROOT_TREE, RootId::CHUNK_TREE];
    let roots = mutator.all(RootId::ROOT_TREE, |key, _| key.item_type == ItemType::ROOT_ITEM);
    trees.extend(roots.iter().map(|root| RootId(root.key.objectid.0)));
    trees.dedup();
    trees
}

/// The blocks of the tree of logs and of the logs, if there are any.
pub(super) fn log_blocks(mutator: &Mutator) -> Vec<Logical> {
    if mutator.superblock.log_root == Logical(0) {
        return Vec::new();
    }
    let mut found = blocks_below(mutator, mutator.superblock.log_root);
    for logical in found.clone() {
        let block = mutator.block(logical);
        for slot in (0..block.len()).filter(|_| block.is_leaf()) {
            if let Ok(root) = RootItem::decode(block.data(slot)) {
                found.extend(blocks_below(mutator, root.address));
            }
        }
    }
    found
}

/// What is mended with every change: a lie about it would be undone.
fn is_mended(field: &PlacedField) -> bool {
    matches!(
        (field.structure, &*field.name),
        ("Superblock", "checksum" | "location") | ("BlockHeader", "checksum")
    )
}

fn new_target(
    name: String,
    place: StructurePlace,
    field: &PlacedField,
    bytes: &[u8],
    (own, parent): (u64, u64),
) -> Target {
    let truth = bytes[field.start..field.start + field.width].to_vec();
    Target { name, place, start: field.start, sibling: truth.clone(), truth, own, parent }
}

/// The fields of a block's header and entries, and those of its items.
fn block_targets(block: &Block, tree: RootId) -> Vec<Target> {
    let class = match tree {
        RootId::TREE_LOG => "log".to_owned(),
        tree if tree.is_subvolume() => "subvolume".to_owned(),
        tree => tree.to_string(),
    };
    let (logical, bytes) = (block.logical(), block.bytes());
    let height = if block.is_leaf() { "leaf" } else { "node" };
    let mut found = Vec::new();
    for field in block.header().fields().iter().filter(|field| !is_mended(field)) {
        let item = if field.start < HEADER_SIZE || !block.is_leaf() {
            height.to_owned()
        } else {
            kind_of(block, (field.start - HEADER_SIZE) / ITEM_HEADER_SIZE)
        };
        let name = format!("{class}/{item}/{}.{}", field.structure, field.name);
        found.push(new_target(name, StructurePlace::Block(logical, 0), field, bytes, (logical.0, tree.0)));
    }
    for slot in (0..block.len()).filter(|_| block.is_leaf()) {
        let (key, data) = (block.key(slot), block.data(slot));
        let start = data.as_ptr() as usize - bytes.as_ptr() as usize;
        let parent = match key.item_type {
            ItemType::INODE_REF => key.offset,
            _ => tree.0,
        };
        for field in fields::of_item(&key, data, 4) {
            let name = format!("{class}/{}/{}.{}", kind_of(block, slot), field.structure, field.name);
            let place = StructurePlace::Block(logical, start);
            found.push(new_target(name, place, &field, data, (key.objectid.0, parent)));
        }
    }
    found
}

/// The type of an item, and what makes its decoder take another way.
fn kind_of(block: &Block, slot: usize) -> String {
    let (key, data) = (block.key(slot), block.data(slot));
    let more = match key.item_type {
        ItemType::INODE_ITEM => InodeItem::decode(data).map(|inode| format!("{:?}", inode.file_type())).ok(),
        ItemType::EXTENT_DATA => FileExtent::decode(data).ok().map(|extent| {
            let kind = ["inline", "regular", "preallocated"].get(usize::from(data[20])).unwrap_or(&"odd");
            format!("{kind} {}{}", extent.compression, if extent.is_hole() { " hole" } else { "" })
        }),
        ItemType::ROOT_ITEM if ObjectId::FIRST_FREE <= key.objectid => Some("subvolume".to_owned()),
        _ => None,
    };
    let item_type = Key { objectid: ObjectId(0), ..key }.item_type;
    more.map_or(item_type.to_string(), |more| format!("{item_type} {more}"))
}

impl Target {
    /// The structure that the field is of, and where the field begins in it.
    #[must_use]
    pub fn site(&self) -> (StructurePlace, usize) {
        (self.place, self.start)
    }

    /// What the field says.
    #[must_use]
    pub fn truth(&self) -> &[u8] {
        &self.truth
    }

    /// What the field says after a lie; none where that is the truth.
    #[must_use]
    pub fn value(&self, lie: Lie) -> Option<Vec<u8>> {
        let width = self.truth.len();
        let number = |value: u64| {
            let mut bytes = value.to_le_bytes().to_vec();
            bytes.resize(width.max(8), 0);
            bytes.truncate(width);
            bytes
        };
        let moved = |by: u64| {
            let mut low = [0; 8];
            let front = width.min(8);
            low[..front].copy_from_slice(&self.truth[..front]);
            let mut bytes = self.truth.clone();
            bytes[..front].copy_from_slice(&u64::from_le_bytes(low).wrapping_add(by).to_le_bytes()[..front]);
            bytes
        };
        let told = match lie {
            Lie::Zero => number(0),
            Lie::One => number(1),
            Lie::Largest => vec![0xff; width],
            Lie::LargestAligned => {
                let mut bytes = vec![0xff; width];
                bytes[0] = 0;
                if let Some(second) = bytes.get_mut(1) {
                    *second = 0xf0;
                }
                bytes
            }
            Lie::Highest => {
                let mut bytes = vec![0; width];
                bytes[width - 1] = 0x80;
                bytes
            }
            Lie::Less => moved(u64::MAX),
            Lie::More => moved(1),
            Lie::Own => number(self.own),
            Lie::OwnBlock => match self.place {
                StructurePlace::Superblock => number(64 << 10),
                StructurePlace::Block(logical, _) => number(logical.0),
            },
            Lie::Parent => number(self.parent),
            Lie::Sibling if self.sibling.len() == width => self.sibling.clone(),
            Lie::Sibling => return None,
        };
        (told != self.truth).then_some(told)
    }

    /// Tells a lie; false where it would be the truth, or another lie's value.
    pub fn tell(&self, mutator: &Mutator, lie: Lie) -> bool {
        let Some(told) = self.value(lie) else { return false };
        let earlier = Lie::ALL.into_iter().take_while(|other| *other != lie);
        if earlier.filter_map(|other| self.value(other)).any(|other| other == told) {
            return false;
        }
        match self.place {
            StructurePlace::Superblock => mutator.change_superblock(|superblock| {
                let mut bytes: [u8; SUPERBLOCK_SIZE] = superblock.encode();
                bytes[self.start..self.start + told.len()].copy_from_slice(&told);
                *superblock = Superblock::decode(&bytes).unwrap();
            }),
            StructurePlace::Block(logical, start) => mutator.change_bytes(logical, |bytes| {
                let start = start + self.start;
                bytes[start..start + told.len()].copy_from_slice(&told);
            }),
        }
        true
    }
}
