//! What a subvolume's tree adds up to is what its names add up to, in whatever order subvolumes are measured.

use std::ops::ControlFlow;

use vlinder_fs::InodeId;
use vlinder_snapshots::usage::{Usage, UsageReader, UsageTarget};
use vlinder_testkit::workload::Choice;

use super::support::{names, open, random_image, subvolumes};

#[test]
fn a_tree_adds_up_to_what_its_names_do() {
    let mut shared = 0;
    for seed in 100..106 {
        let (device, recipe) = random_image(seed);
        let filesystem = open(&device, &format!("ro,{}", recipe.options));
        let state = filesystem.lease().unwrap();
        let mut targets: Vec<InodeId> = subvolumes(&filesystem).into_iter().map(InodeId::root_of).collect();
        targets.extend(names(&filesystem).iter().filter(|named| named.is_directory).map(|named| named.inode));
        let target = |id: &InodeId| UsageTarget { root: id.root, inode: id.number, name: None };
        let by_names: Vec<Usage> = targets
            .iter()
            .map(|id| {
                let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
                reader.list(&target(id), &mut |_| ControlFlow::Continue(())).unwrap()
            })
            .collect();
        // One reader for all, in a random order, some of them again.
        let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
        let choice = Choice::new(seed);
        for _ in 0..targets.len() * 2 {
            let place = choice.below(targets.len() as u64) as usize;
            let found = reader.summary(&target(&targets[place])).unwrap();
            assert_eq!(found, by_names[place], "seed {seed}, {:?}", targets[place]);
            shared += found.set_shared_bytes;
        }
    }
    assert!(shared > 0);
}

#[test]
fn lines_come_with_their_paths_and_end_when_told() {
    let (device, recipe) = random_image(107);
    let filesystem = open(&device, &format!("ro,{}", recipe.options));
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    let root = filesystem.root_id();
    let target = UsageTarget { root: root.root, inode: root.number, name: None };
    let (mut paths, mut sum) = (Vec::new(), 0);
    let whole = reader
        .list(&target, &mut |line| {
            paths.push(line.path.to_vec());
            if !line.is_directory {
                sum += line.total_bytes;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(whole.total_bytes, sum);
    let mut unique = paths.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), paths.len());
    assert!(paths.iter().any(|path| path.contains(&b'/')) && paths.len() > 3);
    let mut count = 0;
    let stop = &mut |_: &vlinder_snapshots::usage::UsageLine<'_>| {
        count += 1;
        if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    reader.list(&target, stop).unwrap();
    assert_eq!(count, 3);
}
