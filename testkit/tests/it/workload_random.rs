//! Random workloads over every operation, judged after each commit by `btrfs check` and by the model, at the
//! end by the kernel.

use vlinder_testkit::require;
use vlinder_testkit::subject::{Bulk, Judges, Plan, Recipe, Totals, shrink};
use vlinder_testkit::workload::Limits;

/// Runs a plan; a failure is shown with the fewest steps that a little time finds.
fn run(plan: &Plan) -> Totals {
    match plan.run() {
        Ok(totals) => totals,
        Err(failure) => {
            eprintln!("{}", failure.reason);
            panic!("{}", shrink(&failure, std::time::Duration::from_secs(60)));
        }
    }
}

#[test]
fn every_commit_of_a_random_workload_is_sound() {
    require!(LongRun, Tool("btrfs"), KernelBtrfs);
    let mut totals = Totals::default();
    for seed in 1..=6 {
        let plan = Plan {
            seed,
            recipe: Recipe::of_seed(seed),
            limits: Limits { bytes: 48 << 20, fsync_every: 25, direct_every: 4, ..Limits::default() },
            commits: 14,
            operations: 200,
            judges: Judges { check: true, compare_every: 4, reopen_every: 5, kernel: true },
        };
        totals.merge(&run(&plan));
    }
    println!("{totals}");
}

/// The operations that a promise of coverage is about come often enough, whatever the seeds.
#[test]
fn every_kind_of_operation_succeeds_a_hundred_times() {
    require!(LongRun);
    let mut totals = Totals::default();
    for seed in 100..105 {
        let plan = Plan {
            seed,
            recipe: Recipe::of_seed(seed),
            limits: Limits {
                inodes: 2000,
                bytes: 32 << 20,
                write_bytes: 128 << 10,
                subvolumes: 20,
                fsync_every: 25,
                direct_every: 4,
                ..Limits::default()
            },
            commits: 60,
            operations: 400,
            judges: Judges { check: false, compare_every: 10, reopen_every: 9, kernel: false },
        };
        totals.merge(&run(&plan));
    }
    println!("{totals}");
    assert_eq!(totals.histogram.rarer_than(100), []);
    assert!(totals.counter("tree.merges") >= 100, "{totals}");
}

#[test]
fn trees_grow_tall_and_fall_again() {
    require!(LongRun, Tool("btrfs"), KernelBtrfs);
    let totals = Bulk::short(1).run().unwrap_or_else(|error| panic!("{error}"));
    println!("{totals}");
    assert!(totals.counter("tree.merges") >= 100);
    assert!(totals.counter("chunks.removed") >= 1);
    assert!(totals.counter("free_space_tree.to_bitmaps") >= 1);
}
