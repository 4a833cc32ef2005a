//! Answers the kernel's requests from a [`Filesystem`](vlinder_fs::Filesystem).
//!
//! [`mounted`] is the core that all objects share: the file system, files by number ([`nodes`]), what is open
//! ([`handles`]), and the way to the kernel ([`kernel_link`]). Above it stand objects with a state of their
//! own: [`unplaced`], [`blocks`], [`change_times`], [`kept_pages`], and the [`gate`]. [`shown`] makes what
//! the kernel is told of a file. At the top each family of requests has an object that answers it: [`names`],
//! [`attributes`], [`files`], [`directories`], [`extended_attributes`]. [`parts`] is what they share, and
//! `MountService` holds them all.

mod aside;
mod attributes;
mod blocks;
mod change_times;
mod convert;
mod deletions;
mod directories;
mod durability;
mod exported;
mod extended_attributes;
mod files;
mod flags;
mod gate;
mod generations;
mod handles;
mod kept_pages;
mod kernel_link;
mod kernel_names;
mod kernel_references;
mod mount_service;
mod mounted;
mod names;
mod nodes;
mod opening;
mod parts;
mod privileges;
mod ranges;
mod shown;
mod subvolume_calls;
mod unplaced;
mod writing;

pub use self::mount_service::MountService;
