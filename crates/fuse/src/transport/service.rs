//! What answers requests: a service, which has an object for each family of them.

use super::values::{
    AttributeChanges, Deferred, Entry, EntrySink, FilePosition, HandleNumber, NameSink, NodeAttributes,
    NodeNumber, Opened, OpenedDirectory, Reply, Requester, SeekFor, Statistics, WriteOrigin,
};

/// Answers requests, by family. Each method of a family may be called from several threads at once and may
/// wait for the disk, but never for the kernel to send something else, since the calling threads are the ones
/// to take it. What fails is answered with the errno that the system call in the kernel returns.
pub trait Service: Send + Sync + 'static {
    /// Answers requests about names.
    type Names: NameService;
    /// Answers requests about attributes.
    type Attributes: AttributeService;
    /// Answers requests about open files.
    type Files: FileService;
    /// Answers requests about open directories.
    type Directories: DirectoryService;
    /// Answers requests about extended attributes.
    type ExtendedAttributes: ExtendedAttributeService;

    /// Names.
    fn names(&self) -> &Self::Names;
    /// Attributes.
    fn attributes(&self) -> &Self::Attributes;
    /// Open files.
    fn files(&self) -> &Self::Files;
    /// Open directories.
    fn directories(&self) -> &Self::Directories;
    /// Extended attributes.
    fn extended_attributes(&self) -> &Self::ExtendedAttributes;
}

/// Requests about names: what a name stands for, and names that come and go.
#[allow(clippy::missing_errors_doc)]
pub trait NameService {
    /// The file behind a name; `None` where there is no such name, which the kernel then remembers.
    fn lookup(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<Option<Entry>>;
    /// The kernel forgets a file so many of the times that it was told of it.
    fn forget(&self, node: NodeNumber, lookups: u64);
    /// A symbolic link's target.
    fn read_link(&self, node: NodeNumber) -> Reply<Vec<u8>>;
    /// mknod(2). `device` is encoded as [`NodeAttributes::device`].
    fn make_node(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Reply<Entry>;
    /// mkdir(2).
    fn make_directory(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Reply<Entry>;
    /// symlink(2).
    fn make_symbolic_link(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry>;
    /// unlink(2).
    fn unlink(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()>;
    /// rmdir(2).
    fn remove_directory(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()>;
    /// renameat2(2), with its flags.
    fn rename(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        new_parent: NodeNumber,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()>;
    /// link(2).
    fn link(
        &self,
        requester: Requester,
        node: NodeNumber,
        new_parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry>;
}

/// Requests about what is shown of a file or of the whole file system: stat(2), statfs(2), chattr(1).
#[allow(clippy::missing_errors_doc)]
pub trait AttributeService {
    /// What stat(2) shows.
    fn attributes(&self, node: NodeNumber) -> Reply<NodeAttributes>;
    /// As [`attributes`](Self::attributes), asked through an open file, which the kernel does on its own
    /// account: before it takes bytes of a write(2) whose file's attributes are not valid. An error is that
    /// of write(2). The answer may come from another thread, since the kernel may have to write what it took
    /// before.
    fn attributes_by_handle(
        &self,
        node: NodeNumber,
        _handle: HandleNumber,
        answer: Deferred<NodeAttributes>,
    ) {
        answer(self.attributes(node));
    }
    /// Changes attributes.
    fn set_attributes(
        &self,
        requester: Requester,
        node: NodeNumber,
        changes: &AttributeChanges,
    ) -> Reply<NodeAttributes>;
    /// ioctl(2) of a command whose number says how many bytes it takes and gives: those given.
    fn control(&self, requester: Requester, node: NodeNumber, command: u32, data: &[u8]) -> Reply<Vec<u8>>;
    /// statfs(2).
    fn statistics(&self) -> Reply<Statistics>;
}

/// Requests about open files and their data.
#[allow(clippy::missing_errors_doc)]
pub trait FileService {
    /// open(2), with its flags but `O_CREAT`, `O_EXCL` and `O_TRUNC`.
    fn open(&self, requester: Requester, node: NodeNumber, flags: i32) -> Reply<Opened>;
    /// open(2) with `O_CREAT` of a name that is not there.
    fn create(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Reply<(Entry, Opened)>;
    /// Reads into `target`; returns how many bytes, fewer only at the end of the file.
    fn read(&self, handle: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize>;
    /// Writes all of `data`.
    fn write(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()>;
    /// As [`write`](Self::write), past the page cache. The answer may come from another thread, since the
    /// kernel has to drop the pages that it keeps first.
    fn write_past_cache(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
        answer: Deferred<()>,
    ) {
        answer(self.write(requester, handle, offset, data, origin));
    }
    /// The next read of an open file fills pages of the kernel's cache.
    fn note_page_read(&self, _handle: HandleNumber) {}
    /// The last user of an open file is gone.
    fn release(&self, handle: HandleNumber);
    /// fsync(2) of a file.
    fn sync(&self, handle: HandleNumber) -> Reply<()>;
    /// fallocate(2), with its mode.
    fn allocate(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()>;
    /// lseek(2) for data and holes. The answer may come from another thread, since the kernel may have to
    /// write first.
    fn seek(&self, handle: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>);
    /// copy_file_range(2); returns how many bytes.
    fn copy_range(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64>;
}

/// Requests about open directories.
#[allow(clippy::missing_errors_doc)]
pub trait DirectoryService {
    /// opendir(3).
    fn open_directory(&self, requester: Requester, node: NodeNumber) -> Reply<OpenedDirectory>;
    /// Lists from an offset on; `room_bytes` is what the answer may take.
    fn read_directory(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()>;
    /// As [`read_directory`](Self::read_directory), and the kernel learns of each file that the sink takes.
    fn read_directory_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()>;
    /// Sends the answer that one of these two returned, at once or from another thread, since the kernel may
    /// have to drop its copy of the listing first.
    fn answer_names(&self, _handle: HandleNumber, answer: Box<dyn FnOnce() + Send>) {
        answer();
    }
    /// fsync(2) of a directory.
    fn sync_directory(&self, handle: HandleNumber) -> Reply<()>;
    /// closedir(3).
    fn release_directory(&self, handle: HandleNumber);
}

/// Requests about extended attributes.
#[allow(clippy::missing_errors_doc)]
pub trait ExtendedAttributeService {
    /// setxattr(2), with its flags.
    fn set_extended_attribute(
        &self,
        requester: Requester,
        node: NodeNumber,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Reply<()>;
    /// getxattr(2).
    fn extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<Vec<u8>>;
    /// listxattr(2): names, each with a zero behind it.
    fn extended_attributes(&self, node: NodeNumber) -> Reply<Vec<u8>>;
    /// removexattr(2).
    fn remove_extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<()>;
}
