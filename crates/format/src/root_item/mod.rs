//! Root items: where a tree's root block lies, and what is known of a subvolume.
//!
//! Key (tree, ROOT_ITEM, 0) in the root tree; a snapshot's offset is the generation that made it, and a relocation
//! tree's (object id -8) the subvolume that it relocates. The log root tree holds one for each log, under the tree -6
//! with the subvolume as offset.
//!
//! ```text
//! 0       160          168           176      184          192          200             208     216
//! | inode | generation | root dirid | bytenr | byte limit | bytes used | last snapshot | flags |
//! 216    220             237          238     239
//! | refs | drop progress | drop level | level |           the legacy form ends here
//! 239             247    263           279             295        303        311        319        327
//! | generation v2 | uuid | parent uuid | received uuid | ctransid | otransid | stransid | rtransid |
//! 327     339     351     363     375            439
//! | ctime | otime | stime | rtime | reserved 64 |
//! ```
//! Linux before 3.7 wrote the legacy form, and rewrote longer items without touching what it did not know: what follows
//! `generation v2` counts only while that equals `generation`. Source: `struct btrfs_root_item`.

mod raw;
mod rules;

pub use raw::{RootItemBase, RootItemExtension};
pub use rules::{RootItemFault, check};

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::wrapped;
use crate::types::{Generation, RootId, Uuid};

/// Bytes of the form that Linux has written since 3.7.
pub const SIZE: usize = 439;
/// Bytes of the form before.
pub const LEGACY_SIZE: usize = 239;
const _: () = assert!(
    RootItemBase::SIZE == LEGACY_SIZE && RootItemBase::SIZE.saturating_add(RootItemExtension::SIZE) == SIZE
);

/// The flags of a subvolume. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootFlags(pub u64);

wrapped! { RootFlags => u64; }

impl RootFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The subvolume cannot be written.
    pub const READ_ONLY: Self = Self(1);
    /// The subvolume is being deleted.
    pub const DEAD: Self = Self(1 << 48);
    /// Every flag that this crate knows.
    pub const KNOWN: Self = Self(Self::READ_ONLY.0 | Self::DEAD.0);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Where a tree's root block lies, and what is known of a subvolume. Dereferences to the fields that every form has.
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

    /// The extension to be changed. One that is missing or out of date is first replaced by an empty one, as Linux
    /// does; a subvolume then wants a new UUID.
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

#[cfg(test)]
mod tests;
