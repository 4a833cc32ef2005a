//! Subvolumes and snapshots.

use std::path::Path;

use vlinder_format::RootId;
use vlinder_fs::Caller;
use vlinder_fs::path::Files;

use crate::error::{Error, Result, outer};
use crate::error_kind::ErrorKind;
use crate::subvolume::SubvolumeInfo;
use crate::unsaved::Unsaved;

/// The number of the subvolume whose root is at a path.
fn subvolume_at(files: &Files, path: &Path) -> Result<RootId> {
    let id = outer(files.resolve(path))?.id();
    if id.is_subvolume_root() {
        return Ok(id.root);
    }
    let what = "not the root of a subvolume; Subvolumes::list tells what there is";
    Err(Error::new(ErrorKind::InvalidInput, what).at(path))
}

/// The subvolumes of an image: [`Image::subvolumes`](crate::Image::subvolumes).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let scratch = vlinder_testkit::Scratch::new("doc");
/// # let path = scratch.join("disk.img");
/// let image = vlinder::Image::create(&path, 1 << 30)?;
/// image.subvolumes().create("/home")?;
/// image.write("/home/file", "text")?;
/// image.subvolumes().read_only_snapshot("/home", "/home-before")?;
/// for subvolume in image.subvolumes().list()? {
///     println!("{} {}", subvolume.id(), subvolume.path().display());
/// }
/// image.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Subvolumes<'a> {
    files: &'a Files,
    unsaved: &'a Unsaved,
}

impl<'a> Subvolumes<'a> {
    pub(crate) fn new(files: &'a Files, unsaved: &'a Unsaved) -> Self {
        Self { files, unsaved }
    }

    fn changing(&self) -> &'a Files {
        self.unsaved.note();
        self.files
    }

    /// Makes an empty subvolume.
    ///
    /// # Errors
    /// As [`Image::create_dir`](crate::Image::create_dir).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().create_subvolume(path)).map(drop)
    }

    /// Makes a snapshot, which takes changes, of the subvolume that `source` lies in: everything that was
    /// written before, and nothing that comes after. Commits.
    ///
    /// # Errors
    /// As looking `source` up and as [`Image::create_dir`](crate::Image::create_dir).
    pub fn snapshot(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().snapshot(source, target, false)).map(drop)
    }

    /// As [`snapshot`](Self::snapshot), one that takes no changes.
    ///
    /// # Errors
    /// As there.
    pub fn read_only_snapshot(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().snapshot(source, target, true)).map(drop)
    }

    /// Deletes a subvolume with all that is in it. The space that it takes is freed by and by
    /// ([`Image::finish_deletions`](crate::Image::finish_deletions)).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where something else has the name; [`ErrorKind::PermissionDenied`] for the
    /// default subvolume; [`ErrorKind::Busy`] for the one that is shown as the root;
    /// [`ErrorKind::DirectoryNotEmpty`] where another subvolume lies in it.
    pub fn delete(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().delete_subvolume(path))
    }

    /// All subvolumes by number, the top level first.
    ///
    /// # Errors
    /// What reading met.
    pub fn list(&self) -> Result<Vec<SubvolumeInfo>> {
        let all = outer(self.files.filesystem().subvolumes().all())?;
        Ok(all.into_iter().map(SubvolumeInfo::of).collect())
    }

    /// The subvolume that a path lies in.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn of(&self, path: impl AsRef<Path>) -> Result<SubvolumeInfo> {
        let root = outer(self.files.resolve(path.as_ref()))?.id().root;
        self.information(root)
    }

    fn information(&self, root: RootId) -> Result<SubvolumeInfo> {
        outer(self.files.filesystem().subvolumes().information(root)).map(SubvolumeInfo::of)
    }

    /// Makes the subvolume at a path read-only, or writable.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::InvalidInput`] where it is none; [`ErrorKind::PermissionDenied`]
    /// for one that was received.
    pub fn set_read_only(&self, path: impl AsRef<Path>, read_only: bool) -> Result<()> {
        let (files, path) = (self.changing(), path.as_ref());
        let root = subvolume_at(files, path)?;
        let subvolumes = files.filesystem().subvolumes();
        outer(subvolumes.set_read_only(&Caller::superuser(), root, read_only, false))
            .map_err(|error| error.at(path))
    }

    /// The subvolume that is shown as the root where no other is asked for.
    ///
    /// # Errors
    /// What reading met.
    pub fn default(&self) -> Result<SubvolumeInfo> {
        let root = outer(self.files.filesystem().subvolumes().default())?;
        self.information(root)
    }

    /// Chooses the default subvolume, from the next opening on.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::InvalidInput`] where it is no subvolume.
    pub fn set_default(&self, path: impl AsRef<Path>) -> Result<()> {
        let (files, path) = (self.changing(), path.as_ref());
        let root = subvolume_at(files, path)?;
        outer(files.filesystem().subvolumes().set_default(&Caller::superuser(), root))
            .map_err(|error| error.at(path))
    }
}
