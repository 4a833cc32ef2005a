//! The state map: what can be asked and changed, and who waits for it.

use crate::records::{Cost, Record, Records};
use crate::{ByteRange, Metrics, Owner, StateBits, StateError};
use std::ops::ControlFlow;
use vlinder_base::probe;
use vlinder_base::serial;
use vlinder_base::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How a map is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whose bytes it maps, for errors.
    pub owner: Owner,
    /// The bit that [`ExtentState::lock`] sets.
    pub lock_bit: StateBits,
    /// Whether clearing shortens records in place (as it should), or first splits them and then removes the
    /// cleared part, for comparison.
    pub trim: bool,
}

/// A part of a range whose bits changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its bytes.
    pub range: ByteRange,
    /// Their bits before.
    pub before: StateBits,
    /// Their bits now.
    pub after: StateBits,
}

/// A part of a range with equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub range: ByteRange,
    /// Their bits.
    pub bits: StateBits,
}

/// Where the last search ended, so that the next one, which mostly goes on from there, needs none. Once the
/// map has changed, or in another map, it is only slower, never wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The record (or gap) the last search ended in, and of which map and version it is.
    last: Option<(Record, MapVersion)>,
    visited: u64,
}

impl Position {
    /// How many records the searches with this position looked at so far.
    pub fn visited(&self) -> u64 {
        self.visited
    }
}

/// Which map, and how often it had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MapVersion {
    map: u64,
    changes: u64,
}

struct Waiter {
    range: ByteRange,
    bits: StateBits,
    number: u64,
    woken: Arc<Condvar>,
}

struct Inner {
    records: Records,
    /// Tells positions whether they still hold.
    version: MapVersion,
    waiters: Vec<Waiter>,
    next_waiter: u64,
    /// Kept for its memory.
    wanted: Vec<Record>,
}

impl Inner {
    fn new() -> Self {
        Self {
            records: Records::default(),
            version: MapVersion { map: serial::next(), changes: 0 },
            waiters: Vec::new(),
            next_waiter: 0,
            wanted: Vec::new(),
        }
    }
}

/// The state bits of one file's (or device's) bytes. Each call sees and changes all its bytes at one instant.
pub struct ExtentState {
    inner: Mutex<Inner>,
    options: Options,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for ExtentState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExtentState").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ExtentState {
    /// A map in which no byte has any bit.
    pub fn new(options: Options, metrics: Arc<Metrics>) -> Self {
        Self { inner: Mutex::new(Inner::new()), options, metrics }
    }

    /// Sets bits of every byte of the range, and says how many bytes that changed.
    ///
    /// # Errors
    /// If `bits` contains the lock bit.
    pub fn set(&self, range: ByteRange, bits: StateBits) -> Result<u64, StateError> {
        self.refuse_lock_bit(range, bits)?;
        self.update(&mut self.inner.lock(), range, StateBits::EMPTY, bits, None)
    }

    /// Clears bits of every byte of the range, wakes who waits for that, and says how many bytes that
    /// changed. The lock bit may be among them, which unlocks in the same instant.
    ///
    /// # Errors
    /// Only for defects of this crate.
    pub fn clear(&self, range: ByteRange, bits: StateBits) -> Result<u64, StateError> {
        let _timer = self.metrics.clear_time.time();
        probe!(extent_state_clear_begin, range.start(), range.length_bytes());
        let result = self.update(&mut self.inner.lock(), range, bits, StateBits::EMPTY, None);
        probe!(extent_state_clear_end, range.start(), range.length_bytes());
        result
    }

    /// Clears and then sets bits of every byte of the range in one instant, appends each part that changed to
    /// `changes` in ascending order (neighbours only where their bits before or after differ), and says how
    /// many bytes that are.
    ///
    /// # Errors
    /// If `set` contains the lock bit.
    pub fn convert(
        &self,
        range: ByteRange,
        clear: StateBits,
        set: StateBits,
        changes: &mut Vec<Change>,
    ) -> Result<u64, StateError> {
        self.refuse_lock_bit(range, set)?;
        self.update(&mut self.inner.lock(), range, clear, set, Some(changes))
    }

    /// How many bytes of the range have all of `bits`.
    pub fn count(&self, range: ByteRange, bits: StateBits, position: &mut Position) -> u64 {
        let mut bytes = 0;
        self.walk(&self.inner.lock(), range, position, |part, found| {
            if found.contains(bits) {
                bytes += part.length_bytes();
            }
            ControlFlow::<()>::Continue(())
        });
        bytes
    }

