//! The state map alone: sequences of changes as a file system makes them, on the map and on its peers.
//!
//! `state-map SEQUENCE VARIANT THREADS CHANGES` prints one JSON object. Sequences: `fio` is the job of
//! `state_trim`'s workload (docs/benchmarks/workloads.md), 12 writers of 4 KiB at random places of one file
//! of 2 GiB with 64 writes under way each; a write sets bits of its bytes when it begins and clears them when
//! it is done, in any order. `flush` is a file of long runs whose bits are cleared from the front, 128 KiB at
//! a time, as extents are written. Variants: `trim` (the map as it is), `split` (the map with trimming off:
//! split, insert, remove), `rangemap` (the crate, under a lock).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rangemap::RangeMap;
use vlinder_base::metrics::{Histogram, Registry};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;
use vlinder_extent_state::{ByteRange, ExtentState, Metrics, Options, Owner, StateBits};

const SECTOR_BYTES: u64 = 4096;
const FILE_BYTES: u64 = 2 << 30;
const WRITERS: u64 = 12;
const DEPTH: usize = 64;
/// What one extent takes at most when it is compressed: a flush clears in such pieces.
const EXTENT_BYTES: u64 = 128 << 10;
/// Bytes that a flush of one run clears.
const RUN_BYTES: u64 = 16 << 20;
const BITS: StateBits = StateBits(0b11);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts how often it is asked for memory, by thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more, and nobody asks for it.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// A change of the bits of a range.
#[derive(Clone, Copy)]
enum Change {
    Set(ByteRange),
    Clear(ByteRange),
}

/// What is measured.
enum Map {
    Own { state: ExtentState, metrics: Arc<Metrics> },
    Crate { map: Mutex<RangeMap<u64, u32>>, clear_time: Histogram },
}

impl Map {
    fn new(variant: &str) -> Result<Self> {
        let trim = match variant {
            "trim" => true,
            "split" => false,
            "rangemap" => return Ok(Self::Crate { map: Mutex::default(), clear_time: Histogram::default() }),
            _ => bail!("there is no variant {variant}: trim, split or rangemap"),
        };
        let metrics = Metrics::new(&Registry::new());
        let options = Options { owner: Owner(5, 257), lock_bit: StateBits(1 << 31), trim };
        Ok(Self::Own { state: ExtentState::new(options, Arc::clone(&metrics)), metrics })
    }

    fn change(&self, change: Change) -> Result<()> {
        match (self, change) {
            (Self::Own { state, .. }, Change::Set(range)) => state.set(range, BITS).map(drop)?,
            (Self::Own { state, .. }, Change::Clear(range)) => state.clear(range, BITS).map(drop)?,
            (Self::Crate { map, .. }, Change::Set(range)) => {
                change_of_crate(map, range, |bits| bits | BITS.0)
            }
            (Self::Crate { map, clear_time }, Change::Clear(range)) => {
                let _timer = clear_time.time();
                change_of_crate(map, range, |bits| bits & !BITS.0);
            }
        }
        Ok(())
    }

    /// How many bytes have the bits: the same for all variants after the same sequence.
    fn set_bytes(&self) -> u64 {
        match self {
            Self::Own { state, .. } => state.count(ByteRange::ALL, BITS, &mut Default::default()),
            Self::Crate { map, .. } => map.lock().iter().map(|(range, _)| range.end - range.start).sum(),
        }
    }
}

/// Bits of a range changed with what the crate offers: its parts and gaps are looked up, then put back
/// changed.
fn change_of_crate(map: &Mutex<RangeMap<u64, u32>>, range: ByteRange, change: impl Fn(u32) -> u32) {
    let range = range.start()..range.end();
    let mut map = map.lock();
    let mut parts: Vec<(std::ops::Range<u64>, u32)> = map.gaps(&range).map(|gap| (gap, 0)).collect();
    parts.extend(
        map.overlapping(&range)
            .map(|(part, bits)| (part.start.max(range.start)..part.end.min(range.end), *bits)),
    );
    for (part, bits) in parts {
        match change(bits) {
            after if after == bits => {}
            0 => map.remove(part),
            after => map.insert(part, after),
        }
    }
}

fn range_at(start: u64, length: u64) -> Result<ByteRange> {
    ByteRange::with_length(start, length).context("a range past the end of all offsets")
}

/// The changes of one writer of the fio job.
fn of_writer(writer: u64, count: u64) -> Result<Vec<Change>> {
    let random = SeededRandom::new(writer + 1);
    let mut under_way: Vec<ByteRange> = Vec::new();
    let mut changes = Vec::new();
    while (changes.len() as u64) < count {
        if under_way.len() == DEPTH {
            // Whichever the device completes first.
            let done = random.next_u64() as usize % DEPTH;
            changes.push(Change::Clear(under_way.swap_remove(done)));
        }
        let sector = random.next_u64() % (FILE_BYTES / SECTOR_BYTES);
        let range = range_at(sector * SECTOR_BYTES, SECTOR_BYTES)?;
        under_way.push(range);
        changes.push(Change::Set(range));
    }
    Ok(changes)
}

