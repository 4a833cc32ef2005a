//! The map against a plain array of bits: every call in every state of a few sectors, and a long random walk
//! over more.

use super::*;
use vlinder_base::metrics::Registry;
use vlinder_base::random::{Random, SeededRandom};

const SECTOR_BYTES: u64 = 4096;
const OWNER: Owner = Owner(5, 257);

/// The bits of each sector; the highest of them is the lock's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cells<const SECTORS: usize> {
    cells: [u32; SECTORS],
    bits: u32,
}

/// Sectors from one up to, not including, another.
type Span = (usize, usize);

fn bytes(from: usize, to: usize) -> ByteRange {
    ByteRange::new(from as u64 * SECTOR_BYTES, to as u64 * SECTOR_BYTES).unwrap()
}

impl<const SECTORS: usize> Cells<SECTORS> {
    /// The state with this number.
    fn numbered(number: u32, bits: u32) -> Self {
        let mask = (1 << bits) - 1;
        Self { cells: std::array::from_fn(|sector| (number >> (bits * sector as u32)) & mask), bits }
    }

    fn lock_bit(&self) -> u32 {
        1 << (self.bits - 1)
    }

    fn map(bits: u32, trim: bool) -> ExtentState {
        let options = Options { owner: OWNER, lock_bit: StateBits(1 << (bits - 1)), trim };
        ExtentState::new(options, Metrics::new(&Registry::new()))
    }

    /// Parts with equal bits, those without bits too.
    fn parts(&self, (start, end): Span) -> Vec<Found> {
        let mut parts = Vec::new();
        let mut at = start;
        while at < end {
            let length = self.cells[at..end].iter().take_while(|bits| **bits == self.cells[at]).count();
            parts.push(Found { range: bytes(at, at + length), bits: StateBits(self.cells[at]) });
            at += length;
        }
        parts
    }

    fn records(&self) -> Vec<(ByteRange, StateBits)> {
        let parts = self.parts((0, SECTORS)).into_iter().filter(|part| !part.bits.is_empty());
        parts.map(|part| (part.range, part.bits)).collect()
    }

    fn convert(&mut self, (start, end): Span, clear: u32, set: u32) -> (u64, Vec<Change>) {
        let mut changes: Vec<Change> = Vec::new();
        for sector in start..end {
            let before = self.cells[sector];
            let after = (before & !clear) | set;
            self.cells[sector] = after;
            let change = Change {
                range: bytes(sector, sector + 1),
                before: StateBits(before),
                after: StateBits(after),
            };
            match changes.last_mut() {
                _ if before == after => {}
                Some(last)
                    if last.range.end() == change.range.start()
                        && (last.before, last.after) == (change.before, change.after) =>
                {
                    last.range = ByteRange::new(last.range.start(), change.range.end()).unwrap();
                }
                _ => changes.push(change),
            }
        }
        (changes.iter().map(|change| change.range.length_bytes()).sum(), changes)
    }

    /// One change by every call that can make it.
    fn compare_change(&self, map: &ExtentState, span: Span, clear: u32, set: u32) {
        let range = bytes(span.0, span.1);
        let mut expected = self.clone();
        let (changed_bytes, changes) = expected.convert(span, clear, set);
        let (clear, set) = (StateBits(clear), StateBits(set));
        let is_expected = |result: Result<u64, StateError>| {
            if set.intersects(StateBits(self.lock_bit())) {
                assert_eq!(result, Err(StateError::LockBit { range, bits: set, owner: OWNER }));
                assert_eq!(map.records(), self.records(), "{self:?} {span:?} -{clear} +{set}");
                return false;
            }
            assert_eq!(result, Ok(changed_bytes), "{self:?} {span:?} -{clear} +{set}");
            assert_eq!(map.records(), expected.records(), "{self:?} {span:?} -{clear} +{set}");
            map.force(&self.records());
            true
        };
        let mut found = Vec::new();
        if is_expected(map.convert(range, clear, set, &mut found)) {
            assert_eq!(found, changes, "{self:?} {span:?} -{clear} +{set}");
        }
        if set.is_empty() {
            is_expected(map.clear(range, clear));
        }
        if clear.is_empty() {
            is_expected(map.set(range, set));
        }
    }

    /// Locks and unlocks; what waits is tested where there are threads.
    fn compare_locks(&self, map: &ExtentState, span: Span) {
        let range = bytes(span.0, span.1);
        let lock = self.lock_bit();
        let parts = self.parts(span);
        let locked = parts.iter().find(|part| part.bits.0 & lock != 0);
        let free = parts.iter().find(|part| part.bits.0 & lock == 0);
        let mut changed = self.clone();
        let mut settle =
            |result: Result<(), StateError>, refused: Option<StateError>, clear, set| match refused {
                Some(error) => {
                    assert_eq!(result, Err(error), "{self:?} {span:?}");
                    assert_eq!(map.records(), self.records());
                }
                None => {
                    changed.convert(span, clear, set);
                    assert_eq!(result, Ok(()), "{self:?} {span:?}");
                    assert_eq!(map.records(), changed.records(), "{self:?} {span:?}");
                    map.force(&self.records());
                    changed = self.clone();
                }
            };
        let refused = locked.map(|Found { range, bits }| StateError::Locked {
            range: *range,
            bits: *bits,
            owner: OWNER,
        });
        settle(map.try_lock(range), refused, 0, lock);
        let refused = free.map(|Found { range, bits }| StateError::NotLocked {
            range: *range,
            bits: *bits,
            owner: OWNER,
        });
        settle(map.unlock(range), refused, lock, 0);
        if locked.is_none() {
            settle(map.lock(range), None, 0, lock);
            map.wait_until_clear(range, StateBits(lock));
        }
    }

