//! The files of a subvolume, to be listed and read.

use std::io;

use vlinder_format::inode::{FileType, Timestamp};
use vlinder_format::{Generation, Uuid};

use super::content::{Content, EncodedExtent, RunSource, StreamPlace};
use super::error::{CommandFault, ContentError};
use super::inode::{FileBody, FileId};
use super::sequence::Measured;
use super::subvolume::StreamSubvolume;

/// The inputs of an index, to be read a second time.
pub trait StreamBytes {
    /// Fills the buffer with the bytes at an offset of an input. Inputs are numbered in the order in which
    /// the index got them.
    ///
    /// # Errors
    /// They can't be read, or the input is shorter.
    fn read_exact_at(&self, input: usize, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Attributes of a file, as far as the streams tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFileStatus {
    /// What kind of file it is.
    pub file_type: Option<FileType>,
    /// The twelve permission bits.
    pub permissions: Option<u16>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Bytes of a regular file or of a link's text, names in a directory; 0 for any other file.
    pub size: Option<u64>,
    /// Of the last access, and of the last change of content.
    pub times: Option<(Timestamp, Timestamp)>,
    /// How many names it has.
    pub names: u32,
    /// Major and minor number of a device; else 0.
    pub device: (u32, u32),
}

/// A part of a file's content. The parts of a file follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPart<'a> {
    /// Bytes.
    Data(&'a [u8]),
    /// So many zeros that nobody wrote.
    Hole(u64),
}

/// A subvolume of an index.
#[derive(Clone, Copy)]
pub struct SubvolumeView<'a> {
    subvolume: &'a StreamSubvolume,
}

impl<'a> SubvolumeView<'a> {
    pub(super) fn new(subvolume: &'a StreamSubvolume) -> Self {
        Self { subvolume }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        &self.subvolume.name
    }

    /// The UUID of what was sent.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.subvolume.uuid
    }

    /// The transaction of its last change.
    #[must_use]
    pub fn transid(&self) -> Generation {
        self.subvolume.transid
    }

    /// What it began as a snapshot of.
    #[must_use]
    pub fn parent(&self) -> Option<(Uuid, Generation)> {
        self.subvolume.parent
    }

    /// The subvolume without which only a part of the files is known: the parent that was not given, or that
    /// of an earlier subvolume.
    #[must_use]
    pub fn missing_base(&self) -> Option<Uuid> {
        self.subvolume.tree.missing_base
    }

    /// Its root.
    #[must_use]
    pub fn root(&self) -> FileId {
        self.subvolume.tree.root()
    }

    /// How many files there are, the root included.
    #[must_use]
    pub fn file_count(&self) -> u64 {
        self.subvolume.tree.table.count()
    }

    /// The file of a path: names with a slash between them; the empty path is the root. Links are not
    /// followed.
    ///
    /// # Errors
    /// There is none, or it is no path.
    pub fn find(&self, path: &[u8]) -> Result<FileId, CommandFault> {
        self.subvolume.tree.find(path)
    }

