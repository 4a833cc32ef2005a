//! What becomes of dirty bytes: a file in its tree, runs written in place, compressed extents, plain extents.

use vlinder_base::parallel;
use vlinder_codec::compress::{Compression, MAX_EXTENT_BYTES, compress, extent_limit_bytes};
use vlinder_codec::heuristic::looks_compressible;
use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::file_extent::{CompressionId, INLINE_HEADER_SIZE};
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{Charge, Handle};

use super::file_flush::{DirtyRange, FileFlush};
use crate::bytes_error::BytesError;
use crate::compression::{compression_property, require_feature};
use crate::compression_property::CompressionProperty;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::{Result, in_place};

/// The largest extent that Linux makes (`BTRFS_MAX_EXTENT_SIZE`).
const LARGEST_EXTENT: u64 = 128 << 20;

/// What becomes of a part of a file.
#[derive(Debug)]
pub(super) struct PlannedExtent {
    /// Whose.
    pub(super) job: usize,
    /// Its bytes in the file, whole sectors.
    pub(super) range: ByteRange,
    pub(super) form: Form,
}

/// How bytes are kept.
#[derive(Debug)]
pub(super) enum Form {
    /// In the item.
    Inline { bytes: Vec<u8>, compression: CompressionId, ram_bytes: u64 },
    /// In a new extent of these bytes.
    Compressed { bytes: Vec<u8>, compression: CompressionId },
    /// In new extents, as they are.
    Plain,
    /// At an address where the file has space already.
    InPlace(Logical),
}

impl Form {
    /// Whether it takes space of its own.
    pub(super) fn is_new_extent(&self) -> bool {
        matches!(self, Self::Plain | Self::Compressed { .. })
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug)]
struct Method {
    algorithm: Compression,
    level: i32,
    /// Even what does not look compressible.
    force: bool,
    /// The inode is marked where it did not pay.
    may_mark: bool,
}

/// What becomes of a batch.
pub(super) struct FlushPlan<'a> {
    /// In the order of jobs and offsets.
    pub(super) pieces: Vec<PlannedExtent>,
    /// Held until everything is written, so that no snapshot comes to share what is overwritten in place.
    pub(super) handle: Option<Handle<'a>>,
}

/// Plans a batch. Compression runs on all cores, with no transaction held up.
pub(super) fn plan<'a>(
    store: &'a FileStore,
    jobs: &mut [FileFlush],
    batch: &[DirtyRange],
) -> Result<FlushPlan<'a>> {
    let mut pieces = Vec::new();
    let mut to_compress = Vec::new();
    let mut overwritten = Vec::new();
    // Of the job that the last part was of: looking up its properties costs more than a part of one sector
    // does.
    let mut known = None;
    for part in batch {
        let job = &jobs[part.job];
        let flags = job.node.flags();
        if flags.has(InodeFlags::NODATACOW) {
            overwritten.push(part);
            continue;
        }
        let method = match known {
            Some((of, method)) if of == part.job => method,
            _ => method_of(store, &job.node, flags)?,
        };
        known = Some((part.job, method));
        if let Some(piece) = inline(store, job, part, method)? {
            pieces.push(piece);
            continue;
        }
        let mut rest = vec![part.range];
        if flags.has(InodeFlags::PREALLOC) {
            let handle = store.begin_flush(Charge::default())?;
            rest = place_in_place(store, job, part, &handle, &mut pieces)?;
        }
        for range in rest {
            match method {
                Some(method) => {
                    to_compress
                        .extend(cut(range, MAX_EXTENT_BYTES as u64).map(|unit| (part.job, unit, method)));
                }
                None => pieces.extend(plain(part.job, range)),
            }
        }
    }
    compress_units(store, jobs, to_compress, &mut pieces)?;
    let mut handle = None;
    if !overwritten.is_empty() {
        let open = store.begin_flush(Charge::default())?;
        for part in overwritten {
            let rest = place_in_place(store, &jobs[part.job], part, &open, &mut pieces)?;
            pieces.extend(rest.into_iter().flat_map(|range| plain(part.job, range)));
        }
        handle = Some(open);
    }
    pieces.sort_by_key(|piece| (piece.job, piece.range.start()));
    Ok(FlushPlan { pieces, handle })
}

/// Plans what may be written in place, and gives the rest.
fn place_in_place(
    store: &FileStore,
    job: &FileFlush,
    part: &DirtyRange,
    handle: &Handle<'_>,
    pieces: &mut Vec<PlannedExtent>,
) -> Result<Vec<ByteRange>> {
    let (placed, rest) = in_place::find(store, &job.node, part.range, handle)?;
    let placed = placed.into_iter();
    pieces.extend(placed.map(|(range, logical)| PlannedExtent {
        job: part.job,
        range,
        form: Form::InPlace(logical),
    }));
    Ok(rest)
}

/// A range as plain extents.
fn plain(job: usize, range: ByteRange) -> impl Iterator<Item = PlannedExtent> {
    cut(range, LARGEST_EXTENT).map(move |range| PlannedExtent { job, range, form: Form::Plain })
}

/// A range in pieces of at most so many bytes.
fn cut(range: ByteRange, most: u64) -> impl Iterator<Item = ByteRange> {
    let count = range.length_bytes().div_ceil(most);
    (0..count).filter_map(move |number| {
        let start = range.start() + number * most;
        ByteRange::new(start, range.end().min(start + most))
    })
}