    /// The first part of the range whose bytes have equal bits, all of `with` and none of `without`. With an
    /// empty `with`, bytes that have no bit at all count too. The next part is found by searching on from
    /// this one's end.
    pub fn find_first(
        &self,
        range: ByteRange,
        with: StateBits,
        without: StateBits,
        position: &mut Position,
    ) -> Option<Found> {
        self.walk(&self.inner.lock(), range, position, |range, bits| {
            if bits.contains(with) && !bits.intersects(without) {
                ControlFlow::Break(Found { range, bits })
            } else {
                ControlFlow::Continue(())
            }
        })
    }

    /// The first bytes of the range that have all of `with` and none of `without` as far as they go without a
    /// gap, whatever other bits they have; at most `limit_bytes` (at least 1).
    pub fn find_run(
        &self,
        range: ByteRange,
        with: StateBits,
        without: StateBits,
        limit_bytes: u64,
        position: &mut Position,
    ) -> Option<ByteRange> {
        let mut run: Option<ByteRange> = None;
        self.walk(&self.inner.lock(), range, position, |part, bits| {
            if !bits.contains(with) || bits.intersects(without) {
                return if run.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            let start = run.map_or(part.start(), ByteRange::start);
            let end = part.end().min(start.saturating_add(limit_bytes.max(1)));
            run = ByteRange::new(start, end);
            if end < part.end() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        run
    }

    /// Whether every byte of the range has all of `bits`.
    pub fn test_all(&self, range: ByteRange, bits: StateBits) -> bool {
        let lacks = |found: StateBits| !found.contains(bits);
        first_where(&self.walker(), &self.inner.lock(), range, lacks).is_none()
    }

    /// Whether any byte of the range has any of `bits`.
    pub fn test_any(&self, range: ByteRange, bits: StateBits) -> bool {
        let has = |found: StateBits| found.intersects(bits);
        first_where(&self.walker(), &self.inner.lock(), range, has).is_some()
    }

    /// Locks the range: waits until no byte of it is locked, then sets the lock bit of all of them in one
    /// instant. A thread that locks bytes it has locked already waits for ever.
    ///
    /// # Errors
    /// Only for defects of this crate.
    pub fn lock(&self, range: ByteRange) -> Result<(), StateError> {
        let mut inner = self.inner.lock();
        self.wait_in(&mut inner, range, self.options.lock_bit);
        self.update(&mut inner, range, StateBits::EMPTY, self.options.lock_bit, None).map(|_| ())
    }

    /// Locks the range if no byte of it is locked.
    ///
    /// # Errors
    /// [`StateError::Locked`] with the first part that is locked.
    pub fn try_lock(&self, range: ByteRange) -> Result<(), StateError> {
        let mut inner = self.inner.lock();
        let (lock_bit, owner) = (self.options.lock_bit, self.options.owner);
        let locked = first_where(&self.walker(), &inner, range, |bits| bits.intersects(lock_bit));
        if let Some(Found { range, bits }) = locked {
            return Err(StateError::Locked { range, bits, owner });
        }
        self.update(&mut inner, range, StateBits::EMPTY, lock_bit, None).map(|_| ())
    }

    /// Unlocks the range and wakes who waits for it.
    ///
    /// # Errors
    /// [`StateError::NotLocked`] with the first part that is not locked.
    pub fn unlock(&self, range: ByteRange) -> Result<(), StateError> {
        let mut inner = self.inner.lock();
        let (lock_bit, owner) = (self.options.lock_bit, self.options.owner);
        let free = first_where(&self.walker(), &inner, range, |bits| !bits.contains(lock_bit));
        if let Some(Found { range, bits }) = free {
            return Err(StateError::NotLocked { range, bits, owner });
        }
        self.update(&mut inner, range, lock_bit, StateBits::EMPTY, None).map(|_| ())
    }

    /// Waits until no byte of the range has any of `bits`.
    pub fn wait_until_clear(&self, range: ByteRange, bits: StateBits) {
        self.wait_in(&mut self.inner.lock(), range, bits);
    }

    /// How many records the map has now.
    pub fn record_count(&self) -> usize {
        self.inner.lock().records.len()
    }

    fn refuse_lock_bit(&self, range: ByteRange, bits: StateBits) -> Result<(), StateError> {
        if bits.intersects(self.options.lock_bit) {
            return Err(StateError::LockBit { range, bits, owner: self.options.owner });
        }
        Ok(())
    }

    fn wait_in(&self, inner: &mut MutexGuard<'_, Inner>, range: ByteRange, bits: StateBits) {
        let has = |found: StateBits| found.intersects(bits);
        while first_where(&self.walker(), inner, range, has).is_some() {
            let number = inner.next_waiter;
            inner.next_waiter += 1;
            let woken = Arc::new(Condvar::new());
            inner.waiters.push(Waiter { range, bits, number, woken: Arc::clone(&woken) });
            woken.wait(inner);
            inner.waiters.retain(|waiter| waiter.number != number);
        }
    }

    /// Clears, then sets, bits of the whole range, rewriting the records around it.
    fn update(
        &self,
        inner: &mut Inner,
        range: ByteRange,
        clear: StateBits,
        set: StateBits,
        changes: Option<&mut Vec<Change>>,
    ) -> Result<u64, StateError> {
        if range.is_empty() {
            return Ok(0);
        }
        if !self.options.trim && set.is_empty() {
            let first = inner.records.split(range.start());
            let second = inner.records.split(range.end());
            self.account(first);
            self.account(second);
        }
        let mut plan =
            Plan { wanted: std::mem::take(&mut inner.wanted), changes, cleared: None, changed_bytes: 0 };
        plan.wanted.clear();
        let change = |bits: StateBits| bits.without(clear) | set;
        let mut present = 0;
        let mut at = range.start();
        let mut ordered_from = 0;
        let place = inner.records.reach(range.start());
        for (record, bits) in inner.records.at(place) {
            if record.start() > range.end() {
                break;
            }
            if record.is_empty() || record.start() < ordered_from {
                inner.wanted = plan.wanted;
                return Err(StateError::Disordered { range: record, bits, owner: self.options.owner });
            }
            ordered_from = record.end();
            present += 1;
            plan.keep(record.start(), record.end().min(range.start()), bits);
            plan.apply(at, record.start().min(range.end()), StateBits::EMPTY, change(StateBits::EMPTY));
            plan.apply(record.start().max(at), record.end().min(range.end()), bits, change(bits));
            plan.keep(record.start().max(range.end()), record.end(), bits);
            at = at.max(record.end().min(range.end()));
        }
        plan.apply(at, range.end(), StateBits::EMPTY, change(StateBits::EMPTY));
        self.metrics.records_visited.add(present as u64);
        let Plan { wanted, cleared, changed_bytes, .. } = plan;
        // Without trimming, equal neighbours may be left from the split even where no bit changed.
        if changed_bytes > 0 || !self.options.trim {
            let cost = inner.records.replace(place, present, &wanted);
            self.account(cost);
            inner.version.changes += 1;
        }
        inner.wanted = wanted;
        if let Some((cleared_range, bits)) = cleared {
            self.wake(inner, cleared_range, bits);
        }
        Ok(changed_bytes)
    }

    fn account(&self, cost: Cost) {
        if cost.allocated > 0 {
            self.metrics.records_allocated.add(cost.allocated);
        }
        if cost.removed > 0 {
            self.metrics.records_removed.add(cost.removed);
        }
    }

    /// Wakes the waiters that what was cleared can concern; each looks again itself.
    fn wake(&self, inner: &Inner, cleared: ByteRange, bits: StateBits) {
        for waiter in &inner.waiters {
            if waiter.bits.intersects(bits) && waiter.range.overlaps(cleared) {
                waiter.woken.notify_one();
                self.metrics.wake_ups.increment();
            }
        }
    }

    fn walker(&self) -> Walker<'_> {
        Walker { metrics: &self.metrics }
    }

    fn walk<B>(
        &self,
        inner: &Inner,
        range: ByteRange,
        position: &mut Position,
        visit: impl FnMut(ByteRange, StateBits) -> ControlFlow<B>,
    ) -> Option<B> {
        self.walker().walk(inner, range, position, visit)
    }
}

/// What an update makes of the records around its range.
struct Plan<'a> {
    wanted: Vec<Record>,
    changes: Option<&'a mut Vec<Change>>,
    /// The smallest range with every byte that lost a bit, and all bits that were lost in it.
    cleared: Option<Record>,
    changed_bytes: u64,
}

impl Plan<'_> {
    /// Bytes outside of the range keep their bits.
    fn keep(&mut self, start: u64, end: u64, bits: StateBits) {
        let Some(range) = ByteRange::new(start, end).filter(|range| !range.is_empty()) else { return };
        if bits.is_empty() {
            return;
        }
        match self.wanted.last_mut() {
            Some((last, last_bits)) if *last_bits == bits && last.end() == range.start() => {
                *last = ByteRange::new(last.start(), range.end()).unwrap_or(range);
            }
            _ => self.wanted.push((range, bits)),
        }
    }

