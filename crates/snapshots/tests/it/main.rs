//! What is found to differ between snapshots, compared with a walk of both, and with Linux.

mod costs;
mod hostile;
mod made_by_linux;
mod oracle;
mod random_pairs;