/// How new data of a file are compressed, if at all (Linux's `inode_need_compress`): a forced mount option
/// comes first, then the file's own mark that it does not pay, then property, flag and mount option.
fn method_of(store: &FileStore, node: &FileNode, flags: InodeFlags) -> Result<Option<Method>> {
    if flags.has_any(InodeFlags::NODATACOW | InodeFlags::NODATASUM) {
        return Ok(None);
    }
    let option = store.options().compress;
    let force = option.is_some_and(|option| option.force);
    if flags.has(InodeFlags::NOCOMPRESS) && !force {
        return Ok(None);
    }
    let property = match compression_property(store, node)? {
        CompressionProperty::Algorithm(algorithm) => Some(algorithm),
        CompressionProperty::None | CompressionProperty::Never => None,
    };
    if property.is_none() && option.is_none() && !flags.has(InodeFlags::COMPRESS) {
        return Ok(None);
    }
    let algorithm = property.or(option.map(|option| option.algorithm)).unwrap_or(Compression::Zlib);
    let level = option.filter(|option| option.algorithm == algorithm).map_or(0, |option| option.level);
    let level = if level == 0 { algorithm.default_level() } else { level };
    require_feature(store, algorithm)?;
    Ok(Some(Method { algorithm, level, force, may_mark: !force && property.is_none() }))
}

/// The part as an inline extent, if it is the whole file and small enough (Linux's
/// `can_cow_file_range_inline`).
fn inline(
    store: &FileStore,
    job: &FileFlush,
    part: &DirtyRange,
    method: Option<Method>,
) -> Result<Option<PlannedExtent>> {
    let sector_size = u64::from(store.sector_size());
    let whole_file = part.range.start() == 0 && part.last && job.size <= part.range.end();
    if !whole_file || part.range.end() > sector_size || job.size == 0 {
        return Ok(None);
    }
    let fits_leaf = u64::from(store.engine().volume().geometry().node_size)
        .saturating_sub((HEADER_SIZE + ITEM_HEADER_SIZE + INLINE_HEADER_SIZE) as u64);
    let most = store.options().max_inline_bytes.min(fits_leaf).min(sector_size - 1);
    let mut bytes = vec![0; job.size as usize];
    job.runs.copy_to(0, &mut bytes);
    let ram_bytes = job.size;
    if let Some(method) = method
        && (method.force || looks_compressible(&bytes))
    {
        let mut output = Vec::new();
        let limit = bytes.len() - 1;
        let pays = compress(method.algorithm, method.level, &bytes, sector_size as usize, limit, &mut output)
            .map_err(|error| BytesError { inode: job.node.id(), offset: 0, fault: error.into() })?;
        if pays && output.len() as u64 <= most {
            let compression = CompressionId(method.algorithm.to_disk());
            let form = Form::Inline { bytes: output, compression, ram_bytes };
            return Ok(Some(PlannedExtent { job: part.job, range: part.range, form }));
        }
    }
    if job.size > most {
        return Ok(None);
    }
    let form = Form::Inline { bytes, compression: CompressionId::NONE, ram_bytes };
    Ok(Some(PlannedExtent { job: part.job, range: part.range, form }))
}

/// Compresses units on all cores; neighbours that stay plain become one piece again.
fn compress_units(
    store: &FileStore,
    jobs: &mut [FileFlush],
    units: Vec<(usize, ByteRange, Method)>,
    pieces: &mut Vec<PlannedExtent>,
) -> Result<()> {
    let sector_bytes = store.sector_size() as usize;
    let shared_jobs = &*jobs;
    let results = parallel::map_vec(units, |(job, range, method)| {
        let outcome = compress_unit(&shared_jobs[job], range, method, sector_bytes);
        (job, range, method, outcome)
    });
    for (job, range, method, outcome) in results {
        let outcome = outcome.map_err(|error| BytesError {
            inode: jobs[job].node.id(),
            offset: range.start(),
            fault: error.into(),
        })?;
        match outcome {
            Outcome::Compressed(bytes) => {
                let compression = CompressionId(method.algorithm.to_disk());
                pieces.push(PlannedExtent { job, range, form: Form::Compressed { bytes, compression } });
                continue;
            }
            Outcome::TriedInVain if method.may_mark => jobs[job].incompressible = true,
            Outcome::TriedInVain | Outcome::NotTried => {}
        }
        match pieces.last_mut() {
            Some(PlannedExtent { job: before, range: plain, form: Form::Plain })
                if *before == job
                    && plain.end() == range.start()
                    && plain.length_bytes() + range.length_bytes() <= LARGEST_EXTENT =>
            {
                *plain = ByteRange::new(plain.start(), range.end()).unwrap_or(range);
            }
            _ => pieces.push(PlannedExtent { job, range, form: Form::Plain }),
        }
    }
    Ok(())
}

enum Outcome {
    /// It saves at least a sector; padded to sectors.
    Compressed(Vec<u8>),
    TriedInVain,
    NotTried,
}

fn compress_unit(
    job: &FileFlush,
    range: ByteRange,
    method: Method,
    sector_bytes: usize,
) -> std::result::Result<Outcome, vlinder_codec::compress::CodecError> {
    let length = range.length_bytes() as usize;
    let limit = extent_limit_bytes(length, sector_bytes);
    if limit == 0 {
        return Ok(Outcome::NotTried);
    }
    let mut copy = Vec::new();
    let bytes = match job.runs.slice(range) {
        Some(bytes) => bytes,
        None => {
            copy.resize(length, 0);
            job.runs.copy_to(range.start(), &mut copy);
            &copy
        }
    };
    if !method.force && !looks_compressible(bytes) {
        return Ok(Outcome::NotTried);
    }
    let mut output = Vec::new();
    if !compress(method.algorithm, method.level, bytes, sector_bytes, limit, &mut output)? {
        return Ok(Outcome::TriedInVain);
    }
    output.resize(output.len().next_multiple_of(sector_bytes), 0);
    Ok(Outcome::Compressed(output))
}
