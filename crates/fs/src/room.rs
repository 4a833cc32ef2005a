//! Doing again what found no space (see [`Tries`]).

use vlinder_data::Tries;
use vlinder_transaction::Engine;

use crate::Result;

/// Does what takes space, and again after a commit where it found none. A refusal has changed nothing, so
/// `work` can be done anew. The caller holds no transaction handle.
///
/// # Errors
/// What the last try met.
pub(crate) fn with_room<T>(engine: &Engine, mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = Tries::new(engine);
    loop {
        match work() {
            Err(error) if tries.again(&error)? => {}
            done => return done,
        }
    }
}
