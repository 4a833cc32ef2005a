//! What is told to be freed is what deletion frees, extent for extent.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::{Logical, RootId};
use vlinder_snapshots::usage::{FreedExtent, UsageReader};
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::workload::Choice;

use super::support::{
    BlockName, Named, blocks_of, delete, deletion_set, extents, names, open, random_image, subvolumes,
};

/// What a deletion is told to free, and the state before it.
struct Told {
    freed: BTreeSet<FreedExtent>,
    data: BTreeSet<(Logical, u64)>,
    /// Blocks of the subvolumes that go.
    going: BTreeSet<BlockName>,
    /// Blocks of those that stay.
    staying: BTreeSet<BlockName>,
}

fn tell(device: &Arc<MemoryDevice>, recipe: &Recipe, all: &[Named], going: &BTreeSet<RootId>) -> Told {
    let filesystem = open(device, &format!("ro,{}", recipe.options));
    let state = filesystem.lease().unwrap();
    let forest = state.forest();
    let mut reader = UsageReader::new(forest, &|_| ()).unwrap();
    let mut found = Vec::new();
    let set = deletion_set(forest, all).unwrap();
    let freed = reader.freed(set, &mut |extent| found.push(extent)).unwrap();
    let sum = |is_data: bool| -> u64 {
        found.iter().filter(|extent| extent.is_data == is_data).map(|extent| extent.disk_bytes).sum()
    };
    assert_eq!((freed.data_bytes, freed.metadata_bytes), (sum(true), sum(false)));
    let count = found.len();
    let found: BTreeSet<FreedExtent> = found.into_iter().collect();
    assert_eq!(found.len(), count, "an extent is freed once");
    let (inside, outside): (Vec<_>, Vec<_>) =
        subvolumes(&filesystem).into_iter().partition(|root| going.contains(root));
    Told {
        freed: found,
        data: extents(forest).0,
        going: inside.iter().flat_map(|root| blocks_of(forest, *root)).collect(),
        staying: outside.iter().flat_map(|root| blocks_of(forest, *root)).collect(),
    }
}

/// The subvolumes that go with these names.
fn going(device: &Arc<MemoryDevice>, recipe: &Recipe, all: &[Named]) -> BTreeSet<RootId> {
    let device = Arc::new(device.snapshot());
    let filesystem = open(&device, &recipe.options);
    let before: BTreeSet<RootId> = subvolumes(&filesystem).into_iter().collect();
    delete(&filesystem, all).unwrap();
    let after: BTreeSet<RootId> = subvolumes(&filesystem).into_iter().collect();
    filesystem.close().unwrap();
    before.difference(&after).copied().collect()
}

/// Deletes names for good, and compares what came back with what was told.
fn compare(device: &Arc<MemoryDevice>, recipe: &Recipe, all: &[Named]) -> (u64, u64) {
    let going = going(device, recipe, all);
    let told = tell(device, recipe, all, &going);
    let device = Arc::new(device.snapshot());
    let filesystem = open(&device, &recipe.options);
    delete(&filesystem, all).unwrap();
    let state = filesystem.lease().unwrap();
    let (data, blocks) = extents(state.forest());
    let freed_data: BTreeSet<(Logical, u64)> = told.data.difference(&data).copied().collect();
    let told_data: BTreeSet<(Logical, u64)> = told
        .freed
        .iter()
        .filter(|extent| extent.is_data)
        .map(|extent| (extent.start, extent.disk_bytes))
        .collect();
    assert_eq!(told_data, freed_data, "data that {all:?} frees");
    // A subvolume that stays may have changed a block that it shared, since a name in it is gone: then its
    // copy took the block's place.
    let freed_blocks: BTreeSet<Logical> = told
        .going
        .difference(&blocks)
        .filter(|block| !told.staying.contains(block))
        .map(|block| block.0)
        .collect();
    let told_blocks: BTreeSet<Logical> =
        told.freed.iter().filter(|extent| !extent.is_data).map(|extent| extent.start).collect();
    assert_eq!(told_blocks, freed_blocks, "tree blocks that {all:?} frees");
    (told_data.len() as u64, told_blocks.len() as u64)
}

/// Some of these, in any order.
fn some(choice: &Choice, all: &[Named], most: u64) -> Vec<Named> {
    if all.is_empty() {
        return Vec::new();
    }
    (0..1 + choice.below(most)).map(|_| all[choice.below(all.len() as u64) as usize].clone()).collect()
}

/// Images, each with some sets; gives images with something to delete, sets, freed data extents and blocks.
fn run(seeds: std::ops::Range<u64>) -> (u64, u64, u64, u64) {
    let mut totals = (0, 0, 0, 0);
    for seed in seeds {
        let (device, recipe) = random_image(seed);
        let all = {
            let filesystem = open(&device, &format!("ro,{}", recipe.options));
            names(&filesystem)
        };
        let choice = Choice::new(seed ^ 0x5e7);
        let (roots, others): (Vec<Named>, Vec<Named>) = all.into_iter().partition(Named::is_subvolume);
        let sets = [
            some(&choice, &roots, 1),
            some(&choice, &roots, 6),
            some(&choice, &others, 12),
            [some(&choice, &roots, 3), some(&choice, &others, 8)].concat(),
            // Most files of all subvolumes: of those that share a leaf, not the same.
            others.iter().filter(|named| !named.is_directory && choice.below(8) > 0).cloned().collect(),
            // The same name in several snapshots.
            others.first().map_or_else(Vec::new, |_| {
                let one = &others[choice.below(others.len() as u64) as usize];
                let same = |other: &&Named| other.inode.number == one.inode.number && other.name == one.name;
                others.iter().filter(same).cloned().collect()
            }),
        ];
        let mut had_any = 0;
        for set in sets.iter().filter(|set| !set.is_empty()) {
            let (data, blocks) = compare(&device, &recipe, set);
            had_any = 1;
            totals = (totals.0, totals.1 + 1, totals.2 + data, totals.3 + blocks);
        }
        totals.0 += had_any;
    }
    totals
}

#[test]
fn what_is_told_is_what_deletion_frees() {
    let images = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(6);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (compared, sets, data, blocks) = run(first..first + images);
    println!("{compared} images, {sets} sets, {data} data extents and {blocks} tree blocks freed");
    assert!(compared * 2 > images && data > 0 && blocks > 0, "{compared} images, {data}, {blocks}");
}
