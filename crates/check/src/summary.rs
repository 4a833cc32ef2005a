//! What a part of a subvolume's tree comes to: so that leaves are judged by several threads at once, and a
//! part that many snapshots share is judged once.
//!
//! A part's items are judged alone but for the inode whose items began further left. What the part
//! [needs](Need) that inode to be is kept with what follows from it; where it is something else, the part is
//! judged anew.

use vlinder_format::directory::{DirectoryEntries, DirectoryIndex};
use vlinder_format::{ItemType, ObjectId, RootId, orphan};

use crate::collector::Collector;
use crate::collector::Gathered;
use crate::collector::SubvolumeContext;
use crate::inode::{Facts, Inode};
use crate::item::{Item, Leaf};
use crate::judge::Judge;
use crate::name_fact::number_of;
use crate::root_name::RootName;

impl Collector<'_> {
    /// An inode has no more items.
    fn finish(&mut self, gathered: &mut Gathered, inode: &Inode) {
        gathered.has_root_directory |= inode.number == ObjectId::FIRST_FREE;
        let Some(finished) = inode.finish(self) else { return };
        if finished.is_unlinked {
            gathered.unlinked.push(inode.number);
        }
        if let Some(parent) = finished.parent {
            gathered.parents.push((inode.number.0, parent.0));
        }
    }
}

impl SubvolumeContext<'_> {
    /// The end of an inode whose items were in several parts.
    pub(crate) fn finish(&self, judge: &Judge<'_>, inode: &Inode) -> Gathered {
        let mut gathered = Gathered::new(self.empty_sink(judge));
        let mut collector = Collector::new(self, judge);
        collector.finish(&mut gathered, inode);
        gathered.findings = collector.findings;
        gathered
    }
}

/// What the inode left of a part must be for the part's summary to hold.
#[derive(Clone, Debug)]
pub(crate) enum Need {
    /// Whatever it is: the part has no items of inodes.
    Nothing,
    /// Not this one, which the part begins with.
    Other(ObjectId),
    /// This directory, in use: what comes first are entries of it.
    Directory(ObjectId),
    /// One of exactly these facts.
    Exactly(Box<Facts>),
}

impl Need {
    /// Whether it is met by the inode whose items were last.
    pub(crate) fn is_met(&self, current: Option<&Inode>) -> bool {
        match (self, current) {
            (Self::Nothing, _) => true,
            (Self::Other(number), current) => current.is_none_or(|inode| inode.number != *number),
            (Self::Directory(number), Some(inode)) => inode.number == *number && inode.is_used_directory(),
            (Self::Exactly(facts), Some(inode)) => inode.facts() == **facts,
            (Self::Directory(_) | Self::Exactly(_), None) => false,
        }
    }
}

/// What a part of a subvolume's tree comes to.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) need: Need,
    /// Of the needed inode: a directory's additions, or the inode as it is behind the part's items of it.
    pub(crate) head: Option<Inode>,
    /// The needed inode, or whichever was before, has no more items.
    pub(crate) head_ended: bool,
    /// The last inode, whose items may go on further right. (None where the head has not ended.)
    pub(crate) tail: Option<Inode>,
    pub(crate) gathered: Gathered,
}

/// Whether an item is looked at as an inode's.
fn is_of_inode(item: &Item<'_>) -> bool {
    (ObjectId::FIRST_FREE..=ObjectId::LAST_FREE).contains(&item.key.objectid)
}

impl Leaf<'_> {
    /// The inode that the items begin with, if they begin with other items than its own.
    pub(crate) fn continued_inode(&self) -> Option<ObjectId> {
        let (Ok(first) | Err(first)) = self.items().find(|item| {
            let (Ok(item) | Err(item)) = item;
            is_of_inode(item)
        })?;
        (first.key.item_type != ItemType::INODE_ITEM).then_some(first.key.objectid)
    }
}

/// Whether an item that breaks a rule still says by its key that something is there.
fn is_known_by_key(item: &Item<'_>) -> bool {
    let is_inode = item.key.item_type == ItemType::INODE_ITEM && is_of_inode(item);
    is_inode || orphan::orphan_of(&item.key).is_some()
}

/// Judges a leaf without knowing what is left of it, from a slot on: what comes before that slot belongs to
/// an inode of which more must be known.
pub(crate) fn summarize(
    surroundings: &SubvolumeContext<'_>,
    judge: &Judge<'_>,
    leaf: &Leaf<'_>,
) -> (usize, Summary) {
    // Of a leaf with a bad item nothing follows by itself.
    if !leaf.faults.is_empty() {
        let end = leaf.slots.end;
        return (end, run(surroundings, judge, &leaf.part(end..end), None, None));
    }
    let first = leaf.sound_items().find(is_of_inode);
    let Some(first) = first.filter(|first| first.key.item_type != ItemType::INODE_ITEM) else {
        return (0, run(surroundings, judge, leaf, None, None));
    };
    let number = first.key.objectid;
    let end = leaf.sound_items().find(|item| item.slot > first.slot && item.key.objectid != number);
    let end = end.map_or(leaf.slots.end, |item| item.slot);
    let is_entry = |item: &Item<'_>| [ItemType::DIR_ITEM, ItemType::DIR_INDEX].contains(&item.key.item_type);
    if leaf.part(first.slot..end).sound_items().all(|item| is_entry(&item)) {
        let head = Some(Inode::any_directory(number));
        return (0, run(surroundings, judge, leaf, head, Some(Need::Directory(number))));
    }
    (end, run(surroundings, judge, &leaf.part(end..leaf.slots.end), None, None))
}

