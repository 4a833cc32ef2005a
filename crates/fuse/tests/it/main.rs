//! The mount: what programs, the kernel and the control socket see of it.

mod coherent;
mod control;
mod exported;
mod failures;
mod full;
mod full_matrix;
mod mount;
mod nameless;
mod nested_snapshots;
mod requests;
mod rig;
mod shown;
mod synced;
