//! Reads files, and shares what was found before.

use std::collections::HashSet;
use std::ffi::OsStr;

use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_control::Name;
use vlinder_format::inode::FileType;
use vlinder_fs::data::MappedExtent;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::image::{Images, InImage};
use vlinder_places::place::{Directory, DirectoryNames, FileStatus, Location, Names, Source};
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::units::{Base, Units};

use super::index::{Block, BlockIndex, SameBlocks};
use super::options::{DedupeOptions, MAX_BLOCK_BYTES};
use super::volume::{DedupeFile, DedupeVolume, FileLayout};

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DedupeCounts {
    /// Of the files' blocks that have something to share.
    pub(super) bytes: u64,
    /// Of blocks that were given the extents of others.
    pub(super) shared_bytes: u64,
    /// Of blocks that had them before.
    pub(super) shared_before_bytes: u64,
    /// Of blocks that have other bytes after all: they changed since they were read.
    pub(super) differing_bytes: u64,
}

/// A file that was read.
struct Scanned {
    file: DedupeFile,
    size_bytes: u64,
}

/// A directory whose names are being looked at.
struct ScanFrame {
    directory: Directory,
    entries: Names,
    /// Its path for requests, where the files lie on a mount.
    path: Vec<u8>,
}

/// All that was read until now.
pub(super) struct Scan<'a> {
    options: DedupeOptions,
    session: &'a Session,
    progress: Progress,
    volume: Option<DedupeVolume>,
    files: Vec<Scanned>,
    index: BlockIndex,
    seen: HashSet<(u64, u64)>,
    counts: DedupeCounts,
    tally: Tally,
    buffer: Vec<u8>,
}

impl<'a> Scan<'a> {
    /// Nothing is read yet.
    pub(super) fn new(options: DedupeOptions, session: &'a Session) -> Self {
        Self {
            options,
            session,
            progress: Progress::new(session, "deduplicating", None),
            volume: None,
            files: Vec::new(),
            index: BlockIndex::default(),
            seen: HashSet::new(),
            counts: DedupeCounts::default(),
            tally: Tally::default(),
            buffer: Vec::new(),
        }
    }

    /// Counts a file; a failure is told at once.
    pub(super) fn note(&mut self, result: Result<(), Failure>) {
        self.tally.add(result, self.session);
    }

    /// What came of it.
    pub(super) fn end(self) -> (DedupeCounts, Tally) {
        (self.counts, self.tally)
    }

    /// Reads a file, or all files in a directory.
    pub(super) fn target(&mut self, images: &Images<'_>, target: &OsStr) -> Result<(), Failure> {
        let purpose = if self.options.dry_run { Purpose::Read } else { Purpose::Write };
        let (location, volume) = match images.locate_in_image(target, purpose, Follow::Yes)? {
            InImage::Opened(location) => {
                let Directory::Image(directory) = &location.directory else {
                    return Err(Failure::usage("no image"));
                };
                let volume = DedupeVolume::Image(directory.image().clone());
                (location, volume)
            }
            InImage::Mounted(mounted) => {
                // What is in memory alone has no extents to be shared.
                mounted.sync()?;
                (mounted.location()?, DedupeVolume::Mounted(Box::new(mounted)))
            }
        };
        let path = match &volume {
            DedupeVolume::Mounted(mounted) => mounted.inner().0,
            DedupeVolume::Image(_) => Vec::new(),
        };
        match &self.volume {
            Some(first) if !first.is_same(&volume) => {
                let text = "it lies in another file system than the first target";
                return Err(Failure::new(Kind::Invalid, text)
                    .at(location.place())
                    .hint("extents are shared within one file system: make a call for each"));
            }
            Some(_) => {}
            None => self.volume = Some(volume),
        }
        let status = location.status()?;
        if status.file_type == FileType::Directory {
            let directory = location.directory.enter(&location.name)?;
            return self.walk(directory, &status, path);
        }
        if status.file_type != FileType::Regular {
            let failure = Failure::new(Kind::Invalid, "neither a regular file nor a directory");
            return Err(failure.at(location.place()).hint("name what is to share extents"));
        }
        self.file(&location, &status, path);
        Ok(())
    }

