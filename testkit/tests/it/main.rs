//! Long workloads, power cuts and faults in small, and the judges themselves.

mod full_data;
mod interop;
mod judges;
mod judges_agree;
mod no_space_at_every_index;
mod power_cut_fs;
mod workload_faults;
mod workload_full_disk;
mod workload_random;
mod workload_regressions;
