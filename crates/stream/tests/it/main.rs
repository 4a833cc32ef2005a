//! Streams of this crate, judged by Linux.

mod costs;
mod dump_like_progs;
mod kernel_receives;
mod random_contents;
mod scenarios;
mod sources;
mod versions;
