//! What files hold: which ranges are sent, and where their bytes come from.
//!
//! Reading path: `changed` (the ranges of a file that do not show in both states what they showed), `clones`
//! (where the receiver has them already), [`ContentTurn`] (one file's content as commands).

mod changed;
mod clones;
mod outlet;
mod turn;

pub(super) use clones::CloneSearch;
pub(super) use outlet::Outlet;
pub(super) use turn::ContentTurn;