    /// Every question about a span and these bits, with a cold and with a warm position.
    fn compare_questions(&self, map: &ExtentState, span: Span, with: u32, without: u32, limit: u64) {
        let range = bytes(span.0, span.1);
        let (all, none) = (StateBits(with), StateBits(without));
        let parts = self.parts(span);
        let having = parts.iter().filter(|part| part.bits.contains(all));
        let count: u64 = having.map(|part| part.range.length_bytes()).sum();
        let wanted = |bits: StateBits| bits.contains(all) && !bits.intersects(none);
        let first = parts.iter().find(|part| wanted(part.bits)).copied();
        let run = parts.iter().position(|part| wanted(part.bits)).map(|at| {
            let start = parts[at].range.start();
            let end = parts[at..].iter().take_while(|part| wanted(part.bits)).last().unwrap().range.end();
            ByteRange::new(start, end.min(start.saturating_add(limit))).unwrap()
        });
        let mut position = Position::default();
        for _ in 0..2 {
            assert_eq!(map.count(range, all, &mut position), count, "{self:?} {span:?} {all}");
            assert_eq!(
                map.find_first(range, all, none, &mut position),
                first,
                "{self:?} {span:?} {all} {none}"
            );
            let found = map.find_run(range, all, none, limit, &mut position);
            assert_eq!(found, run, "{self:?} {span:?} {all} {none} {limit}");
        }
        assert_eq!(map.test_all(range, all), parts.iter().all(|part| part.bits.contains(all)));
        assert_eq!(map.test_any(range, all), parts.iter().any(|part| part.bits.intersects(all)));
    }
}

/// Every state of so many sectors and bits, every span, every call with every choice of bits.
fn compare_everything<const SECTORS: usize>(bits: u32, trim: bool) {
    let map = Cells::<SECTORS>::map(bits, trim);
    let choices = 1_u32 << bits;
    for number in 0..choices.pow(SECTORS as u32) {
        let cells = Cells::<SECTORS>::numbered(number, bits);
        map.force(&cells.records());
        for span in (0..SECTORS).flat_map(|start| (start..=SECTORS).map(move |end| (start, end))) {
            for (clear, set) in (0..choices).flat_map(|clear| (0..choices).map(move |set| (clear, set))) {
                cells.compare_change(&map, span, clear, set);
            }
            cells.compare_locks(&map, span);
            // What is wanted and unwanted at once is never there; one such choice stands for all.
            let pairs = (0..choices).flat_map(|with| (0..choices).map(move |without| (with, without)));
            for (with, without) in pairs.filter(|(with, without)| with & without == 0) {
                let limit = [1, SECTOR_BYTES, SECTOR_BYTES + 1, u64::MAX][(number + with) as usize % 4];
                cells.compare_questions(&map, span, with, without, limit);
            }
        }
    }
}

#[test]
fn every_call_on_four_sectors_and_three_bits_is_right() {
    compare_everything::<4>(3, true);
}

#[test]
fn every_call_on_four_sectors_is_right_without_trimming() {
    compare_everything::<4>(3, false);
}

#[test]
fn every_call_on_six_sectors_and_two_bits_is_right() {
    compare_everything::<6>(2, true);
}

#[test]
fn every_call_on_six_sectors_is_right_without_trimming() {
    compare_everything::<6>(2, false);
}

/// A random walk over the states of eight sectors and three bits: each step is a change, a lock or all
/// questions about a span. `STATE_CASES` says how many steps (the whole is 10^8), `STATE_SEED` where it
/// begins.
#[test]
fn random_calls_on_eight_sectors_and_three_bits_are_right() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (cases, seed) = (number("STATE_CASES", 400_000), number("STATE_SEED", 1));
    println!("STATE_CASES={cases} STATE_SEED={seed}");
    let random = SeededRandom::new(seed);
    for trim in [true, false] {
        let map = Cells::<8>::map(3, trim);
        let mut cells = Cells::<8>::numbered(0, 3);
        for _ in 0..cases / 2 {
            let roll = random.next_u64();
            let part = |at: u32, below: u64| ((roll >> at) & 0xff) % below;
            let (one, other) = (part(0, 9) as usize, part(8, 9) as usize);
            let span = (one.min(other), one.max(other));
            let (clear, set) = (part(16, 8) as u32, part(24, 4) as u32);
            match part(32, 8) {
                0 => cells.compare_locks(&map, span),
                1 => cells.compare_questions(&map, span, clear, set & !clear, part(40, 5) * 3000 + 1),
                2 => {
                    let lock = cells.lock_bit();
                    let is_free = cells.cells[span.0..span.1].iter().all(|bits| bits & lock == 0);
                    assert_eq!(map.try_lock(bytes(span.0, span.1)).is_ok(), is_free);
                    if is_free {
                        cells.convert(span, 0, lock);
                    }
                }
                _ => {
                    let (changed_bytes, changes) = cells.convert(span, clear, set);
                    let mut found = Vec::new();
                    let range = bytes(span.0, span.1);
                    let result = match (clear, set) {
                        (_, 0) if part(40, 2) == 0 => map.clear(range, StateBits(clear)),
                        (0, _) if part(40, 2) == 0 => map.set(range, StateBits(set)),
                        _ => map.convert(range, StateBits(clear), StateBits(set), &mut found).inspect(|_| {
                            assert_eq!(found, changes);
                        }),
                    };
                    assert_eq!(result, Ok(changed_bytes), "{cells:?} after {span:?} -{clear} +{set}");
                }
            }
            assert_eq!(
                map.records(),
                cells.records(),
                "seed {seed}: {cells:?} after {span:?} -{clear} +{set}"
            );
        }
    }
}
