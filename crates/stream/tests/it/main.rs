//! Streams of this crate, judged by Linux.

mod exact;
mod full;
mod hostile;
mod kernel_receives;
mod power_cuts;
mod refusals;
mod resuming;
mod support;
mod there_and_back;
