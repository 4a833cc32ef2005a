use super::*;
use proptest::prelude::*;
use vlinder_base::metrics::Registry;

const LOCK: StateBits = StateBits(1 << 31);
const OWNER: Owner = Owner(5, 257);

fn map(trim: bool) -> ExtentState {
    ExtentState::new(Options { owner: OWNER, lock_bit: LOCK, trim }, Metrics::new(&Registry::new()))
}

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end).unwrap()
}

/// One set of bits for each unit of `unit` bytes: what the map must be equal to.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    units: Vec<u32>,
    unit: u64,
}

impl Model {
    fn parts(&self, within: ByteRange) -> impl Iterator<Item = (ByteRange, u32)> + '_ {
        let unit = self.unit;
        self.units.iter().zip(0..).filter_map(move |(bits, index)| {
            range(index * unit, (index + 1) * unit).intersection(within).map(|part| (part, *bits))
        })
    }

    /// Parts with equal bits joined.
    fn joined(&self, within: ByteRange) -> Vec<(ByteRange, StateBits)> {
        let mut joined: Vec<(ByteRange, StateBits)> = Vec::new();
        for (part, bits) in self.parts(within) {
            match joined.last_mut() {
                Some((last, last_bits)) if last_bits.0 == bits => *last = range(last.start(), part.end()),
                _ => joined.push((part, StateBits(bits))),
            }
        }
        joined
    }

    fn convert(&mut self, within: ByteRange, clear: u32, set: u32) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for (index, bits) in self.units.iter_mut().enumerate() {
            let start = index as u64 * self.unit;
            let Some(part) = range(start, start + self.unit).intersection(within) else { continue };
            let (before, after) = (StateBits(*bits), StateBits((*bits & !clear) | set));
            *bits = after.0;
            match changes.last_mut() {
                _ if before == after => {}
                Some(last)
                    if last.range.end() == part.start() && (last.before, last.after) == (before, after) =>
                {
                    last.range = range(last.range.start(), part.end());
                }
                _ => changes.push(Change { range: part, before, after }),
            }
        }
        changes
    }

    fn all(&self) -> ByteRange {
        range(0, self.units.len() as u64 * self.unit)
    }

    fn records(&self) -> Vec<(ByteRange, StateBits)> {
        self.joined(self.all()).into_iter().filter(|(_, bits)| !bits.is_empty()).collect()
    }

    /// Compares every question about `within` and these bits.
    fn compare(&self, state: &ExtentState, within: ByteRange, with: u32, without: u32, limit: u64) {
        let (all, none) = (StateBits(with), StateBits(without));
        let count: u64 = self
            .parts(within)
            .filter(|(_, bits)| bits & with == with)
            .map(|(part, _)| part.length_bytes())
            .sum();
        let wanted = |bits: u32| bits & with == with && bits & without == 0;
        let first = self.joined(within).into_iter().find(|(_, bits)| wanted(bits.0));
        let first = first.map(|(range, bits)| Found { range, bits });
        let mut run: Option<ByteRange> = None;
        for (part, bits) in self.parts(within) {
            if !wanted(bits) {
                if run.is_some() {
                    break;
                }
                continue;
            }
            let start = run.map_or(part.start(), ByteRange::start);
            run = Some(range(start, part.end().min(start + limit)));
            if part.end() >= start + limit {
                break;
            }
        }
        let mut position = Position::default();
        // The second time the position is warm.
        for _ in 0..2 {
            assert_eq!(state.count(within, all, &mut position), count);
            assert_eq!(state.find_first(within, all, none, &mut position), first);
            assert_eq!(state.find_run(within, all, none, limit, &mut position), run);
        }
        assert_eq!(state.test_all(within, all), self.parts(within).all(|(_, bits)| bits & with == with));
        assert_eq!(state.test_any(within, all), self.parts(within).any(|(_, bits)| bits & with != 0));
    }
}

#[derive(Clone, Debug)]
struct Step {
    within: (u64, u64),
    clear: u32,
    set: u32,
    limit: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = ((0..64_u64, 0..64_u64), 0..16_u32, 0..16_u32, 1..40_u64).prop_map(
        |((one, other), clear, set, limit)| Step {
            within: (one.min(other), one.max(other)),
            clear,
            set,
            limit,
        },
    );
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_sequence_of_changes_equals_a_plain_array(steps in steps(), trim: bool) {
        let state = map(trim);
        let mut model = Model { units: vec![0; 64], unit: 1 };
        let mut position = Position::default();
        for Step { within: (start, end), clear, set, limit } in steps {
            let within = range(start, end);
            let mut found = Vec::new();
            let bytes = state.convert(within, StateBits(clear), StateBits(set), &mut found).unwrap();
            let changes = model.convert(within, clear, set);
            prop_assert_eq!(&found, &changes);
            prop_assert_eq!(bytes, changes.iter().map(|change| change.range.length_bytes()).sum::<u64>());
            prop_assert_eq!(state.records(), model.records());
            model.compare(&state, within, clear & !set, set, limit);
            // A position kept over changes is never wrong.
            let with = StateBits(set);
            let kept = state.find_first(within, with, StateBits::EMPTY, &mut position);
            let fresh = state.find_first(within, with, StateBits::EMPTY, &mut Position::default());
            prop_assert_eq!(kept, fresh);
        }
    }
}

