//! What this crate tells of snapshots: compared with a walk, with what is done to them, and with Linux.

mod costs;
mod hostile;
mod made_by_linux;
mod oracle;
mod random_pairs;
mod usage;