    /// Reads all files below a directory, in the order of their names, but not those of other mounts.
    fn walk(&mut self, top: Directory, status: &FileStatus, path: Vec<u8>) -> Result<(), Failure> {
        let is_elsewhere = |found: &FileStatus| !top.is_image() && found.volume != status.volume;
        let first = self.frame(top.clone(), path)?;
        let mut frames = vec![first];
        while let Some(frame) = frames.last_mut() {
            let Some(entry) = frame.entries.next() else {
                frames.pop();
                continue;
            };
            if !matches!(entry.file_type, FileType::Directory | FileType::Regular) {
                continue;
            }
            let slash: &[u8] = if frame.path.is_empty() { b"" } else { b"/" };
            let path = [frame.path.as_slice(), slash, &entry.name].concat();
            let location = Location { directory: frame.directory.clone(), name: entry.name };
            let found = location.status().and_then(|status| {
                match status.file_type {
                    _ if is_elsewhere(&status) => {}
                    FileType::Regular => self.file(&location, &status, path),
                    FileType::Directory => {
                        return location.directory.enter(&location.name).map(|below| Some((below, path)));
                    }
                    _ => {}
                }
                Ok(None)
            });
            match found.and_then(|below| below.map(|(below, path)| self.frame(below, path)).transpose()) {
                Ok(below) => frames.extend(below),
                Err(failure) => self.note(Err(failure)),
            }
        }
        Ok(())
    }

    fn frame(&mut self, directory: Directory, path: Vec<u8>) -> Result<ScanFrame, Failure> {
        let DirectoryNames { mut entries, refused } = directory.list()?;
        refused.into_iter().for_each(|failure| self.note(Err(failure)));
        entries.sort();
        Ok(ScanFrame { directory, entries, path })
    }

    /// Reads a file and shares what it has in common with those before; one of several names once.
    fn file(&mut self, location: &Location, status: &FileStatus, path: Vec<u8>) {
        if self.seen.insert((status.volume, status.inode)) {
            let result = self.read(location, path).and_then(|found| self.share(location, &found));
            self.note(result);
        }
    }

    /// Reads a file's blocks, but those of extents that were read before; gives what was found before.
    fn read(&mut self, location: &Location, path: Vec<u8>) -> Result<Vec<SameBlocks>, Failure> {
        let (place, volume) = (location.place(), self.volume.as_ref());
        self.progress.name(|| place.clone());
        let file = match &location.directory {
            Directory::Image(directory) => DedupeFile::InImage(directory.lookup(&location.name)?.id()),
            Directory::Host(_) => DedupeFile::OnMount(Name(path)),
        };
        let layout = volume.map(|volume| volume.layout(&file, &place)).transpose()?;
        let layout = layout.ok_or_else(|| Failure::usage("no file system"))?;
        // Of all files the same, since they lie in one file system.
        self.options.block_size = self.options.block_size.max(layout.sector_bytes).min(MAX_BLOCK_BYTES);
        let (mut source, mut blocks, block_size) = (None, Vec::new(), self.options.block_size);
        let (mut runs, mut number) = (layout.runs.as_slice(), 0);
        while let Some(run) = runs.first() {
            // What lies between runs is a hole, which may be very long.
            number = (run.offset / block_size).max(number);
            let start = number * block_size;
            let range = (start, start.saturating_add(block_size).min(layout.size_bytes));
            if range.1 <= start {
                break;
            }
            if let Some(layout_hash) = layout_hash(&layout, runs, range) {
                let found = (number, layout_hash);
                blocks.extend(self.block(found, location, &mut source, (range, layout.has_checksums))?);
            }
            self.progress.add(range.1 - start);
            let end_of = |run: &MappedExtent| run.offset.saturating_add(run.length);
            // So may be what has nothing to share: of one such run, the block that it ends in is next.
            let skipped = if is_data(run) { 0 } else { (end_of(run).saturating_sub(1)) / block_size };
            let passed = runs.iter().take_while(|run| end_of(run) <= range.1).count();
            runs = runs.get(passed..).unwrap_or_default();
            number = (number + 1).max(skipped);
        }
        self.files.push(Scanned { file, size_bytes: layout.size_bytes });
        Ok(self.index.add(blocks, MAX_BLOCK_BYTES / block_size))
    }

