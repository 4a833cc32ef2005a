//! The judge of the judge, for a few seconds; `make judges` goes on for longer.

use vlinder_format::features::IncompatFeatures;
use vlinder_format::quota::QuotaStatusFlags;
use vlinder_format::{ItemType, RootId};
use vlinder_testkit::judges::{Bench, Change, ChangeableImage, EXCEPTIONS, RECIPES, Verdict};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;

/// Changes of each image.
const CHANGES: u64 = 150;

#[test]
fn what_vlinder_calls_clean_btrfs_check_calls_clean() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("timeout"));
    let mut clean = 0;
    for recipe in RECIPES {
        let subject = ChangeableImage::new(&recipe.make().unwrap());
        let bench = Bench::new(&subject).unwrap();
        for seed in 0..CHANGES {
            let change = if seed % 11 == 0 { subject.two_places(seed) } else { subject.one_byte(seed) };
            match bench.judge(&change, false).unwrap() {
                Verdict::BothClean => clean += 1,
                Verdict::Ours | Verdict::Excepted(_) => {}
                other => panic!("{}, change {seed}, {}: {other:?}", recipe.name, change.name),
            }
        }
    }
    assert!(clean > 50, "{clean} changes were nothing to either; more are known to be");
}

/// A judge that calls everything clean is found out.
#[test]
fn a_blind_judge_is_found_out() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("timeout"));
    let subject = ChangeableImage::new(&RECIPES[1].make().unwrap());
    let bench = Bench::new(&subject).unwrap();
    let complaints = (0..40).filter(|seed| bench.complains(&subject.one_byte(*seed)).unwrap()).count();
    assert!((10..40).contains(&complaints), "btrfs check complains of {complaints} of 40 changes");
}

/// Each exception has an image, of which `btrfs check` says its line and nothing else, and vlinder nothing.
#[test]
fn each_exception_is_shown_by_an_image() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("timeout"));
    let counted = RECIPES.iter().find(|recipe| recipe.name.contains("quotas")).unwrap();
    let plain = RECIPES.iter().find(|recipe| recipe.name.contains("as mkfs")).unwrap();
    let marked = |flags: QuotaStatusFlags| {
        let mutator = Mutator::new(&counted.make().unwrap());
        let status = mutator.find_type(RootId::QUOTA_TREE, ItemType::QUOTA_GROUP_STATUS);
        mutator.set_u64(status, 16, QuotaStatusFlags::ON.0 | flags.0);
        mutator
    };
    let simple = Mutator::new(&plain.make().unwrap());
    simple.change_superblock(|superblock| {
        superblock.incompat = superblock.incompat.with(IncompatFeatures::SIMPLE_QUOTA);
    });
    let images = [
        ("simple quotas", simple),
        ("rescan under way", marked(QuotaStatusFlags::RESCAN)),
        ("rescan due", marked(QuotaStatusFlags::INCONSISTENT)),
    ];
    let names: Vec<&str> = EXCEPTIONS.iter().map(|exception| exception.name).collect();
    assert_eq!(names, images.each_ref().map(|(name, _)| *name));
    for (name, mutator) in images {
        let bench = Bench::new(&ChangeableImage::new(&mutator.device().snapshot())).unwrap();
        let nothing = Change { name: name.to_owned(), writes: Vec::new() };
        assert_eq!(bench.judge(&nothing, true).unwrap(), Verdict::Excepted(name));
    }
}
