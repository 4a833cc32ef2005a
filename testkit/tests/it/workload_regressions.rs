//! What random workloads once found, as short as it gets.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_format::{ItemType, Key, ObjectId, RootId};
use vlinder_fs::{Inode, data};
use vlinder_testkit::require;
use vlinder_testkit::subject::{Judges, Plan, Recipe, Step, Subject, own_check};
use vlinder_testkit::workload::{Limits, Operation, Place, Token};

const ROOT: Place = Place { subvolume: Token::ROOT, object: Token::ROOT };

/// Carries these operations out on a new image; a commit and the judges come at the end.
fn replay(recipe: Recipe, operations: Vec<Operation>) {
    let judges = Judges { check: true, compare_every: 1, reopen_every: 0, kernel: false };
    let plan = Plan { seed: 1, recipe, limits: Limits::default(), commits: 0, operations: 0, judges };
    let steps: Vec<(u64, Step)> = (1..).zip(operations.into_iter().map(Step::Do)).collect();
    if let Err(failure) = plan.replay(&steps) {
        panic!("{failure}");
    }
}

fn name(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// What was pending of the deleted tree was forgotten, and its changed leaves were not sound without it.
#[test]
fn a_subvolume_is_deleted_in_the_transaction_that_changed_it() {
    require!(Tool("btrfs"));
    let subvolume = Place { subvolume: Token(1), object: Token::ROOT };
    let files = (0..100).map(|number| Operation::CreateFile {
        directory: subvolume,
        name: name(&format!("file-{number}")),
        permissions: 0o644,
        token: Token(10 + number),
    });
    let mut operations = vec![
        Operation::CreateSubvolume { directory: ROOT, name: name("s"), token: Token(1) },
        Operation::Sync,
    ];
    operations.extend(files);
    operations.extend([Operation::DeleteSubvolume { directory: ROOT, name: name("s") }, Operation::Clean]);
    replay(Recipe { node_size: 4096, ..Recipe::default() }, operations);
}

/// Nothing of mode, group or ACLs comes from the directory that holds a new subvolume's name.
#[test]
fn a_subvolume_does_not_inherit_from_its_directory() {
    require!(Tool("btrfs"));
    let directory = Place { subvolume: Token::ROOT, object: Token(1) };
    replay(
        Recipe::default(),
        vec![
            Operation::CreateDirectory {
                directory: ROOT,
                name: name("d"),
                permissions: 0o755,
                token: Token(1),
            },
            Operation::SetOwner { file: directory, user: None, group: Some(1000) },
            Operation::SetPermissions { file: directory, permissions: 0o2777 },
            Operation::CreateSubvolume { directory, name: name("s"), token: Token(2) },
        ],
    );
}

/// The property follows the flag, and a new directory gets the flags of the property that it inherits.
#[test]
fn flags_and_the_compression_property_agree() {
    require!(Tool("btrfs"));
    let directory = Place { subvolume: Token::ROOT, object: Token(1) };
    let below = Place { subvolume: Token::ROOT, object: Token(2) };
    replay(
        Recipe::default(),
        vec![
            Operation::SetCompression { file: ROOT, value: name("lzo") },
            Operation::CreateDirectory {
                directory: ROOT,
                name: name("d"),
                permissions: 0o755,
                token: Token(1),
            },
            Operation::SetFlags { file: directory, set: 0, clear: u64::MAX },
            Operation::CreateDirectory { directory, name: name("e"), permissions: 0o755, token: Token(2) },
            Operation::SetFlags { file: below, set: 1 << 11, clear: 0 },
            Operation::CreateFile { directory: below, name: name("f"), permissions: 0o644, token: Token(3) },
        ],
    );
}

/// A file without names that is open when a snapshot is taken is nobody's there: it goes from the snapshot at
/// once, a read-only one too, as on Linux. (Left there, and a snapshot of that one taken, btrfs check saw
/// errors.)
#[test]
fn a_snapshot_keeps_no_file_without_names() {
    let device = Arc::new(Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory());
    let subject = Subject::open(Arc::clone(&device) as _, "", 1, (0, 0)).unwrap();
    let (filesystem, caller) = (&subject.filesystem, subject.caller());
    let root = filesystem.root().unwrap();
    let open = filesystem.names().create_temporary(caller, &root, 0o600).unwrap();
    let first = filesystem.subvolumes().snapshot(caller, RootId::FS_TREE, &root, b"first", true).unwrap();
    let second = filesystem.subvolumes().snapshot(caller, first.root, &root, b"second", true).unwrap();
    // What goes from a tree is pending until it is committed.
    filesystem.sync().unwrap();
    for snapshot in [first, second] {
        let tree = filesystem.engine().tree(snapshot.root).unwrap();
        let orphans = Key::new(ObjectId::ORPHAN, ItemType::ORPHAN_ITEM, 0);
        let found = filesystem.engine().forest().trees().ceiling(tree.root(), &orphans).unwrap();
        assert!(found.is_none_or(|position| position.key().objectid != ObjectId::ORPHAN));
    }
    open.close().unwrap();
    subject.close().unwrap();
    own_check(Arc::new(device.snapshot())).unwrap();
}

/// A file that lost its last name gets none again, though it is still open; one that never had a name gets
/// its first.
#[test]
fn an_open_file_that_lost_its_names_gets_none_again() {
    require!(Tool("btrfs"));
    let (lost, temporary) = (Token(1), Token(2));
    let place = |object| Place { subvolume: Token::ROOT, object };
    replay(
        Recipe::default(),
        vec![
            Operation::CreateFile { directory: ROOT, name: name("a"), permissions: 0o644, token: lost },
            Operation::Open { file: place(lost), slot: 0 },
            Operation::Unlink { directory: ROOT, name: name("a") },
            Operation::Link { file: place(lost), directory: ROOT, name: name("b") },
            Operation::CreateTemporary { directory: ROOT, permissions: 0o600, token: temporary, slot: 1 },
            Operation::Link { file: place(temporary), directory: ROOT, name: name("c") },
            Operation::Unlink { directory: ROOT, name: name("c") },
            Operation::Link { file: place(temporary), directory: ROOT, name: name("d") },
        ],
    );
}

/// A compressed inline extent that is cut stays compressed: plain, its bytes did not fit a leaf of 4 KiB.
#[test]
fn a_compressed_inline_extent_is_cut() {
    require!(Tool("btrfs"));
    let file = Place { subvolume: Token::ROOT, object: Token(1) };
    let pattern = vlinder_testkit::workload::Pattern::Words(1);
    for algorithm in ["zlib", "lzo", "zstd"] {
        replay(
            Recipe { node_size: 4096, ..Recipe::default() },
            vec![
                Operation::CreateFile {
                    directory: ROOT,
                    name: name("a"),
                    permissions: 0o644,
                    token: Token(1),
                },
                Operation::SetCompression { file, value: name(algorithm) },
                Operation::Write { file, offset: 0, length: 4096, pattern, direct: false },
                Operation::Sync,
                Operation::Truncate { file, size: 4095 },
                Operation::Sync,
                Operation::Truncate { file, size: 4096 },
            ],
        );
    }
}

/// A flush that comes between the bytes of a write and its size took the bytes with the old size, and nobody
/// wrote the new one afterwards: what was appended was lost, fsync or not.
#[test]
fn what_is_appended_while_others_flush_is_durable() {
    const FILES: usize = 3000;
    let device = Arc::new(Recipe { device_bytes: 512 << 20, ..Recipe::default() }.in_memory());
    let subject = Subject::open(Arc::clone(&device) as _, "", 1, (0, 0)).unwrap();
    let root = subject.filesystem.root().unwrap();
    let write = |inode: &Arc<Inode>, offset: u64, bytes: Vec<u8>| {
        let _operation = inode.operation.write();
        data::write(&subject.filesystem, inode, offset, bytes.into()).unwrap();
    };
    let make = |number: usize| {
        let name = number.to_string();
        let file =
            subject.filesystem.names().create_file(subject.caller(), &root, name.as_bytes(), 0o644).unwrap();
        write(&file, 0, vec![1; 5000]);
        file
    };
    let files: Vec<Arc<Inode>> = (0..FILES).map(make).collect();
    subject.commit().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (flushed, stopped) = (subject.filesystem.clone(), Arc::clone(&stop));
    let flusher = vlinder_base::thread::spawn("flusher", move || {
        while !stopped.load(Ordering::Relaxed) {
            data::flush_all(&flushed).unwrap();
        }
    });
    for file in &files {
        // The first write is what has it flushed, the second one what comes in between.
        write(file, 0, vec![2]);
        write(file, 5000, vec![2]);
    }
    stop.store(true, Ordering::Relaxed);
    flusher.join().unwrap();
    let ids: Vec<_> = files.iter().map(|file| file.id()).collect();
    drop((files, root));
    subject.close().unwrap();
    let subject = Subject::open(device, "", 1, (0, 0)).unwrap();
    let short: Vec<_> =
        ids.iter().filter(|id| subject.filesystem.inode(**id).unwrap().size() != 5001).collect();
    assert!(short.is_empty(), "{} of {FILES} files have lost what was appended", short.len());
}
