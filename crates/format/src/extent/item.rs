//! Extent and metadata items: the header, and the references that lie inline.

use super::encoding::{InlineReferences, lay_out_inline};
use super::fault::ExtentFault;
use super::flags::ExtentFlags;
use super::reference::Reference;
use crate::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::record;
use crate::types::{Generation, Level, Logical, ObjectId};

record! {
    /// The head of every extent and metadata item: 24 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExtentHeader in RawExtentHeader, 24 bytes {
        /// All references, inline or not; a data reference counts as often as it says.
        references: u64,
        /// The transaction that allocated the extent.
        generation: Generation,
        /// Data or tree block.
        flags: ExtentFlags,
    }
}

record! {
    /// Of a tree block that has an EXTENT_ITEM: 18 bytes after the header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TreeBlockInfo in RawTreeBlockInfo, 18 bytes {
        /// The block's first key when it was allocated.
        first_key: Key,
        /// Its height.
        level: Level,
    }
}

/// An extent or metadata item as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentItem {
    /// References, generation, flags.
    pub header: ExtentHeader,
    /// Only of a tree block under EXTENT_ITEM.
    pub tree_block: Option<TreeBlockInfo>,
    /// The inline references in their order.
    pub inline: Vec<Reference>,
}

/// The size at which Linux stops adding references inline: a sixteenth of a leaf, less one item header
/// (`BTRFS_MAX_EXTENT_ITEM_SIZE`). An item stays *below* this.
pub const fn most_item_bytes(node_size: u32) -> u32 {
    #[allow(clippy::as_conversions, reason = "both are small constants; From is not const")]
    let (header, item_header) = (HEADER_SIZE as u32, ITEM_HEADER_SIZE as u32);
    (node_size.saturating_sub(header) >> 4).saturating_sub(item_header)
}

impl ExtentItem {
    /// Where a data extent lies.
    pub const fn data_key(logical: Logical, length: u64) -> Key {
        Key::new(ObjectId(logical.0), ItemType::EXTENT_ITEM, length)
    }

    /// Where a tree block lies: a metadata item with feature skinny-metadata, else an extent item.
    pub fn tree_block_key(logical: Logical, level: Level, node_size: u32, skinny: bool) -> Key {
        if skinny {
            Key::new(ObjectId(logical.0), ItemType::METADATA_ITEM, u64::from(level.0))
        } else {
            Key::new(ObjectId(logical.0), ItemType::EXTENT_ITEM, u64::from(node_size))
        }
    }

    /// A new data extent without references yet.
    pub const fn new_data(generation: Generation) -> Self {
        let header = ExtentHeader { references: 0, generation, flags: ExtentFlags::DATA };
        Self { header, tree_block: None, inline: Vec::new() }
    }

    /// A new tree block without references yet; `info` where the key is that of an extent item.
    pub const fn new_tree_block(
        generation: Generation,
        flags: ExtentFlags,
        info: Option<TreeBlockInfo>,
    ) -> Self {
        let header = ExtentHeader { references: 0, generation, flags: flags.with(ExtentFlags::TREE_BLOCK) };
        Self { header, tree_block: info, inline: Vec::new() }
    }

    /// Reads the header alone.
    ///
    /// # Errors
    /// [`ExtentFault::Size`], [`ExtentFault::Ancient`].
    pub fn decode_header(bytes: &[u8]) -> Result<ExtentHeader, ExtentFault> {
        Self::split(ItemType::METADATA_ITEM, bytes).map(|(header, ..)| header)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// Where the bytes can't be told apart; [`check_key_reference`](super::check_key_reference) and the
    /// leaf's validation judge the values.
    pub fn decode(item_type: ItemType, bytes: &[u8]) -> Result<Self, ExtentFault> {
        let (header, tree_block, rest) = Self::split(item_type, bytes)?;
        let inline = InlineReferences::new(rest).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { header, tree_block, inline })
    }

    /// The parts of an item, inline references still as bytes: for readers that look at a few of many.
    ///
    /// # Errors
    /// As [`ExtentItem::decode`], but for the inline references.
    pub fn split(
        item_type: ItemType,
        bytes: &[u8],
    ) -> Result<(ExtentHeader, Option<TreeBlockInfo>, &[u8]), ExtentFault> {
        if bytes.len() == 4 {
            return Err(ExtentFault::Ancient);
        }
        let too_short = ExtentFault::Size { found: bytes.len() };
        let (header, rest) = ExtentHeader::split_from(bytes).ok_or(too_short.clone())?;
        if !header.flags.has(ExtentFlags::TREE_BLOCK) || item_type == ItemType::METADATA_ITEM {
            return Ok((header, None, rest));
        }
        let (info, rest) = TreeBlockInfo::split_from(rest).ok_or(too_short)?;
        Ok((header, Some(info), rest))
    }

