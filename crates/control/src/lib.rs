//! The control socket of a mount: what the kernel's system calls can't carry (subvolumes, sync, usage,
//! statistics) goes through a Unix socket to the process that serves the mount.
//!
//! This crate must not know FUSE's protocol: what the kernel has cached is told through a [`KernelNotifier`].
//! It does know how a mount of ours is listed ([`mounts`]) and taken away ([`unmount`]), which front ends ask
//! without serving one.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`protocol`] (what is said), `frame` (how it travels), [`location`] (where the socket lies),
//! then the two ends, [`client`] and [`server`], and [`executor`], which does what was asked with the rights
//! of the peer.

pub mod by_call;
pub mod client;
mod connections;
mod dead_sockets;
mod effect;
mod error;
pub mod executor;
mod file_records;
mod frame;
mod last_resort;
mod limits;
pub mod location;
mod mount_records;
pub mod mounts;
mod name;
mod patience;
mod peer;
pub mod places;
pub mod protocol;
pub mod receive;
mod received_numbers;
pub mod server;
mod stream_records;
mod trim_records;
pub mod unmount;
mod upload;

pub use client::{Client, ClientError};
pub use effect::Effect;
pub use error::{ErrorBody, ErrorKind};
pub use executor::{FilesystemExecutor, KernelNotifier, MountFacts, Unplaced};
pub use frame::FrameError;
pub use limits::is_trusted;
pub use location::{LocationError, SocketLocation};
pub use mounts::MountEntry;
pub use peer::Peer;
pub use protocol::{Answer, Name, Request};
pub use server::{Conversation, Executor, Server};
