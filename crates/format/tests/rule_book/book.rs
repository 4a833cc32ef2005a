//! What is proven of which rule, and how a leaf proves it.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules};
use vlinder_format::features::{CompatFeatures, CompatReadOnlyFeatures, Features, IncompatFeatures};
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Damage, Fault, Generation, Key, Level, Logical, Place, RootId, Uuid};

/// The superblock's generation; items may be one newer.
pub const NOW: Generation = Generation(100);
/// Where every block of these cases lies.
pub const AT: Logical = Logical(1 << 20);

/// The cases that were proven: the faults of each rule.
#[derive(Default)]
pub struct Book {
    proven: BTreeMap<&'static str, BTreeSet<String>>,
    cases: usize,
}

/// A leaf to be judged.
#[derive(Clone)]
pub struct Leaf {
    pub owner: RootId,
    pub rules: LeafRules,
    pub items: Vec<(Key, Vec<u8>)>,
}

impl Leaf {
    pub fn new(owner: RootId, items: Vec<(Key, Vec<u8>)>) -> Self {
        let rules = LeafRules {
            sector_size: 4096,
            node_size: 16384,
            checksum_size: 4,
            generation: NOW,
            features: Features {
                compat: CompatFeatures::NONE,
                compat_read_only: CompatReadOnlyFeatures::NONE,
                incompat: IncompatFeatures::SKINNY_METADATA,
            },
            writable: true,
        };
        Self { owner, rules, items }
    }

    /// Writes a number into an item's data.
    pub fn set_u64(&mut self, slot: usize, at: usize, value: u64) {
        self.items[slot].1[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub fn set_u32(&mut self, slot: usize, at: usize, value: u32) {
        self.items[slot].1[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn judge(&self) -> Result<(), Damage> {
        let identity = BlockIdentity {
            logical: AT,
            generation: NOW,
            owner: self.owner,
            level: Level::LEAF,
            fsid: Uuid([1; 16]),
            chunk_tree_uuid: Uuid([2; 16]),
        };
        let mut block = Block::new(self.rules.node_size, &identity);
        let items: Vec<(Key, &[u8])> = self.items.iter().map(|(key, data)| (*key, data.as_slice())).collect();
        block.items_mut().insert(0, &items);
        block.set_flag(BLOCK_FLAG_WRITTEN, true);
        let sizes = BlockRules { node_size: self.rules.node_size, sector_size: self.rules.sector_size };
        let block = Block::parse(block.bytes().into(), &sizes).expect("the block itself is sound");
        validate_leaf(&block, &self.rules).map_err(|fault| fault.into_damage(Some(self.owner), AT))
    }
}

impl Book {
    /// A leaf that is sound passes; after the change the item at `slot` is refused, and no other.
    #[track_caller]
    pub fn leaf(
        &mut self,
        rule: &'static str,
        sound: &Leaf,
        slot: usize,
        fault: impl Into<Fault>,
        change: impl FnOnce(&mut Leaf),
    ) {
        let fault = fault.into();
        assert_eq!(sound.judge(), Ok(()), "rule {rule}: the sound leaf");
        let mut broken = sound.clone();
        change(&mut broken);
        let place = Place {
            tree: Some(broken.owner),
            block: Some(AT),
            slot: Some(u32::try_from(slot).unwrap()),
            key: Some(broken.items[slot].0),
        };
        assert_eq!(broken.judge(), Err(Damage::new(fault.clone(), place)), "rule {rule}: the broken leaf");
        self.note(rule, &fault);
    }

    /// A leaf that might be taken for broken passes too.
    #[track_caller]
    pub fn passes(&mut self, rule: &'static str, sound: &Leaf, change: impl FnOnce(&mut Leaf)) {
        let mut odd = sound.clone();
        change(&mut odd);
        assert_eq!(odd.judge(), Ok(()), "rule {rule}: odd and sound");
        self.cases += 1;
    }

    /// A case was proven elsewhere in the same way.
    pub fn note(&mut self, rule: &'static str, fault: &Fault) {
        self.proven.entry(rule).or_default().insert(name_of(fault));
        self.cases += 1;
    }

    pub fn rules(&self) -> &BTreeMap<&'static str, BTreeSet<String>> {
        &self.proven
    }

    pub fn cases(&self) -> usize {
        self.cases
    }
}

/// `InodeFault::Size` for `Inode(Size { found: 7 })`.
fn name_of(fault: &Fault) -> String {
    let text = format!("{fault:?}");
    let path: Vec<&str> = text.split(['{', ' ']).next().unwrap().trim_end_matches(')').split('(').collect();
    let [.., family, variant] = path[..] else { panic!("{text} has no family") };
    format!("{family}Fault::{variant}")
}
