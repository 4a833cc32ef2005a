//! What files hold: which ranges are sent, and where their bytes come from.
//!
//! Reading path: [`ContentSource`] (bytes of extents, verified and decompressed), `changed` (the ranges of a
//! file that do not show in both states what they showed), [`ContentTurn`] (one file's content as commands).

mod changed;
mod extents;
mod source;
mod turn;

pub use source::ContentSource;
pub(super) use turn::ContentTurn;
