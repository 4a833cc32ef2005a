//! What every verb of the command stands on: one call of the command, and what its arguments name.
//!
//! A verb is given a [`session::Session`] to speak by, and finds what an argument names: files wherever they
//! lie ([`place`]), images ([`image`]), mounts of ours ([`mounted`]), file systems and subvolumes wherever
//! they lie ([`object`]). This crate must not know any verb, nor how the programs are called, and it holds no
//! file-system logic.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: down this table. A file imports only from layers above its own in it, or from lower files of
//! its own:
//!
//! | layer | modules |
//! |---|---|
//! | words and failures | [`text`], [`failure`], [`report`] and [`output`] (what comes out), [`times`], [`units`], [`values`] |
//! | one call of the command | [`session`], [`progress`], [`tally`], [`interruption`], [`caller`], [`options`] (`-o`), [`target`] (what an argument names) |
//! | what is told of a file system | [`fullness`], [`metrics`], [`condition`] |
//! | files wherever they lie | [`place`] |
//! | mounts and images | [`mounted`], [`devices`], [`leased`], [`image`] (what a verb has open), [`patterns`] |
//! | file systems wherever they lie | [`object`] |

pub mod caller;
pub mod condition;
pub mod devices;
pub mod failure;
mod foreign_mount;
pub mod fullness;
pub mod image;
pub mod interruption;
pub mod leased;
pub mod metrics;
pub mod mounted;
pub mod object;
pub mod options;
mod output;
pub mod path_filter;
pub mod patterns;
pub mod place;
pub mod progress;
pub mod report;
pub mod session;
pub mod tally;
pub mod target;
pub mod text;
pub mod times;
pub mod units;
pub mod values;