    /// The item's data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend_from_slice(&self.header.to_array());
        if let Some(info) = &self.tree_block {
            bytes.extend_from_slice(&info.to_array());
        }
        for reference in &self.inline {
            reference.encode_inline(&mut bytes);
        }
        bytes
    }

    /// Bytes of the item's data.
    pub fn size(&self) -> usize {
        let info = if self.tree_block.is_some() { TreeBlockInfo::SIZE } else { 0 };
        let inline = self.inline.iter().map(Reference::inline_size).fold(0, usize::saturating_add);
        ExtentHeader::SIZE.saturating_add(info).saturating_add(inline)
    }

    /// Whether one more reference of this kind may be inline: it is there already, or the item stays below
    /// the limit. The caller also sees that the extent has no references in items of their own.
    pub fn has_room_for(&self, reference: &Reference, node_size: u32) -> bool {
        let limit = usize::try_from(most_item_bytes(node_size)).unwrap_or(usize::MAX);
        self.position(reference).is_ok() || self.size().saturating_add(reference.inline_size()) < limit
    }

    /// Adds a reference inline, or its count to one that is there; and its count to the header.
    ///
    /// # Errors
    /// [`ExtentFault::TooManyReferences`] where a count can't grow so far; nothing is changed then.
    pub fn add(&mut self, reference: Reference) -> Result<(), ExtentFault> {
        let total = self.grown(&reference)?;
        match self.position(&reference) {
            Ok(position) => {
                if let Some(found) = self.inline.get_mut(position) {
                    found.set_count(found.grown(&reference)?);
                }
            }
            Err(position) => self.inline.insert(position, reference),
        }
        self.header.references = total;
        Ok(())
    }

    /// The header's count with that of one more reference, inline or not.
    ///
    /// # Errors
    /// [`ExtentFault::TooManyReferences`].
    pub fn grown(&self, by: &Reference) -> Result<u64, ExtentFault> {
        let found = self.header.references;
        found.checked_add(u64::from(by.count())).ok_or(ExtentFault::TooManyReferences { found })
    }

    /// Takes a reference's count from the inline one, which goes when none is left, and from the header.
    ///
    /// # Errors
    /// [`ExtentFault::NoSuchReference`] where it is not inline or counts less; nothing is changed then.
    pub fn drop_reference(&mut self, reference: &Reference) -> Result<(), ExtentFault> {
        let missing = || ExtentFault::NoSuchReference { wanted: reference.clone() };
        let position = self.position(reference).map_err(|_| missing())?;
        let found = self.inline.get_mut(position).ok_or_else(missing)?;
        let left = found.count().checked_sub(reference.count()).ok_or_else(missing)?;
        let total = self.header.references.checked_sub(u64::from(reference.count())).ok_or_else(missing)?;
        if left == 0 {
            self.inline.remove(position);
        } else {
            found.set_count(left);
        }
        self.header.references = total;
        Ok(())
    }

    /// The position of the inline reference with the same identity, or where it belongs.
    ///
    /// # Errors
    /// The position where it belongs.
    pub fn position(&self, reference: &Reference) -> Result<usize, usize> {
        let wanted = reference.order();
        for (position, found) in self.inline.iter().enumerate() {
            if found.same_identity(reference) {
                return Ok(position);
            }
            if found.order() > wanted {
                return Err(position);
            }
        }
        Err(self.inline.len())
    }
}

/// The fields of an extent or metadata item.
pub(crate) fn lay_out(key: &Key, layout: &mut Layout<'_>) {
    let Some(header) = layout.record::<ExtentHeader>() else { return };
    if header.flags.has(ExtentFlags::TREE_BLOCK) && key.item_type != ItemType::METADATA_ITEM {
        layout.record::<TreeBlockInfo>();
    }
    while lay_out_inline(layout) {}
}

impl Reference {
    /// The count with that of the same reference, found once more.
    ///
    /// # Errors
    /// [`ExtentFault::TooManyReferences`].
    pub fn grown(&self, by: &Self) -> Result<u32, ExtentFault> {
        let fault = ExtentFault::TooManyReferences { found: u64::from(self.count()) };
        self.count().checked_add(by.count()).ok_or(fault)
    }
}
