//! Checking a file system.

use std::fmt;
use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::Place;

use crate::error::{Error, Result};

#[cfg(doc)]
use crate::ErrorKind;

/// Checks the trees of the file system on an image or block device. Nothing is written.
///
/// # Errors
/// As [`CheckOptions::run`].
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
    CheckOptions::new().run(path)
}

/// What to check, and how.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # let path = scratch.join("disk.img");
/// # vlinder::Image::create(&path, 1 << 30)?.close()?;
/// let report = vlinder::CheckOptions::new().data(true).run(&path)?;
/// for finding in report.findings() {
///     println!("{finding}");
/// }
/// assert!(report.is_clean());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    data: bool,
    degraded: bool,
    threads: Option<usize>,
    devices: Vec<PathBuf>,
}

impl CheckOptions {
    /// The trees alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Read all data, too, compare them with their checksums, and unpack what is compressed.
    #[must_use]
    pub fn data(mut self, data: bool) -> Self {
        self.data = data;
        self
    }

    /// Whether devices may be missing: what the others have is checked then.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// How many threads read and judge; as many as are good for this machine without this. The report is the
    /// same.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// One more device of the same file system.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.devices.push(path.into());
        self
    }

    /// Checks the file system on an image or block device. Nothing is written.
    ///
    /// # Errors
    /// What kept the check from being made: [`ErrorKind::NotFound`]; [`ErrorKind::NotBtrfs`];
    /// [`ErrorKind::Busy`] where a process has it open for writing; [`ErrorKind::Unsupported`]. Everything
    /// that is wrong further in is a finding.
    pub fn run(&self, path: impl AsRef<Path>) -> Result<CheckReport> {
        let path = path.as_ref();
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for path in std::iter::once(path).chain(self.devices.iter().map(PathBuf::as_path)) {
            let opened = vlinder_partitions::open(path, &vlinder_device::OpenOptions::reader());
            devices.push(opened.map_err(|error| Error::of_open(&error).at(path))?);
        }
        let options = vlinder_check::Options {
            data_checksums: self.data,
            degraded: self.degraded,
            threads: self.threads,
            ..vlinder_check::Options::default()
        };
        let report = vlinder_check::check(devices, &options);
        let report = report.map_err(|error| Error::of_check(&error).at(path))?;
        let is_clean = report.is_clean();
        let vlinder_check::Report { findings, not_listed, blocks, data_bytes } = report;
        let findings = findings.into_iter().map(Finding).collect();
        Ok(CheckReport { findings, is_clean, not_listed, blocks, data_bytes })
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    findings: Vec<Finding>,
    is_clean: bool,
    not_listed: u64,
    blocks: u64,
    data_bytes: u64,
}

impl CheckReport {
    /// Whether there is nothing to find fault with; warnings are allowed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }

    /// The findings, in the order in which they were made.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many findings are not listed, because there are too many.
    #[must_use]
    pub fn not_listed(&self) -> u64 {
        self.not_listed
    }

    /// Tree blocks that were read and judged.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes of data that were read and compared with their checksums.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Linux mends it by itself, or it costs nothing but space: the file system may be used.
    Warning,
    /// Something contradicts something else, or cannot be read.
    Error,
}

/// One thing that a check found. As text it is one line: severity, identifier, place and sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding(vlinder_check::Finding);

impl Finding {
    /// The identifier of its kind, which never changes its meaning: `superblock-copy`, say.
    #[must_use]
    pub fn id(&self) -> &'static str {
        self.0.kind.id()
    }

    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self.0.kind.severity() {
            vlinder_check::Severity::Warning => Severity::Warning,
            vlinder_check::Severity::Error => Severity::Error,
        }
    }

    /// Where, in the words of `vlinder inspect-internal`: tree, block, slot and key, as far as known.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        (self.0.place != Place::default()).then(|| self.0.place.to_string())
    }

    /// What is wrong, in one sentence.
    #[must_use]
    pub fn message(&self) -> String {
        self.0.kind.to_string()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}
