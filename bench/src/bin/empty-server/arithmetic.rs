//! Answers from arithmetic.

use std::collections::HashSet;

use rustix::io::Errno;
use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_fuse::transport::{
    AttributeChanges, AttributeService, Deferred, DirectoryService, Entry, EntrySink,
    ExtendedAttributeService, FilePosition, FileService, HandleNumber, ListedName, NameService, NameSink,
    NodeAttributes, NodeNumber, Opened, OpenedDirectory, Reply, Requester, SeekFor, Service, Statistics,
    Time, WriteOrigin,
};

/// Files in each directory, as in the tree of the other sides.
const IN_DIRECTORY: u64 = 50;
/// Bytes of each file: the mean of that tree.
const FILE_BYTES: u64 = 9_700;
/// The directory that holds the others.
const TREE: u64 = 2;
const FIRST_DIRECTORY: u64 = 16;
const FIRST_FILE: u64 = 1 << 32;
/// Bits of nodes that were made: an even number behind is a directory's.
const MADE: u64 = 1 << 40;

/// The tree.
pub struct Arithmetic {
    directories: u64,
    made: AtomicU64,
    /// Directories with files that were closed since the last listing: the kernel lacks attributes of them.
    outdated: Mutex<HashSet<u64>>,
}

impl Arithmetic {
    /// A tree of so many files.
    pub fn new(files: u64) -> Self {
        let directories = files.div_ceil(IN_DIRECTORY);
        Self { directories, made: AtomicU64::new(MADE), outdated: Mutex::default() }
    }

    /// The name of a number in a directory, and its node.
    fn child(&self, directory: u64, number: u64) -> Option<(String, u64)> {
        match directory {
            1 if self.directories > 0 && number == 0 => Some(("tree".to_owned(), TREE)),
            TREE if number < self.directories => Some((format!("d{number}"), FIRST_DIRECTORY + number)),
            _ if self.is_directory(directory) && (FIRST_DIRECTORY..MADE).contains(&directory) => {
                let file = (directory - FIRST_DIRECTORY) * IN_DIRECTORY + number;
                (number < IN_DIRECTORY).then(|| (format!("file-{number}.txt"), FIRST_FILE + file))
            }
            _ => None,
        }
    }

    fn is_directory(&self, node: u64) -> bool {
        node < FIRST_FILE || node >= MADE && node.is_multiple_of(2)
    }

    fn attributes_of(&self, node: u64) -> NodeAttributes {
        let is_directory = self.is_directory(node);
        let size_bytes = if is_directory || node >= MADE { 0 } else { FILE_BYTES };
        NodeAttributes {
            number: node,
            mode: if is_directory { 0o040_755 } else { 0o100_644 },
            links: 1,
            user: 0,
            group: 0,
            device: 0,
            size_bytes,
            blocks: size_bytes.div_ceil(512),
            block_size: 4096,
            access_time: Time::default(),
            modification_time: Time::default(),
            change_time: Time::default(),
            is_volatile: false,
        }
    }

    fn entry(&self, node: u64) -> Entry {
        Entry { node: NodeNumber(node), generation: 1, attributes: self.attributes_of(node) }
    }

    fn make(&self, is_directory: bool) -> u64 {
        let pair = self.made.fetch_add(2, Ordering::Relaxed);
        if is_directory { pair } else { pair + 1 }
    }

    /// Lists a directory from an offset; `sink` says when it is full.
    fn list(&self, directory: u64, offset: u64, mut sink: impl FnMut(&ListedName<'_>, &Entry) -> bool) {
        let numbers = offset..u64::MAX;
        let children = numbers.map_while(|number| Some((number, self.child(directory, number)?)));
        for (number, (name, node)) in children {
            let entry = self.entry(node);
            let (mode, next) = (entry.attributes.mode, number + 1);
            if !sink(&ListedName { name: name.as_bytes(), number: node, mode, next }, &entry) {
                return;
            }
        }
    }

    fn number_in(name: &[u8], before: &str, behind: &str) -> Option<u64> {
        let digits = std::str::from_utf8(name).ok()?.strip_prefix(before)?.strip_suffix(behind)?;
        digits.parse().ok()
    }
}

impl Service for Arithmetic {
    type Names = Self;
    type Attributes = Self;
    type Files = Self;
    type Directories = Self;
    type ExtendedAttributes = Self;

    fn names(&self) -> &Self {
        self
    }

    fn attributes(&self) -> &Self {
        self
    }

    fn files(&self) -> &Self {
        self
    }

    fn directories(&self) -> &Self {
        self
    }

    fn extended_attributes(&self) -> &Self {
        self
    }
}

impl NameService for Arithmetic {
    fn lookup(&self, _: Requester, parent: NodeNumber, name: &[u8]) -> Reply<Option<Entry>> {
        let number = match parent.0 {
            1 => (name == b"tree").then_some(0),
            TREE => Self::number_in(name, "d", ""),
            _ => Self::number_in(name, "file-", ".txt"),
        };
        let found = number.and_then(|number| self.child(parent.0, number));
        Ok(found.map(|(_, node)| self.entry(node)))
    }

    fn forget(&self, _node: NodeNumber, _lookups: u64) {}

    fn read_link(&self, _: NodeNumber) -> Reply<Vec<u8>> {
        Err(Errno::INVAL)
    }

