//! What tests lean on: a simulated device that can fail, lie and lose power ([`SimulatedDevice`],
//! [`power_cut`]), the walk of a mounted tree ([`walk`]), seeded workloads with their model ([`workload`]),
//! the outside judges ([`kernel`]), and the way a test says what it needs ([`require!`]).
//!
//! The kit must not know how the engine does its work: it sees devices, mounted trees and other people's
//! tools; with the feature `engine` also the library, as any of its users does (`subject`).

// What goes wrong here ends a test, with its message.
#![allow(clippy::missing_errors_doc)]

mod eventually;
pub mod golden;
#[cfg(feature = "engine")]
pub mod hostile;
#[cfg(feature = "engine")]
pub mod judges;
pub mod kernel;
mod kernel_log;
#[cfg(feature = "engine")]
pub mod long_run;
#[cfg(feature = "engine")]
pub mod matrix;
mod merkle;
pub mod metrics_page;
pub mod modelled;
#[cfg(feature = "engine")]
pub mod mutator;
pub mod power_cut;
pub mod require;
mod scratch;
pub mod simulated;
#[cfg(feature = "engine")]
pub mod subject;
pub mod walk;
pub mod workload;

pub use eventually::eventually;
pub use merkle::merkle_tree;
pub use modelled::{DiskModel, ModelledDevice};
pub use scratch::Scratch;
pub use simulated::SimulatedDevice;
