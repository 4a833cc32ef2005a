//! Root items: where a tree's root block lies, and what is known of a subvolume.
//!
//! Key (tree, ROOT_ITEM, 0) in the root tree; a snapshot's offset is the generation that made it, and a
//! relocation tree's (object id -8) the subvolume that it relocates. The log root tree holds one for each
//! log, under the tree -6 with the subvolume as offset.
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
//! Linux before 3.7 wrote the legacy form, and rewrote longer items without touching what it did not know:
//! what follows `generation v2` counts only while that equals `generation`. Source: `struct btrfs_root_item`.

mod fault;
mod flags;
mod item;
mod raw;
mod rules;

pub use fault::RootItemFault;
pub use flags::RootFlags;
pub use item::RootItem;
pub use raw::{LEGACY_SIZE, RootItemBase, RootItemExtension, SIZE};
pub use rules::check;

pub(crate) use item::lay_out;

#[cfg(test)]
mod tests;
