//! Files of a subvolume, whatever they are.

use std::cmp::Ordering;

use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, Timestamp};

use super::content::{Content, StreamPlace};
use super::sequence::{Measured, Sequence};

/// What a file is called in the index; it says nothing to anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(super) u64);

/// A name in a directory.
#[derive(Clone, Debug)]
pub(super) struct NamedFile {
    pub name: Arc<[u8]>,
    pub file: FileId,
}

impl Measured for NamedFile {
    fn length(&self) -> u64 {
        1
    }
}

/// An extended attribute; its value stays in the stream.
#[derive(Clone, Debug)]
pub(super) struct StreamXattr {
    pub name: Arc<[u8]>,
    pub value: StreamPlace,
}

impl Measured for StreamXattr {
    fn length(&self) -> u64 {
        1
    }
}

/// What a file is.
#[derive(Clone, Debug)]
pub(super) enum FileBody {
    /// It was there before the streams that were given, which tell only some of its attributes.
    Unknown,
    Regular(Content),
    Directory(Sequence<NamedFile>),
    SymbolicLink(Arc<[u8]>),
    /// A device, pipe or socket, with the device's number as Linux's `new_encode_dev` packs it.
    Special(FileType, u64),
}

/// A file with its attributes, as far as the streams tell them.
#[derive(Clone, Debug)]
pub(super) struct StreamInode {
    pub body: FileBody,
    pub permissions: Option<u16>,
    pub owner: Option<(u32, u32)>,
    /// Of the last access, and of the last change of content.
    pub times: Option<(Timestamp, Timestamp)>,
    pub xattrs: Sequence<StreamXattr>,
    /// How many names it has; of a directory 1.
    pub names: u32,
}

impl StreamInode {
    pub fn new(body: FileBody) -> Self {
        Self { body, permissions: None, owner: None, times: None, xattrs: Sequence::default(), names: 1 }
    }

    /// What kind of file it is, if that is known.
    pub fn file_type(&self) -> Option<FileType> {
        match &self.body {
            FileBody::Unknown => None,
            FileBody::Regular(_) => Some(FileType::Regular),
            FileBody::Directory(_) => Some(FileType::Directory),
            FileBody::SymbolicLink(_) => Some(FileType::SymbolicLink),
            FileBody::Special(file_type, _) => Some(*file_type),
        }
    }

    pub fn set_xattr(&mut self, name: &[u8], value: StreamPlace) {
        let xattr = StreamXattr { name: name.into(), value };
        self.xattrs.put(xattr, |other| (*other.name).cmp(name));
    }

    pub fn remove_xattr(&mut self, name: &[u8]) {
        self.xattrs.take(|other| (*other.name).cmp(name));
    }
}

/// A file under its identity.
#[derive(Clone, Debug)]
struct KnownFile {
    id: FileId,
    inode: Arc<StreamInode>,
}

impl Measured for KnownFile {
    fn length(&self) -> u64 {
        1
    }
}

/// The files of a subvolume by identity.
#[derive(Clone, Debug, Default)]
pub(super) struct FileTable {
    files: Sequence<KnownFile>,
    next: u64,
}

impl FileTable {
    pub fn add(&mut self, inode: StreamInode) -> FileId {
        let id = FileId(self.next);
        self.next += 1;
        self.files.put(KnownFile { id, inode: Arc::new(inode) }, |other| other.id.cmp(&id));
        id
    }

    pub fn get(&self, id: FileId) -> &StreamInode {
        match self.files.find(Self::order(id)) {
            Some(known) => &known.inode,
            None => unreachable!("every name leads to a file of the table"),
        }
    }

    pub fn get_mut(&mut self, id: FileId) -> &mut StreamInode {
        match self.files.find_mut(Self::order(id)) {
            Some(known) => Arc::make_mut(&mut known.inode),
            None => unreachable!("every name leads to a file of the table"),
        }
    }

    /// One name of a file is gone; with its last name the file goes.
    pub fn drop_name(&mut self, id: FileId) {
        let inode = self.get_mut(id);
        inode.names -= 1;
        if inode.names == 0 {
            self.files.take(Self::order(id));
        }
    }

    /// How many files there are.
    pub fn count(&self) -> u64 {
        self.files.length()
    }

    fn order(id: FileId) -> impl Fn(&KnownFile) -> Ordering {
        move |known| known.id.cmp(&id)
    }
}
