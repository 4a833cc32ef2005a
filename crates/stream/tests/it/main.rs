//! Streams of this crate, judged by Linux.

mod costs;
mod kernel_receives;
mod random_contents;
mod scenarios;
mod sources;
mod versions;
