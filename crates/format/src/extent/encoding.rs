//! References to an extent as bytes: inline in its item, or items of their own.

use super::fault::ExtentFault;
use super::reference::{DataReference, Reference};
use crate::key::{ItemType, Key};
use crate::layout::{Layout, Structure, structure};
use crate::record::Field;
use crate::types::{Logical, RootId};

impl DataReference {
    /// Reads the data of an EXTENT_DATA_REF item. (Linux allows several of one hash in one item, but writes
    /// further ones under the next key.)
    ///
    /// # Errors
    /// [`ExtentFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ExtentFault> {
        Self::read_whole(bytes).ok_or(ExtentFault::Size { found: bytes.len() })
    }

    /// The data of an EXTENT_DATA_REF item.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }
}

impl Reference {
    /// The data of the item of its own.
    pub fn encode_item(&self) -> Vec<u8> {
        match self {
            Self::ExtentData(data) => data.encode().to_vec(),
            Self::SharedData { count, .. } => count.to_le_bytes().to_vec(),
            Self::ExtentOwner { .. } | Self::TreeBlock { .. } | Self::SharedBlock { .. } => Vec::new(),
        }
    }

    /// Reads an item of its own; none where the key is not that of a reference.
    ///
    /// # Errors
    /// [`ExtentFault::Size`].
    pub fn decode_item(key: &Key, bytes: &[u8]) -> Option<Result<Self, ExtentFault>> {
        let empty = |reference| {
            if bytes.is_empty() { Ok(reference) } else { Err(ExtentFault::Size { found: bytes.len() }) }
        };
        Some(match key.item_type {
            ItemType::TREE_BLOCK_REF => empty(Self::TreeBlock { root: RootId(key.offset) }),
            ItemType::SHARED_BLOCK_REF => empty(Self::SharedBlock { parent: Logical(key.offset) }),
            ItemType::EXTENT_DATA_REF => DataReference::decode(bytes).map(Self::ExtentData),
            ItemType::SHARED_DATA_REF => decode_shared_data_count(bytes)
                .map(|count| Self::SharedData { parent: Logical(key.offset), count }),
            _ => return None,
        })
    }

    /// Bytes of the inline form.
    pub const fn inline_size(&self) -> usize {
        match self {
            Self::ExtentOwner { .. } | Self::TreeBlock { .. } | Self::SharedBlock { .. } => 9,
            Self::SharedData { .. } => 13,
            Self::ExtentData(_) => 29,
        }
    }

    /// Appends the inline form: the type, then root or parent, or the data reference; then the count.
    pub fn encode_inline(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.item_type().0);
        match self {
            Self::ExtentOwner { root } | Self::TreeBlock { root } => {
                bytes.extend_from_slice(&root.0.to_le_bytes())
            }
            Self::ExtentData(data) => bytes.extend_from_slice(&data.to_array()),
            Self::SharedBlock { parent } => bytes.extend_from_slice(&parent.0.to_le_bytes()),
            Self::SharedData { parent, count } => {
                bytes.extend_from_slice(&parent.0.to_le_bytes());
                bytes.extend_from_slice(&count.to_le_bytes());
            }
        }
    }
}

/// The count in a SHARED_DATA_REF item.
///
/// # Errors
/// [`ExtentFault::Size`].
pub fn decode_shared_data_count(bytes: &[u8]) -> Result<u32, ExtentFault> {
    let field: [u8; 4] = bytes.try_into().map_err(|_| ExtentFault::Size { found: bytes.len() })?;
    Ok(u32::from_raw(&field.into()))
}

structure! {
    /// What [`decode_shared_data_count`] reads.
    SHARED_DATA_COUNT: "SharedDataCount", 4 bytes {
        count: 0, 4;
    }
}

/// The fields of a reference that is an item of its own.
pub(crate) fn lay_out_reference(key: &Key, layout: &mut Layout<'_>) {
    match key.item_type {
        ItemType::EXTENT_DATA_REF => drop(layout.record::<DataReference>()),
        ItemType::SHARED_DATA_REF => drop(layout.structure(SHARED_DATA_COUNT)),
        _ => {}
    }
}

/// Iterates over inline references; ends after the first fault.
#[derive(Clone, Debug)]
pub struct InlineReferences<'a> {
    rest: &'a [u8],
}

impl<'a> InlineReferences<'a> {
    /// Over the bytes that [`ExtentItem::split`](super::ExtentItem::split) gives last.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn step(&mut self) -> Result<Reference, ExtentFault> {
        let cut_off = ExtentFault::CutOff { left: self.rest.len() };
        let (type_byte, rest) = self.rest.split_first().ok_or(cut_off.clone())?;
        if ItemType(*type_byte) == ItemType::EXTENT_DATA_REF {
            let (data, rest) = DataReference::split_from(rest).ok_or(cut_off)?;
            self.rest = rest;
            return Ok(Reference::ExtentData(data));
        }
        let (number, rest) = rest.split_first_chunk::<8>().ok_or(cut_off.clone())?;
        let number = u64::from_le_bytes(*number);
        self.rest = rest;
        match ItemType(*type_byte) {
            ItemType::EXTENT_OWNER_REF => Ok(Reference::ExtentOwner { root: RootId(number) }),
            ItemType::TREE_BLOCK_REF => Ok(Reference::TreeBlock { root: RootId(number) }),
            ItemType::SHARED_BLOCK_REF => Ok(Reference::SharedBlock { parent: Logical(number) }),
            ItemType::SHARED_DATA_REF => {
                let (count, rest) = rest.split_first_chunk::<4>().ok_or(cut_off)?;
                self.rest = rest;
                Ok(Reference::SharedData { parent: Logical(number), count: u32::from_le_bytes(*count) })
            }
            found => Err(ExtentFault::UnknownReference { found }),
        }
    }
}

impl Iterator for InlineReferences<'_> {
    type Item = Result<Reference, ExtentFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}

structure! {
    /// A reference by root or parent.
    NUMBER_REFERENCE: "InlineReference", 9 bytes {
        reference_type: 0, 1;
        number: 1, 8;
    }
}

structure! {
    /// A data reference by leaf.
    SHARED_DATA_REFERENCE: "InlineSharedDataReference", 13 bytes {
        reference_type: 0, 1;
        parent: 1, 8;
        count: 9, 4;
    }
}

structure! {
    /// The type before a data reference.
    REFERENCE_TYPE: "InlineDataReference", 1 bytes {
        reference_type: 0, 1;
    }
}

/// Claims the fields of one inline reference; false at the end, and at what [`InlineReferences`] stops at.
pub(super) fn lay_out_inline(layout: &mut Layout<'_>) -> bool {
    let Some(type_byte) = layout.left().first() else { return false };
    let structure: &'static Structure = match ItemType(*type_byte) {
        ItemType::EXTENT_DATA_REF => {
            return layout.structure(REFERENCE_TYPE) && layout.record::<DataReference>().is_some();
        }
        ItemType::EXTENT_OWNER_REF | ItemType::TREE_BLOCK_REF | ItemType::SHARED_BLOCK_REF => {
            NUMBER_REFERENCE
        }
        ItemType::SHARED_DATA_REF => SHARED_DATA_REFERENCE,
        _ => return false,
    };
    layout.structure(structure)
}
