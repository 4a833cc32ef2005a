//! Parallel loops over the cores; plain loops where the system gives no threads (at a limit of processes,
//! say), and in a model run, which has none: work that a mount owes to somebody is never lost for want of a
//! thread, it only takes longer.

use crate::sync::{Arc, ProcessOnce};
#[cfg(not(feature = "shuttle"))]
use crate::waiting;

/// A set of worker threads. Clones share them.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Without workers, the caller does the work.
    #[cfg(not(feature = "shuttle"))]
    workers: Option<Arc<rayon::ThreadPool>>,
    #[cfg(feature = "shuttle")]
    workers: Arc<usize>,
}

/// What [`Pool::scope`] starts work on.
pub struct Scope<'a, 'scope> {
    #[cfg(not(feature = "shuttle"))]
    inner: Option<&'a rayon::Scope<'scope>>,
    #[cfg(feature = "shuttle")]
    inner: std::marker::PhantomData<&'a fn(&'scope ())>,
}

#[cfg(not(feature = "shuttle"))]
impl Pool {
    /// A pool of `threads` workers (at least 1).
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let affinity = crate::affinity::of_new_threads();
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .start_handler(move |_| {
                let _ = affinity.map(|affinity| affinity.restore());
            })
            .thread_name(|number| format!("worker-{number}"))
            .build()
            .map(|workers| Self { workers: Some(Arc::new(workers)) })
            .map_err(std::io::Error::other)
    }

    /// A pool without threads: the caller does the work, in order.
    pub fn without_threads() -> Self {
        Self { workers: None }
    }

    /// How many threads work at once; at least 1, the caller.
    pub fn threads(&self) -> usize {
        self.workers.as_ref().map_or(1, |workers| workers.current_num_threads())
    }

    /// The workers, where there are any and waking them is worth it.
    fn for_many(&self, are_many: bool) -> Option<&rayon::ThreadPool> {
        let workers = self.workers.as_deref().filter(|_| are_many)?;
        waiting::announce();
        Some(workers)
    }

    /// The results of `work` on each item, in the items' order.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        use rayon::prelude::*;
        // Waking a worker costs more than many a single piece of work.
        let Some(workers) = self.for_many(items.len() >= 2) else { return items.iter().map(work).collect() };
        workers.install(|| items.par_iter().map(&work).collect())
    }

    /// As [`map`](Self::map), consuming the items.
    pub fn map_vec<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        use rayon::prelude::*;
        let Some(workers) = self.for_many(items.len() >= 2) else {
            return items.into_iter().map(work).collect();
        };
        workers.install(|| items.into_par_iter().map(&work).collect())
    }

    /// Runs `work(number, part)` on each part of `length` items (the last may be shorter); parts are
    /// disjoint.
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn for_each_part<T: Send>(
        &self,
        items: &mut [T],
        length: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        use rayon::prelude::*;
        let Some(workers) = self.for_many(items.len() > length) else {
            return items.chunks_mut(length).enumerate().for_each(|(number, part)| work(number, part));
        };
        workers.install(|| {
            items.par_chunks_mut(length).enumerate().for_each(|(number, part)| work(number, part));
        });
    }

    /// Runs both, perhaps at once.
    pub fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match self.for_many(true) {
            Some(workers) => workers.join(first, second),
            None => (first(), second()),
        }
    }

    /// Lets `body` start work that may borrow from outside; returns when all of it is done.
    pub fn scope<'scope, R: Send>(&self, body: impl for<'a> FnOnce(&Scope<'a, 'scope>) -> R + Send) -> R {
        match self.for_many(true) {
            Some(workers) => workers.scope(|inner| body(&Scope { inner: Some(inner) })),
            None => body(&Scope { inner: None }),
        }
    }
}

#[cfg(not(feature = "shuttle"))]
impl<'scope> Scope<'_, 'scope> {
    /// Starts `work`; without threads, does it.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        match self.inner {
            Some(inner) => inner.spawn(|_| work()),
            None => work(),
        }
    }
}

#[cfg(feature = "shuttle")]
impl Pool {
    /// A pool that only remembers its size.
    ///
    /// # Errors
    /// Never in a model run.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Ok(Self { workers: Arc::new(threads.max(1)) })
    }

    /// A pool of one.
    pub fn without_threads() -> Self {
        Self { workers: Arc::new(1) }
    }

    /// How many workers were asked for.
    pub fn threads(&self) -> usize {
        *self.workers
    }

    /// The results of `work` on each item, in the items' order.
    pub fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        items.iter().map(work).collect()
    }

    /// As [`map`](Self::map), consuming the items.
    pub fn map_vec<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        items.into_iter().map(work).collect()
    }

    /// Runs `work(number, part)` on each part of `length` items (the last may be shorter).
    ///
    /// # Panics
    /// If `length` is 0.
    pub fn for_each_part<T: Send>(
        &self,
        items: &mut [T],
        length: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        items.chunks_mut(length).enumerate().for_each(|(number, part)| work(number, part));
    }

    /// Runs both, one after the other.
    pub fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        (first(), second())
    }

    /// Lets `body` start work that may borrow from outside; it is done at once.
    pub fn scope<'scope, R: Send>(&self, body: impl for<'a> FnOnce(&Scope<'a, 'scope>) -> R + Send) -> R {
        body(&Scope { inner: std::marker::PhantomData })
    }
}

#[cfg(feature = "shuttle")]
impl<'scope> Scope<'_, 'scope> {
    /// Does `work`.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        work();
    }
}

/// The process's shared pool, with as many workers as cores; without threads for the life of the process
/// where the system gave none when it was first wanted.
pub fn shared() -> &'static Pool {
    static SHARED: ProcessOnce<Pool> = ProcessOnce::new();
    SHARED.get_or_init(|| {
        Pool::new(crate::thread::available_parallelism()).unwrap_or_else(|_| Pool::without_threads())
    })
}

/// [`Pool::map`] on the [`shared`] pool.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    shared().map(items, work)
}

/// [`Pool::map_vec`] on the [`shared`] pool.
pub fn map_vec<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    shared().map_vec(items, work)
}

/// [`Pool::join`] on the [`shared`] pool.
pub fn join<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    shared().join(first, second)
}

/// [`Pool::scope`] on the [`shared`] pool.
pub fn scope<'scope, R: Send>(body: impl for<'a> FnOnce(&Scope<'a, 'scope>) -> R + Send) -> R {
    shared().scope(body)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn results_keep_the_order_of_items_with_any_number_of_threads() {
        let items: Vec<u64> = (0..10_000).collect();
        let expected: Vec<u64> = items.iter().map(|item| item * item).collect();
        let judge = |pool: &Pool| {
            assert_eq!(pool.map(&items, |item| item * item), expected);
            assert_eq!(pool.map_vec(items.clone(), |item| item * item), expected);
        };
        for threads in [1, 2, 7] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            judge(&pool);
        }
        assert_eq!(Pool::without_threads().threads(), 1);
        judge(&Pool::without_threads());
    }

    #[test]
    fn parts_joins_and_scopes_do_all_their_work() {
        for pool in [shared(), &Pool::without_threads()] {
            let mut items = vec![0_usize; 10];
            pool.for_each_part(&mut items, 4, |number, part| part.fill(number));
            assert_eq!(items, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
            assert_eq!(pool.join(|| 1, || 2), (1, 2));
            let sum = AtomicU64::new(0);
            pool.scope(|scope| {
                for value in 1..=100 {
                    let sum = &sum;
                    scope.spawn(move || {
                        sum.fetch_add(value, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(sum.into_inner(), 5050);
        }
    }
}
