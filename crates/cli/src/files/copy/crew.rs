//! The threads of a copy: one walks the directories, the others copy what lies in them.
//!
//! Only a copy to the host has several: in an image, files get their numbers in the order of their creation,
//! and the same source is to give the same image.

use vlinder_base::channel::{self, Receiver, Sender};
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_places::failure::Failure;
use vlinder_places::place::{Entry, Location};

use super::copier::{Copier, CopyFrame, OpenFrame, Scratch};
use vlinder_format::inode::FileType;

/// More threads wait for each other in the directories of the host.
const MAX_THREADS: usize = 8;
/// Files handed to a thread at a time: mostly a directory's, for threads that make files in one directory
/// wait for each other.
const BATCH: usize = 64;
/// Batches that wait for each thread.
const WAITING: usize = 4;

/// Files of one directory.
struct Batch {
    frame: Arc<CopyFrame>,
    entries: Vec<Entry>,
}

impl Copier<'_> {
    /// Copies a file, or a directory and what is below it.
    pub fn copy(&self, from: &Location, to: &Location) -> Result<(), Failure> {
        let mut scratch = Scratch::default();
        let Some(top) = self.one(from, to, None, &mut scratch)? else { return Ok(()) };
        let threads = thread::available_parallelism().min(MAX_THREADS);
        if threads < 2 || to.directory.is_image() {
            self.walk(top, None, &mut scratch);
        } else {
            thread::scope(|scope| {
                let (sender, receiver) = channel::bounded(threads * WAITING);
                let start = |_: &usize| {
                    let receiver = receiver.clone();
                    thread::try_spawn_scoped(scope, move || self.work(&receiver)).is_ok()
                };
                // Where the system gives not one thread, this one does all.
                let crew = (0..threads).filter(start).count();
                self.walk(top, (crew > 0).then_some(&sender), &mut scratch);
            });
        }
        self.take_reason().map_or(Ok(()), |reason| {
            let message = format!("{}; what comes after it was not copied", reason.message);
            Err(Failure { message, ..reason })
        })
    }

    /// Walks depth first; files go to the crew, if there is one.
    fn walk(&self, top: OpenFrame, crew: Option<&Sender<Batch>>, scratch: &mut Scratch) {
        let mut stack = vec![top];
        while let Some(open) = stack.last_mut() {
            let next = if self.is_stopped() { None } else { open.entries.next() };
            let Some(entry) = next else {
                if let Some(open) = stack.pop() {
                    self.release(open.frame);
                }
                continue;
            };
            let is_directory = |entry: &Entry| entry.file_type == FileType::Directory;
            if let Some(crew) = crew.filter(|_| !is_directory(&entry)) {
                let mut entries = vec![entry];
                while entries.len() < BATCH
                    && open.entries.next_type().is_some_and(|next| next != FileType::Directory)
                {
                    entries.extend(open.entries.next());
                }
                let batch = Batch { frame: Arc::clone(&open.frame), entries };
                if let Err(refused) = crew.send(batch) {
                    self.files(refused.0, scratch);
                }
                continue;
            }
            let frame = Arc::clone(&open.frame);
            stack.extend(self.entry(&frame, entry, scratch));
            // The stack holds it as well, so this is never the last to let go.
            drop(frame);
        }
    }

    fn work(&self, batches: &Receiver<Batch>) {
        let mut scratch = Scratch::default();
        for batch in batches.iter() {
            self.files(batch, &mut scratch);
        }
    }

    fn files(&self, batch: Batch, scratch: &mut Scratch) {
        for entry in batch.entries {
            if self.is_stopped() {
                break;
            }
            // What is a directory though its entry said otherwise has its content copied here and now.
            if let Some(open) = self.entry(&batch.frame, entry, scratch) {
                self.walk(open, None, scratch);
            }
        }
        self.release(batch.frame);
    }
}
