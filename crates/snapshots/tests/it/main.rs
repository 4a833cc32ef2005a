//! What is found to differ between snapshots, compared with a walk of both, and with Linux.

mod oracle;
mod random_pairs;
