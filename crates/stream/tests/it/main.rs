//! Streams of this crate, judged by Linux.

mod costs;
mod kernel_receives;
mod scenarios;
mod sources;
mod versions;
