//! The thread that looks after the gate: it shuts files whose attributes the kernel takes without comparing
//! versions, and does what is due at intervals while files are open for writing.

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex, Weak};
use vlinder_base::thread::{self, JoinHandle};

use super::schedule::{Due, Schedule};
use super::shutting::Gate;
use crate::service::blocks::Blocks;
use crate::service::mounted::Mounted;
use crate::service::unplaced::UnplacedBytes;

/// The thread, and what it does.
pub(in crate::service) struct Keeper {
    upkeep: Arc<Upkeep>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is done at intervals.
struct Upkeep {
    mounted: Arc<Mounted>,
    gate: Arc<Gate>,
    blocks: Arc<Blocks>,
    unplaced: Arc<UnplacedBytes>,
    /// What found no room is being tried again.
    is_placing: AtomicBool,
}

/// While bytes are tried again that found no room; ends with this, whatever becomes of it.
struct Placing(Arc<Upkeep>);

impl Drop for Placing {
    fn drop(&mut self) {
        self.0.is_placing.store(false, Ordering::SeqCst);
    }
}

impl Keeper {
    /// A keeper that does nothing before it is started.
    pub(in crate::service) fn new(
        mounted: Arc<Mounted>,
        gate: Arc<Gate>,
        blocks: Arc<Blocks>,
        unplaced: Arc<UnplacedBytes>,
    ) -> Self {
        let upkeep = Upkeep { mounted, gate, blocks, unplaced, is_placing: AtomicBool::new(false) };
        Self { upkeep: Arc::new(upkeep), thread: Mutex::default() }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(in crate::service) fn start(&self) -> std::io::Result<()> {
        let clock = Arc::clone(&self.upkeep.mounted.filesystem().options().clock);
        let schedule = Arc::clone(self.upkeep.gate.schedule());
        let upkeep = Arc::downgrade(&self.upkeep);
        let keep = move || {
            let mut next_look = Schedule::look_after(clock.monotonic());
            loop {
                let due = schedule.next(&*clock, &mut next_look);
                let Some(upkeep) = Weak::upgrade(&upkeep) else { return };
                match due {
                    Due::Shut(nodes) => nodes.into_iter().for_each(|node| upkeep.gate.shut(node)),
                    Due::Look => {
                        schedule.look(|| Upkeep::look_again(&upkeep));
                        next_look = Schedule::look_after(clock.monotonic());
                    }
                    Due::End => return,
                }
            }
        };
        *self.thread.lock() = Some(thread::try_spawn("fuse-gate", keep)?);
        Ok(())
    }

    /// Ends the thread, and waits until it has ended.
    pub(in crate::service) fn finish(&self) {
        self.upkeep.gate.schedule().end();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks after the room for writers died");
        }
    }
}

impl Upkeep {
    /// Does what is due; returns whether it will be due again without a file being opened.
    fn look_again(self: &Arc<Self>) -> bool {
        self.gate.look();
        self.gate.shut_again();
        self.blocks.tell_all();
        self.place_aside();
        self.mounted.handles().has_writers() || !self.unplaced.is_empty()
    }

    /// Tries again what found no room, unless that is being done: a full device may take long, and the keeper
    /// has files to shut.
    fn place_aside(self: &Arc<Self>) {
        if self.unplaced.is_empty() || self.is_placing.swap(true, Ordering::SeqCst) {
            return;
        }
        let placing = Placing(Arc::clone(self));
        self.mounted.kernel().run(Box::new(move || {
            if let Err(errno) = placing.0.unplaced.place_all() {
                tracing::debug!(%errno, "what found no room still finds none");
            }
        }));
    }
}
