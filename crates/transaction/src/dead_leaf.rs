//! Frees a leaf of a deleted tree by and by, where the references of all its items find no room in one
//! transaction: some of its extents become holes first, as if their bytes had been punched out of the files.
//! A deletion that goes on after a crash, also one by Linux, finds a leaf with fewer references.

use vlinder_format::block::BlockIdentity;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Block, ItemType, Key, Level};
use vlinder_tree::{Change, ChildReferences, Edit, Space, TreeError};

use crate::EngineError;
use crate::asking::ReferenceMoves;
use crate::extents::leaf_extents::data_extent_at;
use crate::handle::Handle;
use vlinder_forest::OpenTree;

/// Turns as many extents of a leaf into holes as there is room for, at most half of them; false where there
/// is room for none, and nothing was changed. All blocks on the leaf's path are this tree's alone, and its
/// children are referenced by the tree's number.
pub(crate) fn make_holes(
    handle: &mut Handle<'_>,
    tree: &OpenTree,
    leaf: &Block,
) -> Result<bool, EngineError> {
    let slots: Vec<usize> = (0..leaf.len()).filter(|slot| data_extent_at(leaf, *slot).is_some()).collect();
    let mut count = slots.len() / 2;
    while count > 0 {
        let some = &slots[slots.len() - count..];
        let part = part_of_leaf(handle.core().trees().node_size(), leaf, some);
        match handle.editor().space.charge_reference_changes(&part, ReferenceMoves::Dropped) {
            Ok(()) => {
                replace_by_holes(handle, tree, leaf, some)?;
                handle.editor().space.share_children(tree.id(), &part, ChildReferences::Keyed, false);
                return Ok(true);
            }
            Err(TreeError::NoSpace { .. }) => count /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// A leaf of some of a leaf's items, which is of no tree.
fn part_of_leaf(node_size: u32, leaf: &Block, slots: &[usize]) -> Block {
    let identity = BlockIdentity {
        logical: leaf.logical(),
        generation: leaf.generation(),
        owner: leaf.owner(),
        level: Level::LEAF,
        fsid: leaf.header().fsid(),
        chunk_tree_uuid: leaf.header().chunk_tree_uuid(),
    };
    let mut part = Block::new(node_size, &identity);
    let items: Vec<(Key, &[u8])> = slots.iter().map(|slot| (leaf.key(*slot), leaf.data(*slot))).collect();
    part.items_mut().insert(0, &items);
    part
}

fn replace_by_holes(
    handle: &mut Handle<'_>,
    tree: &OpenTree,
    leaf: &Block,
    slots: &[usize],
) -> Result<(), EngineError> {
    let hole = |slot: &usize| {
        let key = leaf.key(*slot);
        debug_assert_eq!(key.item_type, ItemType::EXTENT_DATA);
        let extent = FileExtent::decode(leaf.data(*slot)).ok()?;
        Some((key, FileExtent::hole(extent.file_bytes(), handle.generation()).encode()))
    };
    let holes: Vec<(Key, Vec<u8>)> = slots.iter().filter_map(hole).collect();
    let edits: Vec<Edit<'_>> =
        holes.iter().map(|(key, data)| Edit::new(*key, Change::Replace(data))).collect();
    handle.edit(tree, &edits)
}

#[cfg(test)]
mod tests {
    use vlinder_base::sync::Arc;
    use vlinder_format::inode::{InodeItem, Mode, Timestamp};
    use vlinder_format::{Generation, ObjectId, Uuid};
    use vlinder_testkit::{Scratch, kernel, require};

    use super::*;
    use crate::change_kind::ChangeKind;
    use crate::dead_trees::{SMALLEST_STEP, STEP_LEAVES};
    use crate::engine::Engine;
    use crate::extents::leaf_extents::data_extents;
    use crate::opening_tests::{new_image, write};
    use crate::reservation::Reservation;
    use vlinder_space::{Charge, Purpose, ReserveAccess};

    const SECTOR: u64 = 4096;
    const FILE: ObjectId = ObjectId(257);
    const EXTENTS: u64 = 1000;

    /// A subvolume with a file whose neighbours in a leaf lie far from each other: each leaf refers to all
    /// leaves of the extent tree.
    fn plant(engine: &Engine) -> Arc<OpenTree> {
        let mut handle = engine.begin(Reservation::items(10_000).of(ChangeKind::LogReplay)).unwrap();
        let tree = handle.create_subvolume_tree(Uuid([7; 16]), Timestamp::default()).unwrap();
        let inode = InodeItem {
            generation: Generation(1),
            size_bytes: EXTENTS * SECTOR,
            allocated_bytes: EXTENTS * SECTOR,
            link_count: 1,
            mode: Mode(0o100_644),
            ..InodeItem::default()
        };
        let mut items = vec![(Key::new(FILE, ItemType::INODE_ITEM, 0), inode.encode().to_vec())];
        let extents: Vec<_> = (0..EXTENTS).map(|_| handle.allocate_data(SECTOR, SECTOR).unwrap()).collect();
        for place in 0..EXTENTS {
            let extent = extents[usize::try_from(place * 487 % EXTENTS).unwrap()];
            let item = FileExtent::whole(extent.logical, SECTOR, handle.generation());
            items.push((Key::new(FILE, ItemType::EXTENT_DATA, place * SECTOR), item.encode()));
            handle.add_data_reference(extent, true, tree.id(), FILE, place * SECTOR);
        }
        let edits: Vec<Edit<'_>> =
            items.iter().map(|(key, data)| Edit::new(*key, Change::Insert(data))).collect();
        handle.edit(&tree, &edits).unwrap();
        drop(handle);
        engine.commit().unwrap();
        tree
    }

    /// Takes all room but that of the smallest step.
    fn take_room(engine: &Engine) -> Charge {
        let blocks = |blocks| Charge { blocks, ..Charge::default() };
        let fits = |count| {
            engine.core().reserver().try_changes(blocks(count) + SMALLEST_STEP, ReserveAccess::LastReserve)
        };
        let (mut fitting, mut refused) = (0, 1 << 20);
        while refused - fitting > 1 {
            let middle = fitting + (refused - fitting) / 2;
            if fits(middle) {
                engine.core().space().reservations().unreserve(blocks(middle) + SMALLEST_STEP);
                fitting = middle;
            } else {
                refused = middle;
            }
        }
        assert!(engine.core().reserver().try_changes(blocks(fitting), ReserveAccess::LastReserve));
        blocks(fitting)
    }

    #[test]
    fn a_deleted_tree_goes_though_no_leaf_goes_at_once() {
        require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
        let scratch = Scratch::new("dead_leaf");
        let image = new_image(&scratch, &["-n", "4096"]);
        let engine = write(&image).unwrap();
        let before = engine.core().space().used_bytes();
        let data_before = engine.core().space().available(Purpose::Data);
        let tree = plant(&engine);
        let taken = take_room(&engine);

        let first = Key::new(FILE, ItemType::EXTENT_DATA, 0);
        let position = engine.core().trees().store().get(tree.root(), &first).unwrap().unwrap();
        let leaf = Arc::clone(position.leaf());
        let handle = engine.begin(Reservation::tree_deletion(STEP_LEAVES)).unwrap();
        let at_once = handle.editor().space.charge_reference_changes(&leaf, ReferenceMoves::Dropped);
        assert!(matches!(at_once, Err(TreeError::NoSpace { .. })), "{at_once:?}");
        drop(handle);

        let mut handle = engine.begin(Reservation::tree_deletion(STEP_LEAVES)).unwrap();
        handle.delete_tree(&tree).unwrap();
        drop(handle);
        let generation = engine.generation();
        engine.dead_trees().add(Arc::clone(&tree));
        // What a power cut leaves after some of it is a leaf with holes, with which Linux goes on.
        engine.clean(2).unwrap();
        engine.commit().unwrap();
        let rest = engine.core().trees().store().get(tree.root(), &first).unwrap().unwrap();
        let (some, all) = (data_extents(rest.leaf()).count(), data_extents(&leaf).count());
        assert!(0 < some && some < all, "{some} of {all}");
        drop(rest);
        let cut = scratch.path().join("cut");
        std::fs::copy(&image, &cut).unwrap();
        kernel::btrfs_check(&cut).unwrap();
        drop(kernel::KernelMount::new(&cut, "").unwrap());
        kernel::btrfs_check(&cut).unwrap();
        let left = write(&cut).unwrap();
        while left.clean(1000).unwrap() {}
        left.commit().unwrap();
        assert_eq!(left.core().space().available(Purpose::Data), data_before);
        while engine.clean(1000).unwrap() {}
        assert!(engine.generation().0 > generation.0 + 10, "in many transactions");
        engine.core().space().reservations().unreserve(taken);
        engine.commit().unwrap();
        engine.commit().unwrap();
        // New groups, and what is left of trees that grew, take a few blocks.
        assert!(
            engine.core().space().used_bytes() <= before + 4 * 4096,
            "{before} {}",
            engine.core().space().used_bytes()
        );
        assert_eq!(engine.core().space().available(Purpose::Data), data_before);
        drop((leaf, position, tree, engine));
        kernel::btrfs_check(&image).unwrap();
    }
}
