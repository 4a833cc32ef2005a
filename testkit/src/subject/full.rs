//! A file system that is filled and emptied again and again.

use std::borrow::Cow;
use std::path::Path;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{FsError, Inode, data};

use super::carry_out::Subject;
use super::image::{Recipe, open_image};
use super::judge::both_check;
use crate::Scratch;
use crate::workload::{Choice, Pattern};

/// What a disk is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Files from a few bytes to some megabytes.
    Mixed,
    /// Files that live in the tree, with long names.
    Metadata,
    /// Megabytes at a time.
    Data,
}

impl Load {
    /// Every kind.
    pub const ALL: [Load; 3] = [Load::Mixed, Load::Metadata, Load::Data];

    /// The size of the next file, in bytes.
    pub fn size(self, choice: &Choice) -> u64 {
        match self {
            Load::Mixed => choice.size(4 << 20),
            Load::Metadata => choice.below(1500),
            Load::Data => 1 << 20,
        }
    }

    /// The name of a file.
    pub fn name(self, number: usize) -> String {
        match self {
            Load::Metadata => format!("{number:0>120}"),
            _ => number.to_string(),
        }
    }
}

/// Rounds of filling and emptying one image.
#[derive(Clone, Debug)]
pub struct FullDisk {
    /// Bytes of the image.
    pub image_bytes: u64,
    /// What it is filled with.
    pub load: Load,
    /// The number of the first round, which seeds it.
    pub first: u64,
    /// Rounds.
    pub rounds: u64,
}

/// Files in a row that find no room before a file system is taken for full.
pub const REFUSALS: usize = 8;

const START: i64 = 1_700_000_000;

impl FullDisk {
    /// Fills and empties, with `btrfs check` after either; gives how many files fitted at first. Nothing may
    /// abort, what was accepted is committed, each deletion succeeds, and space does not dwindle.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run(&self) -> Result<usize, String> {
        let scratch = Scratch::in_memory("full");
        let image = scratch.join("image");
        Recipe { device_bytes: self.image_bytes, ..Recipe::default() }.in_file(&image);
        self.run_on(&image)
    }

    /// As [`run`](Self::run), on an empty image that is there.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run_on(&self, image: &Path) -> Result<usize, String> {
        let subject = open(image, self.image_bytes).map_err(|error| error.to_string())?;
        let root = subject.filesystem.root().map_err(|error| error.to_string())?;
        let check = |what: String| both_check(image).map_err(|error| format!("{what}: {error}"));
        let mut first_count = 0;
        for round in self.first..self.first + self.rounds {
            let place = format!("{:?} {round}", self.load);
            let files = fill(&subject, &root, self.load, &Choice::new(round))
                .map_err(|error| format!("{place}: filling: {error}"))?;
            check(format!("{place}, full with {files} files"))?;
            empty(&subject, &root)
                .map_err(|error| format!("{place}: deleting one of {files} files: {error}"))?;
            check(format!("{place}, emptied"))?;
            if round == self.first {
                first_count = files;
            }
            // Sizes differ so much in a mixed load that counts say nothing.
            if self.load != Load::Mixed && files * 100 < first_count * 95 {
                return Err(format!("{place}: {files} files, {first_count} in the first round"));
            }
        }
        Ok(first_count)
    }
}

/// Opens an image that is to be filled.
fn open(image: &Path, image_bytes: u64) -> Result<Subject, FsError> {
    Subject::open(open_image(image, image_bytes), "", 1, (START, 0))
}

/// Fills a new image and gives the bytes of data in it.
///
/// # Errors
/// What went wrong, other than that there was no room.
pub fn stored_when_full(image_bytes: u64, load: Load, seed: u64) -> Result<u64, FsError> {
    let scratch = Scratch::in_memory("full");
    let image = scratch.join("image");
    Recipe { device_bytes: image_bytes, ..Recipe::default() }.in_file(&image);
    let subject = open(&image, image_bytes)?;
    let root = subject.filesystem.root()?;
    fill(&subject, &root, load, &Choice::new(seed))?;
    let open = subject.filesystem.names().open_directory(subject.caller(), &root)?;
    let (mut from, mut bytes) = (2, 0);
    loop {
        let records = open.read(from, 512)?;
        let Some(last) = records.last() else { return Ok(bytes) };
        from = last.offset + 1;
        for record in records {
            bytes += subject.filesystem.inode(record.id)?.size();
        }
    }
}

fn is_full(error: &FsError) -> bool {
    error.errno() == Errno::NOSPC
}

/// One file; whether there was room for all of it.
fn add_file(
    subject: &Subject,
    directory: &Arc<Inode>,
    name: &str,
    size: u64,
    seed: u64,
) -> Result<bool, FsError> {
    let filesystem = &subject.filesystem;
    let file = match filesystem.names().create_file(subject.caller(), directory, name.as_bytes(), 0o644) {
        Err(error) if is_full(&error) => return Ok(false),
        other => other?,
    };
    let _operation = file.operation.write();
    let mut at = 0;
    while at < size {
        let length = (size - at).min(1 << 20);
        match data::write(filesystem, &file, at, Cow::Owned(Pattern::Random(seed).bytes(at, length))) {
            Err(error) if is_full(&error) => return Ok(false),
            other => other?,
        }
        at += length;
    }
    Ok(true)
}

/// Adds files until several in a row find no room; gives how many there are.
fn fill(subject: &Subject, directory: &Arc<Inode>, load: Load, choice: &Choice) -> Result<usize, FsError> {
    let (mut count, mut refused) = (0, 0);
    while refused < REFUSALS {
        let is_whole = add_file(subject, directory, &load.name(count), load.size(choice), choice.any())?;
        refused = if is_whole { 0 } else { refused + 1 };
        count += 1;
    }
    // What was accepted has its room.
    subject.commit()?;
    Ok(count)
}

/// Deletes all files, each of which must be possible.
fn empty(subject: &Subject, directory: &Arc<Inode>) -> Result<(), FsError> {
    let open = subject.filesystem.names().open_directory(subject.caller(), directory)?;
    loop {
        let records = open.read(2, 256)?;
        if records.is_empty() {
            return subject.commit();
        }
        for record in records {
            subject.filesystem.names().unlink(subject.caller(), directory, &record.name)?;
        }
    }
}
