//! When the gate is shut and opened, and how it is kept shut.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::metrics::Registry;
use vlinder_base::sync::{Arc, OnceLock};
use vlinder_fs::{Inode, InodeFlags, InodeId};

use super::looks::Looks;
use super::page_cache::PageCache;
use super::refusals::Told;
use super::schedule::Schedule;
use super::state::GateState;
use crate::service::mounted::Mounted;
use crate::transport::{NodeNumber, Reply};

/// Room that is kept beside what the kernel is known to hold: the kernel counts its pages for each processor
/// apart, and writes that were let in are under way.
pub(super) const MARGIN_BYTES: u64 = 16 << 20;
/// An open looks at the room again after this time, because an administrator may have raised the kernel's
/// limit.
const OLD_LOOK: Duration = Duration::from_millis(10);

/// The gate of a mount.
pub(in crate::service) struct Gate {
    mounted: Arc<Mounted>,
    state: GateState,
    looks: Looks,
    /// Known once there is a mount that has a gate.
    page_cache: OnceLock<PageCache>,
    schedule: Arc<Schedule>,
}

impl Gate {
    /// Open, and nothing shuts it before [`watch`](Self::watch).
    pub(in crate::service) fn new(mounted: Arc<Mounted>, registry: &Registry) -> Self {
        Self {
            mounted,
            state: GateState::new(registry),
            looks: Looks::default(),
            page_cache: OnceLock::new(),
            schedule: Arc::default(),
        }
    }

    /// Shuts the gate from now on where room is short, on a mount with this device number.
    pub(in crate::service) fn watch(&self, device: (u32, u32)) {
        // Said twice, the first stays; a mount has one device number.
        let _ = self.page_cache.set(PageCache::of(device));
        if !asks_for_writes_alone(&rustix::system::uname().release().to_string_lossy()) {
            tracing::info!(
                "the kernel is too old to ask before writes; files are opened past its cache where room is short"
            );
            self.state.pass_by();
        }
        self.look();
    }

    pub(super) fn state(&self) -> &GateState {
        &self.state
    }

    pub(super) fn page_cache(&self) -> Option<&PageCache> {
        self.page_cache.get()
    }

    pub(super) fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    pub(super) fn now(&self) -> Duration {
        self.mounted.filesystem().options().clock.monotonic()
    }

    /// Decides whether the gate is to be shut, by a look that begins after this call.
    pub(in crate::service) fn look(&self) {
        if let Some(page_cache) = self.page_cache.get() {
            self.looks.ask(|| self.look_now(page_cache));
        }
    }

    fn look_now(&self, page_cache: &PageCache) {
        let (state, filesystem) = (&self.state, self.mounted.filesystem());
        state.begin_look(self.now());
        let was_shut = state.is_shut();
        let room = filesystem.maintenance().room_for_writers();
        let limit = page_cache.limit_bytes();
        let mut least = filesystem.options().dirty_bytes.saturating_add(limit);
        if was_shut {
            // What comes free and goes again must not open and shut it over and over.
            least = least.saturating_add(least / 8);
        }
        let is_shut = room < least || filesystem.is_read_only();
        let budget = if is_shut { MARGIN_BYTES } else { (room - least) / 2 };
        state.end_look(is_shut, limit, budget);
        if is_shut && !was_shut {
            state.metrics().shut.increment();
            tracing::debug!(room, least, "writes ask for room from now on");
            self.shut_all();
        }
    }

    /// Shuts all files once more where the gate is shut.
    pub(super) fn shut_again(&self) {
        if self.state.is_shut() {
            self.shut_all();
        }
    }

    fn shut_all(&self) {
        for node in self.mounted.written_files() {
            self.shut(node);
            self.schedule.shut_later(node, self.now());
        }
    }

    /// Marks a file's attributes invalid in the kernel.
    pub(super) fn shut(&self, node: NodeNumber) {
        if let Some(notifier) = self.mounted.kernel().notifier().filter(|_| !self.state.is_passed_by())
            && let Err(error) = notifier.invalidate_attributes(node)
        {
            tracing::warn!(%error, "the kernel could not be told that writes are to ask for room");
        }
    }

    /// Whether the writers of a file with these flags have to ask before each write.
    pub(super) fn writers_ask(&self, flags: InodeFlags) -> bool {
        self.state.is_shut() || (self.mounted.has_writeback() && flags.has(InodeFlags::SYNC))
    }

    /// To be called before a reply with a file's attributes is sent that the kernel compares with their
    /// version.
    pub(in crate::service) fn keep_shut(&self, id: InodeId, flags: InodeFlags) {
        if self.writers_ask(flags) && self.mounted.handles().is_written(id) {
            self.shut(self.mounted.node(id));
        }
    }

    /// To be called where a reply with a file's attributes is about to be sent that the kernel takes as it
    /// comes.
    pub(in crate::service) fn shut_after_reply(&self, inode: &Inode) {
        if self.writers_ask(inode.flags()) && self.mounted.handles().is_written(inode.id()) {
            self.schedule.shut_later(self.mounted.node(inode.id()), self.now());
        }
    }

    /// A file was opened for writing, and its handle is among those that are open.
    pub(in crate::service) fn note_opened(&self, inode: &Inode) {
        if self.page_cache.get().is_none() {
            return;
        }
        self.schedule.note_opened();
        if self.now().saturating_sub(self.state.last_look()) >= OLD_LOOK {
            self.look();
        }
        self.keep_shut(inode.id(), inode.flags());
    }

    /// Bytes were written or allocated, or could not be.
    pub(in crate::service) fn note_taken<T>(&self, bytes: u64, taken: &Reply<T>) {
        let fails = matches!(taken, Err(Errno::NOSPC | Errno::ROFS | Errno::IO | Errno::DQUOT));
        if self.state.note_taken(bytes) || (fails && !self.state.is_shut()) {
            self.look();
        }
    }

    /// A part of what the kernel had taken of a file was refused, and is kept or lost.
    pub(in crate::service) fn note_refusal(&self, id: InodeId, is_kept: bool) {
        self.state.note_refusal(id, is_kept);
    }

    /// A file is not open for writing any more.
    pub(in crate::service) fn forget_writer(&self, id: InodeId) {
        self.state.forget(id);
    }

    /// What the writer of a file that is opened now was told.
    pub(in crate::service) fn told_at_opening(&self) -> Told {
        self.state.told_at_opening()
    }

    /// Whether a file that is opened now has to go past the kernel's cache, since the kernel would not ask.
    pub(in crate::service) fn goes_past_the_cache(&self, inode: &Inode) -> bool {
        self.state.is_passed_by() && self.writers_ask(inode.flags())
    }

    /// Whether writes ask.
    pub(in crate::service) fn is_shut(&self) -> bool {
        self.state.is_shut()
    }

    /// Bytes of a file that had this size came from the kernel's cache, and were taken or refused. Bytes
    /// inside the file may be mapped ones, for which the kernel does not ask.
    pub(in crate::service) fn note_unasked(&self, id: InodeId, size_before: u64, offset: u64, bytes: u64) {
        let (state, end) = (&self.state, offset.saturating_add(bytes));
        let grows = state.is_shut() && end > size_before;
        if grows && state.note_unasked(id, bytes, state.limit_bytes()) {
            tracing::error!(
                "the kernel takes bytes without asking whether there is room; files are opened past its cache where that is short"
            );
        }
    }
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
