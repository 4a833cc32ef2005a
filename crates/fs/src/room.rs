//! Doing again what found no space (see [`Tries`]).

use crate::data::Tries;
use crate::{Filesystem, Result};

impl Filesystem {
    /// Does what takes space, and again after a commit where it found none. A refusal has changed nothing, so
    /// `work` can be done anew. The caller holds no transaction handle.
    ///
    /// # Errors
    /// What the last try met.
    pub(crate) fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = Tries::new(self.engine());
        loop {
            match work() {
                Err(error) if tries.again(&error)? => {}
                done => return done,
            }
        }
    }
}