    /// A block of a file, which is read unless its extents were; none where the file was cut meanwhile.
    fn block(
        &mut self,
        (number, layout): (u64, u64),
        location: &Location,
        source: &mut Option<Box<dyn Source>>,
        ((start, end), has_checksums): ((u64, u64), bool),
    ) -> Result<Option<Block>, Failure> {
        if let Some(content) = self.index.content_of(layout) {
            self.counts.bytes += end - start;
            return Ok(Some(Block { number, content, layout }));
        }
        let source = match source {
            Some(source) => source,
            None => source.insert(location.directory.open(&location.name)?),
        };
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        self.buffer.resize(length, 0);
        if source.read_at(start, &mut self.buffer)? < length {
            return Ok(None);
        }
        // Of files with and without checksums nothing is the same.
        self.buffer.push(u8::from(has_checksums));
        let block = Block { number, content: hash(&self.buffer), layout };
        self.index.note(block);
        self.counts.bytes += end - start;
        Ok(Some(block))
    }

    /// Shares what was found before of the file that was read last.
    fn share(&mut self, location: &Location, found: &[SameBlocks]) -> Result<(), Failure> {
        let before = self.counts.shared_bytes;
        let result = found.iter().try_for_each(|run| self.share_run(*run, location));
        let shared = self.counts.shared_bytes - before;
        if self.options.verbose && shared > 0 {
            let text = Units::Human(Base::Binary).show(shared);
            self.session.tell(format!("{}: {text}", location.place()))?;
        }
        result
    }

    /// Shares a run. Where something in it changed since it was read, its halves are tried.
    fn share_run(&mut self, run: SameBlocks, location: &Location) -> Result<(), Failure> {
        let (Some(volume), Some(target)) = (&self.volume, self.files.last()) else { return Ok(()) };
        let Some(source) = self.files.get(run.source) else { return Ok(()) };
        let block_size = self.options.block_size;
        let (from, to) = (run.source_block * block_size, run.block * block_size);
        let length = (run.count * block_size).min(target.size_bytes.saturating_sub(to));
        if run.is_shared {
            self.counts.shared_before_bytes += length;
            return Ok(());
        }
        let deduped = if self.options.dry_run {
            Ok(true)
        } else {
            volume.dedupe((&source.file, from), (&target.file, to), length, &location.place())
        };
        let is_same = match deduped {
            // One of the files was cut, or only one has checksums, which a mount does not tell.
            Err(failure) if failure.kind == Kind::Invalid => {
                self.counts.differing_bytes += length;
                return Ok(());
            }
            other => other?,
        };
        match run.halves() {
            _ if is_same => self.counts.shared_bytes += length,
            Some(halves) => return halves.into_iter().try_for_each(|half| self.share_run(half, location)),
            None => self.counts.differing_bytes += length,
        }
        Ok(())
    }
}

/// A hash of the extents of a block, and of how long it is; none where nothing of it can be shared: holes and
/// preallocated space alone, bytes in the tree, or such as are not written yet.
fn layout_hash(layout: &FileLayout, runs: &[MappedExtent], (start, end): (u64, u64)) -> Option<u64> {
    let mut words = vec![u64::from(layout.has_checksums), end - start];
    let mut has_data = false;
    for run in runs.iter().take_while(|run| run.offset < end) {
        let logical = run.logical.filter(|_| run.preallocated || is_data(run))?;
        has_data |= is_data(run);
        let skipped = start.saturating_sub(run.offset);
        // Of compressed runs the address is that of their extent.
        let (address, inside) =
            if run.encoded { (logical.0, skipped) } else { (logical.0.wrapping_add(skipped), 0) };
        let begin = run.offset.max(start) - start;
        let stop = run.offset.saturating_add(run.length).min(end) - start;
        words.extend([begin, stop, address, inside, u64::from(run.preallocated)]);
    }
    has_data.then(|| hash(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>()))
}

/// Whether a run is bytes on disk.
fn is_data(run: &MappedExtent) -> bool {
    run.logical.is_some() && !(run.inline || run.unflushed || run.preallocated)
}

fn hash(bytes: &[u8]) -> u64 {
    let kind = ChecksumKind::Xxhash64;
    let mut word = [0; size_of::<u64>()];
    word.copy_from_slice(&checksum(kind, bytes).as_bytes(kind)[..size_of::<u64>()]);
    u64::from_le_bytes(word)
}
