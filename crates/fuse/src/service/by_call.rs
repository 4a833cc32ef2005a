//! Directories that stand for subvolumes: mkdir(2) and rmdir(2) of a client that asked for one
//! ([`vlinder_control::by_call`]).

use vlinder_base::sync::Arc;
use vlinder_control::by_call::{Call, CallPlace, ExpectedCall, ExpectedCalls};
use vlinder_fs::{Caller, Inode};

use super::MountService;
use crate::transport::{Entry, NodeNumber, Reply, Requester};

impl MountService {
    /// Says where the calls are told that clients of the control socket make.
    pub(crate) fn set_expected_calls(&self, calls: Arc<ExpectedCalls>) {
        // Said twice, the first stays; a mount has one control socket.
        let _ = self.calls.set(calls);
    }

    /// Whoever asks the mount is told this name of its control socket.
    pub(crate) fn tell_name(&self, name: &[u8]) {
        if let Some(answer) = vlinder_device::encode_mount_name(name) {
            let _ = self.told_name.set(answer);
        }
    }

    /// What this call stands for, if it is no call for a directory.
    pub(super) fn expected_call(
        &self,
        requester: Requester,
        call: Call,
        directory: &Inode,
        name: &[u8],
    ) -> Option<Arc<ExpectedCall>> {
        let calls = self.calls.get().filter(|calls| !calls.is_empty())?;
        let Requester { user, process, .. } = requester;
        calls.take(&CallPlace { call, process, user, directory: directory.id(), name: name.to_vec() })
    }

    /// Makes the subvolume that was asked for.
    pub(super) fn make_subvolume(
        &self,
        call: &ExpectedCall,
        directory: &Arc<Inode>,
        parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry> {
        call.perform()?;
        self.made(self.filesystem.lookup(&Caller::superuser(), directory, name), parent)
    }
}