const DIRTY: StateBits = StateBits(1);
const WRITTEN: StateBits = StateBits(2);

/// Records allocated and removed by one clear of `within` in a map of the records [100, 200) and [300, 400).
fn cost_of_clear(trim: bool, within: ByteRange) -> (u64, u64) {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry);
    let state = ExtentState::new(Options { owner: OWNER, lock_bit: LOCK, trim }, metrics.clone());
    state.set(range(100, 200), DIRTY).unwrap();
    state.set(range(300, 400), DIRTY).unwrap();
    let before = (metrics.records_allocated.get(), metrics.records_removed.get());
    assert_eq!(before, (2, 0));
    state.clear(within, DIRTY).unwrap();
    (metrics.records_allocated.get() - before.0, metrics.records_removed.get() - before.1)
}

#[test]
fn a_clear_that_only_shortens_allocates_and_removes_nothing() {
    // (range, cost with trimming, cost with split + insert + remove)
    let cases = [
        (range(100, 150), (0, 0), (1, 1)),
        (range(150, 200), (0, 0), (1, 1)),
        (range(0, 150), (0, 0), (1, 1)),
        (range(150, 350), (0, 0), (2, 2)),
        (range(120, 180), (1, 0), (2, 1)),
        (range(100, 200), (0, 1), (0, 1)),
        (range(0, 500), (0, 2), (0, 2)),
        (range(200, 300), (0, 0), (0, 0)),
    ];
    for (within, trimmed, split) in cases {
        assert_eq!(cost_of_clear(true, within), trimmed, "{within}");
        assert_eq!(cost_of_clear(false, within), split, "{within} by splitting");
    }
}

#[test]
fn neighbours_with_equal_bits_become_one_record_in_place() {
    let state = map(true);
    state.set(range(0, 10), DIRTY).unwrap();
    state.set(range(20, 30), DIRTY).unwrap();
    state.set(range(10, 20), DIRTY).unwrap();
    assert_eq!(state.records(), [(range(0, 30), DIRTY)]);
    state.convert(range(10, 20), DIRTY, WRITTEN, &mut Vec::new()).unwrap();
    assert_eq!(state.record_count(), 3);
    state.convert(range(0, 10), DIRTY, WRITTEN, &mut Vec::new()).unwrap();
    assert_eq!(state.records(), [(range(0, 20), WRITTEN), (range(20, 30), DIRTY)]);
    // The converted head of a record goes to its neighbour: nothing is allocated.
    let allocated = state.record_count();
    state.convert(range(20, 25), DIRTY, WRITTEN, &mut Vec::new()).unwrap();
    assert_eq!(state.record_count(), allocated);
    assert_eq!(state.records(), [(range(0, 25), WRITTEN), (range(25, 30), DIRTY)]);
}

#[test]
fn going_on_from_a_position_visits_few_records_in_any_file() {
    let visits = |records: u64| {
        let state = map(true);
        for index in 0..records {
            state.set(range(index * 8192, index * 8192 + 4096), DIRTY).unwrap();
        }
        let (mut position, mut offset, mut most) = (Position::default(), 0, 0);
        while let Some(found) =
            state.find_first(range(offset, u64::MAX), DIRTY, StateBits::EMPTY, &mut position)
        {
            let before = position.visited();
            offset = found.range.end();
            most = most.max(position.visited() - before);
        }
        assert_eq!(offset, records * 8192 - 4096);
        (position.visited() / records, most)
    };
    assert_eq!(visits(100), visits(10_000));
}

#[test]
fn a_position_of_another_map_misleads_nobody() {
    let (one, other) = (map(true), map(true));
    one.set(range(0, 4096), DIRTY).unwrap();
    other.set(range(4096, 8192), DIRTY).unwrap();
    let mut position = Position::default();
    for (state, start) in [(&one, 0), (&other, 4096), (&one, 0), (&other, 4096)] {
        let found = state.find_first(range(0, u64::MAX), DIRTY, StateBits::EMPTY, &mut position);
        assert_eq!(found.map(|found| found.range.start()), Some(start));
    }
}

