//! What a subvolume's tree adds up to is what its names add up to, in whatever order subvolumes are measured.

use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_format::{ObjectId, RootId};
use vlinder_fs::data::Allocate;
use vlinder_fs::{Inode, InodeId, WriteOrigin};
use vlinder_snapshots::usage::{DeletionSet, Usage, UsageError, UsageReader, UsageTarget};
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::workload::Choice;

use super::support::{names, open, random_image, subvolumes, superuser};

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

#[test]
fn files_without_a_name_count_in_no_column() {
    let device = Arc::new(Recipe { node_size: 4096, ..Recipe::default() }.in_memory());
    let filesystem = open(&device, "");
    let (caller, top, names) = (superuser(), filesystem.root().unwrap(), filesystem.names());
    let reserve = |inode: &Arc<Inode>, bytes: u64| {
        let what = Allocate::Reserve { keep_size: false };
        filesystem.files().allocate_file(&caller, inode, what, 0, bytes, WriteOrigin::Caller).unwrap();
    };
    // Enough of them that leaves stay shared when the root's changes.
    for number in 0..400 {
        let file = names.create_file(&caller, &top, format!("file-{number}").as_bytes(), 0o644).unwrap();
        reserve(&file, 8192);
    }
    let hidden = names.create_temporary(&caller, &top, 0o600).unwrap();
    reserve(hidden.inode(), 1 << 20);
    filesystem.sync().unwrap();
    let subvolumes = filesystem.subvolumes();
    subvolumes.snapshot(&caller, RootId::FS_TREE, &top, b"shot", false).unwrap();
    names.create_file(&caller, &top, b"later", 0o644).unwrap();
    filesystem.sync().unwrap();
    let shot = subvolumes.at(b"shot").unwrap();
    // As a crash leaves it.
    let crashed = Arc::new(device.snapshot());
    hidden.close().unwrap();
    drop(top);
    filesystem.close().unwrap();
    let filesystem = open(&crashed, "ro");
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    let target = |root| UsageTarget { root, inode: ObjectId::FIRST_FREE, name: None };
    let by_tree = reader.summary(&target(shot)).unwrap();
    assert_eq!((by_tree.total_bytes, by_tree.set_shared_bytes), (400 * 8192, 400 * 8192));
    assert_eq!(by_tree, reader.list(&target(shot), &mut |_| ControlFlow::Continue(())).unwrap());
    let both = reader.summary(&target(RootId::FS_TREE)).unwrap();
    assert_eq!((both.total_bytes, both.set_shared_bytes), (2 * 400 * 8192, 400 * 8192));
    let listed = reader.list(&target(RootId::FS_TREE), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(both, listed);
    // All that has a name goes from the top level, which stays; the snapshot goes whole.
    let mut set = DeletionSet::new();
    set.add(state.forest(), &target(RootId::FS_TREE)).unwrap();
    set.add(state.forest(), &target(shot)).unwrap();
    assert_eq!(reader.freed(set, &mut |_| ()).unwrap().data_bytes, 400 * 8192);
}

#[test]
fn names_deeper_than_a_path_can_be_have_no_lines() {
    let device = Arc::new(Recipe::default().in_memory());
    let filesystem = open(&device, "");
    let (caller, names) = (superuser(), filesystem.names());
    let mut directory = filesystem.root().unwrap();
    let name = [b'n'; 250];
    for _ in 0..40 {
        directory = names.create_directory(&caller, &directory, &name, 0o755).unwrap();
    }
    let file = names.create_file(&caller, &directory, b"file", 0o644).unwrap();
    let what = Allocate::Reserve { keep_size: false };
    filesystem.files().allocate_file(&caller, &file, what, 0, 8192, WriteOrigin::Caller).unwrap();
    drop((file, directory));
    filesystem.sync().unwrap();
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    let target = UsageTarget { root: RootId::FS_TREE, inode: ObjectId::FIRST_FREE, name: None };
    let listed = reader.list(&target, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(listed, Err(UsageError::PathTooLong { .. })), "{listed:?}");
    // The first directory below the root, by its names and without lines.
    let below = UsageTarget { inode: ObjectId(257), ..target };
    for target in [target, below] {
        assert_eq!(reader.summary(&target).unwrap().total_bytes, 8192);
    }
}
