//! What answers for a service: each request is counted, has a turn among the threads, and is kept from ending
//! its thread by a mistake.

use ::fuser::{Generation, ReplyAttr, ReplyEntry, Request};
use vlinder_base::sync::Arc;

use super::answers::{answer_attributes, attributes_of, guarded, to_errno, validity_of};
use crate::transport::attendance::{Attendance, Turn, Work};
use crate::transport::locality::Locality;
use crate::transport::requests::{Opcode, RequestCounters};
use crate::transport::{Entry, NodeAttributes, Reply, Requester, Service, Settings};

/// Answers for a service.
pub(super) struct Adapter<S> {
    pub(super) service: Arc<S>,
    pub(super) settings: Settings,
    pub(super) requests: RequestCounters,
    pub(super) locality: Locality,
    pub(super) attendance: Attendance,
}

impl<S: Service> Adapter<S> {
    /// The process that sent a request.
    pub(super) fn requester(&self, request: &Request) -> Requester {
        let acts_as_root = self.settings.acts_as_root;
        Requester { user: request.uid(), group: request.gid(), process: request.pid(), acts_as_root }
    }

    pub(super) fn answer<T>(&self, opcode: Opcode, work: impl FnOnce() -> Reply<T>) -> Reply<T> {
        self.requests.count(opcode);
        guarded(work)
    }

    /// As [`answer`](Self::answer) where nothing but a mistake of ours can go wrong.
    pub(super) fn perform(&self, opcode: Opcode, work: impl FnOnce()) -> Reply<()> {
        self.answer(opcode, || {
            work();
            Ok(())
        })
    }

    pub(super) fn answer_entry(&self, reply: ReplyEntry, result: Reply<Entry>) {
        match result {
            Ok(entry) => {
                let attributes = attributes_of(&entry.attributes, entry.node.0);
                let validity = validity_of(self.settings.validity, &entry.attributes);
                reply.entry(&validity, &attributes, Generation(entry.generation));
            }
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    pub(super) fn answer_attributes(&self, reply: ReplyAttr, result: Reply<NodeAttributes>) {
        answer_attributes(self.settings.validity, reply, result);
    }

    /// A request is answered until this is dropped. Its program waits for that.
    pub(super) fn turn(&self, request: &Request, work: Work) -> Turn<'_> {
        match work {
            Work::Short => self.locality.note(request.pid()),
            Work::Long => self.locality.note_large(),
        }
        self.attendance.begin(request.pid(), work, self.locality.shares_processor())
    }

    /// As [`turn`](Self::turn) for what no program waits for.
    pub(super) fn unawaited_turn(&self) -> Turn<'_> {
        self.attendance.begin(0, Work::Short, self.locality.shares_processor())
    }
}