    fn make_node(&self, _: Requester, _: NodeNumber, _: &[u8], _: u32, _: u32, _: u32) -> Reply<Entry> {
        Ok(self.entry(self.make(false)))
    }

    fn make_directory(&self, _: Requester, _: NodeNumber, _: &[u8], _: u32, _: u32) -> Reply<Entry> {
        Ok(self.entry(self.make(true)))
    }

    fn make_symbolic_link(&self, _: Requester, _: NodeNumber, _: &[u8], _: &[u8]) -> Reply<Entry> {
        Err(Errno::PERM)
    }

    fn unlink(&self, _: Requester, _: NodeNumber, _: &[u8]) -> Reply<()> {
        Ok(())
    }

    fn remove_directory(&self, _: Requester, _: NodeNumber, _: &[u8]) -> Reply<()> {
        Ok(())
    }

    fn rename(&self, _: Requester, _: NodeNumber, _: &[u8], _: NodeNumber, _: &[u8], _: u32) -> Reply<()> {
        Ok(())
    }

    fn link(&self, _: Requester, _: NodeNumber, _: NodeNumber, _: &[u8]) -> Reply<Entry> {
        Err(Errno::PERM)
    }
}

impl AttributeService for Arithmetic {
    fn attributes(&self, node: NodeNumber) -> Reply<NodeAttributes> {
        Ok(self.attributes_of(node.0))
    }

    fn set_attributes(
        &self,
        _: Requester,
        node: NodeNumber,
        changes: &AttributeChanges,
    ) -> Reply<NodeAttributes> {
        let attributes = self.attributes_of(node.0);
        Ok(NodeAttributes { size_bytes: changes.size_bytes.unwrap_or(attributes.size_bytes), ..attributes })
    }

    fn control(&self, _: Requester, _: NodeNumber, _: u32, _: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::NOTTY)
    }

    fn statistics(&self) -> Reply<Statistics> {
        let blocks = 1 << 30;
        let free = Statistics {
            block_size: 4096,
            blocks,
            free_blocks: blocks,
            available_blocks: blocks,
            longest_name: 255,
        };
        Ok(free)
    }
}

impl FileService for Arithmetic {
    fn open(&self, _: Requester, node: NodeNumber, _: i32) -> Reply<Opened> {
        Ok(Opened { handle: HandleNumber(node.0), direct: false })
    }

    fn create(
        &self,
        _: Requester,
        _: NodeNumber,
        _: &[u8],
        _: u32,
        _: u32,
        _: i32,
    ) -> Reply<(Entry, Opened)> {
        let node = self.make(false);
        Ok((self.entry(node), Opened { handle: HandleNumber(node), direct: false }))
    }

    fn read(&self, _: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize> {
        let left = usize::try_from(FILE_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = left.min(target.len());
        target[..length].fill(b'x');
        Ok(length)
    }

    fn write(&self, _: Requester, _: HandleNumber, _: u64, _: &[u8], _: WriteOrigin) -> Reply<()> {
        Ok(())
    }

    fn release(&self, handle: HandleNumber) {
        if let Some(file) = handle.0.checked_sub(FIRST_FILE).filter(|_| handle.0 < MADE) {
            self.outdated.lock().insert(FIRST_DIRECTORY + file / IN_DIRECTORY);
        }
    }

    fn sync(&self, _: HandleNumber) -> Reply<()> {
        Ok(())
    }

    fn allocate(&self, _: Requester, _: HandleNumber, _: u64, _: u64, _: i32) -> Reply<()> {
        Ok(())
    }

    fn seek(&self, _: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>) {
        answer(Ok(if what == SeekFor::Data { offset } else { FILE_BYTES }));
    }

    fn copy_range(&self, _: Requester, _: FilePosition, _: FilePosition, _: u64) -> Reply<u64> {
        Err(Errno::OPNOTSUPP)
    }
}

impl DirectoryService for Arithmetic {
    fn open_directory(&self, _: Requester, node: NodeNumber) -> Reply<OpenedDirectory> {
        let attributes_wanted = self.outdated.lock().remove(&node.0);
        Ok(OpenedDirectory { handle: HandleNumber(node.0), attributes_wanted })
    }

    fn read_directory(
        &self,
        handle: HandleNumber,
        offset: u64,
        _: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()> {
        self.list(handle.0, offset, |name, _| sink(name));
        Ok(())
    }

    fn read_directory_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        _: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()> {
        self.list(handle.0, offset, |name, entry| sink(name, Some(entry)));
        Ok(())
    }

    fn sync_directory(&self, _: HandleNumber) -> Reply<()> {
        Ok(())
    }

    fn release_directory(&self, _: HandleNumber) {}
}

impl ExtendedAttributeService for Arithmetic {
    fn set_extended_attribute(&self, _: Requester, _: NodeNumber, _: &[u8], _: &[u8], _: i32) -> Reply<()> {
        Ok(())
    }

    fn extended_attribute(&self, _: Requester, _: NodeNumber, _: &[u8]) -> Reply<Vec<u8>> {
        Err(Errno::NODATA)
    }

    fn extended_attributes(&self, _: NodeNumber) -> Reply<Vec<u8>> {
        Ok(Vec::new())
    }

    fn remove_extended_attribute(&self, _: Requester, _: NodeNumber, _: &[u8]) -> Reply<()> {
        Err(Errno::NODATA)
    }
}
