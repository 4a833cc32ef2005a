//! A device that fails at its first, second, third … request: nothing panics, every error has a type, and
//! what was reported durable stays.

use vlinder_base::sync::Arc;
use vlinder_device::{DeviceErrorKind, Operation as DeviceOperation};
use vlinder_testkit::simulated::Repeat;
use vlinder_testkit::subject::{Recipe, Subject, check_image};
use vlinder_testkit::workload::{Generator, Limits, Model};
use vlinder_testkit::{Scratch, SimulatedDevice, require};

const START: i64 = 1_700_000_000;

/// What a run with a fault came to.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The fault was not met.
    NotMet,
    /// It was met, and nobody noticed (another copy was read).
    Unnoticed,
    /// Some operation failed.
    Failed,
}

fn limits() -> Limits {
    Limits {
        inodes: 60,
        bytes: 4 << 20,
        write_bytes: 64 << 10,
        file_bytes: 512 << 10,
        subvolumes: 4,
        names: 10,
        fsync_every: 0,
        direct_every: 0,
    }
}

/// Opens the image, works, commits twice; then looks at what is durable. The fault is met somewhere in
/// between.
fn run(recipe: &Recipe, operation: DeviceOperation, number: u64, repeat: Repeat, scratch: &Scratch) -> End {
    let device = Arc::new(SimulatedDevice::from_image(recipe.in_memory()));
    device.fail_at(Some(operation), number, repeat, DeviceErrorKind::Io { errno: 5 });
    let what = format!("{operation:?} {number} {repeat:?}");
    let is_sound = work(&device, &what);
    let is_met = device.count(operation) > number;
    device.heal();
    if let Err(error) = check_image(scratch, &device.durable_image()) {
        panic!("{what}: {error}");
    }
    match (is_met, is_sound) {
        (true, true) => End::Unnoticed,
        (true, false) => End::Failed,
        (false, true) => End::NotMet,
        (false, false) => panic!("{what}: something failed without a fault"),
    }
}

/// Little memory, so that much is read again.
const OPTIONS: &str = "cache=256k,dirty=1m";

/// Works and commits; gives whether everything went well.
fn work(device: &Arc<SimulatedDevice>, what: &str) -> bool {
    let Ok(mut subject) = Subject::open(Arc::clone(device) as _, OPTIONS, 1, (START, 0)) else {
        return false;
    };
    let mut model = Model::new(0o755, (START, 0));
    if subject.learn(&mut model, &[Model::root_directory(5)]).is_err() {
        return false;
    }
    let mut generator = Generator::new(5, limits());
    let mut is_sound = true;
    for commit in 1..=3 {
        for step in 0..25 {
            let now = (START + commit * 1000 + step, 0);
            let operation = generator.next(&mut model);
            subject.set_time(now);
            // From the first error on the model knows no more what there is; that nothing panics is what
            // counts.
            let outcome = subject.carry_out(&model, &operation);
            is_sound &= match outcome {
                Ok(outcome) => match model.take_in(&operation, now, &outcome) {
                    Ok(touched) => subject.learn(&mut model, &touched).is_ok(),
                    Err(_) => false,
                },
                Err(_) => false,
            };
        }
        let went_well = commit_is_true(&subject, device, is_sound.then_some(&model), what);
        is_sound &= went_well;
    }
    is_sound && subject.compare(&model).is_ok()
}

/// Commits, twice if the first fails: what is reported durable must be so. Gives whether the first went well.
fn commit_is_true(subject: &Subject, device: &SimulatedDevice, model: Option<&Model>, what: &str) -> bool {
    let first = subject.commit();
    let reason = subject.filesystem.engine().read_only_reason();
    let succeeded = match &first {
        Ok(()) => true,
        Err(error) => {
            let second = subject.commit();
            assert!(
                second.is_err() || reason.is_none(),
                "{what}: read-only after {error}, and a commit reports success"
            );
            second.is_ok()
        }
    };
    if let (true, Some(model)) = (succeeded, model) {
        let opened = Subject::open(Arc::new(device.durable_image()), "ro", 1, (START, 0));
        let opened = opened.unwrap_or_else(|error| panic!("{what}: durable, and does not open: {error}"));
        let mut closed = model.clone();
        closed.close_all();
        if let Err(error) = opened.compare(&closed) {
            panic!("{what}: reported durable (first {first:?}), but {error}");
        }
    }
    first.is_ok()
}

/// The fault comes later and later until a run meets none.
fn rising(operation: DeviceOperation, repeat: Repeat, stride: usize) {
    let scratch = Scratch::in_memory("faults");
    let recipe = Recipe { device_bytes: 256 << 20, node_size: 4096, ..Recipe::default() };
    let (mut failed, mut unnoticed) = (0, 0);
    for number in (0..20_000).step_by(stride) {
        match run(&recipe, operation, number, repeat, &scratch) {
            End::NotMet => {
                println!(
                    "{operation:?} {repeat:?}: {failed} runs failed, {unnoticed} did not notice, the next met no fault"
                );
                assert!(failed > 0);
                return;
            }
            End::Failed => failed += 1,
            End::Unnoticed => unnoticed += 1,
        }
    }
    panic!("every run meets a fault");
}

#[test]
fn reads_fail_once() {
    require!(Tool("btrfs"));
    rising(DeviceOperation::Read, Repeat::Once, 1);
}

#[test]
fn reads_fail_from_then_on() {
    require!(Tool("btrfs"));
    rising(DeviceOperation::Read, Repeat::Sticky, 1);
}

#[test]
fn writes_fail_once() {
    require!(Tool("btrfs"));
    rising(DeviceOperation::Write, Repeat::Once, 1);
}

#[test]
fn writes_fail_from_then_on() {
    require!(Tool("btrfs"));
    rising(DeviceOperation::Write, Repeat::Sticky, 1);
}

#[test]
fn flushes_fail() {
    require!(Tool("btrfs"));
    rising(DeviceOperation::Flush, Repeat::Once, 1);
    rising(DeviceOperation::Flush, Repeat::Sticky, 1);
}