#[test]
fn the_ends_of_the_offset_space_work() {
    let state = map(true);
    assert_eq!(state.set(ByteRange::ALL, DIRTY), Ok(u64::MAX));
    assert_eq!(state.clear(range(u64::MAX - 1, u64::MAX), DIRTY), Ok(1));
    assert_eq!(state.clear(range(0, 1), DIRTY), Ok(1));
    assert_eq!(state.records(), [(range(1, u64::MAX - 1), DIRTY)]);
    assert_eq!(state.set(range(7, 7), WRITTEN), Ok(0));
    let mut position = Position::default();
    let last = state.find_first(range(5, u64::MAX), StateBits::EMPTY, DIRTY, &mut position);
    assert_eq!(last.map(|found| found.range), Some(range(u64::MAX - 1, u64::MAX)));
    assert_eq!(ByteRange::new(5, 4), None);
    assert_eq!(ByteRange::with_length(u64::MAX, 1), None);
}

#[test]
fn errors_name_range_bits_and_owner_and_change_nothing() {
    let state = map(true);
    state.set(range(0, 100), DIRTY).unwrap();
    state.lock(range(10, 20)).unwrap();
    let before = state.records();
    let locked = StateError::Locked { range: range(10, 15), bits: DIRTY | LOCK, owner: OWNER };
    assert_eq!(state.try_lock(range(5, 15)), Err(locked));
    assert!(locked.to_string().contains("[10, 15) of 5/257 are locked (bits 0x80000001)"), "{locked}");
    let free = StateError::NotLocked { range: range(20, 25), bits: DIRTY, owner: OWNER };
    assert_eq!(state.unlock(range(15, 25)), Err(free));
    let lock_bit = StateError::LockBit { range: range(0, 5), bits: LOCK, owner: OWNER };
    assert_eq!(state.set(range(0, 5), LOCK), Err(lock_bit));
    assert_eq!(state.records(), before);
    state.unlock(range(10, 15)).unwrap();
    assert_eq!(state.try_lock(range(5, 15)), Ok(()));
}

#[test]
fn disordered_records_are_an_error_not_a_crash() {
    let state = map(true);
    state.force(&[(range(0, 50), DIRTY), (range(40, 60), WRITTEN)]);
    let error = StateError::Disordered { range: range(40, 60), bits: WRITTEN, owner: OWNER };
    assert_eq!(state.clear(range(0, 100), DIRTY), Err(error));
}

mod threads {
    use super::*;
    use vlinder_base::sync::Arc;
    use vlinder_base::sync::atomic::{AtomicU64, Ordering};
    use vlinder_base::thread;

    #[test]
    fn a_locked_byte_has_one_holder_at_a_time() {
        let state = map(true);
        let holders: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for part in 0..4_u64 {
                let (state, holders) = (&state, &holders);
                scope.spawn(move || {
                    for turn in 0..500 {
                        let start = (part * 5 + turn * 7) % 28;
                        let within = range(start, start + 4);
                        state.lock(within).unwrap();
                        for holder in &holders[start as usize..start as usize + 4] {
                            assert_eq!(holder.fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for holder in &holders[start as usize..start as usize + 4] {
                            assert_eq!(holder.fetch_sub(1, Ordering::SeqCst), 1);
                        }
                        state.unlock(within).unwrap();
                    }
                });
            }
        });
        assert_eq!(state.record_count(), 0);
    }

    #[test]
    fn only_waiters_of_the_cleared_bytes_and_bits_are_woken() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry);
        let options = Options { owner: OWNER, lock_bit: LOCK, trim: true };
        let state = Arc::new(ExtentState::new(options, metrics.clone()));
        state.set(range(0, 100), DIRTY | WRITTEN).unwrap();
        let other = Arc::clone(&state);
        let waiter = thread::spawn("waiter", move || other.wait_until_clear(range(10, 20), WRITTEN));
        while state.waiter_count() == 0 {
            thread::yield_now();
        }
        state.clear(range(0, 100), DIRTY).unwrap();
        state.clear(range(20, 30), WRITTEN).unwrap();
        state.clear(range(0, 10), WRITTEN).unwrap();
        assert_eq!(metrics.wake_ups.get(), 0);
        state.clear(range(0, 100), WRITTEN).unwrap();
        waiter.join().unwrap();
        assert_eq!(metrics.wake_ups.get(), 1);
        assert_eq!(metrics.clear_time.snapshot().count, 4);
    }
}
