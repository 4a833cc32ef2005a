//! The extent tree: extents in order and apart, each in a block group of its content, with references that
//! add up.

use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::extent::{DataReference, ExtentFlags, ExtentItem, Reference};
use vlinder_format::{ItemType, Level, Logical, Place};

use crate::check_state::CheckState;
use crate::chunks::Layout;
use crate::extent_use::{Extent, Use, User};
use crate::finding::FindingKind;
use crate::item::Item;
use crate::ledger::Side;
use crate::ranges::Gathering;
use crate::walk::ItemVisitor;

/// The extent whose references are coming.
struct Current {
    extent: Extent,
    place: Place,
    /// As the item counts them.
    counted: u64,
    /// As they were found.
    found: u64,
    /// Some references could not be read.
    is_incomplete: bool,
}

impl Current {
    /// A reference of this extent.
    fn record(&mut self, context: &mut CheckState<'_>, reference: &Reference) {
        let user = match reference {
            Reference::ExtentOwner { .. } => return,
            Reference::TreeBlock { root } => User::Root(*root),
            Reference::SharedBlock { parent } => User::Parent(*parent),
            Reference::ExtentData(DataReference { root, inode, offset, .. }) => {
                User::File { root: *root, inode: *inode, offset: *offset }
            }
            Reference::SharedData { parent, .. } => User::Leaf(*parent),
        };
        let count = u64::from(reference.count());
        self.found = self.found.saturating_add(count);
        context.references.add(Side::Recorded, Use { extent: self.extent, user }, count);
    }
}

/// Where extents lie.
pub(crate) struct ExtentPlaces {
    /// Data extents.
    pub(crate) data: Gathering,
    /// All that lie in a chunk of their content.
    pub(crate) used: Gathering,
}

impl ExtentPlaces {
    pub(crate) fn new(context: &CheckState<'_>) -> Self {
        Self { data: context.gathering(), used: context.gathering() }
    }
}

/// What the extent tree is read for.
pub(crate) struct ExtentTree<'a> {
    layout: &'a mut Layout,
    pub(crate) gathered: Option<ExtentPlaces>,
    /// Bytes of tree blocks.
    pub(crate) block_bytes: u64,
    /// Data extents.
    pub(crate) data_extents: u64,
    /// Bytes of them.
    pub(crate) data_bytes: u64,
    current: Option<Current>,
    /// Where the extent before ends.
    end: Logical,
}

impl<'a> ExtentTree<'a> {
    pub(crate) fn new(layout: &'a mut Layout, gathered: Option<ExtentPlaces>) -> Self {
        Self {
            layout,
            gathered,
            block_bytes: 0,
            data_extents: 0,
            data_bytes: 0,
            current: None,
            end: Logical(0),
        }
    }

    /// The extent before is complete.
    pub(crate) fn finish(&mut self, context: &mut CheckState<'_>) {
        let Some(current) = self.current.take() else { return };
        if current.found != current.counted && !current.is_incomplete {
            let (found, expected) = (current.counted, current.found);
            context.find(FindingKind::ExtentCount { found, expected }, current.place);
        }
    }

    fn begin(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        self.finish(context);
        let Ok(decoded) = ExtentItem::decode(item.key.item_type, item.data) else { return };
        let logical = Logical(item.key.objectid.0);
        let is_block = decoded.header.flags.has(ExtentFlags::TREE_BLOCK);
        let level = match (item.key.item_type, decoded.tree_block) {
            (ItemType::METADATA_ITEM, _) => u8::try_from(item.key.offset).ok().map(Level),
            (_, info) => info.map(|info| info.level),
        };
        let level = level.filter(|_| is_block);
        let is_skinny = item.key.item_type == ItemType::METADATA_ITEM;
        let length = if is_skinny { u64::from(context.judge.rules.node_size) } else { item.key.offset };
        let extent = Extent { logical, length, level };
        if logical < self.end {
            context.find(FindingKind::ExtentOverlap { previous_end: self.end }, item.place());
        }
        self.end = self.end.max(Logical(logical.0.saturating_add(length)));
        self.place_in_chunk(context, &extent, item);
        if is_block {
            context.note_block(logical, &decoded.header);
            let made = Use { extent, user: User::Made(decoded.header.generation) };
            context.references.add(Side::Recorded, made, 1);
            self.block_bytes = self.block_bytes.saturating_add(length);
        } else {
            self.data_extents = self.data_extents.saturating_add(1);
            self.data_bytes = self.data_bytes.saturating_add(length);
            let owner = decoded.inline.iter().find_map(|reference| match reference {
                Reference::ExtentOwner { root } => Some(*root),
                _ => None,
            });
            if let (Some(owner), Some(owners), Some(_)) = (owner, &mut context.owners, &self.gathered) {
                owners.add(owner, decoded.header.generation, length);
            }
            if let Some(gathered) = &mut self.gathered {
                gathered.data.add(logical.0, logical.0.saturating_add(length));
            }
        }
        let mut current = Current {
            extent,
            place: item.place(),
            counted: decoded.header.references,
            found: 0,
            is_incomplete: false,
        };
        for reference in &decoded.inline {
            current.record(context, reference);
        }
        self.current = Some(current);
    }