/// Judges a leaf that follows items of an inode. Also gives whether it is too odd for a summary of it to be
/// kept.
pub(crate) fn continue_with(
    surroundings: &SubvolumeContext<'_>,
    judge: &Judge<'_>,
    leaf: &Leaf<'_>,
    current: Option<&Inode>,
) -> (Summary, bool) {
    let first = leaf.sound_items().find(is_of_inode).map(|item| item.key.objectid);
    let continues = current.filter(|inode| Some(inode.number) == first || !leaf.faults.is_empty());
    let need = continues.map(|inode| Need::Exactly(Box::new(inode.facts())));
    let is_again = |item: &Item<'_>| {
        item.key.item_type == ItemType::INODE_ITEM
            && current.is_some_and(|inode| inode.number == item.key.objectid)
    };
    let is_odd = !leaf.faults.is_empty() || leaf.sound_items().any(|item| is_again(&item));
    (run(surroundings, judge, leaf, continues.cloned(), need), is_odd)
}

/// Judges a leaf's items one after the other, from this inode on.
fn run(
    surroundings: &SubvolumeContext<'_>,
    judge: &Judge<'_>,
    leaf: &Leaf<'_>,
    start: Option<Inode>,
    need: Option<Need>,
) -> Summary {
    let mut collector = Collector::new(surroundings, judge);
    let mut gathered = Gathered::new(surroundings.empty_sink(judge));
    let (mut head, mut head_ended, mut first) = (None, false, None);
    let has_start = start.is_some();
    let mut current = start;
    for item in leaf.items() {
        let is_sound = item.is_ok();
        let (Ok(item) | Err(item)) = item;
        if !is_sound && !is_known_by_key(&item) {
            // One of another inode, of which nothing came before, says only that its inode item is not there.
            let is_other = |inode: &Inode| is_of_inode(&item) && inode.number != item.key.objectid;
            if let Some(inode) = current.as_mut().filter(|inode| !is_other(inode)) {
                inode.is_incomplete = true;
            }
            continue;
        }
        let orphan = orphan::orphan_of(&item.key);
        let is_of_inode = is_of_inode(&item);
        let is_next = is_of_inode && current.as_ref().is_none_or(|inode| inode.number != item.key.objectid);
        if orphan.is_some() || is_next {
            // What is in hand first may be the head, which others finish: they have all of it.
            match current.take() {
                Some(inode) if has_start && !head_ended => head = Some(inode),
                Some(inode) => collector.finish(&mut gathered, &inode),
                None => {}
            }
            head_ended = true;
        }
        if let Some(orphan) = orphan {
            gathered.orphans.push(orphan);
        }
        if is_of_inode {
            first = first.or(Some(item.key.objectid));
            let inode = current.get_or_insert_with(|| Inode::new(item.key.objectid, item.place()));
            if is_sound {
                take_item(&mut collector, &mut gathered, inode, &item);
            } else {
                inode.set_faulty_item(item.place());
            }
        }
    }
    if has_start && !head_ended {
        head = current.take();
    }
    gathered.findings = core::mem::take(&mut collector.findings);
    gathered.names = collector.names;
    let need = need.or(first.map(Need::Other)).unwrap_or(Need::Nothing);
    Summary { need, head, head_ended, tail: current, gathered }
}

fn take_item(collector: &mut Collector<'_>, gathered: &mut Gathered, inode: &mut Inode, item: &Item<'_>) {
    match item.key.item_type {
        ItemType::INODE_ITEM => inode.set_item(item, collector),
        ItemType::INODE_REF => inode.add_references(item, collector),
        ItemType::INODE_EXTREF => inode.add_extended_references(item, collector),
        ItemType::DIR_ITEM => inode.add_entries(collector, item),
        ItemType::DIR_INDEX => {
            inode.add_entries(collector, item);
            for entry in DirectoryEntries::new(item.data).flatten() {
                if entry.location.item_type == ItemType::ROOT_ITEM {
                    gathered.subvolumes.push(RootName {
                        child: RootId(entry.location.objectid.0),
                        directory: item.key.objectid,
                        index: DirectoryIndex(item.key.offset),
                        name: number_of(entry.name),
                    });
                }
            }
        }
        ItemType::EXTENT_DATA => inode.add_extent(collector, item),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::Place;

    use super::*;

    #[test]
    fn needs_are_met_by_the_inode_that_they_mean() {
        let number = ObjectId(300);
        let directory = Inode::any_directory(number);
        let (unknown, other) = (Inode::new(number, Place::default()), Inode::any_directory(ObjectId(301)));
        let exactly = Need::Exactly(Box::new(directory.facts()));
        for (need, met_by) in [
            (Need::Nothing, [true, true, true, true]),
            (Need::Other(number), [true, false, false, true]),
            (Need::Directory(number), [false, true, false, false]),
            (exactly, [false, true, false, false]),
        ] {
            let inodes = [None, Some(&directory), Some(&unknown), Some(&other)];
            assert_eq!(inodes.map(|inode| need.is_met(inode)), met_by, "{need:?}");
        }
    }
}
