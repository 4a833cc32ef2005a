//! What is fuzzed, and what judges it: one target for each decoder, codec and way in; the first byte of an
//! input says which. libFuzzer drives them (`make fuzz`), and an ordinary test replays the inputs that once
//! found something (`tests/replay.rs`), without any fuzzer.
//!
//! A target gets any bytes, and must return: a panic is a finding, and so is an answer that breaks one of its
//! laws.
//!
//! This crate must not know how the engine does its work; where it says what must hold ([`laws`]) it reads
//! bytes by the format's offsets and not through the decoders that it judges.
//!
//! Reading path: [`target`] (the list), [`input`] (how bytes become arguments), then a module for each group.

pub mod blocks;
pub mod codecs;
#[cfg(feature = "engine")]
pub mod images;
pub mod input;
pub mod item_case;
pub mod items;
pub mod laws;
#[cfg(feature = "engine")]
pub mod measuring;
#[cfg(feature = "engine")]
pub mod operations;
pub mod partitions;
#[cfg(feature = "engine")]
pub mod receiving;
#[cfg(feature = "engine")]
pub mod seeds;
pub mod streams;
pub mod superblocks;
pub mod target;

pub use target::{Target, by_name, names, run};
