//! Making the log durable: the blocks of all logs and of the tree of their roots, a flush, the primary
//! superblock. One thread writes for all whose changes are in; meanwhile others may go on changing copies.

use vlinder_base::sync::Arc;
use vlinder_device::Data;
use vlinder_format::{Block, Generation, ItemType, Key, ObjectId, RootId};
use vlinder_tree::{Change, Edit, Root, RootPointer};
use vlinder_volume::WriteRequest;

use super::writer::Content;
use super::{LogError, LogTicket, NoLog};
use crate::editor::Editor;
use crate::engine_core::EngineCore;
use crate::handle_space::HandleSpace;
use crate::sealing::seal_all;
use crate::unwinding::Unfinished;
use crate::{EngineError, Handle};
use vlinder_forest::new_root_item;
use vlinder_space::Charge;

/// A log as it will be on the devices.
struct SealedLog {
    blocks: Vec<Arc<Block>>,
    root: RootPointer,
    /// What is in it.
    sequence: u64,
}

impl Handle<'_> {
    /// Makes everything durable that was in the log when the ticket was given; the handle is the one that the
    /// log was changed with. All data that the log's items refer to have been written, though not flushed.
    ///
    /// # Errors
    /// [`NoLog`]: a commit has to do it. Any other error leaves it unsure what is on the devices, and the
    /// file system read-only.
    pub fn sync_log(&self, ticket: LogTicket) -> Result<(), LogError> {
        let (core, log) = (self.core(), self.core().log());
        let check = || core.latch().check_writable();
        if !log.begin_writing(self.generation(), ticket.sequence, check)? {
            return Ok(());
        }
        let unfinished = Unfinished::new(|| {
            core.shutdown().break_off("the writing of the fsync log");
            log.end_writing(self.generation(), None);
        });
        let written = LogSync { core, generation: self.generation() }.write();
        unfinished.end();
        log.end_writing(self.generation(), written.as_ref().ok().copied());
        if let Err(LogError::Engine(error)) = &written {
            core.shutdown().stop_writing(error);
        }
        written.map(drop)
    }
}

/// The writing of what is in the log of one transaction, by the thread that does it.
struct LogSync<'a> {
    core: &'a EngineCore,
    generation: Generation,
}

impl LogSync<'_> {
    /// Writes what is in the log; gives up to where.
    fn write(&self) -> Result<u64, LogError> {
        let _timer = self.core.log().sync_timer();
        let sealed = self.seal()?;
        let requests = sealed
            .blocks
            .iter()
            .map(|block| WriteRequest {
                logical: block.logical(),
                data: Data::Inside(Arc::clone(block) as _),
            })
            .collect();
        let written = self.core.volume().write(requests).and_then(|()| self.core.volume().flush_all());
        let published =
            written.and_then(|()| self.core.volume().publish_log(sealed.root.logical, sealed.root.level));
        match published {
            Ok(()) => {}
            // The log is whole on the devices or nothing refers to it, and its blocks stay taken until the
            // commit that follows is published. That is tried again until the host has space.
            Err(error) if error.full_host().is_some() => {
                self.core.log().note_broken();
                return Err(LogError::NoLog(NoLog::Broken));
            }
            Err(error) => return Err(EngineError::from(error).into()),
        }
        self.core.log().note_written(sealed.blocks.len());
        self.core.log().trees().thaw();
        Ok(sealed.sequence)
    }

    /// Brings the tree of the logs' roots up to date and takes all changed blocks, sealed. They are not
    /// changed from then on. No other thread is writing, so those taken before are in the clean cache.
    fn seal(&self) -> Result<SealedLog, LogError> {
        let mut content = self.core.log().content();
        if content.is_broken {
            return Err(LogError::NoLog(NoLog::Broken));
        }
        if self.core.chunks().has_new() {
            // A block or an extent of data may lie in it.
            return Err(LogError::NoLog(NoLog::NewChunk));
        }
        let root = match self.record_logs(&mut content) {
            Ok(root) => root,
            Err(error) => {
                content.is_broken = true;
                return Err(error);
            }
        };
        let blocks = self.core.log().trees().frozen(&self.core.log().trees().freeze(self.generation));
        let blocks = seal_all(self.core.blocks(), &blocks).map_err(EngineError::from)?;
        self.core.log().trees().seal_frozen(&blocks);
        Ok(SealedLog { blocks, root: root.pointer(), sequence: content.sequence })
    }

    /// Writes where each log begins into the tree of the logs' roots.
    fn record_logs(&self, content: &mut Content) -> Result<Arc<Root>, LogError> {
        let mut editor = Editor::new(
            self.core.log().trees(),
            HandleSpace::new(self.core.block_space(), None, Charge::default()),
            self.generation,
            self.core.trees().identity(),
        );
        let roots = match &content.roots {
            Some(roots) => Arc::clone(roots),
            None => {
                let roots = Root::new(RootId::TREE_LOG, editor.create_tree(RootId::TREE_LOG)?, Generation(0));
                Arc::clone(content.roots.insert(roots))
            }
        };
        for (subvolume, log) in &mut content.logs {
            let pointer = log.root.pointer();
            if log.recorded == Some(pointer) {
                continue;
            }
            let key = Key::new(ObjectId(RootId::TREE_LOG.0), ItemType::ROOT_ITEM, subvolume.0);
            let item = new_root_item(pointer).encode();
            editor.edit(&roots, &[Edit::new(key, Change::Put(&item))])?;
            log.recorded = Some(pointer);
        }
        Ok(roots)
    }
}
