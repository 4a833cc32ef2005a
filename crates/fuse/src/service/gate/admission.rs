//! When the gate is shut and opened, and what a write that asks at it is told.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::sync::atomic::Ordering;
use vlinder_base::sync::{Arc, Weak};
use vlinder_fs::{Inode, InodeFlags, InodeId, Prospect, Standing};

use super::super::MountService;
use super::super::convert::errno;
use super::super::files::is_synchronous;
use super::super::handles::OpenFile;
use super::page_cache::PageCache;
use super::{BYTES_PER_NANOSECOND, LONGEST_PASS, MARGIN_BYTES, Told};
use crate::transport::{Deferred, HandleNumber, NodeAttributes, NodeNumber, Reply};

/// An open looks at the room again after this time, because an administrator may have raised the kernel's
/// limit.
const OLD_LOOK: Duration = Duration::from_millis(10);

/// While bytes are tried again that found no room; ends with this, whatever becomes of it.
struct Placing(Arc<MountService>);

impl Drop for Placing {
    fn drop(&mut self) {
        self.0.gate.is_placing.store(false, Ordering::SeqCst);
    }
}

impl MountService {
    /// Looks after the room for writers from now on, on a mount with this device number.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub fn keep_room(self: &Arc<Self>, device: (u32, u32)) -> std::io::Result<()> {
        if !self.writeback || self.filesystem.is_read_only() {
            return Ok(());
        }
        let service: Weak<Self> = Arc::downgrade(self);
        // Said twice, the first stay; a mount has one device number.
        let _ = self.gate.page_cache.set(PageCache::of(device));
        let _ = self.this.set(service.clone());
        if !asks_for_writes_alone(&rustix::system::uname().release().to_string_lossy()) {
            tracing::info!(
                "the kernel is too old to ask before writes; files are opened past its cache where room is short"
            );
            self.gate.is_passed_by.store(true, Ordering::Relaxed);
        }
        self.look();
        self.gate.keeper.start(service, Arc::clone(&self.filesystem.options().clock))
    }

    fn now(&self) -> Duration {
        self.filesystem.options().clock.monotonic()
    }

    /// Decides whether the gate is to be shut, by a look that begins after this call.
    pub(in super::super) fn look(&self) {
        if let Some(page_cache) = self.gate.page_cache.get() {
            self.gate.looks.ask(|| self.look_now(page_cache));
        }
    }

    fn look_now(&self, page_cache: &PageCache) {
        let gate = &self.gate;
        gate.last_look.store(nanoseconds(self.now()), Ordering::Relaxed);
        let was_shut = gate.is_shut();
        let room = self.filesystem.room_for_writers();
        let limit = page_cache.limit_bytes();
        gate.limit_bytes.store(limit, Ordering::Relaxed);
        let mut least = self.filesystem.options().dirty_bytes.saturating_add(limit);
        if was_shut {
            // What comes free and goes again must not open and shut it over and over.
            least = least.saturating_add(least / 8);
        }
        let is_shut = room < least || self.filesystem.is_read_only();
        let budget = if is_shut { MARGIN_BYTES } else { (room - least) / 2 };
        gate.budget_bytes.store(i64::try_from(budget).unwrap_or(i64::MAX), Ordering::Relaxed);
        gate.is_shut.store(is_shut, Ordering::SeqCst);
        if is_shut && !was_shut {
            gate.metrics.shut.increment();
            tracing::debug!(room, least, "writes ask for room from now on");
            self.shut_all();
        }
    }

    /// As [`look`](Self::look), at intervals; whether files are open for writing.
    pub(super) fn look_again(&self) -> bool {
        self.look();
        if self.gate.is_shut() {
            self.shut_all();
        }
        self.tell_all_blocks();
        self.place_aside();
        self.handles.has_writers() || self.has_unplaced()
    }

    /// Tries again what found no room, unless that is being done: a full device may take long, and the keeper
    /// has files to shut.
    fn place_aside(&self) {
        let Some(service) = self.this.get().and_then(Weak::upgrade) else { return };
        if !self.has_unplaced() || self.gate.is_placing.swap(true, Ordering::SeqCst) {
            return;
        }
        let placing = Placing(service);
        self.aside.run(Box::new(move || {
            if let Err(errno) = placing.0.place_all() {
                tracing::debug!(%errno, "what found no room still finds none");
            }
        }));
    }

    fn shut_all(&self) {
        for node in self.written_files() {
            self.shut(node);
            self.gate.keeper.shut_later(node, self.now());
        }
    }

    /// Marks a file's attributes invalid in the kernel.
    pub(super) fn shut(&self, node: NodeNumber) {
        if let Some(notifier) = self.notifier.get().filter(|_| !self.gate.is_passed_by())
            && let Err(error) = notifier.invalidate_attributes(node)
        {
            tracing::warn!(%error, "the kernel could not be told that writes are to ask for room");
        }
    }

    /// Whether the writers of a file with these flags have to ask before each write.
    fn writers_ask(&self, flags: InodeFlags) -> bool {
        self.gate.is_shut() || (self.writeback && flags.has(InodeFlags::SYNC))
    }

    /// To be called before a reply with a file's attributes is sent that the kernel compares with their
    /// version.
    pub(in super::super) fn keep_shut(&self, id: InodeId, flags: InodeFlags) {
        if self.writers_ask(flags) && self.handles.is_written(id) {
            self.shut(self.node(id));
        }
    }

    /// To be called where a reply with a file's attributes is about to be sent that the kernel takes as it
    /// comes.
    pub(in super::super) fn shut_after_reply(&self, inode: &Inode) {
        if self.writers_ask(inode.flags()) && self.handles.is_written(inode.id()) {
            self.gate.keeper.shut_later(self.node(inode.id()), self.now());
        }
    }

    /// A file was opened for writing, and is among [`written_files`](Self::written_files).
    pub(in super::super) fn note_opened(&self, inode: &Inode) {
        if self.gate.page_cache.get().is_none() {
            return;
        }
        self.gate.keeper.note_opened();
        let last = Duration::from_nanos(self.gate.last_look.load(Ordering::Relaxed));
        if self.now().saturating_sub(last) >= OLD_LOOK {
            self.look();
        }
        self.keep_shut(inode.id(), inode.flags());
    }

    /// Bytes were written or allocated, or could not be.
    pub(in super::super) fn note_taken<T>(&self, bytes: u64, taken: &Reply<T>) {
        let fails = matches!(taken, Err(Errno::NOSPC | Errno::ROFS | Errno::IO | Errno::DQUOT));
        if self.gate.note_taken(bytes) || (fails && !self.gate.is_shut()) {
            self.look();
        }
    }

    /// A part of what the kernel had taken of a file was refused, and is kept or lost.
    pub(in super::super) fn note_refusal(&self, id: InodeId, is_kept: bool) {
        self.gate.note_refusal(id, is_kept);
    }

    /// A file is not open for writing any more.
    pub(in super::super) fn forget_writer(&self, id: InodeId) {
        self.gate.forget(id);
        self.blocks.forget(id);
    }

    /// What the writer of a file that is opened now was told.
    pub(in super::super) fn told_at_opening(&self) -> Told {
        self.gate.refusals.told_at_opening()
    }

    /// Whether a file that is opened now has to go past the kernel's cache, since the kernel would not ask.
    pub(in super::super) fn goes_past_the_cache(&self, inode: &Inode) -> bool {
        self.gate.is_passed_by() && self.writers_ask(inode.flags())
    }

    pub(in super::super) fn is_gate_shut(&self) -> bool {
        self.gate.is_shut()
    }

    /// Bytes of a file that had this size came from the kernel's cache, and were taken or refused. Those
    /// inside the file may be mapped ones, which nobody asks for.
    pub(in super::super) fn note_unasked(&self, id: InodeId, size_before: u64, offset: u64, bytes: u64) {
        let (gate, end) = (&self.gate, offset.saturating_add(bytes));
        let grows = gate.is_shut() && end > size_before;
        if grows && gate.note_unasked(id, bytes, gate.limit_bytes.load(Ordering::Relaxed)) {
            tracing::error!(
                "the kernel takes bytes without asking whether there is room; files are opened past its cache where that is short"
            );
        }
    }

    /// Answers a GETATTR that came with a handle: while the gate is shut, the question of a write.
    pub(in super::super) fn admit(
        &self,
        node: NodeNumber,
        handle: HandleNumber,
        answer: Deferred<NodeAttributes>,
    ) {
        let asks = |file: &OpenFile| file.writes && self.writers_ask(file.open.inode().flags());
        let file = self.handles.file(handle).ok().filter(|file| !self.gate.is_passed_by() && asks(file));
        let Some(file) = file else { return answer(self.attributes_now(node)) };
        if !self.gate.is_shut() {
            return self.push_before(node, answer, move |service| service.attributes_now(node));
        }
        self.gate.metrics.asked.increment();
        self.gate.note_asked(file.open.inode().id());
        if !is_synchronous(file.open.inode()) && self.passes_at_once(&file) {
            return answer(self.attributes_now(node));
        }
        self.gate.metrics.pushed.increment();
        self.push_before(node, answer, move |service| service.judge(node, &file));
    }

    /// Answers when the kernel has handed over all bytes of a file that it had when it asked.
    fn push_before(
        &self,
        node: NodeNumber,
        answer: Deferred<NodeAttributes>,
        judge: impl FnOnce(&Self) -> Reply<NodeAttributes> + Send + 'static,
    ) {
        let (Some(service), Some(notifier)) = (self.this.get().and_then(Weak::upgrade), self.notifier.get())
        else {
            return answer(Err(Errno::IO));
        };
        let notifier = Arc::clone(notifier);
        self.aside.run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, 0) {
                tracing::warn!(%error, "the kernel could not be made to write before a write that needs room");
                return answer(Err(Errno::IO));
            }
            answer(judge(&service));
        }));
    }

    /// Whether there is room for what the kernel holds and more, so that a write may go on.
    fn passes_at_once(&self, file: &OpenFile) -> bool {
        let (gate, now) = (&self.gate, nanoseconds(self.now()));
        if now < gate.pass_until.load(Ordering::Relaxed) {
            return true;
        }
        let Some(page_cache) = gate.page_cache.get() else { return true };
        let last_refusal = gate.refusals.last();
        let has_news = || gate.refusals.has_news(file.open.inode().id(), &file.told);
        if self.filesystem.is_read_only() || self.has_unplaced() || has_news() {
            return false;
        }
        let room = self.filesystem.room_for_writers().saturating_sub(MARGIN_BYTES);
        let held = page_cache.held_bytes();
        let held = held.min(gate.limit_bytes.load(Ordering::Relaxed));
        let Some(left) = room.checked_sub(held).filter(|left| *left > 0) else { return false };
        let pass = (left / BYTES_PER_NANOSECOND).min(nanoseconds(LONGEST_PASS));
        let until = now.saturating_add(pass);
        gate.refusals.do_unless_newer(last_refusal, || gate.pass_until.store(until, Ordering::Relaxed))
    }

    /// What a write is told whose file has no dirty pages in the kernel.
    fn judge(&self, node: NodeNumber, file: &OpenFile) -> Reply<NodeAttributes> {
        let inode = file.open.inode();
        // Bytes that are refused after this may not be among those that find their place.
        let last_refusal = self.gate.refusals.last();
        let tried = self.place(inode.id());
        let placed = if tried.is_ok() { last_refusal } else { 0 };
        let prospect = || match self.filesystem.prospect_of_writer(inode) {
            Ok(Prospect::Room | Prospect::OwnSpace) => Ok(()),
            Ok(Prospect::None) => Err(Errno::NOSPC),
            Err(error) => Err(errno(&error)),
        };
        let is_told = self.gate.refusals.take(inode.id(), &file.told, placed);
        let judged = if tried.is_err_and(|errno| errno != Errno::NOSPC) {
            tried
        } else if is_told && !self.filesystem.is_read_only() {
            Err(Errno::NOSPC)
        } else {
            self.free_what_is_pinned();
            self.with_room(prospect)
        };
        if judged.is_err() {
            self.gate.metrics.refused.increment();
        }
        judged.and_then(|()| self.attributes_now(node))
    }

    /// Commits where that frees much, so that the writes that follow need not wait for their pages.
    fn free_what_is_pinned(&self) {
        if let Err(error) = Standing::of(&self.filesystem).free_pinned(MARGIN_BYTES) {
            tracing::debug!(%error, "a commit could not make room");
        }
    }

    /// Ends what looks after the room.
    pub(in super::super) fn finish_gate(&self) {
        self.gate.keeper.finish();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a kernel of this release asks through a handle only before writes. Before 5.16 it asks before
/// reads past the end as well (`fuse_update_attributes` had no mask), and an error would be theirs.
fn asks_for_writes_alone(release: &str) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 16),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_known_by_their_release() {
        let asking = ["6.18.44-fc-v669", "5.16", "6.1.0-13-amd64", "10.0-rc1"];
        assert!(asking.into_iter().all(asks_for_writes_alone));
        assert!(!["5.15.0-91-generic", "4.19.2", "5", "", "x.y"].into_iter().any(asks_for_writes_alone));
    }
}
