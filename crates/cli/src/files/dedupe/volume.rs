//! The file system whose files share extents: an image, or a mount that is asked.

use vlinder_base::sync::Arc;
use vlinder_control::{Answer, Name, Request};
use vlinder_fs::data::MappedExtent;
use vlinder_fs::{InodeFlags, InodeId};
use vlinder_places::failure::Failure;
use vlinder_places::mounted::Mounted;
use vlinder_places::place::image::{OpenImage, from_fs};

use crate::files::filemap::all_runs;

/// A file system.
pub(super) enum DedupeVolume {
    Image(Arc<OpenImage>),
    Mounted(Box<Mounted>),
}

/// A file of it.
pub(super) enum DedupeFile {
    InImage(InodeId),
    /// The path that requests name.
    OnMount(Name),
}

/// Where the bytes of a file lie.
pub(super) struct FileLayout {
    pub(super) size_bytes: u64,
    /// Extents are divided at multiples of this alone.
    pub(super) sector_bytes: u64,
    pub(super) runs: Vec<MappedExtent>,
    /// It has checksums, as far as that is known; with files that have none it can share nothing.
    pub(super) has_checksums: bool,
}

impl DedupeVolume {
    /// Whether both are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Image(one), Self::Image(other)) => Arc::ptr_eq(one, other),
            (Self::Mounted(one), Self::Mounted(other)) => one.is_same_mount(other),
            _ => false,
        }
    }

    /// Where the bytes of a file lie.
    pub(super) fn layout(&self, file: &DedupeFile, place: &str) -> Result<FileLayout, Failure> {
        match (self, file) {
            (Self::Image(image), DedupeFile::InImage(id)) => {
                let fail = |error| from_fs(error, place);
                let inode = image.filesystem.inode(*id).map_err(fail)?;
                let runs = all_runs(&image.filesystem, &inode).map_err(fail)?;
                let has_checksums = !inode.flags().has(InodeFlags::NODATASUM);
                let sector_bytes = u64::from(image.filesystem.sector_size());
                Ok(FileLayout { size_bytes: inode.size(), sector_bytes, runs, has_checksums })
            }
            (Self::Mounted(mounted), DedupeFile::OnMount(path)) => {
                let (size_bytes, sector_bytes, runs) = mounted
                    .file_map_of(path)
                    .map_err(|failure| Failure { place: None, ..failure }.at(place))?;
                Ok(FileLayout { size_bytes, sector_bytes, runs, has_checksums: true })
            }
            _ => Err(Failure::usage("files of two file systems")),
        }
    }

    /// Shares a range, if both files show the same bytes there; gives whether they do.
    pub(super) fn dedupe(
        &self,
        (source, source_offset): (&DedupeFile, u64),
        (target, offset): (&DedupeFile, u64),
        length: u64,
        place: &str,
    ) -> Result<bool, Failure> {
        match (self, source, target) {
            (Self::Image(image), DedupeFile::InImage(source), DedupeFile::InImage(target)) => {
                let fail = |error| from_fs(error, place);
                let inode = |id: InodeId| image.filesystem.inode(id).map_err(fail);
                let (from, to) = (inode(*source)?, inode(*target)?);
                let files = image.filesystem.files();
                files.dedupe_range(&image.caller, (&from, source_offset), (&to, offset), length).map_err(fail)
            }
            (Self::Mounted(mounted), DedupeFile::OnMount(source), DedupeFile::OnMount(path)) => {
                let (source, path) = (source.clone(), path.clone());
                let request = Request::FileDedupe { source, source_offset, path, offset, length };
                match mounted.request(&request) {
                    Ok(Answer::Deduped { is_same }) => Ok(is_same),
                    Ok(_) => Err(mounted.unexpected()),
                    Err(failure) => Err(Failure { place: None, ..failure }.at(place)),
                }
            }
            _ => Err(Failure::usage("files of two file systems")),
        }
    }
}
