//! Which thread answers a request, and on which processor.

use ::fuser::Request;

use super::adapter::Adapter;
use crate::transport::attendance::{Turn, Work};

impl<S> Adapter<S> {
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
