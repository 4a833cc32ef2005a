//! The writing side of the fsync log: its trees, the space that they grow in, and how they become durable.
//!
//! A log belongs to one transaction: the next commit makes it worthless and frees it. The thread that writes
//! one holds a [`Handle`], so that the transaction can't end meanwhile. What the items mean is `fs`'s
//! business.
//!
//! | step | under | what |
//! |---|---|---|
//! | [`Handle::edit_log`] | the content lock | waits until the commit before is published; then items are changed in memory |
//! | [`LogEdit::finish`] | – | gives a [`LogTicket`]: what is in the log up to now |
//! | [`Handle::sync_log`] | – | makes everything up to a ticket durable: one writes, others ride |
//!
//! Invariants:
//! 1. Blocks of a log carry the generation of the running transaction, which is the committed one's
//!    successor.
//! 2. A block that may be on a device is never changed: it is sealed before it is written, and a change
//!    copies it.
//! 3. No address that a block of the log ever had is taken again before the commit that ends the log is
//!    durable.
//! 4. No superblock names a log that was left half made, or that reaches into a chunk which the committed
//!    state has not.

mod space;
mod sync;
mod writer;

use vlinder_base::sync::{Arc, MutexGuard};
use vlinder_format::{Generation, Key, Logical, RootId};
use vlinder_tree::{Cursor, Edit, Readahead, Root};

pub(crate) use self::space::take_for_log;
pub(crate) use self::writer::LogWriter;
use self::writer::{Content, Log};
use crate::checksums::ChecksumTree;
use crate::editor::Editor;
use crate::engine_core::EngineCore;
use crate::handle_space::HandleSpace;
use crate::phase::Unpublishable;
use crate::{EngineError, Handle};
use vlinder_space::Charge;

/// Why there is no log, so that only a commit makes something durable. Linux commits for the same reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoLog {
    /// A chunk was made in this transaction, and the committed state, by which a log is read, does not know
    /// it.
    NewChunk,
    /// There is no room for the log's blocks.
    NoSpace,
    /// The log would be larger than a replay may be.
    TooLarge,
    /// An earlier fsync of this transaction left the log half made.
    Broken,
}

/// What [`Handle::sync_log`] and [`Handle::edit_log`] can't do.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A commit does it.
    #[error("the log can't hold it ({0:?})")]
    NoLog(NoLog),
    /// The devices, or the state of the file system.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<vlinder_tree::TreeError> for LogError {
    fn from(error: vlinder_tree::TreeError) -> Self {
        match EngineError::from(error) {
            error if error.is_no_space() => Self::NoLog(NoLog::NoSpace),
            error => Self::Engine(error),
        }
    }
}

/// Everything that was put into the log before this was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing is durable before the log was synced"]
pub struct LogTicket {
    sequence: u64,
}

/// The log of the running transaction, being changed. Dropped without [`finish`](LogEdit::finish), it leaves
/// the log half made: until the next commit nothing more is logged then.
pub struct LogEdit<'a> {
    core: &'a EngineCore,
    content: MutexGuard<'a, Content>,
    editor: Editor<'a>,
    is_finished: bool,
}

impl Handle<'_> {
    /// Waits until the commit before this transaction is published: what it has is durable then, and a log
    /// goes on from there.
    ///
    /// # Errors
    /// That the file system has become read-only; [`EngineError::HostFull`] where that commit waits for space
    /// on the host.
    pub fn wait_until_published(&self) -> Result<(), EngineError> {
        let latch = self.core().latch();
        let waited = self.core().running().wait_until_published(self.generation(), || latch.check_writable());
        waited.map_err(|why| match why {
            Unpublishable::HeldUp => self.core().troubles().full_host(),
            Unpublishable::Refused(error) => error,
        })?;
        latch.check_writable()
    }

    /// Begins to change the log of this handle's transaction. Only one thread does at a time; the others
    /// wait.
    ///
    /// # Errors
    /// [`NoLog`], or that the file system has become read-only.
    pub fn edit_log(&self) -> Result<LogEdit<'_>, LogError> {
        let core = self.core();
        self.wait_until_published()?;
        let content = core.log().edit();
        let generation = self.generation();
        assert!(
            content.generation == generation || content.roots.is_none(),
            "a log outlived its transaction"
        );
        if core.chunks().has_new() {
            return Err(LogError::NoLog(NoLog::NewChunk));
        }
        if content.is_broken && content.generation == generation {
            return Err(LogError::NoLog(NoLog::Broken));
        }
        if core.log().is_too_large() {
            return Err(LogError::NoLog(NoLog::TooLarge));
        }
        let editor = Editor::new(
            core.log().trees(),
            HandleSpace::new(core.block_space(), None, Charge::default()),
            generation,
            core.trees().identity(),
        );
        let mut edit = LogEdit { core, content, editor, is_finished: false };
        edit.content.generation = generation;
        edit.content.sequence += 1;
        Ok(edit)
    }
}

