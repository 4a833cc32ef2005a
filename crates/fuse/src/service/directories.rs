//! Listing directories.

use vlinder_base::sync::Arc;
use vlinder_fs::{DirectoryRecord, FsError, Inode};

use super::MountService;
use super::convert::errno;
use super::handles::Listing;
use crate::transport::{EntrySink, HandleNumber, ListedName, NameSink, Reply};

/// What a name takes in an answer besides its bytes, at least.
const NAME_BYTES: usize = 24 + 8;
/// The same with attributes.
const ENTRY_BYTES: usize = 152 + 8;
/// Names read at a time.
const MOST_NAMES: usize = 1024;

impl MountService {
    pub(super) fn list(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()> {
        self.walk(handle, offset, room_bytes / NAME_BYTES, &mut |_, record| {
            let number = self.numbers.number(record.id);
            sink(&listed(record, number))
        })
    }

    pub(super) fn list_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()> {
        self.walk(handle, offset, room_bytes / ENTRY_BYTES, &mut |directory, record| {
            let is_dot = matches!(record.name.as_slice(), b"." | b"..");
            let entry = self.listed_inode(directory, record).map(|inode| self.uncounted_entry(&inode));
            let number = entry
                .as_ref()
                .map_or_else(|| self.numbers.number(record.id), |entry| entry.attributes.number);
            let taken = sink(&listed(record, number), entry.as_ref());
            // The kernel learns nothing of these two.
            if let (true, false, Some(entry)) = (taken, is_dot, entry) {
                self.remember(entry.node, self.node(directory.id()));
            }
            taken
        })
    }

    /// Sends the answer to a request for names. The kernel keeps one listing for all that read a directory,
    /// put together from the answers to each of them. Where another reader began it after a name was made,
    /// and this one, which began before, says where it ends, the kernel would keep it without that name. So
    /// the kernel drops it before it hears of such an end.
    pub(super) fn answer_listing(&self, handle: HandleNumber, answer: Box<dyn FnOnce() + Send>) {
        let ended = self.handles.directory(handle).ok().and_then(|listing| {
            let listing = listing.lock();
            listing.ended_early.then(|| self.node(listing.open.inode().id()))
        });
        let (Some(node), Some(notifier)) = (ended, self.notifier.get()) else { return answer() };
        let notifier = Arc::clone(notifier);
        self.aside.run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, 0) {
                tracing::warn!(%error, "the kernel could not be made to drop its copy of a listing");
            }
            answer();
        }));
    }

    /// The file of a name; none where it can't be read, so that its neighbours still are.
    fn listed_inode(&self, directory: &Arc<Inode>, record: &DirectoryRecord) -> Option<Arc<Inode>> {
        self.filesystem
            .listed(directory, record)
            .inspect_err(|error| tracing::warn!(%error, file = %record.id, "a listed file can't be read"))
            .ok()
    }

    fn walk(
        &self,
        handle: HandleNumber,
        offset: u64,
        most: usize,
        each: &mut dyn FnMut(&Arc<Inode>, &DirectoryRecord) -> bool,
    ) -> Reply<()> {
        let listing = self.handles.directory(handle)?;
        let mut listing = listing.lock();
        let walked = walk_listing(&mut listing, offset, most.clamp(1, MOST_NAMES), each);
        walked.map_err(|error| errno(&error))?;
        self.filesystem.note_access(listing.open.inode());
        Ok(())
    }
}

fn walk_listing(
    listing: &mut Listing,
    offset: u64,
    most: usize,
    each: &mut dyn FnMut(&Arc<Inode>, &DirectoryRecord) -> bool,
) -> Result<(), FsError> {
    // Not when the directory is opened: a rewind before the first request, or after a listing that the kernel
    // had in its own cache, never comes here.
    if offset == 0 || !listing.was_read {
        listing.open.rewind()?;
    }
    listing.was_read = true;
    listing.ended_early = false;
    let mut next = offset;
    loop {
        let records = listing.open.read(next, most)?;
        let Some(last) = records.last() else {
            listing.ended_early = next == offset && listing.open.is_outdated()?;
            return Ok(());
        };
        next = last.offset.saturating_add(1);
        for record in &records {
            if !each(listing.open.inode(), record) {
                return Ok(());
            }
        }
    }
}

fn listed<'a>(record: &'a DirectoryRecord, number: u64) -> ListedName<'a> {
    let mode = record.file_type.mode_bits();
    ListedName { name: &record.name, number, mode, next: record.offset.saturating_add(1) }
}
