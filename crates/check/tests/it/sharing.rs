//! The report is the same however many threads make it, and what many snapshots share is read once.

use crate::common;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::units::Physical;
use vlinder_check::{FindingKind, Options, Report, check};
use vlinder_device::{Description, Device, DeviceError, MemoryDevice, Request, Ticket};
use vlinder_format::root_item::RootItem;
use vlinder_format::{ItemType as Type, Level, Logical, ObjectId, Place, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

/// Files in small leaves, one of many extents, and a directory that is moved; snapshots, and changes between
/// them.
const FILL: &str = r"
    btrfs subvolume create s > /dev/null; mkdir s/a s/b; mv s/a s/b/a
    i=0; while [ $i -lt 900 ]; do echo $i > s/name-$i; i=$((i+1)); done
    i=0; while [ $i -lt 150 ]; do
        dd if=/dev/urandom of=s/large bs=4096 count=1 seek=$((i*2)) conv=notrunc status=none; i=$((i+1))
    done
    round=0; while [ $round -lt 12 ]; do
        btrfs subvolume snapshot s t$round > /dev/null
        echo more > s/new-$round; echo changed > s/name-$((round*50)); rm s/name-$((round*50+7)); mv s/name-$((round*50+9)) s/b/
        dd if=/dev/urandom of=s/large bs=4096 count=1 seek=$((round*8)) conv=notrunc status=none
        round=$((round+1))
    done
    btrfs subvolume snapshot t3 t3/again > /dev/null; ln t5/name-77 t5/other; sync -f .
";

fn image() -> MemoryDevice {
    common::image(&["-n", "4096", "-m", "single"], FILL)
}

fn report(device: Arc<dyn Device>, threads: usize) -> Report {
    common::report_of(device, &Options { threads: Some(threads), ..Options::default() })
}

/// Counts what is read.
#[derive(Debug)]
struct Counting {
    device: MemoryDevice,
    reads: AtomicU64,
}

impl Device for Counting {
    fn describe(&self) -> Description {
        self.device.describe()
    }
    fn length(&self) -> u64 {
        self.device.length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        self.reads.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.device.submit(batch)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, length_bytes)
    }
}

/// An item of a name in the oldest snapshot.
fn of(m: &Mutator, name: &str, item_type: Type) -> Found {
    let snapshot = RootId(257);
    let entry =
        m.find(snapshot, |key, data| key.item_type == Type::DIR_INDEX && &data[30..] == name.as_bytes());
    let block = m.block(entry.leaf);
    let inode = ObjectId(u64::from_le_bytes(block.data(entry.slot)[..8].try_into().unwrap()));
    m.find(snapshot, |key, _| key.objectid == inode && key.item_type == item_type)
}

#[test]
fn what_snapshots_share_is_read_once() {
    require!(KernelBtrfs, Tool("btrfs"));
    let device = Arc::new(Counting { device: image(), reads: AtomicU64::new(0) });
    let options = Options { threads: Some(2), ..Options::default() };
    let found = check(vec![Arc::clone(&device) as _], &options).unwrap();
    assert!(found.is_clean(), "{:?}", found.findings);
    // Superblock copies come on top, and a leaf that an inode runs into from one that is not shared.
    let reads = device.reads.load(Ordering::Relaxed);
    assert!(reads <= found.blocks + found.blocks / 10 + 8, "{reads} reads of {} blocks", found.blocks);
}

#[test]
fn what_is_wrong_in_a_shared_leaf_is_found_in_each_snapshot() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image();
    let m = Mutator::new(&image);
    let leaf = of(&m, "name-777", Type::INODE_ITEM);
    m.add_u64(leaf, 24, 4096);
    let sharing = (256..270).filter(|root| {
        let found = m.find(RootId(*root), |key, _| key == leaf.key);
        found.leaf == leaf.leaf
    });
    let expected: Vec<RootId> = sharing.map(RootId).collect();
    assert!(expected.len() > 10, "{expected:?}");
    let found = report(m.device(), 2);
    let is_it = |kind: &FindingKind| matches!(kind, FindingKind::InodeBytes { inode, .. } if *inode == leaf.key.objectid);
    let mut trees: Vec<RootId> = found
        .findings
        .iter()
        .filter(|found| is_it(&found.kind))
        .filter_map(|found| found.place.tree)
        .collect();
    trees.sort_unstable();
    assert_eq!(trees, expected);
    assert_eq!(found.findings.len(), expected.len(), "{:#?}", found.findings);
}

type Damage = fn(&Mutator);

