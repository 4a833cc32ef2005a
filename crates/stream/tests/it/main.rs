//! Streams of this crate, judged by Linux.

mod kernel_receives;
