//! Streams of this crate, judged by Linux.

mod costs;
mod dump_like_progs;
mod exact;
mod full;
mod held_files;
mod hostile;
mod kernel_receives;
mod power_cuts;
mod random_contents;
mod refusals;
mod resuming;
mod scenarios;
mod sources;
mod support;
mod there_and_back;
mod versions;