impl LogEdit<'_> {
    /// The log of a subvolume, made if there is none.
    fn log(&mut self, subvolume: RootId) -> Result<Arc<Root>, LogError> {
        if let Some(log) = self.content.logs.get(&subvolume) {
            return Ok(Arc::clone(&log.root));
        }
        let root = Root::new(RootId::TREE_LOG, self.editor.create_tree(RootId::TREE_LOG)?, Generation(0));
        self.content.logs.insert(subvolume, Log { root: Arc::clone(&root), recorded: None });
        Ok(root)
    }

    /// Changes items of a subvolume's log: all edits or none; sorted by key.
    ///
    /// # Errors
    /// No space, or what reading blocks met.
    pub fn edit(&mut self, subvolume: RootId, edits: &[Edit<'_>]) -> Result<(), LogError> {
        let root = self.log(subvolume)?;
        Ok(self.editor.edit(&root, edits)?)
    }

    /// The items of a subvolume's log from `from` up to and with `to`.
    ///
    /// # Errors
    /// What reading blocks met.
    pub fn items(&self, subvolume: RootId, from: Key, to: Key) -> Result<Vec<(Key, Vec<u8>)>, LogError> {
        let Some(log) = self.content.logs.get(&subvolume) else { return Ok(Vec::new()) };
        Self::take_to(self.editor.trees.cursor(&log.root, &from, Readahead::None)?, to)
    }

    /// As [`items`](Self::items), with the last item before, if that is `wanted`.
    ///
    /// # Errors
    /// What reading blocks met.
    pub fn items_and_before(
        &self,
        subvolume: RootId,
        from: Key,
        to: Key,
        wanted: impl FnOnce(&Key) -> bool,
    ) -> Result<Vec<(Key, Vec<u8>)>, LogError> {
        let Some(log) = self.content.logs.get(&subvolume) else { return Ok(Vec::new()) };
        Self::take_to(self.editor.trees.cursor_at_or_before(&log.root, &from, wanted)?, to)
    }

    fn take_to(mut cursor: Cursor<'_>, to: Key) -> Result<Vec<(Key, Vec<u8>)>, LogError> {
        let mut items = Vec::new();
        while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= to) {
            items.push((key, data.to_vec()));
            cursor.advance()?;
        }
        Ok(items)
    }

    /// Puts the checksums of data into a subvolume's log, one for each sector from `start` on, in place of
    /// those that it has.
    ///
    /// # Errors
    /// No space, or what reading blocks met.
    pub fn put_checksums(
        &mut self,
        subvolume: RootId,
        start: Logical,
        checksums: &[u8],
    ) -> Result<(), LogError> {
        let root = self.log(subvolume)?;
        let geometry = self.core.trees().checksum_geometry();
        let tree = ChecksumTree { root: &root, geometry };
        tree.remove(&mut self.editor, start, geometry.covered(checksums.len()))?;
        Ok(tree.insert(&mut self.editor, start, checksums)?)
    }

    /// The log is whole again.
    pub fn finish(mut self) -> LogTicket {
        self.is_finished = true;
        LogTicket { sequence: self.content.sequence }
    }
}

impl Drop for LogEdit<'_> {
    fn drop(&mut self) {
        self.content.is_broken |= !self.is_finished;
    }
}
