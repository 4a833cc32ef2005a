//! The extent tree: looking up an extent, and writing pending references into it.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_format::extent::{ExtentFault, ExtentFlags, ExtentItem, Reference, TreeBlockInfo};
use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::{Damage, Generation, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_tree::{Readahead, Root, TreeError, Trees};

use super::delayed::{ExtentKind, Head};

/// What writing a head does to space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only references changed.
    None,
    /// The extent has an item now; its space is used.
    Allocated,
    /// The extent's item is gone; its space is free once this transaction is durable.
    Freed {
        /// The transaction that made the extent.
        born: Generation,
    },
    /// A fresh extent lost all its references before it got an item.
    Cancelled,
}

/// How far behind its hash the item of a reference is looked for before it is taken for new: as many others
/// of one extent had the same hash. (A reference that goes is looked for everywhere.)
const NEW_REFERENCE_SPAN: u64 = 256;

/// What becomes of items: their data, or none where they go.
pub(crate) type ItemEdits = BTreeMap<Key, Option<Vec<u8>>>;

/// The extent tree of one file system.
pub struct ExtentTree<'a> {
    /// The trees.
    pub trees: &'a Trees,
    /// Its root.
    pub root: &'a Arc<Root>,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Tree blocks get metadata items.
    pub skinny: bool,
}

/// An extent's item where it was found.
struct Found {
    key: Key,
    item: ExtentItem,
    /// The extent has references in items of their own.
    has_keyed: bool,
    place: Place,
}