    fn body(&self, file: FileId) -> &'a FileBody {
        &self.subvolume.tree.table.get(file).body
    }

    /// The attributes of a file.
    #[must_use]
    pub fn status(&self, file: FileId) -> StreamFileStatus {
        let inode = self.subvolume.tree.table.get(file);
        let mut device = (0, 0);
        let size = match &inode.body {
            FileBody::Unknown => None,
            FileBody::Regular(content) => content.size(),
            FileBody::Directory(names) => Some(names.length()),
            FileBody::SymbolicLink(target) => Some(target.len() as u64),
            FileBody::Special(_, packed) => {
                device = unpacked(*packed);
                Some(0)
            }
        };
        StreamFileStatus {
            file_type: inode.file_type(),
            permissions: inode.permissions,
            owner: inode.owner,
            size,
            times: inode.times,
            names: inode.names,
            device,
        }
    }

    /// The names in a directory, in the order of their bytes; none of anything else.
    pub fn entries(&self, directory: FileId) -> impl Iterator<Item = (&'a [u8], FileId)> + use<'a> {
        let names = match self.body(directory) {
            FileBody::Directory(names) => Some(names),
            _ => None,
        };
        names.into_iter().flat_map(|names| names.iter()).map(|entry| (&*entry.name, entry.file))
    }

    /// The text of a symbolic link.
    #[must_use]
    pub fn link_target(&self, file: FileId) -> Option<&'a [u8]> {
        match self.body(file) {
            FileBody::SymbolicLink(target) => Some(target),
            _ => None,
        }
    }

    /// The names of the extended attributes of a file, and a number for each by which its value is read.
    pub fn xattr_names(&self, file: FileId) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.subvolume.tree.table.get(file).xattrs.iter().map(|xattr| &*xattr.name)
    }

    /// The value of an extended attribute; none if it has none of that name.
    ///
    /// # Errors
    /// The stream can't be read a second time.
    pub fn xattr(
        &self,
        file: FileId,
        name: &[u8],
        inputs: &dyn StreamBytes,
    ) -> Result<Option<Vec<u8>>, ContentError> {
        let xattrs = &self.subvolume.tree.table.get(file).xattrs;
        let found = xattrs.find(|other| (*other.name).cmp(name));
        Ok(found.map(|xattr| read_place(xattr.value, inputs)).transpose()?)
    }

    /// Says why the content of a file can't be had, if that is known before it is read.
    ///
    /// # Errors
    /// That is why.
    pub fn check_content(&self, file: FileId) -> Result<(), ContentError> {
        self.content(file).map(drop)
    }

    fn content(&self, file: FileId) -> Result<&'a Content, ContentError> {
        let content = match (self.body(file), self.missing_base()) {
            (FileBody::Regular(content), _) => content,
            (FileBody::Unknown, Some(uuid)) => return Err(ContentError::Missing { uuid }),
            _ => return Err(ContentError::NotARegularFile),
        };
        match content.first_lacking() {
            Some(RunSource::Missing(uuid)) => Err(ContentError::Missing { uuid: *uuid }),
            Some(_) => Err(ContentError::NotSent),
            None => Ok(content),
        }
    }

    /// Gives the content of a file in parts to `take`, until that says to stop by false.
    ///
    /// # Errors
    /// It is no regular file, some of its bytes are in none of the streams, or a stream can't be read again.
    pub fn read(
        &self,
        file: FileId,
        inputs: &dyn StreamBytes,
        take: &mut dyn FnMut(ContentPart<'_>) -> bool,
    ) -> Result<(), ContentError> {
        let mut decoded: Option<(EncodedExtent, Vec<u8>)> = None;
        for run in self.content(file)?.runs() {
            let goes_on = match &run.source {
                RunSource::Plain { input, offset } => {
                    let place = StreamPlace { input: *input, offset: *offset, bytes: run.length() as u32 };
                    take(ContentPart::Data(&read_place(place, inputs)?))
                }
                RunSource::Encoded(extent, skipped) => {
                    // The next run is often a part of the same extent.
                    let kept = decoded.take().filter(|(other, _)| *other == **extent);
                    let (_, bytes) = decoded.insert(match kept {
                        Some(kept) => kept,
                        None => (**extent, decode(extent, inputs)?),
                    });
                    let start = *skipped as usize;
                    take(ContentPart::Data(&bytes[start..start + run.length() as usize]))
                }
                _ => take(ContentPart::Hole(run.length())),
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

fn read_place(place: StreamPlace, inputs: &dyn StreamBytes) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; place.bytes as usize];
    inputs.read_exact_at(place.input as usize, place.offset, &mut bytes)?;
    Ok(bytes)
}

fn decode(extent: &EncodedExtent, inputs: &dyn StreamBytes) -> Result<Vec<u8>, ContentError> {
    let data = read_place(extent.place, inputs)?;
    let offset = extent.place.offset;
    extent.form.decode(&data).map_err(|error| ContentError::Codec { offset, error })
}

/// A device number that Linux's `new_encode_dev` packed.
fn unpacked(packed: u64) -> (u32, u32) {
    let (major, minor) = ((packed & 0xf_ff00) >> 8, packed & 0xff | packed >> 12 & 0xf_ff00);
    (major as u32, minor as u32)
}
