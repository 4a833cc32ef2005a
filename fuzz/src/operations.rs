//! Operations on a sound image, chosen by the input: the model says what each must do, and what must be seen
//! after each commit; `vlinder check` judges each commit, and now and then `btrfs check`.
//!
//! An input is: which image, and the choices of the workload's generator until its end.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_device::MemoryDevice;
use vlinder_testkit::Scratch;
use vlinder_testkit::subject::{Recipe, Subject, check_image, own_check};
use vlinder_testkit::workload::{Generator, Limits, Model};

use crate::input::Input;

/// Operations of one input.
const MAX_OPERATIONS: u64 = 80;
const START: i64 = 1_700_000_000;

const LIMITS: Limits = Limits {
    inodes: 60,
    bytes: 4 << 20,
    write_bytes: 128 << 10,
    file_bytes: 1 << 20,
    subvolumes: 4,
    names: 10,
    fsync_every: 0,
    direct_every: 0,
};

/// The target.
///
/// # Panics
/// Where a judge finds something wrong.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::of_seed(u64::from(input.u8())) };
    if let Err(complaint) = work(&recipe, input.rest()) {
        panic!("{recipe:?}: {complaint}");
    }
}

fn work(recipe: &Recipe, script: &[u8]) -> Result<(), String> {
    let device = Arc::new(recipe.in_memory());
    let mut subject = open(&device, recipe, 0)?;
    let mut model = Model::new(0o755, (START, 0));
    subject.learn(&mut model, &[Model::root_directory(5)]).map_err(|error| error.to_string())?;
    let mut generator = Generator::scripted(script, LIMITS);
    let mut number = 0;
    while number < MAX_OPERATIONS && !generator.is_over() {
        number += 1;
        let now = (START + number as i64, (number % 1000) as u32 * 1_000_000);
        let operation = generator.next(&mut model);
        subject.set_time(now);
        let told = |text: String| format!("{number}: {operation:?}: {text}");
        let outcome = subject.carry_out(&model, &operation).map_err(told)?;
        let touched = model.take_in(&operation, now, &outcome).map_err(|error| told(error.to_string()))?;
        subject.learn(&mut model, &touched).map_err(|error| told(error.to_string()))?;
        if number.is_multiple_of(16) {
            subject.commit().map_err(|error| told(error.to_string()))?;
            own_check(Arc::clone(&device) as _).map_err(told)?;
            subject.compare(&model).map_err(|error| told(error.to_string()))?;
        }
    }
    subject.close().map_err(|error| format!("closing: {error}"))?;
    model.close_all();
    own_check(Arc::clone(&device) as _)?;
    let again = open(&device, recipe, number)?;
    again.compare(&model).map_err(|error| format!("opened again: {error}"))?;
    again.close().map_err(|error| format!("closing again: {error}"))?;
    sample(&device)
}

fn open(device: &Arc<MemoryDevice>, recipe: &Recipe, number: u64) -> Result<Subject, String> {
    let now = (START + number as i64, 0);
    Subject::open(Arc::clone(device) as _, &recipe.options, number, now).map_err(|error| error.to_string())
}

/// Shows one of so many images to `btrfs check`; none where the environment does not say how many.
fn sample(device: &MemoryDevice) -> Result<(), String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let every =
        std::env::var("VLINDER_FUZZ_BTRFS_CHECK").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if every == 0 || !COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(every) {
        return Ok(());
    }
    check_image(&Scratch::in_memory("fuzz"), device)
}