const DAMAGES: &[(&str, Damage)] = &[
    ("nothing", |_| {}),
    ("link count", |m| m.add_u32(of(m, "name-500", Type::INODE_ITEM), 40, 1)),
    ("a name", |m| m.remove(of(m, "name-500", Type::INODE_REF))),
    ("an inode", |m| m.remove(of(m, "name-501", Type::INODE_ITEM))),
    ("a directory's size", |m| m.add_u64(m.find(RootId(260), |key, _| key.objectid.0 == 256), 16, 2)),
    ("an extent of many", |m| m.remove(of(m, "large", Type::EXTENT_DATA))),
    ("an item", |m| m.set_u64(of(m, "name-600", Type::INODE_ITEM), 0, 1 << 40)),
    ("a leaf", |m| m.flip_bit(of(m, "name-700", Type::INODE_ITEM).leaf, 0, 3000)),
    ("a node", |m| {
        let root = m.block(m.root(RootId(258)));
        m.flip_bit(root.child(0).logical, 0, 1000);
    }),
    ("several", |m| {
        for number in (100..800).step_by(50) {
            m.add_u64(of(m, &format!("name-{}", number + 3), Type::INODE_ITEM), 24, 512);
        }
        m.remove(m.find_type(RootId::EXTENT_TREE, Type::EXTENT_ITEM));
        m.add_u64(of(m, "large", Type::EXTENT_DATA), 45, 4096);
    }),
];

#[test]
fn the_report_does_not_depend_on_the_number_of_threads() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image();
    for (name, damage) in DAMAGES {
        let m = Mutator::new(&image);
        damage(&m);
        let alone = report(m.device(), 1);
        assert_eq!(alone.is_clean(), *name == "nothing", "{name}: {:#?}", alone.findings);
        for threads in [2, 3, 8] {
            assert_eq!(report(m.device(), threads), alone, "{name}, {threads} threads");
        }
    }
}

/// A tree of three levels, with nodes full of names alone; and a snapshot in which every other node was
/// changed, but few leaves.
const LARGE: &str = r"
    btrfs subvolume create s > /dev/null; long=$(printf '%0245d' 0); data=$(printf '%01800d' 0)
    i=0; while [ $i -lt 1800 ]; do printf $data > s/$long-$i; i=$((i+1)); done; sync -f .
    btrfs subvolume snapshot s t > /dev/null
    i=0; while [ $i -lt 1800 ]; do printf x > t/$long-$i; i=$((i+80)); done; sync -f .
";

#[test]
fn what_large_snapshots_share_is_read_once() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = common::image(&["-n", "4096", "-m", "single"], LARGE);
    let m = Mutator::new(&image);
    let (one, two) = (RootId(256), RootId(257));
    let [first, second] = [one, two].map(|tree| m.block(m.root(tree)));
    assert_eq!((first.level().0, second.level().0), (2, 2));
    let report = |threads| {
        let options = Options { threads: Some(threads), ..Options::default() };
        let mut report = check(vec![m.device()], &options).unwrap();
        report.findings.retain(|finding| finding.kind.id() != "free-space-leftover");
        report
    };
    let found = report(1);
    assert_eq!(found.findings, []);
    assert_eq!(report(4), found);

    // Half of the snapshot is deleted, up to a leaf in the middle of a node of its own.
    let deleted = Mutator::new(&image);
    let is_own = |child: Logical| m.block(child).owner() == two;
    let edge = (2..second.len()).find(|slot| is_own(second.child(*slot).logical)).expect("a node of its own");
    let half = m.block(second.child(edge).logical);
    deleted.change_item(
        deleted.find(RootId::ROOT_TREE, |key, _| {
            key.objectid == two.object_id() && key.item_type == Type::ROOT_ITEM
        }),
        |data| {
            let mut item = RootItem::decode(data).unwrap();
            (item.reference_count, item.drop_progress, item.drop_level) = (0, half.key(3), Level(1));
            data.copy_from_slice(&item.encode());
        },
    );
    let mut freed: Vec<Logical> = (0..edge).map(|slot| second.child(slot).logical).collect();
    let own = freed.clone().into_iter().filter(|child| is_own(*child)).map(|child| m.block(child));
    freed.extend(own.flat_map(|node| node.children().map(|child| child.logical).collect::<Vec<_>>()));
    freed.extend((0..3).map(|slot| half.child(slot).logical));
    freed.sort_unstable();
    let options = Options::default();
    let found = check(vec![deleted.device()], &options).unwrap().findings.into_iter();
    let mut extra: Vec<Logical> = found
        .filter(|found| !["free-space-leftover", "root-orphan"].contains(&found.kind.id()))
        .map(|found| match found.kind {
            FindingKind::ReferenceExtra { logical, user, expected: 0, found: 1 } if user == "tree 257" => {
                logical
            }
            kind => panic!("{kind}"),
        })
        .collect();
    extra.sort_unstable();
    assert_eq!(extra, freed);

    // A node full of names that both have can't be read.
    let children: Vec<_> = second.children().map(|child| child.logical).collect();
    let is_shared_name = |child: &vlinder_format::block::ChildPointer| {
        child.key.item_type == Type::DIR_ITEM && children.contains(&child.logical)
    };
    let shared = first.children().find(is_shared_name).expect("a node of names that both have");
    m.flip_bit(shared.logical, 0, 1000);
    let found = report(4);
    assert_eq!(report(1), found);
    let at = |tree| Place { tree: Some(tree), block: Some(shared.logical), ..Place::default() };
    let unreadable: Vec<Place> = found
        .findings
        .iter()
        .filter(|found| found.kind.id() == "block-unreadable")
        .map(|found| found.place)
        .collect();
    assert_eq!(unreadable, [at(one), at(two)]);
}
