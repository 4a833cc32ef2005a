//! What this crate tells of snapshots, compared with what is done to them.

mod usage;
