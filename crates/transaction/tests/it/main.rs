//! Transactions on images: commits, references, deletions, damage.

mod commits;
mod damage;
mod deletions;
mod read_rules;
mod references;
mod support;
