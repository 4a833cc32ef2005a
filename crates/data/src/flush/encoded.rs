//! Bytes that come compressed already are kept as they came.
//!
//! They are written as any bytes, so that space is promised for them and readers see them at once. Then the
//! file is flushed, with the compressed form in place of a plan. Where something else was dirty in the file,
//! or somebody changed or flushed the bytes meanwhile, they are flushed as any others.

use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;

use super::direct::{enter_many, lock_storing, put_in_order};
use super::files;
use super::plan::{FlushPlan, Form, PlannedExtent};
use super::run::FlushRun;
use super::write_out;
use crate::compression::require_feature;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::runs::Runs;
use crate::write::write;
use crate::{Result, SpaceFailure};

/// Bytes of a file in the form that an extent has on disk.
#[derive(Clone, Copy, Debug)]
pub struct EncodedBytes<'a> {
    /// Where in the file they begin.
    pub offset: u64,
    /// The bytes: whole sectors, or up to the end of the file.
    pub plain: &'a [u8],
    /// How they are compressed. LZO is divided by this file system's sectors.
    pub compression: Compression,
    /// Their compressed form, not padded: it decompresses to `plain`, filled up with zeros to whole sectors.
    pub encoded: &'a [u8],
}

/// Writes bytes, and keeps their compressed form if the file may have compressed extents and that saves a
/// sector. The caller holds the operation lock exclusively, and has compared both forms.
///
/// # Errors
/// As [`write`](fn@write).
pub fn write_encoded(store: &FileStore, node: &Arc<FileNode>, bytes: &EncodedBytes<'_>) -> Result<()> {
    let sector_bytes = store.sector_size() as usize;
    let whole_bytes = bytes.plain.len().next_multiple_of(sector_bytes);
    let encoded_bytes = bytes.encoded.len().next_multiple_of(sector_bytes);
    let end = bytes.offset.saturating_add(bytes.plain.len() as u64);
    let flags = node.flags();
    let is_kept = bytes.offset.is_multiple_of(sector_bytes as u64)
        && (whole_bytes == bytes.plain.len() || end >= node.size())
        && encoded_bytes < whole_bytes
        && !flags.has_any(InodeFlags::NODATACOW | InodeFlags::NODATASUM | InodeFlags::PREALLOC);
    if !is_kept {
        return write(store, node, bytes.offset, bytes.plain.into());
    }
    require_feature(store, bytes.compression)?;
    if node.data().unwritten_bytes() > 0 {
        files::flush(store, node)?;
    }
    write(store, node, bytes.offset, bytes.plain.into())?;
    let ordered = {
        let _storing = lock_storing(store, node);
        FlushRun::take(store, &[node]).order_encoded(bytes, encoded_bytes)
    };
    match ordered {
        Ok(true) => enter_many(store, node),
        Ok(false) => files::flush(store, node),
        Err(error) if error.is_no_space() => files::flush(store, node),
        Err(error) => Err(error),
    }
}

impl FlushRun<'_> {
    /// Stores the one file that was taken in its compressed form, and leaves its extent ordered; false where
    /// its dirty bytes are others.
    fn order_encoded(mut self, bytes: &EncodedBytes<'_>, encoded_bytes: usize) -> Result<bool> {
        let Some(job) = self.jobs.first() else { return Ok(true) };
        let whole_bytes = job.runs.bytes();
        let range = ByteRange::with_length(bytes.offset, whole_bytes);
        let Some(range) = range.filter(|_| is_alone(&job.runs, bytes)) else { return Ok(false) };
        let metrics = &self.store.write_back().metrics;
        metrics.flushes.increment();
        let _timer = metrics.flush_time.time();
        let mut encoded = bytes.encoded.to_vec();
        encoded.resize(encoded_bytes, 0);
        let compression = CompressionId(bytes.compression.to_disk());
        let form = Form::Compressed { bytes: encoded, compression };
        let plan = FlushPlan { pieces: vec![PlannedExtent { job: 0, range, form }], handle: None };
        let stored = write_out::write_out(self.store, &self.jobs, plan)?;
        if let Some(job) = self.jobs.pop() {
            put_in_order(self.store, job, stored);
        }
        Ok(true)
    }
}

/// Whether a file's dirty bytes are these, filled up with zeros, and no others.
fn is_alone(dirty: &Runs, bytes: &EncodedBytes<'_>) -> bool {
    let mut runs = dirty.iter();
    match (runs.next(), runs.next()) {
        (Some((start, run)), None) => {
            let (plain, rest) = run.split_at(run.len().min(bytes.plain.len()));
            start == bytes.offset && plain == bytes.plain && rest.iter().all(|byte| *byte == 0)
        }
        _ => false,
    }
}
