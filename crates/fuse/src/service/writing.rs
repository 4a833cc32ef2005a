//! Writes files: what programs write past the kernel's cache, and what the kernel hands over from there.

use std::borrow::Cow;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::ContentTimes;

use super::blocks::Blocks;
use super::durability::{Durability, is_synchronous};
use super::gate::Gate;
use super::handles::OpenFile;
use super::kept_pages::KeptPages;
use super::mounted::Mounted;
use super::parts::Parts;
use super::privileges::Privileges;
use super::unplaced::UnplacedBytes;
use crate::transport::{Deferred, HandleNumber, Reply, Requester, WriteOrigin};

/// Takes what is written.
pub(super) struct Writing {
    mounted: Arc<Mounted>,
    gate: Arc<Gate>,
    blocks: Arc<Blocks>,
    unplaced: Arc<UnplacedBytes>,
    kept_pages: Arc<KeptPages>,
    durability: Arc<Durability>,
}

impl Writing {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            gate: parts.gate.clone(),
            blocks: parts.blocks.clone(),
            unplaced: parts.unplaced.clone(),
            kept_pages: parts.kept_pages.clone(),
            durability: parts.durability.clone(),
        }
    }

    /// What a write past the kernel's cache does to the times. With the writeback cache the kernel stamps a
    /// write with `O_DIRECT` like any other (`fuse_cache_write_iter`): a stamp of the server could be a tick
    /// later than the one that stat(2) shows. The kernel stamps none through a file that was opened past the
    /// cache; and where the server alone makes a write durable, the time has to be durable, too.
    fn times(&self, file: &OpenFile, origin: WriteOrigin) -> ContentTimes {
        let comes = origin.direct && self.mounted.has_writeback() && !file.past_cache;
        if comes && !is_synchronous(file.open.inode()) { ContentTimes::ComeLater } else { ContentTimes::Move }
    }

    /// Writes; returns whether the file has to be durable before that is answered.
    fn write_file(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<bool> {
        let file = self.mounted.handles().file(handle)?;
        let inode = file.open.inode();
        if !origin.past_cache {
            self.kept_pages.note_use(inode.id());
        }
        let caller = Privileges::writer(requester, inode, origin);
        let open = vlinder_fs::WriteOrigin::OpenFile { times: self.times(&file, origin) };
        let filesystem = self.mounted.filesystem();
        let turn = self.unplaced.turn();
        let written = if origin.cache {
            // Without the writeback cache only mapped bytes come so, and the kernel keeps no times for them.
            let mapped = vlinder_fs::WriteOrigin::Mapped;
            let cached =
                if self.mounted.has_writeback() { vlinder_fs::WriteOrigin::WriteBack } else { mapped };
            filesystem.files().write_file(&caller, inode, offset, Cow::Borrowed(data), cached)
        } else if origin.direct {
            filesystem.files().write_file_direct(&caller, inode, &[(offset, data)], open)
        } else {
            filesystem.files().write_file(&caller, inode, offset, Cow::Borrowed(data), open)
        };
        if written.is_ok() {
            if origin.cache {
                self.blocks.note_come(inode);
            }
            self.unplaced.drop_range(inode.id(), offset, offset.saturating_add(data.len() as u64));
        }
        drop(turn);
        self.mounted.note_change(inode, written)?;
        if origin.cache && !self.mounted.has_writeback() {
            self.mounted.attributes_changed(inode.id());
        }
        // After writes to its cache the kernel asks for fsync by itself. It does not where files bypass the
        // cache, and it does not know which files chattr(1) made synchronous.
        Ok((origin.synchronous && !origin.cache) || is_synchronous(inode))
    }

    /// As [`write_file`](Self::write_file), which is tried again where there may be room soon. Bytes that
    /// find no room though the kernel has taken them are kept.
    pub(super) fn write_or_keep(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()> {
        // The size as the kernel had it when the program wrote, as far as the server knows that: after the
        // write the bytes lie inside the file.
        let open_file = || self.mounted.handles().file(handle).ok();
        let watched = if origin.cache && self.gate.is_shut() { open_file() } else { None };
        let size_before = watched.as_ref().map(|file| file.open.inode().size());
        let written = self.mounted.with_room(|| self.write_file(requester, handle, offset, data, origin));
        let is_refused = origin.cache && matches!(written, Err(Errno::NOSPC | Errno::DQUOT));
        if let Some(file) = watched.or_else(|| is_refused.then(open_file).flatten()) {
            let inode = file.open.inode();
            // What was refused has left the size as it was.
            let size = size_before.unwrap_or_else(|| inode.size());
            if is_refused {
                let is_kept = self.unplaced.keep(inode, size, offset, data);
                self.gate.note_refusal(inode.id(), is_kept);
            }
            self.gate.note_unasked(inode.id(), size, offset, data.len() as u64);
        }
        if let Err(failure) = &written
            && origin.cache
            && !is_refused
            && !self.mounted.filesystem().is_read_only()
            && let Some(file) = open_file()
        {
            self.unplaced.note_lost(file.open.inode(), offset, *failure);
        }
        self.gate.note_taken(data.len() as u64, &written);
        // What is stored and can't be made durable is neither refused nor lost.
        if written? { self.durability.sync_file(handle) } else { Ok(()) }
    }

    /// Answers a write past the page cache when the kernel keeps no older pages of the range. The pages go
    /// also where the write failed: it may have changed a part.
    pub(super) fn answer_past_cache(
        &self,
        handle: HandleNumber,
        range: (u64, u64),
        written: Reply<()>,
        answer: Deferred<()>,
    ) {
        let Ok(file) = self.mounted.handles().file(handle) else { return answer(written) };
        let id = file.open.inode().id();
        let Some(due) = self.kept_pages.due(id) else { return answer(written) };
        // Before the transport is there the kernel has no pages.
        let Some(notifier) = self.mounted.kernel().notifier() else { return answer(written) };
        let (kept, notifier) = (Arc::clone(&self.kept_pages), Arc::clone(notifier));
        let node = self.mounted.node(id);
        self.mounted.kernel().run(Box::new(move || {
            let drop_pages = |offset, length| notifier.invalidate_range(node, offset, length);
            match kept.carry_out(id, due, range, drop_pages) {
                Ok(()) => answer(written),
                Err(error) => {
                    tracing::warn!(%error, "the kernel could not be made to drop pages after a direct write");
                    answer(Err(Errno::IO));
                }
            }
        }));
    }
}
