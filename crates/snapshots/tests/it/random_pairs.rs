//! Random images: what the comparison of trees tells is what a walk of both finds.
//!
//! A slice runs with the others. All of them: `IMAGES=500 cargo test -p vlinder-snapshots --test it
//! random_pairs::`, and one again: `SEED=N`.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::{Filesystem, RootId};
use vlinder_snapshots::diff::{self as told_of, Change, ChangeKind, Comparison, DiffError, OldNew, diff};
use vlinder_testkit::subject::{Recipe, Subject};
use vlinder_testkit::workload::{Generator, Limits, Model, Operation, Place, Token};

use crate::oracle::{Walked, comparable, difference};

/// Images of the slice.
const IMAGES: u64 = 60;
/// Snapshots of an image, and operations before each.
const SNAPSHOTS: u32 = 3;
const OPERATIONS: u64 = 60;
const START: i64 = 1_700_000_000;

const LIMITS: fn() -> Limits = || Limits {
    inodes: 300,
    bytes: 12 << 20,
    write_bytes: 96 << 10,
    file_bytes: 1 << 20,
    subvolumes: 4,
    names: 12,
    ..Limits::default()
};

/// What the comparison of the trees tells.
pub fn told(filesystem: &Filesystem, old: RootId, new: RootId) -> Vec<Change> {
    let state = filesystem.lease().unwrap();
    let root = |id| Arc::clone(state.forest().tree(id).unwrap().root());
    let comparison = Comparison {
        forest: state.forest(),
        roots: OldNew { old: root(old), new: root(new) },
        source: state.content_source().unwrap(),
        no_readahead: false,
    };
    let mut changes = Vec::new();
    diff(&comparison, |change| {
        changes.push(change);
        Ok::<(), DiffError>(())
    })
    .unwrap();
    state.confirm().unwrap();
    changes
}

struct Workload {
    device: Arc<MemoryDevice>,
    recipe: Recipe,
    seed: u64,
    model: Model,
    generator: Generator,
    subject: Subject,
    step: u64,
}

impl Workload {
    fn new(seed: u64) -> Self {
        let options = ["", "compress=zstd", "compress-force=lzo,max_inline=4000", "nodatasum"];
        let options = options[(seed % 4) as usize].to_owned();
        let recipe = Recipe { device_bytes: 512 << 20, options, identity: seed, ..Recipe::default() };
        let device = Arc::new(recipe.in_memory());
        let mut model = Model::new(0o755, (START, 0));
        let opened = Arc::<MemoryDevice>::clone(&device) as Arc<dyn Device>;
        let subject = Subject::open(opened, &recipe.options, seed, (START, 0)).unwrap();
        subject.learn(&mut model, &[Model::root_directory(5)]).unwrap();
        let generator = Generator::new(seed, LIMITS());
        Self { device, recipe, seed, model, generator, subject, step: 0 }
    }

    fn perform(&mut self, operation: &Operation) {
        self.step += 1;
        let now = (START + self.step as i64, 0);
        self.subject.set_time(now);
        let outcome = self.subject.carry_out(&self.model, operation).unwrap();
        let touched = self.model.take_in(operation, now, &outcome).unwrap();
        self.subject.learn(&mut self.model, &touched).unwrap();
    }

    fn work(&mut self) {
        for _ in 0..OPERATIONS {
            let operation = self.generator.next(&mut self.model);
            self.perform(&operation);
        }
    }

    /// Numbers of inodes are given again after this.
    fn reopen(mut self) -> Self {
        self.subject.close().unwrap();
        self.model.close_all();
        let opened = Arc::<MemoryDevice>::clone(&self.device) as Arc<dyn Device>;
        let now = (START + self.step as i64, 0);
        self.subject = Subject::open(opened, &self.recipe.options, self.seed + 1, now).unwrap();
        self
    }
}

/// How many changes of each kind there were, and pairs of subvolumes.
#[derive(Debug, Default)]
struct Totals {
    pairs: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Totals {
    fn add(&mut self, change: &Change) {
        let differences = &change.differences;
        let kinds = [
            ("added", change.kind == ChangeKind::Added),
            ("removed", change.kind == ChangeKind::Removed),
            ("renamed", change.kind == ChangeKind::Renamed),
            ("replaced", change.kind == ChangeKind::Replaced),
            ("changed", change.kind == ChangeKind::Changed),
            ("further names", !change.added_names.is_empty() || !change.removed_names.is_empty()),
            ("subvolumes", matches!(change.subject, told_of::Subject::Subvolume { .. })),
            ("content", differences.changed_bytes > 0),
            ("size", differences.size_bytes.is_some()),
            ("permissions", differences.permissions.is_some()),
            ("owner", differences.owner.is_some()),
            ("flags", differences.flags.is_some()),
            ("attributes", !differences.attributes.is_empty()),
            ("target", differences.target.is_some()),
            ("type", differences.file_type.is_some()),
            ("times", differences.times),
        ];
        for (kind, is_it) in kinds {
            *self.kinds.entry(kind).or_default() += usize::from(is_it);
        }
    }
}

/// Compares all pairs of subvolumes that an image has in the end.
fn compare_all(seed: u64, totals: &mut Totals) {
    let mut workload = Workload::new(seed);
    for number in 0..SNAPSHOTS {
        workload.work();
        workload.perform(&Operation::Snapshot {
            source: Token::ROOT,
            directory: Place::default(),
            name: format!("shot-{number}").into_bytes(),
            read_only: true,
            token: Token(1_000_000 + number),
        });
        if seed % 2 == 1 {
            workload = workload.reopen();
        }
    }
    workload.work();
    let filesystem = &workload.subject.filesystem;
    filesystem.sync().unwrap();
    let sector_bytes = filesystem.sector_size() as usize;
    let ids: Vec<RootId> = workload.model.subvolumes().keys().map(|id| RootId(*id)).collect();
    let walks: Vec<(RootId, Walked)> = ids.iter().map(|id| (*id, Walked::of(filesystem, *id))).collect();
    for (old, is) in &walks {
        for (new, becomes) in &walks {
            let expected = comparable(difference(is, becomes, sector_bytes), (is, becomes));
            let found = comparable(told(filesystem, *old, *new), (is, becomes));
            if found != expected {
                let missing = expected.iter().filter(|change| !found.contains(change));
                let wrong = found.iter().filter(|change| !expected.contains(change));
                panic!(
                    "seed {seed}, subvolumes {old} and {new}: not told: {:#?}\ntold: {:#?}",
                    missing.collect::<Vec<_>>(),
                    wrong.collect::<Vec<_>>()
                );
            }
            assert!(old != new || found.is_empty(), "seed {seed}: {old} differs from itself");
            totals.pairs += 1;
            found.iter().for_each(|change| totals.add(change));
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn what_is_told_is_what_a_walk_of_both_finds() {
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IMAGES").unwrap_or(IMAGES),
    };
    let images = seeds.end - seeds.start;
    let mut totals = Totals::default();
    seeds.for_each(|seed| compare_all(seed, &mut totals));
    println!("{images} images: {totals:#?}");
    let rare: Vec<_> = totals.kinds.iter().filter(|(_, count)| (**count as u64) < images / 20).collect();
    assert!(rare.is_empty(), "seldom or never: {rare:?}");
}