    /// Bytes inside of the range get new bits.
    fn apply(&mut self, start: u64, end: u64, before: StateBits, after: StateBits) {
        self.keep(start, end, after);
        let Some(range) = ByteRange::new(start, end).filter(|range| !range.is_empty()) else { return };
        if before == after {
            return;
        }
        self.changed_bytes += range.length_bytes();
        let lost = before.without(after);
        if !lost.is_empty() {
            let (whole, bits) = self.cleared.unwrap_or((range, lost));
            self.cleared = ByteRange::new(whole.start(), range.end()).map(|whole| (whole, bits | lost));
        }
        let Some(changes) = self.changes.as_deref_mut() else { return };
        match changes.last_mut() {
            Some(last) if last.range.end() == start && (last.before, last.after) == (before, after) => {
                last.range = ByteRange::new(last.range.start(), end).unwrap_or(range);
            }
            _ => changes.push(Change { range, before, after }),
        }
    }
}

struct Walker<'a> {
    metrics: &'a Metrics,
}

fn first_where(
    walker: &Walker<'_>,
    inner: &Inner,
    range: ByteRange,
    wanted: impl Fn(StateBits) -> bool,
) -> Option<Found> {
    walker.walk(inner, range, &mut Position::default(), |range, bits| {
        if wanted(bits) { ControlFlow::Break(Found { range, bits }) } else { ControlFlow::Continue(()) }
    })
}

