//! An open file, with the traits of `std::io`.

use std::borrow::Cow;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_data::{MappedExtent, OpenCache};
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::FileType;

use super::error::at;
use super::metadata::Metadata;
use super::resolve::Resolver;
use crate::{ContentTimes, Inode, OpenInode, OpenMode, Refusal, Result, SetAttributes, WriteOrigin};

/// Bytes that are taken without a look at whether the image has them.
const SMALL_BYTES: u64 = 16 << 20;
/// Zeros that stand for holes in what [`Files::read`](super::Files::read) gives, at most.
const MAX_HOLE_BYTES: u64 = 256 << 20;

/// Makes a buffer so long, with zeros.
fn grow(bytes: &mut Vec<u8>, length: u64) -> Result<()> {
    let length = usize::try_from(length).map_err(|_| Refusal::FileTooLarge)?;
    let more = length.saturating_sub(bytes.len());
    bytes.try_reserve(more).map_err(|_| Refusal::FileTooLarge)?;
    bytes.resize(length, 0);
    Ok(())
}

/// What was sought, or the end of the file where nothing more of it follows.
fn or_end(found: Result<u64>, end: u64) -> Result<u64> {
    match found {
        Ok(found) => Ok(found.min(end)),
        Err(error) if error.refusal() == Some(Refusal::NoSuchOffset) => Ok(end),
        Err(error) => Err(error),
    }
}

/// How to open a file, as `std::fs::OpenOptions`.
#[derive(Clone, Debug)]
pub struct FileOptions {
    resolver: Resolver,
    mode: OpenMode,
    create: bool,
    create_new: bool,
    permissions: u32,
}

/// An open file. What is written is in memory at once and durable after [`File::sync_all`].
#[derive(Debug)]
pub struct File {
    resolver: Resolver,
    open: OpenInode,
    mode: OpenMode,
    position: u64,
    cache: OpenCache,
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident = $($field:ident).+;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: bool) -> Self {
            self.$($field).+ = $name;
            self
        })*
    };
}

impl FileOptions {
    pub(super) fn new(resolver: Resolver) -> Self {
        Self { resolver, mode: OpenMode::default(), create: false, create_new: false, permissions: 0o666 }
    }

    switches! {
        /// To read.
        read = mode.read;
        /// To write.
        write = mode.write;
        /// To write at the end, wherever that is at each write.
        append = mode.append;
        /// Drop what is there.
        truncate = mode.truncate;
        /// Make the file if it is not there.
        create = create;
        /// Make the file; refuse where something has the name.
        create_new = create_new;
    }

    /// The permission bits of a file that is made, before the umask; 0666 without this.
    #[must_use]
    pub fn permissions(mut self, permissions: u32) -> Self {
        self.permissions = permissions;
        self
    }

    /// Opens a file, or a directory for reading; neither reads nor writes the latter's content.
    ///
    /// # Errors
    /// As looking the path up, making and opening a file; [`Refusal::NotSupported`] for pipes, sockets and
    /// devices; [`Refusal::IsADirectory`] where a file is to be made and a directory is there, or the path
    /// ends with a slash.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let resolver = &self.resolver;
        let (inode, is_new) = self.find_or_create(path)?;
        // As open(2) with O_CREAT.
        if inode.is_directory() && self.create {
            return at(path, Err(Refusal::IsADirectory.into()));
        }
        if !matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::SymbolicLink) {
            return at(path, Err(Refusal::NotSupported.into()));
        }
        let filesystem = resolver.filesystem();
        // The caller that made a file may write it, whatever its permissions are to be.
        let open = if is_new {
            filesystem.opener().hold(&inode)
        } else {
            filesystem.files().open(resolver.caller(), &inode, self.mode)
        };
        let open = at(path, open)?;
        if self.mode.truncate && !is_new {
            let changes =
                SetAttributes { size: Some(0), opened_for_writing: true, ..SetAttributes::default() };
            at(path, filesystem.attributes().set(resolver.caller(), &inode, &changes))?;
        }
        Ok(File { resolver: resolver.clone(), open, mode: self.mode, position: 0, cache: OpenCache::new() })
    }

    fn find_or_create(&self, path: &Path) -> Result<(Arc<Inode>, bool)> {
        let resolver = &self.resolver;
        if !self.create && !self.create_new {
            return Ok((resolver.resolve(path)?, false));
        }
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return at(path, Err(Refusal::IsADirectory.into()));
        }
        if !self.create_new {
            match resolver.resolve(path) {
                Err(error) if error.refusal() == Some(Refusal::NotFound) => {}
                found => return Ok((found?, false)),
            }
        }
        let (directory, name) = resolver.resolve_parent(path)?;
        let made =
            resolver.filesystem().names().create_file(resolver.caller(), &directory, &name, self.permissions);
        Ok((at(path, made)?, true))
    }
}

