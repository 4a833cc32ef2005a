//! A judge of the judge: small images of the kernel's, each with one byte changed, or one byte in two fields
//! that hold the same, and the checksums made right. What `vlinder check` calls clean, `btrfs check` must
//! call clean too: whatever it finds there is a blind spot, or one of the few [exceptions](EXCEPTIONS).

mod changes;
mod exceptions;
mod images;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_device::{DeviceExt, MemoryDevice};

use crate::kernel::{JudgeError, btrfs_check_within};
use crate::scratch::Scratch;

pub use changes::{Change, ChangeableImage};
pub use exceptions::{EXCEPTIONS, Exception};
pub use images::{BenchRecipe, RECIPES};

/// Seconds after which `btrfs check` of a small image is taken to run for ever.
const MAX_SECONDS: u64 = 20;

/// What the two judges said of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, both.
    BothClean,
    /// Both complain.
    BothComplain,
    /// vlinder complains, btrfs check does not.
    OursAlone,
    /// vlinder complains; btrfs check was not asked.
    Ours,
    /// btrfs check alone complains, for a known reason.
    Excepted(&'static str),
    /// btrfs check alone complains, with these lines: a blind spot.
    TheirsAlone(String),
    /// vlinder panicked.
    Panicked,
}

/// An image in two places: in memory for the library, and as a file for `btrfs check`.
pub struct Bench {
    device: MemoryDevice,
    file: File,
    path: PathBuf,
    _scratch: Scratch,
}

impl Bench {
    /// For the changes of a subject.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn new(subject: &ChangeableImage) -> std::io::Result<Self> {
        let device = subject.device();
        let scratch = Scratch::in_memory("bench");
        let path = scratch.join("image");
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        file.set_len(vlinder_device::Device::length(&device))?;
        for (place, bytes) in device.written_chunks() {
            file.write_all_at(&bytes, place.0)?;
        }
        Ok(Self { device, file, path, _scratch: scratch })
    }

    /// Asks both judges; `btrfs check` only where vlinder finds nothing, unless `asks_always`.
    ///
    /// # Errors
    /// Where `btrfs check` can't be run, or the file not be written.
    pub fn judge(&self, change: &Change, asks_always: bool) -> Result<Verdict, String> {
        let Some(is_clean) = self.ours(change) else { return Ok(Verdict::Panicked) };
        if !is_clean && !asks_always {
            return Ok(Verdict::Ours);
        }
        let theirs = self.theirs(change)?;
        Ok(match (is_clean, theirs) {
            (true, None) => Verdict::BothClean,
            (false, None) => Verdict::OursAlone,
            (false, Some(_)) => Verdict::BothComplain,
            (true, Some(lines)) => match exceptions::of(&lines) {
                Some(exception) => Verdict::Excepted(exception.name),
                None => Verdict::TheirsAlone(lines),
            },
        })
    }

    /// Whether `btrfs check` complains of a change.
    ///
    /// # Errors
    /// As [`Bench::judge`].
    pub fn complains(&self, change: &Change) -> Result<bool, String> {
        self.theirs(change).map(|complaint| complaint.is_some())
    }

    /// Whether vlinder finds nothing; none where it panicked.
    fn ours(&self, change: &Change) -> Option<bool> {
        let device = Arc::new(self.device.snapshot());
        for (place, bytes) in &change.writes {
            device.write_at(*place, bytes.clone()).ok()?;
        }
        let options = Options { threads: Some(1), ..Options::default() };
        let report = catch_unwind(AssertUnwindSafe(|| check(vec![device as _], &options))).ok()?;
        Some(report.is_ok_and(|report| report.is_clean()))
    }

    /// What `btrfs check` complains of.
    fn theirs(&self, change: &Change) -> Result<Option<String>, String> {
        for (place, bytes) in &change.writes {
            self.file.write_all_at(bytes, place.0).map_err(|error| error.to_string())?;
        }
        let verdict = btrfs_check_within(&self.path, MAX_SECONDS);
        for (place, bytes) in &change.writes {
            let before = self.device.read_at(*place, bytes.len()).map_err(|error| error.to_string())?;
            self.file.write_all_at(&before, place.0).map_err(|error| error.to_string())?;
        }
        match verdict {
            Ok(()) => Ok(None),
            Err(JudgeError::Complained { complaints, .. }) => Ok(Some(complaints)),
            Err(other) => Err(other.to_string()),
        }
    }
}
