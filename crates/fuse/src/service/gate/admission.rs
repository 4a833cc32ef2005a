//! What a write that asks at the gate is told.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Prospect, Standing};

use super::shutting::{Gate, MARGIN_BYTES};
use crate::service::convert::errno;
use crate::service::durability::is_synchronous;
use crate::service::handles::OpenFile;
use crate::service::mounted::Mounted;
use crate::service::shown::Shown;
use crate::service::unplaced::UnplacedBytes;
use crate::transport::{Deferred, HandleNumber, NodeAttributes, NodeNumber, Reply};

/// More than programs can write into memory in a nanosecond.
const BYTES_PER_NANOSECOND: u64 = 64;
/// What was found out about the kernel's pages holds no longer than this.
const LONGEST_PASS: Duration = Duration::from_millis(10);

/// Answers at the gate.
pub(in crate::service) struct Admission {
    mounted: Arc<Mounted>,
    gate: Arc<Gate>,
    shown: Arc<Shown>,
    unplaced: Arc<UnplacedBytes>,
}

impl Admission {
    pub(in crate::service) fn new(
        mounted: Arc<Mounted>,
        gate: Arc<Gate>,
        shown: Arc<Shown>,
        unplaced: Arc<UnplacedBytes>,
    ) -> Self {
        Self { mounted, gate, shown, unplaced }
    }

    /// Answers a GETATTR that came with a handle: while the gate is shut, the question of a write.
    pub(in crate::service) fn admit(
        self: &Arc<Self>,
        node: NodeNumber,
        handle: HandleNumber,
        answer: Deferred<NodeAttributes>,
    ) {
        let state = self.gate.state();
        let asks = |file: &OpenFile| file.writes && self.gate.writers_ask(file.open.inode().flags());
        let file = self.mounted.handles().file(handle).ok();
        let file = file.filter(|file| !state.is_passed_by() && asks(file));
        let Some(file) = file else { return answer(self.shown.of_node(node)) };
        if !state.is_shut() {
            return self.push_before(node, answer, move |admission| admission.shown.of_node(node));
        }
        state.metrics().asked.increment();
        state.note_asked(file.open.inode().id());
        if !is_synchronous(file.open.inode()) && self.passes_at_once(&file) {
            return answer(self.shown.of_node(node));
        }
        state.metrics().pushed.increment();
        self.push_before(node, answer, move |admission| admission.judge(node, &file));
    }

    /// Answers when the kernel has handed over all bytes of a file that it had when it asked.
    fn push_before(
        self: &Arc<Self>,
        node: NodeNumber,
        answer: Deferred<NodeAttributes>,
        judge: impl FnOnce(&Self) -> Reply<NodeAttributes> + Send + 'static,
    ) {
        let kernel = self.mounted.kernel();
        let Some(notifier) = kernel.notifier().map(Arc::clone) else { return answer(Err(Errno::IO)) };
        let admission = Arc::clone(self);
        kernel.run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, 0) {
                tracing::warn!(%error, "the kernel could not be made to write before a write that needs room");
                return answer(Err(Errno::IO));
            }
            answer(judge(&admission));
        }));
    }

    /// Whether there is room for what the kernel holds and more, so that a write may go on.
    fn passes_at_once(&self, file: &OpenFile) -> bool {
        let (state, now) = (self.gate.state(), self.gate.now());
        if state.lets_pass(now) {
            return true;
        }
        let Some(page_cache) = self.gate.page_cache() else { return true };
        let (filesystem, refusals) = (self.mounted.filesystem(), state.refusals());
        let last_refusal = refusals.last();
        let has_news = || refusals.has_news(file.open.inode().id(), &file.told);
        if filesystem.is_read_only() || !self.unplaced.is_empty() || has_news() {
            return false;
        }
        let room = filesystem.maintenance().room_for_writers().saturating_sub(MARGIN_BYTES);
        let held = page_cache.held_bytes().min(state.limit_bytes());
        let Some(left) = room.checked_sub(held).filter(|left| *left > 0) else { return false };
        let pass = Duration::from_nanos(left / BYTES_PER_NANOSECOND).min(LONGEST_PASS);
        state.let_pass(now, pass, last_refusal)
    }

    /// What a write is told whose file has no dirty pages in the kernel.
    fn judge(&self, node: NodeNumber, file: &OpenFile) -> Reply<NodeAttributes> {
        let (inode, filesystem, state) = (file.open.inode(), self.mounted.filesystem(), self.gate.state());
        // Bytes that are refused after this may not be among those that find their place.
        let last_refusal = state.refusals().last();
        let tried = self.unplaced.place(inode.id());
        let placed = if tried.is_ok() { last_refusal } else { 0 };
        let prospect = || match filesystem.files().prospect_of_writer(inode) {
            Ok(Prospect::Room | Prospect::OwnSpace) => Ok(()),
            Ok(Prospect::None) => Err(Errno::NOSPC),
            Err(error) => Err(errno(&error)),
        };
        let is_told = state.refusals().take(inode.id(), &file.told, placed);
        let judged = if tried.is_err_and(|errno| errno != Errno::NOSPC) {
            tried
        } else if is_told && !filesystem.is_read_only() {
            Err(Errno::NOSPC)
        } else {
            // Where much comes free, the writes that follow need not wait for their pages.
            if let Err(error) = Standing::of(filesystem).free_pinned(MARGIN_BYTES) {
                tracing::debug!(%error, "a commit could not make room");
            }
            self.mounted.with_room(prospect)
        };
        if judged.is_err() {
            state.metrics().refused.increment();
        }
        judged.and_then(|()| self.shown.of_node(node))
    }
}
