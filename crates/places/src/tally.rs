//! How several things ended.

use serde_json::Value;

use crate::failure::{ExitStatus, Failure, Kind};
use crate::report;
use crate::session::Session;

/// Counts how several things ended.
#[derive(Default)]
pub struct Tally {
    done: u64,
    failed: u64,
    /// For JSON.
    errors: Vec<Value>,
    /// A target that names nothing was given.
    has_nonsense: bool,
}

impl Tally {
    /// Counts one; a failure is told at once.
    pub fn add(&mut self, result: Result<(), Failure>, session: &Session) {
        match result {
            Ok(()) => self.done += 1,
            Err(failure) => {
                self.failed += 1;
                self.has_nonsense |= failure.kind == Kind::Usage;
                session.complain(&failure);
                if session.json {
                    self.errors.push(report::error_fields(&failure));
                }
            }
        }
    }

    /// What failed, in a verb's JSON object.
    pub fn errors(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.errors)
    }

    /// How many ended well.
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// How many failed.
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// How the verb ends.
    pub fn ending(&self) -> ExitStatus {
        match (self.done, self.failed) {
            (_, 0) => ExitStatus::Done,
            (0, _) if self.has_nonsense => ExitStatus::Usage,
            (0, _) => ExitStatus::Failed,
            _ => ExitStatus::Partial,
        }
    }
}
