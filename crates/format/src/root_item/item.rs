//! The root item, in either form.

use super::fault::RootItemFault;
use super::flags::RootFlags;
use super::raw::{RootItemBase, RootItemExtension, SIZE};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::types::{Generation, RootId, Uuid};

/// Where a tree's root block lies, and what is known of a subvolume. Dereferences to the fields that every
/// form has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootItem {
    /// What every form has.
    pub base: RootItemBase,
    /// What the legacy form lacks. It may be out of date; see [`RootItem::current_extension`].
    pub extension: Option<RootItemExtension>,
}

impl core::ops::Deref for RootItem {
    type Target = RootItemBase;

    fn deref(&self) -> &RootItemBase {
        &self.base
    }
}

impl core::ops::DerefMut for RootItem {
    fn deref_mut(&mut self) -> &mut RootItemBase {
        &mut self.base
    }
}

impl RootItem {
    /// The key of a tree's root item; a snapshot's has the generation that made it as offset.
    #[must_use]
    pub const fn key(root: RootId, offset: u64) -> Key {
        Key::new(root.object_id(), ItemType::ROOT_ITEM, offset)
    }

    /// Reads a root item of either form.
    ///
    /// # Errors
    /// [`RootItemFault::Size`] if the data have neither 439 nor 239 bytes.
    pub fn decode(data: &[u8]) -> Result<Self, RootItemFault> {
        let size_fault = RootItemFault::Size { found: data.len() };
        let Some((base, rest)) = RootItemBase::split_from(data) else {
            return Err(size_fault);
        };
        if rest.is_empty() {
            return Ok(Self { base, extension: None });
        }
        match RootItemExtension::read_whole(rest) {
            Some(extension) => Ok(Self { base, extension: Some(extension) }),
            None => Err(size_fault),
        }
    }

    /// The item's bytes, in the form that it was read in unless an extension was added.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::with_capacity(SIZE);
        item.extend_from_slice(&self.base.to_array());
        if let Some(extension) = &self.extension {
            item.extend_from_slice(&extension.to_array());
        }
        item
    }

    /// The extension, if it is there and was written together with the rest.
    #[must_use]
    pub fn current_extension(&self) -> Option<&RootItemExtension> {
        self.extension.as_ref().filter(|extension| extension.generation == self.base.generation)
    }

    /// The extension to be changed. One that is missing or out of date is first replaced by an empty one, as
    /// Linux does; a subvolume then wants a new UUID.
    pub fn extension_mut(&mut self) -> &mut RootItemExtension {
        if self.current_extension().is_none() {
            self.extension = None;
        }
        let generation = self.base.generation;
        self.extension.get_or_insert_with(|| RootItemExtension { generation, ..RootItemExtension::default() })
    }

    /// Sets the generation in both its places, adding the extension where it was missing or out of date.
    pub fn set_generation(&mut self, generation: Generation) {
        self.extension_mut().generation = generation;
        self.base.generation = generation;
    }

    /// The subvolume's UUID; nil if none is known.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.current_extension().map_or(Uuid::NIL, |extension| extension.uuid)
    }

    /// The UUID of the subvolume that this is a snapshot of; nil if none is known.
    #[must_use]
    pub fn parent_uuid(&self) -> Uuid {
        self.current_extension().map_or(Uuid::NIL, |extension| extension.parent_uuid)
    }

    /// The UUID of the subvolume that this one was received from; nil if none is known.
    #[must_use]
    pub fn received_uuid(&self) -> Uuid {
        self.current_extension().map_or(Uuid::NIL, |extension| extension.received_uuid)
    }

    /// The transaction that last changed an inode of the subvolume (`ctransid`).
    #[must_use]
    pub fn change_transaction(&self) -> Generation {
        self.current_extension().map_or(Generation(0), |extension| extension.change_transaction)
    }

    /// Whether the subvolume cannot be written.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.base.flags.has(RootFlags::READ_ONLY)
    }

    /// Whether the subvolume has no name any more and awaits the deletion of its blocks.
    #[must_use]
    pub const fn is_deleted(&self) -> bool {
        self.base.reference_count == 0
    }
}

/// The fields of a root item of either form.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<RootItemBase>();
    layout.record::<RootItemExtension>();
}
