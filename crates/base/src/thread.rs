//! Threads: the operating system's, or the model's tasks.

#[cfg(feature = "shuttle")]
use shuttle::thread as inner;
#[cfg(not(feature = "shuttle"))]
use std::thread as inner;

pub use inner::{Scope, ScopedJoinHandle, ThreadId, scope, sleep, yield_now};
pub use std::thread::panicking;

/// The running thread: no other one that ever runs in this process has its number.
#[must_use]
pub fn current_id() -> ThreadId {
    inner::current().id()
}

/// A running thread; dropping it lets the thread run on.
#[derive(Debug)]
pub struct JoinHandle<T>(inner::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// The payload of the panic that ended the thread.
    pub fn join(self) -> std::thread::Result<T> {
        self.0.join()
    }
}

/// Starts a thread whose name shows in debuggers and in `/proc` (cut to 15 bytes there).
///
/// # Panics
/// Where the system gives no more threads; see [`try_spawn`].
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    try_spawn(name, work).expect("the system gives no more threads")
}

/// As [`spawn`].
///
/// # Errors
/// The system's, where it gives no more threads (EAGAIN).
pub fn try_spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    let affinity = crate::affinity::of_new_threads();
    let work = move || {
        // Where the system forbids it, the thread works as well and only shares a processor.
        let _ = affinity.map(|affinity| affinity.restore());
        work()
    };
    inner::Builder::new().name(name.into()).spawn(work).map(JoinHandle)
}

/// Starts a thread in a [`scope`], which waits for its end.
///
/// # Errors
/// The system's, where it gives no more threads (EAGAIN).
pub fn try_spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    #[cfg(not(feature = "shuttle"))]
    let spawned = inner::Builder::new().spawn_scoped(scope, work);
    #[cfg(feature = "shuttle")]
    let spawned = Ok(scope.spawn(work));
    spawned
}

/// Gives the running thread the lowest priority (nice 19, which on Linux is the thread's alone): it runs
/// where nobody else wants the processor.
///
/// # Errors
/// The system's.
pub fn give_way_to_all() -> std::io::Result<()> {
    Ok(rustix::process::setpriority_process(None, 19)?)
}

/// Has the running thread wait for its turn: Linux does not interrupt who is at work in order to run it as
/// soon as it is woken (`SCHED_BATCH`). Its share in the processors is the same. A thread that runs by
/// another policy than the usual one, or was given a niceness, keeps both.
pub fn wait_for_turn() {
    use thread_priority::{
        NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id, thread_schedule_policy,
    };
    if cfg!(feature = "shuttle") {
        return;
    }
    let usual = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
    let is_usual = thread_schedule_policy().is_ok_and(|policy| policy == usual)
        && rustix::process::getpriority_process(None).is_ok_and(|niceness| niceness == 0);
    let Ok(unchanged) = ThreadPriority::try_from(NICENESS_ZERO) else { return };
    if is_usual {
        let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
        // Where the system forbids it, the work is done all the same.
        let _ = set_thread_priority_and_policy(thread_native_id(), unchanged, batch);
    }
}

/// Niceness 0 as `thread_priority` counts, from 0 (nice 19) to 99 (nice -20).
const NICENESS_ZERO: u8 = 47;

/// How many threads can run at once; at least 1, and always 2 in a model run.
pub fn available_parallelism() -> usize {
    if cfg!(feature = "shuttle") {
        2
    } else {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_gives_its_result() {
        let handle = spawn("committer", || std::thread::current().name().map(str::to_owned));
        assert_eq!(handle.join().unwrap().as_deref(), Some("committer"));
    }

    #[test]
    fn who_waits_for_its_turn_keeps_its_niceness() {
        use thread_priority::{NormalThreadSchedulePolicy, ThreadSchedulePolicy, thread_schedule_policy};
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let found = spawn("reader", move || {
            let before = (niceness(), thread_schedule_policy().unwrap());
            wait_for_turn();
            (before, (niceness(), thread_schedule_policy().unwrap()))
        });
        let (before, after) = found.join().unwrap();
        assert_eq!(before.0, after.0);
        let usual = (0, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other));
        let batch = (0, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch));
        // A container may forbid it.
        assert!(after == before || before == usual && after == batch, "{before:?} {after:?}");
    }

    #[test]
    fn a_scope_may_borrow_and_waits_for_its_threads() {
        let mut parts = [0_u32; 4];
        scope(|scope| {
            for (number, part) in (1..).zip(&mut parts) {
                scope.spawn(move || *part = number);
            }
        });
        assert_eq!(parts, [1, 2, 3, 4]);
        assert!(available_parallelism() >= 1);
    }
}