impl ExtentTree<'_> {
    /// References and flags of an extent, as the tree has them; none where there is no item.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn references(&self, logical: Logical) -> Result<Option<(u64, ExtentFlags)>, TreeError> {
        let found = self.find(logical)?;
        Ok(found.map(|found| (found.item.header.references, found.item.header.flags)))
    }

    /// What becomes of the items of a head's extent, and of its space.
    ///
    /// # Errors
    /// What reading the tree met, or references that it should have and has not.
    pub(crate) fn resolve(
        &self,
        head: &Head,
        generation: Generation,
    ) -> Result<(ItemEdits, Effect), TreeError> {
        let mut edits = BTreeMap::new();
        if head.is_disputed {
            let key = Key::new(ObjectId(head.logical.0), ItemType::EXTENT_ITEM, head.length);
            return Err(Damage::new(ExtentFault::Disagreement, self.place(key)).into());
        }
        if head.fresh && head.net() == 0 {
            return Ok((edits, Effect::Cancelled));
        }
        let mut found = if head.fresh { self.new_item(head, generation)? } else { self.expect(head)? };
        if head.becomes_full {
            found.item.header.flags = found.item.header.flags.with(ExtentFlags::FULL_BACK_REFERENCE);
        }
        for (referrer, count) in head.changes.iter().filter(|(_, count)| *count > 0) {
            self.add(&mut found, &mut edits, head.logical, referrer.reference(saturate(count)))?;
        }
        for (referrer, count) in head.changes.iter().filter(|(_, count)| *count < 0) {
            self.drop_reference(&mut found, &mut edits, head.logical, referrer.reference(saturate(-count)))?;
        }
        if found.item.header.references == 0 {
            edits.insert(found.key, None);
            return Ok((edits, Effect::Freed { born: found.item.header.generation }));
        }
        edits.insert(found.key, Some(found.item.encode()));
        Ok((edits, if head.fresh { Effect::Allocated } else { Effect::None }))
    }

    /// The item of a new extent. Space that the disk wrongly calls free is told here, before any block is
    /// written over it.
    fn new_item(&self, head: &Head, generation: Generation) -> Result<Found, TreeError> {
        if let Some(found) = self.find(head.logical)? {
            return Err(Damage::new(FreeSpaceFault::InUse { start: head.logical }, found.place).into());
        }
        let (key, item) = match head.kind {
            ExtentKind::Data => {
                (ExtentItem::data_key(head.logical, head.length), ExtentItem::new_data(generation))
            }
            ExtentKind::TreeBlock { level, first_key, .. } => {
                let info = (!self.skinny).then_some(TreeBlockInfo { first_key, level });
                let flags = ExtentFlags::default();
                (
                    ExtentItem::tree_block_key(head.logical, level, self.node_size, self.skinny),
                    ExtentItem::new_tree_block(generation, flags, info),
                )
            }
        };
        Ok(Found { key, item, has_keyed: false, place: self.place(key) })
    }

    /// The item of an extent that must have one, and be what those who refer to it take it for.
    fn expect(&self, head: &Head) -> Result<Found, TreeError> {
        let found = self.find(head.logical)?.ok_or_else(|| {
            let key = Key::new(ObjectId(head.logical.0), ItemType::EXTENT_ITEM, head.length);
            TreeError::Missing { root: RootId::EXTENT_TREE, key }
        })?;
        let length = match found.key.item_type {
            ItemType::METADATA_ITEM => u64::from(self.node_size),
            _ => found.key.offset,
        };
        let is_data = found.item.header.flags.has(ExtentFlags::DATA);
        if length != head.length || is_data != head.kind.is_data() {
            return Err(Damage::new(ExtentFault::Disagreement, found.place).into());
        }
        Ok(found)
    }

    fn find(&self, logical: Logical) -> Result<Option<Found>, TreeError> {
        let first = Key::new(ObjectId(logical.0), ItemType::EXTENT_ITEM, 0);
        let Some(position) = self.trees.ceiling(self.root, &first)? else { return Ok(None) };
        let key = position.key();
        let is_extent = matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM);
        if key.objectid.0 != logical.0 || !is_extent {
            return Ok(None);
        }
        let place = position.place(self.root.id());
        let item =
            ExtentItem::decode(key.item_type, position.data()).map_err(|fault| Damage::new(fault, place))?;
        let inline: u64 = item.inline.iter().map(|reference| u64::from(reference.count())).sum();
        // References that are not inline are in items of their own.
        Ok(Some(Found { key, has_keyed: inline < item.header.references, item, place }))
    }

    /// Adds a reference: to the one that is there, inline where it fits, or as an item of its own.
    fn add(
        &self,
        found: &mut Found,
        edits: &mut ItemEdits,
        logical: Logical,
        reference: Reference,
    ) -> Result<(), TreeError> {
        let inline = found.item.position(&reference).is_ok()
            || (!found.has_keyed && found.item.has_room_for(&reference, self.node_size));
        let place = found.place;
        let refused = |fault: ExtentFault| Damage::new(fault, place);
        if inline {
            return found.item.add(reference).map_err(|fault| refused(fault).into());
        }
        let references = found.item.grown(&reference).map_err(refused)?;
        let (key, total) = match self.find_keyed(edits, logical, &reference, NEW_REFERENCE_SPAN)? {
            Some((key, present)) => (key, present.grown(&reference).map_err(refused)?),
            None => (self.vacant_key(edits, reference.key(logical))?, reference.count()),
        };
        edits.insert(key, Some(with_count(&reference, total).encode_item()));
        found.has_keyed = true;
        found.item.header.references = references;
        Ok(())
    }

    fn drop_reference(
        &self,
        found: &mut Found,
        edits: &mut ItemEdits,
        logical: Logical,
        reference: Reference,
    ) -> Result<(), TreeError> {
        let place = found.place;
        if found.item.position(&reference).is_ok() {
            return found.item.drop_reference(&reference).map_err(|fault| Damage::new(fault, place).into());
        }
        let missing = || Damage::new(ExtentFault::NoSuchReference { wanted: reference.clone() }, place);
        let (key, present) = self.find_keyed(edits, logical, &reference, u64::MAX)?.ok_or_else(missing)?;
        let left = present.count().checked_sub(reference.count()).ok_or_else(missing)?;
        edits.insert(key, (left > 0).then(|| with_count(&reference, left).encode_item()));
        let total = found.item.header.references.checked_sub(u64::from(reference.count()));
        found.item.header.references = total.ok_or_else(missing)?;
        Ok(())
    }

    /// The item of a reference of its own, with the edits so far, and what it holds; none where the extent
    /// has none such.
    ///
    /// An item lies at the hash of its reference or, where others had the same hash when it was made, behind
    /// them. Those may have gone since, so a missing item ends no search: all behind the hash are looked at,
    /// as Linux does.
    fn find_keyed(
        &self,
        edits: &ItemEdits,
        logical: Logical,
        reference: &Reference,
        span: u64,
    ) -> Result<Option<(Key, Reference)>, TreeError> {
        let first = reference.key(logical);
        let may_move = matches!(reference, Reference::ExtentData(_));
        let last = Key { offset: first.offset.saturating_add(if may_move { span } else { 0 }), ..first };
        let matches = |key: &Key, data: &[u8]| -> Result<Option<Reference>, TreeError> {
            let present = Reference::decode_item(key, data)
                .transpose()
                .map_err(|fault| Damage::new(fault, self.place(*key)))?;
            Ok(present.filter(|present| present.same_identity(reference)))
        };
        for (key, data) in edits.range(first..=last) {
            if let Some(data) = data
                && let Some(present) = matches(key, data)?
            {
                return Ok(Some((*key, present)));
            }
        }
        let mut cursor = self.trees.cursor(self.root, &first, Readahead::None)?;
        while let Some((key, data)) = cursor.item()
            && key <= last
        {
            if !edits.contains_key(&key)
                && let Some(present) = matches(&key, data)?
            {
                return Ok(Some((key, present)));
            }
            cursor.advance()?;
        }
        Ok(None)
    }

    /// Where the item of a new reference belongs: at its hash, or behind those that have the same.
    fn vacant_key(&self, edits: &ItemEdits, mut key: Key) -> Result<Key, TreeError> {
        loop {
            let taken = match edits.get(&key) {
                Some(edited) => edited.is_some(),
                None => self.trees.get(self.root, &key)?.is_some(),
            };
            match key.offset.checked_add(1).filter(|_| taken) {
                Some(offset) => key.offset = offset,
                None => return Ok(key),
            }
        }
    }

    fn place(&self, key: Key) -> Place {
        Place { tree: Some(self.root.id()), key: Some(key), ..Place::default() }
    }
}

/// Pending counts are bounded by the items that one transaction changes.
fn saturate(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The same reference with another count.
fn with_count(reference: &Reference, count: u32) -> Reference {
    match reference.clone() {
        Reference::ExtentData(data) => {
            Reference::ExtentData(vlinder_format::extent::DataReference { count, ..data })
        }
        Reference::SharedData { parent, .. } => Reference::SharedData { parent, count },
        other => other,
    }
}