    /// An extent's item breaks a rule: its key says where the extent lies, and nothing says which trees use
    /// the extent.
    fn pass_over(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        self.finish(context);
        let (logical, is_skinny) =
            (Logical(item.key.objectid.0), item.key.item_type == ItemType::METADATA_ITEM);
        let length = if is_skinny { u64::from(context.judge.rules.node_size) } else { item.key.offset };
        let sector = u64::from(context.judge.rules.sector_size.max(1));
        let Some(end) = logical.0.checked_add(length) else { return };
        let Some((start, found)) = self.layout.chunk_of(logical) else { return };
        let is_possible = logical.0.is_multiple_of(sector)
            && end.is_multiple_of(sector)
            && end <= start.0.saturating_add(found.chunk.length);
        if !is_possible {
            return;
        }
        found.used = found.used.saturating_add(length);
        let is_data = !is_skinny && !found.chunk.flags.has(BlockGroupFlags::METADATA);
        self.end = self.end.max(Logical(end));
        if let Some(gathered) = &mut self.gathered {
            gathered.used.add(logical.0, end);
            if is_data {
                gathered.data.add(logical.0, end);
            }
        }
    }

    /// Adds an extent to the chunk that it lies in. (The group's item may come later, so the chunk stands for
    /// it.)
    fn place_in_chunk(&mut self, context: &mut CheckState<'_>, extent: &Extent, item: &Item<'_>) {
        let (logical, length) = (extent.logical, extent.length);
        let content = if extent.level.is_some() {
            BlockGroupFlags(BlockGroupFlags::METADATA.0 | BlockGroupFlags::SYSTEM.0)
        } else {
            BlockGroupFlags::DATA
        };
        let end = logical.0.saturating_add(length);
        match self.layout.chunk_of(logical) {
            Some((start, found))
                if found.chunk.flags.0 & content.0 != 0
                    && end <= start.0.saturating_add(found.chunk.length) =>
            {
                found.used = found.used.saturating_add(length);
                if let Some(gathered) = &mut self.gathered {
                    gathered.used.add(logical.0, end);
                }
            }
            _ => context.find(FindingKind::ExtentPlace { logical }, item.place()),
        }
    }
}

impl ItemVisitor for ExtentTree<'_> {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        match item.key.item_type {
            ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => self.begin(context, item),
            ItemType::BLOCK_GROUP_ITEM => self.layout.add_group(item),
            _ => {
                let logical = Logical(item.key.objectid.0);
                let current = self.current.as_mut().filter(|current| current.extent.logical == logical);
                match (Reference::decode_item(&item.key, item.data), current) {
                    (Some(Ok(reference)), Some(current)) => current.record(context, &reference),
                    (Some(_), _) if context.faulty_extents.has_object(item.key.objectid) => {}
                    (Some(_), _) => context.find(FindingKind::ReferenceWithoutExtent {}, item.place()),
                    (None, _) => {}
                }
            }
        }
    }

    fn gap(&mut self) {
        if let Some(current) = &mut self.current {
            current.is_incomplete = true;
        }
    }

    fn faulty(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        match item.key.item_type {
            ItemType::BLOCK_GROUP_ITEM => return self.layout.pass_over_group(item),
            ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => self.pass_over(context, item),
            _ => {
                let is_its = |current: &&mut Current| current.extent.logical.0 == item.key.objectid.0;
                if let Some(current) = self.current.as_mut().filter(is_its) {
                    current.is_incomplete = true;
                }
            }
        }
        context.faulty_extents.add(item.key);
    }
}

/// Takes block groups from the tree that has them.
pub(crate) struct GroupItems<'a>(pub(crate) &'a mut Layout);

impl ItemVisitor for GroupItems<'_> {
    fn item(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        if item.key.item_type == ItemType::BLOCK_GROUP_ITEM {
            self.0.add_group(item);
        }
    }

    fn faulty(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        if item.key.item_type == ItemType::BLOCK_GROUP_ITEM {
            self.0.pass_over_group(item);
        }
    }
}
