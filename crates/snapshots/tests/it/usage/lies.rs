//! Every field × every lie, measured: no panic, and no end that does not come. `LIES=1` tells every one of
//! them, `LIES=40` (as without it) each fortieth.

use std::ops::ControlFlow;
use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::{ItemType, ObjectId, RootId};
use vlinder_fs::{Filesystem, OpenOptions, SubvolumeChoice};
use vlinder_snapshots::usage::{DeletionSet, UsageLine, UsageReader, UsageTarget};
use vlinder_testkit::hostile::lies::{Lie, targets};
use vlinder_testkit::hostile::rich;
use vlinder_testkit::mutator::Mutator;

/// A thousand times what the sound image takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines after which a listing has told enough.
const MAX_LINES: usize = 100_000;

/// Measures all there is, in each way; tells how many measurements came to an end without an error.
fn measure(device: &Arc<MemoryDevice>, all: &[(RootId, ObjectId)]) -> usize {
    let options = OpenOptions {
        read_only: true,
        background: false,
        subvolume: SubvolumeChoice::Number(RootId::FS_TREE),
        ..OpenOptions::default()
    };
    let Ok(filesystem) = Filesystem::open_devices(vec![Arc::clone(device) as _], options) else { return 0 };
    let Ok(state) = filesystem.lease() else { return 0 };
    let Ok(mut reader) = UsageReader::new(state.forest(), &|_| ()) else { return 0 };
    let mut ended = 0;
    let mut whole = DeletionSet::new();
    for (root, inode) in all {
        let target = UsageTarget { root: *root, inode: *inode, name: None };
        let mut lines = 0;
        let mut each = |_: &UsageLine<'_>| {
            lines += 1;
            if lines < MAX_LINES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        ended += usize::from(reader.list(&target, &mut each).is_ok());
        ended += usize::from(reader.summary(&target).is_ok());
        let mut set = DeletionSet::new();
        let added = set.add(state.forest(), &target);
        ended += usize::from(added.is_ok() && reader.freed(set, &mut |_| ()).is_ok());
        let _ = whole.add(state.forest(), &target);
    }
    ended + usize::from(reader.freed(whole, &mut |_| ()).is_ok())
}

#[test]
fn no_lie_panics_or_goes_on_for_ever() {
    let stride = std::env::var("LIES").ok().and_then(|stride| stride.parse().ok()).unwrap_or(40);
    let sound = rich();
    let mutator = Mutator::new(&sound);
    let roots = mutator.all(RootId::ROOT_TREE, |key, _| {
        key.item_type == ItemType::ROOT_ITEM && RootId(key.objectid.0).is_subvolume()
    });
    let mut all: Vec<(RootId, ObjectId)> =
        roots.iter().map(|found| (RootId(found.key.objectid.0), ObjectId::FIRST_FREE)).collect();
    let inodes = mutator.all(RootId::FS_TREE, |key, _| key.item_type == ItemType::INODE_ITEM);
    all.extend(inodes.iter().take(12).map(|found| (RootId::FS_TREE, found.key.objectid)));
    let wanted = all.len() * 3 + 1;
    assert!(roots.len() > 2 && measure(&mutator.device(), &all) == wanted, "the sound image");
    let (clock, fields) = (SystemClock::new(), targets(&mutator, 1));
    let (mut images, mut partly) = (0, 0);
    let lies = fields.iter().flat_map(|field| Lie::ALL.map(|lie| (field, lie)));
    for (field, lie) in lies.skip(stride / 2).step_by(stride) {
        let mutator = Mutator::new(&sound);
        if !field.tell(&mutator, lie) {
            continue;
        }
        let start = clock.monotonic();
        let ended = measure(&mutator.device(), &all);
        let took = clock.monotonic() - start;
        assert!(took < PATIENCE, "{} says {lie:?}: {took:?}", field.name);
        images += 1;
        partly += usize::from(ended > 0 && ended < wanted);
    }
    println!("{} fields, {images} images, {partly} measured in part", fields.len());
    assert!(images > 10, "{images}");
}
