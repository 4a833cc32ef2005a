use crate::{ByteRange, ExtentState, Metrics, Options, Owner, StateBits};
use vlinder_base::metrics::Registry;
use vlinder_base::sync::Arc;
use vlinder_base::{model, thread};

const LOCK: StateBits = StateBits(1);
const WRITTEN: StateBits = StateBits(2);

fn map() -> Arc<ExtentState> {
    let options = Options { owner: Owner::default(), lock_bit: LOCK, trim: true };
    Arc::new(ExtentState::new(options, Metrics::new(&Registry::new())))
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

#[test]
fn no_interleaving_of_lockers_loses_a_wake_up() {
    model::check_random(
        || {
            let state = map();
            let threads: Vec<_> = [(0, 4), (2, 6), (5, 9)]
                .into_iter()
                .map(|(start, end)| {
                    let state = Arc::clone(&state);
                    thread::spawn("locker", move || {
                        for _ in 0..2 {
                            state.lock(range(start, end)).unwrap();
                            thread::yield_now();
                            state.unlock(range(start, end)).unwrap();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(state.record_count(), 0);
        },
        3000,
    );
}

#[test]
fn who_waits_for_bits_sees_them_cleared_in_parts() {
    model::check_random(
        || {
            let state = map();
            state.set(range(0, 8), WRITTEN).unwrap();
            let threads: Vec<_> = [(0, 3), (3, 5), (5, 8)]
                .into_iter()
                .map(|(start, end)| {
                    let state = Arc::clone(&state);
                    thread::spawn("writer", move || state.clear(range(start, end), WRITTEN).unwrap())
                })
                .collect();
            state.wait_until_clear(range(1, 7), WRITTEN);
            assert!(!state.test_any(range(1, 7), WRITTEN));
            threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() > 0));
        },
        3000,
    );
}
