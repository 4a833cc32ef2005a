//! Streams of this crate, judged by Linux.

mod dump_like_progs;
mod kernel_receives;
