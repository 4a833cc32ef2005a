//! Answers requests about open directories.

use vlinder_base::sync::Arc;
use vlinder_fs::{DirectoryRecord, FsError, Inode};

use super::convert::{errno, judged};
use super::durability::Durability;
use super::handles::Listing;
use super::mounted::{Mounted, visible};
use super::parts::Parts;
use super::shown::Shown;
use crate::transport::{
    DirectoryService, EntrySink, HandleNumber, ListedName, NameSink, NodeNumber, OpenedDirectory, Reply,
    Requester,
};

/// What a name takes in an answer besides its bytes, at least.
const NAME_BYTES: usize = 24 + 8;
/// The same with attributes.
const ENTRY_BYTES: usize = 152 + 8;
/// Names read at a time.
const MAX_NAMES: usize = 1024;

/// Open directories.
pub struct Directories {
    mounted: Arc<Mounted>,
    shown: Arc<Shown>,
    durability: Arc<Durability>,
}

impl Directories {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            shown: parts.shown.clone(),
            durability: parts.durability.clone(),
        }
    }

    /// The file of a name; none where it can't be read, so that its neighbours still are.
    fn listed_inode(&self, directory: &Arc<Inode>, record: &DirectoryRecord) -> Option<Arc<Inode>> {
        self.mounted
            .filesystem()
            .names()
            .listed(directory, record)
            .inspect_err(|error| tracing::warn!(%error, file = %record.id, "a listed file can't be read"))
            .ok()
            .and_then(|inode| visible(inode).ok())
    }

    fn walk(
        &self,
        handle: HandleNumber,
        offset: u64,
        most: usize,
        each: &mut dyn FnMut(&Arc<Inode>, &DirectoryRecord) -> bool,
    ) -> Reply<()> {
        let listing = self.mounted.handles().directory(handle)?;
        let mut listing = listing.lock();
        let walked = walk_listing(&mut listing, offset, most.clamp(1, MAX_NAMES), each);
        walked.map_err(|error| errno(&error))?;
        self.mounted.filesystem().attributes().note_access(listing.open.inode());
        Ok(())
    }
}

impl DirectoryService for Directories {
    fn open_directory(&self, requester: Requester, node: NodeNumber) -> Reply<OpenedDirectory> {
        let inode = self.mounted.inode(node)?;
        let open = self.mounted.filesystem().names().open_directory(&judged(requester, 0), &inode);
        let open = open.map_err(|error| errno(&error))?;
        let attributes_wanted = self.mounted.nodes().take_outdated(node);
        Ok(OpenedDirectory { handle: self.mounted.handles().insert_directory(open), attributes_wanted })
    }

    fn read_directory(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()> {
        self.walk(handle, offset, room_bytes / NAME_BYTES, &mut |_, record| {
            let number = self.mounted.nodes().number(record.id);
            sink(&listed(record, number))
        })
    }

    fn read_directory_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()> {
        self.walk(handle, offset, room_bytes / ENTRY_BYTES, &mut |directory, record| {
            // The kernel takes nothing but a number from these two (`fuse_direntplus_link` in
            // fs/fuse/readdir.c).
            if matches!(record.name.as_slice(), b"." | b"..") {
                return sink(&listed(record, self.mounted.nodes().number(record.id)), None);
            }
            let entry = self.listed_inode(directory, record).map(|inode| self.shown.uncounted_entry(&inode));
            let number = entry
                .as_ref()
                .map_or_else(|| self.mounted.nodes().number(record.id), |entry| entry.attributes.number);
            let taken = sink(&listed(record, number), entry.as_ref());
            if let (true, Some(entry)) = (taken, entry) {
                self.mounted.nodes().remember(entry.node, self.mounted.node(directory.id()));
            }
            taken
        })
    }

    /// The kernel keeps one listing for all readers of a directory, put together from the answers to each of
    /// them. If another reader began the listing after a name was made, and this reader, which began before,
    /// says where it ends, the kernel would keep a listing without that name. So the kernel drops its listing
    /// before it hears of such an end.
    fn answer_names(&self, handle: HandleNumber, answer: Box<dyn FnOnce() + Send>) {
        let ended = self.mounted.handles().directory(handle).ok().and_then(|listing| {
            let listing = listing.lock();
            listing.ended_early.then(|| self.mounted.node(listing.open.inode().id()))
        });
        let (Some(node), Some(notifier)) = (ended, self.mounted.kernel().notifier()) else { return answer() };
        let notifier = Arc::clone(notifier);
        self.mounted.kernel().run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, 0) {
                tracing::warn!(%error, "the kernel could not be made to drop its copy of a listing");
            }
            answer();
        }));
    }

    fn sync_directory(&self, handle: HandleNumber) -> Reply<()> {
        let listing = self.mounted.handles().directory(handle)?;
        let inode = Arc::clone(listing.lock().open.inode());
        self.durability.sync(&inode)
    }

    fn release_directory(&self, handle: HandleNumber) {
        self.mounted.handles().remove(handle);
    }
}

fn walk_listing(
    listing: &mut Listing,
    offset: u64,
    most: usize,
    each: &mut dyn FnMut(&Arc<Inode>, &DirectoryRecord) -> bool,
) -> Result<(), FsError> {
    // Not when the directory is opened: the server does not hear of a rewind before the first request, or
    // after a listing that the kernel had in its own cache.
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