impl File {
    /// The inode.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        self.open.inode()
    }

    /// What is known of the file.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata(self.resolver.filesystem().attributes().of(self.inode()))
    }

    /// Reads from an offset; gives how many bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`] where it was not opened for reading; what reading met.
    pub fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        if !self.mode.read {
            return Err(Refusal::BadHandle.into());
        }
        self.resolver.filesystem().files().read_at(self.inode(), &self.cache, offset, target)
    }

    /// All bytes; memory is taken as they come.
    pub(super) fn read_all(&self) -> Result<Vec<u8>> {
        let size = self.inode().size();
        let mut bytes = Vec::new();
        if size <= SMALL_BYTES {
            grow(&mut bytes, size)?;
            let count = self.read_at(&mut bytes, 0)?;
            bytes.truncate(count);
            return Ok(bytes);
        }
        let (mut at, mut holes) = (0, 0_u64);
        while at < size {
            let data = or_end(self.seek_from(at, vlinder_data::Seek::Data), size)?;
            holes = holes.saturating_add(data.saturating_sub(at));
            if holes > MAX_HOLE_BYTES {
                return Err(Refusal::FileTooLarge.into());
            }
            grow(&mut bytes, data)?;
            at = data;
            let end = or_end(self.seek_from(at, vlinder_data::Seek::Hole), size)?;
            while at < end {
                let next = end.min(at.saturating_add(SMALL_BYTES));
                let start = bytes.len();
                grow(&mut bytes, next)?;
                let count = self.read_at(bytes.get_mut(start..).unwrap_or_default(), at)?;
                // Cut meanwhile.
                if u64::try_from(count).unwrap_or(u64::MAX) < next - at {
                    bytes.truncate(start.saturating_add(count));
                    return Ok(bytes);
                }
                at = next;
            }
        }
        Ok(bytes)
    }

    /// Writes all bytes at an offset; at the end where the file was opened for appending.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`] where it was not opened for writing; as
    /// [`FileContent::write_file`](crate::FileContent::write_file).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let (filesystem, caller) = (self.resolver.filesystem(), self.resolver.caller());
        if self.mode.append {
            return filesystem.files().append(caller, self.inode(), Cow::Borrowed(bytes)).map(drop);
        }
        if !self.mode.write {
            return Err(Refusal::BadHandle.into());
        }
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Move };
        filesystem.files().write_file(caller, self.inode(), offset, Cow::Borrowed(bytes), origin).map(drop)
    }

    /// Writes parts, each at its offset, so that they are on the devices when this returns, as with
    /// `O_DIRECT`.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`] where it was not opened for writing;
    /// as [`FileContent::write_file_direct`](crate::FileContent::write_file_direct).
    pub fn write_direct(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        if !self.mode.write {
            return Err(Refusal::BadHandle.into());
        }
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Move };
        self.resolver
            .filesystem()
            .files()
            .write_file_direct(self.resolver.caller(), self.inode(), parts, origin)
            .map(drop)
    }

    /// Cuts the file, or extends it by a hole.
    ///
    /// # Errors
    /// As [`InodeAttributes::set`](crate::InodeAttributes::set).
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.mode.write && !self.mode.append {
            return Err(Refusal::InvalidArgument.into());
        }
        let changes =
            SetAttributes { size: Some(size), opened_for_writing: true, ..SetAttributes::default() };
        self.resolver.filesystem().attributes().set(self.resolver.caller(), self.inode(), &changes).map(drop)
    }

    /// The next data or hole from an offset on (SEEK_DATA, SEEK_HOLE); the position stays.
    ///
    /// # Errors
    /// As [`FileContent::seek`](crate::FileContent::seek).
    pub fn seek_from(&self, offset: u64, what: vlinder_data::Seek) -> Result<u64> {
        self.resolver.filesystem().files().seek(self.inode(), &self.cache, offset, what)
    }

    /// Where the bytes of a range lie, in order, at most `limit` runs (FS_IOC_FIEMAP).
    ///
    /// # Errors
    /// As [`FileContent::extent_map`](crate::FileContent::extent_map).
    pub fn extent_map(&self, range: ByteRange, limit: usize) -> Result<Vec<MappedExtent>> {
        self.resolver.filesystem().files().extent_map(self.inode(), &self.cache, range, limit)
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// As [`Maintenance::sync_inode`](crate::Maintenance::sync_inode).
    pub fn sync_all(&self) -> Result<()> {
        self.resolver.filesystem().maintenance().sync_inode(self.inode())
    }
}

impl Read for File {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(target, self.position)?;
        self.position = self.position.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_at(bytes, self.position)?;
        self.position = if self.mode.append {
            self.inode().size()
        } else {
            self.position.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
        };
        Ok(bytes.len())
    }

    /// Nothing: bytes are with the file system when `write` returns. [`File::sync_all`] makes them durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.inode().size(), by),
        };
        let position = base.checked_add_signed(by).ok_or(crate::FsError::from(Refusal::InvalidArgument))?;
        self.position = position;
        Ok(position)
    }
}
