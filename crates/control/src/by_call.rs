//! Requests that the client carries out by a system call of its own. The kernel tells those who watch a
//! directory (inotify) of what goes through a call, and of nothing that a server does by itself. So mkdir(2)
//! of a name makes the subvolume or the snapshot that was asked for there, and rmdir(2) deletes the
//! subvolume.
//!
//! Order: the client asks ([`Request::ByCall`](crate::Request::ByCall)), the executor
//! [`expects`](ExpectedCalls::expect) the call, the kernel hands the call to the server of the mount, which
//! [`takes`](ExpectedCalls::take) it and performs it, and the client asks what became of it. Only the process
//! that asked is answered so. A connection that ends expects nothing more.

use rustix::io::Errno;
use vlinder_base::sync::atomic::{AtomicUsize, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_fs::InodeId;

use crate::ErrorBody;
use crate::protocol::Answer;

/// A system call that stands for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// mkdir(2)
    MakeDirectory,
    /// rmdir(2)
    RemoveDirectory,
}

/// What the kernel hands over of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlace {
    /// Which.
    pub call: Call,
    /// The process that calls, as the server sees it.
    pub process: u32,
    /// As whom it calls (`fsuid`). A set-user-id program that the process has become since is not who asked.
    pub user: u32,
    /// The directory that the name lies in.
    pub directory: InodeId,
    /// The name.
    pub name: Vec<u8>,
}

/// Does what was asked.
pub(crate) type Job = Box<dyn FnOnce() -> Result<Answer, ErrorBody> + Send>;

enum Progress {
    Expected(Job),
    Performing,
    Ended(Box<Result<Answer, ErrorBody>>),
}

/// A call that a client was told to make.
pub struct ExpectedCall {
    place: CallPlace,
    progress: Mutex<Progress>,
}

impl ExpectedCall {
    /// The call has come: does what it stands for.
    ///
    /// # Errors
    /// What the caller is told; the client hears the rest of it.
    pub fn perform(&self) -> Result<(), Errno> {
        let mut progress = self.progress.lock();
        let job = match std::mem::replace(&mut *progress, Progress::Performing) {
            Progress::Expected(job) => job,
            other => {
                *progress = other;
                return Err(Errno::ALREADY);
            }
        };
        drop(progress);
        let result = job();
        let told = result.as_ref().map(drop).map_err(|body| Errno::from_raw_os_error(body.errno));
        *self.progress.lock() = Progress::Ended(Box::new(result));
        told
    }

    /// What became of it; none if the call did not come.
    fn outcome(&self) -> Option<Result<Answer, ErrorBody>> {
        match &*self.progress.lock() {
            Progress::Ended(result) => Some(Result::clone(result)),
            Progress::Expected(_) | Progress::Performing => None,
        }
    }
}

/// The calls that are expected on a mount.
#[derive(Default)]
pub struct ExpectedCalls {
    expected: Mutex<Vec<Arc<ExpectedCall>>>,
    /// How many: hardly ever more than none, and every call asks.
    count: AtomicUsize,
}

impl ExpectedCalls {
    /// Expects a call from now on.
    pub(crate) fn expect(self: &Arc<Self>, place: CallPlace, job: Job) -> Expectation {
        let call = Arc::new(ExpectedCall { place, progress: Mutex::new(Progress::Expected(job)) });
        let mut expected = self.expected.lock();
        expected.push(Arc::clone(&call));
        self.count.store(expected.len(), Ordering::Release);
        Expectation { calls: Arc::clone(self), call }
    }

    /// Whether any call is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The call that is expected at a place. It is expected no more.
    #[must_use]
    pub fn take(&self, place: &CallPlace) -> Option<Arc<ExpectedCall>> {
        let mut expected = self.expected.lock();
        let position = expected.iter().position(|call| call.place == *place)?;
        let call = expected.swap_remove(position);
        self.count.store(expected.len(), Ordering::Release);
        Some(call)
    }

    fn forget(&self, call: &Arc<ExpectedCall>) {
        let mut expected = self.expected.lock();
        expected.retain(|one| !Arc::ptr_eq(one, call));
        self.count.store(expected.len(), Ordering::Release);
    }
}

/// A connection's expectation of a call: while it lives, the call is taken for what was asked.
pub struct Expectation {
    calls: Arc<ExpectedCalls>,
    call: Arc<ExpectedCall>,
}

impl Expectation {
    /// What became of the call, which is expected no more; none if it did not come.
    pub(crate) fn end(self) -> Option<Result<Answer, ErrorBody>> {
        self.calls.forget(&self.call);
        self.call.outcome()
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        self.calls.forget(&self.call);
    }
}

#[cfg(test)]
mod tests {
    use vlinder_fs::{ObjectId, RootId};

    use super::*;

    fn place(process: u32, name: &[u8]) -> CallPlace {
        let directory = InodeId::new(RootId::FS_TREE, ObjectId(256));
        CallPlace { call: Call::MakeDirectory, process, user: 1000, directory, name: name.to_vec() }
    }

    #[test]
    fn a_call_is_taken_once_by_the_process_that_asked() {
        let calls = Arc::new(ExpectedCalls::default());
        assert!(calls.is_empty());
        let expectation = calls.expect(place(7, b"new"), Box::new(|| Ok(Answer::Finished)));
        assert!(!calls.is_empty());
        assert!(calls.take(&place(8, b"new")).is_none(), "another process");
        assert!(calls.take(&place(7, b"old")).is_none(), "another name");
        let other = CallPlace { call: Call::RemoveDirectory, ..place(7, b"new") };
        let become_another = CallPlace { user: 0, ..place(7, b"new") };
        assert!(calls.take(&other).is_none(), "another call");
        assert!(calls.take(&become_another).is_none(), "another user");
        let call = calls.take(&place(7, b"new")).unwrap();
        assert!(calls.take(&place(7, b"new")).is_none(), "it came already");
        assert_eq!(call.perform(), Ok(()));
        assert_eq!(call.perform(), Err(Errno::ALREADY));
        assert_eq!(expectation.end(), Some(Ok(Answer::Finished)));

        let refused = calls.expect(place(7, b"new"), Box::new(|| Err(ErrorBody::new(Errno::ROFS, "no"))));
        assert_eq!(calls.take(&place(7, b"new")).unwrap().perform(), Err(Errno::ROFS));
        assert_eq!(refused.end().unwrap().unwrap_err().errno, Errno::ROFS.raw_os_error());

        let never = calls.expect(place(7, b"new"), Box::new(|| unreachable!("nobody called")));
        assert_eq!(never.end(), None);
        drop(calls.expect(place(7, b"new"), Box::new(|| unreachable!("nobody called"))));
        assert!(calls.is_empty() && calls.take(&place(7, b"new")).is_none());
    }
}
