//! Answers requests about names.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_control::by_call::{Call, ExpectedCall, ExpectedCalls};
use vlinder_fs::{Caller, Inode, Refusal, RenameMode};

use super::convert::{decode_device, errno, file_type_of, judged, remover};
use super::exported::ExportedFiles;
use super::gate::Gate;
use super::mounted::{Mounted, visible};
use super::parts::Parts;
use super::shown::Shown;
use super::subvolume_calls::SubvolumeCalls;
use crate::transport::{Entry, NameService, NodeNumber, Reply, Requester};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

/// Names of files: looked up, made, changed and removed.
pub struct Names {
    mounted: Arc<Mounted>,
    shown: Arc<Shown>,
    gate: Arc<Gate>,
    exported: ExportedFiles,
    calls: SubvolumeCalls,
}

impl Names {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            shown: parts.shown.clone(),
            gate: parts.gate.clone(),
            exported: ExportedFiles::new(parts.mounted.clone(), parts.shown.clone()),
            calls: SubvolumeCalls::default(),
        }
    }

    /// Says where the calls are told that clients of the control socket make.
    pub(super) fn set_expected_calls(&self, calls: Arc<ExpectedCalls>) {
        self.calls.set_expected(calls);
    }

    /// Makes the subvolume that was asked for.
    fn make_subvolume(
        &self,
        call: &ExpectedCall,
        directory: &Arc<Inode>,
        parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry> {
        call.perform()?;
        let made = self.mounted.filesystem().names().lookup(&Caller::superuser(), directory, name);
        self.shown.made(made, parent)
    }
}

impl NameService for Names {
    fn forget(&self, node: NodeNumber, lookups: u64) {
        self.mounted.nodes().forget(node, lookups);
    }

    fn lookup(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<Option<Entry>> {
        if ExportedFiles::is_asked_by(name) {
            return self.exported.lookup(parent, name).map(Some);
        }
        let directory = self.mounted.inode(parent)?;
        match self.mounted.filesystem().names().lookup(&judged(requester, 0), &directory, name) {
            Ok(inode) => Ok(Some(self.shown.entry(&*visible(inode)?, parent))),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(None),
            Err(error) => Err(errno(&error)),
        }
    }

    fn read_link(&self, node: NodeNumber) -> Reply<Vec<u8>> {
        let inode = self.mounted.inode(node)?;
        let target = self.mounted.filesystem().names().read_link(&inode).map_err(|error| errno(&error))?;
        self.mounted.filesystem().attributes().note_access(&inode);
        Ok(target)
    }

    fn make_node(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, umask), self.mounted.inode(parent)?);
        let file_type = file_type_of(mode).ok_or(Errno::INVAL)?;
        let (device, filesystem) = (decode_device(device), self.mounted.filesystem());
        self.mounted.with_room(|| {
            let permissions = mode & 0o7777;
            let made =
                filesystem.names().create_node(&caller, &directory, name, file_type, permissions, device);
            self.shown.made(made, parent)
        })
    }

    fn make_directory(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, umask), self.mounted.inode(parent)?);
        if let Some(call) = self.calls.take(requester, Call::MakeDirectory, &directory, name) {
            return self.make_subvolume(&call, &directory, parent, name);
        }
        self.mounted.with_room(|| {
            let filesystem = self.mounted.filesystem();
            let made = filesystem.names().create_directory(&caller, &directory, name, mode & 0o7777);
            self.shown.made(made, parent)
        })
    }

    fn make_symbolic_link(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, 0), self.mounted.inode(parent)?);
        self.mounted.with_room(|| {
            let filesystem = self.mounted.filesystem();
            self.shown
                .made(filesystem.names().create_symbolic_link(&caller, &directory, name, target), parent)
        })
    }

    fn unlink(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()> {
        let (caller, directory) = (judged(requester, 0), self.mounted.inode(parent)?);
        let filesystem = self.mounted.filesystem();
        self.mounted.nodes().remove_name(
            || filesystem.names().unlink_and_hold(&caller, &directory, name),
            || filesystem.names().unlink(&caller, &directory, name),
        )
    }

    fn remove_directory(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()> {
        let directory = self.mounted.inode(parent)?;
        if let Some(call) = self.calls.take(requester, Call::RemoveDirectory, &directory, name) {
            return call.perform();
        }
        let (caller, filesystem) = (remover(requester), self.mounted.filesystem());
        self.mounted.nodes().remove_name(
            || filesystem.names().remove_directory_and_hold(&caller, &directory, name),
            || filesystem.names().remove_directory(&caller, &directory, name),
        )
    }

    fn rename(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        new_parent: NodeNumber,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            RENAME_WHITEOUT => RenameMode::Whiteout,
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = (self.mounted.inode(parent)?, self.mounted.inode(new_parent)?);
        let (caller, filesystem) = (remover(requester), self.mounted.filesystem());
        self.mounted.nodes().remove_name(
            || filesystem.names().rename_and_hold(&caller, &from, name, &to, new_name, mode),
            || filesystem.names().rename(&caller, &from, name, &to, new_name, mode),
        )
    }

    fn link(
        &self,
        requester: Requester,
        node: NodeNumber,
        new_parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry> {
        let (inode, directory) = (self.mounted.inode(node)?, self.mounted.inode(new_parent)?);
        let caller = judged(requester, 0);
        self.mounted.with_room(|| {
            let linked = self.mounted.filesystem().names().link(&caller, &inode, &directory, name);
            self.gate.shut_after_reply(&inode);
            self.shown.made(linked.map(|()| Arc::clone(&inode)), new_parent)
        })
    }
}