impl Walker<'_> {
    /// Shows `visit` the parts of the range in order, gaps as parts without bits, each cut to the range,
    /// until it breaks.
    fn walk<B>(
        &self,
        inner: &Inner,
        range: ByteRange,
        position: &mut Position,
        mut visit: impl FnMut(ByteRange, StateBits) -> ControlFlow<B>,
    ) -> Option<B> {
        let visited_before = position.visited;
        let mut at = range.start();
        let mut result = None;
        let remembered = position.last.filter(|((part, _), version)| {
            *version == inner.version && part.start() <= at && at < part.end()
        });
        if let Some(((part, bits), _)) = remembered {
            position.visited += 1;
            result = show(part, bits, range, &mut at, &mut visit);
        }
        if result.is_none() && at < range.end() {
            result = self.search(inner, range, at, position, &mut visit);
        }
        self.metrics.records_visited.add(position.visited - visited_before);
        result
    }

    fn search<B>(
        &self,
        inner: &Inner,
        range: ByteRange,
        mut at: u64,
        position: &mut Position,
        visit: &mut impl FnMut(ByteRange, StateBits) -> ControlFlow<B>,
    ) -> Option<B> {
        let mut records = inner.records.from(at);
        while at < range.end() {
            let next = records.next();
            if let Some((record, _)) = next {
                position.visited += 1;
                debug_assert!(record.end() > at, "records ascend");
            }
            let gap_end = next.map_or(u64::MAX, |(record, _)| record.start());
            if let Some(gap) = ByteRange::new(at, gap_end).filter(|gap| !gap.is_empty()) {
                position.last = Some(((gap, StateBits::EMPTY), inner.version));
                let result = show(gap, StateBits::EMPTY, range, &mut at, visit);
                if result.is_some() || at >= range.end() {
                    return result;
                }
            }
            let (record, bits) = next?;
            position.last = Some(((record, bits), inner.version));
            let result = show(record, bits, range, &mut at, visit);
            if result.is_some() {
                return result;
            }
        }
        None
    }
}

/// Shows one part, cut to the range, and moves on to its end.
fn show<B>(
    part: ByteRange,
    bits: StateBits,
    range: ByteRange,
    at: &mut u64,
    visit: &mut impl FnMut(ByteRange, StateBits) -> ControlFlow<B>,
) -> Option<B> {
    let shown = part.intersection(range)?;
    *at = shown.end();
    match visit(shown, bits) {
        ControlFlow::Break(result) => Some(result),
        ControlFlow::Continue(()) => None,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
impl ExtentState {
    /// How many threads wait now.
    pub(crate) fn waiter_count(&self) -> usize {
        self.inner.lock().waiters.len()
    }

    /// All records, for comparison with a model.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.inner.lock().records.from(0).collect()
    }

    /// Puts records in as they are, in order or not.
    pub(crate) fn force(&self, records: &[Record]) {
        let mut inner = self.inner.lock();
        let present = inner.records.len();
        let first = inner.records.reach(0);
        inner.records.replace(first, present, records);
    }
}
