//! Directories that stand for subvolumes: mkdir(2) and rmdir(2) of a client that asked for one
//! ([`vlinder_control::by_call`]).

use vlinder_base::sync::{Arc, OnceLock};
use vlinder_control::by_call::{Call, CallPlace, ExpectedCall, ExpectedCalls};
use vlinder_fs::Inode;

use crate::transport::Requester;

/// The calls that clients of the control socket say they are about to make.
#[derive(Default)]
pub(super) struct SubvolumeCalls {
    /// None without a control socket.
    expected: OnceLock<Arc<ExpectedCalls>>,
}

impl SubvolumeCalls {
    /// Says where the calls are told.
    pub(super) fn set_expected(&self, calls: Arc<ExpectedCalls>) {
        // Said twice, the first stays; a mount has one control socket.
        let _ = self.expected.set(calls);
    }

    /// What this call stands for, if it is no call for a directory.
    pub(super) fn take(
        &self,
        requester: Requester,
        call: Call,
        directory: &Inode,
        name: &[u8],
    ) -> Option<Arc<ExpectedCall>> {
        let calls = self.expected.get().filter(|calls| !calls.is_empty())?;
        let Requester { user, process, .. } = requester;
        calls.take(&CallPlace { call, process, user, directory: directory.id(), name: name.to_vec() })
    }
}
