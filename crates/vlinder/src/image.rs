//! An open file system as a whole: opening, closing, how full it is.

use std::fmt;
use std::path::{Path, PathBuf};

use vlinder_base::metrics::Value;
use vlinder_fs::Standing;
use vlinder_fs::path::Files;

use crate::error::{Error, Result, outer};
use crate::error_kind::ErrorKind;
use crate::subvolumes::Subvolumes;
use crate::unsaved::Unsaved;
use crate::usage::Usage;
use crate::uuid::Uuid;

/// An open file system, with functions shaped like those of `std::fs`.
///
/// Say [`close`](Self::close) at the end: it makes everything durable and tells of errors. An image that is
/// dropped with changes that were neither closed nor [synced](Self::sync) says so in a warning, and commits
/// as well as it can.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # let path = scratch.join("disk.img");
/// # vlinder::Image::create(&path, 1 << 30)?.close()?;
/// use std::io::Write;
/// use vlinder::Image;
///
/// let image = Image::open(&path)?;
/// let mut log = image.options().append(true).create(true).open("/log")?;
/// writeln!(log, "one more line")?;
/// drop(log);
/// for entry in image.read_dir("/")? {
///     let entry = entry?;
///     println!("{} {} bytes", entry.file_name().display(), entry.metadata()?.len());
/// }
/// image.close()?;
/// # Ok(())
/// # }
/// ```
///
/// Its functions take `&self` and may be called by several threads at once.
pub struct Image {
    // The first to be dropped, so that the warning comes before what it warns of.
    dropping: DropWarning,
    files: Files,
}

/// Warns when an image goes that was changed.
struct DropWarning {
    unsaved: Unsaved,
    path: PathBuf,
}

impl Drop for DropWarning {
    fn drop(&mut self) {
        if self.unsaved.is_noted() {
            tracing::warn!(
                "{}: the image was dropped without Image::close: what was changed is committed now, and an error of that \
                 would be heard of here alone",
                self.path.display()
            );
        }
    }
}

impl Image {
    pub(crate) fn of(files: Files, path: &Path) -> Self {
        Self { dropping: DropWarning { unsaved: Unsaved::default(), path: path.to_owned() }, files }
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// For a change that is about to be made.
    pub(crate) fn changing(&self) -> &Files {
        self.dropping.unsaved.note();
        &self.files
    }

    pub(crate) fn unsaved(&self) -> &Unsaved {
        &self.dropping.unsaved
    }

    /// Makes everything durable and lets go of the image. Files of it that are still open keep it; else the
    /// next one may open it when this returns.
    ///
    /// # Errors
    /// What writing everything out and committing met, or an error that made the file system read-only
    /// before. What was done since the last success may not be durable then.
    pub fn close(self) -> Result<()> {
        let Self { dropping, files } = self;
        let filesystem = files.filesystem().clone();
        drop(files);
        let path = dropping.path.clone();
        let closed = dropping.unsaved.save(|| {
            if dropping.unsaved.open_files() == 0 {
                return match outer(Standing::close(filesystem))? {
                    None => Ok(()),
                    Some(reason) => Err(lost(&reason.to_string())),
                };
            }
            let reason = filesystem.maintenance().condition().read_only;
            match reason.filter(|_| !Standing::of(&filesystem).is_read_only_by_nature()) {
                None => outer(filesystem.close()),
                Some(reason) => Err(lost(&reason.to_string())),
            }
        });
        // What went wrong is told here.
        dropping.unsaved.forget();
        closed.map_err(|error| error.at(&path))
    }

    /// Makes everything durable that was done so far.
    ///
    /// # Errors
    /// What writing everything out and committing met: what was done since the last success may not be
    /// durable.
    pub fn sync(&self) -> Result<()> {
        let synced = self.unsaved().save(|| outer(self.files.sync()));
        synced.map_err(|error| error.at(&self.dropping.path))
    }

    /// Frees what deleted subvolumes held, and makes that durable. Without it, a thread in the background
    /// does so by and by, or the next opener.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn finish_deletions(&self) -> Result<()> {
        let finish = || outer(self.files.filesystem().maintenance().finish_deletions());
        self.unsaved().save(finish).map_err(|error| error.at(&self.dropping.path))
    }

    /// Its subvolumes and snapshots.
    #[must_use]
    pub fn subvolumes(&self) -> Subvolumes<'_> {
        Subvolumes::new(&self.files, &self.dropping.unsaved)
    }

    /// Whether the file system as a whole takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.files.filesystem().is_read_only()
    }

    /// The file system's UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(Standing::of(self.files.filesystem()).uuid().0)
    }

    /// How full the file system is.
    ///
    /// # Errors
    /// What reading its block groups met.
    pub fn usage(&self) -> Result<Usage> {
        outer(self.files.filesystem().statistics()).map(Usage::of)
    }

    /// A number that the file system counts, by the name that `vlinder stats` shows: of a counter or gauge
    /// its value; of a histogram its `.count`, `.mean`, `.p50` or `.p99`, behind the name. None where nothing
    /// is counted so.
    #[must_use]
    pub fn statistic(&self, name: &str) -> Option<u64> {
        let samples = self.files.filesystem().options().registry.snapshot();
        samples.iter().find_map(|sample| statistic(&sample.value, name.strip_prefix(sample.name)?))
    }
}

fn lost(reason: &str) -> Error {
    let what = format!("the file system became read-only: {reason}; what was written since may be lost");
    Error::new(ErrorKind::Io, what)
}

/// The number of a metric that the rest of a name asks for.
fn statistic(value: &Value, rest: &str) -> Option<u64> {
    match (value, rest) {
        (Value::Counter(value), "") => Some(*value),
        (Value::Gauge(value), "") => Some(u64::try_from(*value).unwrap_or(0)),
        (Value::Histogram(values), ".count") => Some(values.count),
        (Value::Histogram(values), ".mean") => values.sum.checked_div(values.count).or(Some(0)),
        (Value::Histogram(values), ".p50") => Some(values.quantile(0.5)),
        (Value::Histogram(values), ".p99") => Some(values.quantile(0.99)),
        _ => None,
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Image").field("path", &self.dropping.path).finish_non_exhaustive()
    }
}
