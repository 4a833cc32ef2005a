//! The threads of a check.

use vlinder_base::parallel::Pool;
use vlinder_base::thread::available_parallelism;

/// Reads in flight that keep a disk busy: each worker waits for its own.
const MIN_WORKERS: usize = 4;
/// What the blocks of a batch take, and more.
const KEPT_BYTES: usize = 8 << 20;
/// Below so many pieces, work is done before threads have started.
const FEW: usize = 8;

/// Workers that start with the first work that is worth it.
pub(crate) struct Workers {
    threads: usize,
    pool: Option<Pool>,
}

impl Workers {
    /// So many, or as many as are good for this machine.
    pub(crate) fn new(threads: Option<usize>) -> Self {
        let threads = threads.unwrap_or_else(|| available_parallelism().max(MIN_WORKERS));
        Self { threads, pool: None }
    }

    /// The results of `work` on each item, in the items' order.
    pub(crate) fn map<T: Sync, R: Send>(&mut self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        if self.threads < 2 || items.len() < FEW {
            return items.iter().map(work).collect();
        }
        if self.pool.is_none() {
            // Without threads to spare, it only takes longer.
            self.pool = Pool::new(self.threads).ok();
            // An allocator like glibc's gives memory back as soon as some is free at the end, and takes it
            // again for the next batch, which costs more than reading; once it has seen something larger come
            // and go, it keeps as much.
            drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT_BYTES)));
        }
        match &self.pool {
            Some(pool) => pool.map(items, work),
            None => items.iter().map(work).collect(),
        }
    }
}
