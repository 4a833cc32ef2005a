//! How an image is opened.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vlinder_format::RootId;
use vlinder_fs::SubvolumeChoice;

use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::error_kind::ErrorKind;

/// How to open the file system on an image or on block devices.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # let path = scratch.join("disk.img");
/// # vlinder::Image::create(&path, 1 << 30)?.close()?;
/// use vlinder::OpenOptions;
///
/// let image = OpenOptions::new().read_only(true).open(&path)?;
/// println!("{} bytes are free", image.usage()?.free_bytes());
/// image.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    inner: vlinder_fs::OpenOptions,
    /// Beside the first.
    devices: Vec<PathBuf>,
}

impl OpenOptions {
    /// For reading and writing, with what Linux has by default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading only: not a byte of the image is written.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.inner.read_only = read_only;
        self
    }

    /// The first byte of the file system in the image, where that is no partition that its path names
    /// (`disk.raw@2`).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), vlinder::Error> {
    /// let first = vlinder::OpenOptions::new().read_only(true).offset(1 << 20).open("disk.raw")?;
    /// let second = vlinder::Image::open("disk.raw@2")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.inner.offset = Some(bytes);
        self
    }

    /// How many bytes from [`offset`](Self::offset) on the file system may have: all that follow without
    /// this.
    #[must_use]
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.inner.size_limit = Some(bytes);
        self
    }

    /// One more device of the same file system. Such file systems are opened for reading.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.devices.push(path.into());
        self
    }

    /// Whether devices may be missing: what the others have is read then.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.inner.degraded = degraded;
        self
    }

    /// The subvolume at this path from the top level is the root, not the default one.
    #[must_use]
    pub fn subvolume(mut self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().as_os_str().as_encoded_bytes().to_vec();
        self.inner.subvolume = SubvolumeChoice::Path(path);
        self
    }

    /// The subvolume of this number is the root; 5 is the top level.
    #[must_use]
    pub fn subvolume_id(mut self, id: u64) -> Self {
        self.inner.subvolume = SubvolumeChoice::Number(RootId(id));
        self
    }

    /// How new data are compressed; not at all without this. Opening fails where this build lacks it.
    #[must_use]
    pub fn compress(mut self, compression: Compression) -> Self {
        self.inner.compress = Some(compression.option());
        self
    }

    /// How often what was changed is made durable by itself: 30 seconds.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.inner.commit_interval = interval;
        self
    }

    /// Whether a thread works in the background: it commits at the interval and when nothing is changed for a
    /// second, writes data out, and frees what deleted subvolumes held. It does by default.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.inner.background = background;
        self
    }

    /// How much memory tree blocks and inodes may take, in bytes: 256 MiB.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.inner.cache_bytes = bytes;
        self
    }

    /// How much memory file data may take that are not written yet, in bytes: 64 MiB.
    #[must_use]
    pub fn dirty_bytes(mut self, bytes: u64) -> Self {
        self.inner.dirty_bytes = bytes;
        self
    }

    /// Applies mount options as mount(8) takes them, after what was chosen before: `ro,compress=zstd:3`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown name or a bad value.
    pub fn mount_options(mut self, list: &str) -> Result<Self> {
        for option in list.split(',').filter(|option| !option.is_empty()) {
            if !self.inner.apply(option).map_err(|error| Error::of_option(&error))? {
                let name = option.split('=').next().unwrap_or(option);
                let what = format!("unknown option {name:?}; see the manual's list of mount options");
                return Err(Error::new(ErrorKind::InvalidInput, what));
            }
        }
        Ok(self)
    }

    /// All devices, the first before those that were added.
    pub(crate) fn devices<'a>(&'a self, first: &'a Path) -> Vec<&'a Path> {
        std::iter::once(first).chain(self.devices.iter().map(PathBuf::as_path)).collect()
    }

    pub(crate) fn inner(&self) -> vlinder_fs::OpenOptions {
        self.inner.clone()
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OpenOptions")
            .field("read_only", &self.inner.read_only)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}
