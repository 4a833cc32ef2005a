//! The service of one mount: its objects put together, and what the rest of the mount asks of them.

use vlinder_base::sync::Arc;
use vlinder_control::Unplaced;
use vlinder_control::by_call::ExpectedCalls;
use vlinder_fs::{Filesystem, InodeId};

use super::attributes::FileAttributes;
use super::directories::Directories;
use super::extended_attributes::ExtendedAttributes;
use super::files::Files;
use super::gate::{Gate, Keeper};
use super::kernel_names::KernelNames;
use super::mounted::Mounted;
use super::names::Names;
use super::parts::Parts;
use super::unplaced::UnplacedBytes;
use crate::transport::{NodeNumber, Notifier, Reply, Service, Settings};

/// Answers the requests of one mount.
pub struct MountService {
    mounted: Arc<Mounted>,
    unplaced: Arc<UnplacedBytes>,
    gate: Arc<Gate>,
    keeper: Keeper,
    kernel_names: KernelNames,
    names: Names,
    attributes: FileAttributes,
    files: Files,
    directories: Directories,
    extended_attributes: ExtendedAttributes,
}

impl MountService {
    /// For a file system that is mounted; `settings` are the transport's.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub fn new(filesystem: Filesystem, settings: Settings) -> std::io::Result<Self> {
        let parts = Parts::new(filesystem, settings)?;
        Ok(Self {
            keeper: Keeper::new(
                parts.mounted.clone(),
                parts.gate.clone(),
                parts.blocks.clone(),
                parts.unplaced.clone(),
            ),
            names: Names::new(&parts),
            attributes: FileAttributes::new(&parts),
            files: Files::new(&parts),
            directories: Directories::new(&parts),
            extended_attributes: ExtendedAttributes::new(&parts),
            kernel_names: parts.kernel_names,
            gate: parts.gate,
            unplaced: parts.unplaced,
            mounted: parts.mounted,
        })
    }

    /// Says how to reach the kernel, once the transport is there.
    pub fn set_notifier(&self, notifier: Arc<dyn Notifier>) {
        self.mounted.kernel().set_notifier(notifier);
    }

    /// Looks after the room for writers from now on, on a mount with this device number.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub fn keep_room(&self, device: (u32, u32)) -> std::io::Result<()> {
        if !self.mounted.has_writeback() || self.mounted.filesystem().is_read_only() {
            return Ok(());
        }
        self.gate.watch(device);
        self.keeper.start()
    }

    /// Says where the calls are told that clients of the control socket make.
    pub(crate) fn set_expected_calls(&self, calls: Arc<ExpectedCalls>) {
        self.names.set_expected_calls(calls);
    }

    /// A program that asks the mount is told this name of its control socket.
    pub(crate) fn tell_name(&self, name: &[u8]) {
        self.attributes.tell_name(name);
    }

    /// What the kernel calls a file.
    pub(crate) fn node(&self, id: InodeId) -> NodeNumber {
        self.mounted.node(id)
    }

    /// The files of which the kernel may have dirty pages.
    pub(crate) fn written_files(&self) -> Vec<NodeNumber> {
        self.mounted.written_files()
    }

    /// See [`KernelNames::forget_file`].
    pub(crate) fn forget_in_kernel(&self, id: InodeId) {
        self.kernel_names.forget_file(id);
    }

    /// How many files without names were deleted so far.
    pub(crate) fn deletions(&self) -> u64 {
        self.mounted.nodes().deleter().deleted()
    }

    /// Waits for more deletions than `before`, where some are due; whether there are.
    pub(crate) fn wait_for_deletions(&self, before: u64) -> bool {
        self.mounted.nodes().deleter().wait_for_room(before)
    }

    /// Bytes that found no room.
    pub(crate) fn unplaced(&self) -> Unplaced {
        self.unplaced.counts()
    }

    /// Tries all bytes again that found no room, for a sync of the whole file system.
    ///
    /// # Errors
    /// `ENOSPC`; what else writing met, each time.
    pub(crate) fn place_for_sync(&self) -> Reply<()> {
        self.unplaced.place_for_sync()
    }

    /// The kernel is gone: ends what still waits for it and closes all that is open.
    pub(crate) fn finish(&self) {
        self.keeper.finish();
        self.mounted.kernel().finish();
        if let Err(errno) = self.unplaced.place_all() {
            tracing::error!(%errno, "bytes that were written last found no room and are lost, as their writers were told");
        }
        self.mounted.handles().clear();
        self.mounted.nodes().finish();
    }
}

impl Service for MountService {
    type Names = Names;
    type Attributes = FileAttributes;
    type Files = Files;
    type Directories = Directories;
    type ExtendedAttributes = ExtendedAttributes;

    fn names(&self) -> &Names {
        &self.names
    }

    fn attributes(&self) -> &FileAttributes {
        &self.attributes
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn directories(&self) -> &Directories {
        &self.directories
    }

    fn extended_attributes(&self) -> &ExtendedAttributes {
        &self.extended_attributes
    }
}
