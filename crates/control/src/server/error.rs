//! Why a control socket can't be served.

use std::io;

use crate::location::LocationError;

/// A socket that can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// None of the places for it can be used.
    #[error("there is no place for the control socket: {}", .refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoPlace {
        /// What is wrong with each.
        refused: Vec<LocationError>,
    },
    /// There is no thread to serve it.
    #[error("the control socket can't be served: {source}; allow more processes (ulimit -u), and try again")]
    NoThread {
        /// Why.
        source: io::Error,
    },
}
