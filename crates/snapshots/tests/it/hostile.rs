//! Damaged trees: errors that say what and where, and an end of everything.

use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::{Generation, ItemType, Key, Logical};
use vlinder_fs::{Filesystem, ObjectId, OpenOptions, RootId};
use vlinder_snapshots::diff::{Comparison, DiffError, OldNew, diff};
use vlinder_snapshots::{NamesError, find_new};
use vlinder_testkit::hostile::lies::all_blocks;
use vlinder_testkit::hostile::rich;
use vlinder_testkit::mutator::Mutator;

/// Images of the test.
const IMAGES: u64 = 120;
/// No image of the test has so much to tell.
const MAX_CHANGES: usize = 100_000;

/// What comparing two subvolumes ends with; none where a tree can't be found.
fn compare(filesystem: &Filesystem, old: RootId, new: RootId) -> Option<Result<usize, DiffError>> {
    let state = filesystem.lease().ok()?;
    let root = |id| state.forest().tree(id).ok().map(|tree| Arc::clone(tree.root()));
    let comparison = Comparison {
        forest: state.forest(),
        roots: OldNew { old: root(old)?, new: root(new)? },
        source: state.content_source().ok()?,
        no_readahead: false,
    };
    let mut count = 0;
    let ended = diff(&comparison, |_| {
        count += 1;
        assert!(count < MAX_CHANGES);
        Ok::<(), DiffError>(())
    });
    Some(ended.map(|()| count))
}

fn open(mutator: &Mutator) -> Option<Filesystem> {
    let options = OpenOptions { read_only: true, background: false, ..OpenOptions::default() };
    let device: Arc<dyn Device> = mutator.device();
    Filesystem::open_devices(vec![device], options).ok()
}

/// Changes numbers somewhere in a few tree blocks, whose checksums are made right.
fn damage(mutator: &Mutator, blocks: &[Logical], seed: u64) {
    let random = SeededRandom::new(seed);
    let below = |limit: usize| (random.next_u64() % limit as u64) as usize;
    for _ in 0..1 + below(6) {
        let values = [0, 1, u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 32, 4096, random.next_u64()];
        let (value, width) = (values[below(values.len())], 1 << below(4));
        let block = blocks[below(blocks.len())];
        if mutator.try_block(block).is_none() {
            continue;
        }
        mutator.change_bytes(block, |bytes| {
            let start = 0x50 + below(bytes.len() - 0x58);
            bytes[start..start + width].copy_from_slice(&value.to_le_bytes()[..width]);
        });
    }
}

#[test]
fn damage_is_told_with_its_place() {
    let sound = rich();
    let blocks = all_blocks(&Mutator::new(&sound));
    let (mut compared, mut failed) = (0, 0);
    for seed in 0..IMAGES {
        let mutator = Mutator::new(&sound);
        damage(&mutator, &blocks, seed);
        let Some(filesystem) = open(&mutator) else { continue };
        let Ok(all) = filesystem.subvolumes().all() else { continue };
        let ids: Vec<RootId> = all.iter().map(|found| found.id).collect();
        for old in &ids {
            for new in &ids {
                compared += 1;
                if let Some(Err(error)) = compare(&filesystem, *old, *new) {
                    failed += 1;
                    let text = error.to_string();
                    let has_place =
                        ["tree", "subvolume", "block", "inode"].iter().any(|word| text.contains(word));
                    assert!(has_place, "seed {seed}: {text}");
                }
            }
            if let Ok(state) = filesystem.lease() {
                let _ = find_new(state.forest(), *old, Generation(0), |_| Ok::<(), NamesError>(()));
            }
        }
    }
    println!("{compared} comparisons, {failed} met damage");
    assert!(compared > 100 && failed > 10, "{compared} and {failed}");
}

#[test]
fn a_path_in_a_circle_ends() {
    use vlinder_fs::Caller;
    use vlinder_testkit::subject::Recipe;
    let device = Arc::new(Recipe { device_bytes: 256 << 20, ..Recipe::default() }.in_memory());
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    let names = filesystem.names();
    let above = names.create_directory(&caller, &root, b"above", 0o755).unwrap();
    let below = names.create_directory(&caller, &above, b"below", 0o755).unwrap();
    filesystem.subvolumes().snapshot(&caller, RootId::FS_TREE, &root, b"old", true).unwrap();
    let old = filesystem.subvolumes().at(b"old").unwrap();
    names.create_file(&caller, &below, b"file", 0o600).unwrap();
    let (above_number, below_number) = (above.number(), below.number());
    drop((root, above, below));
    filesystem.close().unwrap();
    let mutator = Mutator::new(&device);
    let reference = mutator.find_of(above_number, ItemType::INODE_REF);
    mutator.set_key(reference, Key::new(above_number, ItemType::INODE_REF, below_number.0));
    let filesystem = open(&mutator).unwrap();
    let error = compare(&filesystem, old, RootId::FS_TREE).unwrap().unwrap_err();
    assert!(matches!(error, DiffError::Names(NamesError::PathTooLong { .. })), "{error}");
    assert!(error.to_string().contains(&format!("inode {}", ObjectId(below_number.0))), "{error}");
}