/// Runs are dirtied all over the file, then cleared from their fronts, one piece of each in turn.
fn of_flush(writer: u64, count: u64) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let share = FILE_BYTES / WRITERS / RUN_BYTES * RUN_BYTES;
    while (changes.len() as u64) < count {
        let runs: Vec<u64> =
            (0..share / RUN_BYTES / 2).map(|run| writer * share + run * 2 * RUN_BYTES).collect();
        for run in &runs {
            changes.push(Change::Set(range_at(*run, RUN_BYTES)?));
        }
        for piece in 0..RUN_BYTES / EXTENT_BYTES {
            for run in &runs {
                changes.push(Change::Clear(range_at(run + piece * EXTENT_BYTES, EXTENT_BYTES)?));
            }
        }
    }
    Ok(changes)
}

/// The changes of each thread, made before the clock starts.
fn sequences(name: &str, threads: u64, count: u64) -> Result<Vec<Vec<Change>>> {
    let of_one = match name {
        "fio" => of_writer,
        "flush" => of_flush,
        _ => bail!("there is no sequence {name}: fio or flush"),
    };
    let writers: Vec<Vec<Change>> =
        (0..WRITERS).map(|writer| of_one(writer, count / WRITERS)).collect::<Result<_>>()?;
    if threads == WRITERS {
        return Ok(writers);
    }
    if threads != 1 {
        bail!("{threads} threads: the job has {WRITERS} writers, played by as many threads or by one");
    }
    let longest = writers.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|turn| writers.iter().filter_map(move |writer| writer.get(turn)));
    Ok(vec![in_turn.copied().collect()])
}

/// How many clears only shortened records, and how often they asked for memory.
fn allocations_of_trims(map: &Map, changes: &[Change]) -> Result<(u64, u64)> {
    let Map::Own { metrics, .. } = map else { return Ok((0, 0)) };
    let (mut trims, mut allocations) = (0, 0);
    let mut last = map.set_bytes();
    for change in changes {
        let before = (metrics.records_removed.get(), metrics.records_allocated.get(), ALLOCATIONS.get());
        map.change(*change)?;
        let after = (metrics.records_removed.get(), metrics.records_allocated.get(), ALLOCATIONS.get());
        if let Change::Clear(range) = change {
            let bytes = map.set_bytes();
            if bytes < last && before.0 == after.0 && before.1 == after.1 {
                debug_assert!(last - bytes <= range.length_bytes());
                trims += 1;
                allocations += after.2 - before.2;
            }
        }
        last = map.set_bytes();
    }
    Ok((trims, allocations))
}

/// What the process has used of all processors, in seconds: on a machine with other work, the time on the
/// clock says more of that.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [sequence, variant, threads, count] = arguments.as_slice() else {
        bail!("usage: state-map fio|flush trim|split|rangemap 1|12 CHANGES");
    };
    let sequences = sequences(sequence, threads.parse()?, count.parse()?)?;
    let changes: usize = sequences.iter().map(Vec::len).sum();
    let map = Map::new(variant)?;
    let start = (Instant::now(), processor_time());
    let played: Result<Vec<u64>> = thread::scope(|scope| {
        let players: Vec<_> = sequences
            .iter()
            .map(|changes| {
                let map = &map;
                scope.spawn(move || -> Result<u64> {
                    let before = ALLOCATIONS.get();
                    changes.iter().try_for_each(|change| map.change(*change))?;
                    Ok(ALLOCATIONS.get() - before)
                })
            })
            .collect();
        players.into_iter().map(|player| player.join().expect("a player panicked")).collect()
    });
    let allocations: u64 = played?.iter().sum();
    let (seconds, processor_seconds) = (start.0.elapsed().as_secs_f64(), processor_time() - start.1);
    let (trims, trim_allocations) = match sequences.as_slice() {
        [only] => allocations_of_trims(&Map::new(variant)?, &only[..only.len().min(20_000)])?,
        _ => (0, 0),
    };
    let mut result = serde_json::json!({
        "changes": changes,
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "mean_ns": processor_seconds * 1e9 / changes as f64,
        "allocations": allocations,
        "set_bytes_at_end": map.set_bytes(),
        "trims_counted": trims,
        "allocations_in_trims": trim_allocations,
    });
    let clear = match &map {
        Map::Own { metrics, .. } => metrics.clear_time.snapshot(),
        Map::Crate { clear_time, .. } => clear_time.snapshot(),
    };
    result["clear_mean_ns"] = clear.mean().into();
    result["clear_median_ns"] = clear.quantile(0.5).into();
    result["clear_p99_ns"] = clear.quantile(0.99).into();
    if let Map::Own { metrics, .. } = &map {
        result["records_allocated"] = metrics.records_allocated.get().into();
        result["records_removed"] = metrics.records_removed.get().into();
    }
    println!("{result}");
    Ok(())
}
