//! The verbs that examine a file system which may be damaged: [`inspect`] shows what lies on disk, [`check`]
//! judges it, and [`restore`] copies files out of what can't be opened any more.
//!
//! They read, and write nothing to an image. This crate must not know how a file system is changed, nor any
//! other verb; printing the format's structures is what it is for.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: the three modules stand side by side, and none imports from another. Each head has a path of
//! its own; the longest are those of [`inspect`] and [`restore`].

pub mod check;
pub mod inspect;
pub mod restore;
